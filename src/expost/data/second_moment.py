"""Exact second moments of rows and targets, sealed: layouts of sums as integer vectors, and their sensitivities."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, Norm, Sealed, Sensitivity
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, WeightedChunk

__all__ = ["EuclideanLayout", "MomentLayout", "Moments", "measure_least_curvature"]

_FLUSH = 256  # chunks whose sums, each at most 2^53, together fit into 62 bits
_UNIT = math.ldexp(1.0, -2 * GRID_BITS)


@dataclass(frozen=True)
class Moments:
    """Noisy means over rows of x x', x y and, if requested, y y and y, in units of the ball."""

    gram: NDArray[np.float64]
    cross: NDArray[np.float64]
    square: float | None = None
    total: float | None = None


@dataclass(frozen=True)
class MomentLayout:
    """The layout of a table's moments in one integer vector.

    First the upper triangle of the sum of x x', off-diagonal entries doubled; then the sum of x y; then, ``with_square``,
    the sum of y y; then, ``with_sum``, the sum of y. In this layout the 1-norm of one row's contribution is
    |x|_1^2 + |x|_1 |y| + y^2 + |y|. ``full`` lays out the whole matrix instead, which is noisier: for comparison only.
    ``coarse`` rounds the sums to a grid coarser by that many bits, so that larger noise fits into 64 bits.

    >>> layout = MomentLayout(UnitBall(2), with_square=True)
    >>> layout.size, layout.sensitivity.amount / 4**GRID_BITS
    (6, Fraction(17, 4))
    """

    ball: UnitBall
    with_square: bool = False
    with_sum: bool = False
    full: bool = False
    coarse: int = 0
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self._matrix_size + self.ball.dimension + self.with_square + self.with_sum

    @property
    def _matrix_size(self) -> int:
        width = self.ball.dimension
        return width * width if self.full else width * (width + 1) // 2

    def _entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """Return rows and columns of the matrix entries in the layout, and how often each is counted."""
        width = self.ball.dimension
        if self.full:
            row, column = (each.ravel() for each in np.indices((width, width)))
            return row, column, np.ones(width * width)
        row, column = np.triu_indices(width)
        return row, column, np.where(row == column, 1.0, 2.0)

    @property
    def sensitivity(self) -> Sensitivity:
        """The most that one row can move the vector in the 1-norm (docs/proofs/moments.md)."""
        width = self.ball.dimension
        root = math.isqrt(width)
        # The largest 1-norm of a row in the ball: 1, or the square root of the dimension, rounded up.
        length = Fraction(root) if root * root == width else Fraction(math.isqrt(width << 40) + 1, 1 << 20)
        length = Fraction(1) if self.ball.norm is Norm.L1 else length
        # x x' moves by at most 2 length^2. The rest is largest for targets 1 and w, where it is length (1 + |w|) +
        # (1 - w^2) + (1 - w): concave on each side of 0, so its maximum is at a border or a turning point.
        turning = (length - self.with_sum) / 2, -(length + self.with_sum) / 2
        others = [
            Fraction(1),
            Fraction(-1),
            Fraction(0),
            *(max(min(each, Fraction(1)), Fraction(-1)) for each in turning),
        ]
        rest = [
            length * (1 + abs(other)) + self.with_square * (1 - other**2) + self.with_sum * (1 - other)
            for other in others
        ]
        moved = 2 * length**2 + max(rest)
        if not self.adjacency.public_size:  # added or removed: one row's own entries, largest for a target of 1
            moved = length**2 + length + self.with_square + self.with_sum
        exact = moved * 4**GRID_BITS
        # Rounding moves each coordinate of either neighbour by at most half a unit.
        rounded = exact / 2**self.coarse + self.size if self.coarse else exact
        return Sensitivity(rounded, Norm.L1, self.adjacency)

    def measure(self, rows: UnitRows) -> Sealed:
        """Sum exactly and seal. The sums do not depend on the order or the chunks of the rows."""
        total = rows.reduce(self._sum_chunks, operator.add)
        if self.coarse:
            total = (total + (1 << (self.coarse - 1))) >> self.coarse
        return Sealed(_narrow_sums(total, 2 * rows.rows, self.adjacency), self.sensitivity)

    def _sum_chunks(self, chunks: Iterable[WeightedChunk]) -> NDArray[Any]:
        """Sum the moments of some chunks, in Python's integers."""
        total: NDArray[Any] = np.zeros(self.size, dtype=object)
        part = np.zeros(self.size, dtype=np.int64)
        for index, (features, target, _) in enumerate(chunks, start=1):
            part += self._sum_chunk(features, target)
            if index % _FLUSH == 0:
                total, part = total + part, np.zeros_like(part)
        return total + part

    def _sum_chunk(self, features: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.int64]:
        """Sum the moments of one chunk."""
        # Integers below 2^20 in chunks of 2^13 rows: every partial sum is an integer up to 2^53, exact in float64.
        gram = features.T @ features
        row, column, count = self._entries()
        packed = [gram[row, column] * count, target @ features]
        if self.with_square:
            packed.append(np.array([target @ target]))
        if self.with_sum:
            packed.append(np.array([target.sum() * 2.0**GRID_BITS]))
        return np.concatenate(packed).astype(np.int64)

    def unpack(self, values: NDArray[Any], rows: int) -> Moments:
        """Convert a released vector to means over this many rows."""
        gram, cross = self.unpack_matrices(values, rows)
        behind = self._matrix_size + self.ball.dimension
        rest = iter((np.asarray(values[behind:], dtype=np.float64) * self._unit(rows)).tolist())
        return Moments(gram, cross, next(rest) if self.with_square else None, next(rest) if self.with_sum else None)

    def unpack_matrices(self, values: NDArray[Any], rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Convert one released vector, or a stack of them, to means of x x' and x y."""
        width, triangle = self.ball.dimension, self._matrix_size
        means = np.asarray(values[..., : triangle + width], dtype=np.float64) * self._unit(rows)
        row, column, count = self._entries()
        gram = np.zeros((*means.shape[:-1], width, width))
        gram[..., row, column] = means[..., :triangle] / count
        turned = np.swapaxes(gram, -1, -2)
        return (gram + turned) / 2 if self.full else gram + np.tril(turned, -1), means[..., triangle:]

    def _unit(self, rows: int) -> float:
        """Return the value of one lattice unit in a mean over rows."""
        return math.ldexp(_UNIT, self.coarse) / rows


@dataclass(frozen=True)
class EuclideanLayout:
    """The moments x x' and x y laid out for Euclidean sensitivity: diagonal and x y times 5, off-diagonal times 7.

    5 : 7 stands for 1 : sqrt(2), so the squared length is at most 25 times that of (x x', x y); replacing one row moves
    that by at most sqrt(9/2), adding or removing one by at most sqrt(2) (docs/proofs/gaussian-ridge.md).
    """

    ball: UnitBall
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    @property
    def squared_distance(self) -> Fraction:
        """How far one row can move (x x', x y), squared, in the Euclidean norm."""
        return Fraction(9, 2) if self.adjacency.public_size else Fraction(2)

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return MomentLayout(self.ball).size

    @property
    def sensitivity(self) -> Sensitivity:
        """The most that one row of Euclidean norm at most 1 can move the vector in the Euclidean norm."""
        return Sensitivity.from_square(self.squared_distance * 25 * 16**GRID_BITS, adjacency=self.adjacency)

    def measure(self, rows: UnitRows) -> Sealed:
        """Sum exactly with the weights and seal."""
        total = rows.reduce(self._sum_chunks, operator.add)
        weighted = total * self._entry_weights().astype(object)
        return Sealed(_narrow_sums(weighted, 7 * rows.rows, self.adjacency), self.sensitivity)

    def _sum_chunks(self, chunks: Iterable[WeightedChunk]) -> NDArray[Any]:
        total: NDArray[Any] = np.zeros(self.size, dtype=object)
        row, column = np.triu_indices(self.ball.dimension)
        for features, target, _ in chunks:
            gram = features.T @ features
            total = total + np.concatenate([gram[row, column], target @ features]).astype(np.int64)
        return total

    def _entry_weights(self) -> NDArray[np.int64]:
        row, column = np.triu_indices(self.ball.dimension)
        return np.concatenate([np.where(row == column, 5, 7), np.full(self.ball.dimension, 5)])

    def unpack(self, values: NDArray[np.float64], rows: int) -> Moments:
        """Convert a released vector to means over this many rows."""
        width = self.ball.dimension
        means = values / self._entry_weights() * (_UNIT / rows)
        gram = np.zeros((width, width))
        gram[np.triu_indices(width)] = means[:-width]
        return Moments(gram + np.triu(gram, 1).T, means[-width:])


def measure_least_curvature(rows: UnitRows, *, adjacency: Adjacency = Adjacency.REPLACE_ONE, crowd: int = 1) -> Sealed:
    """Seal the smallest eigenvalue of the sum of x x' on the grid, for rows no longer than 1.

    Float errors are bounded for ``crowd`` times the public number of rows. Replacing one row adds x x' - z z', whose eigenvalues lie in [-1, 1], so no eigenvalue moves by more than 1 (Weyl). The
    sensitivity includes the float error of the eigenvalues and the rounding, on both sides.
    """
    width = rows.ball.dimension
    total = rows.reduce(functools.partial(_sum_gram, width), operator.add)
    least = float(np.linalg.eigvalsh(total.astype(np.float64) * _UNIT)[0])
    # Backward stable: an error of a few p^2 roundoff units of the norm, which is at most the number of rows.
    error = math.ceil(64 * width**2 * crowd * rows.rows * 2.0 ** (GRID_BITS - 53))
    units = 2**GRID_BITS + 2 * error + 1
    return Sealed(round(least * 2**GRID_BITS), Sensitivity(units, Norm.L2, adjacency))


def _sum_gram(width: int, chunks: Iterable[WeightedChunk]) -> NDArray[Any]:
    """Sum x x' over rows, in Python's integers."""
    total: NDArray[Any] = np.zeros((width, width), dtype=object)
    for features, _, _ in chunks:
        total = total + (features.T @ features).astype(np.int64)
    return total


def _narrow_sums(total: NDArray[Any], weight: int, adjacency: Adjacency) -> NDArray[Any]:
    """Convert sums to int64 if that many products of grid numbers (a public count) cannot leave 62 bits.

    Where the number of rows is private sums are cut to 62 bits instead. Cutting moves no two sums further apart.
    """
    if not adjacency.public_size:
        largest = 1 << 62
        return np.asarray(np.minimum(np.maximum(total, -largest), largest), np.int64)
    return total.astype(np.int64) if weight * 4**GRID_BITS < 1 << 62 else total
