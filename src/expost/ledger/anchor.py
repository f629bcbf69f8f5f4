"""Anchors: what an owner keeps elsewhere to detect that a ledger was put back or rewritten.

An anchor is the id of an entry. With the owner's key it also has a code that nobody else can make, so that an anchor
cannot be exchanged for one of an older or another ledger.
"""

from __future__ import annotations

import hmac

from expost.core import InvalidRequest
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_page import LedgerPage, unsound_ledger
from expost.ledger.secret import Safe

__all__ = ["check_anchor", "write_anchor"]


def write_anchor(page: LedgerPage, safe: Safe) -> str:
    """Return the anchor of the newest entry."""
    entry = page.last_entry()
    assert entry is not None
    code = _sign_entry(page, safe, entry)
    return f"{entry.id}.{code}" if code else entry.id


def check_anchor(page: LedgerPage, safe: Safe, anchor: str, *, signed: bool = False) -> LedgerEntry:
    """Return the entry that an anchor names, or raise ``LedgerUnsound`` if the ledger does not have it.

    ``signed`` demands a code if there is a key to check it with. Ids on receipts have none.
    """
    entry_id, _, code = anchor.partition(".") if isinstance(anchor, str) else ("", "", "")
    entry = page.named_entry(entry_id)
    if entry is None:
        raise unsound_ledger("the anchor is not an entry of it")
    if code and safe.has_key and not hmac.compare_digest(code, _sign_entry(page, safe, entry)):
        raise unsound_ledger("the anchor was not made for it with this key")
    if signed and safe.has_key and not code:
        raise InvalidRequest(
            "Expected an anchor with a code", got=anchor, do="Pass what expost ledger anchor or backup printed"
        )
    return entry


def _sign_entry(page: LedgerPage, safe: Safe, entry: LedgerEntry) -> str:
    return safe.sign(f"{page.intact_entry(0).hash}/{entry.sequence}/{entry.hash}")
