import hashlib
import re
from dataclasses import replace

import pytest

from expost.core import InvalidRequest
from expost.ledger.entry import Entry, Kind, canonical, sequence_of


def chain():
    first = Entry.after(None, Kind.BEGIN, {"format": 1})
    return first, Entry.after(first, Kind.OPEN, {"account": "dataset:a"})


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 7},
        {"kind": Kind.HOLD},
        {"recorded": "2001"},
        {"text": "{}"},
        {"previous": "0" * 64},
        {"hash": "0" * 64},
    ],
)
def test_a_change_of_any_part_breaks_the_hash(change):
    entry = chain()[1]

    assert entry.is_intact
    assert not replace(entry, **change).is_intact


def test_equal_content_at_another_place_has_another_hash():
    first, second = chain()
    third = Entry.after(second, Kind.OPEN, second.body)

    assert second.previous == first.hash
    assert third.hash != second.hash


def test_canonical_text_has_one_spelling_and_no_infinity():
    assert canonical({"b": [1, "é"], "a": None}) == canonical({"a": None, "b": [1, "é"]}) == '{"a":null,"b":[1,"é"]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))


def test_an_id_names_the_line_and_its_hash():
    entry = chain()[1]

    assert entry.id == f"1-{entry.hash[:16]}"
    assert sequence_of(entry.id) == 1


@pytest.mark.parametrize("wrong", ["", "7", "7-", "a-b", "-7-b", "7 -b", "٣-b", 7, None])
def test_what_is_no_id_is_refused(wrong):
    with pytest.raises(InvalidRequest, match="id of a ledger entry"):
        sequence_of(wrong)


def test_a_line_without_charges_names_its_account_or_none():
    first, second = chain()

    assert (first.accounts, second.accounts) == ((), ("dataset:a",))
    assert first.charges == first.spent == {}
    assert first.receipt is None and first.question is None


def test_the_hash_is_over_canonical_json():
    entry = Entry.after(None, Kind.BEGIN, {"a": 'ü " \\ \n \u2028 😀'})
    line = canonical([entry.sequence, entry.kind.value, entry.recorded, entry.text, entry.previous])

    assert entry.hash == hashlib.sha256(line.encode()).hexdigest()


def test_a_line_tells_the_minute_and_no_more():
    entry = chain()[1]

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d\+00:00", entry.recorded)
    assert entry.at == entry.recorded


def test_a_line_of_version_0_1_stays_intact_and_shows_its_minute_only():
    text = '{"format":1}'
    line = canonical([0, "begin", "2026-11-17T04:25:57.123+00:00", text, ""])
    old = Entry(0, Kind.BEGIN, "2026-11-17T04:25:57.123+00:00", text, "", hashlib.sha256(line.encode()).hexdigest())

    assert old.is_intact
    assert old.at == "2026-11-17T04:25+00:00"
    assert "57" not in repr(old).replace(old.hash, "")
    assert Entry.after(old, Kind.OPEN, {"account": "dataset:a"}).previous == old.hash
