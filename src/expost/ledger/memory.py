"""A ledger in memory: the same rules, gone with the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from expost.core import InvalidRequest
from expost.ledger.account import Account
from expost.ledger.entry import Entry
from expost.ledger.ledger import Ledger, begin
from expost.ledger.page import HoldRow, Page, SecretRow
from expost.ledger.safe import Safe, new_key

__all__ = ["MemoryLedger"]

T = TypeVar("T")


class MemoryLedger(Ledger):
    """A ledger for one process; it refuses to be pickled or forked, because two copies would each spend it all.

    >>> MemoryLedger().durable
    False
    """

    durable = False
    url = None

    def __init__(self, *, key: str | bytes | None = None) -> None:
        super().__init__(Safe(key or new_key()))  # nothing is at rest here, so a key of the moment will do
        self._lock = threading.Lock()
        self._page = _MemoryPage()
        self._process = os.getpid()
        self._write(begin)

    def _write(self, action: Callable[[Page], T]) -> T:
        self._check_process()
        with self._lock:
            try:
                result = action(self._page)
            except BaseException:
                self._page.undo()
                raise
            self._page.done()
            return result

    def _read(self, action: Callable[[Page], T]) -> T:
        self._check_process()
        with self._lock:
            return action(self._page)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            _refuse_to_leave()

    def __reduce__(self) -> NoReturn:
        _refuse_to_leave()


def _refuse_to_leave() -> NoReturn:
    raise InvalidRequest(
        "Expected a durable ledger; one in memory cannot leave its process", do='Pass ledger="flights.ledger"'
    )


class _MemoryPage(Page):
    """Rows in dictionaries, and how to take the last changes back."""

    def __init__(self) -> None:
        self._chain: list[Entry] = []
        self._accounts: dict[str, Account] = {}
        self._holds: dict[int, HoldRow] = {}
        self._requests: dict[str, int] = {}
        self._secrets: dict[str, SecretRow] = {}
        self._before: list[Callable[[], object]] = []

    def undo(self) -> None:
        """Take back everything since the last ``done``."""
        while self._before:
            self._before.pop()()

    def done(self) -> None:
        """Keep what was written."""
        self._before.clear()

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if key in table:
            old = table[key]
            self._before.append(lambda: table.__setitem__(key, old))
        else:
            self._before.append(lambda: table.pop(key, None))
        table[key] = value

    def last(self) -> Entry | None:
        return self._chain[-1] if self._chain else None

    def entry(self, sequence: int) -> Entry | None:
        return self._chain[sequence] if 0 <= sequence < len(self._chain) else None

    def entries(self) -> Iterator[Entry]:
        return iter(self._chain)

    def append(self, entry: Entry) -> None:
        self._before.append(self._chain.pop)
        self._chain.append(entry)

    def account(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def accounts(self) -> list[Account]:
        return [self._accounts[name] for name in sorted(self._accounts)]

    def parts(self, name: str) -> list[Account]:
        return [account for account in self.accounts() if account.part is not None and account.part.of == name]

    def put_account(self, account: Account) -> None:
        self._set(self._accounts, account.name, account)

    def hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        if request_id is not None:
            entry = self._requests.get(request_id, -1)
        return self._holds.get(entry)

    def holds(self) -> list[HoldRow]:
        return list(self._holds.values())

    def put_hold(self, row: HoldRow) -> None:
        self._set(self._holds, row.entry, row)
        if row.request_id is not None:
            self._set(self._requests, row.request_id, row.entry)

    def secret(self, name: str) -> SecretRow | None:
        return self._secrets.get(name)

    def secrets(self) -> list[SecretRow]:
        return [self._secrets[name] for name in sorted(self._secrets)]

    def put_secret(self, row: SecretRow) -> None:
        self._set(self._secrets, row.name, row)

    def drop_secret(self, name: str) -> None:
        row = self._secrets.pop(name)
        self._before.append(lambda: self._secrets.__setitem__(name, row))
