"""Sums of groups under noise, and what they say about means and spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity
from expost.data import Dataset
from expost.noise import BitSource
from expost.stats.hypothesis.column import GRID, bounded, codes, floats_of, measured
from expost.stats.hypothesis.priced_test import under_noise
from expost.stats.hypothesis.size import TableSize

__all__ = [
    "NUISANCE",
    "GroupTotals",
    "NoisyGroups",
    "Shares",
    "column_bounds",
    "even_sizes",
    "group_bounds",
    "samples_of",
]

Floats = NDArray[np.float64]

NUISANCE = 0.005
"""The probability spent on bounding the unknown spread; it is added to every p-value (BB94, Lemma 1)."""

_SPREAD_LOG = math.log(1 / (2 * NUISANCE))  # P(Laplace noise of scale b > b log) = NUISANCE
_SHARES = [Fraction(percent, 100) for percent in range(5, 55, 5)]

_COARSE = 1 << 10  # squares are taken of values rounded to this coarser lattice, so that their sums fit 64 bits
_SQUARE = (GRID // _COARSE // 2) ** 2  # the largest square


@dataclass(frozen=True)
class Shares:
    """How epsilon is split between sums, squares and group sizes.

    Squares say how widely the values spread. When their noise alone would exceed the widest spread the bounds allow,
    they say nothing, and their share goes to the sums.

    >>> Shares.of(Fraction(1), rows=1000, public_sizes=True).sums
    Fraction(3, 4)
    >>> Shares.of(Fraction(1, 100), rows=100, public_sizes=True).sums
    Fraction(1, 100)
    """

    sums: Fraction
    squares: Fraction | None
    sizes: Fraction | None
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    @classmethod
    def of(
        cls,
        epsilon: Fraction,
        *,
        rows: int | None,
        public_sizes: bool,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
    ) -> Shares:
        """The split for a table of this size; of an unknown one squares are always bought.

        The share f of the squares minimises what noise adds to the variance of a difference of two means of half the
        rows each, in units of 1/rows^2: their own bound 4 (1/4) log / (f epsilon), and (4 width / ((1 - f) epsilon))^2
        from the sums, ``width`` being what one row moves them by.
        """
        level, width = float(epsilon), 4 * _sum_width(adjacency)
        share = min(_SHARES, key=lambda f: _SPREAD_LOG / (float(f) * level) + (width / ((1 - float(f)) * level)) ** 2)
        silent = rows is not None and rows * float(share) * level <= _SPREAD_LOG
        squares = None if silent else share * epsilon
        rest = epsilon - (squares or 0)
        sizes = None if public_sizes else rest / 4
        return cls(rest - (sizes or 0), squares, sizes, adjacency)

    @property
    def sum_scale(self) -> float:
        """The noise of a sum, in units of the width of the bounds."""
        return _sum_width(self.adjacency) / float(self.sums)

    @property
    def size_scale(self) -> float:
        """The noise of a group's size; 0 where sizes are public."""
        moved = 2 if self.adjacency.public_size else 1
        return 0.0 if self.sizes is None else moved / float(self.sizes)

    @property
    def square_scale(self) -> float:
        """The noise of the total of squares, in units of the squared width; 0 where it is not bought."""
        return 0.0 if self.squares is None else 0.25 / float(self.squares)

    def breakdown(self) -> dict[str, Fraction]:
        """The parts by name, as they stand on a receipt."""
        parts = {"sums": self.sums, "squares": self.squares, "group sizes": self.sizes}
        return {name: part for name, part in parts.items() if part is not None}


class GroupTotals:
    """Exact sums, sizes and squares of groups, sealed.

    Values are clipped to public bounds, rounded to a lattice and centred, so that a value lies in [-1/2, 1/2] of the
    width of the bounds. Replacing one row changes one value, or moves it to another group: the sums change by at most
    the whole width (L1), the sizes by 2, the total of squares by a quarter of the squared width. Adding or removing one
    changes the sums by half the width, the sizes by 1, the squares by a quarter.
    """

    def __init__(
        self, sums: NDArray[Any], sizes: NDArray[Any], squares: int, adjacency: Adjacency = Adjacency.REPLACE_ONE
    ) -> None:
        replaced = adjacency.public_size
        self.sums = _sealed(sums, GRID if replaced else GRID // 2, adjacency)
        self.sizes = _sealed(sizes, 2 if replaced else 1, adjacency)
        self.squares = _sealed(np.array([squares]), _SQUARE, adjacency)
        self.groups = len(sums)

    @classmethod
    def of_arrays(
        cls, groups: Sequence[Any], bounds: tuple[float, float], adjacency: Adjacency = Adjacency.REPLACE_ONE
    ) -> GroupTotals:
        """The totals of samples given as arrays."""
        values = [bounded(group, bounds) for group in groups]
        sums, sizes = np.array([v.sum() for v in values]), np.array([len(v) for v in values])
        return cls(sums, sizes, sum(_squares(v) for v in values), adjacency)

    @classmethod
    def of_dataset(
        cls, dataset: Dataset, value: str, by: str, categories: Sequence[Any], bounds: tuple[float, float]
    ) -> GroupTotals:
        """The totals of a column by the public categories of another; rows of other categories are left out."""
        count = len(categories)
        sums, sizes, squares = np.zeros(count, np.int64), np.zeros(count, np.int64), 0
        for batch in dataset.batches(list(dict.fromkeys([value, by]))):
            group, values = codes(batch, by, categories), bounded(measured(batch, value), bounds)
            inside = group >= 0
            group, values = group[inside], values[inside]
            np.add.at(sums, group, values)
            sizes += np.bincount(group, minlength=count)
            squares += _squares(values)
        return cls(sums, sizes, squares, dataset.adjacency)

    def release(self, shares: Shares, *, public_sizes: Iterable[int] | None, bits: BitSource | None) -> NoisyGroups:
        """The totals under discrete Laplace noise."""
        sums = _noisy(self.sums, shares.sums, bits) / GRID
        if shares.sizes is None:
            sizes = np.array(list(public_sizes or ()), np.float64)
        else:
            sizes = _noisy(self.sizes, shares.sizes, bits)
        squares = None if shares.squares is None else _noisy(self.squares, shares.squares, bits)[0] / (4 * _SQUARE)
        return NoisyGroups.of(sums, sizes, squares, shares)


@dataclass(frozen=True)
class NoisyGroups:
    """Released totals in units of the width of the bounds, with the scales of their noise.

    The last axis of ``sums`` and ``sizes`` runs over groups; any axes before it over repetitions.
    """

    sums: Floats
    sizes: Floats
    squares: Floats | None
    sum_scale: float
    size_scale: float
    square_scale: float

    @classmethod
    def of(cls, sums: Any, sizes: Any, squares: Any, shares: Shares) -> NoisyGroups:
        """Released numbers and the split they were released under."""
        return cls(
            np.asarray(sums, np.float64),
            np.asarray(sizes, np.float64),
            None if squares is None else np.asarray(squares, np.float64),
            shares.sum_scale,
            shares.size_scale,
            shares.square_scale,
        )

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Whether every group is clearly larger than the noise of its size."""
        return np.asarray((self.sizes > 3 * self.size_scale).all(-1) & (self.sizes >= 2).all(-1))

    @property
    def safe_sizes(self) -> Floats:
        """Sizes to divide by, at least 2."""
        return np.maximum(self.sizes, 2.0)

    @property
    def means(self) -> Floats:
        """The noisy group means."""
        return self.sums / self.safe_sizes

    @property
    def deviation(self) -> Floats:
        """An upper bound on the common standard deviation within groups, Student's correction included.

        At most 1/2, as for all values between the bounds (Popoviciu).
        """
        total = self.safe_sizes.sum(-1)
        freedom = np.maximum(total - self.sums.shape[-1], 1.0)
        if self.squares is None:
            variance = np.full(total.shape, 0.25)
        else:
            upper = np.maximum(self.squares, 0.0) + self.square_scale * _SPREAD_LOG
            slack = self._scale_of_noise / self.safe_sizes
            between = (self.safe_sizes * np.maximum(np.abs(self.means) - slack, 0.0) ** 2).sum(-1)
            variance = np.clip((upper - between) / freedom, 1e-12, 0.25)
        return np.sqrt(variance) * _student_factor(freedom)

    @property
    def mean_scales(self) -> list[Floats]:
        """The scales of the Laplace parts of each group mean: from the sum, and from the size.

        Noise e in the size of a group of mean m moves the sum about that mean by m e.
        """
        parts = [self.sum_scale / self.safe_sizes]
        if self.size_scale > 0:
            total = self.safe_sizes.sum(-1)
            centre = (np.abs(self.sums.sum(-1)) + 2 * self._scale_of_noise) / total
            parts.append(np.minimum(centre, 0.5)[..., None] * self.size_scale / self.safe_sizes)
        return parts

    @property
    def mean_deviations(self) -> Floats:
        """The standard deviation of each group mean from sampling, with the spread at its upper bound."""
        return self.deviation[..., None] * np.sqrt(self.safe_sizes + self.size_scale) / self.safe_sizes

    @property
    def _scale_of_noise(self) -> float:
        return self.sum_scale + self.size_scale / 2


def _student_factor(freedom: Floats) -> Floats:
    """How much wider Student's t is than the normal, at a tail of 1e-4; larger tails are covered too."""
    factor: Floats = special.stdtrit(freedom, 1 - 1e-4) / special.ndtri(1 - 1e-4)
    return factor


def _squares(values: NDArray[np.int64]) -> int:
    coarse = np.rint(values / _COARSE).astype(np.int64)
    return int((coarse * coarse).sum())


def _sum_width(adjacency: Adjacency) -> float:
    """How far one row moves the sums, in units of the width of the bounds."""
    return 1.0 if adjacency.public_size else 0.5


def _sealed(exact: NDArray[Any], amount: int, adjacency: Adjacency) -> Sealed:
    return Sealed(exact, Sensitivity(amount, Norm.L1, adjacency))


def _noisy(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Floats:
    return np.asarray(under_noise(sealed, epsilon, bits), np.float64)


def even_sizes(size: TableSize, groups: int) -> list[int]:
    """The sizes that a price supposes: which rows are in which group is private, so they share the table evenly."""
    return [max(size.priced_rows // groups, 1)] * groups


def group_bounds(bounds: object) -> tuple[float, float]:
    """Public bounds as a caller typed them."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidRequest("Expected bounds=(low, high)", do="Pass the public bounds of the values")
    low, high = (float(end) if isinstance(end, int | float | np.number) else math.nan for end in bounds)
    bounded([], (low, high))
    return low, high


def samples_of(groups: Sequence[Any]) -> list[NDArray[np.float64]]:
    """Samples as one-dimensional float arrays of at least two values each."""
    samples = [floats_of(group) for group in groups]
    if any(sample.ndim != 1 or sample.size < 2 for sample in samples):
        raise InvalidRequest("Expected samples of at least two numbers each", do="Pass one-dimensional arrays")
    return samples


def column_bounds(dataset: Dataset, column: str) -> tuple[float, float]:
    """The public bounds of a numeric column."""
    if not dataset.schema.kind(column).is_number:
        raise InvalidRequest("Expected a numeric column", got=column, do="Name a column of numbers")
    if column not in dataset.bounds:
        raise InvalidRequest("Expected public bounds of the column", got=column, do="Declare them in Dataset(bounds=)")
    return group_bounds(tuple(dataset.bounds[column]))
