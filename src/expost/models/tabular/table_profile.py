"""What a training learns of a table before its first step: how many rows, where columns lie, how far they spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.tabular_rows import ChunkSum, RowChunk
from expost.noise import BitSource

__all__ = ["ChangedBlocks", "RowBlocks", "TableProfile", "is_far", "measure_profile", "profile_lattices", "sum_blocks"]

T = TypeVar("T")
Floats = NDArray[np.float64]
_BINS = 10  # distances from the middle in powers of two: the smallest spread told from zero is 2^-10 of the half range
_SIGNIFICANT = 3.0  # deviations of the noise above which a bin counts
_FAR, _FAR_NORMAL = 0.25, 1.15  # a quarter of normal values are further than 1.15 standard deviations from their mean
_SMALLEST_SPREAD = 0.03  # of a feature: rarer levels are not stretched further, or their rows would be clipped
_HALF = 0.5  # columns are divided by the root of their spread. Of 0, 1/2 and 1 it was the best on most of seven tables.
_FAR_OFF = 6.0  # deviations by which a declared number of rows may miss the private count
_TARGET_WEIGHT = 2.0  # length of the target's part of a vector, beside 1 for the count


RowBlocks = Callable[[], Iterable[RowChunk]]
"""Reads all rows once, in blocks. One with a method ``sum`` can also sum functions of them where the rows lie."""


def is_far(blocks: Any) -> bool:
    """Return whether rows lie on other machines, so that they should not be read here."""
    return bool(getattr(blocks, "far", False))


def sum_blocks(blocks: Any, function: ChunkSum[T]) -> T:
    """Return the sum that a pure function makes of blocks: where the rows lie, if ``blocks`` can do that."""
    return blocks.sum(function) if hasattr(blocks, "sum") else function(blocks())


@dataclass(frozen=True, eq=False)
class ChangedBlocks:
    """Blocks of which each is changed by a pure function that can be pickled. SECRET."""

    blocks: RowBlocks
    change: Callable[[Any], Any]

    def __call__(self) -> Iterable[Any]:
        return map(self.change, self.blocks())

    @property
    def far(self) -> bool:
        """Return whether rows lie on other machines."""
        return is_far(self.blocks)

    def sum(self, function: ChunkSum[T]) -> T:
        """Return the sum that a function makes of the changed blocks."""
        return sum_blocks(self.blocks, _OfChangedBlocks(self.change, function))


@dataclass(frozen=True)
class _OfChangedBlocks(Generic[T]):
    change: Callable[[Any], Any]
    function: ChunkSum[T]

    def __call__(self, chunks: Iterable[Any]) -> T:
        return self.function(map(self.change, chunks))


@dataclass(frozen=True, eq=False)
class TableProfile:
    """Released facts about a table: everything in it is private by noise, or public.

    ``rows`` is the noisy number of units (at least 1) and ``rows_error`` its deviation, ``middles`` and ``factors`` map
    features to columns of similar spread around zero, ``length`` is the usual length of such a row, ``target_middle`` and ``target_spread`` are those of a
    numeric target in its range [-1, 1], ``shares`` the noisy shares of the classes. ``level`` is the squared Gaussian
    parameter that was paid for it. ``target_error`` is the deviation of the sum of targets, divided by ``rows``.
    """

    rows: float
    middles: Floats
    factors: Floats
    length: float
    target_middle: float = 0.0
    target_spread: float = 1.0
    target_error: float = 0.0
    shares: tuple[float, ...] = ()
    level: float = 0.0
    rows_error: float = 0.0

    def most_rows(self, deviations: float) -> float:
        """Return a number of units that is exceeded only if the noise was this many deviations too low."""
        return self.rows + deviations * self.rows_error

    def scale(self, features: NDArray[Any]) -> Floats:
        """Return features around zero, of similar spread; each value by itself."""
        scaled: Floats = features - self.middles  # float64, also of float32 features
        scaled *= self.factors
        return scaled


def measure_profile(
    blocks: RowBlocks,
    *,
    width: int,
    squared_length: float,
    classes: int | None,
    noises: tuple[Fraction, Fraction],
    rows_per_unit: int,
    bits: BitSource,
    public_rows: int | None = None,
    indicators: NDArray[np.bool_] | None = None,
) -> TableProfile:
    """Release a profile: first counts and means, then how far columns spread around these means.

    Two Gaussian events, of the two noise multipliers.

    Parameters
    ----------
    blocks : callable
        Reads all rows.
    width : int
        The number of features.
    squared_length : float
        The largest squared length of a row's features.
    classes : int, optional
        The number of classes; None for a numeric target in [-1, 1].
    noises : pair of Fraction
        The noise multipliers of the two releases.
    rows_per_unit : int
        The most rows of one unit.
    bits : BitSource
        The source of random bits.
    public_rows : int, optional
        The number of units, if it is public. Default: the released one, which is also used where both are far apart.
    indicators : array of bool, optional
        Which features are 0 or 1 for every row, so that their spread follows from their mean. Default: none.
    """
    targets = 1 if classes is None else classes
    first, second = profile_lattices(width, squared_length, classes, rows_per_unit, indicators)
    total = sum_blocks(blocks, partial(_sum_means, first, classes))
    released = first.release(total, noises[0], bits)
    found, count_error = max(float(released[0]), 1.0), first.deviation(noises[0])
    if public_rows is not None and abs(found - public_rows) > _FAR_OFF * count_error:
        public_rows = None  # declared wrongly: steps and scores are divided by this number
    count = found if public_rows is None else float(public_rows)
    means = np.clip(released[1 + targets :] / count, -1.0, 1.0)
    told = released[1 : 1 + targets] / _TARGET_WEIGHT / count
    error = first.deviation(noises[0]) / count

    shares: tuple[float, ...] = ()
    middle = 0.0
    if classes is None:
        middle = float(np.clip(told[0], -1.0, 1.0))
    else:
        shares = tuple(np.clip(told, 0.0, 1.0).tolist())

    counted = np.ones(width, bool) if indicators is None else ~indicators
    columns = second.size // _BINS
    centers = np.append(means[counted], middle) if classes is None else means[counted]
    total = sum_blocks(blocks, partial(_sum_distances, second, counted, centers, classes is None))
    bins = second.release(total, noises[1], bits).reshape(columns, _BINS) / count
    distances = _read_spreads(bins, second.deviation(noises[1]) / count)

    spread = float(distances[-1]) if classes is None else 1.0
    known = np.clip(means, 0.0, 1.0)
    # A level whose share is not told from zero may have a share as large as the noise: it is not stretched further. For the
    # usual length of a row such levels hardly count.
    spreads = np.sqrt(np.maximum(known * (1 - known), error))
    usual = np.sqrt(np.clip(means - error, 0.0, 1.0) * (1 - known))
    spreads[counted] = usual[counted] = distances[: counted.sum()]
    factors = np.maximum(spreads, _SMALLEST_SPREAD) ** -_HALF
    length = math.sqrt(float(np.sum((usual * factors) ** 2)) + 2.0**-20)
    level = float(sum(1 / noise**2 for noise in noises))
    return TableProfile(
        rows=count,
        middles=means,
        factors=factors,
        length=length,
        target_middle=middle,
        target_spread=max(spread, 2.0**-_BINS),
        target_error=error / _TARGET_WEIGHT,
        shares=shares,
        level=level,
        rows_error=0.0 if public_rows is not None else count_error,
    )


def _sum_means(lattice: LatticeSum, classes: int | None, chunks: Iterable[RowChunk]) -> NDArray[np.int64]:
    total = lattice.start()
    for rows in chunks:
        vectors = np.column_stack([np.ones(len(rows.targets)), _target_part(rows, classes), rows.features])
        lattice.add(total, vectors, rows.weights)
    return total


def _sum_distances(
    lattice: LatticeSum, counted: NDArray[np.bool_], centers: Floats, numeric: bool, chunks: Iterable[RowChunk]
) -> NDArray[np.int64]:
    total = lattice.start()
    for rows in chunks:
        values = np.asarray(rows.features[:, counted], np.float64)
        if numeric:
            values = np.column_stack([values, rows.targets])
        if values.shape[1]:
            lattice.add(total, _bin_distances(values - centers), rows.weights)
    return total


def profile_lattices(
    width: int, squared_length: float, classes: int | None, rows_per_unit: int, indicators: NDArray[np.bool_] | None
) -> tuple[LatticeSum, LatticeSum]:
    """Return the two sums of a profile."""
    targets = 1 if classes is None else classes
    first = LatticeSum(1 + targets + width, math.sqrt(1 + _TARGET_WEIGHT**2 + squared_length), rows_per_unit)
    # One bin per column and row: a row's vector has length sqrt(columns), the target's column included.
    columns = max(1, width - (0 if indicators is None else int(indicators.sum())) + (classes is None))
    return first, LatticeSum(columns * _BINS, math.sqrt(columns), rows_per_unit)


def _target_part(rows: RowChunk, classes: int | None) -> Floats:
    """Return the target's part of a row's first vector: the number, or which class it is; of length at most the weight."""
    if classes is None:
        return np.asarray(rows.targets, np.float64)[:, None] * _TARGET_WEIGHT
    return np.asarray((np.asarray(rows.targets)[:, None] == np.arange(classes)) * _TARGET_WEIGHT, np.float64)


def _bin_distances(distances: Floats) -> Floats:
    """Return, for each row and column, a one in the bin of its distance from the middle; none for tiny distances.

    Bin b holds distances from 2^-b to 2^(1-b); the first one has all larger ones too.
    """
    # frexp gives the exponent exactly, so that no rounding depends on where a row stands.
    _, exponents = np.frexp(np.abs(distances))
    numbers = np.where(distances == 0, _BINS, np.clip(1 - exponents, 0, _BINS))  # the exponent of 0 is 0
    out = np.zeros((*distances.shape, _BINS + 1))
    np.put_along_axis(out, numbers[:, :, None], 1.0, axis=2)
    return out[:, :, :_BINS].reshape(len(distances), distances.shape[1] * _BINS)  # -1 would need a row


def _read_spreads(bins: Floats, deviation: float) -> Floats:
    """Return how far the values of each column spread, from noisy shares of rows per bin.

    The distance that a quarter of the rows exceeds is found with little noise. If few rows are far away, in bins that
    stand out of the noise, the root mean square is larger and counts.
    """
    numbers = np.arange(_BINS)
    tails = np.cumsum(bins, axis=1)  # the share of rows at a distance of 2^-b or more
    reached = tails >= _FAR
    last = np.where(reached.any(axis=1), reached.argmax(axis=1), _BINS - 1)
    here = np.take_along_axis(tails, last[:, None], axis=1)[:, 0]
    inside = np.take_along_axis(bins, last[:, None], axis=1)[:, 0]
    part = np.clip((here - _FAR) / np.maximum(inside, 1e-9), 0.0, 1.0)
    quantiles = 2.0 ** (part - last)
    # The mean of the squares over a bin that is filled evenly is 7/12 of the square of its upper end.
    sure = np.where(bins > _SIGNIFICANT * deviation, np.clip(bins, 0.0, 1.0), 0.0)
    roots = np.sqrt(sure @ (7 / 12 * 4.0 ** (1 - numbers)))
    return np.asarray(np.maximum(np.maximum(quantiles / _FAR_NORMAL, roots), 2.0**-_BINS), np.float64)
