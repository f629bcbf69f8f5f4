"""The tables of a ledger in a database: their columns, the migrations that lead to them, and one transaction on them.

A migration that was published is never edited; a change of the schema is a new step at the end. Each runs on SQLite and
on PostgreSQL, inside the transaction of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Row,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    inspect,
    select,
    update,
)

from expost.accounting.budget_rule import read_total, rule_for
from expost.core import Guarantee, InvalidRequest, Loss
from expost.ledger.chain_replay import ChainReplay
from expost.ledger.ledger_account import AccountPart, LedgerAccount, read_terms
from expost.ledger.ledger_entry import EntryKind, HoldState, LedgerEntry, canonical_json, current_minute
from expost.ledger.ledger_page import HoldRow, LedgerPage, SecretRow, unsound_ledger
from expost.ledger.neighbour_record import NeighbourRecord

__all__ = [
    "ACCOUNTS",
    "ENTRIES",
    "HOLDS",
    "MIGRATIONS",
    "SECRETS",
    "STEPS",
    "SqlPage",
    "is_begun",
    "is_current",
    "migrate_tables",
]

T = TypeVar("T")

# The tables as they stand after all migrations

_METADATA = MetaData()

MIGRATIONS = Table(
    "ledger_migrations",
    _METADATA,
    Column("number", BigInteger, primary_key=True),
    Column("name", Text, nullable=False),
    Column("at", Text, nullable=False),
)
ENTRIES = Table(
    "ledger_entries",
    _METADATA,
    Column("sequence", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
ACCOUNTS = Table(
    "ledger_accounts",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("budget", Text, nullable=False),
    Column("spent", Text, nullable=False),
    Column("used", BigInteger, nullable=False),
    Column("entry", BigInteger, nullable=False),
    Column("own", Text, nullable=False),
    Column("part_of", Text),
    Column("part_by", Text),
    Column("touching", BigInteger),
)
HOLDS = Table(
    "ledger_holds",
    _METADATA,
    Column("entry", BigInteger, primary_key=True),
    Column("request_id", Text),
    Column("ticket", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("closed_by", BigInteger),
)
SECRETS = Table(
    "ledger_secrets",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("box", LargeBinary, nullable=False),
    Column("entry", BigInteger, nullable=False),
)


# Migrations. The names of the steps are stored, so they must not change either.


def create_entries(connection: Connection) -> None:
    """Create the chain."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_entries (sequence BIGINT PRIMARY KEY CHECK (sequence >= 0), kind TEXT NOT NULL,"
        " at TEXT NOT NULL, text TEXT NOT NULL, previous TEXT NOT NULL UNIQUE, hash TEXT NOT NULL UNIQUE)"
    )


def create_accounts(connection: Connection) -> None:
    """Create totals as exact text, and in 10^-18 parts of the budget (rounded up) that the database compares by itself."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_accounts (name TEXT PRIMARY KEY, budget TEXT NOT NULL, spent TEXT NOT NULL,"
        " used BIGINT NOT NULL CHECK (used >= 0 AND used <= 1000000000000000000),"
        " entry BIGINT NOT NULL REFERENCES ledger_entries (sequence))"
    )


def create_holds(connection: Connection) -> None:
    """Create the states of holds; a request id can be held once."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_holds (entry BIGINT PRIMARY KEY REFERENCES ledger_entries (sequence),"
        " request_id TEXT UNIQUE, ticket TEXT NOT NULL UNIQUE,"
        " state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'written off')),"
        " closed_by BIGINT UNIQUE REFERENCES ledger_entries (sequence),"
        " CHECK ((state = 'open') = (closed_by IS NULL)))"
    )


def create_secrets(connection: Connection) -> None:
    """Create encrypted values."""
    binary = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
    connection.exec_driver_sql(
        f"CREATE TABLE ledger_secrets (name TEXT PRIMARY KEY, version BIGINT NOT NULL, box {binary} NOT NULL,"
        " entry BIGINT NOT NULL REFERENCES ledger_entries (sequence))"
    )


def forbid_changes_of_entries(connection: Connection) -> None:
    """Make the database itself refuse to change or delete an entry."""
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
    """Add an account's own charges, which differ from its total once it has parts, and what it is a part of."""
    for column in ("own TEXT NOT NULL DEFAULT ''", "part_of TEXT", "part_by TEXT", "touching BIGINT"):
        connection.exec_driver_sql(f"ALTER TABLE ledger_accounts ADD COLUMN {column}")
    connection.exec_driver_sql("UPDATE ledger_accounts SET own = spent")
    connection.exec_driver_sql("CREATE INDEX ledger_parts ON ledger_accounts (part_of)")


def admit_take_overs(connection: Connection) -> None:
    """Allow entries that record a takeover. Earlier versions cannot read those, so they must refuse the ledger."""


def admit_neighbour_changes(connection: Connection) -> None:
    """Allow entries by which accounts go over to replaced units; earlier versions must refuse the ledger."""


STEPS: tuple[Callable[[Connection], None], ...] = (
    create_entries,
    create_accounts,
    create_holds,
    create_secrets,
    forbid_changes_of_entries,
    add_parts,
    admit_take_overs,
    admit_neighbour_changes,
)


def is_current(connection: Connection) -> bool:
    """Return whether all steps are applied. A ledger of a newer version is refused."""
    applied, known = _applied_steps(connection), [step.__name__ for step in STEPS]
    if applied != known[: len(applied)]:
        raise InvalidRequest(
            "Expected a ledger this version can read", do="Upgrade expost to the version that wrote it"
        )
    return applied == known


def is_begun(connection: Connection) -> bool:
    """Return whether there is a ledger, of this version or an older one."""
    return bool(_applied_steps(connection))


def migrate_tables(connection: Connection) -> None:
    """Apply the steps that are missing."""
    if is_current(connection):
        return
    if not inspect(connection).has_table(MIGRATIONS.name):
        connection.exec_driver_sql(
            "CREATE TABLE ledger_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, at TEXT NOT NULL)"
        )
    for number in range(len(_applied_steps(connection)), len(STEPS)):
        STEPS[number](connection)
        connection.execute(insert(MIGRATIONS).values(number=number, name=STEPS[number].__name__, at=current_minute()))


def _applied_steps(connection: Connection) -> list[str]:
    """Return the names of the steps that were applied, in order."""
    if not inspect(connection).has_table(MIGRATIONS.name):
        return []
    return list(connection.scalars(select(MIGRATIONS.c.name).order_by(MIGRATIONS.c.number)))


# Rows

# Statements are built once; SQLAlchemy keeps their compiled text.
_LAST = select(ENTRIES).order_by(ENTRIES.c.sequence.desc()).limit(1)
_ENTRY = select(ENTRIES).where(ENTRIES.c.sequence == bindparam("key"))
_CHAIN = select(ENTRIES).order_by(ENTRIES.c.sequence)
_CHAIN_AFTER = select(ENTRIES).where(ENTRIES.c.sequence > bindparam("key")).order_by(ENTRIES.c.sequence)
_APPEND = insert(ENTRIES)
_ACCOUNT = select(ACCOUNTS).where(ACCOUNTS.c.name == bindparam("key"))
_ALL_ACCOUNTS = select(ACCOUNTS).order_by(ACCOUNTS.c.name)
_PARTS = select(ACCOUNTS).where(ACCOUNTS.c.part_of == bindparam("key")).order_by(ACCOUNTS.c.name)
_HOLD = select(HOLDS).where(HOLDS.c.entry == bindparam("key"))
_HOLD_OF_REQUEST = select(HOLDS).where(HOLDS.c.request_id == bindparam("key"))
_ALL_HOLDS = select(HOLDS).order_by(HOLDS.c.entry)
_SECRET = select(SECRETS).where(SECRETS.c.name == bindparam("key"))
_ALL_SECRETS = select(SECRETS).order_by(SECRETS.c.name)
_DROP_SECRET = delete(SECRETS).where(SECRETS.c.name == bindparam("key"))
_CHANGE = {
    ACCOUNTS: update(ACCOUNTS).where(ACCOUNTS.c.name == bindparam("key")),
    HOLDS: update(HOLDS).where(HOLDS.c.entry == bindparam("key")),
    SECRETS: update(SECRETS).where(SECRETS.c.name == bindparam("key")),
}


class SqlPage(LedgerPage):
    """One transaction on the tables. It is alone when it writes, so the newest entry is read once.

    With a replay of the chain, every row that is read must be the one that the chain leads to, or that was written in
    this transaction: a row that was edited by hand is never used.
    """

    def __init__(self, connection: Connection, replay: ChainReplay | None = None) -> None:
        self._connection = connection
        self._replay = replay
        self._last: LedgerEntry | None = None
        self._entries: dict[int, LedgerEntry | None] = {}  # those of this transaction; entries never change
        self.appended: list[LedgerEntry] = []
        self._found: dict[str, LedgerAccount | None] = {}  # what this transaction read and compared
        self._accounts: dict[str, LedgerAccount] = {}  # what this transaction wrote
        self._holds: dict[int, HoldRow] = {}
        self._secrets: dict[str, SecretRow | None] = {}

    def last_entry(self) -> LedgerEntry | None:
        if self._last is None:
            self._last = self._read_one(_LAST, None, _build_entry)
        return self._last

    def find_entry(self, sequence: int) -> LedgerEntry | None:
        if self._last is not None and self._last.sequence == sequence:
            return self._last
        if sequence not in self._entries:  # a thousand accounts may rest on one entry
            self._entries[sequence] = self._read_one(_ENTRY, sequence, _build_entry)
        return self._entries[sequence]

    def all_entries(self) -> Iterator[LedgerEntry]:
        return (_build_row(row, _build_entry) for row in self._connection.execute(_CHAIN))

    def entries_after(self, sequence: int) -> Iterator[LedgerEntry]:
        """Yield the entries with larger numbers in order."""
        return (_build_row(row, _build_entry) for row in self._connection.execute(_CHAIN_AFTER, {"key": sequence}))

    def append_entry(self, entry: LedgerEntry) -> None:
        values = {name: getattr(entry, name) for name in ("sequence", "text", "previous", "hash")}
        self._connection.execute(_APPEND, values | {"kind": entry.kind.value, "at": entry.recorded})
        self._last = entry
        self.appended.append(entry)

    def neighbours(self) -> NeighbourRecord:
        if self._replay is not None:
            return self._replay.neighbours
        record = NeighbourRecord()
        for entry in self.all_entries():
            record.follow(entry)
        return record

    def find_account(self, name: str) -> LedgerAccount | None:
        if name in self._found:
            return self._found[name]
        found = self._read_one(_ACCOUNT, name, _build_account)
        if self._replay is not None:
            self._check_accounts([] if found is None else [found], {name} & self._account_names(self._replay))
            self._found[name] = found
        return found

    def sound_account(self, name: str) -> LedgerAccount | None:
        # With a replay every row is compared with the chain as it is read; reading its entry again adds nothing.
        return super().sound_account(name) if self._replay is None else self.find_account(name)

    def all_accounts(self) -> list[LedgerAccount]:
        found = self._read_all(_ALL_ACCOUNTS, None, _build_account)
        if self._replay is not None:
            self._check_accounts(found, self._account_names(self._replay))
        return found

    def parts_of(self, name: str) -> list[LedgerAccount]:
        found = self._read_all(_PARTS, name, _build_account)
        if self._replay is not None:
            written = {one.name for one in self._accounts.values() if one.part is not None and one.part.of == name}
            self._check_accounts(found, self._replay.parts.get(name, set()) | written)
        return found

    def _account_names(self, replay: ChainReplay) -> set[str]:
        return replay.totals.keys() | self._accounts.keys()

    def _check_accounts(self, found: list[LedgerAccount], names: set[str]) -> None:
        """Refuse rows that are not exactly those of the chain and of this transaction."""
        assert self._replay is not None
        for account in found:
            written = self._accounts.get(account.name)
            if not (self._replay.has_account(account) if written is None else written == account):
                raise unsound_ledger("the total of an account is not the one in the chain")
        if len(found) != len(names) or {account.name for account in found} != names:
            raise unsound_ledger("its accounts are not those in the chain")

    def put_account(self, account: LedgerAccount) -> None:
        part = account.part
        values = {
            "name": account.name,
            "budget": canonical_json(account.terms),
            "spent": canonical_json(account.spent.to_json()),
            "used": account.rule.used(account.spent),
            "entry": account.entry,
            "own": canonical_json(account.own.to_json()),
            "part_of": None if part is None else part.of,
            "part_by": None if part is None else part.by,
            "touching": None if part is None else part.touching,
        }
        self._put_row(ACCOUNTS, account.name, values)
        self._accounts[account.name] = account
        self._found.pop(account.name, None)

    def find_hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        if request_id is None:
            found = self._read_one(_HOLD, entry, _build_hold)
        else:
            found = self._read_one(_HOLD_OF_REQUEST, request_id, _build_hold)
        if self._replay is not None:
            if request_id is not None:
                mine = (row.entry for row in self._holds.values() if row.request_id == request_id)
                entry = next(mine, self._replay.requests.get(request_id, -1))
            if found != self._holds.get(entry, self._replay.holds.get(entry)):
                raise unsound_ledger("a hold is not the one in the chain")
        return found

    def all_holds(self) -> list[HoldRow]:
        found = self._read_all(_ALL_HOLDS, None, _build_hold)
        if self._replay is not None and {row.entry: row for row in found} != self._replay.holds | self._holds:
            raise unsound_ledger("its holds are not those in the chain")
        return found

    def put_hold(self, row: HoldRow) -> None:
        values = {
            "entry": row.entry,
            "request_id": row.request_id,
            "ticket": row.ticket,
            "state": row.state.value,
            "closed_by": row.closed_by,
        }
        self._put_row(HOLDS, row.entry, values)
        self._holds[row.entry] = row

    def find_secret(self, name: str) -> SecretRow | None:
        found = self._read_one(_SECRET, name, _build_secret)
        if self._replay is not None:
            if name in self._secrets:
                sound = found == self._secrets[name]
            else:
                sound = name not in self._replay.secrets if found is None else self._replay.has_secret(found)
            if not sound:
                raise unsound_ledger("a kept secret is not the one in the chain")
        return found

    def all_secrets(self) -> list[SecretRow]:
        return self._read_all(_ALL_SECRETS, None, _build_secret)

    def put_secret(self, row: SecretRow) -> None:
        values = {"name": row.name, "version": row.version, "box": row.box, "entry": row.entry}
        self._put_row(SECRETS, row.name, values)
        self._secrets[row.name] = row

    def drop_secret(self, name: str) -> None:
        self._connection.execute(_DROP_SECRET, {"key": name})
        self._secrets[name] = None

    def _read_one(self, statement: Any, key: Any, build: Callable[[Row[Any]], T]) -> T | None:
        row = self._connection.execute(statement, None if key is None else {"key": key}).first()
        return None if row is None else _build_row(row, build)

    def _read_all(self, statement: Any, key: Any, build: Callable[[Row[Any]], T]) -> list[T]:
        rows = self._connection.execute(statement, None if key is None else {"key": key})
        return [_build_row(row, build) for row in rows]

    def _put_row(self, table: Any, key: Any, values: dict[str, Any]) -> None:
        if self._connection.execute(_CHANGE[table], values | {"key": key}).rowcount == 0:
            self._connection.execute(insert(table), values)


def _build_row(row: Row[Any], build: Callable[[Row[Any]], T]) -> T:
    """Build the value of a row. A row that cannot be one was not written by a ledger."""
    try:
        return build(row)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest):
        raise unsound_ledger("a row was not written by a ledger") from None


def _build_entry(row: Row[Any]) -> LedgerEntry:
    sequence, kind, recorded, text, previous, digest = tuple(row)
    return LedgerEntry(sequence, EntryKind(kind), recorded, text=text, previous=previous, hash=digest)


def _build_account(row: Row[Any]) -> LedgerAccount:
    name, budget, spent, used, entry, own, part_of, part_by, touching = tuple(row)
    part = None if part_of is None else _read_part(part_of, part_by, touching)
    limit, cap, total, charged = _read_totals(budget, spent, used, own)
    return LedgerAccount(name, limit, total, entry, charged, part, cap)


# Cached: an account with a thousand parts reads them all at every charge, and most of them are alike.


@lru_cache(maxsize=4096)
def _read_totals(budget: str, spent: str, used: int, own: str) -> tuple[Guarantee, Fraction | None, Loss, Loss]:
    """Read budget, cap of a question, total and own charges; the two forms of the total must agree."""
    (limit, cap), total = read_terms(json.loads(budget)), _read_loss(spent)
    if rule_for(limit).used(total) != used:
        raise ValueError("the two forms of the total differ")
    return limit, cap, total, _read_loss(own)


@lru_cache(maxsize=4096)
def _read_loss(text: str) -> Loss:
    return read_total(json.loads(text))


_read_part = lru_cache(maxsize=4096)(AccountPart.check)


def _build_hold(row: Row[Any]) -> HoldRow:
    entry, request_id, ticket, state, closed_by = tuple(row)
    return HoldRow(entry, request_id, ticket, HoldState(state), closed_by)


def _build_secret(row: Row[Any]) -> SecretRow:
    return SecretRow(row.name, row.version, bytes(row.box), row.entry)
