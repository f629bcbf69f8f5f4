"""The exact regularised risk of many hypotheses at once; private numbers that leave only as sealed queries."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, Norm, Sealed, Sensitivity
from expost.data.matrix import GRID_BITS, UnitRows
from expost.models.linear.losses import Logistic, Loss, TruncatedSquare
from expost.models.linear.newton import Objective, minimise

__all__ = ["ExactRisk"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
_ROWS = 512  # scores of so many rows and of a block of hypotheses fit the cache
_FACTORS = 256  # of at most 2, whose product is far from overflow
_QUERY_BITS = 24  # a query's grid is this much finer than its tolerance


class ExactRisk:
    """Mean loss plus penalty / 2 |theta|^2, and its minimum; nothing of it can be printed or pickled."""

    def __init__(self, rows: UnitRows, loss: Loss, penalty: float, *, target_scale: float) -> None:
        self._rows, self._loss, self._penalty, self._scale = rows, loss, penalty, target_scale
        tilt = np.zeros(rows.ball.dimension)
        self._best = minimise(Objective(rows, loss, penalty, tilt, target_scale))
        self._moments = self._square_moments() if isinstance(loss, TruncatedSquare) else None
        self._lowest = float(self._values(self._best[None])[0])

    @property
    def dimension(self) -> int:
        """The number of coefficients."""
        return self._rows.ball.dimension

    def seal_minimum(self, step: float, sensitivity: int, norm: Norm = Norm.L1) -> Sealed:
        """The minimum on a grid of this step, sealed with its sensitivity in steps."""
        gridded = np.rint(self._best / step).astype(np.int64)
        return Sealed(gridded, Sensitivity(sensitivity, norm, Adjacency.REPLACE_ONE))

    def seal_excess(self, thetas: Floats, *, sensitivity: float, tolerance: float) -> list[Sealed]:
        """Minus the excess risk of each hypothesis, as a sealed integer; see ``query_step`` for its unit."""
        step = query_step(tolerance)
        excess = np.maximum(self._values(thetas) - self._lowest, 0.0)
        declared = Sensitivity(query_units(sensitivity, tolerance), adjacency=Adjacency.REPLACE_ONE)
        largest = 2**60 * step
        return [Sealed(-round(value / step), declared) for value in np.minimum(excess, largest).tolist()]

    def seal_gradient(self, theta: Floats, *, step: float, sensitivity: Sensitivity) -> Sealed:
        """Minus the length of the gradient at one hypothesis in steps, rounded against it, as a sealed integer."""
        flat = np.zeros(self.dimension)
        gradient = Objective(self._rows, self._loss, self._penalty, flat, self._scale).gradient(theta)
        return Sealed(-math.ceil(min(float(np.linalg.norm(gradient)) / step, 2.0**60)), sensitivity)

    def _values(self, thetas: Floats) -> Floats:
        penalty = self._penalty / 2 * (thetas**2).sum(axis=1)
        if self._moments is not None:
            gram, cross, square = self._moments
            fitted: Floats = (np.einsum("ki,ki->k", thetas @ gram, thetas) - 2 * thetas @ cross + square) / 2
            return np.asarray(fitted + penalty)
        total, columns = np.zeros(len(thetas)), thetas.T * _GRID
        for features, target in self._rows.chunks():
            for start in range(0, len(features), _ROWS):
                part = slice(start, start + _ROWS)
                total += self._totals(features[part] @ columns, target[part] * self._scale)
        values: Floats = total / self._rows.rows + penalty
        return values

    def _totals(self, scores: Floats, target: Floats) -> Floats:
        if isinstance(self._loss, Logistic):
            return logistic_totals(scores, target)
        return np.asarray(self._loss.value(scores, target[:, None]).sum(axis=0))

    def _square_moments(self) -> tuple[Floats, Floats, float]:
        width = self._rows.ball.dimension
        gram, cross, square = np.zeros((width, width)), np.zeros(width), 0.0
        for features, target in self._rows.chunks():
            scaled = target * self._scale
            gram += features.T @ features
            cross += scaled @ features
            square += float(scaled @ scaled)
        rows = self._rows.rows
        return gram * (_GRID**2 / rows), cross * (_GRID / rows), square / rows

    def __repr__(self) -> str:
        return "<exact risk of a private table>"

    def __reduce__(self) -> str:
        raise TypeError("Expected an exact risk to stay in its process.")


def logistic_totals(scores: Floats, signs: Floats) -> Floats:
    """The sum over rows of log(1 + exp(-sign score)), a column a hypothesis; ``scores`` is used up.

    log(1 + exp(-m)) = (|m| - m) / 2 + log(1 + exp(-|m|)), and the last factors lie in (1, 2]: 256 of them are multiplied before
    one logarithm is taken.

    >>> logistic_totals(np.array([[0.0, 1.0], [0.0, -2.0]]), np.array([1.0, -1.0])).round(3)
    array([1.386, 0.44 ])
    """
    along = signs @ scores
    size = np.abs(scores, out=scores)
    total: Floats = (np.abs(signs) @ size - along) / 2
    np.negative(size, out=size)
    factors = np.exp(size, out=size)
    factors += 1.0
    products = np.multiply.reduceat(factors, np.arange(0, len(factors), _FACTORS), axis=0)
    total += np.log(products).sum(axis=0)
    return total


def query_step(tolerance: float) -> float:
    """The unit of sealed excess risks."""
    return math.ldexp(1.0, math.floor(math.log2(tolerance)) - _QUERY_BITS)


def query_units(sensitivity: float, tolerance: float) -> int:
    """The sensitivity of a sealed excess risk in its unit: one more for rounding, one for float64."""
    return math.ceil(sensitivity / query_step(tolerance)) + 2
