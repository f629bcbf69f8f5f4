"""Objective perturbation on encoded rows: one exact minimum under a random tilt, pure, for classes or a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, SingleOwner, Unit
from expost.data.row_source import CHUNK_ROWS, ChunkFunction
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows
from expost.models.linear.fit_neighbours import FitNeighbours
from expost.models.linear.row_loss import LogisticLoss, RowLoss, TruncatedSquare
from expost.models.linear.tilted_risk import LaplaceTilt, TiltedRisk
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.table_profile import ChangedBlocks, RowBlocks, TableProfile, is_far, sum_blocks
from expost.models.tabular.tabular_rows import ChunkSum, RowChunk
from expost.noise import BitSource

__all__ = ["USUAL_CURVATURE", "EncodedBall", "EncodedRows", "KeptRows", "TiltedTable"]

T = TypeVar("T")
Floats = NDArray[np.float64]
Chunk = tuple[Floats, Floats, Floats | None]

_REACH = 1.5  # residuals beyond so many deviations of the target pull no harder
# Of epsilon, for the change of variables, which sets the penalty. Chosen on adult (epsilon 0.1 to 2) and on flight delays.
_NUMERIC_JACOBIAN, _CLASS_JACOBIAN, _MORE_JACOBIAN = 0.4, 0.1, 0.1
_HIDDEN = 0.3  # of the tilt's effect on a usual coefficient, for the noise that hides the solver's float error
_PENALTIES = 8  # each twice as large, about, as the one before
_CACHED_VALUES = 1 << 26  # encoded rows up to this size are kept between passes: 256 MB
_GRID = 2.0**GRID_BITS
USUAL_CURVATURE = {True: 0.025, False: 0.1}
"""The curvature of a row's loss along a usual coefficient: for classes, for numbers."""


@dataclass(frozen=True)
class EncodedBall(UnitBall):
    """The unit ball of the 1-norm, and in it the smaller set of encoded rows with a constant column.

    Features are divided by ``bound``, the largest sum of magnitudes of a row and its constant 1.
    """

    squares: float = 1.0
    """The largest squared Euclidean length of a row's features and its constant, before the division."""

    @classmethod
    def of(cls, shape: EncodedShape) -> EncodedBall:
        """Return the ball of rows of a shape."""
        longest = (shape.absolute_length + 1) * (1 + 1e-9)
        return cls(shape.width, Norm.L1, longest, intercept=True, squares=shape.squared_length + 1)

    @property
    def squared_length(self) -> float:
        return min(1.0, self.squares / self.bound**2)

    def grid_features(self, features: NDArray[Any]) -> Floats:
        """Return rows in grid units, truncated toward zero, with the constant column."""
        rows = np.empty((len(features), self.dimension))
        rows[:, : self.width] = features
        rows[:, self.width] = 1.0
        rows *= _GRID / self.bound
        return np.trunc(rows, out=rows)

    def unscale(self, theta: Floats) -> tuple[Floats, float]:
        """Convert coefficients of rows in the ball to slopes and a constant for encoded features."""
        return theta[: self.width] / self.bound, float(theta[self.width]) * math.trunc(_GRID / self.bound) / _GRID


class EncodedRows(UnitRows):
    """Encoded rows in the unit ball, with signs of classes or numbers as targets. They cannot be printed or pickled.

    Rows with a label that is not a class are left out, as are rows outside the public set. ``blocks`` has chunks of
    ``CHUNK_ROWS`` rows (``KeptRows``), which bounds on float errors rest on.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        shape: EncodedShape,
        profile: TableProfile,
        *,
        units: int,
        classes: bool,
        positive: int = 1,
    ) -> None:
        self.rows, self.ball = units, EncodedBall.of(shape)
        self._blocks = blocks
        self._encode = _EncodeChunk(self.ball, shape, profile, classes, positive)

    def reduce(self, function: ChunkFunction[T], merge: Callable[[T, T], T]) -> T:
        return sum_blocks(ChangedBlocks(self._blocks, self._encode), function)

    def weighted_chunks(self) -> Iterator[Chunk]:
        """Yield all rows in grid units, with targets and weights."""
        return map(self._encode, self._blocks())


@dataclass(frozen=True)
class _EncodeChunk:
    """Writes the rows of the public set in grid units, with targets and weights."""

    ball: UnitBall
    shape: EncodedShape
    profile: TableProfile
    classes: bool
    positive: int = 1
    """The class that is told from the others."""

    def __call__(self, rows: RowChunk) -> Chunk:
        ball, profile = self.ball, self.profile
        assert isinstance(ball, EncodedBall)
        known = self.shape.contains(rows.features)
        if self.classes:
            known &= np.asarray(rows.targets) >= 0
            targets = np.where(np.asarray(rows.targets) == self.positive, 1.0, -1.0)
        else:
            targets = (np.asarray(rows.targets, np.float64) - profile.target_middle) / profile.target_spread
        weights = np.asarray(rows.weights, np.float64)
        return ball.grid_features(rows.features[known]), targets[known], weights[known]


class KeptRows(SingleOwner):
    """Reads rows in chunks of exactly ``CHUNK_ROWS`` rows, the last one shorter, and keeps them if they are few. SECRET."""

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(self, blocks: RowBlocks) -> None:
        super().__init__()
        self._blocks = blocks
        self._kept: list[RowChunk] | None = None

    def __call__(self) -> Iterable[RowChunk]:
        return self._read() if self._kept is None else self._kept

    def sum(self, function: ChunkSum[T]) -> T:
        """Return the sum that a function makes of all chunks: where the rows lie, if they are not read here."""
        return sum_blocks(self._blocks, function) if is_far(self._blocks) else function(self())

    def _read(self) -> Iterator[RowChunk]:
        kept: list[RowChunk] | None = []
        values = 0
        for part in _repack(self._blocks()):
            values += part.features.size
            if kept is not None:
                kept.append(part)
                kept = kept if values <= _CACHED_VALUES else None
            yield part
        self._kept = kept

    def __repr__(self) -> str:
        return "<rows of a private table>"


def _repack(parts: Iterable[RowChunk]) -> Iterator[RowChunk]:
    """Yield the same rows in chunks of one size, the last one shorter."""
    waiting: list[RowChunk] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part.targets)
        if count >= CHUNK_ROWS:
            joined = RowChunk(*(np.concatenate(each) for each in zip(*waiting, strict=True)))
            whole = count - count % CHUNK_ROWS
            for start in range(0, whole, CHUNK_ROWS):
                yield RowChunk(*(each[start : start + CHUNK_ROWS] for each in joined))
            waiting, count = [RowChunk(*(each[whole:] for each in joined))], count - whole
    if count:
        yield RowChunk(*(np.concatenate(each) for each in zip(*waiting, strict=True)))


@dataclass(frozen=True)
class _TableNeighbours(FitNeighbours):
    """Neighbours of a table whose number of rows is a noisy count of units."""

    @property
    def crowd(self) -> int:
        # A table of so many units may have as many rows each, which sums of floats must allow for.
        return super().crowd * self.rows_per_unit


def _hides_little(risk: TiltedRisk, epsilon: Fraction, curvature: float) -> bool:
    """Return whether the noise that hides the solver's float error is small compared with that of the tilt."""
    prices, law = risk.prices, risk.law
    assert isinstance(law, LaplaceTilt)
    try:
        level, output = prices.split(epsilon)
        hidden = prices.output_sensitivity(epsilon) / float(output)
    except InvalidRequest:
        return False
    return hidden <= _HIDDEN * float(law.scale_at(level)) / curvature


@dataclass(frozen=True)
class TiltedTable:
    """Fits a linear model of encoded rows by objective perturbation, each time at an epsilon of its own.

    The penalty follows from epsilon and the shape: the change of variables takes a fixed share of epsilon. Residuals of
    a numeric target are in units of its released spread, and cut at a multiple of it, which bounds their gradients.

    Guarantee: pure epsilon-DP for each ``release``; several of them add up.
    Adjacency: add/remove of one unit; the rows of a unit share a weight of 1.
    Sensitivity: that of ``TiltedRisk`` for rows of 1-norm at most 1.
    Accuracy: none promised; a private test measures the score.
    Numerics: see ``TiltedRisk``.
    Reference: docs/proofs/pure-tabular-models.md, Theorem 1; docs/proofs/objective-perturbation.md;
        docs/proofs/added-units.md.
    """

    shape: EncodedShape
    classes: bool
    unit: Unit = Unit()
    rows_per_unit: int = 1
    name = "objective perturbation on encoded columns"

    def build_risk(self, epsilon: Fraction, profile: TableProfile, units: int) -> TiltedRisk:
        """Return the perturbed problem at an epsilon; everything in it is public or released."""
        neighbours = _TableNeighbours(Adjacency.ADD_REMOVE, self.unit, self.rows_per_unit)
        loss: RowLoss = LogisticLoss()
        if not self.classes:
            loss = TruncatedSquare(
                _REACH
            )  # in units of the spread the usual loss at zero is 1/2, and only lengths depend on it
        ball, level = EncodedBall.of(self.shape), float(epsilon)
        # Classes need a larger penalty at a small epsilon, where noise would make long coefficients.
        part = _CLASS_JACOBIAN + _MORE_JACOBIAN * min(level, 1.0) if self.classes else _NUMERIC_JACOBIAN
        # Curvature of a usual coefficient in the ball, summed over the units.
        curvature = units * USUAL_CURVATURE[self.classes] / ball.bound**2
        for _ in range(_PENALTIES):
            ratio = math.expm1(part * level) if self.unit.is_row else part * level
            penalty = loss.sharpest * ball.squared_length / ratio / units
            risk = TiltedRisk(loss, ball, units, penalty, None, neighbours)
            if _hides_little(risk, epsilon, curvature):
                break
            part /= 2
        return risk

    def release(
        self,
        blocks: RowBlocks,
        epsilon: Fraction,
        profile: TableProfile,
        units: int,
        bits: BitSource | None,
        *,
        positive: int = 1,
    ) -> tuple[Floats, float]:
        """Return slopes and constant of the scores of encoded rows; those of one class against the others."""
        risk = self.build_risk(epsilon, profile, units)
        try:
            risk.prices.output_sensitivity(epsilon)
        except InvalidRequest:  # floats cannot resolve the problem: a fact about released numbers
            return np.zeros(self.shape.width), 0.0
        rows = EncodedRows(blocks, self.shape, profile, units=units, classes=self.classes, positive=positive)
        theta = risk.release(rows, epsilon, bits=bits)
        return EncodedBall.of(self.shape).unscale(theta)
