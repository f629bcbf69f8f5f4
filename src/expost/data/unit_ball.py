"""Feature rows scaled into the unit ball and rounded to a fixed-point grid: what exact sums over rows are made of."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.core import Norm, TableChanged
from expost.data.person_rows import PersonRows
from expost.data.row_identity import Mark
from expost.data.row_source import CHUNK_ROWS, ChunkFunction, OfChangedTargets, RowSource, plain_numbers
from expost.data.unit_share import WEIGHT_GRID

__all__ = ["GRID_BITS", "UnitBall", "UnitRows", "WeightedChunk", "grid_numbers", "summation_error"]

GRID_BITS = 20
"""Fractional bits of a gridded value. Products have 40, so float64 adds 2^13 of them without rounding."""

T = TypeVar("T")

_CACHED_VALUES = (
    1 << 26
)  # gridded rows up to this size are kept between passes: 256 MB, as 32-bit floats hold them exactly
_FEW_COLUMNS = 256  # beyond, rows are added one by one
_HUGE = 1e150

Floats = NDArray[np.float64]
Chunk = tuple[Floats, Floats]
WeightedChunk = tuple[Floats, Floats, Floats | None]


@dataclass(frozen=True)
class UnitBall:
    """The public numbers that map a raw row into the unit ball of a norm.

    Columns with bounds are mapped to [0, 1] first. A row longer than ``bound`` is shortened to it; then it is divided
    by ``bound``. An intercept is a constant column as long as the bound; the row is shrunk so that both fit.

    >>> UnitBall(width=2, norm=Norm.L1, bound=4.0).scale_rows(np.array([[1.0, 1.0], [6.0, 2.0]]))
    array([[0.25, 0.25],
           [0.75, 0.25]])
    """

    width: int
    norm: Norm = Norm.L1
    bound: float = 1.0
    lows: tuple[float, ...] | None = None
    highs: tuple[float, ...] | None = None
    intercept: bool = False

    @property
    def dimension(self) -> int:
        """The number of coefficients, the intercept's included."""
        return self.width + self.intercept

    @property
    def shrinkage(self) -> float:
        """The factor, beyond 1 / bound, by which rows are shrunk so that the constant column fits."""
        if not self.intercept:
            return 1.0
        return 0.5 if self.norm is Norm.L1 else 0.7071  # below 1/sqrt(2), so that the norm stays within 1

    @property
    def squared_length(self) -> float:
        """The largest squared Euclidean length of a row in the ball, the constant column included.

        Within column bounds entries lie between 0 and shrinkage / bound: rows fill a box, not the ball around it.
        """
        longest = 1.0
        if self.lows is not None:
            # A sum of squares is at most the largest entry times the sum, and at most width times its square.
            longest = min(longest, self.width / self.bound**2)
            if self.norm is Norm.L1:
                longest = min(longest, 1 / self.bound) if self.bound > 1 else longest
        return (longest + self.intercept) * self.shrinkage**2

    def furthest_score(self, theta: Floats) -> float:
        """Return the largest |row . theta| of a row in the ball: the support function of the public set of rows."""
        weights = theta[: self.width]
        rows = float(np.abs(weights).max(initial=0.0) if self.norm is Norm.L1 else np.linalg.norm(weights))
        highest, lowest = rows, -rows
        if self.lows is not None:
            entry = 1 / self.bound
            highest = min(rows, entry * float(np.maximum(weights, 0.0).sum()))
            lowest = max(-rows, entry * float(np.minimum(weights, 0.0).sum()))
        constant = float(theta[self.width]) if self.intercept else 0.0
        return self.shrinkage * max(abs(highest + constant), abs(lowest + constant))

    def scale_rows(self, raw: Any) -> Floats:
        """Return the rows in the unit ball. Missing values count as zero (or as the column's lower bound)."""
        dense = raw.toarray() if hasattr(raw, "toarray") else np.asarray(raw)
        # One line per column: columns are added in the same order for every layout and number of rows.
        table = np.empty((self.dimension, len(dense)))
        rows, lines = table[: self.width], (self.width, 1)
        rows[...] = dense.T
        with np.errstate(over="ignore"):  # a warning would reveal a huge value, which is clipped next
            if self.lows is not None and self.highs is not None:
                lows, spans = np.array(self.lows), np.array(self.highs) - np.array(self.lows)
                if lows.any():
                    rows -= lows.reshape(lines)
                if (spans != 1).any():
                    rows /= spans.reshape(lines)
                np.clip(rows, 0, 1, out=rows)
            length = self._row_lengths(rows)
            if not (length <= _HUGE).all():
                # One huge value must not turn its whole row into NaN: cap it, the norm is clipped anyway.
                np.nan_to_num(rows, copy=False, nan=0.0, posinf=_HUGE, neginf=-_HUGE)
                np.clip(rows, -_HUGE, _HUGE, out=rows)
                length = self._row_lengths(rows)
        rows *= self.shrinkage / np.maximum(length, self.bound)
        table[self.width :] = self.shrinkage
        return table.T

    def _row_lengths(self, rows: Floats) -> Floats:
        """Return the norm of each row, given one line per column. The rows that come together change no bit of it."""
        if self.width > _FEW_COLUMNS:
            beside = np.ascontiguousarray(rows.T)
            sums: Floats = (np.abs(beside) if self.norm is Norm.L1 else beside**2).sum(axis=1)
            return sums if self.norm is Norm.L1 else np.sqrt(sums)
        total = np.zeros(rows.shape[1])
        for line in rows:
            total += np.abs(line) if self.norm is Norm.L1 else line * line
        return total if self.norm is Norm.L1 else np.sqrt(total)

    def grid_rows(self, raw: Any) -> Floats:
        """Return the rows in the unit ball as integers of 2^-GRID_BITS, as fits and predictions both read them.

        They are truncated toward zero: a sum of truncated magnitudes never exceeds the bound (docs/proofs/moments.md).
        """
        rows = self.scale_rows(raw)
        rows *= 2.0**GRID_BITS
        return np.trunc(rows, out=rows)

    def unscale_coefficients(self, unit_coefficients: Floats, target_scale: float = 1.0) -> tuple[Floats, float]:
        """Convert coefficients for rows in the unit ball to coefficients and intercept for raw rows."""
        weights = unit_coefficients[: self.width] * (target_scale * self.shrinkage / self.bound)
        constant = unit_coefficients[self.width] * target_scale * self.shrinkage if self.intercept else 0.0
        if self.lows is not None:
            lows, spans = np.array(self.lows), np.array(self.highs) - np.array(self.lows)
            weights = weights / spans
            constant -= float(weights @ lows)
        return weights, float(constant)


class UnitRows:
    """Gridded rows in the unit ball with their targets. They cannot be printed or pickled.

    Values are integers of at most 2^20 in magnitude, held as float64. They are truncated toward zero, so that no norm
    grows.
    """

    def __init__(
        self, source: RowSource, ball: UnitBall, grid_target: Callable[[Any], Floats], *, secret: bytes = b""
    ) -> None:
        self.rows, self.ball = source.rows, ball
        self._source, self._grid_target, self._secret = source, grid_target, secret
        self._cache: list[tuple[Any, Floats, Floats | None]] | None = None
        # The keys draw no noise. They only keep an author of rows from choosing rows with a given checksum.
        words = np.frombuffer(os.urandom(16 * (ball.dimension + 1)), np.uint64).reshape(-1, 2)
        self._keys = None if source.fixed else words
        self._mark: Mark | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows as (features, targets) in grid units, at most 2^13 rows at a time, so that sums are exact.

        The order may differ between readings. A reading with other rows than the first one raises ``TableChanged``.
        """
        return ((features, target) for features, target, _ in self.weighted_chunks())

    def weighted_chunks(self) -> Iterator[WeightedChunk]:
        """Yield all rows as ``chunks`` does, with the weights of persons' rows; None where a row is a person."""
        if self._cache is not None:
            for features, target, weights in self._cache:
                yield features.astype(np.float64), target, weights
            return
        keep = self._is_kept
        kept: list[tuple[Any, Floats, Floats | None]] = []
        mark = Mark()
        for features, target, weights in self._read_source():
            chunk = self.ball.grid_rows(features), self._grid_target(target), weights
            if keep:
                kept.append((chunk[0].astype(np.float32), *chunk[1:]))
            elif self._keys is not None:
                mark = mark.with_grid_rows(chunk[:2], self._keys)
            yield chunk
        if keep:
            self._cache = kept
        self._check_mark(mark)

    def reduce(self, function: ChunkFunction[T], merge: Callable[[T, T], T]) -> T:
        """Return the merged results of a function of weighted chunks: of all at once from the cache, or of parts where rows lie.

        The function and ``merge`` are those of ``RowSource.reduce``. Sums must be exact, so that parts do not matter.
        """
        if self._source.reduce is None or self._keys is None or (self._is_kept and not self._source.distributed):
            return function(self.weighted_chunks())
        marked = _OfGridRows(self.ball, self._grid_target, self._keys, function)
        result, mark = self._source.reduce(marked, _MergeMarked(merge), self._secret)
        self._check_mark(mark)
        return result

    @property
    def _is_kept(self) -> bool:
        """Whether the rows fit into the cache. Rows that are only counted are not kept."""
        return 0 < self.rows * self.ball.dimension <= _CACHED_VALUES

    def _check_mark(self, mark: Mark) -> None:
        """Raise ``TableChanged`` if a reading had other rows than the first one, or more than the public number."""
        declared = self._source.adjacency.public_size and self.rows > 0
        if (self._mark is not None and self._mark != mark) or (declared and mark.rows > self.rows):
            raise TableChanged()
        self._mark = mark

    def _read_source(self) -> Iterator[tuple[Any, Any, Floats | None]]:
        if isinstance(self._source, PersonRows):
            return self._source.read_weighted(self._secret)
        return ((features, target, None) for features, target in self._source.read())

    def count_units(self) -> int:
        """Return the exact number of rows, or of persons. SECRET."""
        return -(-self.reduce(_sum_weights, operator.add) // WEIGHT_GRID)

    def scale_to_weights(self) -> UnitRows:
        """Return rows and targets times the roots of their weights, so that sums of products are weighted sums."""
        return _RootedRows(self)

    def map_targets(self, change: Callable[[Floats], Floats]) -> UnitRows:
        """Return the same rows with ``change`` applied to their targets; both share one cache."""
        return _MappedRows(self, change)

    def __repr__(self) -> str:
        return "<rows of a private table>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private rows must stay in their process: they cannot be pickled.")


def _sum_weights(chunks: Iterable[WeightedChunk]) -> int:
    """Sum the weights of rows, in units of 1 / WEIGHT_GRID."""
    # Weights are whole multiples of 1 / WEIGHT_GRID, and those of a person add up to 1 or a little less. So one person
    # moves the sum by at most 1, and the sum rounded up by at most 1. Parts of it must not be rounded: the rows of a
    # person may lie in many chunks.
    return sum(
        len(target) * WEIGHT_GRID if weights is None else int(np.rint(weights * WEIGHT_GRID).sum())
        for _, target, weights in chunks
    )


@dataclass(frozen=True)
class _OfGridRows(Generic[T]):
    """A function of gridded chunks as a function of raw ones; it also returns the checksum of the rows."""

    ball: UnitBall
    grid_target: Callable[[Any], Floats]
    keys: NDArray[np.uint64]
    function: ChunkFunction[T]

    def __call__(self, chunks: Iterable[tuple[Any, Any, Any]]) -> tuple[T, Mark]:
        mark = Mark()

        def grid_chunks() -> Iterator[WeightedChunk]:
            nonlocal mark
            for features, target, weights in chunks:
                chunk = self.ball.grid_rows(features), self.grid_target(target), weights
                mark = mark.with_grid_rows(chunk[:2], self.keys)
                yield chunk

        result = self.function(grid_chunks())
        return result, mark


@dataclass(frozen=True)
class _MergeMarked(Generic[T]):
    """Merges results and checksums."""

    merge: Callable[[T, T], T]

    def __call__(self, left: tuple[T, Mark], right: tuple[T, Mark]) -> tuple[T, Mark]:
        return self.merge(left[0], right[0]), left[1] + right[1]


class _MappedRows(UnitRows):
    """Rows whose targets are computed from those of other rows."""

    def __init__(self, base: UnitRows, change: Callable[[Floats], Floats]) -> None:
        super().__init__(base._source, base.ball, base._grid_target, secret=base._secret)
        self._base, self._change = base, change

    def weighted_chunks(self) -> Iterator[WeightedChunk]:
        return ((features, self._change(target), weight) for features, target, weight in self._base.weighted_chunks())

    def reduce(self, function: ChunkFunction[T], merge: Callable[[T, T], T]) -> T:
        return self._base.reduce(OfChangedTargets(self._change, function), merge)


class _RootedRows(UnitRows):
    """Rows and targets scaled by the roots of the weights, cut to the grid toward zero."""

    def __init__(self, base: UnitRows) -> None:
        super().__init__(base._source, base.ball, base._grid_target, secret=base._secret)
        self._base = base

    def weighted_chunks(self) -> Iterator[WeightedChunk]:
        return _scale_chunks(self._base.weighted_chunks())

    def reduce(self, function: ChunkFunction[T], merge: Callable[[T, T], T]) -> T:
        return self._base.reduce(_OfRootedRows(function), merge)


@dataclass(frozen=True)
class _OfRootedRows(Generic[T]):
    """A function of rows scaled by the roots of their weights."""

    function: ChunkFunction[T]

    def __call__(self, chunks: Iterable[tuple[Any, Any, Any]]) -> T:
        return self.function(_scale_chunks(chunks))


def _scale_chunks(chunks: Iterable[WeightedChunk]) -> Iterator[WeightedChunk]:
    """Yield chunks with features and targets times the roots of their weights, and without the weights."""
    for features, target, weights in chunks:
        # Rounded down: squares of the scaled numbers never exceed the weighted squares.
        root = None if weights is None else np.nextafter(np.sqrt(weights), 0.0)
        if root is not None:
            features, target = np.trunc(features * root[:, None]), np.trunc(target * root)
        yield features, target, None


def grid_numbers(bound: float) -> Callable[[Any], Floats]:
    """Return a function that clips numeric targets to [-bound, bound] and puts them on the grid; missing counts as 0."""
    return _GridNumbers(bound)


@dataclass(frozen=True)
class _GridNumbers:
    bound: float

    def __call__(self, target: Any) -> Floats:
        plain = isinstance(target, np.ndarray) and target.dtype == np.float64
        values = np.nan_to_num(target if plain else plain_numbers(target), nan=0.0)
        return np.trunc(np.clip(values, -self.bound, self.bound) / self.bound * 2.0**GRID_BITS)


def summation_error(rows: int) -> float:
    """Bound the error of a mean over rows summed chunk by chunk in float64, relative to the mean of magnitudes.

    A sum of k floats has an error of at most k u times the sum of magnitudes, u = 2^-53 (Hig02, section 4.2), here first
    over the rows of a chunk and then over the chunks.
    """
    return (CHUNK_ROWS + math.ceil(rows / CHUNK_ROWS) + 2) * math.ldexp(1.0, -53)
