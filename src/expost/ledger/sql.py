"""A ledger in a database: transactions, retries, and the checks before anything is served."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from expost.core import InvalidRequest
from expost.ledger.entry import Entry
from expost.ledger.ledger import Ledger, begin
from expost.ledger.migrations import is_begun, is_current, migrate
from expost.ledger.page import Page, unsound
from expost.ledger.safe import Safe
from expost.ledger.sqlpage import SqlPage

__all__ = ["PATIENCE_SECONDS", "SqlLedger"]

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
"""How long a writer waits for its turn before it gives up with nothing changed."""

_PAUSE_SECONDS = 0.002


class SqlLedger(Ledger):
    """What the database ledgers share; each handle remembers the newest entry it saw and refuses to go back."""

    durable = True
    url: str
    _failures: tuple[type[Exception], ...]  # what the driver raises before SQLAlchemy can wrap it

    def __init__(self, *, key: str | bytes | None, create: bool) -> None:
        super().__init__(Safe(key))
        self._guard = threading.Lock()
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._inherited: list[Engine] = []
        self._seen: Entry | None = None
        self._create = create
        if not self._attempted(lambda: self._asked(is_current)):
            if not create and not self._attempted(lambda: self._asked(is_begun)):
                raise InvalidRequest("Expected a ledger that exists", do="Check its name, or create it first")
            self._attempted(self._prepare)
        self._create = False  # from now on a ledger that is gone is an error, not a reason to begin a new one
        self.verify()

    @abstractmethod
    def _create_engine(self) -> Engine:
        """A new pool of connections with every safety setting on."""

    @abstractmethod
    def _start(self, connection: Connection, *, writing: bool) -> None:
        """Begin a transaction that sees one state and, if writing, is alone."""

    @abstractmethod
    def _prepare_lock(self, connection: Connection) -> None:
        """Be alone while the schema changes."""

    @abstractmethod
    def _passes(self, error: Exception) -> bool:
        """Whether the database undid the transaction and it may succeed when run again."""

    @abstractmethod
    def _explained(self, error: Exception) -> Exception:
        """Our own error for the database's."""

    def _noted_place(self) -> tuple[int, str] | None:
        """What is known beside the database of its newest entry; nothing by default."""
        return None

    def _check_place(self, page: Page, noted: tuple[int, str] | None) -> None:
        """Compare with what was known beside the database before the transaction; nothing by default."""

    def _note_place(self, committed: Entry) -> None:
        """Note beside the database that this entry is durable; nothing by default."""

    def _write(self, action: Callable[[Page], T]) -> T:
        return self._attempted(lambda: self._transact(action, writing=True))

    def _read(self, action: Callable[[Page], T]) -> T:
        return self._attempted(lambda: self._transact(action, writing=False))

    def _transact(self, action: Callable[[Page], T], *, writing: bool) -> T:
        # Both before the transaction starts: whatever it reads must be at least as new.
        seen, noted = self._seen, self._noted_place()
        with self._connected().connect() as connection, connection.begin():
            self._start(connection, writing=writing)
            page = SqlPage(connection)
            before = self._check_head(page, seen, noted)
            result = action(page)
            after = page.last() or before
            if after.sequence > before.sequence:
                self._note_place(before)
        with self._guard:
            if self._seen is None or after.sequence > self._seen.sequence:
                self._seen = after
        return result

    def _check_head(self, page: Page, seen: Entry | None, noted: tuple[int, str] | None) -> Entry:
        last = page.last()
        if last is None or not last.is_intact:
            raise unsound("Expected an unbroken chain of entries")
        if seen is not None and (last.sequence < seen.sequence or page.entry(seen.sequence) != seen):
            raise unsound("Expected every entry seen before to be there still; the ledger was put back or replaced")
        self._check_place(page, noted)
        return last

    def _asked(self, question: Callable[[Connection], bool]) -> bool:
        """What the schema answers."""
        with self._connected().connect() as connection, connection.begin():
            self._start(connection, writing=False)
            return question(connection)

    def _prepare(self) -> None:
        with self._connected().connect() as connection, connection.begin():
            self._prepare_lock(connection)
            migrate(connection)
            begin(SqlPage(connection))

    def _attempted(self, transaction: Callable[[], T]) -> T:
        """Run a transaction, again and again while others are in the way, until patience ends."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        failures: tuple[type[Exception], ...] = (SQLAlchemyError, *self._failures)
        while True:
            try:
                return transaction()
            except failures as error:
                if not self._passes(error) or time.monotonic() > deadline:
                    raise self._explained(error) from None
            time.sleep(_PAUSE_SECONDS)

    def _connected(self) -> Engine:
        """The pool of this process: neither connections nor locks may be used on both sides of a fork."""
        if self._process != os.getpid():
            self._guard, self._process = threading.Lock(), os.getpid()
            if self._engine is not None:
                self._inherited.append(self._engine)  # kept: closing it here would disturb the parent's files
                self._engine = None
        with self._guard:
            if self._engine is None:
                self._engine = self._create_engine()
                weakref.finalize(self, _dispose, self._engine, self._process)
            return self._engine

    def close(self) -> None:
        with self._guard:
            if self._engine is not None and self._process == os.getpid():
                self._engine.dispose()
                self._engine = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A reference: no rows, no connections and no key travel; the other side reads its own EXPOST_LEDGER_KEY.
        return _reopen, (type(self), self.url)


def _reopen(kind: Callable[..., SqlLedger], url: str) -> SqlLedger:
    return kind(url, create=False)


def _dispose(engine: Engine, process: int) -> None:
    if os.getpid() == process:
        engine.dispose()
