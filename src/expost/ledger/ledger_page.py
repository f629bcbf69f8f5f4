"""One transaction's view of the ledger: what a storage must be able to do, and the unit that an account protects."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from expost.accounting.budget_rule import read_total
from expost.core import Adjacency, InvalidRequest, LedgerUnsound, Loss, Unit, Window
from expost.ledger.ledger_account import LedgerAccount, check_name
from expost.ledger.ledger_entry import EntryKind, HoldState, LedgerEntry, accounts_in, sequence_of
from expost.ledger.neighbour_record import NeighbourRecord

__all__ = ["HoldRow", "LedgerPage", "Protected", "SecretRow", "unsound_ledger"]


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


def unsound_ledger(reason: str) -> LedgerUnsound:
    """Return the error for a record that does not add up."""
    return LedgerUnsound(
        f"Cannot trust this ledger because {reason}", do="Stop using it and restore it from its owner's records"
    )


class LedgerPage(ABC):
    """Reads and writes that happen together or not at all."""

    @abstractmethod
    def last_entry(self) -> LedgerEntry | None:
        """Return the newest entry."""

    @abstractmethod
    def find_entry(self, sequence: int) -> LedgerEntry | None:
        """Return the entry of this number."""

    @abstractmethod
    def all_entries(self) -> Iterator[LedgerEntry]:
        """Yield all entries in order."""

    @abstractmethod
    def append_entry(self, entry: LedgerEntry) -> None:
        """Add an entry at the end."""

    @abstractmethod
    def find_account(self, name: str) -> LedgerAccount | None:
        """Return the stored account."""

    @abstractmethod
    def all_accounts(self) -> list[LedgerAccount]:
        """Return all stored accounts, templates included, by name."""

    @abstractmethod
    def parts_of(self, name: str) -> list[LedgerAccount]:
        """Return the accounts that are parts of this one, by name."""

    @abstractmethod
    def put_account(self, account: LedgerAccount) -> None:
        """Store a new or changed account."""

    @abstractmethod
    def find_hold(self, *, entry: int = -1, request_id: str | None = None) -> HoldRow | None:
        """Return the hold of this entry or of this request."""

    @abstractmethod
    def all_holds(self) -> list[HoldRow]:
        """Return all holds in order."""

    def open_hold_rows(self) -> list[HoldRow]:
        """Return the holds that are neither settled nor written off, oldest first."""
        return [row for row in self.all_holds() if row.state is HoldState.OPEN]

    @abstractmethod
    def put_hold(self, row: HoldRow) -> None:
        """Store a new or changed hold."""

    @abstractmethod
    def find_secret(self, name: str) -> SecretRow | None:
        """Return the stored secret."""

    @abstractmethod
    def all_secrets(self) -> list[SecretRow]:
        """Return all secrets by name."""

    @abstractmethod
    def put_secret(self, row: SecretRow) -> None:
        """Store a new or changed secret."""

    @abstractmethod
    def drop_secret(self, name: str) -> None:
        """Delete a secret."""

    @abstractmethod
    def latest_entry(self, account: str) -> int | None:
        """Return the number of the newest entry that concerns an account."""

    def entries_between(self, first: int, stop: int) -> list[LedgerEntry]:
        """Return the entries with these numbers in order, ``stop`` excluded, each checked and chained to the next."""
        found = [self.intact_entry(number) for number in range(max(first, 0), stop)]
        if any(after.previous != before.hash for before, after in itertools.pairwise(found)):
            raise unsound_ledger("its chain of entries is broken")
        return found

    @abstractmethod
    def neighbours(self) -> NeighbourRecord:
        """Return whom the accounts protect, by the entries that were there when this transaction began."""

    def replayed_sources(self) -> Mapping[str, Any] | None:
        """Return what a replay of the chain before this transaction knows of sources, None without a replay."""
        return None

    @abstractmethod
    def own_as_replaced(self, account: LedgerAccount) -> Loss | None:
        """Return what an account's own charges come to if every run is priced for a replaced unit.

        By the entries that were there when this transaction began. None where a run has no such price, and for accounts
        that count replaced units anyway.
        """

    def post(self, kind: EntryKind, body: Mapping[str, Any]) -> LedgerEntry:
        """Append an entry after the newest one. It states, per account, the newest entry about that account before it."""
        if accounts := accounts_in(body):
            body = {**body, "links": {name: self.latest_entry(name) for name in accounts}}
        entry = LedgerEntry.follow(self.last_entry(), kind, body)
        self.append_entry(entry)
        return entry

    def next_sequence(self) -> int:
        """Return the number of the next entry."""
        last = self.last_entry()
        return 0 if last is None else last.sequence + 1

    def intact_entry(self, sequence: int | None) -> LedgerEntry:
        """Return the entry of this number after checking its hash."""
        entry = None if sequence is None else self.find_entry(sequence)
        if entry is None or not entry.is_intact:
            raise unsound_ledger("its chain of entries is broken")
        return entry

    def named_entry(self, entry_id: str) -> LedgerEntry | None:
        """Return the entry with this id after checking its hash, or None."""
        entry = self.find_entry(sequence_of(entry_id))
        if entry is None or entry.id != entry_id:
            return None
        return self.intact_entry(entry.sequence)

    def sound_account(self, name: str) -> LedgerAccount | None:
        """Return the account after comparing its total with the one in the chain, or None."""
        account = self.find_account(name)
        if account is None:
            return None
        recorded = self.intact_entry(account.entry).body.get("spent", {}).get(name)
        # As texts first: reading exact fractions is slow, and equal totals are nearly always spelt alike.
        if recorded is None or (recorded != account.spent.to_json() and read_total(recorded) != account.spent):
            raise unsound_ledger("the total of an account is not the one in the chain")
        return account

    def charged_account(self, name: str) -> LedgerAccount:
        """Return an account that the chain has charged, its total compared; it must exist."""
        account = self.sound_account(name)
        if account is None:
            raise unsound_ledger("an account of a hold does not exist")
        return account


@dataclass(frozen=True, slots=True)
class Protected:
    """The unit and the adjacency of a run, and the account that it is about.

    Losses add up for one notion of a person only. A hold about another unit than the first one of its account is refused,
    in the transaction that would take it. So of two sessions that describe a table differently only one can ever hold,
    however their questions overlap. Of the two adjacencies an account counts one: it charges a run about added or removed
    units for replaced ones if it counts those, and goes over to them when a run needs it
    (docs/proofs/replace-one-accounts.md).

    Parameters
    ----------
    account : str
        The account, in any spelling that ``open_account`` accepts.
    adjacency : Adjacency
        Which two tables count as adjacent.
    unit : Unit
        What one person is.

    Examples
    --------
    >>> Protected("dataset:people", Adjacency.ADD_REMOVE, Unit.row()).to_json()["adjacency"]
    'add-remove'
    """

    account: str
    adjacency: Adjacency
    unit: Unit

    def __post_init__(self) -> None:
        # In another spelling of the account its past would not be found.
        object.__setattr__(self, "account", check_name(self.account))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote, or what a receipt states.

        Parameters
        ----------
        data : mapping
            A JSON object with ``account``, ``adjacency`` and ``unit``.

        Returns
        -------
        Protected
        """
        unit = data["unit"]
        window = None if unit["window"] is None else Window(unit["window"])
        return cls(data["account"], Adjacency(data["adjacency"]), Unit(unit["column"], unit["time_column"], window))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, with unit and adjacency as a receipt spells them.

        Returns
        -------
        dict
        """
        window = None if self.unit.window is None else self.unit.window.value
        unit = {"column": self.unit.column, "time_column": self.unit.time_column, "window": window}
        return {"account": self.account, "adjacency": self.adjacency.value, "unit": unit}

    def check(self, page: LedgerPage) -> bool:
        """Refuse another unit than that of the oldest hold or receipt of the account.

        Parameters
        ----------
        page : LedgerPage
            The transaction that reads the ledger.

        Returns
        -------
        bool
            Whether the account has such a hold or receipt.

        Raises
        ------
        InvalidRequest
            If it states another unit.
        """
        stated = page.neighbours().first_stated([self.account])
        if stated is None:
            return False
        before = self.from_json(stated)
        if before.unit != self.unit:
            raise InvalidRequest(
                f"Expected {before.unit} as the unit, as in the account so far",
                got=str(self.unit),
                do="Describe the dataset as before",
            )
        return True
