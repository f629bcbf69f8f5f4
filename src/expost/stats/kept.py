"""Paths that outlive a question, so that asking again for more costs only the difference."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import EngineFailed, InvalidRequest, Ladder, Sealed
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.reading import Reading

__all__ = ["Answered", "Kept", "Scouted", "Shelf", "Vault"]


@dataclass(frozen=True)
class Answered:
    """An answer that was given: public, and good for every later question that asks for no more."""

    statistic: str
    failure_probability: Fraction
    reading: Reading
    met: NDArray[np.bool_]
    rung: NDArray[np.int64]


@dataclass(frozen=True)
class Scouted:
    """What a scout showed: released and paid for, with noise of this scale that has nothing to do with the path's."""

    noisy: NDArray[Any]
    scale: float


@dataclass
class Kept:
    """The gradual release of one sealed vector: how far it was read, and what it answered.

    SECRET: it holds the exact answer. ``parts`` are the failure probabilities that a scout gave to the cells, ``scouted``
    is what one showed, ``beside`` what scouts cost. ``start`` is the rung where climbs begin, once there was one: how far
    the path was read then depends on its noise.
    """

    sealed: Sealed | None = None
    path: DiscreteLaplacePath | None = None
    read: int = -1
    parts: tuple[Fraction, ...] | None = None
    answered: list[Answered] = field(default_factory=list)
    start: int | None = None
    scouted: Scouted | None = None
    beside: Fraction = Fraction(0)

    @property
    def paid(self) -> Fraction:
        """The level of the highest rung read."""
        return Fraction(0) if self.path is None or self.read < 0 else self.path.ladder[self.read]

    @property
    def spent(self) -> Fraction:
        """All that was paid for what the path has shown, scouts too."""
        return self.paid + self.beside

    @property
    def climbed(self) -> bool:
        """Whether the rung read last was chosen by looking at its noise."""
        return self.start is not None

    def first_rung(self, last: int) -> int:
        """Where a climb up to the rung ``last`` begins: above what was read at levels given beforehand.

        Each climb begins at the same rung, as if it were the first, so that its promise does not rest on where
        another one stopped (docs/proofs/stopped-relative-error.md).
        """
        if self.start is None and self.read < last:
            self.start = self.read + 1
        return last if self.start is None else min(self.start, last)

    def ladder_to(self, ladder: Ladder, bits: BitSource | None) -> DiscreteLaplacePath:
        """The path, drawn on this ladder if it is new, else made to reach the ladder's rungs above its own top."""
        if self.path is None:
            assert self.sealed is not None
            self.path = DiscreteLaplacePath(self.sealed, ladder, bits=bits)
            self.sealed = None
        for level in ladder:
            if level > self.path.ladder.cap:
                self.path.refine(level)
        return self.path

    def to_bytes(self) -> bytes:
        """Everything, to be stored encrypted."""
        assert self.path is not None
        facts = {
            "read": self.read,
            "parts": None if self.parts is None else [str(part) for part in self.parts],
            "answered": [_pack(each) for each in self.answered],
            "start": self.start,
            "beside": str(self.beside),
            "scouted": None if self.scouted is None else [self.scouted.noisy.tolist(), self.scouted.scale],
        }
        text = json.dumps(facts).encode()
        return len(text).to_bytes(8, "little") + text + self.path.state()

    @classmethod
    def from_bytes(cls, state: bytes, bits: BitSource | None = None) -> Kept:
        """What ``to_bytes`` wrote."""
        length = int.from_bytes(state[:8], "little")
        facts = json.loads(state[8 : 8 + length])
        path = DiscreteLaplacePath.from_state(state[8 + length :], bits=bits)
        parts = None if facts["parts"] is None else tuple(Fraction(part) for part in facts["parts"])
        answered = [_unpack(each) for each in facts["answered"]]
        scouted = facts.get("scouted")
        # A path stored without its first rung may have been climbed: it is taken for one that was.
        start = facts.get("start", 0)
        shown = scouted and Scouted(np.array(scouted[0]), scouted[1])
        return cls(None, path, facts["read"], parts, answered, start, shown, Fraction(facts.get("beside", 0)))

    def __repr__(self) -> str:
        return "<kept path>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Expected a kept path to stay where it is; it holds an exact answer.")


def _pack(answered: Answered) -> dict[str, Any]:
    reading = answered.reading
    return {
        "statistic": answered.statistic,
        "failure_probability": str(answered.failure_probability),
        "reading": [each.tolist() for each in (reading.value, reading.low, reading.high)],
        "met": answered.met.tolist(),
        "rung": answered.rung.tolist(),
    }


def _unpack(facts: dict[str, Any]) -> Answered:
    return Answered(
        facts["statistic"],
        Fraction(facts["failure_probability"]),
        Reading(*(np.array(each, dtype=float) for each in facts["reading"])),
        np.array(facts["met"], dtype=bool),
        np.array(facts["rung"], dtype=np.int64),
    )


class Vault(Protocol):
    """Where secrets are stored encrypted; every ledger is one."""

    def keep(self, name: str, secret_value: bytes) -> None: ...
    def kept(self, name: str) -> bytes | None: ...
    def replace(self, name: str, *, old: bytes, new: bytes) -> bool: ...


class Shelf:
    """The kept paths of a session, in memory and, where a vault is given, stored for the next session.

    A path is refined by one holder at a time: if another session was faster, what was drawn here is thrown away and
    never leaves.

    >>> Shelf().find("nothing", None) is None
    True
    """

    def __init__(self, vault: Vault | None = None) -> None:
        self._vault = vault
        self._paths: dict[str, Kept] = {}
        self._stored: dict[str, bytes] = {}

    def find(self, key: str, bits: BitSource | None) -> Kept | None:
        """The path kept under a key."""
        state = None if self._vault is None else self._vault.kept(_name(key))
        if state is not None and state != self._stored.get(key):
            self._paths[key], self._stored[key] = Kept.from_bytes(state, bits), state
        return self._paths.get(key)

    def put(self, key: str, kept: Kept) -> None:
        """Keep a path after it was read; must succeed before what was read leaves."""
        if self._vault is not None:
            self._store(self._vault, key, kept.to_bytes())
        self._paths[key] = kept

    def _store(self, vault: Vault, key: str, state: bytes) -> None:
        old = self._stored.get(key)
        if old is None:
            try:
                vault.keep(_name(key), state)
            except InvalidRequest:
                return  # no key to encrypt with, or another session was faster: ours stays in memory, fully paid
        elif not vault.replace(_name(key), old=old, new=state):
            raise EngineFailed("Expected to be the only one to refine this answer", do="Ask again")
        self._stored[key] = state

    def keys(self) -> Iterable[str]:
        """What is kept in memory."""
        return self._paths.keys()


def _name(key: str) -> str:
    return f"path:{key}"
