import pytest

from expost.core import InvalidRequest, LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import EntryKind, MemoryLedger


@pytest.fixture
def ledger():
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    return ledger


def test_an_account_opened_by_a_template_names_it(ledger):
    ledger.open_account("window:*", epsilon(1))
    ledger.hold(["window:1"], PureLoss(0.5), question="q")
    opened = ledger.history()[-2]

    assert (opened.kind, opened.body["account"], opened.body["template"]) == (EntryKind.OPEN, "window:1", "window:*")


def test_a_receipt_is_kept_without_an_id_that_it_came_with(ledger):
    hold = ledger.hold(["dataset:a"], PureLoss(0.5), question="q")
    receipt = Receipt(question="q", method="m", promise=epsilon(0.5), bill=PureLoss(0.5), ledger_entry="elsewhere")
    entry = ledger.settle(hold, receipt)

    assert ledger.receipt(entry).ledger_entry == entry
    assert ledger.history()[-1].body["receipt"]["ledger_entry"] is None


def test_only_holds_can_be_settled_or_written_off(ledger):
    with pytest.raises(InvalidRequest, match="Expected a hold of this ledger"):
        ledger.write_off(ledger.history()[-1].id)


def test_a_vanished_account_of_a_hold_is_unsound(ledger):
    hold = ledger.hold(["dataset:a"], PureLoss(0.5), question="q")
    del ledger._page._accounts["dataset:a"]

    with pytest.raises(LedgerUnsound, match="an account of a hold does not exist"):
        ledger.settle(hold, Receipt(question="q", method="m", promise=epsilon(0.5), bill=PureLoss(0.5)))


def test_a_budget_of_an_unknown_account_cannot_change(ledger):
    with pytest.raises(InvalidRequest, match="Expected an open account"):
        ledger.change_budget("dataset:b", epsilon(1))
