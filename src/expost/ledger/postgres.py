"""A ledger on a PostgreSQL server."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from expost.core import InvalidRequest, LedgerUnsound, MissingExtra
from expost.ledger.sql import PATIENCE_SECONDS, SqlLedger

__all__ = ["PostgresLedger"]

_SCHEMA_LOCK = 0x45585054  # any number that nobody else locks; "EXPT"

_PASSING = {"40001", "40P01"}  # serialization failure, deadlock: the server undid the transaction
_EXPLANATIONS = {
    "23": ("Expected totals within their budgets and entries that only grow", "Restore the ledger"),
    "25": ("Expected a ledger that can be written", "Connect to the primary server with a role that may write"),
    "40": ("Expected the ledger to be free; others kept it busy", "Try again later"),
    "42": ("Expected a role that owns the ledger's tables", "Grant it the rights on the database"),
    "53": ("Expected room on the server for the next entry", "Make room on the server"),
    "55": ("Expected the ledger to be free; others kept it busy", "Try again later"),
    "P0": ("Expected entries that only grow", "Restore the ledger"),
}


class PostgresLedger(SqlLedger):
    """A ledger in a PostgreSQL database, for many machines.

    A writer locks the chain before its transaction takes a snapshot, so it sees every entry committed before and is
    alone. Serializable isolation and the CHECK on totals stand behind that lock.
    """

    def __init__(self, url: str, *, key: str | bytes | None = None, create: bool = True) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise MissingExtra("postgres", package="psycopg")
        self._failures = (importlib.import_module("psycopg").Error,)
        self.url = url
        try:
            self._address = make_url(url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):
            # A URL may hold a password, so it is not repeated.
            raise InvalidRequest(
                "Expected the URL of a PostgreSQL database", do='Pass "postgresql://user@host:5432/database"'
            ) from None
        super().__init__(key=key, create=create)

    def _create_engine(self) -> Engine:
        engine = create_engine(self._address, pool_pre_ping=True, pool_timeout=PATIENCE_SECONDS)
        event.listen(engine, "connect", self._on_connect)
        return engine

    def _on_connect(self, connection: Any, _: Any) -> None:
        """Refuse a server that acknowledges a commit before it is on disk."""
        connection.autocommit = True
        connection.execute(f"SET lock_timeout TO '{int(PATIENCE_SECONDS)}s'")
        for setting in ("synchronous_commit", "fsync", "full_page_writes"):
            if connection.execute(f"SHOW {setting}").fetchone()[0] == "off":
                raise LedgerUnsound(
                    f"Expected a server with {setting} on; it could forget an acknowledged entry",
                    do=f"Turn {setting} on for the server, the database and the role",
                )
        connection.autocommit = False

    def _start(self, connection: Connection, *, writing: bool) -> None:
        if writing:
            # LOCK TABLE takes no snapshot: the one taken after it sees all that was committed while it waited.
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            connection.exec_driver_sql("LOCK TABLE ledger_entries IN EXCLUSIVE MODE")
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def _prepare_lock(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")

    def _passes(self, error: Exception) -> bool:
        return _state(error) in _PASSING

    def _explained(self, error: Exception) -> Exception:
        expected, do = _EXPLANATIONS.get(
            _state(error)[:2], ("Expected a server that answers", "Check server, database, user and password")
        )
        return LedgerUnsound(expected, do=do)

    def __repr__(self) -> str:
        return f"PostgresLedger({make_url(self.url).render_as_string(hide_password=True)})"


def _state(error: Exception) -> str:
    """The five-character code of PostgreSQL, empty if the server did not answer."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) or ""
