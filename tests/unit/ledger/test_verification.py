from dataclasses import replace

import pytest

from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.core import (
    Adjacency,
    ApproxLoss,
    LedgerUnsound,
    PureLoss,
    Receipt,
    RenyiGuarantee,
    RenyiLoss,
    Unit,
    approx,
    epsilon,
)
from expost.ledger import EntryKind, MemoryLedger, Protected, Report, posting
from expost.ledger.neighbour_posting import NeighbourTerms


def test_a_report_counts_what_is_there():
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    ledger.open_account("dataset:r", RenyiGuarantee(((2, 1), (4, 2))))
    held = RenyiLoss(((2, 0.5), (4, 1)))
    hold = ledger.hold(["dataset:r"], held, question="q")
    ledger.settle(hold, Receipt(question="q", method="m", promise=held.promise(), bill=RenyiLoss(((2, 0), (4, 0)))))
    ledger.hold(["dataset:a"], PureLoss(1), question="q")
    head = ledger.history()[-1].id

    assert ledger.verify() == Report(entries=6, accounts=2, holds=2, open_holds=1, head=head)
    assert str(ledger.verify()) == f"6 entries, 2 accounts, 2 holds, 1 open, head {head}"


def test_an_empty_chain_is_unsound():
    ledger = MemoryLedger()
    ledger._page._chain.clear()

    with pytest.raises(LedgerUnsound, match="begin with its first entry"):
        ledger.verify()


def test_entries_that_gave_nothing_back_are_sound_and_those_that_gave_too_much_are_not(monkeypatch):
    held, bill = ApproxLoss(0.5, 1e-6), ApproxLoss(0.25, 1e-6)
    rule = rule_for(ComposedGuarantee.of(approx(1, 1e-5)))
    for loss, sound in ((held, True), (ApproxLoss(0.125, 1e-6), False), (ApproxLoss(0.25, 0), False)):
        charge = rule.held(loss)
        ledger = MemoryLedger()
        ledger.open_account("dataset:a", approx(1, 1e-5))
        hold = ledger.hold(["dataset:a"], held, question="q")
        with monkeypatch.context() as patch:
            patch.setattr("expost.accounting.budget_rule.BudgetRule.settled", lambda *_, charge=charge, **__: charge)
            ledger.settle(hold, Receipt(question="q", method="m", promise=held.promise(), bill=bill))

        if sound:
            ledger.verify()
        else:
            with pytest.raises(LedgerUnsound):
                ledger.verify()


def test_limits_that_prove_less_than_the_budget_are_unsound(monkeypatch):
    honest = ComposedGuarantee.of(approx(1, 1e-6))
    forged = replace(honest, limits=tuple(limit + 2**36 for limit in honest.limits))
    ledger = MemoryLedger()
    monkeypatch.setattr(ComposedGuarantee, "of", lambda *_, **__: forged)
    ledger.open_account("dataset:a", approx(1, 1e-6))

    with pytest.raises(LedgerUnsound):
        ledger.verify()


def test_a_changed_budget_with_shares_of_its_own_is_unsound(monkeypatch):
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", approx(1, 1e-6))
    ledger.change_budget("dataset:a", approx(2, 1e-6))
    ledger.verify()
    orders = ComposedGuarantee.of(approx(1, 1e-6)).orders
    even = ComposedGuarantee.of(approx(3, 1e-6), orders=orders)  # proves its budget, by other shares
    monkeypatch.setattr(ComposedGuarantee, "changed_to", lambda *_: even)
    ledger.change_budget("dataset:a", approx(3, 1e-6))
    monkeypatch.undo()

    assert even.is_proved
    with pytest.raises(LedgerUnsound):
        ledger.verify()


ROWS = Protected("dataset:a", Adjacency.ADD_REMOVE, Unit.row())
IDS = Protected("dataset:a", Adjacency.ADD_REMOVE, Unit.of("id"))
SWAPS = Protected("dataset:a", Adjacency.REPLACE_ONE, Unit.row())
PAID = PureLoss(0.125)


def receipt(protected: Protected) -> Receipt:
    return Receipt(
        question="q", method="m", promise=epsilon(1), bill=PAID, adjacency=protected.adjacency, unit=protected.unit
    )


def two_units(monkeypatch, first: Protected, second: Protected | None, *, by: str) -> MemoryLedger:
    """A ledger in which a hold is not refused although an earlier hold or receipt was about another unit."""
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    ledger.open_part("dataset:a/site=A", of="dataset:a", by="column site")
    name = "dataset:a/site=A" if by == "part" else "dataset:a"
    hold = ledger.hold([name], PAID, question="q", protected=None if by == "receipt" else first)
    if by == "receipt":
        ledger.settle(hold, receipt(first))
    monkeypatch.setattr(posting, "meet_neighbours", lambda *_: NeighbourTerms())
    ledger.hold(["dataset:a"], PAID, question="q", protected=second)
    return ledger


@pytest.mark.parametrize("by", ["hold", "receipt", "part"])
@pytest.mark.parametrize("second", [IDS, SWAPS])
def test_a_hold_about_another_unit_or_other_neighbours_is_unsound(monkeypatch, by, second):
    with pytest.raises(LedgerUnsound, match="follow from the ones before"):
        two_units(monkeypatch, ROWS, second, by=by).verify()


@pytest.mark.parametrize("by", ["hold", "receipt", "part"])
@pytest.mark.parametrize("second", [ROWS, None])
def test_holds_about_one_unit_and_older_ones_about_none_are_sound(monkeypatch, by, second):
    assert two_units(monkeypatch, ROWS, second, by=by).verify().holds == 2


def test_accounts_about_different_units_are_sound_beside_each_other():
    ledger = MemoryLedger()
    for name, protected in (("dataset:a", ROWS), ("dataset:b", Protected("dataset:b", IDS.adjacency, IDS.unit))):
        ledger.open_account(name, epsilon(1))
        ledger.settle(ledger.hold([name], PAID, question="q", protected=protected), receipt(protected))
        ledger.hold([name], PAID, question="q", protected=protected)

    assert ledger.verify().holds == 4


def test_receipts_from_before_units_were_kept_may_differ():
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    for protected in (ROWS, IDS, SWAPS):
        ledger.settle(ledger.hold(["dataset:a"], PAID, question="q"), receipt(protected))

    assert ledger.verify().holds == 3
    ledger.hold(["dataset:a"], PAID, question="q", protected=ROWS)
    assert ledger.verify().holds == 4


@pytest.mark.parametrize("wrong", [{"before": "never given"}, {"charges": {}}, {"hold": "1-none"}])
def test_a_hold_changes_hands_only_from_the_one_that_had_it_and_at_its_charge(wrong):
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    hold = ledger.hold(["dataset:a"], PureLoss(1), question="q")
    body = {"hold": hold.id, "before": hold.ticket, "ticket": "t", "charges": ledger.history()[-1].body["charges"]}
    ledger._write(lambda page: page.post(EntryKind.TAKE_OVER, body | wrong))

    with pytest.raises(LedgerUnsound, match="follow from the ones before"):
        ledger.verify()
