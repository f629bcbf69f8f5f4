"""Sorted integer records between public bounds: the raw material of quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest
from expost.core.rational import probability
from expost.core.sensitivity import Sensitivity
from expost.noise.lattice import compact_integers

__all__ = ["Bounds", "SortedRecords"]

_WIDEST = 1 << 53  # differences must be exact as floats
_FINEST = 10**6  # denominators times counts must fit in 64 bits


@dataclass(frozen=True)
class Bounds:
    """The public range of the records, in lattice units, both ends included.

    >>> Bounds(0, 10).width
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
        """The distance of the ends."""
        return int(self.high) - int(self.low)


@dataclass(frozen=True)
class SortedRecords:
    """Records in increasing order, x_1 <= ... <= x_n; x_j is the lower bound for j < 1, the upper for j > n.

    >>> records = SortedRecords.read([5, 1, 99], Bounds(0, 10))
    >>> records.at(np.array([0, 1, 2, 3, 4])).tolist()
    [0, 1, 5, 10, 10]
    >>> records.rank(Fraction(1, 2))
    2
    """

    values: NDArray[np.int64]
    bounds: Bounds

    @classmethod
    def read(cls, exact: object, bounds: Bounds) -> SortedRecords:
        """The records clamped to the bounds and sorted."""
        values = np.clip(compact_integers(exact).ravel(), bounds.low, bounds.high).astype(np.int64)
        return cls(np.sort(values), bounds)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The records of these ranks."""
        padded = np.concatenate([[self.bounds.low], self.values, [self.bounds.high]])
        taken: NDArray[np.int64] = padded[np.clip(ranks, 0, len(self.values) + 1)]
        return taken

    def rank(self, share: Fraction) -> int:
        """The rank of the quantile: the smallest whose record has at least this share of the records at or below it."""
        return math.ceil(share * len(self.values))

    def windows(self, rank: int, width: int) -> int:
        """The largest difference of two records ``width`` ranks apart around this rank (the rank is between them)."""
        lower = np.arange(rank - width, rank + 1)
        return int(np.max(self.at(lower + width) - self.at(lower)))


def read_share(share: object) -> Fraction:
    """The probability of a quantile, exact."""
    exact = probability(share, "probability")
    if exact.denominator > _FINEST:
        raise InvalidRequest("Expected a probability of at most six decimals", got=exact, do="Round it")
    return exact


def records_per_unit(sensitivity: Sensitivity) -> int:
    """How many records one unit can change, add or remove."""
    if Fraction(sensitivity.amount).denominator != 1:
        raise InvalidRequest("Expected a whole number of records a unit", got=sensitivity.amount, do="Pass an integer")
    return int(sensitivity.amount)


def is_replace(sensitivity: Sensitivity) -> bool:
    """Whether neighbours have the same number of records."""
    return sensitivity.adjacency is Adjacency.REPLACE_ONE
