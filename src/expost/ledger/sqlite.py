"""A ledger in one file."""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import TimeoutError as PoolTimeout

from expost.core import InvalidRequest, LedgerUnsound
from expost.ledger.entry import Entry
from expost.ledger.head import HeadFile
from expost.ledger.page import Page, unsound
from expost.ledger.sql import PATIENCE_SECONDS, SqlLedger

__all__ = ["SqliteLedger"]

_OURS = 0x45585054  # "EXPT", the application id of a ledger file

# How long SQLite itself polls for its turn. It polls ever more rarely, so that newcomers overtake those who waited
# long; starting it anew after a short while lets 32 busy processes all have their turn.
_TURN_SECONDS = 0.05

_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY: ("Expected the ledger to be free; another process kept it locked", "Try again later"),
    sqlite3.SQLITE_LOCKED: ("Expected the ledger to be free; another process kept it locked", "Try again later"),
    sqlite3.SQLITE_FULL: ("Expected room on the disk for the next entry", "Make room"),
    sqlite3.SQLITE_READONLY: ("Expected a ledger that can be written", "Make the file and its folder writable"),
    sqlite3.SQLITE_IOERR: ("Expected the disk to take the next entry", "Check the disk and its free space"),
    sqlite3.SQLITE_CANTOPEN: ("Expected a ledger file that can be opened", "Check the path and its permissions"),
    sqlite3.SQLITE_NOTADB: ("Expected a ledger file", "Name the ledger, or a new file"),
    sqlite3.SQLITE_CORRUPT: ("Expected an undamaged ledger file", "Restore it from its owner's records"),
    sqlite3.SQLITE_CONSTRAINT: (
        "Expected totals within their budgets and entries that only grow",
        "Restore the ledger",
    ),
}


class SqliteLedger(SqlLedger):
    """A ledger in an SQLite file, safe for threads, processes, crashes and power cuts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SqliteLedger(folder + "/flights.ledger") as ledger:
    ...     print(ledger.verify().entries)
    1
    """

    _failures = (sqlite3.Error, UnicodeDecodeError)  # the second where a damaged page holds no text

    def __init__(self, path: str, *, key: str | bytes | None = None, create: bool = True) -> None:
        self.path = os.path.abspath(path.removeprefix("sqlite:///"))
        self.url = f"sqlite:///{self.path}"
        self._head = HeadFile(self.path)
        self._file: tuple[int, int] | None = None
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder) or os.path.isdir(self.path):
            raise InvalidRequest("Expected a ledger file in an existing folder", got=path, do="Create the folder first")
        if not create and not os.path.exists(self.path):
            raise InvalidRequest("Expected a ledger file that exists", got=path, do="Check its path")
        super().__init__(key=key, create=create)

    def _create_engine(self) -> Engine:
        # One connection a process: its threads take turns in the pool instead of polling the file.
        engine = create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_timeout=PATIENCE_SECONDS,
        )
        event.listen(engine, "connect", self._on_connect)
        return engine

    def _connect(self) -> sqlite3.Connection:
        address = f"file:{quote(self.path)}?mode={'rwc' if self._create else 'rw'}"
        return sqlite3.connect(address, uri=True, timeout=_TURN_SECONDS, isolation_level=None, check_same_thread=False)

    def _on_connect(self, connection: sqlite3.Connection, _: Any) -> None:
        """Every setting that keeps an acknowledged entry through a power cut, and a check that it took."""
        wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0, "secure_delete": 1}
        for name, value in wanted.items():
            connection.execute(f"PRAGMA {name} = {value}")
            if connection.execute(f"PRAGMA {name}").fetchone()[0] != value:
                raise LedgerUnsound(
                    f"Expected a disk on which SQLite supports {name} = {value}", do="Put the ledger on a local disk"
                )
        self._file = _identity(self.path)

    def _start(self, connection: Connection, *, writing: bool) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    def _prepare_lock(self, connection: Connection) -> None:
        self._start(connection, writing=True)
        tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
        if tables and connection.exec_driver_sql("PRAGMA application_id").scalar_one() != _OURS:
            raise InvalidRequest("Expected a ledger, not another database", got=self.path, do="Name a new file")
        connection.exec_driver_sql(f"PRAGMA application_id = {_OURS}")

    def _noted_place(self) -> tuple[int, str] | None:
        return self._head.read()

    def _check_place(self, page: Page, noted: tuple[int, str] | None) -> None:
        if _identity(self.path) != self._file:
            raise unsound("Expected the file that was opened; it was moved or replaced")
        self._head.check(page, noted)

    def _note_place(self, committed: Entry) -> None:
        self._head.note(committed)

    def _passes(self, error: Exception) -> bool:
        return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

    def _explained(self, error: Exception) -> Exception:
        code = sqlite3.SQLITE_BUSY if isinstance(error, PoolTimeout) else _code(error)
        expected, do = _EXPLANATIONS.get(code, ("Expected a ledger that works", "Check the file and its disk"))
        return LedgerUnsound(expected, do=do)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _code(error: Exception) -> int:
    """The primary result code of SQLite."""
    code: int = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)
    return code & 0xFF
