from fractions import Fraction

import pytest

from expost.accounting.budget_rule import ComposedGuarantee
from expost.core import (
    ApproxLoss,
    BudgetExceeded,
    GaussianLoss,
    InvalidRequest,
    LedgerUnsound,
    PureLoss,
    Receipt,
    ZeroConcentratedLoss,
    approx,
    epsilon,
)
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


@pytest.mark.parametrize("loss", [ZeroConcentratedLoss(5), GaussianLoss(10)], ids=["zcdp", "gdp"])
def test_a_first_run_that_plain_sums_have_no_price_for_is_refused_as_too_large(loss):
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", approx(1, 1e-6))

    with pytest.raises(BudgetExceeded, match="Expected a worst case of at most epsilon 1"):
        ledger.hold(["dataset:a"], loss, question="q")


def test_a_refused_hold_leaves_the_sum_of_another_account_unchosen():
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", approx(1, 1e-6))
    ledger.open_account("analyst:b", approx(0.5, 1e-6))
    whole = ApproxLoss(1, 1e-6)  # all of the first account, which would go over to plain sums for it
    with pytest.raises(BudgetExceeded):
        ledger.hold(["dataset:a", "analyst:b"], whole, question="q")

    assert [entry.kind for entry in ledger.history()] == [EntryKind.BEGIN, EntryKind.OPEN, EntryKind.OPEN]
    ledger.hold(["dataset:a"], whole, question="q")
    ledger.verify()


def test_a_template_of_version_0_1_opens_accounts_by_plain_sums_as_it_was_opened(monkeypatch):
    ledger = MemoryLedger()
    with monkeypatch.context() as patch:
        patch.setattr(ComposedGuarantee, "suits", staticmethod(lambda budget: False))
        ledger.open_account("window:*", approx(1, 1e-6))
    ledger.hold(["window:1"], ApproxLoss(1, 1e-6), question="q")

    ledger.verify()
    assert ledger.spent("window:1") == ApproxLoss(1, 1e-6)


def test_all_of_a_new_account_is_left_and_may_be_asked_for():
    ledger = MemoryLedger()
    for name in ("dataset:a", "dataset:b"):
        ledger.open_account(name, approx(1, 1e-6))
    left = ledger.remaining("dataset:a")
    ledger.hold(["dataset:a"], left, question="q")
    ledger.hold(["dataset:b"], PureLoss(0.25), question="q")

    assert left == ApproxLoss(1, 1e-6)
    assert ledger.remaining("dataset:b") == ApproxLoss(Fraction(3, 4), 5e-7)  # half of delta is for composition now
