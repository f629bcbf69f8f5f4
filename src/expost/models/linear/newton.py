"""The minimum of a regularised mean loss plus a linear term, to a proven distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from expost.core import EngineFailed, InvalidRequest, Norm
from expost.data.matrix import GRID_BITS, UnitBall, UnitRows, summation_error
from expost.models.linear.losses import Loss

__all__ = ["Objective", "minimise", "solver_distance"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
_STEPS = 200
_FLAT = 1e-11  # relative decrease of the objective below which its values are mostly rounding
_HALVINGS = 40
_TOLERANCE = 2.0**-38  # of the gradient; Newton's method passes it by orders of magnitude in its last step
_UNIT = 2.0**-53  # the rounding error of float64
_FLOAT_SHARE = 1 / 64  # of the penalty, at most: how fast the rounding error of a gradient grows with theta


@dataclass(frozen=True)
class Objective:
    """mean loss + penalty / 2 |theta|^2 + tilt . theta, over gridded rows; targets are in the loss's own units."""

    rows: UnitRows
    loss: Loss
    penalty: float
    tilt: Floats
    target_scale: float = 1.0

    def _scored(self, theta: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Features in grid units, scores, targets; chunk by chunk."""
        for features, target in self.rows.chunks():
            yield features, features @ (theta * _GRID), target * self.target_scale

    def value(self, theta: Floats) -> float:
        """The objective."""
        return self.evaluate(theta)[0]

    def gradient(self, theta: Floats) -> Floats:
        """Its gradient."""
        return self.evaluate(theta)[1]

    def evaluate(self, theta: Floats) -> tuple[float, Floats]:
        """Value and gradient, in one pass over the rows."""
        total, slopes = 0.0, np.zeros(len(theta))
        for features, score, target in self._scored(theta):
            total += float(self.loss.value(score, target).sum())
            slopes += self.loss.slope(score, target) @ features
        value = total / self.rows.rows + self.penalty / 2 * float(theta @ theta) + float(self.tilt @ theta)
        return value, slopes * (_GRID / self.rows.rows) + self.penalty * theta + self.tilt

    def hessian(self, theta: Floats) -> Floats:
        """Its matrix of second derivatives; an approximation is enough, it only steers."""
        total = np.zeros((len(theta), len(theta)))
        for features, score, target in self._scored(theta):
            weighted = features * np.sqrt(self.loss.curvature(score, target))[:, None]
            total += weighted.T @ weighted
        total *= _GRID**2 / self.rows.rows
        total[np.diag_indices_from(total)] += self.penalty
        return total


def minimise(objective: Objective) -> Floats:
    """A point within ``solver_distance`` of the minimum.

    Damped Newton steps from zero; they converge from anywhere because the objective is strongly convex.
    """
    length = float(np.linalg.norm(objective.tilt))
    ball, rows, penalty = objective.rows.ball, objective.rows.rows, objective.penalty

    def tolerance(theta: Floats) -> float:
        return _tolerance(_gradient_error(objective.loss, ball, rows, penalty, float(np.linalg.norm(theta)), length))

    return _descend(objective, tolerance)


def solver_distance(loss: Loss, ball: UnitBall, *, rows: int, penalty: float, radius: float, tilt: float) -> float:
    """How far what ``minimise`` returns can be from an exact minimum of at most this length; a public number.

    A convex function whose curvature is at least ``penalty`` has its minimum within |gradient| / penalty. The gradient
    is at most the tolerance as computed, plus what float64 can hide (docs/proofs/objective-perturbation.md, 6).
    ``radius`` bounds the norm of the minimum and ``tilt`` that of the linear term.
    """

    def hidden(length: float) -> float:
        error = _gradient_error(loss, ball, rows, penalty, length, tilt)
        return _tolerance(error) + error

    if hidden(1.0) - hidden(0.0) > _FLOAT_SHARE * penalty:
        raise InvalidRequest(
            "Expected a regularization that float64 can resolve for this table", do="Ask for a larger regularization"
        )
    # Where the solver stops may itself be longer than the radius, by this distance: divide by 1 - _FLOAT_SHARE.
    return hidden(radius) / (penalty * (1 - _FLOAT_SHARE))


def _tolerance(error: float) -> float:
    return _TOLERANCE + 4 * error


def _gradient_error(loss: Loss, ball: UnitBall, rows: int, penalty: float, radius: float, tilt: float) -> float:
    """How much float64 can put a computed gradient off, in Euclidean norm.

    Rows have norm at most 1. Scores are inner products of ``dimension`` terms, so they are off by at most
    (dimension + 2) u |theta| and move slopes by ``sharpest`` times that; elementary functions add a few u. The mean of
    slope times row is then summed chunk by chunk. The last three terms are plain additions.
    """
    spread = 1.0 if ball.norm is Norm.L1 else math.sqrt(ball.dimension)  # 1-norm of a row: errors add coordinatewise
    slope = loss.sharpest * (ball.dimension + 2) * _UNIT * (radius + 1) + 64 * _UNIT * loss.steepest
    mean = summation_error(rows) * loss.steepest * spread
    return slope * spread + mean + 4 * _UNIT * (penalty * radius + tilt + loss.steepest)


def _descend(objective: Objective, tolerance: Callable[[Floats], float]) -> Floats:
    theta = np.zeros(len(objective.tilt))
    value, gradient = objective.evaluate(theta)
    for _ in range(_STEPS):
        if np.linalg.norm(gradient) <= tolerance(theta):
            return theta
        theta, value, gradient = _step(objective, theta, value, gradient)
    # Never seen; the run stays charged at its worst case and nothing leaves.
    raise EngineFailed("Expected the solver to converge", do="Ask for a larger regularization")


def _step(objective: Objective, theta: Floats, value: float, gradient: Floats) -> tuple[Floats, float, Floats]:
    """A Newton step, halved until it descends (Armijo); where values differ by rounding only, gradients decide."""
    direction = cho_solve(cho_factor(objective.hessian(theta)), gradient)
    decrease = float(gradient @ direction)
    flat = decrease <= _FLAT * max(1.0, abs(value))
    size = 1.0
    for _ in range(_HALVINGS):
        ahead = theta - size * direction
        there, slope = objective.evaluate(ahead)
        if np.linalg.norm(slope) < np.linalg.norm(gradient) if flat else there <= value - 1e-4 * size * decrease:
            break
        size /= 2
    return ahead, there, slope
