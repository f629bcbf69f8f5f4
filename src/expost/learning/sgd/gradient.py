"""Clipped gradients of linear models as exact integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity
from expost.learning.sgd.features import FeatureGrid, GridRows
from expost.learning.sgd.head import Head

__all__ = ["ClippedGradient", "Watcher", "chunks"]

Floats = NDArray[np.float64]
Watcher = Callable[[Floats, NDArray[Any]], None]
"""Is told the scores (outputs x rows) and targets of some rows, and keeps what it makes of them sealed."""

_SINGLE = 24  # bits of an integer that float32 holds exactly
_LARGEST_NOISE = 29  # log2 of the largest standard deviation of the noise, in lattice units
_MOST_ROWS = 1 << 13  # worked on at a time: so many gradients below 2^29 each add up exactly
_CHUNK_VALUES = 300_000  # worked on at a time: they stay in the cache
_MARGIN = 1 - 2.0**-40  # for the float products that decide how far a row is clipped
_CHECK = 1 - 2.0**-45  # between that margin and the rounding of the float check
_WIDE, _MANY = 256, 4  # columns and outputs from which on sums are taken by digits
_DIGIT, _DIGIT_ROWS = 64, 128  # the base, and the rows added at a time: 128 rows of 2^12 times half the base are 2^24
_LARGEST_SHORT = 2.0**23 - 2.0**17  # lattice units of the clip, so that the high digits do not pass 2^24 either
_LEAST_STEPS = 16  # lattice units, per root of the outputs, that the residuals of the longest row must have


@dataclass(frozen=True)
class ClippedGradient:
    """The sum over a batch of per-row gradients, each clipped to ``clip`` in Euclidean norm, on an integer lattice.

    The gradient of row x with residuals r is their outer product, of norm |x| |r|. Both are rounded to integers: x once
    (``FeatureGrid``), r after scaling it so that |x| |r| <= sensitivity with its rounding included. The weights are
    rounded to a public grid too, so that scores are exact integers; all matrix products are sums of integers below
    2^24 or 2^53, which float32 and float64 add without error in any order (docs/proofs/sgd-gradient.md).

    >>> grid = FeatureGrid(width=2)
    >>> from expost.learning.sgd.head import Logistic
    >>> rule = ClippedGradient(grid, Logistic(), clip=0.5, noise_multiplier=1.0)
    >>> rule.measure(grid.encode(np.eye(2)), np.array([0, 1]), np.zeros((1, 3)), slice(None))
    <sealed exact answer>
    """

    grid: FeatureGrid
    head: Head
    clip: float
    noise_multiplier: float

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
        """Lattice units of a residual of 1, a power of two; as fine as the noise sampler's range allows."""
        room = 2.0**_LARGEST_NOISE / max(self.noise_multiplier, 1.0)
        if self._short:
            room = min(room, _LARGEST_SHORT)
        return 2.0 ** min(math.floor(math.log2(room / (self.clip * self.grid.unit))), 30)

    @property
    def _short(self) -> bool:
        """Whether sums are taken in float32, by digits: faster where there is much to add, on a coarser lattice."""
        return self.grid.columns >= _WIDE and self.head.outputs >= _MANY

    @cached_property
    def unit(self) -> float:
        """Lattice units of a gradient entry of 1."""
        return self.grid.unit * self.residual_unit

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far adding or removing one row moves the sum: the clip, in lattice units."""
        return Sensitivity(math.floor(self.clip * self.unit), Norm.L2, Adjacency.ADD_REMOVE)

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
        total = np.zeros((self.head.outputs, self.grid.columns), np.int64)
        rounded = _RoundedWeights.of(weights, self.grid, coarse=self._short)
        for part in chunks(index, len(rows), self.grid.columns):
            chosen, squares = rows.pick(part)
            singles = chosen.astype(np.float32)
            scores = rounded.scores(singles)
            if watcher is not None:
                watcher(scores, targets[part])
            residuals = self._integers(self.head.residuals(scores, targets[part]), squares)
            total += _sum_by_digits(residuals, singles) if self._short else _sum(residuals, singles)
        return Sealed(total.ravel(), self.sensitivity)

    def scores(self, rows: GridRows, weights: Floats, part: NDArray[np.intp] | slice) -> Floats:
        """The scores (outputs x rows) of some rows: exact numbers, for sealed sums only."""
        return _RoundedWeights.of(weights, self.grid).scores(rows.pick(part)[0].astype(np.float32))

    def residuals(self, scores: Floats, targets: NDArray[Any], squares: Floats) -> Floats:
        """The clipped residuals (outputs x rows) in lattice units, of rows with these squared lengths: for sealed sums only."""
        return self._integers(self.head.residuals(scores, targets), squares)

    def _integers(self, residuals: Floats, squares: Floats) -> Floats:
        """Residuals in lattice units, scaled so that each row's gradient is within the sensitivity."""
        limit = float(self.sensitivity.amount)
        lengths = np.sqrt(np.add.reduce(residuals * residuals, axis=0)) * self.residual_unit
        # Rounding to nearest adds at most sqrt(outputs) / 2 to a row's length.
        allowed = limit / np.sqrt(np.maximum(squares, 1.0)) - math.sqrt(self.head.outputs) / 2
        allowed = np.maximum(allowed, 0.0) * _MARGIN
        factors = self.residual_unit * (allowed / np.maximum(np.maximum(allowed, lengths), 1e-300))
        found: Floats = np.rint(residuals * factors)
        # Cannot happen by the choice of ``allowed``; if it did, the row would count for nothing.
        wrong = np.add.reduce(found * found, axis=0) * squares > limit**2 * _CHECK
        if wrong.any():
            found[:, wrong] = 0
        return found


def _sum(residuals: Floats, singles: NDArray[np.float32]) -> NDArray[np.int64]:
    """The sum over rows of outer products of integers, exact in float64."""
    return (residuals @ singles.astype(np.float64)).astype(np.int64)


def _sum_by_digits(residuals: Floats, singles: NDArray[np.float32]) -> NDArray[np.int64]:
    """The same, exact in float32: two digits of the residuals, and so few rows at a time that 2^24 is not passed."""
    outputs, rows = residuals.shape
    digits = np.empty((2 * outputs, rows), np.float32)
    digits[:outputs] = high = np.rint(residuals * (1 / _DIGIT))
    digits[outputs:] = residuals - high * _DIGIT
    sums = (digits[:, :_DIGIT_ROWS] @ singles[:_DIGIT_ROWS]).astype(np.int32)
    for start in range(_DIGIT_ROWS, rows, _DIGIT_ROWS):
        part = slice(start, start + _DIGIT_ROWS)
        sums += (digits[:, part] @ singles[part]).astype(np.int32)
    return sums[:outputs] * np.int64(_DIGIT) + sums[outputs:]


@dataclass(frozen=True)
class _RoundedWeights:
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
        longest = math.sqrt(np.einsum("ij,ij->i", weights, weights).max()) + 2.0**-20
        factor = (room - spare) / longest
        if coarse:
            return cls(np.rint(weights * factor).astype(np.float32), None, 1 / (factor * grid.unit))
        factor = 2.0 ** math.floor(math.log2(factor))
        gap = math.floor(math.log2((room - spare) / spare))
        pieces = np.empty((2, *weights.shape), np.float32)
        left = weights * factor
        pieces[0] = np.rint(left)
        left -= pieces[0]
        left *= 2.0**gap
        pieces[1] = np.rint(left, out=left)
        return cls(pieces.reshape(-1, grid.columns), gap, 2.0**-gap / factor / grid.unit)

    def scores(self, singles: NDArray[np.float32]) -> Floats:
        """The scores (outputs x rows) of rows on the grid."""
        products = self.pieces @ singles.T
        if self.gap is None:
            coarse: Floats = products * np.float64(self.scale)
            return coarse
        outputs = len(products) // 2
        scores: Floats = products[:outputs] * np.float64(2.0**self.gap)
        scores += products[outputs:]
        scores *= self.scale
        return scores


def chunks(index: NDArray[np.intp] | slice, count: int, columns: int) -> Any:
    """The rows named by an index, a chunk at a time; an empty index is one empty chunk."""
    step = max(1, min(_MOST_ROWS, _CHUNK_VALUES // columns))
    if isinstance(index, slice):
        return (slice(start, min(start + step, count)) for start in range(0, count, step))
    return (index[start : start + step] for start in range(0, max(len(index), 1), step))
