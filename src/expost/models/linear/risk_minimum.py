"""The minimum of a regularized risk: how it is found, how exactly, where it lies and how far one row moves it."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from expost.core import Adjacency, EngineFailed, InvalidRequest, Norm, Sealed, Sensitivity
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, WeightedChunk, summation_error
from expost.models.linear.linear_fit import Problem
from expost.models.linear.loss_sums import LossSums, RowSums
from expost.models.linear.row_loss import LogisticLoss, RowLoss, TruncatedSquare

__all__ = [
    "LossBounds",
    "MinimumBounds",
    "Objective",
    "SealedRisk",
    "SolverAccuracy",
    "excess_step",
    "excess_units",
    "minimize_objective",
    "sum_logistic_losses",
]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
_STEPS = 200
_FLAT = 1e-11  # relative decrease of the objective below which its values are mostly rounding
_HALVINGS = 40
_TOLERANCE = 2.0**-38  # of the gradient; Newton's method passes it by orders of magnitude in its last step
_UNIT = 2.0**-53  # the rounding error of float64
_FLOAT_SHARE = 1 / 64  # of the penalty, at most: how fast the rounding error of a gradient grows with theta
_CACHED_ROWS = 512  # the scores of so many rows and of a block of hypotheses fit the cache
_FACTORS = 256  # of at most 2 each, so their product cannot overflow
_QUERY_BITS = 24  # the grid of a query is this much finer than its tolerance


@dataclass(frozen=True)
class Objective:
    """mean loss + penalty / 2 |theta|^2 + tilt . theta over gridded rows. Targets are in the units of the loss."""

    rows: UnitRows
    loss: RowLoss
    penalty: float
    tilt: Floats
    target_scale: float = 1.0

    def evaluate_at(self, theta: Floats) -> tuple[float, Floats]:
        """Return value and gradient, in one pass over the rows."""
        return self._finish_sums(theta, self._sum_rows(theta, curved=False))[:2]

    def expand_at(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Return value, gradient and second derivatives, in one pass. The last are approximate: they only steer."""
        return self._finish_sums(theta, self._sum_rows(theta, curved=True))

    def _sum_rows(self, theta: Floats, *, curved: bool) -> LossSums:
        return self.rows.reduce(RowSums(self.loss, theta, self.target_scale, curved), operator.add)

    def _finish_sums(self, theta: Floats, sums: LossSums) -> tuple[float, Floats, Floats]:
        """Return the means of sums over rows with the penalty and the tilt."""
        rows = self.rows.rows
        value = sums.value / rows + self.penalty / 2 * float(theta @ theta) + float(self.tilt @ theta)
        bend = sums.curvatures * (_GRID**2 / rows)
        bend[np.diag_indices_from(bend)] += self.penalty
        return value, sums.slopes * (_GRID / rows) + self.penalty * theta + self.tilt, bend


class LossBounds(Protocol):
    """Bounds on the slope and the curvature of a loss."""

    @property
    def steepest(self) -> float: ...
    @property
    def sharpest(self) -> float: ...


class SolverAccuracy:
    """How exactly ``minimize_objective`` can find a minimum in float64. Depends on public numbers only."""

    def __init__(self, loss: LossBounds, ball: UnitBall, *, rows: int, penalty: float) -> None:
        self._steepest, self._sharpest, self._penalty = loss.steepest, loss.sharpest, penalty
        self._dimension = ball.dimension
        # The 1-norm of a row: errors add coordinate by coordinate.
        self._spread = 1.0 if ball.norm is Norm.L1 else math.sqrt(self._dimension)
        self._summation = summation_error(rows)

    def gradient_error(self, radius: float, tilt: float) -> float:
        """Bound the float error of a gradient in Euclidean norm, at coefficients of this length under this tilt.

        Rows have norm at most 1. Scores are inner products of ``dimension`` terms, so they are off by at most
        (dimension + 2) u |theta|, which moves slopes by ``sharpest`` times that; elementary functions add a few u. The
        mean of slope times row is then summed chunk by chunk. The last three terms are plain additions.
        """
        steepest = self._steepest
        slope = self._sharpest * (self._dimension + 2) * _UNIT * (radius + 1) + 64 * _UNIT * steepest
        mean = self._summation * steepest * self._spread
        return slope * self._spread + mean + 4 * _UNIT * (self._penalty * radius + tilt + steepest)

    def bound_distance(self, radius: float, tilt: float) -> float:
        """Bound the distance between the point found and the exact minimum.

        A convex function whose curvature is at least ``penalty`` has its minimum within |gradient| / penalty. The
        gradient is at most the tolerance as computed, plus what float64 can hide
        (docs/proofs/objective-perturbation.md, 6). ``radius`` bounds the norm of the minimum, ``tilt`` that of the
        linear term.
        """
        at_zero, at_one, at_radius = (
            _TOLERANCE + 5 * self.gradient_error(length, tilt) for length in (0.0, 1.0, radius)
        )
        if at_one - at_zero > _FLOAT_SHARE * self._penalty:
            raise InvalidRequest(
                "Expected a regularization that float64 can resolve for this table",
                do="Ask for a larger regularization",
            )
        # The solver may stop at a point longer than the radius, by this distance: divide by 1 - _FLOAT_SHARE.
        return at_radius / (self._penalty * (1 - _FLOAT_SHARE))


def minimize_objective(objective: Objective) -> Floats:
    """Return a point within ``SolverAccuracy.distance`` of the minimum.

    Newton steps from zero, each halved until it descends. They converge from anywhere because the objective is strongly
    convex.
    """
    rows = objective.rows
    accuracy = SolverAccuracy(objective.loss, rows.ball, rows=rows.rows, penalty=objective.penalty)
    tilt = float(np.linalg.norm(objective.tilt))
    theta = np.zeros(len(objective.tilt))
    value, gradient, bend = objective.expand_at(theta)
    for _ in range(_STEPS):
        error = accuracy.gradient_error(float(np.linalg.norm(theta)), tilt)
        if np.linalg.norm(gradient) <= _TOLERANCE + 4 * error:
            return theta
        direction = cho_solve(cho_factor(bend), gradient)
        decrease = float(gradient @ direction)
        flat = decrease <= _FLAT * max(1.0, abs(value))
        size = 1.0
        for _ in range(_HALVINGS):
            ahead = theta - size * direction
            there, slope, ahead_bend = objective.expand_at(ahead)
            # Armijo's rule. Where values differ by rounding only, gradients decide.
            shorter = np.linalg.norm(slope) < np.linalg.norm(gradient)
            if shorter if flat else there <= value - 1e-4 * size * decrease:
                break
            size /= 2
        theta, value, gradient, bend = ahead, there, slope, ahead_bend
    # Never seen. The run stays charged at its worst case and nothing is released.
    raise EngineFailed("Expected the solver to converge", do="Ask for a larger regularization")


@dataclass(frozen=True)
class MinimumBounds:
    """Public bounds on the minimum of a problem's risk with this loss. No row is read."""

    problem: Problem
    loss: RowLoss

    @cached_property
    def is_square(self) -> bool:
        """Return whether the loss is the square of ridge regression, whose steepness is bounded in a ball only."""
        return isinstance(self.loss, TruncatedSquare)

    @cached_property
    def radius(self) -> float:
        """Return the radius of a ball that contains the minimum.

        1 / (2 sqrt(penalty)) for ridge; by comparison with zero coefficients otherwise.
        """
        if self.is_square:
            return 0.5 / math.sqrt(self.problem.penalty)
        return math.sqrt(2 * self.loss.at_zero / self.problem.penalty)

    @cached_property
    def steepest(self) -> float:
        """Bound the gradient of one row within the ball."""
        return self.radius + 1 if self.is_square else self.loss.steepest

    @cached_property
    def solved(self) -> RowLoss:
        """Return the loss that the solver reads: no residual in the ball comes near where the square is cut off."""
        return TruncatedSquare(2 * self.steepest) if self.is_square else self.loss

    @property
    def target_scale(self) -> float:
        """Return the value of one grid unit of a target. Labels are whole numbers."""
        return _GRID if self.is_square else 1.0

    @cached_property
    def solver_distance(self) -> float:
        """Bound the distance between a computed minimum and the exact one."""
        problem = self.problem
        accuracy = SolverAccuracy(self.solved, problem.ball, rows=problem.rows, penalty=problem.penalty)
        return accuracy.bound_distance(self.radius, 0.0)

    @cached_property
    def row_distance(self) -> float:
        """Bound how far one row moves the computed minimum, in the Euclidean norm."""
        # CMS11, Corollary 8: the exact one moves by at most 2 steepest / (rows penalty).
        exact = 2 * self.steepest / (self.problem.rows * self.problem.penalty)
        return exact + 2 * self.solver_distance


class SealedRisk:
    """Mean loss plus penalty / 2 |theta|^2 of a private table, and its minimum.

    The numbers are exact, so they leave only as sealed queries. The object cannot be printed or pickled.
    """

    def __init__(self, rows: UnitRows, loss: RowLoss, penalty: float, *, target_scale: float) -> None:
        self._rows, self._loss, self._penalty, self._scale = rows, loss, penalty, target_scale
        tilt = np.zeros(rows.ball.dimension)
        self._best = minimize_objective(Objective(rows, loss, penalty, tilt, target_scale))
        self._moments = self._sum_moments() if isinstance(loss, TruncatedSquare) else None
        self._lowest = float(self._measure_risks(self._best[None])[0])

    @property
    def dimension(self) -> int:
        return self._rows.ball.dimension

    def seal_minimum(self, step: float, sensitivity: int, norm: Norm = Norm.L1) -> Sealed:
        """Seal the minimum on a grid of this step, with its sensitivity in steps."""
        gridded = np.rint(self._best / step).astype(np.int64)
        return Sealed(gridded, Sensitivity(sensitivity, norm, Adjacency.REPLACE_ONE))

    def seal_excess(self, thetas: Floats, *, sensitivity: float, tolerance: float) -> list[Sealed]:
        """Seal minus the excess risk of each hypothesis as an integer, in units of ``excess_step``."""
        step = excess_step(tolerance)
        excess = np.maximum(self._measure_risks(thetas) - self._lowest, 0.0)
        declared = Sensitivity(excess_units(sensitivity, tolerance), adjacency=Adjacency.REPLACE_ONE)
        largest = 2**60 * step
        return [Sealed(-round(value / step), declared) for value in np.minimum(excess, largest).tolist()]

    def seal_gradient(self, theta: Floats, *, step: float, sensitivity: Sensitivity) -> Sealed:
        """Seal minus the length of the gradient at one hypothesis in steps, rounded against the hypothesis."""
        flat = np.zeros(self.dimension)
        _, gradient = Objective(self._rows, self._loss, self._penalty, flat, self._scale).evaluate_at(theta)
        return Sealed(-math.ceil(min(float(np.linalg.norm(gradient)) / step, 2.0**60)), sensitivity)

    def _measure_risks(self, thetas: Floats) -> Floats:
        """Return the exact risk of many hypotheses."""
        penalty = self._penalty / 2 * (thetas**2).sum(axis=1)
        if self._moments is not None:
            gram, cross, square = self._moments
            fitted: Floats = (np.einsum("ki,ki->k", thetas @ gram, thetas) - 2 * thetas @ cross + square) / 2
            return np.asarray(fitted + penalty)
        total = self._rows.reduce(_ManyRisks(self._loss, thetas, self._scale), operator.add)
        values: Floats = total / self._rows.rows + penalty
        return values

    def _sum_moments(self) -> tuple[Floats, Floats, float]:
        """Return the means of x x', x y and y y."""
        width = self._rows.ball.dimension
        total = self._rows.reduce(functools.partial(_sum_products, width), operator.add).astype(np.float64)
        rows, scale = self._rows.rows, self._scale
        gram, cross = total[: width * width].reshape(width, width), total[width * width : -1]
        return gram * (_GRID**2 / rows), cross * (_GRID * scale / rows), float(total[-1]) * scale**2 / rows

    def __repr__(self) -> str:
        return "<exact risk of a private table>"

    def __reduce__(self) -> str:
        raise TypeError("An exact risk cannot be pickled: it is private.")


def _sum_products(width: int, chunks: Iterable[WeightedChunk]) -> NDArray[Any]:
    """Sum x x', x y and y y, flat, in Python's integers."""
    total = np.zeros(width * width + width + 1, object)
    for features, target, _ in chunks:
        parts = (features.T @ features).ravel(), target @ features, np.array([target @ target])
        total += np.concatenate(parts).astype(np.int64)
    return total


@dataclass(frozen=True, eq=False)
class _ManyRisks:
    """Sums the losses of many hypotheses over rows, in floats."""

    loss: RowLoss
    thetas: Floats
    scale: float

    def __call__(self, chunks: Iterable[WeightedChunk]) -> Floats:
        logistic = isinstance(self.loss, LogisticLoss)
        total, columns = np.zeros(len(self.thetas)), self.thetas.T * _GRID
        for features, target, _ in chunks:
            for start in range(0, len(features), _CACHED_ROWS):
                part = slice(start, start + _CACHED_ROWS)
                scores, scaled = features[part] @ columns, target[part] * self.scale
                if logistic:
                    total += sum_logistic_losses(scores, scaled)
                else:
                    total += np.asarray(self.loss.value_at(scores, scaled[:, None]).sum(axis=0))
        return total


def sum_logistic_losses(scores: Floats, signs: Floats) -> Floats:
    """Sum log(1 + exp(-sign score)) over rows, for each hypothesis (column). Overwrites ``scores``.

    log(1 + exp(-m)) = (|m| - m) / 2 + log(1 + exp(-|m|)), and the last factors lie in (1, 2]: 256 of them are
    multiplied before one logarithm is taken.

    >>> sum_logistic_losses(np.array([[0.0, 1.0], [0.0, -2.0]]), np.array([1.0, -1.0])).round(3)
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


def excess_step(tolerance: float) -> float:
    """Return the unit of sealed excess risks that are compared with this tolerance."""
    return math.ldexp(1.0, math.floor(math.log2(tolerance)) - _QUERY_BITS)


def excess_units(sensitivity: float, tolerance: float) -> int:
    """Return the sensitivity of a sealed excess risk in its unit: one more for rounding, one for float64."""
    return math.ceil(sensitivity / excess_step(tolerance)) + 2
