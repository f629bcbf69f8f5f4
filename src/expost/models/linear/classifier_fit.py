"""Linear classification by objective perturbation, and the query that chooses among the methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.paper2017 import Task
from expost.core import BudgetExceeded, ExpostError, InvalidRequest, Loss, Plan, PlanContext, Release
from expost.data.row_source import RowSource
from expost.data.unit_ball import UnitRows
from expost.data.value_place import label_codes
from expost.models.linear.counted_fit import CountedFit
from expost.models.linear.linear_fit import FitPlan, FitTerms, LinearModel, Problem, bill_for
from expost.models.linear.output_perturbation import GradientFit, OutputFit
from expost.models.linear.paper_fit import Doubling, NoiseReduction, PaperFit, TheoryInversion
from expost.models.linear.row_loss import RowLoss
from expost.models.linear.tested_score import MonotoneFit, TestedFit, codes_to_signs, known_to_signs
from expost.models.linear.tilted_risk import GaussianTilt, TiltedRisk, TiltLaw, pure_tilt
from expost.noise import BitSource

__all__ = [
    "ABSOLUTE_LOSS",
    "METHODS",
    "ClassifierQuery",
    "TiltedClassifier",
    "grid_labels",
    "known_labels",
    "penalty_for_risk",
]

Floats = NDArray[np.float64]

METHODS = ("objective", "output", "gradient", "test")
"""The methods for every loss."""
ABSOLUTE_LOSS = "absolute_loss"
_FOR_SCORES = ("test", ABSOLUTE_LOSS)
_WITH_DELTA = ("auto", "objective", "output")
_PENALTY_PART = 4  # of epsilon, per gradient in which neighbors differ
_CONSTANT_PART = 3  # times that share where there is a constant column
_USUAL_EPSILON, _LARGEST_EPSILON = 0.1, 4.0  # where a score is tested; and beyond it the penalty falls no further
_USUAL_CURVATURE = 0.025  # of a row's loss along a usual coefficient
_BEARABLE_LOSS = 0.1  # per row, that the noise of a fit may cost before the receipt says so
_CITATIONS = ("CMS11, Theorem 9", "INSTTW19, Theorem 1", "docs/proofs/objective-perturbation.md")


def grid_labels(classes: tuple[Any, Any]) -> Callable[[Any], Floats]:
    """Return a function that turns two public classes into -1 and 1. Any other label counts as the first class."""
    known = known_labels(classes)
    return lambda target: known_to_signs(known(target))


def known_labels(classes: tuple[Any, Any]) -> Callable[[Any], Floats]:
    """Return a function that turns two public classes into -1 and 1, and any other label into 0.

    >>> known_labels(("no", "yes"))(np.array(["yes", "no", "?"])).tolist()
    [1.0, -1.0, 0.0]
    """
    if len(classes) != 2 or classes[0] == classes[1]:
        raise InvalidRequest("Expected two different classes", do="Pass classes=(negative, positive)")
    return lambda target: codes_to_signs(label_codes(target, list(classes)))


def _codes_to_fit(codes: Any) -> Floats:
    """Convert places among the classes to the signs that are fitted."""
    return known_to_signs(codes_to_signs(codes))


def penalty_for_risk(problem: Problem, loss: RowLoss) -> float:
    """Return the regularization at which the change of variables takes a fixed share of epsilon.

    Less would leave too little for the tilt, more would shrink coefficients more than needed. The share is an eighth for
    replaced rows and a quarter for added ones, whose tilt is half as long; it was the best one on Adult for epsilon from
    0.1 to 1. A constant column makes rows longer than the columns that are learned from, and all pay the penalty, so with
    an intercept the share is three times as large, at most a half. Only public numbers enter: rows, bounds, loss and epsilon (0.1 where a score is tested, whatever the cap).

    >>> from expost.data.unit_ball import UnitBall
    >>> from expost.models.linear import Aim
    >>> from expost.models.linear.row_loss import LogisticLoss
    >>> aim = Aim.of(epsilon=1, failure_probability=0.1, max_epsilon=None)
    >>> round(penalty_for_risk(Problem(UnitBall(3), 10_000, 1.0, aim), LogisticLoss()), 6)
    0.000188
    """
    epsilon = _USUAL_EPSILON if problem.aim.epsilon is None else float(problem.aim.epsilon)
    ball, used = problem.ball, min(epsilon, _LARGEST_EPSILON)
    share = used / (_PENALTY_PART * problem.neighbours.gradients)
    if ball.intercept:
        share = min(_CONSTANT_PART * share, used / 2)
    inside = loss.sharpest * ball.squared_length / (problem.rows * math.expm1(share))
    return inside * (ball.bound / ball.shrinkage) ** 2


class TiltedClassifier(FitPlan):
    """A linear classifier with bounded slope, fitted by objective perturbation at an epsilon known before the run.

    The law of the tilt is the one that costs least, Gaussian only if ``delta`` is given.

    Guarantee: pure DP, or (epsilon, delta)-DP with a Gaussian tilt; the bill is known before the run.
    Adjacency: that of the problem: a row or a person is replaced, or added or removed; a number of rows is public.
    Sensitivity: rows clipped to a public norm, labels to a public pair of classes; see TiltedRisk.
    Accuracy: excess risk within the target except with the failure probability; or the bound that epsilon buys.
    Numerics: exact noise on a grid; float64 errors are part of the sensitivity; see TiltedRisk.
    Reference: docs/proofs/objective-perturbation.md; docs/proofs/gaussian-tilt.md; CMS11, Theorem 9; KST12, Theorem 1.
    """

    _adds_rows = _weighs_rows = True

    def __init__(
        self, problem: Problem, loss: RowLoss, labels: Callable[[Any], Floats], *, delta: Fraction | None = None
    ) -> None:
        self._problem, self._grid_target = problem, labels
        ball, failure = problem.ball, problem.aim.failure_probability
        # Laws are written for two gradients; an added or removed unit has one.
        neighbours, steepest = problem.neighbours, loss.steepest * problem.neighbours.gradients / 2
        laws: list[TiltLaw] = [pure_tilt(ball, steepest)]
        if delta is not None and neighbours.unit.is_row:  # a person's rows pull in several directions
            laws.append(GaussianTilt(ball.dimension, steepest, delta, one_sided=loss.one_sided))
        self._risk, self._epsilon = problem.aim.choose_law(
            [TiltedRisk(loss, ball, problem.rows, problem.penalty, law, neighbours) for law in laws],
            risk=lambda risk, epsilon: risk.prices.excess_risk(epsilon, failure),
            price=lambda risk: risk.prices.epsilon_for(problem.aim.tolerance, failure),
        )
        self._delta = delta if isinstance(self._risk.law, GaussianTilt) else None

    @property
    def excess_risk(self) -> float:
        """Return the excess risk that is exceeded with at most the failure probability."""
        return self._risk.prices.excess_risk(self._epsilon, self._problem.aim.failure_probability)

    @property
    def question(self) -> str:
        return f"linear classifier minimising {self._risk.loss.name}"

    @property
    def epsilon(self) -> Fraction:
        """Return what the fit will cost."""
        return self._epsilon

    @property
    def worst_case(self) -> Loss:
        return bill_for(self._epsilon, self._delta)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        theta = self._risk.release(rows, self._epsilon, bits=bits)
        return self.release_model(
            theta,
            method=f"objective perturbation, {self._risk.prices.tilt.name}",
            generation=self._epsilon,
            bill=self.worst_case,
            achieved=self.excess_risk,
            citations=_CITATIONS,
            terms=self._problem.terms | self._note_noise(),
        )

    def _note_noise(self) -> dict[str, str]:
        """Return a line for the receipt where a given epsilon is likely to buy nothing, from public numbers alone."""
        problem = self._problem
        if problem.aim.epsilon is None:
            return {}
        pull = problem.ball.bound * problem.neighbours.gradients / (float(self._epsilon) * problem.rows)
        lost = problem.ball.dimension * pull**2 / _USUAL_CURVATURE
        if lost <= _BEARABLE_LOSS:
            return {}
        columns = "column" if problem.ball.width == 1 else "columns"
        return {
            "noise": f"likely to hide what {problem.ball.width} {columns} with rows as long as "
            f"{problem.ball.bound:.3g} could show; pass a smaller feature_bound that rows have, fewer columns or "
            "more epsilon, or use expost.Classifier"
        }


@dataclass(frozen=True)
class ClassifierQuery:
    """A linear classifier that was asked for. Targets are read as places among its classes."""

    terms: FitTerms
    loss: RowLoss
    method: Any = "auto"
    delta: Fraction | None = None
    validation_every: int = 0
    methods: tuple[str, ...] = METHODS
    chooses_penalty: bool = False
    """The regularization follows from rows, bounds and epsilon, and ``terms.regularization`` is ignored."""
    question = "linear classifier"

    def plan(self, dataset: RowSource, context: PlanContext) -> Plan:
        """Choose and price the method; reads the public shape of the rows only."""
        problem = self.terms.describe(dataset)
        return CountedFit(problem, self._plan_rows) if dataset.size_is_private else self._plan_rows(problem)

    def _plan_rows(self, problem: Problem) -> FitPlan:
        """Plan a fit with a public number of rows."""
        if self.chooses_penalty:
            problem = replace(problem, regularization=penalty_for_risk(problem, self.loss))
        scored = problem.aim.is_score
        if self.delta is not None and (scored or self.method not in _WITH_DELTA):
            raise InvalidRequest(
                "Expected delta to be 0 for this method and target",
                got=float(self.delta),
                do=f"Leave delta out, or pass excess_risk= or epsilon= and method={' or '.join(_WITH_DELTA)}",
            )
        if self.method == "auto" and not scored:
            return self._plan_cheapest(problem)
        name = "test" if self.method == "auto" else self.method
        if not isinstance(name, str) or name not in self.methods:
            raise InvalidRequest(
                f"Expected method to be one of auto, {', '.join(self.methods)}", got=self.method, do="Name one of them"
            )
        if scored != (name in _FOR_SCORES):
            do = 'Pass method="test"' if scored else "Pass score= to test for one"
            raise InvalidRequest("Expected a method that fits the target", got=name, do=do)
        return self._plan_method(name, problem)

    def _plan_cheapest(self, problem: Problem) -> FitPlan:
        """Plan objective or output perturbation: the cheaper or, at a given epsilon, the more accurate one."""
        plans: list[TiltedClassifier | OutputFit] = []
        refused: list[ExpostError] = []
        for kind in (TiltedClassifier, OutputFit):
            try:
                plans.append(kind(problem, self.loss, _codes_to_fit, delta=self.delta))
            except (InvalidRequest, BudgetExceeded) as error:  # too few rows for this method, or above the cap
                refused.append(error)
        if not plans:
            raise refused[0]
        if problem.aim.epsilon is not None:
            return min(plans, key=lambda plan: plan.excess_risk)
        return min(plans, key=lambda plan: plan.worst_case.amounts()["epsilon"])

    def _plan_method(self, name: str, problem: Problem) -> FitPlan:
        """Plan a fit by the method of this name."""
        match name:
            case "objective":
                return TiltedClassifier(problem, self.loss, _codes_to_fit, delta=self.delta)
            case "output":
                return OutputFit(problem, self.loss, _codes_to_fit, delta=self.delta)
            case "gradient":
                return GradientFit(problem, self.loss, _codes_to_fit)
            case "test":
                every = self.validation_every
                return TestedFit(problem, self.loss, _codes_to_fit, validation=every, known_target=codes_to_signs)
            case "absolute_loss":
                return MonotoneFit(problem, self.loss, _codes_to_fit)
        fit = PaperFit(problem, Task.LOGISTIC_OUTPUT, _codes_to_fit)
        match name:
            case "doubling":
                return Doubling(fit)
            case "theory":
                return TheoryInversion(fit)
            case _:
                return NoiseReduction(fit, authors=name == "paper2017")
