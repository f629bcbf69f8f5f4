"""A hold that grows stage by stage: what is charged, refused, refunded and replayed."""

from fractions import Fraction

import pytest

from expost.core import BudgetExceeded, InvalidRequest, LedgerUnsound, PureLoss, Receipt, approx, epsilon, zcdp
from expost.ledger import EntryKind, HoldState, open_ledger

BUDGETS = [epsilon(1), approx(1, 1e-6), zcdp(0.5)]
ACCOUNT = "dataset:flights"


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path):
    return None if request.param == "memory" else str(tmp_path / "flights.ledger")


@pytest.fixture(params=BUDGETS, ids=lambda budget: budget.definition)
def ledger(request, place):
    with open_ledger(place) as opened:
        opened.open_account(ACCOUNT, request.param)
        yield opened


def receipt(bill, cap=Fraction(1, 2)):
    return Receipt(question="count", method="m", promise=epsilon(cap), bill=PureLoss(bill))


def take(ledger, first=Fraction(1, 32), most=Fraction(1, 2), **terms):
    return ledger.hold([ACCOUNT], PureLoss(first), question="count", up_to=PureLoss(most), **terms)


def whole(budget, bill, most=Fraction(1, 2)):
    """What one hold of the whole cap, settled at a bill, leaves charged."""
    other = open_ledger(None)
    other.open_account(ACCOUNT, budget)
    hold = other.hold([ACCOUNT], PureLoss(most), question="count")
    other.settle(hold, receipt(bill, most))
    return other.spent(ACCOUNT)


@pytest.mark.parametrize("stages", [[], [Fraction(1, 16)], [Fraction(1, 16), Fraction(1, 4), Fraction(1, 2)]])
@pytest.mark.parametrize("bill", [Fraction(0), Fraction(1, 100), Fraction(1, 32)])
def test_in_the_end_stages_cost_what_one_hold_of_the_cap_costs(ledger, stages, bill):
    hold = take(ledger)
    for stage in stages:
        hold = ledger.extend(hold, PureLoss(stage))
    ledger.settle(hold, receipt(bill))

    assert ledger.spent(ACCOUNT) == whole(ledger.budget(ACCOUNT), bill)
    ledger.verify()


@pytest.mark.parametrize("stage", [Fraction(1, 32), Fraction(1, 8), Fraction(1, 2)])
def test_an_interrupted_stage_is_charged_as_an_outcome_of_the_whole_run(ledger, stage):
    ledger.extend(take(ledger), PureLoss(stage))

    assert ledger.spent(ACCOUNT) == whole(ledger.budget(ACCOUNT), stage)
    ledger.verify()


def test_at_a_renyi_order_the_cap_counts_and_not_the_stage():
    """The price of a small cap for a stage of a large one would break the supermartingale (ex-post-renyi.md)."""
    ledger, other = open_ledger(None), open_ledger(None)
    for each in (ledger, other):
        each.open_account(ACCOUNT, approx(1, 1e-6))
    take(ledger, first=Fraction(1, 32), most=Fraction(1, 2))
    other.hold([ACCOUNT], PureLoss(Fraction(1, 32)), question="count")
    last, smallest = (each.history()[-1].body["charges"][ACCOUNT]["costs"] for each in (ledger, other))

    assert all(a >= b for a, b in zip(last, smallest, strict=True))
    assert any(a > b for a, b in zip(last, smallest, strict=True))


def test_a_stage_that_does_not_fit_is_refused_and_the_one_before_stays(place):
    with open_ledger(place) as ledger:
        ledger.open_account(ACCOUNT, 1)
        hold = take(ledger, first=Fraction(1, 8), most=Fraction(3, 4))
        ledger.hold([ACCOUNT], PureLoss(Fraction(1, 2)), question="another")

        with pytest.raises(BudgetExceeded, match="running questions"):
            ledger.extend(hold, PureLoss(Fraction(3, 4)))
        hold = ledger.extend(hold, PureLoss(Fraction(1, 4)))
        ledger.settle(hold, receipt(Fraction(1, 4)))
        assert ledger.spent(ACCOUNT) == PureLoss(Fraction(3, 4))
        ledger.verify()


def test_a_cap_that_does_not_fit_is_refused_before_the_first_stage(ledger):
    before = ledger.spent(ACCOUNT)

    with pytest.raises(BudgetExceeded):
        take(ledger, first=Fraction(1, 32), most=Fraction(3))
    assert ledger.spent(ACCOUNT) == before


def test_a_bill_above_the_stage_is_refused_although_the_cap_would_cover_it(ledger):
    hold = take(ledger, first=Fraction(1, 32))

    with pytest.raises(LedgerUnsound, match="stage"):
        ledger.settle(hold, receipt(Fraction(1, 4)))
    assert ledger.open_holds()


@pytest.mark.parametrize("wrong", [Fraction(1, 64), Fraction(3, 4)])
def test_a_stage_is_neither_smaller_than_the_one_before_nor_above_the_cap(ledger, wrong):
    with pytest.raises(InvalidRequest, match="from the epsilon"):
        ledger.extend(take(ledger), PureLoss(wrong))


def test_only_the_newest_stage_can_be_extended_or_settled(ledger):
    first = take(ledger)
    second = ledger.extend(first, PureLoss(Fraction(1, 16)))

    with pytest.raises(InvalidRequest, match="newest hold"):
        ledger.extend(first, PureLoss(Fraction(1, 16)))
    with pytest.raises(LedgerUnsound):
        ledger.settle(first, receipt(Fraction(1, 100)))
    ledger.settle(second, receipt(Fraction(1, 100)))
    assert ledger.open_holds() == []


def test_a_hold_without_a_cap_cannot_be_extended(ledger):
    hold = ledger.hold([ACCOUNT], PureLoss(Fraction(1, 8)), question="count")

    with pytest.raises(InvalidRequest, match="up_to"):
        ledger.extend(hold, PureLoss(Fraction(1, 4)))


def test_a_retry_of_a_staged_request_finds_it_and_may_not_run(ledger):
    ledger.extend(take(ledger, request_id="r1"), PureLoss(Fraction(1, 8)))

    again = take(ledger, request_id="r1")
    assert again.repeated
    assert again.state is HoldState.SETTLED


def test_the_chain_shows_each_stage(ledger):
    hold = ledger.extend(take(ledger), PureLoss(Fraction(1, 8)))
    ledger.settle(hold, receipt(Fraction(1, 10)))

    kinds = [entry.kind for entry in ledger.history()]
    assert kinds[-3:] == [EntryKind.HOLD, EntryKind.HOLD, EntryKind.SETTLE]


def test_parts_and_wholes_follow_the_stages(place):
    with open_ledger(place) as ledger:
        ledger.open_account(ACCOUNT, 1)
        ledger.open_part(["a", "b"], of=ACCOUNT)
        hold = ledger.hold(["a"], PureLoss(Fraction(1, 8)), question="count", up_to=PureLoss(Fraction(1, 2)))
        hold = ledger.extend(hold, PureLoss(Fraction(1, 2)))
        assert ledger.spent(ACCOUNT) == PureLoss(Fraction(1, 2))
        ledger.settle(hold, receipt(Fraction(1, 4)))

        assert ledger.spent(ACCOUNT) == ledger.spent("a") == PureLoss(Fraction(1, 4))
        ledger.verify()
