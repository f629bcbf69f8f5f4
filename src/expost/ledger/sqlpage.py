"""Rows of the tables, within one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from expost.core import Guarantee, InvalidRequest, Loss
from expost.ledger.account import Account
from expost.ledger.currency import used_parts
from expost.ledger.entry import Entry, Kind, canonical
from expost.ledger.hold import HoldState
from expost.ledger.page import HoldRow, Page, SecretRow, unsound
from expost.ledger.part import Part
from expost.ledger.schema import ACCOUNTS, ENTRIES, HOLDS, SECRETS

__all__ = ["SqlPage"]

T = TypeVar("T")

# Statements are built once; SQLAlchemy keeps their compiled text.
_LAST = select(ENTRIES).order_by(ENTRIES.c.sequence.desc()).limit(1)
_ENTRY = select(ENTRIES).where(ENTRIES.c.sequence == bindparam("key"))
_CHAIN = select(ENTRIES).order_by(ENTRIES.c.sequence)
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


class SqlPage(Page):
    """One transaction on the tables; it is alone when it writes, so the newest entry is read once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last: Entry | None = None

    def last(self) -> Entry | None:
        if self._last is None:
            self._last = self._one(_LAST, None, _entry)
        return self._last

    def entry(self, sequence: int) -> Entry | None:
        if self._last is not None and self._last.sequence == sequence:
            return self._last
        return self._one(_ENTRY, sequence, _entry)

    def entries(self) -> Iterator[Entry]:
        return (_read(row, _entry) for row in self._connection.execute(_CHAIN))

    def append(self, entry: Entry) -> None:
        values = {name: getattr(entry, name) for name in ("sequence", "text", "previous", "hash")}
        self._connection.execute(_APPEND, values | {"kind": entry.kind.value, "at": entry.recorded})
        self._last = entry

    def account(self, name: str) -> Account | None:
        return self._one(_ACCOUNT, name, _account)

    def accounts(self) -> list[Account]:
        return self._all(_ALL_ACCOUNTS, _account)

    def parts(self, name: str) -> list[Account]:
        return self._all(_PARTS, _account, {"key": name})

    def put_account(self, account: Account) -> None:
        part = account.part
        values = {
            "name": account.name,
            "budget": canonical(account.budget.to_json()),
            "spent": canonical(account.spent.to_json()),
            "used": used_parts(account.budget, account.spent),
            "entry": account.entry,
            "own": canonical(account.own.to_json()),
            "part_of": None if part is None else part.of,
            "part_by": None if part is None else part.by,
            "touching": None if part is None else part.touching,
        }
        self._put(ACCOUNTS, account.name, values)

    def hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        if request_id is not None:
            return self._one(_HOLD_OF_REQUEST, request_id, _hold)
        return self._one(_HOLD, entry, _hold)

    def holds(self) -> list[HoldRow]:
        return self._all(_ALL_HOLDS, _hold)

    def put_hold(self, row: HoldRow) -> None:
        values = {
            "entry": row.entry,
            "request_id": row.request_id,
            "ticket": row.ticket,
            "state": row.state.value,
            "closed_by": row.closed_by,
        }
        self._put(HOLDS, row.entry, values)

    def secret(self, name: str) -> SecretRow | None:
        return self._one(_SECRET, name, _secret)

    def secrets(self) -> list[SecretRow]:
        return self._all(_ALL_SECRETS, _secret)

    def put_secret(self, row: SecretRow) -> None:
        values = {"name": row.name, "version": row.version, "box": row.box, "entry": row.entry}
        self._put(SECRETS, row.name, values)

    def drop_secret(self, name: str) -> None:
        self._connection.execute(_DROP_SECRET, {"key": name})

    def _one(self, statement: Any, key: Any, build: Callable[[Row[Any]], T]) -> T | None:
        row = self._connection.execute(statement, None if key is None else {"key": key}).first()
        return None if row is None else _read(row, build)

    def _all(self, statement: Any, build: Callable[[Row[Any]], T], key: dict[str, str] | None = None) -> list[T]:
        return [_read(row, build) for row in self._connection.execute(statement, key)]

    def _put(self, table: Any, key: Any, values: dict[str, Any]) -> None:
        if self._connection.execute(_CHANGE[table], values | {"key": key}).rowcount == 0:
            self._connection.execute(insert(table), values)


def _read(row: Row[Any], build: Callable[[Row[Any]], T]) -> T:
    """A row as a value; what cannot be one was not written by a ledger."""
    try:
        return build(row)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest):
        raise unsound("Expected rows that a ledger wrote") from None


def _entry(row: Row[Any]) -> Entry:
    sequence, kind, recorded, text, previous, digest = tuple(row)
    return Entry(sequence, Kind(kind), recorded, text, previous, digest)


def _account(row: Row[Any]) -> Account:
    name, budget, spent, used, entry, own, part_of, part_by, touching = tuple(row)
    part = None if part_of is None else _part(part_of, part_by, touching)
    limit, total, charged = _checked(budget, spent, used, own)
    return Account(name, limit, total, entry, charged, part)


# An account with a thousand parts reads them all at every charge, and most of them are alike.


@lru_cache(maxsize=4096)
def _checked(budget: str, spent: str, used: int, own: str) -> tuple[Guarantee, Loss, Loss]:
    limit, total = Guarantee.from_json(json.loads(budget)), _loss(spent)
    if used_parts(limit, total) != used:
        raise ValueError("the two forms of the total differ")
    return limit, total, _loss(own)


@lru_cache(maxsize=4096)
def _loss(text: str) -> Loss:
    return Loss.from_json(json.loads(text))


_part = lru_cache(maxsize=4096)(Part.checked)


def _hold(row: Row[Any]) -> HoldRow:
    entry, request_id, ticket, state, closed_by = tuple(row)
    return HoldRow(entry, request_id, ticket, HoldState(state), closed_by)


def _secret(row: Row[Any]) -> SecretRow:
    return SecretRow(row.name, row.version, bytes(row.box), row.entry)
