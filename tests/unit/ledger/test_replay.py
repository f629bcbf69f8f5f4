import pytest

from expost.core import ApproxLoss, LedgerUnsound, PureLoss, Receipt, RenyiGuarantee, RenyiLoss, approx, epsilon
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


def test_entries_that_gave_nothing_back_are_sound_and_those_that_gave_too_much_are_not(monkeypatch):
    held, bill = ApproxLoss(0.5, 1e-6), ApproxLoss(0.25, 1e-6)
    for charge, sound in ((held, True), (ApproxLoss(0.125, 1e-6), False), (ApproxLoss(0.25, 0), False)):
        ledger = MemoryLedger()
        ledger.open_account("dataset:a", approx(1, 1e-5))
        hold = ledger.hold(["dataset:a"], held, question="q")
        with monkeypatch.context() as patch:
            patch.setattr("expost.ledger.posting.settled_charge", lambda *_, charge=charge: charge)
            ledger.settle(hold, Receipt(question="q", method="m", promise=held.promise(), bill=bill))

        if sound:
            ledger.verify()
        else:
            with pytest.raises(LedgerUnsound):
                ledger.verify()
