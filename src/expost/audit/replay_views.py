"""What a query releases before any post-processing, many runs at once.

A query that reads its noisy numbers once, at levels fixed in advance, releases sealed vectors under discrete Laplace
noise and computes everything else from them. One run is recorded: the sealed vectors and their levels. They are then
released many times in one array operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.privacy_claim import Claim
from expost.core import Ladder, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, GaussianPath
from expost.noise.bits import BitSource, SeededBits
from expost.noise.gaussian_stream import GaussianStream
from expost.noise.lattice import sealed_copies

__all__ = ["recorded", "replay_pair", "stream_pair"]

Ask = Callable[[BitSource], Any]

_CLEAR = Fraction(100)  # an epsilon at which hardly any noise is left, planted faults or not


@dataclass(frozen=True)
class Tape:
    """The sealed vectors that one run put under noise, and at which level each was read last."""

    parts: tuple[tuple[Sealed, Fraction], ...]

    def __call__(self, runs: int, bits: BitSource) -> Outcomes:
        """Release all of them, under fresh noise in each run."""
        drawn = [
            DiscreteLaplacePath(sealed_copies(sealed, runs), Ladder((level,)), bits=bits).at(0).reshape(runs, -1)
            for sealed, level in self.parts
        ]
        return Outcomes.of(np.concatenate(drawn, axis=1))

    def measure_exact(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Measure the numbers nearly exactly, and the decay rate of their noise: level over sensitivity.

        The tables belong to the audit, so nothing private is revealed.
        """
        clear = [DiscreteLaplacePath(sealed, Ladder((_CLEAR,)), bits=SeededBits(1)).at(0) for sealed, _ in self.parts]
        rates = [float(level / Fraction(sealed.sensitivity.amount)) for sealed, level in self.parts]
        return np.concatenate(clear).astype(np.float64), np.repeat(rates, [len(each) for each in clear])


@contextmanager
def recorded() -> Iterator[list[tuple[Sealed, Fraction]]]:
    """Record the sealed vectors that are put under discrete Laplace noise in this block, with their last level."""
    kept, seen = DiscreteLaplacePath.__init__, list[tuple[Sealed, Fraction]]()

    def note_call(path: Any, sealed: Sealed, ladder: Any, **options: Any) -> None:
        kept(path, sealed, ladder, **options)
        seen.append((sealed, path.ladder.cap))

    with patch.object(DiscreteLaplacePath, "__init__", note_call):
        yield seen


def replay_pair(name: str, claim: Claim, left: Ask, right: Ask) -> Pair:
    """Build a pair of what two queries on adjacent tables release; ``left`` and ``right`` answer once.

    Its feature is the exact log-likelihood ratio of Laplace noise.
    """
    tapes = []
    for ask in (left, right):
        with recorded() as seen:
            ask(SeededBits(1))
        tapes.append(Tape(tuple(seen)))
    (ours, rates), (theirs, _) = (tape.measure_exact() for tape in tapes)

    def compare_likelihoods(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((np.abs(values - theirs) - np.abs(values - ours)) @ rates)

    return Pair(name, claim, tapes[0], tapes[1], features=compare_likelihoods)


@dataclass(frozen=True)
class StreamTape:
    """The sealed vectors that one step of a training released: noise multiplier, declared sensitivity, vector."""

    parts: tuple[tuple[Fraction, Sensitivity, Sealed], ...]

    def __call__(self, runs: int, bits: BitSource) -> Outcomes:
        """Release all of them, under fresh noise in each run."""
        return Outcomes.of(np.concatenate(self._draw_parts(runs, bits), axis=1))

    def _draw_parts(self, runs: int, bits: BitSource, quieter: int = 1) -> list[NDArray[Any]]:
        """Release each vector once per run, with its noise divided by ``quieter``."""
        drawn = []
        for noise, sensitivity, sealed in self.parts:
            size = len(GaussianPath(sealed, Ladder((Fraction(1),)), bits=bits).at(0))
            stream = GaussianStream(noise / quieter, sensitivity, size=size * runs, bits=bits)
            drawn.append(np.asarray(stream.release(sealed_copies(sealed, runs)), np.float64).reshape(runs, size))
        return drawn

    def measure_exact(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Measure the numbers nearly exactly, in units of their noise, and the standard deviation of that noise."""
        clear = self._draw_parts(1, SeededBits(1), quieter=1000)
        widths = [float(noise) * float(sensitivity.amount) for noise, sensitivity, _ in self.parts]
        exact = [each[0] / width for each, width in zip(clear, widths, strict=True)]
        return np.concatenate(exact), np.repeat(widths, [each.shape[1] for each in clear])


def stream_pair(name: str, claim: Claim, left: Ask, right: Ask) -> Pair:
    """Build a pair of the first steps of two trainings on adjacent tables; ``left`` and ``right`` train for one step."""
    tapes = [_record_steps(ask) for ask in (left, right)]
    (ours, widths), (theirs, _) = (tape.measure_exact() for tape in tapes)

    def project_difference(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((values / widths) @ (ours - theirs))

    return Pair(name, claim, tapes[0], tapes[1], features=project_difference)


def _record_steps(ask: Ask) -> StreamTape:
    """Run once and record every vector released through a Gaussian stream."""
    kept, seen = GaussianStream.release, list[tuple[Fraction, Sensitivity, Sealed]]()

    def note_call(stream: GaussianStream, sealed: Sealed) -> Any:
        seen.append((stream.noise_multiplier, stream.sensitivity, sealed))
        return kept(stream, sealed)

    with patch.object(GaussianStream, "release", note_call):
        ask(SeededBits(1))
    return StreamTape(tuple(seen))
