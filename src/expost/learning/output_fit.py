"""Output perturbation: the exact minimum plus noise, at an epsilon known before the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.laplace_norm import laplace_norm_quantile
from expost.accuracy.output_certificate import curved_noise_bound
from expost.core import InvalidRequest, Ladder, Measure, Norm, Outcome, PureGuarantee, PureLoss, Release
from expost.core import Loss as Bill
from expost.core.rational import round_up
from expost.data.matrix import GRID_BITS, RowSource, UnitRows
from expost.learning.losses import Loss, TruncatedSquare
from expost.learning.model import LinearModel
from expost.learning.newton import solver_distance
from expost.learning.problem import Problem
from expost.learning.risk import ExactRisk
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["OutputFit"]

_BITS = 24  # the sensitivity of the minimum is about 2^24 grid steps
_CITATIONS = ("CMS11, Corollary 8", "docs/proofs/output-perturbation.md")


class OutputFit:
    """The minimum of the regularised risk under Laplace noise on each coefficient.

    Guarantee: pure DP; the bill is known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 2 steepest sqrt(dimension) / (rows penalty) in L1, plus what the solver leaves over; ``steepest`` is
        the largest gradient of one row at any minimum (for ridge within the ball that contains it).
    Accuracy: excess risk within the target except with the failure probability, from the law of the noise alone.
    Numerics: exact integer noise on a grid; the solver's float64 error is part of the sensitivity.
    Reference: CMS11, Corollary 8 (sensitivity); docs/proofs/output-perturbation.md (accuracy, ours).
    """

    def __init__(self, problem: Problem, loss: Loss, grid_target: Callable[[Any], NDArray[np.float64]]) -> None:
        target = problem.aim.target
        if target is not None and target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest("Expected an excess risk or an epsilon", do="Pass excess_risk= or epsilon=")
        self._problem, self._loss, self._grid_target = problem, loss, grid_target
        self._square = isinstance(loss, TruncatedSquare)
        self._epsilon = self._price()

    # What it costs ------------------------------------------------------------------------------------------------

    @property
    def _radius(self) -> float:
        """A ball that contains the minimum: 1 / (2 sqrt(penalty)) for ridge, else by comparison with zero."""
        if self._square:
            return 0.5 / math.sqrt(self._problem.penalty)
        return math.sqrt(2 * self._loss.at_zero / self._problem.penalty)

    @property
    def _steepest(self) -> float:
        return self._radius + 1 if self._square else self._loss.steepest

    @property
    def _solved(self) -> Loss:
        """The loss as the solver reads it: no residual in the ball comes near where the square is cut off."""
        return TruncatedSquare(2 * self._steepest) if self._square else self._loss

    @property
    def _sensitivity(self) -> float:
        ball, rows, penalty = self._problem.ball, self._problem.rows, self._problem.penalty
        left = solver_distance(self._solved, ball, rows=rows, penalty=penalty, radius=2 * self._radius, tilt=0.0)
        # CMS11, Corollary 8: the minimum moves by at most 2 steepest / (rows penalty) in the Euclidean norm.
        moves = 2 * self._steepest / (rows * penalty) + 2 * left
        return math.sqrt(ball.dimension) * moves

    @property
    def _spread(self) -> float:
        """The excess risk that noise of scale 1 is not above but with the failure probability."""
        problem, failure = self._problem, float(self._problem.aim.failure_probability)
        if problem.ball.norm is Norm.L1:
            curvature = self._loss.sharpest / problem.penalty
            return problem.penalty / 2 * curved_noise_bound(problem.ball.dimension, curvature, failure)
        smooth = self._loss.sharpest + problem.penalty
        return smooth / 2 * laplace_norm_quantile(problem.ball.dimension, failure) ** 2

    def _price(self) -> Fraction:
        aim = self._problem.aim
        if aim.epsilon is not None:
            return aim.epsilon
        goal = aim.tolerance / self._problem.risk_unit
        # 1e-6 for the grid of the noise and for the solver's distance, which moves the risk by far less.
        return aim.afford(round_up((1 + 1e-6) * self._sensitivity * math.sqrt(self._spread / goal)))

    def _excess(self) -> float:
        scale = (1 + 1e-6) * self._sensitivity / float(self._epsilon)
        return scale**2 * self._spread * self._problem.risk_unit

    @property
    def question(self) -> str:
        return f"linear model minimising {self._loss.name}"

    @property
    def worst_case(self) -> Bill:
        return PureLoss(self._epsilon)

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return UnitRows(source, self._problem.ball, self._grid_target)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        scale = 2.0**-GRID_BITS if self._square else 1.0
        risk = ExactRisk(rows, self._solved, self._problem.penalty, target_scale=scale, radius=2 * self._radius)
        step = math.ldexp(1.0, math.floor(math.log2(self._sensitivity)) - _BITS)
        units = math.ceil(self._sensitivity / step) + self._problem.ball.dimension
        sealed = risk.seal_minimum(step, units)
        noisy = DiscreteLaplacePath(sealed, Ladder((self._epsilon,)), bits=bits).at(0)
        return self._release(np.asarray(noisy, dtype=np.float64) * step)

    def _release(self, theta: NDArray[np.float64]) -> Release[LinearModel]:
        problem = self._problem
        receipt = problem.receipt(
            question=self.question,
            method="output perturbation, discrete Laplace noise",
            promise=PureGuarantee(self._epsilon),
            bill=PureLoss(self._epsilon),
            outcome=Outcome.FIXED if problem.aim.target is None else Outcome.CERTIFIED,
            achieved=self._excess(),
            breakdown={"generation": self._epsilon, "testing": Fraction(0)},
            citations=_CITATIONS,
        )
        return Release(problem.model(theta), receipt)
