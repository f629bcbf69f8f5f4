"""Exact sums of groups, sealed until they are under noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity
from expost.data import Dataset
from expost.noise import BitSource
from expost.stats.hypothesis.column import GRID, bounded, codes, measured, private_numbers
from expost.stats.hypothesis.noisy_groups import NoisyGroups
from expost.stats.hypothesis.priced_test import under_noise
from expost.stats.hypothesis.shares import Shares
from expost.stats.hypothesis.size import TableSize

__all__ = [
    "GroupTotals",
    "column_bounds",
    "even_sizes",
    "group_bounds",
    "group_terms",
    "samples_of",
]

Floats = NDArray[np.float64]

_DIGITS = 14  # of a square that are rounded up: spreads are taken for wider than they are, never for narrower
_SQUARE = (GRID // 2) ** 2 >> _DIGITS  # the largest square


class GroupTotals:
    """Exact sums, sizes and squares of groups, sealed.

    Values are clipped to public bounds, rounded to a lattice and centred, so that a value lies in [-1/2, 1/2] of the
    width of the bounds. Replacing one row changes one value, or moves it to another group: the sums change by at most
    the whole width (L1), the sizes by 2, the total of all squares by a quarter of the squared width, the totals by group
    by a half, or by a quarter where rows cannot change their group. Adding or removing one changes the sums by half the
    width, the sizes by 1, the squares by a quarter.
    """

    def __init__(
        self,
        sums: NDArray[Any],
        sizes: NDArray[Any],
        squares: NDArray[Any],
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
        *,
        fixed: bool = False,
    ) -> None:
        replaced = adjacency.public_size
        self.sums = _sealed(sums, GRID if replaced else GRID // 2, adjacency)
        self.sizes = _sealed(sizes, 2 if replaced else 1, adjacency)
        self.squares = _sealed(squares.sum(keepdims=True), _SQUARE, adjacency)
        self.group_squares = _sealed(squares, 2 * _SQUARE if replaced and not fixed else _SQUARE, adjacency)
        self.groups = len(sums)

    @classmethod
    def of_arrays(
        cls, groups: Sequence[Any], bounds: tuple[float, float], adjacency: Adjacency = Adjacency.REPLACE_ONE
    ) -> GroupTotals:
        """The totals of samples given as arrays; where their sizes are public, no row can change its group."""
        values = [bounded(group, bounds) for group in groups]
        sums, sizes = np.array([v.sum() for v in values]), np.array([len(v) for v in values])
        squares = np.array([_squares(v).sum() for v in values])
        return cls(sums, sizes, squares, adjacency, fixed=adjacency.public_size)

    @classmethod
    def of_dataset(
        cls, dataset: Dataset, value: str, by: str, categories: Sequence[Any], bounds: tuple[float, float]
    ) -> GroupTotals:
        """The totals of a column by the public categories of another; rows of other categories are left out."""
        sums, sizes, squares = np.zeros((3, len(categories)), np.int64)
        for batch in dataset.batches(list(dict.fromkeys([value, by]))):
            group, values = codes(batch, by, categories), bounded(measured(batch, value), bounds)
            inside = group >= 0
            group, values = group[inside], values[inside]
            np.add.at(sums, group, values)
            np.add.at(squares, group, _squares(values))
            sizes += np.bincount(group, minlength=len(categories))
        return cls(sums, sizes, squares, dataset.adjacency)

    def release(self, shares: Shares, *, public_sizes: Iterable[int] | None, bits: BitSource | None) -> NoisyGroups:
        """The totals under discrete Laplace noise."""
        sums = _noisy(self.sums, shares.sums, bits) / GRID
        if shares.sizes is None:
            sizes = np.array(list(public_sizes or ()), np.float64)
        else:
            sizes = _noisy(self.sizes, shares.sizes, bits)
        return NoisyGroups.of(sums, sizes, self._noisy_squares(shares, bits), shares)

    def _noisy_squares(self, shares: Shares, bits: BitSource | None) -> Floats | None:
        if shares.squares is None:
            return None
        if shares.equal_spread:
            return np.asarray(_noisy(self.squares, shares.squares, bits)[0] / (4 * _SQUARE))
        return _noisy(self.group_squares, shares.squares, bits) / (4 * _SQUARE)


def _squares(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Squares of lattice values, their last digits rounded up."""
    squares: NDArray[np.int64] = -(-(values * values) >> _DIGITS)
    return squares


def _sealed(exact: NDArray[Any], amount: int, adjacency: Adjacency) -> Sealed:
    return Sealed(exact, Sensitivity(amount, Norm.L1, adjacency))


def _noisy(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Floats:
    return np.asarray(under_noise(sealed, epsilon, bits), np.float64)


def even_sizes(size: TableSize, groups: int) -> list[int]:
    """The sizes that a price supposes: which rows are in which group is private, so they share the table evenly."""
    return [max(size.priced_rows // groups, 1)] * groups


def group_terms(bounds: tuple[float, float], public_sizes: Sequence[int] | None, shares: Shares) -> dict[str, object]:
    """What a receipt says about the groups."""
    return {
        "bounds": list(bounds),
        "sizes": list(public_sizes) if public_sizes else "private",
        "spread": "taken for equal" if shares.equal_spread else "of each group",
    }


def group_bounds(bounds: object) -> tuple[float, float]:
    """Public bounds as a caller typed them."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidRequest("Expected bounds=(low, high)", do="Pass the public bounds of the values")
    low, high = (float(end) if isinstance(end, int | float | np.number) else math.nan for end in bounds)
    bounded([], (low, high))
    return low, high


def samples_of(groups: Sequence[Any], *, fewest: int = 2) -> list[NDArray[np.float64]]:
    """Samples as one-dimensional float arrays of at least ``fewest`` values each."""
    samples = [private_numbers(group) for group in groups]
    if any(sample.ndim != 1 or sample.size < fewest for sample in samples):
        least = f" of at least {fewest} each" if fewest else ""
        raise InvalidRequest(f"Expected samples of numbers{least}", do="Pass one-dimensional arrays")
    return samples


def column_bounds(dataset: Dataset, column: str) -> tuple[float, float]:
    """The public bounds of a numeric column."""
    if not dataset.schema.kind(column).is_number:
        raise InvalidRequest("Expected a numeric column", got=column, do="Name a column of numbers")
    if column not in dataset.bounds:
        raise InvalidRequest("Expected public bounds of the column", got=column, do="Declare them in Dataset(bounds=)")
    return group_bounds(tuple(dataset.bounds[column]))
