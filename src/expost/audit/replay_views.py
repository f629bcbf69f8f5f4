"""What a question releases before any post-processing, many runs at once.

A question that reads its noisy numbers once, at levels it chose before, releases sealed vectors under discrete Laplace
noise and computes everything else from them. One run is watched: which sealed vectors it put under noise, at which
levels. They are then released again and again, in one array operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.audit.pair_attack import Features, Outcomes, Pair
from expost.audit.privacy_claim import Claim
from expost.core import Ladder, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, GaussianPath
from expost.noise.bits import BitSource, SeededBits
from expost.noise.gaussian_stream import GaussianStream
from expost.noise.lattice import sealed_copies

__all__ = ["StreamTape", "Tape", "recorded", "replay_pair", "stream_pair"]

Ask = Callable[[BitSource], Any]

_CLEAR = Fraction(100)  # an epsilon at which hardly any noise is left, planted faults or not


@dataclass(frozen=True)
class Tape:
    """The sealed vectors that one run put under noise, and at which level each was read last."""

    parts: tuple[tuple[Sealed, Fraction], ...]

    def __call__(self, runs: int, bits: BitSource) -> Outcomes:
        """Return all of them, under fresh noise in each run."""
        drawn = [
            DiscreteLaplacePath(sealed_copies(sealed, runs), Ladder((level,)), bits=bits).at(0).reshape(runs, -1)
            for sealed, level in self.parts
        ]
        return Outcomes.of(np.concatenate(drawn, axis=1))

    def exact(self) -> NDArray[np.float64]:
        """Return the numbers themselves, nearly; the tables are the audit's own."""
        clear = [DiscreteLaplacePath(sealed, Ladder((_CLEAR,)), bits=SeededBits(1)).at(0) for sealed, _ in self.parts]
        return np.concatenate(clear).astype(np.float64)

    def rates(self) -> NDArray[np.float64]:
        """Return how fast the noise of each number falls off: its level over its sensitivity."""
        sizes = [
            len(DiscreteLaplacePath(sealed, Ladder((_CLEAR,)), bits=SeededBits(1)).at(0)) for sealed, _ in self.parts
        ]
        rates = [float(level / Fraction(sealed.sensitivity.amount)) for sealed, level in self.parts]
        return np.repeat(rates, sizes)


@contextmanager
def recorded() -> Iterator[list[tuple[Sealed, Fraction]]]:
    """While this lasts, sealed vectors that are put under discrete Laplace noise are noted, with their last level."""
    kept, seen = DiscreteLaplacePath.__init__, list[tuple[Sealed, Fraction]]()

    def noting(path: Any, sealed: Sealed, ladder: Any, **options: Any) -> None:
        kept(path, sealed, ladder, **options)
        seen.append((sealed, path.ladder.cap))

    DiscreteLaplacePath.__init__ = noting  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        DiscreteLaplacePath.__init__ = kept  # type: ignore[method-assign]


def replay_pair(name: str, claim: Claim, left: Ask, right: Ask) -> Pair:
    """Return what two questions on neighbouring tables release; ``left`` and ``right`` answer once.

    The search sees the exact logarithm of the likelihood ratio of Laplace noise.
    """
    tapes = [_watched(ask) for ask in (left, right)]
    return Pair(name, claim, tapes[0], tapes[1], features=_likelihood(*tapes))


def _watched(ask: Ask) -> Tape:
    with recorded() as seen:
        ask(SeededBits(1))
    return Tape(tuple(seen))


def _likelihood(left: Tape, right: Tape) -> Features:
    ours, theirs, rates = left.exact(), right.exact(), left.rates()
    return lambda values: np.asarray((np.abs(values - theirs) - np.abs(values - ours)) @ rates)


@dataclass(frozen=True)
class StreamTape:
    """The sealed vectors that one step of a training released: noise multiplier, declared sensitivity, vector."""

    parts: tuple[tuple[Fraction, Sensitivity, Sealed], ...]

    def __call__(self, runs: int, bits: BitSource) -> Outcomes:
        """Return all of them, under fresh noise in each run."""
        return Outcomes.of(np.concatenate(self._drawn(runs, bits), axis=1))

    def _drawn(self, runs: int, bits: BitSource, quieter: int = 1) -> list[NDArray[Any]]:
        drawn = []
        for noise, sensitivity, sealed in self.parts:
            size = len(GaussianPath(sealed, Ladder((Fraction(1),)), bits=bits).at(0))
            stream = GaussianStream(noise / quieter, sensitivity, size=size * runs, bits=bits)
            drawn.append(np.asarray(stream.release(sealed_copies(sealed, runs)), np.float64).reshape(runs, size))
        return drawn

    def exact(self) -> NDArray[np.float64]:
        """Return the numbers themselves, nearly, each in units of its noise."""
        clear = self._drawn(1, SeededBits(1), quieter=1000)
        return np.concatenate([each[0] / _deviation(*part[:2]) for each, part in zip(clear, self.parts, strict=True)])

    def deviations(self) -> NDArray[np.float64]:
        """Return how wide the noise of each number is."""
        clear = self._drawn(1, SeededBits(1))
        widths = [_deviation(noise, sensitivity) for noise, sensitivity, _ in self.parts]
        return np.repeat(widths, [each.shape[1] for each in clear])


def _deviation(noise: Fraction, sensitivity: Sensitivity) -> float:
    return float(noise) * float(sensitivity.amount)


def stream_pair(name: str, claim: Claim, left: Ask, right: Ask) -> Pair:
    """Return what the first steps of two trainings on neighbouring tables release; ``left`` and ``right`` train for one step."""
    tapes = [_watched_steps(ask) for ask in (left, right)]
    ours, theirs, widths = tapes[0].exact(), tapes[1].exact(), tapes[0].deviations()

    def along(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((values / widths) @ (ours - theirs))

    return Pair(name, claim, tapes[0], tapes[1], features=along)


def _watched_steps(ask: Ask) -> StreamTape:
    kept, seen = GaussianStream.release, list[tuple[Fraction, Sensitivity, Sealed]]()

    def noting(stream: GaussianStream, sealed: Sealed) -> Any:
        seen.append((stream.noise_multiplier, stream.sensitivity, sealed))
        return kept(stream, sealed)

    GaussianStream.release = noting  # type: ignore[method-assign, assignment]
    try:
        ask(SeededBits(1))
    finally:
        GaussianStream.release = kept  # type: ignore[method-assign]
    return StreamTape(tuple(seen))
