"""Reads a page of a ledger's history without reading the rest of it.

Every entry states, for each account that it concerns, the number of the newest entry before it about that account. The
hash covers these links, and replaying the chain checks them. So the newest entries about an account are found one from
the other, and none can be hidden.
"""

from __future__ import annotations

from expost.core import InvalidRequest
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_page import LedgerPage

__all__ = ["read_history_page"]

_BATCH = 500  # entries read at once where entries of earlier versions have no links


def read_history_page(page: LedgerPage, account: str | None, *, last: int, before: str | None) -> list[LedgerEntry]:
    """Return the newest ``last`` entries, or those before the entry with the id ``before``, oldest first."""
    following = None
    if before is not None:
        following = page.named_entry(before)
        if following is None:
            raise InvalidRequest("Expected the id of an entry", got=before, do="Copy it from a receipt or history")
    if account is None:
        stop = page.next_sequence() if following is None else following.sequence
        return page.entries_between(stop - last, stop)
    number = page.latest_entry(account) if following is None else _find_earlier(page, account, following)
    found: list[LedgerEntry] = []
    while number is not None and len(found) < last:
        found.append(page.intact_entry(number))
        number = _find_earlier(page, account, found[-1])
    return found[::-1]


def _find_earlier(page: LedgerPage, account: str, entry: LedgerEntry) -> int | None:
    """Return the number of the newest entry about an account before this one."""
    links = entry.body.get("links")
    if links is not None and account in links:
        number: int | None = links[account]
        return number
    # An entry of an earlier version, or one that does not concern the account.
    for stop in range(entry.sequence, 0, -_BATCH):
        for each in reversed(page.entries_between(stop - _BATCH, stop)):
            if account in each.accounts:
                return each.sequence
    return None
