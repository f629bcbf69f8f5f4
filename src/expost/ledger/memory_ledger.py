"""A ledger in memory: the same rules, gone with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from expost.core import Loss, SingleOwner
from expost.ledger.chain_replay import ChainReplay
from expost.ledger.ledger import Ledger, begin_ledger
from expost.ledger.ledger_account import LedgerAccount
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_page import HoldRow, LedgerPage, SecretRow
from expost.ledger.neighbour_record import NeighbourRecord
from expost.ledger.secret import Safe, new_key

__all__ = ["MemoryLedger"]

T = TypeVar("T")


class MemoryLedger(SingleOwner, Ledger):
    """A ledger for one process. It cannot be pickled or used after a fork: two copies would each spend all of it.

    Parameters
    ----------
    key : str or bytes, optional
        The key for kept secrets. Without one a fresh key is made, since nothing is stored.

    Examples
    --------
    >>> MemoryLedger().durable
    False
    """

    durable = False
    url = None
    _owned_noun, _copies_are_itself = "ledger in memory", True
    _owner_hint = 'Pass a durable one, such as ledger="flights.ledger"'

    def __init__(self, *, key: str | bytes | None = None) -> None:
        SingleOwner.__init__(self)
        Ledger.__init__(self, Safe(key or new_key()))
        self._page = _MemoryPage()
        self._write(begin_ledger)

    def _write(self, action: Callable[[LedgerPage], T]) -> T:
        with self._draw_alone():
            try:
                result = action(self._page)
            except BaseException:
                self._page.undo_changes()
                raise
            self._page.undo_steps.clear()
            return result

    def _read(self, action: Callable[[LedgerPage], T]) -> T:
        with self._draw_alone():
            return action(self._page)


class _MemoryPage(LedgerPage):
    """Rows in dictionaries, and the steps that take the last changes back."""

    def __init__(self) -> None:
        self._chain: list[LedgerEntry] = []
        self._latest: dict[str, int] = {}  # the newest entry about each account
        self._accounts: dict[str, LedgerAccount] = {}
        self._parts: dict[str, set[str]] = {}  # the names of an account's parts
        self._holds: dict[int, HoldRow] = {}
        self._requests: dict[str, int] = {}
        self._secrets: dict[str, SecretRow] = {}
        self.undo_steps: list[Callable[[], object]] = []
        self._record, self._followed = NeighbourRecord(), 0
        self._replay = ChainReplay()

    def undo_changes(self) -> None:
        """Take back everything since the steps were last cleared."""
        while self.undo_steps:
            self.undo_steps.pop()()

    def _set_row(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Store a row and how to take it back."""
        if key in table:
            old = table[key]
            self.undo_steps.append(lambda: table.__setitem__(key, old))
        else:
            self.undo_steps.append(lambda: table.pop(key, None))
        table[key] = value

    def last_entry(self) -> LedgerEntry | None:
        return self._chain[-1] if self._chain else None

    def find_entry(self, sequence: int) -> LedgerEntry | None:
        return self._chain[sequence] if 0 <= sequence < len(self._chain) else None

    def all_entries(self) -> Iterator[LedgerEntry]:
        return iter(self._chain)

    def append_entry(self, entry: LedgerEntry) -> None:
        length = len(self._chain)
        self.undo_steps.append(lambda: self._cut_chain(length))
        self._chain.append(entry)
        for name in entry.accounts:
            self._set_row(self._latest, name, entry.sequence)

    def latest_entry(self, account: str) -> int | None:
        return self._latest.get(account)

    def _cut_chain(self, length: int) -> None:
        """Take entries back."""
        del self._chain[length:]
        if self._followed > length:
            self._record, self._followed = NeighbourRecord(), 0
        if self._replay.last is not None and self._replay.last.sequence >= length:
            self._replay = ChainReplay()

    def own_as_replaced(self, account: LedgerAccount) -> Loss | None:
        known = 0 if self._replay.last is None else self._replay.last.sequence + 1
        for entry in self._chain[known:]:
            self._replay.add_entry(entry)
        return self._replay.own_as_replaced(account)

    def neighbours(self) -> NeighbourRecord:
        for entry in self._chain[self._followed :]:
            self._record.follow(entry)
        self._followed = len(self._chain)
        return self._record

    def find_account(self, name: str) -> LedgerAccount | None:
        return self._accounts.get(name)

    def all_accounts(self) -> list[LedgerAccount]:
        return [self._accounts[name] for name in sorted(self._accounts)]

    def parts_of(self, name: str) -> list[LedgerAccount]:
        return [self._accounts[part] for part in sorted(self._parts.get(name, ()))]

    def put_account(self, account: LedgerAccount) -> None:
        if account.part is not None and account.name not in self._accounts:
            parts = self._parts.setdefault(account.part.of, set())
            self.undo_steps.append(lambda: parts.discard(account.name))
            parts.add(account.name)
        self._set_row(self._accounts, account.name, account)

    def find_hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        if request_id is not None:
            entry = self._requests.get(request_id, -1)
        return self._holds.get(entry)

    def all_holds(self) -> list[HoldRow]:
        return list(self._holds.values())

    def put_hold(self, row: HoldRow) -> None:
        self._set_row(self._holds, row.entry, row)
        if row.request_id is not None:
            self._set_row(self._requests, row.request_id, row.entry)

    def find_secret(self, name: str) -> SecretRow | None:
        return self._secrets.get(name)

    def all_secrets(self) -> list[SecretRow]:
        return [self._secrets[name] for name in sorted(self._secrets)]

    def put_secret(self, row: SecretRow) -> None:
        self._set_row(self._secrets, row.name, row)

    def drop_secret(self, name: str) -> None:
        row = self._secrets[name]
        self.undo_steps.append(lambda: self._secrets.__setitem__(name, row))
        del self._secrets[name]
