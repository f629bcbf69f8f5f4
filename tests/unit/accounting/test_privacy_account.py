"""The public front."""

import math
from fractions import Fraction

import pytest

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
    account,
    account_report,
    event_of,
    privacy_account,
)
from expost.core import InvalidRequest, MissingExtra
from expost.core.guarantee import ApproxGuarantee, PureGuarantee
from expost.core.loss import ApproxLoss, GaussianLoss, PureLoss, RenyiLoss, ZeroConcentratedLoss

DELTA = 1e-6


def test_one_event_and_a_list_are_both_welcome() -> None:
    assert account(PureEvent(1)).epsilon() == account([PureEvent(1)]).epsilon() == 1
    assert account([]).epsilon() == 0


def test_bills_and_promises_count_as_events() -> None:
    assert account([PureLoss(0.1), PureGuarantee(0.2)]).guarantee() == PureGuarantee(Fraction(3, 10))
    assert event_of(ApproxLoss(1, 1e-6)) == ApproxEvent(1, 1e-6)
    assert event_of(ZeroConcentratedLoss(0.5)) == ConcentratedEvent(0.5)
    assert event_of(GaussianLoss(4)) == GaussianEvent(0.5)
    assert event_of(GaussianLoss(0)) == Sequence()
    assert event_of(RenyiLoss(((2, 1),))) == RenyiEvent(((2, 1),))
    with pytest.raises(InvalidRequest, match="promise or a bill"):
        event_of("pure")  # type: ignore[arg-type]


def test_a_gaussian_bill_is_never_understated() -> None:
    event = event_of(GaussianLoss(2))
    assert isinstance(event, GaussianEvent)

    assert 2 <= event.mu_squared < 2 + Fraction(1, 10**50)


def test_realised_losses_are_added_to_the_rest() -> None:
    rest, whole = account(GaussianEvent(2)), account([GaussianEvent(2), ExPostEvent(0.25, 1)])

    assert whole.epsilon(DELTA) == pytest.approx(rest.epsilon(DELTA) + 0.25)
    assert whole.delta(0.2) == 1
    assert whole.delta(1.25) == pytest.approx(rest.delta(1.0))
    assert account(ExPostEvent(0.25, 1)).epsilon() == 0.25


def test_guarantees_are_exact_and_not_below() -> None:
    whole = account(Repeat(GaussianEvent(10), 3))
    promise = whole.guarantee(DELTA)

    assert isinstance(promise, ApproxGuarantee)
    assert whole.epsilon(DELTA) <= float(promise.epsilon) < whole.epsilon(DELTA) * (1 + 1e-9)
    with pytest.raises(InvalidRequest, match="epsilon is finite"):
        whole.guarantee()


def test_every_currency_can_be_asked_for_by_name() -> None:
    event = Sequence([PureEvent(0.1), PureEvent(0.1), PureEvent(0.1)])
    found = account(event).currencies(DELTA)

    assert set(found) >= {"pure", "approx", "homogeneous", "zcdp", "gdp", "rdp"}
    assert all(account(event, currency=name).epsilon(DELTA) == value for name, value in found.items())
    with pytest.raises(InvalidRequest, match="currency among"):
        account(event, currency="dollars")


def test_a_missing_package_is_named_and_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy_account, "_has_convolution", lambda: False)
    event = Repeat(PoissonSampled(0.1, GaussianEvent(1)), 10)

    assert "pld" not in account(event).currencies(DELTA)
    assert account(event).epsilon(DELTA) == account(event, currency="rdp").epsilon(DELTA)
    with pytest.raises(MissingExtra, match=r"expost\[accounting\]"):
        account(event, currency="pld").epsilon(DELTA)


def test_the_installed_package_makes_it_tighter() -> None:
    pytest.importorskip("dp_accounting")
    event = Repeat(PoissonSampled(0.1, GaussianEvent(1)), 10)

    assert account(event).epsilon(DELTA) == account(event, currency="pld").epsilon(DELTA)
    assert account(event).epsilon(DELTA) < account(event, currency="rdp").epsilon(DELTA)


def test_the_adjacency_is_checked() -> None:
    sampled = SampledWithoutReplacement(1, 100, LaplaceEvent(1))
    with pytest.raises(InvalidRequest, match="replace-one"):
        account(sampled)

    assert account(sampled, adjacency="replace-one").epsilon() == pytest.approx(math.log1p(0.01 * math.expm1(1)))


def test_parallel_parts_are_told_apart_beyond_one_number() -> None:
    """One part is dearer at a small delta, the other at a large one: each delta has its own dearest part."""
    parts = [GaussianEvent(1), PureEvent(4)]
    whole = account(Parallel(parts))
    for delta in (1e-9, 1e-2):
        assert whole.epsilon(delta) == max(account(part).epsilon(delta) for part in parts)
    assert account(parts[0]).epsilon(1e-9) > account(parts[1]).epsilon(1e-9)
    assert account(parts[0]).epsilon(1e-2) < account(parts[1]).epsilon(1e-2)


def test_the_explanation_is_plain_and_carries_delta() -> None:
    text = account(Repeat(GaussianEvent(10), 2)).explain(1e-5, prior=0.1, risk=0.05, unit="all rows of one tailnum")

    assert "at delta 1e-05" in text
    assert "all rows of one tailnum" in text
    assert "thinks 10 % likely" in text
    assert "except with probability 1e-05" in text
    assert "a risk of 5 % without your data" in text


def test_the_report_of_the_reference_example() -> None:
    report = account_report(gaussian=1.1, sampling=0.01, steps=10_000, delta=1e-5)

    assert report["currencies"]["rdp"] == pytest.approx(5.632, abs=1e-3)
    assert report["epsilon"] == min(report["currencies"].values())
    assert report["adjacency"] == "add-remove"
    assert report["meaning"].startswith("Epsilon is at most")
    if "pld" in report["currencies"]:
        assert 5.19 <= report["epsilon"] <= 5.20


def test_the_report_refuses_nonsense() -> None:
    for wrong in ({"gaussian": 0}, {"sampling": 2}, {"sampling": 0}, {"delta": 0}, {"steps": -1}):
        with pytest.raises(InvalidRequest):
            account_report(**({"gaussian": 1, "delta": 1e-5} | wrong))


def test_an_account_shows_what_it_accounts_for() -> None:
    assert repr(account(PureEvent(1))) == "PrivacyAccount(PureEvent(epsilon=Fraction(1, 1)), adjacency='add-remove')"
