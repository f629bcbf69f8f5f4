"""Output perturbation: the exact minimum of a regularized risk plus noise, fixed or shrinking until a test accepts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.noise_norm import (
    curved_gaussian_bound,
    curved_noise_bound,
    curved_spherical_bound,
    laplace_norm_quantile,
    spherical_norm_quantile,
)
from expost.core import (
    Adjacency,
    ApproxGuarantee,
    InvalidRequest,
    Ladder,
    Loss,
    Measure,
    Norm,
    PureLoss,
    Release,
    Sealed,
    Sensitivity,
)
from expost.core.rational import round_up
from expost.data.unit_ball import UnitRows
from expost.models.linear.linear_fit import FitPlan, LinearModel, Problem, bill_for
from expost.models.linear.risk_minimum import MinimumBounds, SealedRisk
from expost.models.linear.row_loss import RowLoss
from expost.noise import AboveThreshold, BitSource, DiscreteLaplacePath, GaussianMechanism, SphericalLaplaceMechanism
from expost.noise.parameter import LARGEST_SCALE

__all__ = [
    "GaussianOutput",
    "GradientFit",
    "LaplaceOutput",
    "OutputFit",
    "OutputHypotheses",
    "OutputNoise",
    "SphericalOutput",
    "Valley",
    "epsilon_for_excess",
    "project_to_ball",
]

Floats = NDArray[np.float64]
Seal = Callable[[float, int, Norm], Sealed]

_BITS = 30  # the distance between neighboring minima is about 2^30 grid steps
_LATTICE = 1e-6  # relative: 33 grid steps per coordinate, for the distance of lattice noise from real noise
_CLOSE = 1e-9
_HYPOTHESIS_BITS = 24  # in a sequence of hypotheses, the sensitivity of the minimum is about 2^24 grid steps
_RUNGS = 40
_SPAN = 20_000  # the last rung's level over the first one's: data are seldom as badly conditioned as they may be
_QUERY_BITS = 24  # a query's grid is this much finer than the length that is tested for
_SURE = 0.5  # a gradient of this share of the length allowed is accepted ...
_MISS = 0.1  # ... except with this probability
_OUTPUT_CITATIONS = ("CMS11, Corollary 8", "docs/proofs/output-perturbation.md")
_GRADIENT_CITATIONS = (
    "docs/proofs/gradient-test.md",
    "docs/proofs/output-perturbation.md",
    "docs/proofs/above-threshold.md",
    "LNRWW17, Theorem 2.7",
)


@dataclass(frozen=True)
class Valley:
    """The public shape of a risk around its minimum: rows in a unit ball, curvature of the loss at most ``sharpest``."""

    dimension: int
    norm: Norm
    penalty: float
    sharpest: float
    distance: float
    """How far apart the computed minima of neighboring tables can be, in Euclidean norm."""
    left: float
    """How far a computed minimum can be from the exact one."""

    @property
    def step(self) -> float:
        """Return the grid on which minima are released."""
        return math.ldexp(1.0, math.floor(math.log2(self.distance)) - _BITS)

    def bound_excess(self, noise: float) -> float:
        """Bound the risk above the minimum when noise alone would cost this much: the solver's distance is added."""
        # |w + z|_H <= |w|_H + |z|_H for half the quadratic form H = sharpest X'X / n + penalty.
        solver = math.sqrt((self.sharpest + self.penalty) / 2) * self.left
        return (math.sqrt(noise) * (1 + _LATTICE) + solver) ** 2


# A search for epsilon needs this cost at every step: it does not depend on epsilon.
@lru_cache(maxsize=256)
def _unit_cost(valley: Valley, failure_probability: float, *, spherical: bool) -> float:
    """Return half the penalty times the smaller of two bounds on the curved square of noise of scale 1."""
    curvature, worst = valley.sharpest / valley.penalty, math.inf
    if spherical:
        worst = curved_spherical_bound(valley.dimension, curvature, failure_probability)
    elif valley.norm is Norm.L1:  # by coordinate the bound holds for rows of bounded 1-norm only
        worst = curved_noise_bound(valley.dimension, curvature, failure_probability)
    norm_quantile = spherical_norm_quantile if spherical else laplace_norm_quantile
    quantile = norm_quantile(valley.dimension, failure_probability)
    return valley.penalty / 2 * min(worst, (1 + curvature) * quantile**2)


class OutputNoise:
    """A law of noise on a minimum, which is on a grid and has a sensitivity of grid units in a norm."""

    valley: Valley
    name: str
    norm = Norm.L2

    @cached_property
    def _grid_units(self) -> int:
        # Rounding moves each coordinate of either neighbor by at most half a step.
        valley = self.valley
        if self.norm is Norm.L1:
            spread, rounding = math.sqrt(valley.dimension) * valley.distance, valley.dimension
        else:
            spread, rounding = valley.distance, math.isqrt(valley.dimension - 1) + 1
        return math.ceil(spread / valley.step * (1 + _CLOSE)) + rounding

    @cached_property
    def _row_sensitivity(self) -> Sensitivity:
        return Sensitivity(self._grid_units, self.norm, Adjacency.REPLACE_ONE)

    def bound_excess(self, epsilon: Fraction, failure_probability: float) -> float:
        """Return the risk above the minimum that is exceeded with at most this probability."""
        raise NotImplementedError

    def _add_noise(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
        raise NotImplementedError

    def release(self, seal: Seal, epsilon: Fraction, bits: BitSource | None) -> Floats:
        """Return the minimum under noise; ``seal`` puts it on a grid of a step, under a sensitivity in steps."""
        released = self._add_noise(seal(self.valley.step, self._grid_units, self.norm), epsilon, bits)
        return np.asarray(released, dtype=np.float64) * self.valley.step


@dataclass(frozen=True)
class LaplaceOutput(OutputNoise):
    """Independent Laplace noise on each coefficient; sensitivity in the 1-norm."""

    valley: Valley
    name = "discrete Laplace noise"
    norm = Norm.L1

    def bound_excess(self, epsilon: Fraction, failure_probability: float) -> float:
        valley = self.valley
        if self._grid_units > LARGEST_SCALE * epsilon:
            return math.inf  # too wide to be drawn; the spherical law is not
        scale = self._grid_units * valley.step / float(epsilon)
        return valley.bound_excess(scale**2 * _unit_cost(valley, failure_probability, spherical=False))

    def _add_noise(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
        return DiscreteLaplacePath(sealed, Ladder((epsilon,)), bits=bits).at(0)


@dataclass(frozen=True)
class SphericalOutput(OutputNoise):
    """Noise that falls off with the Euclidean norm."""

    valley: Valley
    name = "spherical Laplace noise"

    def bound_excess(self, epsilon: Fraction, failure_probability: float) -> float:
        valley = self.valley
        units = SphericalLaplaceMechanism(epsilon).scale(self._row_sensitivity, coordinates=valley.dimension)
        scale = float(units) * valley.step
        return valley.bound_excess(scale**2 * _unit_cost(valley, failure_probability, spherical=True))

    def _add_noise(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
        return SphericalLaplaceMechanism(epsilon).release(sealed, bits=bits)


@dataclass(frozen=True)
class GaussianOutput(OutputNoise):
    """Gaussian noise on each coefficient, for (epsilon, delta)-DP."""

    valley: Valley
    delta: Fraction
    name = "discrete Gaussian noise"

    def _build_mechanism(self, epsilon: Fraction) -> GaussianMechanism:
        return GaussianMechanism(ApproxGuarantee(epsilon, self.delta))

    def bound_excess(self, epsilon: Fraction, failure_probability: float) -> float:
        valley = self.valley
        variance = self._build_mechanism(epsilon).variance(self._row_sensitivity, coordinates=valley.dimension)
        if variance > LARGEST_SCALE**2:
            return math.inf
        failure = failure_probability * (1 - _CLOSE)
        worst = curved_gaussian_bound(valley.dimension, valley.sharpest / valley.penalty, failure)
        return valley.bound_excess(float(variance) * valley.step**2 * valley.penalty / 2 * worst)

    def _add_noise(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
        return self._build_mechanism(epsilon).release(sealed, bits=bits)


def epsilon_for_excess(excess: Callable[[Fraction], float], goal: float) -> Fraction:
    """Return the smallest epsilon, to nine digits, whose excess is within the goal. ``excess`` falls with epsilon.

    >>> epsilon_for_excess(lambda epsilon: 1 / float(epsilon), 4.0) <= Fraction(26, 100)
    True
    """
    low, high = 1e-9, 1e-6
    while excess(Fraction(high)) > goal:
        low, high = high, 2 * high
        if high > 1e9:
            raise InvalidRequest("Expected a target within reach", got=goal, do="Allow a larger excess risk")
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(Fraction(middle)) <= goal else (middle, high)
    return round_up(high)


class OutputFit(FitPlan):
    """The minimum of the regularized risk under noise: the law that costs least, Gaussian only if ``delta`` is given.

    Guarantee: pure DP, or (epsilon, delta)-DP with Gaussian noise; the bill is known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 2 steepest / (rows penalty) in L2, sqrt(dimension) times that in L1, plus what the solver leaves over;
        ``steepest`` is the largest gradient of one row at any minimum (for ridge within the ball that contains it).
    Accuracy: excess risk within the target except with the failure probability, from the law of the noise alone.
    Numerics: exact integer noise on a grid; the solver's float64 error is part of the sensitivity.
    Reference: CMS11, Corollary 8 (sensitivity); docs/proofs/output-perturbation.md (accuracy, ours);
        docs/proofs/spherical-laplace.md; BW18, Theorem 8 (Gaussian).
    """

    def __init__(
        self, problem: Problem, loss: RowLoss, grid_target: Callable[[Any], Floats], *, delta: Fraction | None = None
    ) -> None:
        if problem.aim.is_score:
            raise InvalidRequest("Expected an excess risk or an epsilon", do="Pass excess_risk= or epsilon=")
        self._problem, self._loss, self._grid_target = problem, loss, grid_target
        self._minimum = MinimumBounds(problem, loss)
        self._failure = float(problem.aim.failure_probability)
        laws: list[OutputNoise] = [LaplaceOutput(self._valley), SphericalOutput(self._valley)]
        if delta is not None:
            laws.append(GaussianOutput(self._valley, delta))
        self._noise, self._epsilon = problem.aim.choose_law(
            laws,
            risk=lambda law, level: law.bound_excess(level, self._failure),
            price=lambda law: epsilon_for_excess(lambda level: law.bound_excess(level, self._failure), problem.goal),
        )
        self._delta = delta if isinstance(self._noise, GaussianOutput) else None

    @cached_property
    def _valley(self) -> Valley:
        ball, minimum = self._problem.ball, self._minimum
        distances = minimum.row_distance, minimum.solver_distance
        return Valley(ball.dimension, ball.norm, self._problem.penalty, self._loss.sharpest, *distances)

    @property
    def excess_risk(self) -> float:
        """Return the excess risk that is exceeded with at most the failure probability, in the caller's units."""
        return self._noise.bound_excess(self._epsilon, self._failure) * self._problem.risk_unit

    @property
    def worst_case(self) -> Loss:
        return bill_for(self._epsilon, self._delta)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        problem, minimum = self._problem, self._minimum
        risk = SealedRisk(rows, minimum.solved, problem.penalty, target_scale=minimum.target_scale)
        theta = self._noise.release(risk.seal_minimum, self._epsilon, bits)
        return self.release_model(
            theta,
            method=f"output perturbation, {self._noise.name}",
            generation=self._epsilon,
            bill=self.worst_case,
            achieved=self.excess_risk,
            citations=_OUTPUT_CITATIONS,
        )


def project_to_ball(theta: Floats, radius: float) -> Floats:
    """Scale a point, or each row of points, down to the ball if it lies outside.

    >>> project_to_ball(np.array([3.0, 4.0]), 2.5)
    array([1.5, 2. ])
    """
    length = np.linalg.norm(theta, axis=-1, keepdims=True)
    scaled: Floats = np.where(length <= radius, theta, theta * (radius / np.maximum(length, radius)))
    return scaled


class OutputHypotheses:
    """The exact minimum under gradually released noise, projected on the ball (LNRWW17, Algorithm 5, corrected)."""

    def __init__(
        self, risk: SealedRisk, ladder: Ladder, *, sensitivity: float, radius: float, bits: BitSource | None
    ) -> None:
        self._step = math.ldexp(1.0, math.floor(math.log2(sensitivity)) - _HYPOTHESIS_BITS)
        # Rounding moves each coordinate of either neighbor by at most half a step.
        units = math.ceil(sensitivity / self._step) + risk.dimension
        self._path = DiscreteLaplacePath(risk.seal_minimum(self._step, units), ladder, bits=bits)
        self._radius = radius

    def block(self, start: int, stop: int) -> Floats:
        thetas = self._path.block(start, stop).astype(np.float64) * self._step
        return project_to_ball(thetas, self._radius)


class GradientFit(FitPlan):
    """The minimum under noise that shrinks rung by rung; each rung is tested for the length of its gradient.

    A risk that is ``penalty``-strongly convex exceeds its minimum by at most |gradient|^2 / (2 penalty). One row moves
    the length of the gradient by at most 2 steepest / rows, far less than it moves the excess risk itself, so the test
    is cheap. It is conservative where the data are well conditioned.

    Guarantee: pure ex-post DP, known only after the run: the level of the last rung plus the test; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 2 steepest sqrt(dimension) / (rows penalty) for the minimum (L1), 2 steepest / rows for a query.
    Accuracy: excess risk within the target except with the failure probability, over all rungs.
    Numerics: exact integer noise; queries are rounded to a grid, float64 errors are part of their sensitivity.
    Reference: docs/proofs/gradient-test.md; Nes04, Theorem 2.1.10; LNRWW17, Lemma 2.8 and Theorem 2.7.
    """

    def __init__(self, problem: Problem, loss: RowLoss, grid_target: Callable[[Any], Floats]) -> None:
        aim = problem.aim
        if aim.target is None or aim.target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest("Expected an excess risk to test for", do="Pass excess_risk=")
        self._problem, self._grid_target = problem, grid_target
        self._minimum = MinimumBounds(problem, loss)
        self._loss = self._minimum.solved
        # Float64 errors of a gradient's length are below those of a minimum, times the penalty.
        self._float_error = self._minimum.solver_distance * problem.penalty
        self._minimum_sensitivity = math.sqrt(problem.ball.dimension) * self._minimum.row_distance  # in the 1-norm
        # A gradient of this length guarantees the target (Nes04, Theorem 2.1.10).
        self._allowed = math.sqrt(2 * problem.penalty * problem.goal) - self._float_error
        if self._allowed <= 0:
            raise InvalidRequest("Expected a target within reach", got=aim.tolerance, do="Allow a larger excess risk")
        self._step = math.ldexp(1.0, math.floor(math.log2(self._allowed)) - _QUERY_BITS)
        self._rule = self._build_rule()
        testing = aim.check_price(
            self._rule.guarantee.epsilon * Fraction(101, 100)
        )  # the test, and 1 % for the minimum
        # At the top the noise alone leaves a gradient of a quarter of what is accepted, on average, whatever the data.
        spread = (self._loss.sharpest + problem.penalty) * math.sqrt(2 * problem.ball.dimension)
        high = round_up(4 * self._minimum_sensitivity * spread / (_SURE * self._allowed))
        high = min(high, aim.cap - testing)
        self._ladder = Ladder.geometric(high / _SPAN, high, rungs=_RUNGS)

    def _build_rule(self) -> AboveThreshold:
        """Split one-sided exponential noise so that misses and false alarms cost alike (docs/proofs/gradient-test.md)."""
        failure = self._problem.aim.failure_probability
        moves = 2 * self._minimum.steepest / self._problem.rows + 2 * self._float_error
        units = math.ceil(moves / self._step) + 2
        misses = math.sqrt(math.log(1 / _MISS))
        alarms = math.sqrt(2 * math.log(_RUNGS / float(failure)))
        total = units * (misses + alarms) ** 2 / ((1 - _SURE) * self._allowed / self._step)
        rule = AboveThreshold(
            threshold=0,
            sensitivity=Sensitivity(units, adjacency=Adjacency.REPLACE_ONE),
            epsilon_threshold=round_up(total * misses / (misses + alarms)),
            epsilon_query=round_up(total * alarms / (misses + alarms)),
        )
        # A query at or below minus what is allowed is never accepted, except with the failure probability.
        margin = rule.false_alarm_margin(failure, queries=_RUNGS)
        return replace(rule, threshold=margin - math.floor(self._allowed / self._step))

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._ladder.cap + self._rule.guarantee.epsilon)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        problem, rule, ladder = self._problem, self._rule, self._ladder
        risk = SealedRisk(rows, self._loss, problem.penalty, target_scale=self._minimum.target_scale)
        hypotheses = OutputHypotheses(
            risk, ladder, sensitivity=self._minimum_sensitivity, radius=self._minimum.radius, bits=bits
        )
        session = rule.open(bits=bits)
        for rung in range(len(ladder)):
            theta = hypotheses.block(rung, rung + 1)[0]
            met = session.ask(risk.seal_gradient(theta, step=self._step, sensitivity=rule.sensitivity)).above
            if met:
                break
        return self.release_model(
            theta,
            method="output perturbation with noise reduction, gradient-norm test",
            generation=ladder[rung],
            testing=session.loss.epsilon,
            met=met,
            achieved=problem.aim.tolerance if met else None,
            rung=rung,
            rungs=len(ladder),
            citations=_GRADIENT_CITATIONS,
        )
