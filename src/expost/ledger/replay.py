"""Recomputing a ledger from its chain, and comparing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from expost.core import ExpostError, Guarantee, Loss, Receipt
from expost.ledger.account import Account
from expost.ledger.currency import settled_charge
from expost.ledger.entry import Entry, Kind
from expost.ledger.hold import HoldState
from expost.ledger.page import HoldRow, Page, unsound

__all__ = ["Report", "verify"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a sound ledger holds; ``head`` names its newest line and may be written down elsewhere as an anchor.

    >>> print(Report(entries=3, accounts=1, holds=1, open_holds=0, head="2-9f86d081884c7d65"))
    sound: 3 entries, 1 account, 1 hold, 0 open, head 2-9f86d081884c7d65
    """

    entries: int
    accounts: int
    holds: int
    open_holds: int
    head: str

    def __str__(self) -> str:
        counted = ", ".join(
            f"{count} {one if count == 1 else many}"
            for count, one, many in (
                (self.entries, "entry", "entries"),
                (self.accounts, "account", "accounts"),
                (self.holds, "hold", "holds"),
            )
        )
        return f"sound: {counted}, {self.open_holds} open, head {self.head}"


@dataclass
class _Books:
    """Everything a chain implies."""

    accounts: dict[str, Account] = field(default_factory=dict)
    holds: dict[int, HoldRow] = field(default_factory=dict)
    lines: dict[str, Entry] = field(default_factory=dict)
    secrets: dict[str, tuple[int, str, int]] = field(default_factory=dict)


def verify(page: Page, *, anchor: str | None = None) -> Report:
    """Recompute every total and the chain; any edited, removed or reordered row is an error.

    ``anchor`` is the id of a line known from elsewhere (a receipt, an earlier report) that must still be there.
    """
    books, last = _replay(page.entries())
    if {account.name: account for account in page.accounts()} != books.accounts:
        raise unsound("Expected the totals of all accounts to follow from the chain")
    if {row.entry: row for row in page.holds()} != books.holds:
        raise unsound("Expected the holds to follow from the chain")
    if {row.name: (row.version, row.digest, row.entry) for row in page.secrets()} != books.secrets:
        raise unsound("Expected the kept secrets to follow from the chain")
    if anchor is not None and page.named(anchor) is None:
        raise unsound("Expected the anchor to be an entry of this ledger")
    still_open = sum(row.state is HoldState.OPEN for row in books.holds.values())
    return Report(last.sequence + 1, len(books.accounts), len(books.holds), still_open, last.id)


def _replay(entries: Iterable[Entry]) -> tuple[_Books, Entry]:
    books, last = _Books(), None
    for entry in entries:
        number, previous = (0, "") if last is None else (last.sequence + 1, last.hash)
        if entry.sequence != number or entry.previous != previous or not entry.is_intact:
            raise unsound("Expected an unbroken chain of entries")
        try:
            _STEPS[entry.kind](books, entry)
        except (KeyError, TypeError, ValueError, AttributeError, ExpostError):
            raise unsound("Expected every entry to follow from the ones before") from None
        if any(books.accounts[name].spent != total for name, total in entry.spent.items()):
            raise unsound("Expected the totals in the chain to add up")
        last = entry
    if last is None:
        raise unsound("Expected a ledger to begin with its first entry")
    return books, last


def _begin(books: _Books, entry: Entry) -> None:
    if entry.sequence != 0:
        raise ValueError("a ledger begins once")


def _open(books: _Books, entry: Entry) -> None:
    name, budget = entry.body["account"], Guarantee.from_json(entry.body["budget"])
    template = entry.body["template"]
    if name in books.accounts or (template is not None and books.accounts[template].budget != budget):
        raise ValueError("opened twice, or not as its template says")
    books.accounts[name] = Account.opened(name, budget, entry=entry.sequence)


def _budget(books: _Books, entry: Entry) -> None:
    name = entry.body["account"]
    budget = Guarantee.from_json(entry.body["budget"])
    books.accounts[name] = books.accounts[name].with_budget(budget, entry=entry.sequence)


def _hold(books: _Books, entry: Entry) -> None:
    worst_case = Loss.from_json(entry.body["worst_case"])
    for name, charge in entry.charges.items():
        account = books.accounts[name]
        if account.price(worst_case) != charge:
            raise ValueError("charged otherwise than held")
        books.accounts[name] = account.charged(charge, entry=entry.sequence)
    books.holds[entry.sequence] = HoldRow(entry.sequence, entry.body["request_id"], entry.body["ticket"])
    books.lines[entry.id] = entry


def _settle(books: _Books, entry: Entry) -> None:
    held = _close(books, entry, HoldState.SETTLED)
    worst_case = Loss.from_json(held.body["worst_case"])
    bill = Receipt.from_dict(entry.body["receipt"]).bill
    for name, released in held.charges.items():
        account = books.accounts[name]
        charge = settled_charge(account.budget, worst_case, bill)
        if entry.charges[name] != charge:
            raise ValueError("charged otherwise than billed")
        books.accounts[name] = account.charged(charge, entry=entry.sequence, released=released)


def _write_off(books: _Books, entry: Entry) -> None:
    _close(books, entry, HoldState.WRITTEN_OFF)


def _close(books: _Books, entry: Entry, state: HoldState) -> Entry:
    held = books.lines[entry.body["hold"]]
    row = books.holds[held.sequence]
    if row.state is not HoldState.OPEN or entry.charges.keys() != held.charges.keys():
        raise ValueError("closed twice, or for other accounts")
    books.holds[held.sequence] = replace(row, state=state, closed_by=entry.sequence)
    return held


def _keep(books: _Books, entry: Entry) -> None:
    body: dict[str, Any] = entry.body
    books.secrets[body["secret"]] = (body["version"], body["digest"], entry.sequence)


def _forget(books: _Books, entry: Entry) -> None:
    del books.secrets[entry.body["secret"]]


_STEPS: dict[Kind, Callable[[_Books, Entry], None]] = {
    Kind.BEGIN: _begin,
    Kind.OPEN: _open,
    Kind.BUDGET: _budget,
    Kind.HOLD: _hold,
    Kind.SETTLE: _settle,
    Kind.WRITE_OFF: _write_off,
    Kind.KEEP: _keep,
    Kind.FORGET: _forget,
}
