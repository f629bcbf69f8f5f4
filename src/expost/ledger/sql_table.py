"""The tables of a ledger in a database: their columns, the migrations that lead to them, and one transaction on them.

A migration that was published is never edited; a change of the schema is a new step at the end. Each runs on SQLite and
on PostgreSQL, inside the transaction of the caller.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
)

from expost.accounting.budget_rule import read_total, rule_for
from expost.core import Guarantee, InvalidRequest, Loss
from expost.ledger.chain_replay import MILESTONE, ChainReplay
from expost.ledger.checkpoint import LedgerCheckpoint
from expost.ledger.ledger_account import AccountPart, LedgerAccount, read_terms
from expost.ledger.ledger_entry import EntryKind, HoldState, LedgerEntry, canonical_json, current_minute
from expost.ledger.ledger_page import HoldRow, LedgerPage, SecretRow, unsound_ledger
from expost.ledger.neighbour_record import NeighbourRecord
from expost.ledger.statement_runner import StatementRunner

__all__ = [
    "ACCOUNTS",
    "CHECKPOINTS",
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

Row = tuple[Any, ...]

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
CHECKPOINTS = Table(
    "ledger_checkpoints",
    _METADATA,
    Column("owner", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("code", Text, nullable=False),
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


def keep_checkpoints(connection: Connection) -> None:
    """Create checkpoints, the newest of each owner's key."""
    connection.exec_driver_sql(
        "CREATE TABLE ledger_checkpoints (owner TEXT PRIMARY KEY,"
        " sequence BIGINT NOT NULL REFERENCES ledger_entries (sequence), state TEXT NOT NULL, code TEXT NOT NULL)"
    )


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
    keep_checkpoints,
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


def _columns_of(table: Table) -> str:
    return ", ".join(column.name for column in table.c)


def _write_put(table: Table, key: str) -> str:
    """Return the statement that stores a new row or changes the one that has its key."""
    names = [column.name for column in table.c]
    values, changes = (
        ", ".join("?" * len(names)),
        ", ".join(f"{name} = excluded.{name}" for name in names if name != key),
    )
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


_FROM_ENTRIES = f"SELECT {_columns_of(ENTRIES)} FROM ledger_entries"
_LAST = f"{_FROM_ENTRIES} ORDER BY sequence DESC LIMIT 1"
_ENTRY = f"{_FROM_ENTRIES} WHERE sequence = ?"
_CHAIN_AFTER = f"{_FROM_ENTRIES} WHERE sequence > ? ORDER BY sequence LIMIT ?"
_APPEND = f"INSERT INTO ledger_entries ({_columns_of(ENTRIES)}) VALUES (?, ?, ?, ?, ?, ?)"
_FROM_ACCOUNTS = f"SELECT {_columns_of(ACCOUNTS)} FROM ledger_accounts"
_ACCOUNT = f"{_FROM_ACCOUNTS} WHERE name = ?"
_ALL_ACCOUNTS = f"{_FROM_ACCOUNTS} ORDER BY name"
_PARTS = f"{_FROM_ACCOUNTS} WHERE part_of = ? ORDER BY name"
_PUT_ACCOUNT = _write_put(ACCOUNTS, "name")
_FROM_HOLDS = f"SELECT {_columns_of(HOLDS)} FROM ledger_holds"
_HOLD = f"{_FROM_HOLDS} WHERE entry = ?"
_HOLD_OF_REQUEST = f"{_FROM_HOLDS} WHERE request_id = ?"
_ALL_HOLDS = f"{_FROM_HOLDS} ORDER BY entry"
_PUT_HOLD = _write_put(HOLDS, "entry")
_FROM_SECRETS = f"SELECT {_columns_of(SECRETS)} FROM ledger_secrets"
_SECRET = f"{_FROM_SECRETS} WHERE name = ?"
_ALL_SECRETS = f"{_FROM_SECRETS} ORDER BY name"
_PUT_SECRET = _write_put(SECRETS, "name")
_DROP_SECRET = "DELETE FROM ledger_secrets WHERE name = ?"
_CHECKPOINT = f"SELECT {_columns_of(CHECKPOINTS)} FROM ledger_checkpoints WHERE owner = ?"
_CHECKPOINT_SEQUENCE = "SELECT sequence FROM ledger_checkpoints WHERE owner = ?"
_PUT_CHECKPOINT = _write_put(CHECKPOINTS, "owner")


class SqlPage(LedgerPage):
    """One transaction on the tables. It is alone when it writes, so the newest entry is read once.

    With a replay of the chain, every row that is read must be the one that the chain leads to, or that was written in
    this transaction: a row that was edited by hand is never used.
    """

    def __init__(self, connection: Connection, replay: ChainReplay | None = None) -> None:
        self._connection, self._statements = connection, StatementRunner(connection)
        self._replay = replay
        self._last: LedgerEntry | None = None
        self._entries: dict[int, LedgerEntry | None] = {}  # those of this transaction; entries never change
        self.appended: list[LedgerEntry] = []
        self._found: dict[str, LedgerAccount | None] = {}  # what this transaction read and compared
        self._accounts: dict[str, LedgerAccount] = {}  # what this transaction wrote
        self._holds: dict[int, HoldRow] = {}
        self._secrets: dict[str, SecretRow | None] = {}
        self._latest: dict[str, int] = {}
        self._vouched: set[int] = set()  # entries whose hash was found to lead to one that the replay knows

    def compare_with(self, replay: ChainReplay) -> None:
        """Compare rows with another replay of the same chain from now on."""
        self._replay = replay

    def last_entry(self) -> LedgerEntry | None:
        if self._last is None:
            self._last = self._read_one(_build_entry, _LAST)
        return self._last

    def find_entry(self, sequence: int) -> LedgerEntry | None:
        if self._last is not None and self._last.sequence == sequence:
            return self._last
        if sequence not in self._entries:  # a thousand accounts may rest on one entry
            self._entries[sequence] = self._read_one(_build_entry, _ENTRY, sequence)
        return self._entries[sequence]

    def all_entries(self) -> Iterator[LedgerEntry]:
        return self.entries_after(-1)

    def entries_after(self, sequence: int) -> Iterator[LedgerEntry]:
        """Yield the entries with larger numbers in order."""
        rows = self._statements.rows_after(_CHAIN_AFTER, sequence, key=lambda row: int(row[0]))
        return (_build_row(row, _build_entry) for row in rows)

    def append_entry(self, entry: LedgerEntry) -> None:
        values = (entry.sequence, entry.kind.value, entry.recorded, entry.text, entry.previous, entry.hash)
        self._statements.run(_APPEND, *values)
        self._last = entry
        self.appended.append(entry)
        self._latest |= dict.fromkeys(entry.accounts, entry.sequence)

    def latest_entry(self, account: str) -> int | None:
        known = {} if self._replay is None else self._replay.latest
        return self._latest.get(account, known.get(account))

    def intact_entry(self, sequence: int | None) -> LedgerEntry:
        entry = super().intact_entry(sequence)
        if self._replay is not None and not self._is_vouched(entry, self._replay):
            raise unsound_ledger("its chain of entries is broken")
        return entry

    def entries_between(self, first: int, stop: int) -> list[LedgerEntry]:
        missing = [number for number in range(max(first, 0), stop) if number not in self._entries]
        if missing:
            found = self._read_entries(missing[0], missing[-1])
            self._entries |= {entry.sequence: entry for entry in found}
        return super().entries_between(first, stop)

    def _is_vouched(self, entry: LedgerEntry, replay: ChainReplay) -> bool:
        """Return whether an entry is the one that was replayed, or was written in this transaction.

        Its hash alone does not show that: whoever edits an entry can compute a new one. So the chain is read on from it,
        up to an entry whose hash the replay knows.
        """
        if entry.sequence in self._vouched or replay.pending.get(entry.id) == entry:
            return True
        known = replay.known_hash(entry.sequence)
        if known is None:
            return entry in self.appended
        number, expected = known
        if number == entry.sequence:
            return entry.hash == expected
        # All entries since the known one before, because others of them will be read as well.
        chain = self._read_entries(entry.sequence // MILESTONE * MILESTONE, number)
        for earlier, later in itertools.pairwise(chain):
            if later.sequence != earlier.sequence + 1 or later.previous != earlier.hash:
                return False
        if entry not in chain or chain[-1].sequence != number or chain[-1].hash != expected:
            return False
        if not all(each.is_intact for each in chain):
            return False
        self._vouched |= {each.sequence for each in chain}
        self._entries |= {each.sequence: each for each in chain}
        return True

    def _read_entries(self, first: int, last: int) -> list[LedgerEntry]:
        return self._read_all(_build_entry, _CHAIN_AFTER, first - 1, last - first + 1)

    def neighbours(self) -> NeighbourRecord:
        if self._replay is not None:
            return self._replay.neighbours
        record = NeighbourRecord()
        for entry in self.all_entries():
            record.follow(entry)
        return record

    def own_as_replaced(self, account: LedgerAccount) -> Loss | None:
        if self._replay is not None:
            return self._replay.own_as_replaced(account)
        replay = ChainReplay()
        for entry in self.all_entries():
            replay.add_entry(entry)
        return replay.own_as_replaced(account)

    def find_account(self, name: str) -> LedgerAccount | None:
        if name in self._found:
            return self._found[name]
        found = self._read_one(_build_account, _ACCOUNT, name)
        if self._replay is not None:
            known = name in self._replay.totals or name in self._accounts
            self._check_accounts([] if found is None else [found], {name} if known else set())
            self._found[name] = found
        return found

    def sound_account(self, name: str) -> LedgerAccount | None:
        # With a replay every row is compared with the chain as it is read; reading its entry again adds nothing.
        return super().sound_account(name) if self._replay is None else self.find_account(name)

    def all_accounts(self) -> list[LedgerAccount]:
        found = self._read_all(_build_account, _ALL_ACCOUNTS)
        if self._replay is not None:
            self._check_accounts(found, self._replay.totals.keys() | self._accounts.keys())
        return found

    def parts_of(self, name: str) -> list[LedgerAccount]:
        if self._replay is None:
            return self._read_all(_build_account, _PARTS, name)
        written = {one.name for one in self._accounts.values() if one.part is not None and one.part.of == name}
        names = self._replay.parts.get(name, set()) | written
        if not names:  # most accounts have none; a row that claims to be one is not in the chain
            return []
        found = self._read_all(_build_account, _PARTS, name)
        self._check_accounts(found, names)
        return found

    def replayed_sources(self) -> Mapping[str, Any] | None:
        return None if self._replay is None else self._replay.sources

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
        values = (
            account.name,
            canonical_json(account.terms),
            canonical_json(account.spent.to_json()),
            account.rule.used(account.spent),
            account.entry,
            canonical_json(account.own.to_json()),
            *((None, None, None) if part is None else (part.of, part.by, part.touching)),
        )
        self._statements.run(_PUT_ACCOUNT, *values)
        self._accounts[account.name] = account
        self._found.pop(account.name, None)

    def find_hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        if request_id is None:
            found = self._read_one(_build_hold, _HOLD, entry)
        else:
            found = self._read_one(_build_hold, _HOLD_OF_REQUEST, request_id)
        if self._replay is not None:
            if request_id is not None:
                mine = (row.entry for row in self._holds.values() if row.request_id == request_id)
                entry = next(mine, self._replay.requests.get(request_id, -1))
            expected = self._holds.get(entry, self._replay.holds.get(entry))
            if expected is None and found is not None and found.entry <= self._replay.base:
                self._check_old_hold(found)
            elif found != expected or (found is None and self._is_old_hold(entry)):
                raise unsound_ledger("a hold is not the one in the chain")
        return found

    def _is_old_hold(self, sequence: int) -> bool:
        """Return whether an entry before the checkpoint took a hold, which must then have a row."""
        assert self._replay is not None
        return 0 <= sequence <= self._replay.base and self.intact_entry(sequence).kind is EntryKind.HOLD

    def _check_old_hold(self, row: HoldRow) -> None:
        """Refuse a row of a hold that was closed before the checkpoint, unless two entries say the same.

        The checkpoint has all open holds, so this one is closed. Its ticket is of no use any more.
        """
        taken, closing = self.intact_entry(row.entry), self.intact_entry(row.closed_by)
        closed = closing.body.get("extends" if closing.kind is EntryKind.HOLD else "hold")
        stated = (taken.kind, taken.body.get("request_id"), _CLOSED.get(closing.kind), closed)
        if stated != (EntryKind.HOLD, row.request_id, row.state, taken.id):
            raise unsound_ledger("a hold is not the one in the chain")

    def open_hold_rows(self) -> list[HoldRow]:
        if self._replay is None:
            return super().open_hold_rows()
        numbers = {entry.sequence for entry in self._replay.pending.values()} | self._holds.keys()
        rows = [self.find_hold(entry=number) for number in sorted(numbers)]
        return [row for row in rows if row is not None and row.state is HoldState.OPEN]

    def all_holds(self) -> list[HoldRow]:
        found = self._read_all(_build_hold, _ALL_HOLDS)
        if self._replay is not None and {row.entry: row for row in found} != self._replay.holds | self._holds:
            raise unsound_ledger("its holds are not those in the chain")
        return found

    def find_checkpoint(self, owner: str) -> LedgerCheckpoint | None:
        """Return the checkpoint of an owner's key as it is stored."""
        return self._read_one(_build_checkpoint, _CHECKPOINT, owner)

    def checkpoint_sequence(self, owner: str) -> int:
        """Return the number of the entry of that checkpoint, -1 without one."""
        row = self._statements.find_row(_CHECKPOINT_SEQUENCE, owner)
        return -1 if row is None else int(row[0])

    def put_checkpoint(self, checkpoint: LedgerCheckpoint) -> None:
        """Store a checkpoint in place of an earlier one of the same key."""
        values = (checkpoint.owner, checkpoint.sequence, checkpoint.state, checkpoint.code)
        self._statements.run(_PUT_CHECKPOINT, *values)

    def put_hold(self, row: HoldRow) -> None:
        values = (row.entry, row.request_id, row.ticket, row.state.value, row.closed_by)
        self._statements.run(_PUT_HOLD, *values)
        self._holds[row.entry] = row

    def find_secret(self, name: str) -> SecretRow | None:
        found = self._read_one(_build_secret, _SECRET, name)
        if self._replay is not None:
            if name in self._secrets:
                sound = found == self._secrets[name]
            else:
                sound = name not in self._replay.secrets if found is None else self._replay.has_secret(found)
            if not sound:
                raise unsound_ledger("a kept secret is not the one in the chain")
        return found

    def all_secrets(self) -> list[SecretRow]:
        return self._read_all(_build_secret, _ALL_SECRETS)

    def put_secret(self, row: SecretRow) -> None:
        self._statements.run(_PUT_SECRET, row.name, row.version, row.box, row.entry)
        self._secrets[row.name] = row

    def drop_secret(self, name: str) -> None:
        self._statements.run(_DROP_SECRET, name)
        self._secrets[name] = None

    def _read_one(self, build: Callable[[Row], T], statement: str, *values: Any) -> T | None:
        row = self._statements.find_row(statement, *values)
        return None if row is None else _build_row(row, build)

    def _read_all(self, build: Callable[[Row], T], statement: str, *values: Any) -> list[T]:
        return [_build_row(row, build) for row in self._statements.all_rows(statement, *values)]


def _build_row(row: Row, build: Callable[[Row], T]) -> T:
    """Build the value of a row. A row that cannot be one was not written by a ledger."""
    try:
        return build(row)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest):
        raise unsound_ledger("a row was not written by a ledger") from None


_KINDS = {kind.value: kind for kind in EntryKind}


def _build_entry(row: Row) -> LedgerEntry:
    sequence, kind, recorded, text, previous, digest = row
    return LedgerEntry(sequence, _KINDS[kind], recorded, text=text, previous=previous, hash=digest)


def _build_account(row: Row) -> LedgerAccount:
    name, budget, spent, used, entry, own, part_of, part_by, touching = row
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


def _build_hold(row: Row) -> HoldRow:
    entry, request_id, ticket, state, closed_by = row
    return HoldRow(entry, request_id, ticket, HoldState(state), closed_by)


_CLOSED = {  # a hold is also closed by the one that extends it
    EntryKind.SETTLE: HoldState.SETTLED,
    EntryKind.HOLD: HoldState.SETTLED,
    EntryKind.WRITE_OFF: HoldState.WRITTEN_OFF,
}


def _build_checkpoint(row: Row) -> LedgerCheckpoint:
    owner, sequence, state, code = row
    return LedgerCheckpoint(str(owner), int(sequence), str(state), str(code))


def _build_secret(row: Row) -> SecretRow:
    name, version, box, entry = row
    return SecretRow(name, version, bytes(box), entry)
