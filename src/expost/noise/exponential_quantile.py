"""Quantiles of integer records: the records in order, and the exponential mechanism over all grid points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Sensitivity
from expost.core.rational import probability as read_probability
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.coin import draw_uniform
from expost.noise.lattice import read_compact_integers
from expost.noise.mechanism import PureMechanism, SealedMechanism
from expost.noise.parameter import share_noise_parameters
from expost.noise.selection_mechanism import choose_index

__all__ = ["ExponentialQuantile", "LatticeBounds", "SortedRecords", "is_replace", "read_share", "records_per_unit"]

_WIDEST = 1 << 53  # differences must be exact as floats
_FINEST = 10**6  # denominators times counts must fit in 64 bits


@dataclass(frozen=True)
class LatticeBounds:
    """The public range of integer records, both ends included.

    Parameters
    ----------
    low, high : int
        In lattice units, at most 2^52 in magnitude, the lower one first.

    Examples
    --------
    >>> LatticeBounds(0, 10).width
    10
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        for value in (self.low, self.high):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or abs(value) > _WIDEST // 2:
                raise InvalidRequest("Expected integer bounds below 2^52", got=value, do="Pass them in lattice units")
        if self.low >= self.high:
            raise InvalidRequest("Expected the lower bound below the upper", got=self.low, do="Swap the bounds")

    @property
    def width(self) -> int:
        """The distance between the bounds."""
        return int(self.high) - int(self.low)


@dataclass(frozen=True)
class SortedRecords:
    """Records in increasing order, x_1 <= ... <= x_n; x_j is the lower bound for j < 1, the upper for j > n.

    >>> records = SortedRecords.read([5, 1, 99], LatticeBounds(0, 10))
    >>> records.at(np.array([0, 1, 2, 3, 4])).tolist()
    [0, 1, 5, 10, 10]
    >>> records.rank(Fraction(1, 2))
    2
    """

    values: NDArray[np.int64]
    bounds: LatticeBounds

    @classmethod
    def read(cls, exact: object, bounds: LatticeBounds) -> SortedRecords:
        """Clamp records to the bounds and sort them."""
        values = np.clip(read_compact_integers(exact).ravel(), bounds.low, bounds.high).astype(np.int64)
        return cls(np.sort(values), bounds)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the records of these ranks."""
        padded = np.concatenate([[self.bounds.low], self.values, [self.bounds.high]])
        # Ranks beyond the records are the public bounds.
        taken: NDArray[np.int64] = padded[np.clip(ranks, 0, len(self.values) + 1)]
        return taken

    def rank(self, share: Fraction) -> int:
        """Return the smallest rank whose record has at least this share of the records at or below it."""
        return math.ceil(share * len(self.values))

    def widest_window(self, rank: int, width: int) -> int:
        """Return the largest difference of two records ``width`` ranks apart with this rank between them."""
        # Under replace-one the ranks stay, so the window may lie anywhere around the rank.
        lower = np.arange(rank - width, rank + 1)
        return int(np.max(self.at(lower + width) - self.at(lower)))


def read_share(share: object) -> Fraction:
    """Read the exact probability of a quantile."""
    exact = read_probability(share, "probability")
    if exact.denominator > _FINEST:
        raise InvalidRequest("Expected a probability of at most six decimals", got=exact, do="Round it")
    return exact


def records_per_unit(sensitivity: Sensitivity) -> int:
    """Return how many records one unit can change, add or remove."""
    if Fraction(sensitivity.amount).denominator != 1:
        raise InvalidRequest(
            "Expected a whole number of records per unit", got=sensitivity.amount, do="Pass an integer"
        )
    return int(sensitivity.amount)


def is_replace(sensitivity: Sensitivity) -> bool:
    """Return whether adjacent tables have the same number of records."""
    return sensitivity.adjacency is Adjacency.REPLACE_ONE


@share_noise_parameters
@dataclass(frozen=True)
class ExponentialQuantile(PureMechanism, SealedMechanism[int]):
    """Picks an integer y within public bounds with probability proportional to exp(-epsilon distance(y) / (2 c)).

    The distance is how far, in ranks, y is from being the quantile. The bounds may hold 2^53 integers: points with
    the same distance are weighed together, so the work grows with the records only.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one or add/remove; c is the sensitivity of the distance under it.
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: rank error at most rank_error(...) with probability 1 - failure_probability.
    Numerics: exact; integer distances, an exact choice (see ``choose_index``).
    Reference: MT07, Theorem 6; DR14, Theorems 3.10 and 3.11; Smi11, Algorithm 2 (quantiles).

    Examples
    --------
    >>> from expost.core import Sealed
    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1))
    >>> 38 <= ExponentialQuantile(1, LatticeBounds(0, 120)).release(ages, bits=SeededBits(1)) <= 41
    True
    """

    bounds: LatticeBounds
    probability: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "probability", read_share(self.probability))

    @share_noise_parameters
    def rate(self, sensitivity: Sensitivity) -> Fraction:
        """Return the factor of the distance in the exponent."""
        p, group = self.probability, records_per_unit(sensitivity)
        # With p = a / b a record below y moves b #{x < y} - a n by b - a, one above by -a; a replaced one by b at most.
        moved = p.denominator if is_replace(sensitivity) else max(p.numerator, p.denominator - p.numerator)
        return self.epsilon / (2 * group * moved)  # DR14, Theorem 3.10

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        source, records = resolve_bits(bits), SortedRecords.read(exact, self.bounds)
        a, b = self.probability.numerator, self.probability.denominator
        # Runs of integers with one distance: where each begins, how long it is, and its distance.
        points = np.unique(np.concatenate([[self.bounds.low, self.bounds.high], records.values]))
        starts = np.sort(np.concatenate([points, points[:-1] + 1]))
        sizes = np.diff(np.append(starts, self.bounds.high + 1))
        starts, sizes = starts[sizes > 0], sizes[sizes > 0]
        below = np.searchsorted(records.values, starts, side="left")
        reached = np.searchsorted(records.values, starts, side="right")
        target = a * len(records)
        # Integers: b times the rank distance. Floats could round two distances differently on adjacent tables.
        distances = np.maximum(np.maximum(b * below - target, target - b * reached), 0)
        rate = self.rate(sensitivity)
        cells = choose_index(distances - distances.min(), rate, runs, bits=source, weights=sizes)
        # Within a run all integers weigh the same, so a uniform one has the exact law.
        answers: NDArray[np.int64] = starts[cells] + draw_uniform(sizes[cells].astype(np.uint64), source)
        return answers

    @share_noise_parameters
    def rank_error(self, sensitivity: Sensitivity, failure_probability: float | Fraction) -> int:
        """Return how many records lie between the answer and the quantile at most, except with ``failure_probability``."""
        share = float(read_probability(failure_probability, "failure_probability"))
        # The exact quantile has distance 0; DR14, Theorem 3.11, over all grid points.
        distance = math.log((self.bounds.width + 1) / share) / float(self.rate(sensitivity))
        return math.ceil(distance * (1 + 1e-9) / self.probability.denominator)
