"""Ridge regression by objective perturbation of a truncated squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.laplace_norm import laplace_norm_quantile
from expost.core import Loss, Outcome, PureLoss, Release
from expost.data.matrix import GRID_BITS, RowSource, UnitRows
from expost.learning.losses import TruncatedSquare
from expost.learning.model import LinearModel
from expost.learning.objective import TiltedRisk
from expost.learning.problem import Problem
from expost.learning.residual_check import ResidualCheck
from expost.noise import BitSource

__all__ = ["TiltedRidge"]

_REACH = 1.0  # in units of the target bound: a model that predicts 0 is never off by more
# Shares of the failure probability: tilt and check of the first attempt, then the tilts of wider ones.
_TILT_FAILURE, _CHECK_FAILURE = Fraction(6, 10), Fraction(3, 10)
_WIDER_FAILURES = (Fraction(6, 100), Fraction(3, 100), Fraction(1, 100))
_CHECK_SHARE = Fraction(1, 4)  # of a given epsilon
_CITATIONS = ("docs/proofs/objective-perturbation.md", "docs/proofs/truncated-ridge.md", "LNRWW17, Theorem 2.7")


@dataclass(frozen=True)
class _Attempt:
    """One fitted model with what it cost and the excess risk that was certified for it."""

    theta: NDArray[np.float64]
    generation: Fraction
    testing: Fraction
    excess_risk: float
    met: bool


class TiltedRidge:
    """Ridge regression: minimum of a tilted, truncated risk, then a check that the truncation did not matter.

    The squared loss is steep far from the target; beyond one target bound it is continued as a straight line, which
    makes one row's gradient small. Where residuals stay within that reach both losses have the same gradient, and a
    private check says whether they do. If they do not, the reach is widened until no row can leave it.

    Guarantee: pure ex-post DP, known only after the run: the sum of what tilts and check cost; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: see TiltedRisk and ResidualCheck, which are composed.
    Accuracy: excess risk of the *squared* loss within the target except with the failure probability.
    Numerics: see TiltedRisk and ResidualCheck.
    Reference: docs/proofs/truncated-ridge.md; docs/proofs/objective-perturbation.md; KST12, Theorem 1.
    """

    question = "ridge regression"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._failure = problem.aim.failure_probability
        self._epsilon = self._price()

    # What it will cost -------------------------------------------------------------------------------------------

    def _risk(self, reach: float) -> TiltedRisk:
        return TiltedRisk(TruncatedSquare(reach), self._problem.ball, self._problem.rows, self._problem.penalty)

    @property
    def _goal(self) -> float:
        return self._problem.aim.tolerance / self._problem.risk_unit

    def _price(self) -> Fraction:
        """The epsilon of the first tilt."""
        aim, prices = self._problem.aim, self._risk(_REACH).prices
        if aim.epsilon is not None:
            level = aim.epsilon * (1 - _CHECK_SHARE)
            prices.split(level)
            return level
        share = 1 - self._check_room()
        return aim.afford(prices.epsilon_for(self._goal, self._failure * _TILT_FAILURE, tilt_share=share))

    def _check_room(self) -> float:
        """The share of the gradient length left to the check.

        The tilt costs 2 q / share and a check of a row that contributes 3/4 costs about 3.5 / (1 - share); this splits
        them in the ratio of their roots, which minimises the sum.
        """
        tilt = 2 * laplace_norm_quantile(self._problem.ball.dimension, float(self._failure * _TILT_FAILURE))
        return math.sqrt(3.5) / (math.sqrt(3.5) + math.sqrt(tilt))

    @property
    def worst_case(self) -> Loss:
        return self._problem.worst_case

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return self._problem.unit_rows(source)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        attempt = self._first(rows, bits)
        for share in _WIDER_FAILURES:
            wider = None if attempt.met else self._wider(attempt, share, rows, bits)
            if wider is None:
                break
            attempt = wider
        return self._release(attempt)

    def _first(self, rows: UnitRows, bits: BitSource | None) -> _Attempt:
        risk = self._risk(_REACH)
        theta = risk.release(rows, self._epsilon, target_scale=2.0**-GRID_BITS, bits=bits)
        checked = ResidualCheck(theta, _REACH, self._problem.ball.norm).run(
            rows,
            allowed=self._allowed(risk),
            failure_probability=self._failure * _CHECK_FAILURE,
            cap=self._problem.aim.cap - self._epsilon,
            bits=bits,
        )
        excess = self._excess(risk, checked.hidden)
        return _Attempt(theta, self._epsilon, checked.epsilon, excess, checked.enough)

    def _excess(self, risk: TiltedRisk, hidden: float) -> float:
        return risk.prices.excess_risk(self._epsilon, self._failure * _TILT_FAILURE, left_over=hidden)

    def _allowed(self, risk: TiltedRisk) -> float | None:
        """How much may be hidden for the target to be met; with epsilon given, whatever is hidden is reported."""
        if self._problem.aim.target is None:
            return None
        return risk.prices.room(self._epsilon, self._failure * _TILT_FAILURE, self._goal)

    def _wider(self, before: _Attempt, share: Fraction, rows: UnitRows, bits: BitSource | None) -> _Attempt | None:
        """An attempt whose reach covers every residual that a model like the last one can have, if it can be paid."""
        aim = self._problem.aim
        if aim.target is None:
            return None
        risk = self._risk(1 + 1.25 * ResidualCheck(before.theta, 0.0, self._problem.ball.norm).most)
        epsilon = risk.prices.epsilon_for(self._goal, self._failure * share)
        if before.generation + before.testing + epsilon > aim.cap:
            return None
        theta = risk.release(rows, epsilon, target_scale=2.0**-GRID_BITS, bits=bits)
        fits = ResidualCheck(theta, risk.loss.steepest, self._problem.ball.norm).needless
        bound = risk.prices.excess_risk(epsilon, self._failure * share) if fits else math.inf
        return replace(
            before, theta=theta, generation=before.generation + epsilon, excess_risk=bound, met=bound <= self._goal
        )

    # What leaves --------------------------------------------------------------------------------------------------

    def _release(self, attempt: _Attempt) -> Release[LinearModel]:
        excess = attempt.excess_risk * self._problem.risk_unit
        receipt = self._problem.receipt(
            question=self.question,
            method="objective perturbation of the truncated squared loss, residual check",
            bill=PureLoss(attempt.generation + attempt.testing),
            outcome=self._outcome(attempt),
            achieved=excess if math.isfinite(excess) else None,
            breakdown={"generation": attempt.generation, "testing": attempt.testing},
            citations=_CITATIONS,
        )
        return Release(self._problem.model(attempt.theta), receipt)

    def _outcome(self, attempt: _Attempt) -> Outcome:
        if self._problem.aim.target is None:
            return Outcome.FIXED
        if not attempt.met:
            return Outcome.NOT_MET
        return Outcome.TESTED if attempt.testing else Outcome.CERTIFIED
