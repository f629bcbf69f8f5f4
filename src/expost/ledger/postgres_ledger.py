"""A ledger on a PostgreSQL server."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from expost.core import InvalidRequest, LedgerUnsound, MissingExtra
from expost.ledger.ledger_page import unsound_ledger
from expost.ledger.sql_ledger import PATIENCE_SECONDS, SqlLedger, busy_ledger, call_weakly
from expost.ledger.statement_runner import StatementRunner

__all__ = ["PostgresLedger"]

_SCHEMA_LOCK = 0x45585054  # any number that nobody else locks; "EXPT"

_PASSING = {"40001", "40P01"}  # serialization failure, deadlock: the server undid the transaction
_BUSY_CLASSES = {"40", "55"}  # undone because of others, a lock not available in time
_NO_CONNECTION = "53300"
_DURABLE_SETTINGS = (
    "fsync",
    "full_page_writes",
)  # without these settings a crash of the server may lose what it confirmed
_EXPLANATIONS = {
    "22": ("the database cannot store its texts", "Use a database whose encoding is UTF8"),
    "23": ("its totals must stay within their budgets and its entries only grow", "Restore the ledger"),
    "25": ("it is read-only", "Connect to the primary server with a role that may write"),
    "42": ("this role does not own its tables", "Grant it the rights on the database"),
    "53": ("the server has no space left for the next entry", "Free space on the server"),
    "54": ("a text is too long for the server", "Shorten the question or the request id"),
    "P0": ("its entries only grow", "Restore the ledger"),
}


_ALONE, _LOCK = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "LOCK TABLE ledger_entries IN EXCLUSIVE MODE"

# A value set in the transaction outlives a reload of the settings; a stronger one than "on" stays.
_MAKE_DURABLE = (
    "SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,"
    " set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'"
    " ELSE current_setting('synchronous_commit') END, true)"
)

# Counts what can change, hide or divert rows of the tables: triggers, rules, row security, views in place of tables.
_FOREIGN = """
WITH tables AS (SELECT oid, relkind, relrowsecurity, relhassubclass FROM pg_class WHERE oid IN (
  'ledger_migrations'::regclass, 'ledger_entries'::regclass, 'ledger_accounts'::regclass, 'ledger_holds'::regclass,
  'ledger_secrets'::regclass, 'ledger_checkpoints'::regclass))
SELECT (SELECT count(*) FROM tables WHERE relkind <> 'r' OR relrowsecurity OR relhassubclass)
  + (SELECT count(*) FROM pg_rewrite WHERE ev_class IN (SELECT oid FROM tables))
  + (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM tables)
      AND (tgname <> 'ledger_only_grows' OR tgrelid <> 'ledger_entries'::regclass)),
  (SELECT count(*) FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid WHERE tgrelid = 'ledger_entries'::regclass
    AND tgname = 'ledger_only_grows' AND tgenabled IN ('O', 'A')
    AND prosrc = ' BEGIN RAISE EXCEPTION ''the ledger only grows''; END ')
"""


class PostgresLedger(SqlLedger):
    """A ledger in a PostgreSQL database, for many machines.

    A writer locks the chain before its transaction takes a snapshot, so it sees every entry committed before and is
    alone. Serializable isolation and the CHECK on totals would catch a missing lock.
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
        # Before SQLAlchemy inspects the server itself, which fails where texts come as bytes.
        event.listen(engine, "connect", call_weakly(self._on_connect), insert=True)
        return engine

    def _on_connect(self, connection: Any, _: Any) -> None:
        """Refuse a server that acknowledges a commit before it is on disk, and one that cannot store every text."""
        connection.autocommit = True
        encoding = connection.execute("SHOW server_encoding").fetchone()[0]
        if isinstance(encoding, bytes):  # the driver returns bytes where the encoding is unknown
            encoding = encoding.decode("ascii")
        if encoding != "UTF8":
            raise InvalidRequest("Expected a database in UTF8", got=encoding, do="Create it with ENCODING 'UTF8'")
        connection.execute("SET client_encoding TO 'UTF8'")
        connection.execute(f"SET lock_timeout TO '{int(PATIENCE_SECONDS)}s'")
        settings = ("synchronous_commit", *_DURABLE_SETTINGS)
        _check_durable({name: connection.execute(f"SHOW {name}").fetchone()[0] for name in settings})
        connection.autocommit = False

    def _start(self, connection: Connection, *, writing: bool) -> None:
        if writing:
            # LOCK TABLE takes no snapshot: the one taken after it sees all that was committed while it waited.
            self._make_durable(connection, f"{_ALONE}; {_LOCK}; ")
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def _make_durable(self, connection: Connection, first: str = "") -> None:
        """Make this commit wait for the disk, even if the server's settings are reloaded meanwhile."""
        ((settings,),) = StatementRunner(connection).run_script(first + _MAKE_DURABLE)
        _check_durable(dict(zip(_DURABLE_SETTINGS, settings, strict=False)))

    def _lock_tables(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
        self._make_durable(connection)

    def _check_schema(self, connection: Connection) -> None:
        if StatementRunner(connection).find_row(_FOREIGN) != (0, 1):
            raise unsound_ledger("its tables and triggers are not those of a ledger")

    def _is_passing(self, error: Exception) -> bool:
        return _error_state(error) in _PASSING

    def _explain_error(self, error: Exception) -> Exception:
        state = _error_state(error)
        if isinstance(error, PoolTimeout) or state[:2] in _BUSY_CLASSES:
            return busy_ledger()
        if state == _NO_CONNECTION:
            return busy_ledger("the server has no connection left")
        reason, do = _EXPLANATIONS.get(
            state[:2], ("the server does not answer", "Check server, database, user and password")
        )
        return LedgerUnsound(f"Cannot use this ledger because {reason}", do=do)

    def __repr__(self) -> str:
        return f"PostgresLedger({make_url(self.url).render_as_string(hide_password=True)})"


def _check_durable(settings: Mapping[str, str]) -> None:
    """Refuse a server that could forget an acknowledged entry."""
    for name, value in settings.items():
        if value == "off":
            raise LedgerUnsound(
                f"Expected a server with {name} on; without it an acknowledged entry can be lost",
                do=f"Turn {name} on for the server, the database and the role",
            )


def _error_state(error: Exception) -> str:
    """Return the five-character code of PostgreSQL, empty if the server did not answer."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) or ""
