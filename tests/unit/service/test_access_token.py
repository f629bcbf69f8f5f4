"""Tokens: what is kept of them is a slow hash, and everything but the whole text of a usable one is refused."""

import datetime

import pytest

from expost.core import InvalidRequest
from expost.service.access_token import Role, TokenRecord, TokenSecret, VerifiedTokens, parse_duration

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def record_of(secret: TokenSecret, lifetime: datetime.timedelta | None = None) -> TokenRecord:
    return TokenRecord.of(secret, role=Role.ANALYST, subject="ann", dataset="people", now=NOW, lifetime=lifetime)


def test_the_record_has_no_secret_and_two_records_of_one_secret_differ() -> None:
    secret = TokenSecret.make()
    first, second = record_of(secret), record_of(secret)

    assert first.hash != second.hash
    assert secret.secret not in first.hash + first.salt
    assert secret.secret.hex() not in repr(first)
    assert "token_id" not in repr(secret) and secret.text not in repr(secret)


def test_only_the_right_secret_matches_also_the_second_time() -> None:
    secret, known = TokenSecret.make(), VerifiedTokens()
    record = record_of(secret)
    wrong = TokenSecret(secret.token_id, bytes(32))

    for _ in range(2):
        assert known.matches(secret, record)
        assert not known.matches(wrong, record)
        assert not known.matches(secret, None)


def test_a_remembered_secret_does_not_match_another_record() -> None:
    secret, known = TokenSecret.make(), VerifiedTokens()

    assert known.matches(secret, record_of(secret))
    assert not known.matches(secret, record_of(TokenSecret(secret.token_id, b"x" * 32)))


@pytest.mark.parametrize("lifetime", [None, datetime.timedelta(hours=1)])
def test_a_token_ends_when_it_expires_or_is_revoked(lifetime: datetime.timedelta | None) -> None:
    record = record_of(TokenSecret.make(), lifetime)

    assert record.is_usable(NOW)
    assert record.is_usable(NOW + datetime.timedelta(hours=1)) == (lifetime is None)
    assert not TokenRecord(**{**vars(record), "revoked": NOW}).is_usable(NOW)


@pytest.mark.parametrize(
    "text", ["", "expost", "expost_1_2", None, 3, "expost_" + "0" * 18 + "_" + "A" * 42, "é" * 20, "x" * 10**6]
)
def test_a_text_that_is_no_token_is_none(text: object) -> None:
    assert TokenSecret.parse(text) is None


def test_a_token_has_one_spelling() -> None:
    text = TokenSecret.make().text

    assert TokenSecret.parse(text) is not None
    assert TokenSecret.parse(text + "=") is None
    assert TokenSecret.parse(" " + text) is None


@pytest.mark.parametrize("text", ["", "d", "-1d", "3x", "1.5h", "99999999d"])
def test_a_wrong_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="length of time"):
        parse_duration(text)
