"""Exact moments of columns within public bounds, released under noise: what scaler and principal components are made of."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    Adjacency,
    ApproxGuarantee,
    ApproxLoss,
    InvalidRequest,
    Loss,
    Norm,
    Outcome,
    PlanContext,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    Unit,
)
from expost.data.row_source import RowSource, plain_numbers
from expost.noise import BitSource, GaussianMechanism, LaplaceMechanism

__all__ = ["BOX_BITS", "BoundedColumns", "ColumnLayout", "ColumnMoments", "MomentRelease"]

BOX_BITS = 20
"""Fractional bits of a value within its bounds. Products have 40, so float64 adds 2^13 of them without rounding."""

_FLUSH = 256  # chunks whose sums, each at most 2^53, together fit into 62 bits

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BoundedColumns:
    """The public numbers that map a raw row to [-1, 1] in every column.

    Values outside the bounds are moved to the nearest bound. A missing value counts as 0, the middle of the bounds.

    >>> BoundedColumns((0.0, 10.0), (10.0, 20.0)).center_rows(np.array([[5.0, 20.0], [99.0, np.nan]])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.lows)

    @property
    def middles(self) -> Floats:
        """The middle of each column's bounds."""
        middles: Floats = (np.array(self.highs) + np.array(self.lows)) / 2
        return middles

    @property
    def half_widths(self) -> Floats:
        """Half the width of each column's bounds: the unit of centered values."""
        halves: Floats = (np.array(self.highs) - np.array(self.lows)) / 2
        return halves

    def clip_rows(self, raw: Any, missing: Any = np.nan) -> Floats:
        """Return raw rows with every value within its bounds; ``missing`` replaces missing ones, per column or all."""
        rows = np.clip(plain_numbers(raw), self.lows, self.highs)
        filled: Floats = np.where(np.isnan(rows), missing, rows)
        return filled

    def center_rows(self, raw: Any) -> Floats:
        """Return rows in [-1, 1]; a missing value is 0."""
        rows: Floats = (self.clip_rows(raw, self.middles) - self.middles) / self.half_widths
        np.clip(rows, -1.0, 1.0, out=rows)
        return rows

    def grid_rows(self, raw: Any) -> Floats:
        """Return centered rows as integers of 2^-BOX_BITS, truncated toward zero, so that none leaves [-1, 1]."""
        return np.trunc(self.center_rows(raw) * 2.0**BOX_BITS)


@dataclass(frozen=True)
class ColumnLayout:
    """The layout of the moments of centered columns in one integer vector, in units of 2^-BOX_BITS.

    First the number of rows, unless it is public; then the sums of z. Without ``products`` follow the sums of z^2 and the
    numbers of missing values, with them the upper triangle of the sums of z z'.

    >>> layout = ColumnLayout(3)
    >>> layout.size, float(layout.sensitivity(Norm.L1).amount) / 2**BOX_BITS < 7.0001
    (10, True)
    """

    width: int
    products: bool = False
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    @property
    def counts_rows(self) -> bool:
        """Whether the number of rows is part of the vector."""
        return not self.adjacency.public_size

    @property
    def size(self) -> int:
        """The number of coordinates."""
        width = self.width
        return self.counts_rows + width + (width * (width + 1) // 2 if self.products else 2 * width)

    def sensitivity(self, norm: Norm) -> Sensitivity:
        """Return the most that one row can move the vector (docs/proofs/column-moments.md)."""
        width = self.width
        pairs = width * (width - 1) // 2
        if self.adjacency is Adjacency.ADD_REMOVE:
            # |z| + z^2 <= 2 and z^2 + z^4 <= 2 per column; a missing value adds 1 instead. Each |z_i z_j| <= 1.
            one = two = 1 + 2 * width + (pairs if self.products else 0)
        elif self.products:
            one, two = 3 * width + 2 * pairs, 5 * width + 4 * pairs
        else:  # the largest moves of (z, z^2, missing): from (1, 1, 0) to (0, 0, 1), and from (1, 1, 0) to (-1, 1, 0)
            one, two = 3 * width, 4 * width
        # Rounding the sums moves each coordinate of either neighbour by at most half a unit.
        if norm is Norm.L1:
            return Sensitivity(one * 2**BOX_BITS + self.size, Norm.L1, self.adjacency)
        length = Sensitivity.from_square(two * 4**BOX_BITS).amount + Sensitivity.from_square(self.size).amount
        return Sensitivity(length, Norm.L2, self.adjacency)

    def sum_rows(self, source: RowSource, columns: BoundedColumns) -> NDArray[Any]:
        """Sum exactly. SECRET: the caller must seal the result."""
        total = source.fold(functools.partial(self._sum_chunks, columns), operator.add)
        # All of them have 40 fractional bits here, the released ones 20.
        return (total + (1 << (BOX_BITS - 1))) >> BOX_BITS

    def _sum_chunks(self, columns: BoundedColumns, chunks: Iterable[tuple[Any, Any, Any]]) -> NDArray[Any]:
        total: NDArray[Any] = np.zeros(self.size, dtype=object)
        part = np.zeros(self.size, dtype=np.int64)
        for index, (features, _, _) in enumerate(chunks, start=1):
            part += self._sum_chunk(columns, features)
            if index % _FLUSH == 0:
                total, part = total + part, np.zeros_like(part)
        return total + part

    def _sum_chunk(self, columns: BoundedColumns, features: Any) -> NDArray[np.int64]:
        # Integers up to 2^20 in chunks of 2^13 rows: every partial sum is an integer up to 2^53, exact in float64.
        grid, unit = columns.grid_rows(features), 2.0**BOX_BITS
        packed = [np.full(1, len(grid) * unit**2)] if self.counts_rows else []
        packed.append(grid.sum(axis=0) * unit)
        if self.products:
            packed.append((grid.T @ grid)[np.triu_indices(self.width)])
        else:
            packed += [(grid * grid).sum(axis=0), np.isnan(plain_numbers(features)).sum(axis=0) * unit**2]
        return np.concatenate(packed).astype(np.int64)

    def unpack(self, values: NDArray[Any], rows: int | None) -> MomentRelease:
        """Convert a released vector to numbers; ``rows`` is the public number of rows, if it is public."""
        numbers = np.asarray(values, dtype=np.float64) * 2.0**-BOX_BITS
        count = float(numbers[0]) if self.counts_rows else float(rows or 1)
        sums, rest = numbers[self.counts_rows :][: self.width], numbers[self.counts_rows + self.width :]
        if not self.products:
            return MomentRelease(count, sums, squares=rest[: self.width], missing=rest[self.width :])
        matrix = np.zeros((self.width, self.width))
        matrix[np.triu_indices(self.width)] = rest
        return MomentRelease(count, sums, products=matrix + np.triu(matrix, 1).T)


@dataclass(frozen=True, eq=False)
class MomentRelease:
    """Released sums over rows of centered columns."""

    rows: float
    sums: Floats
    squares: Floats | None = None
    missing: Floats | None = None
    products: Floats | None = None


@dataclass(frozen=True)
class ColumnMoments:
    """Releases the moments of columns once, under Laplace noise or, with a delta, Gaussian noise.

    It is a query and, since it needs no public fact beyond its own arguments, its own plan.

    Guarantee: pure DP with the given epsilon, or (epsilon, delta)-DP with a delta; known before the run.
    Adjacency: add/remove or replace-one, one row, as the table is described.
    Sensitivity: L1 or L2 over all moments together, of columns clipped to their public bounds.
    Accuracy: none is promised; ``noise_deviation`` is the standard deviation of the noise of each sum.
    Numerics: exact integer sums and exact integer noise; what is made of them is post-processing in floats.
    Reference: docs/proofs/column-moments.md (sensitivity); DMNS06, Proposition 1; BW18, Theorem 8.
    """

    question: str
    columns: BoundedColumns
    layout: ColumnLayout
    epsilon: Fraction
    delta: Fraction
    rows: int | None
    build: Callable[[MomentRelease, float], Any]
    terms: dict[str, Any]

    def __post_init__(self) -> None:
        # The noise is made here, so that one that no sampler can draw is refused before anything is spent.
        if self.noise_deviation * 2.0**BOX_BITS > 2.0**55:
            raise InvalidRequest(
                "Expected an epsilon that these columns can be released at", got=float(self.epsilon), do="Raise epsilon"
            )

    def plan(self, dataset: Any, context: PlanContext) -> ColumnMoments:
        """Return itself."""
        return self

    @property
    def _mechanism(self) -> LaplaceMechanism | GaussianMechanism:
        if not self.delta:
            return LaplaceMechanism(self.epsilon)
        return GaussianMechanism(ApproxGuarantee(self.epsilon, self.delta))

    @property
    def _sensitivity(self) -> Sensitivity:
        return self.layout.sensitivity(Norm.L2 if self.delta else Norm.L1)

    @property
    def noise_deviation(self) -> float:
        """Return the standard deviation of the noise of one sum, in units of the half width of its bounds."""
        mechanism, size = self._mechanism, self.layout.size
        if isinstance(mechanism, LaplaceMechanism):
            units = math.sqrt(2) * float(mechanism.scale(self._sensitivity, coordinates=size))
        else:
            units = math.sqrt(float(mechanism.variance(self._sensitivity, coordinates=size)))
        return units * 2.0**-BOX_BITS

    @property
    def worst_case(self) -> Loss:
        """Return the bill, which is known before the run."""
        return ApproxLoss(self.epsilon, self.delta) if self.delta else PureLoss(self.epsilon)

    def measure(self, source: RowSource) -> Sealed:
        """Sum exactly and seal."""
        return Sealed(self.layout.sum_rows(source, self.columns), self._sensitivity)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Any]:
        """Release the moments and what is built of them."""
        values = self._mechanism.release(sealed, bits=bits)
        value = self.build(self.layout.unpack(values, self.rows), self.noise_deviation)
        receipt = Receipt(
            question=self.question,
            method=f"sums within public bounds under discrete {'Gaussian' if self.delta else 'Laplace'} noise",
            promise=self.worst_case.promise(),
            bill=self.worst_case,
            adjacency=self.layout.adjacency,
            unit=Unit.row(),
            outcome=Outcome.FIXED,
            terms=self.terms | {"noise of each sum": f"{self.noise_deviation:.4g} of half its bounds"},
            citations=("docs/proofs/column-moments.md", "BW18, Theorem 8" if self.delta else "DMNS06, Proposition 1"),
        )
        return Release(value, receipt)
