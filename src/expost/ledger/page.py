"""One transaction's view of the ledger: what a place to keep it must be able to do."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from expost.core import LedgerUnsound
from expost.ledger.account import Account
from expost.ledger.entry import Entry, Kind, sequence_of
from expost.ledger.hold import HoldState

__all__ = ["HoldRow", "Page", "SecretRow", "unsound"]


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A hold by the number of its entry, for finding it without reading the chain."""

    entry: int
    request_id: str | None
    ticket: str
    state: HoldState = HoldState.OPEN
    closed_by: int | None = None


@dataclass(frozen=True, slots=True)
class SecretRow:
    """An encrypted value, its version, and the entry that vouches for it."""

    name: str
    version: int
    box: bytes
    entry: int

    @property
    def digest(self) -> str:
        """The hash of the box, as the chain records it."""
        return hashlib.sha256(self.box).hexdigest()


def unsound(expected: str) -> LedgerUnsound:
    """The error for a record that does not add up."""
    return LedgerUnsound(expected, do="Stop using this ledger and restore it from its owner's records")


class Page(ABC):
    """Reads and writes that happen together or not at all."""

    @abstractmethod
    def last(self) -> Entry | None:
        """The newest line."""

    @abstractmethod
    def entry(self, sequence: int) -> Entry | None:
        """The line of this number."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """All lines in order."""

    @abstractmethod
    def append(self, entry: Entry) -> None:
        """Add a line at the end."""

    @abstractmethod
    def account(self, name: str) -> Account | None:
        """The stored account."""

    @abstractmethod
    def accounts(self) -> list[Account]:
        """All stored accounts, templates included, by name."""

    @abstractmethod
    def parts(self, name: str) -> list[Account]:
        """The accounts that are parts of this one, by name."""

    @abstractmethod
    def put_account(self, account: Account) -> None:
        """Store a new or changed account."""

    @abstractmethod
    def hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        """The hold of this entry or of this request."""

    @abstractmethod
    def holds(self) -> list[HoldRow]:
        """All holds in order."""

    @abstractmethod
    def put_hold(self, row: HoldRow) -> None:
        """Store a new or changed hold."""

    @abstractmethod
    def secret(self, name: str) -> SecretRow | None:
        """The stored secret."""

    @abstractmethod
    def secrets(self) -> list[SecretRow]:
        """All secrets by name."""

    @abstractmethod
    def put_secret(self, row: SecretRow) -> None:
        """Store a new or changed secret."""

    @abstractmethod
    def drop_secret(self, name: str) -> None:
        """Delete a secret."""

    def post(self, kind: Kind, body: Mapping[str, Any]) -> Entry:
        """Append a line after the newest one."""
        entry = Entry.after(self.last(), kind, body)
        self.append(entry)
        return entry

    def intact(self, sequence: int) -> Entry:
        """The line of this number, its hash checked."""
        entry = self.entry(sequence)
        if entry is None or not entry.is_intact:
            raise unsound("Expected an unbroken chain of entries")
        return entry

    def named(self, entry_id: str) -> Entry | None:
        """The line with this id, its hash checked."""
        entry = self.entry(sequence_of(entry_id))
        if entry is None or entry.id != entry_id:
            return None
        return self.intact(entry.sequence)

    def sound_account(self, name: str) -> Account | None:
        """The account, its total compared with what the chain says of it."""
        account = self.account(name)
        if account is not None and self.intact(account.entry).spent.get(name) != account.spent:
            raise unsound("Expected the total of an account to be the one in the chain")
        return account
