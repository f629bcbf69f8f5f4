"""Durable holds and receipts: charge before release, outside the process."""

from expost.ledger.entry import Entry, Kind
from expost.ledger.hold import Hold, HoldState
from expost.ledger.ledger import Ledger
from expost.ledger.memory import MemoryLedger
from expost.ledger.opening import open_ledger
from expost.ledger.protected import Protected
from expost.ledger.replay import Report
from expost.ledger.safe import new_key

__all__ = [
    "Entry",
    "Hold",
    "HoldState",
    "Kind",
    "Ledger",
    "MemoryLedger",
    "Protected",
    "Report",
    "new_key",
    "open_ledger",
]
