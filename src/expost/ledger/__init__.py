"""Durable holds and receipts: charge before release, outside the process."""

from expost.ledger.ledger import Ledger
from expost.ledger.ledger_entry import EntryKind, Hold, HoldState, LedgerEntry
from expost.ledger.ledger_history import LedgerHistory
from expost.ledger.ledger_page import Protected
from expost.ledger.memory_ledger import MemoryLedger
from expost.ledger.opening import open_ledger
from expost.ledger.secret import new_key
from expost.ledger.verification import Report

__all__ = [
    "EntryKind",
    "Hold",
    "HoldState",
    "Ledger",
    "LedgerEntry",
    "LedgerHistory",
    "MemoryLedger",
    "Protected",
    "Report",
    "new_key",
    "open_ledger",
]
