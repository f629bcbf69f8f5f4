"""What a fit releases: a linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.matrix import GRID_BITS, UnitBall, spans

__all__ = ["LinearModel", "UnitReading"]


@dataclass(frozen=True, eq=False)
class UnitReading:
    """How a fit read raw rows, and its coefficients for rows read so; all of it public or released.

    Rows are cut to the public bounds, missing values filled and the rest rounded exactly as in the fit. So an accuracy
    that was tested or certified on the rows of the fit is the accuracy of the predictions for them.

    >>> reading = UnitReading(UnitBall(width=1, bound=2.0), np.array([1.0]), target_bound=10.0)
    >>> reading.scores(np.array([[1.0], [2.0], [1e300], [np.nan]])).tolist()
    [5.0, 10.0, 10.0, 0.0]
    """

    ball: UnitBall
    coefficients: NDArray[np.float64]
    target_bound: float = 1.0

    def scores(self, features: Any) -> NDArray[np.float64]:
        """The scores of raw rows."""
        weights = self.coefficients * 2.0**-GRID_BITS
        scores = np.empty(features.shape[0])
        for start, stop in spans(*features.shape):
            scores[start:stop] = self.ball.gridded(features[start:stop]) @ weights
        return scores * self.target_bound


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Coefficients and intercept for raw rows; private by the receipt it came with.

    The coefficients hold for rows within the public bounds. ``predict`` reads rows as the fit did, where that is known.

    >>> LinearModel(np.array([1.0, 2.0]), 0.5).predict(np.array([[1.0, 1.0]]))
    array([3.5])
    """

    coefficients: NDArray[np.float64]
    intercept: float = 0.0
    limit: float | None = None
    """Predictions are kept within this magnitude, where the accuracy was tested so."""
    reading: UnitReading | None = None
    """How the fit read rows; none for a model made by hand."""

    def predict(self, features: Any) -> NDArray[np.float64]:
        """The scores of raw rows."""
        if self.reading is None:
            scores: NDArray[np.float64] = features @ self.coefficients + self.intercept
        else:
            scores = self.reading.scores(features)
        return scores if self.limit is None else np.clip(scores, -self.limit, self.limit)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LinearModel)
            and np.array_equal(self.coefficients, other.coefficients)
            and self.intercept == other.intercept
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LinearModel({len(self.coefficients)} coefficients, intercept {self.intercept:.4g})"
