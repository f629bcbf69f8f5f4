"""One line of the ledger, chained to the line before it."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from expost.core import InvalidRequest, Loss, Receipt

__all__ = ["Entry", "Kind", "canonical", "sequence_of"]


class Kind(enum.Enum):
    """What an entry records.

    >>> Kind("hold")
    <Kind.HOLD: 'hold'>
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


def canonical(value: Any) -> str:
    """JSON text with one spelling per value.

    >>> canonical({"b": 1, "a": "ü"})
    '{"a":"ü","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def now() -> str:
    """The minute, for people to read; no decision rests on it, so a jumping clock changes nothing.

    A finer time would tell how long a question ran, which depends on the data, to everyone who may read the ledger. The order
    of lines is that of their numbers.
    """
    return datetime.now(UTC).isoformat(timespec="minutes")


@dataclass(frozen=True)
class Entry:
    """One line: what happened, after which line, and the hash over both.

    ``text`` is the body as canonical JSON, ``previous`` the hash of the line before. ``recorded`` is the time as stored;
    ledgers of version 0.1 have milliseconds there, which the hash covers. ``at`` is what may be shown.

    >>> first = Entry.after(None, Kind.BEGIN, {"format": 1})
    >>> second = Entry.after(first, Kind.OPEN, {"account": "dataset:flights"})
    >>> second.previous == first.hash, second.is_intact
    (True, True)
    """

    sequence: int
    kind: Kind
    recorded: str = field(repr=False)
    text: str
    previous: str
    hash: str

    @classmethod
    def after(cls, last: Entry | None, kind: Kind, body: Mapping[str, Any]) -> Entry:
        """The line that follows ``last``."""
        sequence, previous = (0, "") if last is None else (last.sequence + 1, last.hash)
        at, text = now(), _storable(canonical(body))
        return cls(sequence, kind, at, text, previous, _hash(sequence, kind, at, text, previous))

    @property
    def at(self) -> str:
        """The minute of this line, whatever was stored."""
        return _minute(self.recorded)

    @property
    def is_intact(self) -> bool:
        """Whether the hash still fits the content."""
        return self.hash == _hash(self.sequence, self.kind, self.recorded, self.text, self.previous)

    @property
    def id(self) -> str:
        """The name of this line on receipts: its number and the start of its hash."""
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
        """What the run of this line is charged, per account, in the currency of each."""
        return {account: Loss.from_json(loss) for account, loss in self.body.get("charges", {}).items()}

    @property
    def spent(self) -> dict[str, Loss]:
        """The total of each touched account after this line."""
        return {account: Loss.from_json(loss) for account, loss in self.body.get("spent", {}).items()}

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts this line concerns: those charged, those they are parts of, or the one it opens."""
        named = self.body.get("account")
        touched = self.body.get("charges", {}) | self.body.get("spent", {})
        return tuple(touched) if named is None else (named,)

    @property
    def receipt(self) -> Receipt | None:
        """The receipt a settling line keeps."""
        stored = self.body.get("receipt")
        return None if stored is None else Receipt.from_dict(stored).entered(self.id)


def sequence_of(entry_id: str) -> int:
    """The line number in an entry's id.

    >>> sequence_of("12-9f86d081884c7d65")
    12
    """
    number, dash, digest = entry_id.partition("-") if isinstance(entry_id, str) else ("", "", "")
    if not (dash and digest and number.isascii() and number.isdigit() and len(number) <= 18):
        raise InvalidRequest("Expected the id of a ledger entry", got=entry_id, do="Copy it from a receipt or history")
    return int(number)


def _minute(recorded: str) -> str:
    """A stored time without its seconds.

    >>> _minute("2026-11-17T04:25:57.123+00:00")
    '2026-11-17T04:25+00:00'
    """
    try:
        return datetime.fromisoformat(recorded).isoformat(timespec="minutes")
    except ValueError:  # not a time that a ledger wrote
        return recorded[:16]


def _storable(text: str) -> str:
    """Texts that no database and no hash can take are refused before anything is written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("Expected texts that can be written as UTF-8", do="Remove lone surrogates") from None
    return text


def _hash(sequence: int, kind: Kind, at: str, text: str, previous: str) -> str:
    """SHA-256 over the canonical JSON of all five, written out by hand: opening a ledger hashes every line."""
    strings = ",".join(map(json.encoder.encode_basestring, (kind.value, at, text, previous)))
    return hashlib.sha256(f"[{sequence},{strings}]".encode()).hexdigest()
