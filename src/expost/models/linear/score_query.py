"""Scores people know, as sums over rows with a bounded share of each row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Measure, Norm, Sealed, Sensitivity
from expost.data.matrix import GRID_BITS, UnitBall, UnitRows
from expost.models.linear.losses import Logistic

__all__ = ["ScoreQuery"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)


@dataclass(frozen=True)
class ScoreQuery:
    """An integer that is at least ``threshold`` exactly when a model reaches its score on the rows.

    Without a number of ``rows``, which is private then, every row brings its own part of the goal and the threshold is 0.
    Coefficients must be ``exact``, so that no score depends on where a row stands.

    accuracy: the number of rows with the right sign, a label that is no class (0) having none. log loss: minus the sum of logistic losses of coefficients within
    ``radius``. rmse: minus the sum of squared errors of predictions kept within 1. r2: (1 - goal) times the squared
    deviations from the mean, minus the squared errors. Proof of the sensitivities: docs/proofs/score-tests.md.
    """

    measure: Measure
    goal: float
    rows: int | None
    radius: float = math.inf
    """The largest |score| of a row, for the log loss."""
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    """Added or removed rows move a sum of losses no further than replaced ones, and all such sums in one direction."""

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one row moves the integer."""
        return Sensitivity(self._units, adjacency=self.adjacency)

    @property
    def interval(self) -> tuple[int, int]:
        """How far down and how far up a row moves the integer when it is added, if the number of rows is private."""
        match self.measure:
            case Measure.ACCURACY:
                return self._mark, (1 << GRID_BITS) - self._mark
            case Measure.R2:
                return math.ceil(4.0 / _GRID) + 2, math.ceil(4.0 * (1 - self.goal) / _GRID) + 2
            case _:
                return max(self._largest - self._mark, 0), max(self._mark, 0)

    def added_share(self, threshold_share: Fraction) -> Fraction:
        """What an added row costs in a test, as a part of what a replaced one does (docs/proofs/row-identity.md, Lemma 3)."""
        return threshold_share * Fraction(max(self.interval), sum(self.interval)) + (1 - threshold_share) / 2

    @property
    def _mark(self) -> int:
        """The part of the goal that each row brings, rounded against the model."""
        match self.measure:
            case Measure.ACCURACY:
                return min(math.ceil(self.goal / _GRID), 1 << GRID_BITS)
            case Measure.LOG_LOSS:
                return math.floor(self.goal / _GRID)
            case Measure.RMSE:
                return math.floor(self.goal**2 / _GRID)
            case _:
                return 0

    @property
    def _units(self) -> int:
        if self.rows is None:
            return sum(self.interval)
        return 1 if self.measure is Measure.ACCURACY else self._largest

    @property
    def _largest(self) -> int:
        """The longest way of a replaced row, in grid units."""
        match self.measure:
            case Measure.LOG_LOSS:
                largest = float(np.logaddexp(0.0, self.radius))
            case Measure.RMSE:
                largest = 4.0  # two numbers between -1 and 1 differ by at most 2
            case Measure.R2:
                largest = 4.0 + 4.0 * (1 - self.goal)
            case _:
                raise InvalidRequest("Expected a score", got=self.measure.value, do="Ask for the excess risk instead")
        return math.ceil(largest / _GRID) + 2  # rounding

    @property
    def threshold(self) -> int:
        """What the integer must reach; rounded against the model."""
        if self.rows is None:
            return 0
        match self.measure:
            case Measure.ACCURACY:
                return math.ceil(self.goal * self.rows - 1e-9)
            case Measure.LOG_LOSS:
                return -math.floor(self.goal * self.rows / _GRID)
            case Measure.RMSE:
                return -math.floor(self.goal**2 * self.rows / _GRID)
            case _:
                return 0

    def ask(self, rows: UnitRows, theta: Floats, *, minus: int = 0) -> Sealed:
        """The sealed integer of one model, less a public number."""
        if self.measure is Measure.R2:
            exact = self._explained(rows, theta)
        else:
            exact = sum(self._share(features @ (theta * _GRID), target) for features, target in rows.chunks())
        return Sealed(exact - minus, self.sensitivity)

    def exact(self, theta: Floats, ball: UnitBall) -> Floats:
        """Coefficients cut to a grid on which the score of a row is exact, in whatever order its terms are added.

        A row's numbers are integers whose magnitudes add up to ``2^GRID_BITS spread`` at most; times multiples of 2^-b below
        ``radius`` they and their sums stay below 2^53 multiples.
        """
        spread = 1.0 if ball.norm is Norm.L1 else math.sqrt(ball.dimension)
        largest = spread * (float(np.abs(theta).max(initial=0.0)) if math.isinf(self.radius) else self.radius)
        bits = 52 - GRID_BITS - math.ceil(math.log2(max(largest, 2.0**-GRID_BITS)))
        return np.ldexp(np.trunc(np.ldexp(theta, bits)), -bits)

    def _share(self, score: Floats, target: Floats) -> int:
        """One chunk's share of the integer."""
        if self.rows is not None:
            return self._chunk(score, target)
        unit = 1 << GRID_BITS if self.measure is Measure.ACCURACY else 1
        sign = -1 if self.measure is Measure.ACCURACY else 1
        return unit * self._chunk(score, target) + sign * self._mark * len(target)

    def _chunk(self, score: Floats, target: Floats) -> int:
        """One chunk's count or loss; losses are rounded up row by row, so that the sum is exact and never flatters."""
        if self.measure is Measure.ACCURACY:
            # A target of 0 is a label that is no class: no prediction gets it right.
            return int(np.count_nonzero(((score > 0) == (target > 0)) & (target != 0)))
        if self.measure is Measure.LOG_LOSS:
            losses = Logistic().value(np.clip(score, -self.radius, self.radius), target)
        else:
            losses = (np.clip(score, -1.0, 1.0) - target * _GRID) ** 2
        return -int(np.ceil(losses / _GRID).sum())

    def _explained(self, rows: UnitRows, theta: Floats) -> int:
        errors = total = squares = count = 0
        for features, target in rows.chunks():
            errors -= ScoreQuery(Measure.RMSE, 1.0, self.rows)._chunk(features @ (theta * _GRID), target)
            total += int(target.sum())
            count += len(target)
            squares += int(np.floor(target**2 * _GRID).sum())
        # Squared deviations from the mean, in the same units: sum y^2 - (sum y)^2 / n, rounded down.
        divisor = max(count, 1) if self.rows is None else self.rows
        deviations = squares - -(-(total**2) // (divisor << GRID_BITS))
        return math.floor((1 - self.goal) * deviations) - errors
