"""Gradual releases that outlive a question, so that asking again for more costs only the difference."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    EngineFailed,
    HoldStages,
    InvalidRequest,
    Ladder,
    Norm,
    ReleaseOvertaken,
    Sealed,
    SingleOwner,
    Step,
    share_parameters,
)
from expost.noise import BitSource, DiscreteLaplacePath, GaussianPath, system_bits
from expost.stats.reader import CellReading

__all__ = [
    "ClimbResult",
    "EarlierAnswer",
    "GradualRelease",
    "PilotRelease",
    "ReleaseCache",
    "SecretStore",
    "draw_bounding_secret",
]


def draw_bounding_secret() -> bytes:
    """Draw the secret that decides which rows a unit keeps when its contribution is bounded."""
    return system_bits().words(4).tobytes()


@dataclass(frozen=True)
class ClimbResult:
    """The public result of a climb.

    ``rung`` is where each cell was read, ``pilot_cost`` what the pilot cost in addition to the rungs, and ``paid``
    the level that earlier answers from the same release had paid for. The levels of Gaussian noise are in rho.
    """

    reading: CellReading
    rung: NDArray[np.int64]
    met: NDArray[np.bool_]
    ladder: Ladder
    steps: tuple[Step, ...] = ()
    pilot_cost: Fraction = Fraction(0)
    paid: Fraction = Fraction(0)
    gaussian: bool = False

    @property
    def levels(self) -> list[Fraction | None]:
        """Return the epsilon at which each cell was read, or None for Gaussian noise."""
        return [None if self.gaussian else self.ladder.rungs[rung] for rung in self.rung.tolist()]

    @property
    def top(self) -> int:
        """Return the highest rung read, which the climb is billed for."""
        return int(self.rung.max())

    @property
    def cost(self) -> Fraction:
        """Return the price of pilot and highest rung, less what earlier answers have paid."""
        return self.pilot_cost + max(self.ladder[self.top] - self.paid, Fraction(0))


class RungGate:
    """The rungs of one path that are reserved; without stages, all of them are.

    Parameters
    ----------
    stages : HoldStages or None
        How more is reserved.
    costs : list of Fraction
        What the run will have cost after each rung.

    Examples
    --------
    >>> gate = RungGate(HoldStages(lambda amount: Fraction(1, 2)), [Fraction(k, 8) for k in range(1, 9)])
    >>> gate.open(0), gate.open(6), gate.last
    (4, 4, 3)
    """

    def __init__(self, stages: HoldStages | None, costs: list[Fraction]) -> None:
        self.stages, self.costs = stages, costs
        self.last = -1

    def open(self, rung: int) -> int:
        """Reserve a rung if it is not reserved, and return the first one beyond all that are.

        That is at most ``rung`` if no more can be reserved.
        """
        if rung > self.last:
            stop = len(self.costs) if self.stages is None else self.stages.reach(self.costs, rung)
            self.last = max(self.last, stop - 1)
        return self.last + 1


@dataclass(frozen=True)
class EarlierAnswer:
    """An answer that was given. It is public, and serves every later query that asks for no more."""

    statistic: str
    failure_probability: Fraction
    reading: CellReading
    met: NDArray[np.bool_]
    rung: NDArray[np.int64]


@dataclass(frozen=True)
class PilotRelease:
    """A small release that was paid for, whose noise of this scale is independent of the path's."""

    noisy: NDArray[Any]
    scale: float


@dataclass
class GradualRelease(SingleOwner):
    """The gradual release of one sealed vector: how far it was read, and what it answered.

    SECRET: it holds the exact answer. ``failure_parts`` are the failure probabilities that a pilot gave to the cells,
    ``pilot`` is what a pilot showed and ``pilot_cost`` what pilots cost. ``climb_start`` is the rung where climbs
    begin, once there was one: from then on, how far the path was read depends on its noise. A vector that was sealed with
    an L2 sensitivity gets Gaussian noise, whose levels are in rho.
    """

    _owned_noun = "gradual release"

    sealed: Sealed | None = None
    path: DiscreteLaplacePath | GaussianPath | None = None
    read: int = -1
    failure_parts: tuple[Fraction, ...] | None = None
    answers: list[EarlierAnswer] = field(default_factory=list)
    climb_start: int | None = None
    pilot: PilotRelease | None = None
    pilot_cost: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self._take_ownership()

    @property
    def paid(self) -> Fraction:
        """Return the level of the highest rung read."""
        return Fraction(0) if self.path is None or self.read < 0 else self.path.ladder[self.read]

    @property
    def spent(self) -> Fraction:
        """Return all that was paid for what this release has shown, pilots included."""
        return self.paid + self.pilot_cost

    @property
    def climbed(self) -> bool:
        """Return whether the rung read last was chosen by the noise at it."""
        return self.climb_start is not None

    def first_rung(self, last: int) -> int:
        """Return the rung where a climb up to ``last`` begins: above what was read at levels given beforehand.

        Each climb begins at the same rung, as if it were the first, so that its promise does not depend on where
        another one stopped (docs/proofs/stopped-relative-error.md).
        """
        if self.climb_start is None and self.read < last:
            self.climb_start = self.read + 1
        return last if self.climb_start is None else min(self.climb_start, last)

    def rung_costs(self, spent: Fraction) -> list[Fraction]:
        """Return what a run that has spent this much on its pilot will have cost after each rung of the path."""
        assert self.path is not None
        paid = self.paid
        return [spent + max(level - paid, Fraction(0)) for level in self.path.ladder]

    def extend_path(self, ladder: Ladder, bits: BitSource | None) -> DiscreteLaplacePath | GaussianPath:
        """Draw the path on this ladder if it is new, else refine it to the ladder's rungs above its own top."""
        if self.path is None:
            assert self.sealed is not None
            kind = GaussianPath if self.sealed.sensitivity.norm is Norm.L2 else DiscreteLaplacePath
            self.path = kind(self.sealed, ladder, bits=bits)
            self.sealed = None
        cap = self.path.ladder.cap
        for level in ladder.rungs:
            if level > cap:
                self.path.refine(level)
        return self.path

    def find_answer(
        self, statistic: str, failure_probability: Fraction, *, epsilon: Fraction | None, target: Any
    ) -> ClimbResult | None:
        """Return an earlier answer that already serves (free), or None."""
        if self.path is None or self.read < 0:
            return None
        ladder = self.path.ladder
        for answer in reversed(self.answers):
            if answer.statistic != statistic or answer.failure_probability > failure_probability:
                continue
            if epsilon is not None:
                enough = epsilon <= ladder[int(answer.rung.min())]
            else:
                reached = target is not None and answer.met.all() and answer.reading.reaches_target(target).all()
                enough = bool(reached)
            if enough:
                return ClimbResult(answer.reading, answer.rung, answer.met, ladder, paid=self.paid)
        return None

    def record_answer(self, statistic: str, failure_probability: Fraction, result: ClimbResult) -> None:
        """Note what a climb has read and shown."""
        self.read, self.pilot_cost = max(self.read, result.top), self.pilot_cost + result.pilot_cost
        self.answers.append(EarlierAnswer(statistic, failure_probability, result.reading, result.met, result.rung))

    def to_bytes(self) -> bytes:
        """Return everything as bytes, to be stored encrypted."""
        assert self.path is not None
        parts, pilot = self.failure_parts, self.pilot
        facts = {
            "read": self.read,
            "failure_parts": None if parts is None else [str(part) for part in parts],
            "answers": [
                {
                    "statistic": each.statistic,
                    "failure_probability": str(each.failure_probability),
                    "reading": [ends.tolist() for ends in (each.reading.value, each.reading.low, each.reading.high)],
                    "met": each.met.tolist(),
                    "rung": each.rung.tolist(),
                }
                for each in self.answers
            ],
            "climb_start": self.climb_start,
            "pilot": None if pilot is None else [pilot.noisy.tolist(), pilot.scale],
            "pilot_cost": str(self.pilot_cost),
            "gaussian": isinstance(self.path, GaussianPath),
        }
        text = json.dumps(facts).encode()
        return len(text).to_bytes(8, "little") + text + self.path.state()

    @classmethod
    def from_bytes(cls, state: bytes, bits: BitSource | None = None) -> GradualRelease:
        """Read what ``to_bytes`` wrote."""
        length = int.from_bytes(state[:8], "little")
        facts = json.loads(state[8 : 8 + length])
        answers = [
            EarlierAnswer(
                each["statistic"],
                Fraction(each["failure_probability"]),
                CellReading(*(np.array(ends, dtype=float) for ends in each["reading"])),
                np.array(each["met"], dtype=bool),
                np.array(each["rung"], dtype=np.int64),
            )
            for each in facts["answers"]
        ]
        parts, pilot = facts["failure_parts"], facts["pilot"]
        kind = GaussianPath if facts.get("gaussian") else DiscreteLaplacePath
        return cls(
            path=kind.from_state(state[8 + length :], bits=bits),
            read=facts["read"],
            failure_parts=None if parts is None else tuple(Fraction(part) for part in parts),
            answers=answers,
            climb_start=facts["climb_start"],
            pilot=None if pilot is None else PilotRelease(np.array(pilot[0]), pilot[1]),
            pilot_cost=Fraction(facts["pilot_cost"]),
        )

    def __repr__(self) -> str:
        return "<gradual release>"


class SecretStore(Protocol):
    """Where secrets are stored encrypted. Every ledger is one."""

    def keep(self, name: str, secret_value: bytes) -> None: ...
    def kept(self, name: str) -> bytes | None: ...
    def replace(self, name: str, *, old: bytes, new: bytes) -> bool: ...


class ReleaseCache(SingleOwner):
    """The gradual releases that earlier answers paid for, which a plan may continue.

    Two threads that refined one release at the same time, or a parent and its fork, would draw two continuations and
    pay for one. So threads take turns, a forked process starts with an empty cache, and of two processes that share a
    store the slower one discards what it drew.

    Parameters
    ----------
    store : SecretStore, optional
        Where releases are stored encrypted for the next session. Every ledger is one. Default: in memory only.
    payers : str, default ""
        A name of the accounts that pay besides the dataset's. What one set of accounts paid for is not found by another.

    Examples
    --------
    >>> with ReleaseCache().take_turn() as cache:
    ...     print(list(cache.keys()))
    []
    """

    _owned_noun = "cache of releases"

    def __init__(self, store: SecretStore | None = None, *, payers: str = "") -> None:
        super().__init__()
        self._store, self._prefix = store, f"path:{payers}:" if payers else "path:"
        self._turn = threading.RLock()
        self._kept_in_turn = 0
        self._releases: dict[str, GradualRelease] = {}
        self._stored: dict[str, bytes] = {}

    @contextmanager
    def take_turn(self) -> Iterator[Self]:
        """Yield the cache to this thread alone."""
        if os.getpid() != self._owner_process:
            # The other side of the fork has the same releases, and perhaps a lock that no thread here will release.
            self._take_ownership()
            self._turn, self._releases, self._stored = threading.RLock(), {}, {}
        with self._turn:
            self._kept_in_turn = 0
            yield self

    def find_release(self, key: str) -> GradualRelease | None:
        """Return the release kept under a key, as last stored.

        Parameters
        ----------
        key : str
            The key of the sealed vector, from ``Design.cache_key``.
        """
        state = None if self._store is None else self._store.kept(self._prefix + key)
        if state is not None and state != self._stored.get(key):
            self._releases[key], self._stored[key] = GradualRelease.from_bytes(state), state
        return self._releases.get(key)

    @share_parameters(find_release)
    def keep_release(self, key: str, release: GradualRelease) -> None:
        """Keep a release after it was read. This must succeed before the answer leaves.

        Parameters
        ----------
        release : GradualRelease
            The release, as far as it was read.

        Raises
        ------
        ReleaseOvertaken
            If another session refined the same release in the meantime, and nothing was kept in this turn: then
            nothing of it remains, and the question can be planned again.
        EngineFailed
            If another release was kept in this turn before. It stays paid for.
        """
        if self._store is not None:
            state, old, name = release.to_bytes(), self._stored.get(key), self._prefix + key
            if old is None:
                try:
                    self._store.keep(name, state)
                    self._stored[key] = state
                except InvalidRequest:
                    # Without a key to encrypt with, ours stays in memory, fully paid.
                    if self._store.kept(name) is not None:
                        self._discard_release(key)
            elif self._store.replace(name, old=old, new=state):
                self._stored[key] = state
            else:
                self._discard_release(key)
            self._kept_in_turn += 1
        self._releases[key] = release

    def _discard_release(self, key: str) -> NoReturn:
        """Forget what was drawn after another session was faster, and raise."""
        self._releases.pop(key, None)
        self._stored.pop(key, None)
        # A release that was kept in this turn counts as paid from now on, so the run that read it must be charged.
        if self._kept_in_turn:
            raise EngineFailed("Another session refined this answer at the same time", do="Ask again")
        raise ReleaseOvertaken

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to find: no release in memory, and no store."""
        return self._store is None and not self._releases

    def keys(self) -> Iterable[str]:
        """Return the keys of the releases kept in memory."""
        return self._releases.keys()
