import copy

import pytest

from expost.core import PureLoss, epsilon
from expost.ledger import EntryKind, MemoryLedger
from expost.ledger.ledger_page import HoldRow, SecretRow


def test_whatever_fails_half_way_leaves_no_trace():
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    ledger.keep("path:1", b"rung 1")
    before = ledger.verify()

    def half(page):
        page.post(EntryKind.OPEN, {"account": "dataset:b"})
        page.put_account(page.find_account("dataset:a").add_charge(PureLoss(1)))
        page.put_hold(HoldRow(9, "r-1", "t"))
        page.put_secret(SecretRow("path:2", 1, b"", 9))
        page.put_secret(SecretRow("path:1", 2, b"", 9))
        page.drop_secret("path:1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger._write(half)

    assert ledger.verify() == before
    assert ledger.kept("path:1") == b"rung 1"
    assert not ledger.hold(["dataset:a"], PureLoss(1), question="q", request_id="r-1").repeated


def test_a_copy_is_the_same_ledger():
    ledger = MemoryLedger()

    assert copy.copy(ledger) is copy.deepcopy(ledger) is ledger
