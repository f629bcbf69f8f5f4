"""A ledger in a database: transactions, retries, and the checks before anything is served."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from expost.core import InvalidRequest, LedgerBusy, LedgerUnsound
from expost.ledger.chain_replay import ChainReplay, WholeChainNeeded
from expost.ledger.checkpoint import CHECKPOINT_EVERY, LedgerCheckpoint
from expost.ledger.fork_gate import FORK_GATE, leak_object
from expost.ledger.ledger import Ledger, begin_ledger
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_page import LedgerPage, unsound_ledger
from expost.ledger.secret import Safe
from expost.ledger.sql_table import SqlPage, is_begun, is_current, migrate_tables
from expost.ledger.statement_runner import CHECK
from expost.ledger.thread_line import ThreadLine
from expost.ledger.verification import Report, compare_rows, verify_page

__all__ = ["PATIENCE_SECONDS", "SqlLedger", "busy_ledger", "call_weakly"]

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
"""How long a writer waits for its turn before it gives up with nothing changed."""

_PAUSE_SECONDS = 0.002


def busy_ledger(reason: str = "others kept it locked") -> LedgerBusy:
    """Return the error for a ledger that is sound and could not be used in time."""
    return LedgerBusy(f"Cannot use this ledger now because {reason}. Nothing was changed", do="Try again later")


class SqlLedger(Ledger):
    """The base of the ledgers in a database. Each handle remembers the newest entry it saw and refuses to go back."""

    durable = True
    url: str
    _failures: tuple[type[Exception], ...]  # what the driver raises before SQLAlchemy can wrap it

    def __init__(self, *, key: str | bytes | None, create: bool) -> None:
        super().__init__(Safe(key))
        self._guard = threading.RLock()  # a thread may fork wherever it is
        self._engine: Engine | None = None
        self._process, self._side = os.getpid(), object()
        self._leases = 0
        self._line = ThreadLine()
        self._seen: LedgerEntry | None = None
        self._replay, self._checkpointed = ChainReplay(), -1
        FORK_GATE.add_holder(self)
        if not self._retry_passing(lambda: self._inspect_tables(is_current)):
            if not create and not self._retry_passing(lambda: self._inspect_tables(is_begun)):
                raise InvalidRequest("Expected a ledger that exists", do="Check its name, or create it first")
            self._retry_passing(self._prepare_tables)
        if not self._retry_passing(self._open_at_checkpoint):
            self.verify()

    @abstractmethod
    def _create_engine(self) -> Engine:
        """Create a pool of connections with every safety setting on."""

    @abstractmethod
    def _start(self, connection: Connection, *, writing: bool) -> None:
        """Begin a transaction that sees one state and, if writing, is alone."""

    @abstractmethod
    def _lock_tables(self, connection: Connection) -> None:
        """Lock out everybody else while the schema changes."""

    @abstractmethod
    def _is_passing(self, error: Exception) -> bool:
        """Return whether the database undid the transaction and it may succeed when run again."""

    @abstractmethod
    def _explain_error(self, error: Exception) -> Exception:
        """Return our own error for the database's."""

    @abstractmethod
    def _check_schema(self, connection: Connection) -> None:
        """Refuse tables that are not exactly those of a ledger, or that have triggers or rules of others."""

    def _read_head(self) -> tuple[int, str] | None:
        """Return what is noted outside the database about its newest entry; nothing by default."""
        return None

    def _check_head(self, page: LedgerPage, noted: tuple[int, str] | None) -> None:
        """Compare with what was noted outside the database before the transaction; nothing by default."""

    def _check_kept(self) -> None:
        """Refuse to acknowledge what was committed to files that nobody else finds; nothing by default."""

    def _note_head(self, committed: LedgerEntry) -> None:
        """Note outside the database that this entry is durable; nothing by default."""

    def _write(self, action: Callable[[LedgerPage], T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._wait_for_turn(deadline):
            return self._retry_passing(partial(self._run_transaction, action, writing=True), deadline)

    def _read(self, action: Callable[[LedgerPage], T]) -> T:
        return self._retry_passing(partial(self._run_transaction, action, writing=False))

    def _wait_for_turn(self, deadline: float) -> AbstractContextManager[object]:
        """Wait for the turn among all processes; a server has a fair queue of its own."""
        return nullcontext()

    def _retry_passing(self, transaction: Callable[[], T], deadline: float | None = None) -> T:
        """Run a transaction, again and again while others hold the lock, until patience ends."""
        deadline = time.monotonic() + PATIENCE_SECONDS if deadline is None else deadline
        failures: tuple[type[Exception], ...] = (SQLAlchemyError, *self._failures)
        while True:
            try:
                # One transaction at a time, so that none sees an older state than what this handle remembers.
                with self._line.wait_in(deadline - time.monotonic()) as reached:
                    if not reached:
                        raise PoolTimeout
                    return transaction()
            except failures as error:
                if not self._is_passing(error) or time.monotonic() > deadline:
                    raise self._explain_error(error) from None
            time.sleep(_PAUSE_SECONDS)

    def verify(self, *, anchor: str | None = None) -> Report:
        def verify_all() -> tuple[Report, ChainReplay]:
            replay = ChainReplay()  # from the first entry on, whatever this handle remembers

            def verify_rows(page: SqlPage) -> Report:
                terms: dict[str, Any] = {"anchor": anchor, "safe": self._safe, "replay": replay}
                return verify_page(page, checkpoint=self._restore_checkpoint(page)[0], **terms)

            return self._run_transaction(verify_rows, writing=False, checked=False), replay

        report, self._replay = self._retry_passing(verify_all)
        return report

    def _restore_checkpoint(self, page: SqlPage) -> tuple[LedgerCheckpoint | None, ChainReplay | None]:
        """Return the checkpoint that the key of this handle made for this ledger, and a replay that goes on after it."""
        found = page.find_checkpoint(self._safe.owner) if self._safe.has_key else None
        if found is None or not found.is_made_with(self._safe):
            return None, None  # one that somebody else edited is as good as none
        replay = found.restore(page.intact_entry(0), page.find_entry(found.sequence))
        return (None, None) if replay is None else (found, replay)

    def _open_at_checkpoint(self) -> bool:
        """Go on after the checkpoint of the owner's key, or return False if there is none that can be trusted.

        All rows that may be charged from are compared. Rows of closed holds, and entries before the checkpoint, are
        compared when they are used.
        """
        if not self._safe.has_key:
            return False

        def restore(page: SqlPage) -> ChainReplay | None:
            _, replay = self._restore_checkpoint(page)
            if replay is not None:
                try:
                    for entry in page.entries_after(replay.base):
                        replay.add_entry(entry)
                except WholeChainNeeded:
                    return None
                compare_rows(page, replay)
            return replay

        replay = self._run_transaction(restore, writing=False, checked=False)
        if replay is None:
            return False
        self._replay, self._checkpointed = replay, replay.base
        return True

    def _write_checkpoint(self, page: SqlPage) -> None:
        """Write a checkpoint of what is durable already, once in many entries."""
        last = self._replay.last
        if not self._safe.has_key or last is None or last.sequence - self._checkpointed < CHECKPOINT_EVERY:
            return
        self._checkpointed = page.checkpoint_sequence(self._safe.owner)  # another handle may have written one
        if not 0 <= last.sequence - self._checkpointed < CHECKPOINT_EVERY:
            page.put_checkpoint(LedgerCheckpoint.of(self._replay, self._safe))
            self._checkpointed = last.sequence

    def _follow_chain(self, page: SqlPage) -> None:
        """Go on with the entries that came since this handle last used the ledger."""
        known = self._replay.last
        if known is not None and known == page.last_entry():
            return
        try:
            try:
                for entry in page.entries_after(-1 if known is None else known.sequence):
                    self._replay.add_entry(entry)
            except WholeChainNeeded:
                self._replay = ChainReplay()
                page.compare_with(self._replay)
                for entry in page.all_entries():
                    self._replay.add_entry(entry)
        except BaseException:
            self._replay = ChainReplay()  # an entry may be half applied
            raise

    def _run_transaction(self, action: Callable[[SqlPage], T], *, writing: bool, checked: bool = True) -> T:
        """Run ``action`` in one transaction, after checking that the ledger has not gone back.

        ``checked`` compares every row that is used with what the chain leads to.
        """
        if (
            checked and self._replay.last is None
        ):  # it was given up in the middle; a checkpoint saves reading everything
            self._open_at_checkpoint()
        # Both before the transaction starts: whatever it reads must be at least as new.
        seen, noted = self._seen, self._read_head()
        with self._lease_connection(writing=writing) as connection:
            self._start(connection, writing=writing)
            self._check_schema(connection)
            page = SqlPage(connection, self._replay if checked else None)
            before = page.last_entry()
            if before is None or not (before == self._replay.last or before.is_intact):
                raise unsound_ledger("its chain of entries is broken")
            if seen is not None and (before.sequence < seen.sequence or page.find_entry(seen.sequence) != seen):
                raise unsound_ledger("an entry seen before is gone: the ledger was put back or replaced")
            self._check_head(page, noted)
            if checked:
                self._follow_chain(page)
            result = action(page)
            after = page.last_entry() or before
            if after.sequence > before.sequence:
                if checked:
                    self._write_checkpoint(page)
                self._note_head(before)
        with self._guard:
            if self._seen is None or after.sequence > self._seen.sequence:
                self._seen = after
        if checked:
            self._remember_entries(page.appended)
        return result

    def _remember_entries(self, committed: list[LedgerEntry]) -> None:
        """Go on with what this handle wrote itself."""
        try:
            for entry in committed:
                self._replay.add_entry(entry)
        except (LedgerUnsound, WholeChainNeeded):
            self._replay = ChainReplay()  # the next transaction reads the chain, and refuses what does not follow

    def _inspect_tables(self, question: Callable[[Connection], bool]) -> bool:
        """Answer a question about the schema."""
        with self._lease_connection() as connection:
            self._start(connection, writing=False)
            return question(connection)

    def _prepare_tables(self) -> None:
        """Create or migrate the tables and write the first entry."""
        with self._lease_connection() as connection:
            self._lock_tables(connection)
            migrate_tables(connection)
            begin_ledger(SqlPage(connection))

    @contextmanager
    def _lease_connection(self, *, writing: bool = False) -> Iterator[Connection]:
        """Yield a connection in a transaction, which is committed at the end and undone by an exception.

        A child that is forked in here has a copy of the connection that it must not use, return or free.
        """
        with FORK_GATE.pass_through():
            pool, side = self._connect_pool(), self._side
            connection = pool.connect()
            self._leases += 1
            try:
                connection.begin()
                yield connection
                if not self._is_owner(side):
                    raise _forked_inside()
                connection.commit()
                if writing:
                    self._check_kept()  # while the connection is open: once it is closed, the log may go
            finally:  # closing undoes what was not committed
                if self._is_owner(side):
                    self._leases -= 1
                    connection.close()
                    if pool is not self._engine:  # closed by a fork after it was found; the next fork would not know it
                        pool.dispose()
                else:
                    leak_object(connection)

    def _is_owner(self, side: object) -> bool:
        """Return whether this is still the side of a fork that leased a connection."""
        # Process numbers alone do not tell: in a container of its own a child may have that of its parent.
        return side is self._side and self._process == os.getpid()

    def _refuse_child(self, side: object, *_: object) -> None:
        """Refuse a statement on a connection that a fork in the middle of a transaction left to this process."""
        if not self._is_owner(side):
            raise _forked_inside()

    def _connect_pool(self) -> Engine:
        """Return the pool of this process: neither connections nor locks may be used on both sides of a fork."""
        if self._process != os.getpid():  # forked by code that runs no hooks, hence with connections open
            self._start_in_child()
        while True:  # a fork by this thread in between closes the pool, and its child is another side
            side = self._side
            with self._guard:
                if self._engine is None:
                    engine, refuse = self._create_engine(), call_weakly(self._refuse_child, side)
                    event.listen(engine, "before_cursor_execute", refuse)
                    engine.update_execution_options(**{CHECK: refuse})
                    weakref.finalize(self, _dispose_engine, engine, self._process)
                    self._engine = engine
                found: Engine | None = self._engine
                if side is not self._side:
                    self._engine = found = None
            if found is not None:
                return found

    def close(self) -> None:
        """Close files and connections. The ledger opens them again when it is next used."""
        with self._guard:
            if self._engine is not None and self._process == os.getpid():
                self._engine.dispose()
                self._engine = None

    def _start_in_child(self) -> None:
        """Begin without connections in a forked process; one that was open when it forked is left alone for ever."""
        if self._engine is not None or self._leases:
            leak_object(self._engine)
            self._give_up_connection()
        self._engine, self._leases, self._line = None, 0, ThreadLine()
        self._guard, self._process, self._side = threading.RLock(), os.getpid(), object()

    def _give_up_connection(self) -> None:
        """Note that this process inherited an open connection; a server does not mind."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A reference: no rows, no connections and no key travel; the other side reads its own EXPOST_LEDGER_KEY.
        return _reopen_ledger, (type(self), self.url)


def call_weakly(method: Callable[..., T], *first: object) -> Callable[..., T]:
    """Return a function that calls a method of an object without keeping the object alive.

    The pool outlives its ledger by a moment, in the finalizer that closes it; it must not keep it for ever.
    """
    weak = weakref.WeakMethod(method)

    def call(*arguments: object) -> T:
        bound = weak()
        assert bound is not None
        return bound(*first, *arguments)

    return call


def _reopen_ledger(kind: Callable[..., SqlLedger], url: str) -> SqlLedger:
    return kind(url, create=False)


def _dispose_engine(engine: Engine, process: int) -> None:
    if os.getpid() == process:
        engine.dispose()


def _forked_inside() -> InvalidRequest:
    return InvalidRequest(
        "Cannot finish because this process was forked in the middle of this transaction",
        do="The parent finishes it; start over here",
    )
