import pytest

from expost.core import LedgerUnsound, PureLoss, Receipt, RenyiGuarantee, RenyiLoss, epsilon
from expost.ledger import MemoryLedger, Report


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
