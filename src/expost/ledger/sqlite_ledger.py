"""A ledger in one SQLite file."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from expost.core import InvalidRequest, LedgerBusy, LedgerUnsound
from expost.ledger import sql_table
from expost.ledger.fork_gate import FORK_GATE
from expost.ledger.head_file import HeadFile
from expost.ledger.ledger import begin_ledger
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_file import (
    BACKUP_ID,
    LEDGER_ID,
    LedgerFile,
    create_whole,
    is_missing,
    read_identity,
)
from expost.ledger.ledger_page import LedgerPage, unsound_ledger
from expost.ledger.sql_ledger import PATIENCE_SECONDS, SqlLedger, busy_ledger, call_weakly
from expost.ledger.sql_table import SqlPage, migrate_tables
from expost.ledger.statement_runner import StatementRunner
from expost.ledger.turn_queue import TurnQueue

__all__ = ["HeadFile", "SqliteLedger"]

# How long SQLite itself polls for its turn. It polls ever more rarely, so that newcomers overtake those who waited
# long; restarting it after a short while lets 32 busy processes all have their turn.
_TURN_SECONDS = 0.05

_EXPLANATIONS = {
    sqlite3.SQLITE_FULL: ("the disk has no space left for the next entry", "Free some space"),
    sqlite3.SQLITE_READONLY: ("it is read-only", "Make the file and its folder writable"),
    sqlite3.SQLITE_IOERR: ("the disk did not take the next entry", "Check the disk and its free space"),
    sqlite3.SQLITE_CANTOPEN: ("its file cannot be opened", "Check the path and its permissions"),
    sqlite3.SQLITE_NOTADB: ("the file is not a ledger", "Name the ledger, or a new file"),
    sqlite3.SQLITE_CORRUPT: ("its file is damaged", "Restore it from its owner's records"),
    sqlite3.SQLITE_CONSTRAINT: (
        "its totals must stay within their budgets and its entries only grow",
        "Restore the ledger",
    ),
}

# Device and inode of the files that were open when this process was forked in spite of everything.
_GIVEN_UP: set[tuple[int, int] | None] = set()


class SqliteLedger(SqlLedger):
    """A ledger in an SQLite file, safe for threads, processes, crashes and power cuts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SqliteLedger(folder + "/flights.ledger") as ledger:
    ...     print(ledger.verify().entries)
    1
    """

    _failures = (sqlite3.Error, UnicodeDecodeError)  # the second where a damaged page has invalid text

    def __init__(
        self, path: str, *, key: str | bytes | None = None, create: bool = True, trust_note: bool = True
    ) -> None:
        self._trust_note = trust_note  # an owner who repairs a ledger reads it without its note
        # Links are resolved: SQLite does so for its log, and the note must lie next to it.
        self.path = os.path.realpath(path.removeprefix("sqlite:///"))
        self.url = f"sqlite:///{self.path}"
        self._head = HeadFile(self.path)
        self._file, self._queue = LedgerFile(self.path), TurnQueue(self.path)
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder) or os.path.isdir(self.path):
            raise InvalidRequest("Expected a ledger file in an existing folder", got=path, do="Create the folder first")
        if not create and not os.path.exists(self.path):
            raise InvalidRequest("Expected a ledger file that exists", got=path, do="Check its path")
        if create and is_missing(self.path):
            self._create_file()
        super().__init__(key=key, create=create)

    def _create_file(self) -> None:
        """Create the file with its tables and its first entry, complete or not at all."""
        if self._head.read_note() is not None:
            raise self._head.refuse("its file is missing, but not the note next to it")
        try:
            with FORK_GATE.pass_through():
                create_whole(self.path, _fill_ledger, patience=PATIENCE_SECONDS)
        except PermissionError:
            raise _explain_code(sqlite3.SQLITE_READONLY) from None
        except OSError as error:
            code = sqlite3.SQLITE_FULL if error.errno == errno.ENOSPC else sqlite3.SQLITE_IOERR
            raise _explain_code(code) from None
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._explain_error(error) from None

    def _create_engine(self) -> Engine:
        # One connection per process: its threads take turns in the pool instead of polling the file.
        engine = create_engine(
            "sqlite://",
            creator=call_weakly(self._connect),
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_timeout=PATIENCE_SECONDS,
        )
        event.listen(engine, "connect", call_weakly(self._on_connect))
        return engine

    def _connect(self) -> sqlite3.Connection:
        self._file.check_name()
        if read_identity(self.path) in _GIVEN_UP:
            raise InvalidRequest(
                "Cannot use this ledger because this process was forked while the ledger was at work",
                do="Fork between two questions, or start the process with spawn or forkserver",
            )
        return _connect_file(self.path)

    def _on_connect(self, connection: sqlite3.Connection, _: Any) -> None:
        """Make the connection durable and note which files it has open."""
        if connection.execute("PRAGMA application_id").fetchone()[0] == BACKUP_ID:
            raise InvalidRequest(
                "Cannot use this file as a ledger because it is a backup of one, which would have the budget again",
                do="Run: expost ledger restore BACKUP LEDGER --anchor ANCHOR",
            )
        _make_durable(connection)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
        self._file.remember_files()

    def _give_up_connection(self) -> None:
        # SQLite's library believes in the parent's locks on this file from now on, whichever handle opens it.
        if self._file.opened is not None:
            _GIVEN_UP.add(self._file.opened)

    def _start(self, connection: Connection, *, writing: bool) -> None:
        StatementRunner(connection).run("BEGIN IMMEDIATE" if writing else "BEGIN")

    def _lock_tables(self, connection: Connection) -> None:
        self._start(connection, writing=True)
        tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
        if tables and connection.exec_driver_sql("PRAGMA application_id").scalar_one() != LEDGER_ID:
            raise InvalidRequest("Expected a ledger, not another database", got=self.path, do="Name a new file")
        connection.exec_driver_sql(f"PRAGMA application_id = {LEDGER_ID}")

    def _check_schema(self, connection: Connection) -> None:
        if _read_schema(connection) != _expected_schema(sql_table.STEPS):
            raise unsound_ledger("its tables, indexes and triggers are not those of a ledger")

    def _read_head(self) -> tuple[int, str] | None:
        return self._head.read_note() if self._trust_note else None

    def _check_head(self, page: LedgerPage, noted: tuple[int, str] | None) -> None:
        self._file.check_files()
        self._head.check_note(page, noted)

    def _check_kept(self) -> None:
        # A process that reads the file itself, to copy it, loses SQLite's locks on it: another one may delete the log.
        self._file.check_files()

    def _note_head(self, committed: LedgerEntry) -> None:
        if self._trust_note:
            self._head.write_note(committed)

    def _is_passing(self, error: Exception) -> bool:
        return _error_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

    def _explain_error(self, error: Exception) -> Exception:
        if isinstance(error, PoolTimeout) or self._is_passing(error):
            return busy_ledger()
        return _explain_code(_error_code(error))

    def _wait_for_turn(self, deadline: float) -> AbstractContextManager[object]:
        return self._stand_in_queue((deadline - time.monotonic()) / 2)

    @contextmanager
    def _stand_in_queue(self, seconds: float) -> Iterator[None]:
        """Wait for the turn, or for so long; then try without it, because a process that was stopped may keep it."""
        try:
            with self._queue.wait_for_turn(seconds, prepare=self._catch_up):
                yield
        except PermissionError:
            raise _explain_code(sqlite3.SQLITE_READONLY) from None

    def _catch_up(self) -> None:
        """Follow the chain before the turn, while others write."""
        with suppress(LedgerBusy):
            self._read(LedgerPage.last_entry)

    def _start_in_child(self) -> None:
        super()._start_in_child()
        self._queue = TurnQueue(self.path)


def _connect_file(path: str) -> sqlite3.Connection:
    """Connect to an existing file."""
    address = f"file:{quote(path)}?mode=rw"
    return sqlite3.connect(address, uri=True, timeout=_TURN_SECONDS, isolation_level=None, check_same_thread=False)


def _make_durable(connection: sqlite3.Connection) -> None:
    """Turn on every setting that keeps an acknowledged entry through a power cut, and check that it took."""
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0, "secure_delete": 1}
    for name, value in wanted.items():
        connection.execute(f"PRAGMA {name} = {value}")
        if connection.execute(f"PRAGMA {name}").fetchone()[0] != value:
            raise LedgerUnsound(
                f"Expected a disk on which SQLite supports {name} = {value}", do="Put the ledger on a local disk"
            )


def _fill_ledger(path: str) -> None:
    """Write tables and first entry into an empty file, and all of it into the file itself, not its log."""
    engine = create_engine("sqlite://", creator=partial(_connect_file, path), poolclass=NullPool)
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        _make_durable(raw)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.exec_driver_sql(f"PRAGMA application_id = {LEDGER_ID}")
        migrate_tables(connection)
        begin_ledger(SqlPage(connection))
        connection.commit()  # closing the last connection then empties the log and deletes it


def _read_schema(connection: Connection) -> frozenset[tuple[Any, ...]]:
    """Return everything that is defined in a file: tables, indexes, triggers and views with their exact text."""
    return frozenset(StatementRunner(connection).all_rows("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@lru_cache(maxsize=4)
def _expected_schema(steps: tuple[Any, ...]) -> frozenset[tuple[Any, ...]]:
    """Return what a new ledger defines. It depends on the migrations only."""
    with create_engine("sqlite://").connect() as connection:
        migrate_tables(connection)
        return _read_schema(connection)


def _explain_code(code: int) -> LedgerUnsound:
    """Return our own error for a result code of SQLite."""
    reason, do = _EXPLANATIONS.get(code, ("the database failed", "Check the file and its disk"))
    return LedgerUnsound(f"Cannot use this ledger because {reason}", do=do)


def _error_code(error: Exception) -> int:
    """Return the primary result code of SQLite."""
    code: int = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)
    return code & 0xFF
