"""Recomputes a ledger from its chain and compares the result with all stored rows."""

from __future__ import annotations

from dataclasses import dataclass

from expost.ledger.anchor import check_anchor
from expost.ledger.chain_replay import ChainReplay
from expost.ledger.checkpoint import LedgerCheckpoint
from expost.ledger.ledger_page import LedgerPage, unsound_ledger
from expost.ledger.secret import Safe

__all__ = ["Report", "compare_rows", "verify_page"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a sound ledger contains.

    Parameters
    ----------
    entries : int
        The number of entries in the chain.
    accounts : int
        The number of accounts, templates included.
    holds : int
        The number of holds ever taken.
    open_holds : int
        The number of holds that are neither settled nor written off.
    head : str
        The id of the newest entry. Write it down elsewhere and pass it as ``anchor`` to a later ``verify``.

    Examples
    --------
    >>> print(Report(entries=3, accounts=1, holds=1, open_holds=0, head="2-9f86d081884c7d65"))
    3 entries, 1 account, 1 hold, 0 open, head 2-9f86d081884c7d65
    """

    entries: int
    accounts: int
    holds: int
    open_holds: int
    head: str

    def __str__(self) -> str:
        words = (
            (self.entries, "entry", "entries"),
            (self.accounts, "account", "accounts"),
            (self.holds, "hold", "holds"),
        )
        counted = ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in words)
        return f"{counted}, {self.open_holds} open, head {self.head}"


def verify_page(
    page: LedgerPage,
    *,
    anchor: str | None = None,
    safe: Safe | None = None,
    replay: ChainReplay | None = None,
    checkpoint: LedgerCheckpoint | None = None,
) -> Report:
    """Recompute every total and the chain; any edited, removed or reordered row raises ``LedgerUnsound``.

    ``anchor`` is the id of an entry known from elsewhere (a receipt, an earlier report) that must still be there. If it
    has a code, the key in ``safe`` must have made it.
    ``replay`` is an empty replay to fill, for a caller who goes on with it. ``checkpoint`` is one that the key in ``safe``
    made for this ledger.
    """
    replay, compared = ChainReplay() if replay is None else replay, checkpoint is None
    for entry in page.all_entries():
        replay.add_entry(entry)
        if checkpoint is not None and entry.sequence == checkpoint.sequence:
            compared = checkpoint.agrees_with(replay)
    if not compared:
        raise unsound_ledger("its owner's checkpoint does not follow from the chain: entries were edited or removed")
    last = replay.last
    if last is None:
        raise unsound_ledger("it does not begin with its first entry")
    if {row.entry: row for row in page.all_holds()} != replay.holds:
        raise unsound_ledger("the holds do not follow from the chain")
    compare_rows(page, replay)
    if anchor is not None:
        check_anchor(page, Safe() if safe is None else safe, anchor)
    return Report(
        entries=last.sequence + 1,
        accounts=len(replay.totals),
        holds=len(replay.holds),
        open_holds=len(replay.pending),
        head=last.id,
    )


def compare_rows(page: LedgerPage, replay: ChainReplay) -> None:
    """Compare the rows of accounts, open holds and secrets with what the chain leads to."""
    stored = page.all_accounts()
    if len(stored) != len(replay.totals) or not all(map(replay.has_account, stored)):
        raise unsound_ledger("the totals of all accounts do not follow from the chain")
    for entry in replay.pending.values():
        if page.find_hold(entry=entry.sequence) != replay.holds[entry.sequence]:
            raise unsound_ledger("the holds do not follow from the chain")
    secrets = page.all_secrets()
    if len(secrets) != len(replay.secrets) or not all(map(replay.has_secret, secrets)):
        raise unsound_ledger("the kept secrets do not follow from the chain")
