"""A quantile by the exponential mechanism over all grid points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core.rational import probability as read_probability
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Sensitivity
from expost.noise.bits import BitSource, source_of
from expost.noise.choice import choose
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.sorted_records import Bounds, SortedRecords, is_replace, read_share, records_per_unit
from expost.noise.uniform import draw_uniform

__all__ = ["ExponentialQuantile"]


@dataclass(frozen=True)
class ExponentialQuantile(PureMechanism):
    """Picks an integer y within public bounds with probability proportional to exp(-epsilon distance(y) / (2 c)).

    The distance says how far, in ranks, y is from being the quantile. The bounds may hold 2^53 integers: points with
    the same distance are weighed together, so the work grows with the records only.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one or add/remove; c is the sensitivity of the distance under it.
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: rank error at most rank_error(...) with probability 1 - failure_probability.
    Numerics: exact; integer distances, an exact choice (see choice.py).
    Reference: MT07, Theorem 6; DR14, Theorems 3.10 and 3.11; Smi11, Algorithm 2 (quantiles).

    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1))
    >>> 38 <= ExponentialQuantile(1, Bounds(0, 120)).release(ages, bits=SeededBits(1)) <= 41
    True
    """

    bounds: Bounds
    probability: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "probability", read_share(self.probability))

    def rate(self, sensitivity: Sensitivity) -> Fraction:
        """The factor of the distance in the exponent; distances are in units of 1 / denominator of the probability."""
        p, group = self.probability, records_per_unit(sensitivity)
        # With p = a / b a record below y moves b #{x < y} - a n by b - a, one above by -a; a replaced one by b at most.
        moved = p.denominator if is_replace(sensitivity) else max(p.numerator, p.denominator - p.numerator)
        return self.epsilon / (2 * group * moved)  # DR14, Theorem 3.10

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int:
        """The quantile in lattice units; ``sealed`` holds the integer records."""
        return int(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent runs on records the caller knows anyway: for audits and planning."""
        source = source_of(bits)
        starts, sizes, distances = self._cells(SortedRecords.read(exact, self.bounds))
        cells = choose(distances - distances.min(), self.rate(sensitivity), runs, bits=source, weights=sizes)
        answers: NDArray[np.int64] = starts[cells] + draw_uniform(sizes[cells].astype(np.uint64), source)
        return answers

    def _cells(self, records: SortedRecords) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Runs of integers with one distance: where each begins, how long it is, and its distance."""
        a, b = self.probability.numerator, self.probability.denominator
        points = np.unique(np.concatenate([[self.bounds.low, self.bounds.high], records.values]))
        starts = np.sort(np.concatenate([points, points[:-1] + 1]))
        sizes = np.diff(np.append(starts, self.bounds.high + 1))
        starts, sizes = starts[sizes > 0], sizes[sizes > 0]
        below = np.searchsorted(records.values, starts, side="left")
        reached = np.searchsorted(records.values, starts, side="right")
        target = a * len(records)
        return starts, sizes, np.maximum(np.maximum(b * below - target, target - b * reached), 0)

    def rank_error(self, sensitivity: Sensitivity, failure_probability: float | Fraction) -> int:
        """How many records lie between the answer and the quantile at most, except with ``failure_probability``.

        The exact quantile has distance 0; DR14, Theorem 3.11, over all grid points.
        """
        share = float(read_probability(failure_probability, "failure_probability"))
        distance = math.log((self.bounds.width + 1) / share) / float(self.rate(sensitivity))
        return math.ceil(distance * (1 + 1e-9) / self.probability.denominator)
