"""Less and less noise on the minimum, until a private test says that the gradient is short enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    Adjacency,
    InvalidRequest,
    Ladder,
    Measure,
    Outcome,
    PureGuarantee,
    PureLoss,
    Release,
    Sensitivity,
)
from expost.core import Loss as Bill
from expost.core.rational import round_up
from expost.data.matrix import RowSource, UnitRows
from expost.models.linear.hypotheses import OutputHypotheses
from expost.models.linear.losses import Loss
from expost.models.linear.minimum import Minimum
from expost.models.linear.model import LinearModel
from expost.models.linear.problem import Problem
from expost.models.linear.risk import ExactRisk
from expost.noise import AboveThreshold, BitSource

__all__ = ["GradientFit"]

Floats = NDArray[np.float64]

_RUNGS = 40
_SPAN = 20_000  # the last rung's level over the first one's: data are seldom as badly conditioned as they may be
_QUERY_BITS = 24  # a query's grid is this much finer than the length that is tested for
_SURE = 0.5  # a gradient of this share of the length allowed is accepted ...
_MISS = 0.1  # ... except with this probability
_CITATIONS = (
    "docs/proofs/gradient-test.md",
    "docs/proofs/output-perturbation.md",
    "docs/proofs/above-threshold.md",
    "LNRWW17, Theorem 2.7",
)


@dataclass(frozen=True)
class _Plan:
    """The rule of the test and the ladder of noise levels."""

    rule: AboveThreshold
    ladder: Ladder


class GradientFit:
    """The minimum under noise that shrinks rung by rung; each rung is tested for the length of its gradient.

    A risk that is ``penalty``-strongly convex exceeds its minimum by at most |gradient|^2 / (2 penalty). One row moves
    the length of the gradient by at most 2 steepest / rows, far less than it moves the excess risk itself, so the test is
    cheap; it is conservative where the data are well conditioned.

    Guarantee: pure ex-post DP, known only after the run: the level of the last rung plus the test; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 2 steepest sqrt(dimension) / (rows penalty) for the minimum (L1), 2 steepest / rows for a query.
    Accuracy: excess risk within the target except with the failure probability, over all rungs.
    Numerics: exact integer noise; queries are rounded to a grid, float64 errors are part of their sensitivity.
    Reference: docs/proofs/gradient-test.md; Nes04, Theorem 2.1.10; LNRWW17, Lemma 2.8 and Theorem 2.7.
    """

    def __init__(self, problem: Problem, loss: Loss, grid_target: Callable[[Any], Floats]) -> None:
        target = problem.aim.target
        if target is None or target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest("Expected an excess risk to test for", do="Pass excess_risk=")
        self._problem, self._grid_target = problem, grid_target
        self._minimum = Minimum(problem, loss)
        self._loss = self._minimum.solved
        self._plan = self._build_plan()

    # What it can cost ---------------------------------------------------------------------------------------------

    @property
    def _float_error(self) -> float:
        """How much float64 can put the length of a gradient off: below what it can put a minimum off, times the penalty."""
        return self._minimum.left * self._problem.penalty

    @property
    def _minimum_sensitivity(self) -> float:
        """How far one row moves the minimum in the 1-norm."""
        return math.sqrt(self._problem.ball.dimension) * self._minimum.distance

    @property
    def _allowed(self) -> float:
        """The length of a gradient that guarantees the target (Nes04, Theorem 2.1.10)."""
        goal = self._problem.aim.tolerance / self._problem.risk_unit
        return math.sqrt(2 * self._problem.penalty * goal) - self._float_error

    @property
    def _step(self) -> float:
        return math.ldexp(1.0, math.floor(math.log2(self._allowed)) - _QUERY_BITS)

    def _build_plan(self) -> _Plan:
        aim = self._problem.aim
        if self._allowed <= 0:
            raise InvalidRequest("Expected a target within reach", got=aim.tolerance, do="Allow a larger excess risk")
        rule = self._build_rule()
        testing = aim.afford(rule.guarantee.epsilon * Fraction(101, 100))  # the test, and something for the minimum
        left = aim.cap - testing
        # At the top the noise alone leaves a gradient of a quarter of what is accepted, on average, whatever the data.
        spread = (self._loss.sharpest + self._problem.penalty) * math.sqrt(2 * self._problem.ball.dimension)
        high = min(round_up(4 * self._minimum_sensitivity * spread / (_SURE * self._allowed)), left)
        return _Plan(rule, Ladder.geometric(high / _SPAN, high, rungs=_RUNGS))

    def _build_rule(self) -> AboveThreshold:
        """One-sided exponential noise, split so that misses and false alarms cost alike (docs/proofs/gradient-test.md)."""
        moves = 2 * self._minimum.steepest / self._problem.rows + 2 * self._float_error
        units = math.ceil(moves / self._step) + 2
        misses = math.sqrt(math.log(1 / _MISS))
        alarms = math.sqrt(2 * math.log(_RUNGS / float(self._problem.aim.failure_probability)))
        total = units * (misses + alarms) ** 2 / ((1 - _SURE) * self._allowed / self._step)
        rule = AboveThreshold(
            threshold=0,
            sensitivity=Sensitivity(units, adjacency=Adjacency.REPLACE_ONE),
            epsilon_threshold=round_up(total * misses / (misses + alarms)),
            epsilon_query=round_up(total * alarms / (misses + alarms)),
        )
        # A query at or below minus what is allowed is never accepted, except with the failure probability.
        margin = rule.false_alarm_margin(self._problem.aim.failure_probability, queries=_RUNGS)
        return replace(rule, threshold=margin - math.floor(self._allowed / self._step))

    @property
    def question(self) -> str:
        return f"linear model minimising {self._loss.name}"

    @property
    def worst_case(self) -> Bill:
        return PureLoss(self._plan.ladder.cap + self._plan.rule.guarantee.epsilon)

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return UnitRows(source, self._problem.ball, self._grid_target)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        plan = self._plan
        risk = ExactRisk(rows, self._loss, self._problem.penalty, target_scale=self._minimum.target_scale)
        hypotheses = OutputHypotheses(
            risk, plan.ladder, sensitivity=self._minimum_sensitivity, radius=self._minimum.radius, bits=bits
        )
        session = plan.rule.open(bits=bits)
        for rung in range(len(plan.ladder)):
            theta = hypotheses.block(rung, rung + 1)[0]
            query = risk.seal_gradient(theta, step=self._step, sensitivity=plan.rule.sensitivity)
            if session.ask(query).above:
                return self._release(theta, rung, session.loss.epsilon, met=True)
        return self._release(theta, len(plan.ladder) - 1, session.loss.epsilon, met=False)

    def _release(self, theta: Floats, rung: int, testing: Fraction, *, met: bool) -> Release[LinearModel]:
        problem, level = self._problem, self._plan.ladder[rung]
        receipt = problem.receipt(
            question=self.question,
            method="output perturbation with noise reduction, gradient-norm test",
            promise=PureGuarantee(self.worst_case.amounts()["epsilon"]),
            bill=PureLoss(level + testing),
            outcome=Outcome.TESTED if met else Outcome.NOT_MET,
            achieved=problem.aim.tolerance if met else None,
            rung=rung,
            rungs=len(self._plan.ladder),
            breakdown={"generation": level, "testing": testing},
            citations=_CITATIONS,
        )
        return Release(problem.model(theta), receipt)
