"""The schema, step by step: small functions in order, and a table of those applied.

A step that was published is never edited; a change of the schema is a new step at the end. Each runs on SQLite and on
PostgreSQL, inside the transaction of the caller.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, insert, inspect, select

from expost.core import InvalidRequest
from expost.ledger.entry import now
from expost.ledger.schema import MIGRATIONS

__all__ = ["STEPS", "is_begun", "is_current", "migrate"]


def create_entries(connection: Connection) -> None:
    """The chain."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_entries (sequence BIGINT PRIMARY KEY CHECK (sequence >= 0), kind TEXT NOT NULL,"
        " at TEXT NOT NULL, text TEXT NOT NULL, previous TEXT NOT NULL UNIQUE, hash TEXT NOT NULL UNIQUE)"
    )


def create_accounts(connection: Connection) -> None:
    """Totals as exact text, and in 10^-18 parts of the budget (rounded up) for the database to compare by itself."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_accounts (name TEXT PRIMARY KEY, budget TEXT NOT NULL, spent TEXT NOT NULL,"
        " used BIGINT NOT NULL CHECK (used >= 0 AND used <= 1000000000000000000),"
        " entry BIGINT NOT NULL REFERENCES ledger_entries (sequence))"
    )


def create_holds(connection: Connection) -> None:
    """Where each hold stands; a request id can be held once."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_holds (entry BIGINT PRIMARY KEY REFERENCES ledger_entries (sequence),"
        " request_id TEXT UNIQUE, ticket TEXT NOT NULL UNIQUE,"
        " state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'written off')),"
        " closed_by BIGINT UNIQUE REFERENCES ledger_entries (sequence),"
        " CHECK ((state = 'open') = (closed_by IS NULL)))"
    )


def create_secrets(connection: Connection) -> None:
    """Encrypted values."""
    binary = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
    connection.exec_driver_sql(
        f"CREATE TABLE ledger_secrets (name TEXT PRIMARY KEY, version BIGINT NOT NULL, box {binary} NOT NULL,"
        " entry BIGINT NOT NULL REFERENCES ledger_entries (sequence))"
    )


def forbid_changes_of_entries(connection: Connection) -> None:
    """The chain only grows: the database itself refuses to change or delete a line."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "CREATE FUNCTION ledger_only_grows() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'the ledger only grows'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER ledger_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries"
            " FOR EACH STATEMENT EXECUTE FUNCTION ledger_only_grows()"
        )
    else:
        for change in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER ledger_no_{change.lower()} BEFORE {change} ON ledger_entries"
                " BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END"
            )


def add_parts(connection: Connection) -> None:
    """Accounts may be disjoint parts of another: its own charges beside its total, and where it belongs."""
    for column in ("own TEXT NOT NULL DEFAULT ''", "part_of TEXT", "part_by TEXT", "touching BIGINT"):
        connection.exec_driver_sql(f"ALTER TABLE ledger_accounts ADD COLUMN {column}")
    connection.exec_driver_sql("UPDATE ledger_accounts SET own = spent")
    connection.exec_driver_sql("CREATE INDEX ledger_parts ON ledger_accounts (part_of)")


def admit_take_overs(connection: Connection) -> None:
    """Entries may tell that a hold changed hands; earlier versions cannot read those, so they must not try."""


STEPS: tuple[Callable[[Connection], None], ...] = (
    create_entries,
    create_accounts,
    create_holds,
    create_secrets,
    forbid_changes_of_entries,
    add_parts,
    admit_take_overs,
)


def is_current(connection: Connection) -> bool:
    """Whether all steps are applied; a ledger of a newer version is refused."""
    applied = _applied(connection)
    known = [step.__name__ for step in STEPS]
    if applied != known[: len(applied)]:
        raise InvalidRequest(
            "Expected a ledger this version can read", do="Upgrade expost to the version that wrote it"
        )
    return applied == known


def is_begun(connection: Connection) -> bool:
    """Whether there is a ledger, of this version or an older one."""
    return bool(_applied(connection))


def migrate(connection: Connection) -> None:
    """Apply the steps that are missing."""
    if is_current(connection):
        return
    if not inspect(connection).has_table(MIGRATIONS.name):
        connection.exec_driver_sql(
            "CREATE TABLE ledger_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, at TEXT NOT NULL)"
        )
    for number in range(len(_applied(connection)), len(STEPS)):
        STEPS[number](connection)
        connection.execute(insert(MIGRATIONS).values(number=number, name=STEPS[number].__name__, at=now()))


def _applied(connection: Connection) -> list[str]:
    if not inspect(connection).has_table(MIGRATIONS.name):
        return []
    return list(connection.scalars(select(MIGRATIONS.c.name).order_by(MIGRATIONS.c.number)))
