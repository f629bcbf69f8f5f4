"""Second moments of encoded rows and their target as one exact integer vector, and the regression that they determine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder, Norm, Sealed, Sensitivity
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.table_profile import RowBlocks, TableProfile, sum_blocks
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.jump_noise import check_rates

__all__ = ["TableMoments"]

Floats = NDArray[np.float64]
_BITS = 15  # of a value: products have 30, so float64 adds 2^13 of them exactly and int64 adds 2^33
_CHUNK = 1 << 13
_SAFE = 1 + Fraction(1, 10**8)  # above the tolerance of ``EncodedShape.contains``
_HIDDEN = 1.0  # deviations per root of the columns that hide an eigenvalue of the covariance


@dataclass(frozen=True)
class TableMoments:
    """The upper triangle of the sum of z z', z = (1, features, target), without what is known of it in advance.

    Features of a category exclude each other, so their products are zero, and the square of an indicator is the indicator:
    these entries get no noise and cost nothing.

    Guarantee: none by itself; a prefix of the path costs its last level.
    Adjacency: add/remove of one unit; the rows of a unit share a weight of 1.
    Sensitivity: L1: the products of different columns' lengths, and the squares within a column.
    Accuracy: values are cut to 15 bits, toward zero.
    Numerics: exact integers.
    Reference: docs/proofs/pure-tabular-models.md, Lemma 2; LNRWW17, Theorem 2.7.
    """

    shape: EncodedShape
    name = "centred moments under Laplace noise"

    @property
    def size(self) -> int:
        """Return the number of values of z."""
        return self.shape.width + 2

    @cached_property
    def _groups(self) -> NDArray[np.intp]:
        """Return the column of the table that each value of z belongs to; -1 for the constant, -2 for the target."""
        inner = np.repeat(np.arange(len(self.shape.widths)), self.shape.widths)
        return np.concatenate([[-1], inner, [-2]])

    @cached_property
    def _free(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the places of the entries that are released."""
        above = np.triu(np.ones((self.size, self.size), bool))
        exclusive = np.concatenate([[False], np.repeat(self.shape.exclusive, self.shape.widths), [False]])
        same = (self._groups[:, None] == self._groups[None, :]) & exclusive[:, None]
        own = np.eye(self.size, dtype=bool)
        indicators = np.concatenate([[False], self.shape.indicators, [False]])
        rows, columns = np.nonzero(above & ~(same & ~own) & ~(own & indicators[:, None]))
        return rows, columns

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far one unit can move the vector."""
        lengths = [Fraction(1), *map(Fraction, self.shape.lengths), Fraction(1)]
        across = (sum(lengths) ** 2 - sum(each**2 for each in lengths)) / 2
        inside = Fraction(2)  # the constant's square and the target's
        for length, width, exclusive, last in zip(
            self.shape.lengths, self.shape.widths, self.shape.exclusive, np.cumsum(self.shape.widths), strict=True
        ):
            values = self.shape.indicators[last - width : last]
            if exclusive:
                inside += 0 if all(values) else Fraction(length) ** 2
            else:
                # Products i <= j of values with this sum of magnitudes: (sum^2 + sum of squares) / 2.
                inside += Fraction(length) ** 2
        return Sensitivity(math.ceil((across + inside) * _SAFE * 4**_BITS), Norm.L1)

    def check_levels(self, ladder: Ladder) -> None:
        """Raise ``InvalidRequest`` unless noise of these levels can be drawn."""
        check_rates(ladder, Fraction(self.sensitivity.amount))

    def measure(self, blocks: RowBlocks) -> NDArray[np.int64]:
        """Return the exact vector of all rows. SECRET."""
        return sum_blocks(blocks, self._sum_chunks)[self._free]

    def _sum_chunks(self, chunks: Iterable[RowChunk]) -> NDArray[np.int64]:
        total = np.zeros((self.size, self.size), np.int64)
        for rows in chunks:
            known = self.shape.contains(rows.features) & (np.abs(rows.targets) <= 1)
            for start in range(0, len(known), _CHUNK):
                part = slice(start, start + _CHUNK)
                inside = known[part]
                values = np.ones((int(inside.sum()), self.size))
                values[:, 1:-1] = rows.features[part][inside]
                values[:, -1] = rows.targets[part][inside]
                # Rounded down, so that the squares of a unit's roots add up to at most 1.
                roots = np.nextafter(np.sqrt(np.asarray(rows.weights[part], np.float64)[inside]), 0.0)
                roots[roots >= 1 - 2.0**-50] = 1.0
                values *= (roots * 2.0**_BITS)[:, None]
                np.trunc(values, out=values)
                total += (values.T @ values).astype(np.int64)
        return total

    def open_path(self, total: NDArray[np.int64], ladder: Ladder, bits: BitSource | None) -> DiscreteLaplacePath:
        """Return the vector under noise that shrinks from level to level."""
        return DiscreteLaplacePath(Sealed(total, self.sensitivity), ladder, bits=bits)

    def unpack(self, released: NDArray[np.int64]) -> Floats:
        """Return the symmetric matrix of sums, with the entries that are known in advance."""
        matrix = np.zeros((self.size, self.size))
        matrix[self._free] = np.asarray(released, np.float64) / 4.0**_BITS
        indicators = np.flatnonzero(np.concatenate([[False], self.shape.indicators, [False]]))
        matrix[indicators, indicators] = matrix[0, indicators]
        return matrix + np.triu(matrix, 1).T

    def solve(self, released: NDArray[np.int64], epsilon: Fraction, profile: TableProfile) -> tuple[Floats, float]:
        """Return slopes and constant for a target in units of the profile's spread around its middle.

        Covariances are those around the noisy means. Eigenvalues that the noise hides are raised to its level, which is
        also the penalty.
        """
        sums = self.unpack(released)
        rows = max(float(sums[0, 0]), 1.0)
        means = np.clip(sums[0, 1:] / rows, -1.0, 1.0)
        covariance = sums[1:, 1:] - rows * np.outer(means, means)
        noise = math.sqrt(2) * float(self.sensitivity.amount / epsilon) / 4.0**_BITS
        hidden = _HIDDEN * noise * math.sqrt(self.size)
        values, vectors = np.linalg.eigh(covariance[:-1, :-1])
        slopes = vectors @ ((vectors.T @ covariance[:-1, -1]) / (np.maximum(values, hidden) + hidden))
        constant = (means[-1] - slopes @ means[:-1] - profile.target_middle) / profile.target_spread
        return slopes / profile.target_spread, float(constant)
