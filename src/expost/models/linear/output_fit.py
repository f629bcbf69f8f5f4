"""Output perturbation: the exact minimum plus noise, at an epsilon known before the run."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Measure, Outcome, Release
from expost.core import Loss as Bill
from expost.data.matrix import RowSource, UnitRows
from expost.models.linear.losses import Loss
from expost.models.linear.minimum import Minimum
from expost.models.linear.model import LinearModel
from expost.models.linear.output_noise import (
    GaussianOutput,
    LaplaceOutput,
    OutputNoise,
    SphericalOutput,
    Valley,
    smallest_epsilon,
)
from expost.models.linear.problem import Problem, bill_of
from expost.models.linear.risk import ExactRisk
from expost.noise import BitSource

__all__ = ["OutputFit"]

_CITATIONS = ("CMS11, Corollary 8", "docs/proofs/output-perturbation.md")


class OutputFit:
    """The minimum of the regularised risk under noise: the law that costs least, Gaussian only if ``delta`` is given.

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
        self,
        problem: Problem,
        loss: Loss,
        grid_target: Callable[[Any], NDArray[np.float64]],
        *,
        delta: Fraction | None = None,
    ) -> None:
        target = problem.aim.target
        if target is not None and target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest("Expected an excess risk or an epsilon", do="Pass excess_risk= or epsilon=")
        self._problem, self._loss, self._grid_target = problem, loss, grid_target
        self._minimum = Minimum(problem, loss)
        self._noise, self._epsilon = self._cheapest(delta)
        self._delta = delta if isinstance(self._noise, GaussianOutput) else None
        problem.aim.afford(self._epsilon)

    # What it costs ------------------------------------------------------------------------------------------------

    @cached_property
    def _valley(self) -> Valley:
        ball, penalty, minimum = self._problem.ball, self._problem.penalty, self._minimum
        return Valley(ball.dimension, ball.norm, penalty, self._loss.sharpest, minimum.distance, minimum.left)

    def _cheapest(self, delta: Fraction | None) -> tuple[OutputNoise, Fraction]:
        """The law of the least epsilon or, at a given epsilon, of the least risk; decided by public numbers alone."""
        laws: list[OutputNoise] = [LaplaceOutput(self._valley), SphericalOutput(self._valley)]
        if delta is not None:
            laws.append(GaussianOutput(self._valley, delta))
        given = self._problem.aim.epsilon
        if given is not None:
            return min(laws, key=lambda law: law.excess(given, self._failure)), given
        return min(((law, self._price(law)) for law in laws), key=lambda each: each[1])

    def _price(self, law: OutputNoise) -> Fraction:
        goal = self._problem.aim.tolerance / self._problem.risk_unit
        return smallest_epsilon(lambda level: law.excess(level, self._failure), goal)

    @property
    def _failure(self) -> float:
        return float(self._problem.aim.failure_probability)

    @property
    def excess_risk(self) -> float:
        """What is not exceeded but with the failure probability, in the caller's units."""
        return self._noise.excess(self._epsilon, self._failure) * self._problem.risk_unit

    @property
    def question(self) -> str:
        return f"linear model minimising {self._loss.name}"

    @property
    def worst_case(self) -> Bill:
        return bill_of(self._epsilon, self._delta)

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return UnitRows(source, self._problem.ball, self._grid_target)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        minimum = self._minimum
        risk = ExactRisk(rows, minimum.solved, self._problem.penalty, target_scale=minimum.target_scale)
        return self._release(self._noise.release(risk.seal_minimum, self._epsilon, bits))

    def _release(self, theta: NDArray[np.float64]) -> Release[LinearModel]:
        problem = self._problem
        receipt = problem.receipt(
            question=self.question,
            method=f"output perturbation, {self._noise.name}",
            promise=self.worst_case.promise(),
            bill=self.worst_case,
            outcome=Outcome.FIXED if problem.aim.target is None else Outcome.CERTIFIED,
            achieved=self.excess_risk,
            breakdown={"generation": self._epsilon, "testing": Fraction(0)},
            citations=_CITATIONS,
        )
        return Release(problem.model(theta), receipt)
