"""Scores people know, as sums over rows with a bounded share of each row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Measure, Sealed, Sensitivity
from expost.data.matrix import GRID_BITS, UnitRows
from expost.learning.losses import Logistic

__all__ = ["ScoreQuery"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)


@dataclass(frozen=True)
class ScoreQuery:
    """An integer that is at least ``threshold`` exactly when a model reaches its score on the rows.

    accuracy: the number of rows with the right sign, a label that is no class (0) having none. log loss: minus the sum of logistic losses of coefficients within
    ``radius``. rmse: minus the sum of squared errors of predictions kept within 1. r2: (1 - goal) times the squared
    deviations from the mean, minus the squared errors. Proof of the sensitivities: docs/proofs/score-tests.md.
    """

    measure: Measure
    goal: float
    rows: int
    radius: float = math.inf
    """The largest |score| of a row, for the log loss."""
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    """Added or removed rows move a sum of losses no further than replaced ones, and all such sums in one direction."""

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one row moves the integer."""
        return Sensitivity(self._units, adjacency=self.adjacency)

    @property
    def _units(self) -> int:
        match self.measure:
            case Measure.ACCURACY:
                return 1
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
            exact = sum(self._chunk(features @ (theta * _GRID), target) for features, target in rows.chunks())
        return Sealed(exact - minus, self.sensitivity)

    def _chunk(self, score: Floats, target: Floats) -> int:
        """One chunk's share; losses are rounded up row by row, so that the sum is exact and never flatters."""
        if self.measure is Measure.ACCURACY:
            # A target of 0 is a label that is no class: no prediction gets it right.
            return int(np.count_nonzero(((score > 0) == (target > 0)) & (target != 0)))
        if self.measure is Measure.LOG_LOSS:
            losses = Logistic().value(np.clip(score, -self.radius, self.radius), target)
        else:
            losses = (np.clip(score, -1.0, 1.0) - target * _GRID) ** 2
        return -int(np.ceil(losses / _GRID).sum())

    def _explained(self, rows: UnitRows, theta: Floats) -> int:
        errors = total = 0
        squares = 0
        for features, target in rows.chunks():
            errors -= ScoreQuery(Measure.RMSE, 1.0, self.rows)._chunk(features @ (theta * _GRID), target)
            total += int(target.sum())
            squares += int(np.floor(target**2 * _GRID).sum())
        # Squared deviations from the mean, in the same units: sum y^2 - (sum y)^2 / n, rounded down.
        deviations = squares - -(-(total**2) // (self.rows << GRID_BITS))
        return math.floor((1 - self.goal) * deviations) - errors
