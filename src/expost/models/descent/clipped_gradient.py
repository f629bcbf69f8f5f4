"""Sums of clipped gradients and curvatures of linear models as exact integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity
from expost.models.descent.feature_grid import FeatureGrid, GridRows, Index
from expost.models.descent.score_head import CurvedHead, Head, row_sums
from expost.noise.gaussian_stream import SHORT

__all__ = ["ClippedGradient", "CurvedGradient", "SumGradients", "Watcher", "check_curved", "grid_scores"]

Floats = NDArray[np.float64]
Reals = NDArray[Any]  # float64, or float32 in models whose sums are taken by digits
Watcher = Callable[[Floats, NDArray[Any]], None]
"""Receives the scores (outputs x rows) and targets of some rows; keeps what it computes sealed."""

_SINGLE = 24  # bits of an integer that float32 holds exactly
_SPARE_BITS = 8  # the most by which the lattice is finer where rows share a weight
_LARGEST_NOISE = 29  # log2 of the largest standard deviation of the noise, in lattice units
_FINEST = 2.0**30  # lattice units of a residual of 1
_MOST_ROWS = 1 << 13  # rows per chunk: this many gradients below 2^29 each add up exactly
_CHUNK_VALUES = 300_000  # values per chunk: they stay in the cache
_MARGIN = 1 - 2.0**-40  # for the float products that decide how far weights are shortened
_FLOAT_ERRORS = {np.dtype(np.float32): 2.0**-20, np.dtype(np.float64): 2.0**-49}  # far above those of one operation
_VANISHING = 1e-30  # squared residuals this small are zero on any lattice
_WIDE, _MANY = 256, 4  # columns and outputs from which on sums are taken by digits
_BASE = 48  # of the digits
_DIGIT_ROWS = 160  # rows added at a time: 160 rows of 2^12 times half the base are less than 2^24
_LARGEST_SHORT = 4.9e6  # lattice units of the clip, so that the high digits do not pass 2^24 either
_FEW_ROWS = 400  # of a small batch
_LARGEST_NARROW = (SHORT - 1) // _FEW_ROWS  # lattice units of the clip, so that sums of _FEW_ROWS rows fit 32 bits
_LARGEST_SCALE = 2.0**60  # of scores in float32, which then cannot overflow; larger differences are infinite anyway
_LEAST_STEPS = 16  # lattice units, per root of the outputs, that the residuals of the longest row must have
_SLOPE = 0.5  # the gradient gets four fifths of the privacy
_WIDEST_CURVED = 512  # columns: a Newton step releases half their square
_LEAST_LENGTH = 16  # lattice units, per root of the columns, that the longest scaled row must have


@dataclass(frozen=True)
class ClippedGradient:
    """The sum over a batch of per-row gradients, each clipped to ``clip`` in Euclidean norm, on an integer lattice.

    The gradient of row x with residuals r is their outer product, of norm |x| |r|. Both are rounded to integers: x once
    (``FeatureGrid``), r after scaling it so that |x| |r| <= sensitivity with its rounding included. The weights are
    rounded to a public grid too, so that scores are exact integers; all matrix products are sums of integers below
    2^24 or 2^53, which float32 and float64 add without error in any order (docs/proofs/sgd-gradient.md).
    """

    grid: FeatureGrid
    head: Head
    clip: float
    noise_multiplier: float
    expected_rows: float = math.inf  # of a batch: public
    rows_per_unit: int = 1  # the most rows of one unit, whose weights add up to at most 1
    spare_bits: int = 0  # by which noise may be wider than 32 bits, at most 8: for large noise multipliers

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidRequest("Expected clip > 0", got=self.clip, do="Pass a public bound on a row's gradient")
        steps = float(self.sensitivity.amount) / math.sqrt(self.grid.longest)
        # Rounding the rows of one unit must leave most of the clip.
        if steps < _LEAST_STEPS * math.sqrt(self.head.outputs) * max(1.0, self.rows_per_unit / 4):
            raise _noise_too_large(self.noise_multiplier)

    @cached_property
    def residual_unit(self) -> float:
        """Return the lattice units of a residual of 1, as fine as the noise sampler's range allows."""
        # Rows that share a weight are rounded one by one: a finer lattice keeps their rounding small.
        shared = math.ceil(math.log2(self.rows_per_unit)) + 2 if self.rows_per_unit > 1 else 0
        spare = min(max(shared, self.spare_bits), _SPARE_BITS)
        finest = 2.0 ** (_LARGEST_NOISE + spare) / max(self.noise_multiplier, 1.0) / (self.clip * self.grid.unit)
        if self._uses_digits:
            largest = _LARGEST_NARROW if self._uses_int32 else _LARGEST_SHORT
            return min(finest, largest / (self.clip * self.grid.unit), _FINEST)
        return min(2.0 ** math.floor(math.log2(finest)), _FINEST * 2.0**spare)

    @cached_property
    def _uses_digits(self) -> bool:
        """Return whether sums are taken in float32, by digits: faster for wide models, on a coarser lattice."""
        return (
            self.grid.columns >= _WIDE
            and self.head.outputs >= _MANY
            and self.rows_per_unit == 1
            and not self.spare_bits
        )

    @cached_property
    def _uses_int32(self) -> bool:
        """Return whether sums are kept in 32 bits: faster for small batches, on a lattice where they nearly always fit."""
        return self._uses_digits and self.expected_rows + 8 * math.sqrt(self.expected_rows) <= _FEW_ROWS

    @cached_property
    def unit(self) -> float:
        """Return the lattice units of a gradient entry of 1."""
        return self.grid.unit * self.residual_unit

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far adding or removing one row moves the sum: the clip, in lattice units."""
        return Sensitivity(math.floor(self.clip * self.unit), Norm.L2, Adjacency.ADD_REMOVE)

    @property
    def size(self) -> int:
        return self.head.outputs * self.grid.columns

    def measure(
        self,
        rows: GridRows,
        targets: NDArray[Any],
        weights: Floats,
        index: Index,
        *,
        watcher: Watcher | None = None,
        row_weights: Floats | None = None,
    ) -> Sealed:
        """Return the sealed sum over the rows in ``index``, one integer per weight, flat.

        ``row_weights`` are the shares with which rows count; those of one unit add up to at most 1.
        """
        blocks = [(rows, targets, row_weights)]
        return self.seal_sum(self.sum_blocks(blocks, weights, index=index, watcher=watcher))

    def sum_blocks(
        self,
        blocks: Iterable[tuple[GridRows, NDArray[Any], Floats | None]],
        weights: Floats,
        *,
        index: Index = slice(None),
        watcher: Watcher | None = None,
    ) -> NDArray[Any]:
        """Return the exact sum over blocks of rows, of which ``index`` chooses some. SECRET. Sums of parts add up."""
        rounded = _RoundedWeights.of(weights, self.grid, coarse=self._uses_digits)

        def sums() -> Iterator[NDArray[Any]]:
            for rows, targets, row_weights in blocks:
                for part in _cut_index(index, len(rows), self.grid.columns):
                    singles, inverses = rows.take_singles(part)
                    scores, wanted = rounded.compute_scores(singles), targets[part]
                    if watcher is not None:
                        watcher(scores.astype(np.float64), wanted)
                    shares = None if row_weights is None else row_weights[part]
                    residuals = self.clip_residuals(self.head.compute_residuals(scores, wanted), inverses, shares)
                    yield _sum_by_digits(residuals, singles) if self._uses_digits else _sum_products(residuals, singles)

        return _add_up(sums(), self.head.outputs, self.grid.columns)

    def seal_sum(self, total: NDArray[Any]) -> Sealed:
        """Seal a sum that ``sum_blocks`` made."""
        if self._uses_int32 and total.dtype == np.int64:
            # A batch much larger than expected. Clipping entries brings no two sums further apart.
            total = np.clip(total, 1 - SHORT, SHORT - 1)
        return Sealed(total.astype(np.int32 if self._uses_int32 else np.int64, copy=False).ravel(), self.sensitivity)

    def clip_residuals(self, residuals: Reals, inverses: Floats, weights: Floats | None = None) -> Reals:
        """Scale residuals to lattice units so that each row's gradient is within the sensitivity, and round them.

        With ``weights`` a row counts that share of its clipped gradient, and the gradients of one unit's rows, whose
        weights add up to at most 1, are together within the sensitivity.

        The results are exact numbers of private rows: for sealed sums only.
        """
        outputs = self.head.outputs
        slack = (outputs + 16) * _FLOAT_ERRORS[residuals.dtype]
        limits = inverses * float(self.sensitivity.amount)
        safe = limits * (1 - slack)
        lengths = np.sqrt(row_sums(residuals * residuals, _VANISHING))
        # Rounding to nearest adds at most sqrt(outputs) / 2 to a row's length; the lattice has space for 30 times that.
        rounding = math.sqrt(outputs) / 2
        if weights is None:
            factors = np.minimum((safe - rounding) / lengths, self.residual_unit)
        else:
            # A unit's gradient is at most the sum of weight times the bracket below, times the row's length, and of the
            # rounding of its rows, each at most as long as the grid allows: together within the sensitivity
            # (docs/proofs/tabular-models.md, Lemma 2).
            reserved = self.rows_per_unit * rounding * math.sqrt(self.grid.longest) * inverses
            factors = weights * np.minimum(np.maximum(safe - reserved, 0.0) / lengths, self.residual_unit)
        found: Reals = residuals * factors.astype(residuals.dtype)
        np.rint(found, out=found)
        # Impossible by the choice of ``factors``. The bound is enforced anyway: such a row contributes zero.
        wrong = row_sums(found * found) > safe * limits
        if np.count_nonzero(wrong):
            found[:, wrong] = 0
        return found


def check_curved(head: Head, columns: int) -> CurvedHead:
    """Return the head if Newton steps can be taken with it, else raise ``InvalidRequest``."""
    if not isinstance(head, CurvedHead):
        raise InvalidRequest("Expected a loss with a known curvature for Newton steps", do='Pass solver="gradient"')
    if columns > _WIDEST_CURVED:
        raise InvalidRequest(
            f"Expected at most {_WIDEST_CURVED} columns, the intercept's included, for Newton steps",
            got=columns,
            do='Drop some, or pass solver="gradient"',
        )
    return head


@dataclass(frozen=True)
class CurvedGradient:
    """The sum over a batch of per-row clipped gradients followed by the sum of per-row curvatures, on one lattice.

    The curvature of row x with second derivative c is c x x', the outer product of sqrt(c) x with itself. That vector is
    scaled by a public number and rounded to integers u with |u|^2 <= ``curvature_limit``; the sum of u u' is a product
    of integer matrices, of which the upper triangle is kept. One row moves the gradient by at most its own sensitivity
    and the triangle by |u|^2, so both together by the root of the sum of their squares (docs/proofs/sgd-gradient.md).
    """

    grid: FeatureGrid
    head: CurvedHead
    clip: float
    noise_multiplier: float
    row_limit: float | None = (
        None  # a longer row has less weight, so that its curvature is that of a row of this length
    )
    rows_per_unit: int = 1
    spare_bits: int = 0  # see ``ClippedGradient``
    slope: float = _SLOPE  # curvature's sensitivity over the gradient's

    def __post_init__(self) -> None:
        if math.sqrt(self.curvature_limit) < _LEAST_LENGTH * math.sqrt(self.grid.columns * self.rows_per_unit) / (
            1 if self.rows_per_unit == 1 else 4
        ):
            raise _noise_too_large(self.noise_multiplier)

    @cached_property
    def gradient(self) -> ClippedGradient:
        """Return the gradient's part; its lattice is coarse enough for the noise of both parts."""
        multiplier = self.noise_multiplier * math.hypot(1.0, self.slope)
        return ClippedGradient(
            self.grid, self.head, self.clip, multiplier, rows_per_unit=self.rows_per_unit, spare_bits=self.spare_bits
        )

    @cached_property
    def curvature_limit(self) -> int:
        """Return how far one row can move the curvature's part, in lattice units."""
        return math.floor(self.slope * float(self.gradient.sensitivity.amount))

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far adding or removing one row moves the whole vector, rounded up to an integer."""
        squared = int(self.gradient.sensitivity.amount) ** 2 + self.curvature_limit**2
        return Sensitivity(math.isqrt(squared - 1) + 1, Norm.L2, Adjacency.ADD_REMOVE)

    @cached_property
    def row_unit(self) -> float:
        """Return the factor of a row, in addition to the root of its second derivative, before it is rounded."""
        # Rounding to nearest adds at most sqrt(columns) / 2 to a length. The squared lengths of a unit's k rows, whose
        # weights add up to 1, are then at most (longest + sqrt(k columns) / 2)^2 together, by the inequality of
        # Cauchy and Schwarz. One more unit covers float errors.
        longest = math.sqrt(self.curvature_limit) - math.sqrt(self.rows_per_unit * self.grid.columns) / 2 - 1
        return longest / math.sqrt(self._longest_square * self.head.curvature)

    @cached_property
    def _longest_square(self) -> float:
        """Return the largest squared length, in grid units, that a row counts with for the curvature."""
        if self.row_limit is None:
            return float(self.grid.longest)
        return min((self.row_limit * self.grid.unit) ** 2, float(self.grid.longest))

    @property
    def unit(self) -> float:
        return (self.row_unit * self.grid.unit) ** 2

    @property
    def size(self) -> int:
        columns = self.grid.columns
        return self.gradient.size + columns * (columns + 1) // 2

    def measure(
        self,
        rows: GridRows,
        targets: NDArray[Any],
        weights: Floats,
        index: Index,
        *,
        watcher: Watcher | None = None,
        row_weights: Floats | None = None,
    ) -> Sealed:
        """Return the sealed sum over the rows in ``index``: the gradient, then the triangle row by row.

        ``row_weights`` are the shares with which rows count; those of one unit add up to at most 1.
        """
        return self.measure_blocks([(rows, targets, row_weights)], weights, index=index, watcher=watcher)

    def measure_blocks(
        self,
        blocks: Iterable[tuple[GridRows, NDArray[Any], Floats | None]],
        weights: Floats,
        *,
        index: Index = slice(None),
        watcher: Watcher | None = None,
        curved: bool = True,
    ) -> Sealed:
        """Return the sealed sum over blocks of rows, targets and row weights; ``index`` chooses rows of each.

        If it is not ``curved``, it is the sum of gradients alone, with the sensitivity of ``gradient``.
        """
        return self.seal_sum(
            self.sum_blocks(blocks, weights, index=index, watcher=watcher, curved=curved), curved=curved
        )

    def seal_sum(self, total: NDArray[np.int64], *, curved: bool = True) -> Sealed:
        """Seal a sum that ``sum_blocks`` made."""
        return Sealed(total, self.sensitivity if curved else self.gradient.sensitivity)

    def sum_blocks(
        self,
        blocks: Iterable[tuple[GridRows, NDArray[Any], Floats | None]],
        weights: Floats,
        *,
        index: Index = slice(None),
        watcher: Watcher | None = None,
        curved: bool = True,
    ) -> NDArray[np.int64]:
        """Return the exact sum that ``measure_blocks`` seals. SECRET. Sums of parts of the rows add up to that of all."""
        columns = self.grid.columns
        slope = np.zeros((self.head.outputs, columns), np.int64)
        bend = np.zeros((columns, columns), np.int64)
        for rows, targets, row_weights in blocks:
            for part in _cut_index(index, len(rows), columns):
                features, inverses = rows.take_rows(part)
                scores, wanted = grid_scores(rows.integers()[part], weights, self.grid), targets[part]
                if watcher is not None:
                    watcher(scores, wanted)
                shares = None if row_weights is None else row_weights[part]
                residuals, lighter = self.head.compute_residuals(scores, wanted), None
                if self.row_limit is not None:
                    lighter = np.minimum(self._longest_square * inverses**2, 1.0)
                    residuals = residuals * lighter
                residuals = self.gradient.clip_residuals(residuals, inverses, shares)
                slope += (residuals @ features).astype(np.int64)
                if not curved:
                    continue
                curvatures = self.head.compute_curvatures(scores, wanted)[0]
                for factor in (lighter, shares):
                    curvatures = curvatures if factor is None else curvatures * factor
                scaled = self._clip_rows(features, curvatures)
                bend += (scaled.T @ scaled).astype(np.int64)
        if not curved:
            return slope.ravel()
        return np.concatenate([slope.ravel(), bend[np.triu_indices(columns)]])

    def _clip_rows(self, features: Floats, curvatures: Floats) -> Floats:
        """Scale rows by the roots of their second derivatives to lattice units, none longer than the limit's root."""
        found: Floats = np.rint(features * (np.sqrt(curvatures) * self.row_unit)[:, None])
        # Impossible by the choice of ``row_unit``. The bound is enforced anyway: such a row contributes zero.
        found[np.einsum("ij,ij->i", found, found) > self.curvature_limit] = 0
        return found

    def split(self, noisy: NDArray[Any]) -> tuple[Floats, Floats]:
        """Split a released vector into a sum of gradients and a symmetric matrix, in the units of the features."""
        columns = self.grid.columns
        slopes = noisy[: self.gradient.size].reshape(self.head.outputs, columns)
        bend = np.zeros((columns, columns))
        bend[np.triu_indices(columns)] = noisy[self.gradient.size :]
        bend = bend + np.triu(bend, 1).T
        return np.asarray(slopes / self.gradient.unit, np.float64), bend / self.unit


@dataclass(frozen=True)
class SumGradients:
    """Sums gradients, and curvatures if it is ``curved``; rows that are not ``weighted`` have no weights."""

    curved_gradient: CurvedGradient
    weights: Floats
    weighted: bool
    curved: bool = True

    def __call__(self, blocks: Iterable[tuple[GridRows, NDArray[Any], Floats]]) -> NDArray[np.int64]:
        given = ((rows, targets, shares if self.weighted else None) for rows, targets, shares in blocks)
        return self.curved_gradient.sum_blocks(given, self.weights, curved=self.curved)


def grid_scores(integers: NDArray[np.int16], weights: Floats, grid: FeatureGrid) -> Floats:
    """Return the scores (outputs x rows) of encoded rows, the same for private tests and for predictions."""
    return np.asarray(_RoundedWeights.of(weights, grid).compute_scores(integers.astype(np.float32)), np.float64)


class _RoundedWeights(NamedTuple):
    """Public weights as one or two vectors of integers, so short that float32 adds their products exactly.

    With two pieces a weight is (2^gap high + low) / factor, which keeps about six decimal digits of the longest vector.
    A coarse one is high / factor: four digits, in half the time.
    """

    pieces: NDArray[np.float32]  # the high ones, then the low ones
    gap: int | None
    scale: float

    @classmethod
    def of(cls, weights: Floats, grid: FeatureGrid, *, coarse: bool = False) -> _RoundedWeights:
        # |x| |w| <= 2^24 for a row x and a piece w, each as long as possible; rounding adds ``spare`` to a piece.
        longest_piece = 2.0**_SINGLE / math.sqrt(grid.longest) * _MARGIN
        spare = math.sqrt(grid.columns) / 2
        longest = math.sqrt(np.maximum.reduce(np.vecdot(weights, weights))) + 2.0**-20
        factor = (longest_piece - spare) / longest
        if coarse:
            coarse_pieces = np.rint(weights * factor).astype(np.float32)
            return cls(coarse_pieces, None, min(1 / (factor * grid.unit), _LARGEST_SCALE))
        factor = 2.0 ** math.floor(math.log2(factor))
        gap = math.floor(math.log2((longest_piece - spare) / spare))
        pieces = np.empty((2, *weights.shape), np.float32)
        left = weights * factor
        pieces[0] = np.rint(left)
        left -= pieces[0]
        left *= 2.0**gap
        pieces[1] = np.rint(left, out=left)
        return cls(pieces.reshape(-1, grid.columns), gap, 2.0**-gap / factor / grid.unit)

    def compute_scores(self, singles: NDArray[np.float32]) -> Reals:
        """Return the scores (outputs x rows) of encoded rows, in float32 if they are coarse."""
        # Faster than the product of the transposes, although that has the wanted layout.
        products = np.ascontiguousarray((singles @ self.pieces.T).T)
        if self.gap is None:
            products *= np.float32(self.scale)
            return products
        outputs = len(products) // 2
        scores: Floats = products[:outputs] * np.float64(2.0**self.gap)
        scores += products[outputs:]
        scores *= self.scale
        return scores


def _sum_products(residuals: Floats, singles: NDArray[np.float32]) -> NDArray[np.int64]:
    """Sum outer products of integers over rows, exactly in float64."""
    return (residuals @ singles.astype(np.float64)).astype(np.int64)


def _sum_by_digits(residuals: Reals, singles: NDArray[np.float32]) -> NDArray[Any]:
    """Sum outer products exactly in float32: two digits of the residuals, and so few rows at a time that 2^24 is not passed."""
    outputs, rows = residuals.shape
    digits = np.empty((2 * outputs, rows), np.float32)
    high, low = digits[:outputs], digits[outputs:]
    np.multiply(residuals, np.float32(1 / _BASE), out=high)
    np.rint(high, out=high)
    np.multiply(high, np.float32(-_BASE), out=low)
    low += residuals

    def sums() -> Iterator[NDArray[np.int32]]:
        for start in range(0, max(rows, 1), 2 * _DIGIT_ROWS):
            middle, stop = start + _DIGIT_ROWS, start + 2 * _DIGIT_ROWS
            # Two float32 sums, added in int32, where twice as many rows fit.
            both = (digits[:, start:middle] @ singles[start:middle]).astype(np.int32)
            both += (digits[:, middle:stop] @ singles[middle:stop]).astype(np.int32)
            both[:outputs] *= _BASE
            both[:outputs] += both[outputs:]
            yield both[:outputs]

    return _add_up(sums(), *residuals.shape[:1], singles.shape[1])


def _add_up(sums: Iterator[NDArray[Any]], *shape: int) -> NDArray[Any]:
    """Add sums of a shape, in 64 bits if there are several; zeros if there are none."""
    total = next(sums, None)
    if total is None:
        return np.zeros(shape, np.int64)
    for more in sums:
        total = total.astype(np.int64, copy=False)
        total += more
    return total


def _cut_index(index: Index, count: int, columns: int) -> Any:
    """Cut an index into chunks; an empty index is one empty chunk, so that an empty batch takes the same path."""
    step = max(1, min(_MOST_ROWS, _CHUNK_VALUES // columns))
    if isinstance(index, slice):
        first, last, _ = index.indices(count)
        return (slice(start, min(start + step, last)) for start in range(first, max(last, first + 1), step))
    if len(index) <= step:
        return (index,)
    return (index[start : start + step] for start in range(0, len(index), step))


def _noise_too_large(noise_multiplier: float) -> InvalidRequest:
    return InvalidRequest(
        "Expected a noise multiplier that the lattice can represent", got=noise_multiplier, do="Lower it"
    )
