"""What a fit releases: a linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearModel"]


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Coefficients and intercept for raw rows; private by the receipt it came with.

    >>> LinearModel(np.array([1.0, 2.0]), 0.5).predict(np.array([[1.0, 1.0]]))
    array([3.5])
    """

    coefficients: NDArray[np.float64]
    intercept: float = 0.0
    limit: float | None = None
    """Predictions are kept within this magnitude, where the accuracy was tested so."""

    def predict(self, features: Any) -> NDArray[np.float64]:
        """The scores of raw rows."""
        scores: NDArray[np.float64] = features @ self.coefficients + self.intercept
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
