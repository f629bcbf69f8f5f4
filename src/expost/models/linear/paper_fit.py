"""What the 2017 paper's methods share: its numbers, its losses, and receipts with errata fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.paper2017 import PaperProblem, Task
from expost.core import InvalidRequest, Ladder, Measure, Norm, Outcome, PureGuarantee, PureLoss, Release
from expost.data.matrix import GRID_BITS, RowSource, UnitRows, grid_numbers
from expost.models.linear.hypotheses import CovarianceHypotheses, Hypotheses, OutputHypotheses, measure_moments
from expost.models.linear.losses import Logistic, Loss, TruncatedSquare
from expost.models.linear.model import LinearModel
from expost.models.linear.newton import solver_distance
from expost.models.linear.problem import Problem
from expost.models.linear.risk import ExactRisk
from expost.noise import BitSource

__all__ = ["PaperFit"]

Floats = NDArray[np.float64]

_CITATIONS = ("LNRWW17, Theorem 3.2", "LNRWW17, Theorem 3.4", "docs/errata-2017.md")


@dataclass(frozen=True)
class PaperFit:
    """One of the paper's learning problems: ridge or logistic regression with rows of 1-norm at most 1."""

    problem: Problem
    task: Task
    labels: Callable[[Any], Floats] | None = None
    """Turns labels into signs, for logistic regression."""

    def __post_init__(self) -> None:
        target = self.problem.aim.target
        if target is None or target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest(
                "Expected an excess risk: the paper's methods know no other target", do="Pass excess_risk="
            )
        if self.problem.ball.norm is not Norm.L1:
            raise InvalidRequest("Expected rows bounded in the 1-norm", got="l2", do='Pass feature_norm="l1"')

    @property
    def numbers(self) -> PaperProblem:
        """The paper's formulas for this problem."""
        return PaperProblem(self.task, self.problem.rows, self.problem.ball.dimension, self.problem.penalty)

    @property
    def tolerance(self) -> float:
        """The excess risk allowed, in the units inside."""
        return self.problem.aim.tolerance / self.problem.risk_unit

    @property
    def failure(self) -> float:
        """The failure probability."""
        return float(self.problem.aim.failure_probability)

    @property
    def loss(self) -> Loss:
        """The loss that is minimised; no residual in the ball comes near where the square is cut off."""
        return TruncatedSquare(2 * self.numbers.radius + 1) if self.task.ridge else Logistic()

    def check(self, source: RowSource) -> None:
        """Refuse rows that do not look as described."""
        self.problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        """The rows as learning reads them."""
        grid = grid_numbers(self.problem.target_bound) if self.labels is None else self.labels
        return UnitRows(source, self.problem.ball, grid)

    def exact_risk(self, rows: UnitRows) -> ExactRisk:
        """The risk on the data; its values leave only as sealed queries."""
        scale = 2.0**-GRID_BITS if self.task.ridge else 1.0
        return ExactRisk(rows, self.loss, self.problem.penalty, target_scale=scale)

    def minimum_sensitivity(self, *, printed: bool = False) -> float:
        """How far one row moves what the solver returns for the minimum, in the 1-norm."""
        numbers = self.numbers
        exact = numbers.printed_output_sensitivity if printed else numbers.output_sensitivity
        ball, rows = self.problem.ball, self.problem.rows
        distance = solver_distance(
            self.loss, ball, rows=rows, penalty=self.problem.penalty, radius=numbers.radius, tilt=0.0
        )
        return exact + 2 * float(np.sqrt(ball.dimension)) * distance

    def hypotheses(
        self,
        rows: UnitRows,
        ladder: Ladder,
        *,
        risk: ExactRisk | None = None,
        authors: bool = False,
        bits: BitSource | None,
    ) -> Hypotheses:
        """Models with the noise of each rung, from perturbed moments or from the perturbed minimum of a risk.

        ``authors`` follows the authors' code: the whole noisy matrix, rescaling, and the sensitivity as it is printed.
        """
        radius = self.numbers.radius
        if self.task is Task.RIDGE_COVARIANCE:
            sealed, layout = measure_moments(rows, full=authors)
            return CovarianceHypotheses(
                sealed,
                layout,
                ladder,
                rows=self.problem.rows,
                penalty=self.problem.penalty,
                radius=radius,
                rescale=authors,
                bits=bits,
            )
        exact = self.exact_risk(rows) if risk is None else risk
        sensitivity = self.minimum_sensitivity(printed=authors)
        return OutputHypotheses(exact, ladder, sensitivity=sensitivity, radius=radius, bits=bits)

    def release(
        self,
        theta: Floats,
        *,
        method: str,
        generation: Fraction,
        testing: Fraction,
        promise: Fraction,
        met: bool,
        **facts: Any,
    ) -> Release[LinearModel]:
        """The model with its receipt; a missed target is flagged, and the exact minimum never leaves."""
        outcome = Outcome.NOT_MET if not met else Outcome.TESTED if testing else Outcome.CERTIFIED
        terms = self.problem.terms | facts.pop("terms", {})
        receipt = self.problem.receipt(
            question=f"linear model minimising {self.loss.name}",
            method=method,
            promise=PureGuarantee(promise),
            bill=PureLoss(generation + testing),
            outcome=outcome,
            achieved=self.problem.aim.tolerance if met else None,
            breakdown={"generation": generation, "testing": testing},
            citations=_CITATIONS,
            terms=terms,
            **facts,
        )
        return Release(self.problem.model(theta), receipt)
