"""The entries of a ledger, each chained to the one before it, and the holds that they record."""

from __future__ import annotations

import enum
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from expost.accounting.budget_rule import read_total
from expost.core import InvalidRequest, Loss, Receipt

__all__ = [
    "EntryKind",
    "Hold",
    "HoldState",
    "LedgerEntry",
    "accounts_in",
    "canonical_json",
    "current_minute",
    "is_own_ticket",
    "new_ticket",
    "sequence_of",
]


class EntryKind(enum.Enum):
    """What an entry records.

    Examples
    --------
    >>> EntryKind("hold")
    <EntryKind.HOLD: 'hold'>
    """

    BEGIN = "begin"
    OPEN = "open"
    BUDGET = "budget"
    HOLD = "hold"
    SETTLE = "settle"
    TAKE_OVER = "take-over"
    WRITE_OFF = "write-off"
    KEEP = "keep"
    FORGET = "forget"
    SOURCE = "source"
    NEIGHBOURS = "neighbours"


class HoldState(enum.Enum):
    """The state of a hold.

    Examples
    --------
    >>> HoldState("open")
    <HoldState.OPEN: 'open'>
    """

    OPEN = "open"
    SETTLED = "settled"
    WRITTEN_OFF = "written off"


@dataclass(frozen=True)
class Hold:
    """The right to run one question once, charged at its worst case until it is settled.

    Parameters
    ----------
    id : str
        The id of the entry that recorded the hold.
    accounts : tuple of str
        The accounts that are charged, sorted by name.
    worst_case : Loss
        The most that the run can cost.
    question : str
        The question in public words.
    request_id : str, optional
        The caller's own id of the request.
    ticket : str
        A secret that names the one process that may settle.
    repeated : bool, default False
        True when the request id was seen before. The first caller has the right to run, this one has not: a second run
        draws new noise and is a second release.
    state : HoldState, default HoldState.OPEN
        Whether the hold is open, settled or written off.
    closed_by : str, optional
        The id of the entry that closed the hold.
    earlier : tuple of str
        The tickets before this one, while a takeover is under way.
    replaced : tuple of str
        The accounts that count replaced units, and charge this run, which states what an added or removed unit loses,
        for a replaced one.
    note : str, optional
        What this hold changed in its account, in words for the receipt.

    Examples
    --------
    >>> from expost.core import PureLoss
    >>> Hold("3-9f86d081884c7d65", ("dataset:flights",), PureLoss(1), question="count", ticket="t").repeated
    False
    """

    id: str
    accounts: tuple[str, ...]
    worst_case: Loss
    _: KW_ONLY
    question: str
    request_id: str | None = None
    ticket: str = field(default="", repr=False)
    repeated: bool = False
    state: HoldState = HoldState.OPEN
    closed_by: str | None = None
    earlier: tuple[str, ...] = field(default=(), repr=False)
    replaced: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger: what happened, after which entry, and the hash over both.

    Parameters
    ----------
    sequence : int
        The number of the entry, from 0.
    kind : EntryKind
        What it records.
    recorded : str
        The time as stored. Ledgers of version 0.1 have milliseconds there, which the hash covers. Show ``at`` instead.
    text : str
        The body as canonical JSON.
    previous : str
        The hash of the entry before, empty for the first.
    hash : str
        SHA-256 over all of the above.

    Examples
    --------
    >>> first = LedgerEntry.follow(None, EntryKind.BEGIN, {"format": 1})
    >>> second = LedgerEntry.follow(first, EntryKind.OPEN, {"account": "dataset:flights"})
    >>> second.previous == first.hash, second.is_intact
    (True, True)
    """

    sequence: int
    kind: EntryKind
    recorded: str = field(repr=False)
    _: KW_ONLY
    text: str
    previous: str
    hash: str

    @classmethod
    def follow(cls, last: LedgerEntry | None, kind: EntryKind, body: Mapping[str, Any]) -> LedgerEntry:
        """Return the entry that follows ``last``.

        Parameters
        ----------
        last : LedgerEntry or None
            The newest entry, or None to begin a chain.
        kind : EntryKind
            What the new entry records.
        body : mapping
            Its content, of JSON values.

        Returns
        -------
        LedgerEntry

        Raises
        ------
        InvalidRequest
            If a text in the body cannot be encoded as UTF-8.
        """
        sequence, previous = (0, "") if last is None else (last.sequence + 1, last.hash)
        recorded, text = current_minute(), canonical_json(body)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("Expected texts that can be written as UTF-8", do="Remove lone surrogates") from None
        digest = _hash_entry(sequence, kind, recorded, text, previous)
        return cls(sequence, kind, recorded, text=text, previous=previous, hash=digest)

    @property
    def at(self) -> str:
        """The minute of this entry, whatever was stored.

        >>> LedgerEntry(0, EntryKind.BEGIN, "2026-11-17T04:25:57.123+00:00", text="{}", previous="", hash="").at
        '2026-11-17T04:25+00:00'
        """
        try:
            return datetime.fromisoformat(self.recorded).isoformat(timespec="minutes")
        except ValueError:  # not a time that a ledger wrote
            return self.recorded[:16]

    @cached_property
    def is_intact(self) -> bool:
        """Whether the hash still fits the content. Neither changes, so it is computed once."""
        return self.hash == _hash_entry(self.sequence, self.kind, self.recorded, self.text, self.previous)

    @property
    def id(self) -> str:
        """The name of this entry on receipts: its number and the start of its hash."""
        return f"{self.sequence}-{self.hash[:16]}"

    @cached_property
    def body(self) -> dict[str, Any]:
        """The content as a dictionary."""
        content: dict[str, Any] = json.loads(self.text)
        return content

    @property
    def question(self) -> str | None:
        """The question of a hold or of the receipt that settles it."""
        question: str | None = (self.body.get("receipt") or self.body).get("question")
        return question

    @property
    def charges(self) -> dict[str, Loss]:
        """What the run of this entry is charged, per account, in the currency of each."""
        return {account: read_total(loss) for account, loss in self.body.get("charges", {}).items()}

    @property
    def spent(self) -> dict[str, Loss]:
        """The total of each touched account after this entry, as it is shown to people."""
        totals = self.body.get("spent", {}) | self.body.get("shown", {})
        return {account: read_total(loss) for account, loss in totals.items()}

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts this entry concerns: those charged, those they are parts of, or the one it opens."""
        return accounts_in(self.body)

    @property
    def receipt(self) -> Receipt | None:
        """The receipt that a settling entry keeps."""
        stored = self.body.get("receipt")
        return None if stored is None else Receipt.from_dict(stored).entered(self.id)


def accounts_in(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the accounts that an entry with this body concerns.

    >>> accounts_in({"account": "dataset:a", "spent": {"dataset:a": {}}})
    ('dataset:a',)
    """
    named = body.get("account")
    return tuple(body.get("charges", {}) | body.get("spent", {})) if named is None else (named,)


def canonical_json(value: Any) -> str:
    """Return JSON text with one spelling per value.

    >>> canonical_json({"b": 1, "a": "ü"})
    '{"a":"ü","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def current_minute() -> str:
    """Return the minute, for people to read. No decision depends on it, so a clock that jumps changes nothing.

    A finer time would reveal how long a question ran, which depends on the data. Entries are ordered by their numbers.
    """
    return datetime.now(UTC).isoformat(timespec="minutes")


def sequence_of(entry_id: str) -> int:
    """Return the entry number in an entry's id.

    >>> sequence_of("12-9f86d081884c7d65")
    12
    """
    number, dash, digest = entry_id.partition("-") if isinstance(entry_id, str) else ("", "", "")
    if not (dash and digest and number.isascii() and number.isdigit() and len(number) <= 18):
        raise InvalidRequest("Expected the id of a ledger entry", got=entry_id, do="Copy it from a receipt or history")
    return int(number)


def _hash_entry(sequence: int, kind: EntryKind, recorded: str, text: str, previous: str) -> str:
    """Hash the canonical JSON list of all five with SHA-256."""
    # Written out by hand instead of by canonical_json: opening a ledger hashes every entry.
    strings = ",".join(map(json.encoder.encode_basestring, (kind.value, recorded, text, previous)))
    return hashlib.sha256(f"[{sequence},{strings}]".encode()).hexdigest()


_PROCESS_NAMES: dict[int, str] = {}  # the random name of this process, by its number: a fork has another number

if hasattr(os, "register_at_fork"):  # numbers are reused, and a container may give a child that of its parent
    os.register_at_fork(after_in_child=_PROCESS_NAMES.clear)


def new_ticket() -> str:
    """Return a new ticket for one hold. It is worthless in every other process.

    >>> new_ticket() == new_ticket()
    False
    """
    return f"{_PROCESS_NAMES.setdefault(os.getpid(), uuid.uuid4().hex)}-{uuid.uuid4().hex}"


def is_own_ticket(ticket: str) -> bool:
    """Return whether this process made the ticket.

    A child forked afterwards did not, nor did a process that read the ticket from a file.

    >>> is_own_ticket(new_ticket())
    True
    """
    return ticket.partition("-")[0] == _PROCESS_NAMES.setdefault(os.getpid(), uuid.uuid4().hex)
