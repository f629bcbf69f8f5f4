"""What a query releases before any post-processing, many runs at once.

A query that reads its noisy numbers once, at levels fixed in advance, releases sealed vectors under discrete Laplace
noise and computes everything else from them. One run is recorded: the sealed vectors and their levels. They are then
released many times in one array operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

_LONG = 64  # entries
_EXACT = Ladder((Fraction(10**18),))  # variances far below 1
_CLEAR = Fraction(100)  # an epsilon at which hardly any noise is left, planted faults or not


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
    sides = []
    for ask in (left, right):
        with recorded() as seen:
            ask(SeededBits(1))
        sides.append(tuple(seen))

    def sample_vectors(parts: Sequence[tuple[Sealed, Fraction]], runs: int, bits: BitSource) -> Outcomes:
        drawn = [
            DiscreteLaplacePath(sealed_copies(sealed, runs), Ladder((level,)), bits=bits).at(0).reshape(runs, -1)
            for sealed, level in parts
        ]
        return Outcomes.of(np.concatenate(drawn, axis=1))

    # The tables belong to the audit, so measuring them nearly exactly reveals nothing private.
    clear = [
        [DiscreteLaplacePath(sealed, Ladder((_CLEAR,)), bits=SeededBits(1)).at(0) for sealed, _ in parts]
        for parts in sides
    ]
    ours, theirs = (np.concatenate(vectors).astype(np.float64) for vectors in clear)
    decays = [float(level / Fraction(sealed.sensitivity.amount)) for sealed, level in sides[0]]
    rates = np.repeat(decays, [len(vector) for vector in clear[0]])

    def compare_likelihoods(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((np.abs(values - theirs) - np.abs(values - ours)) @ rates)

    return Pair.of(name, claim, sample_vectors, *sides, features=compare_likelihoods)


Step = tuple[Fraction, Sensitivity, Sealed]  # noise multiplier, declared sensitivity, vector


def stream_pair(name: str, claim: Claim, left: Ask, right: Ask) -> Pair:
    """Build a pair of the first steps of two trainings on adjacent tables; ``left`` and ``right`` train for one step."""
    first, second = (_record_steps(ask) for ask in (left, right))
    sides = tuple(zip(*map(_keep_moved, first, second), strict=True))
    exact = [[_exact_vector(sealed) for _, _, sealed in steps] for steps in sides]
    sizes = list(map(len, exact[0]))

    def sample_steps(steps: Sequence[Step], runs: int, bits: BitSource) -> Outcomes:
        drawn = []
        for (noise, sensitivity, sealed), size in zip(steps, sizes, strict=True):
            stream = GaussianStream(noise, sensitivity, size=size * runs, bits=bits)
            drawn.append(np.asarray(stream.release(sealed_copies(sealed, runs)), np.float64).reshape(runs, size))
        return Outcomes.of(np.concatenate(drawn, axis=1))

    # In units of the noise.
    widths = np.repeat([float(noise) * float(sensitivity.amount) for noise, sensitivity, _ in sides[0]], sizes)
    direction = (np.concatenate(exact[0]) - np.concatenate(exact[1])) / widths

    def project_difference(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((values / widths) @ direction)

    return Pair.of(name, claim, sample_steps, *sides, features=project_difference)


def _exact_vector(sealed: Sealed) -> NDArray[np.int64]:
    """Return what is sealed. The tables belong to the audit, so this reveals nothing private."""
    return np.asarray(GaussianPath(sealed, _EXACT, bits=SeededBits(1)).at(0), np.int64)


def _keep_moved(one: Step, other: Step) -> tuple[Step, Step]:
    """Keep the entries of long vectors in which both sides differ: the noise of the others is the same on both."""
    first, second = _exact_vector(one[2]), _exact_vector(other[2])
    if len(first) <= _LONG:
        return one, other
    moved = first != second
    return (*one[:2], Sealed(first[moved], one[1])), (*other[:2], Sealed(second[moved], other[1]))


def _record_steps(ask: Ask) -> list[Step]:
    """Run once and record every vector released through a Gaussian stream."""
    kept, seen = GaussianStream.release, list[Step]()

    def note_call(stream: GaussianStream, sealed: Sealed) -> Any:
        seen.append((stream.noise_multiplier, stream.sensitivity, sealed))
        return kept(stream, sealed)

    with patch.object(GaussianStream, "release", note_call):
        ask(SeededBits(1))
    return seen
