"""Clipped gradients of linear models as exact integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity
from expost.models.descent.features import FeatureGrid, GridRows
from expost.models.descent.head import Head, row_sums
from expost.noise.gaussian_stream import SHORT

__all__ = ["ClippedGradient", "Watcher", "chunks", "grid_scores"]

Floats = NDArray[np.float64]
Reals = NDArray[Any]  # float64, or float32 in models whose sums are taken by digits
Watcher = Callable[[Floats, NDArray[Any]], None]
"""Is told the scores (outputs x rows) and targets of some rows, and keeps what it makes of them sealed."""

_SINGLE = 24  # bits of an integer that float32 holds exactly
_LARGEST_NOISE = 29  # log2 of the largest standard deviation of the noise, in lattice units
_FINEST = 2.0**30  # lattice units of a residual of 1
_MOST_ROWS = 1 << 13  # worked on at a time: so many gradients below 2^29 each add up exactly
_CHUNK_VALUES = 300_000  # worked on at a time: they stay in the cache
_MARGIN = 1 - 2.0**-40  # for the float products that decide how far weights are shortened
_FLOAT_ERRORS = {np.dtype(np.float32): 2.0**-20, np.dtype(np.float64): 2.0**-49}  # far above those of one operation
_VANISHING = 1e-30  # squared residuals so small are zero on any lattice
_WIDE, _MANY = 256, 4  # columns and outputs from which on sums are taken by digits
_BASE = 48  # of the digits
_DIGIT_ROWS = 160  # added at a time: 160 rows of 2^12 times half the base are less than 2^24
_LARGEST_SHORT = 4.9e6  # lattice units of the clip, so that the high digits do not pass 2^24 either
_FEW_ROWS = 400  # of a small batch
_LARGEST_NARROW = (SHORT - 1) // _FEW_ROWS  # lattice units of the clip, so that sums of so many rows are short
_LARGEST_SCALE = 2.0**60  # of scores in float32, which cannot overflow then; differences beyond it are infinite anyway
_LEAST_STEPS = 16  # lattice units, per root of the outputs, that the residuals of the longest row must have


@dataclass(frozen=True)
class ClippedGradient:
    """The sum over a batch of per-row gradients, each clipped to ``clip`` in Euclidean norm, on an integer lattice.

    The gradient of row x with residuals r is their outer product, of norm |x| |r|. Both are rounded to integers: x once
    (``FeatureGrid``), r after scaling it so that |x| |r| <= sensitivity with its rounding included. The weights are
    rounded to a public grid too, so that scores are exact integers; all matrix products are sums of integers below
    2^24 or 2^53, which float32 and float64 add without error in any order (docs/proofs/sgd-gradient.md).

    >>> grid = FeatureGrid(width=2)
    >>> from expost.models.descent.head import Logistic
    >>> rule = ClippedGradient(grid, Logistic(), clip=0.5, noise_multiplier=1.0)
    >>> rule.measure(grid.encode(np.eye(2)), np.array([0, 1]), np.zeros((1, 3)), slice(None))
    <sealed exact answer>
    """

    grid: FeatureGrid
    head: Head
    clip: float
    noise_multiplier: float
    expected_rows: float = math.inf  # of a batch: public

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidRequest("Expected clip > 0", got=self.clip, do="Pass a public bound on a row's gradient")
        steps = float(self.sensitivity.amount) / math.sqrt(self.grid.longest)
        if steps < _LEAST_STEPS * math.sqrt(self.head.outputs):
            raise InvalidRequest(
                "Expected a noise multiplier that leaves room for rounding", got=self.noise_multiplier, do="Lower it"
            )

    @cached_property
    def residual_unit(self) -> float:
        """Lattice units of a residual of 1, as fine as the noise sampler's range allows; a power of two if there is room."""
        room = 2.0**_LARGEST_NOISE / max(self.noise_multiplier, 1.0) / (self.clip * self.grid.unit)
        if self._short:
            largest = _LARGEST_NARROW if self._narrow else _LARGEST_SHORT
            return min(room, largest / (self.clip * self.grid.unit), _FINEST)
        return min(2.0 ** math.floor(math.log2(room)), _FINEST)

    @cached_property
    def _short(self) -> bool:
        """Whether sums are taken in float32, by digits: faster where there is much to add, on a coarser lattice."""
        return self.grid.columns >= _WIDE and self.head.outputs >= _MANY

    @cached_property
    def _narrow(self) -> bool:
        """Whether sums are kept in 32 bits: faster where batches are small, on a lattice on which they nearly always fit."""
        return self._short and self.expected_rows + 8 * math.sqrt(self.expected_rows) <= _FEW_ROWS

    @cached_property
    def unit(self) -> float:
        """Lattice units of a gradient entry of 1."""
        return self.grid.unit * self.residual_unit

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far adding or removing one row moves the sum: the clip, in lattice units."""
        return Sensitivity(math.floor(self.clip * self.unit), Norm.L2, Adjacency.ADD_REMOVE)

    @cached_property
    def _limit(self) -> float:
        return float(self.sensitivity.amount)

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.head.outputs * self.grid.columns

    def measure(
        self,
        rows: GridRows,
        targets: NDArray[Any],
        weights: Floats,
        index: NDArray[np.intp] | slice,
        *,
        watcher: Watcher | None = None,
    ) -> Sealed:
        """The sealed sum over the rows named by ``index``, one integer a weight, flat; a watcher is shown the scores."""
        total = _added_up(self._parts(rows, targets, weights, index, watcher))
        if self._narrow and total.dtype == np.int64:
            # A batch much larger than expected. Cutting entries brings no two sums further apart.
            np.clip(total, 1 - SHORT, SHORT - 1, out=total)
        return Sealed(total.astype(np.int32 if self._narrow else np.int64, copy=False).ravel(), self.sensitivity)

    def _parts(
        self,
        rows: GridRows,
        targets: NDArray[Any],
        weights: Floats,
        index: NDArray[np.intp] | slice,
        watcher: Watcher | None,
    ) -> Iterator[NDArray[Any]]:
        """The sums of some rows at a time."""
        rounded = _RoundedWeights.of(weights, self.grid, coarse=self._short)
        for part in chunks(index, len(rows), self.grid.columns):
            singles, inverses = rows.singles(part)
            scores, wanted = rounded.scores(singles), targets[part]
            if watcher is not None:
                watcher(scores.astype(np.float64), wanted)
            residuals = self._integers(self.head.residuals(scores, wanted), inverses)
            yield _sum_by_digits(residuals, singles) if self._short else _sum(residuals, singles)

    def scores(self, rows: GridRows, weights: Floats, part: NDArray[np.intp] | slice) -> Floats:
        """The scores (outputs x rows) of some rows: exact numbers, for sealed sums only."""
        return grid_scores(rows.integers()[part], weights, self.grid)

    def residuals(self, scores: Floats, targets: NDArray[Any], inverses: Floats) -> Floats:
        """The clipped residuals (outputs x rows) in lattice units, of rows with these inverse lengths: for sealed sums only."""
        return self._integers(self.head.residuals(scores, targets), inverses)

    def _integers(self, residuals: Reals, inverses: Floats) -> Reals:
        """Residuals in lattice units, scaled so that each row's gradient is within the sensitivity."""
        outputs = self.head.outputs
        slack = (outputs + 16) * _FLOAT_ERRORS[residuals.dtype]
        limits = inverses * self._limit
        safe = limits * (1 - slack)
        lengths = np.sqrt(row_sums(residuals * residuals, _VANISHING))
        # Rounding to nearest adds at most sqrt(outputs) / 2 to a row's length; there is room for 30 times as much.
        factors = np.minimum((safe - math.sqrt(outputs) / 2) / lengths, self.residual_unit)
        found: Reals = residuals * factors.astype(residuals.dtype)
        np.rint(found, out=found)
        # Cannot happen by the choice of ``factors``; if it did, the row would count for nothing.
        wrong = row_sums(found * found) > safe * limits
        if np.count_nonzero(wrong):
            found[:, wrong] = 0
        return found


def grid_scores(integers: NDArray[np.int16], weights: Floats, grid: FeatureGrid) -> Floats:
    """The scores (outputs x rows) of rows on the grid: what tests count and what predictions show."""
    return np.asarray(_RoundedWeights.of(weights, grid).scores(integers.astype(np.float32)), np.float64)


def _sum(residuals: Floats, singles: NDArray[np.float32]) -> NDArray[np.int64]:
    """The sum over rows of outer products of integers, exact in float64."""
    return (residuals @ singles.astype(np.float64)).astype(np.int64)


def _sum_by_digits(residuals: Reals, singles: NDArray[np.float32]) -> NDArray[Any]:
    """The same, exact in float32: two digits of the residuals, and so few rows at a time that 2^24 is not passed."""
    outputs, rows = residuals.shape
    digits = np.empty((2 * outputs, rows), np.float32)
    high, low = digits[:outputs], digits[outputs:]
    np.multiply(residuals, np.float32(1 / _BASE), out=high)
    np.rint(high, out=high)
    np.multiply(high, np.float32(-_BASE), out=low)
    low += residuals
    return _added_up(_two_sums(digits, singles, start) for start in range(0, max(rows, 1), 2 * _DIGIT_ROWS))


def _two_sums(digits: NDArray[np.float32], singles: NDArray[np.float32], start: int) -> NDArray[np.int32]:
    """The sum over twice as many rows as float32 can add, from a place on: they fit 32 bits."""
    middle, stop = start + _DIGIT_ROWS, start + 2 * _DIGIT_ROWS
    sums = (digits[:, start:middle] @ singles[start:middle]).astype(np.int32)
    sums += (digits[:, middle:stop] @ singles[middle:stop]).astype(np.int32)
    high, low = sums[: len(sums) // 2], sums[len(sums) // 2 :]
    high *= _BASE
    high += low
    return high


def _added_up(sums: Iterator[NDArray[Any]]) -> NDArray[Any]:
    """The sum of sums; in 64 bits if there are several."""
    total = next(sums)
    for more in sums:
        total = total.astype(np.int64, copy=False)
        total += more
    return total


class _RoundedWeights(NamedTuple):
    """Public weights as one vector of integers, or two, so short that float32 adds their products exactly.

    In two pieces a weight is (2^gap high + low) / factor, which keeps about six decimal digits of the longest vector. A
    coarse one is high / factor: four digits, in half the time.
    """

    pieces: NDArray[np.float32]  # the high ones, then the low ones
    gap: int | None
    scale: float

    @classmethod
    def of(cls, weights: Floats, grid: FeatureGrid, *, coarse: bool = False) -> _RoundedWeights:
        # |x| |w| <= 2^24 for a row x and a piece w, each as long as it may be; rounding adds ``spare`` to a piece.
        room = 2.0**_SINGLE / math.sqrt(grid.longest) * _MARGIN
        spare = math.sqrt(grid.columns) / 2
        longest = math.sqrt(np.maximum.reduce(np.vecdot(weights, weights))) + 2.0**-20
        factor = (room - spare) / longest
        if coarse:
            coarse_pieces = np.rint(weights * factor).astype(np.float32)
            return cls(coarse_pieces, None, min(1 / (factor * grid.unit), _LARGEST_SCALE))
        factor = 2.0 ** math.floor(math.log2(factor))
        gap = math.floor(math.log2((room - spare) / spare))
        pieces = np.empty((2, *weights.shape), np.float32)
        left = weights * factor
        pieces[0] = np.rint(left)
        left -= pieces[0]
        left *= 2.0**gap
        pieces[1] = np.rint(left, out=left)
        return cls(pieces.reshape(-1, grid.columns), gap, 2.0**-gap / factor / grid.unit)

    def scores(self, singles: NDArray[np.float32]) -> Reals:
        """The scores (outputs x rows) of rows on the grid, in float32 if they are coarse."""
        # Faster than the product of the transposes, which is what is wanted.
        products = np.ascontiguousarray((singles @ self.pieces.T).T)
        if self.gap is None:
            products *= np.float32(self.scale)
            return products
        outputs = len(products) // 2
        scores: Floats = products[:outputs] * np.float64(2.0**self.gap)
        scores += products[outputs:]
        scores *= self.scale
        return scores


def chunks(index: NDArray[np.intp] | slice, count: int, columns: int) -> Any:
    """The rows named by an index, a chunk at a time; an empty index is one empty chunk."""
    step = max(1, min(_MOST_ROWS, _CHUNK_VALUES // columns))
    if isinstance(index, slice):
        first, last, _ = index.indices(count)
        return (slice(start, min(start + step, last)) for start in range(first, max(last, first + 1), step))
    if len(index) <= step:
        return (index,)
    return (index[start : start + step] for start in range(0, len(index), step))
