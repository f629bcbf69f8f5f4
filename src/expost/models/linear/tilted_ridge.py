"""Ridge regression by objective perturbation of a truncated squared loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.noisy_remainder import CELLS, CLIMB_COST, largest_scale
from expost.core import InvalidRequest, Loss, Outcome, PureLoss, Release
from expost.core.rational import round_up
from expost.data.matrix import GRID_BITS, RowSource, UnitRows
from expost.models.linear.losses import TruncatedSquare
from expost.models.linear.model import LinearModel
from expost.models.linear.objective import TiltedRisk
from expost.models.linear.problem import Problem
from expost.models.linear.residual_check import Checked, ResidualCheck
from expost.noise import BitSource

__all__ = ["TiltedRidge"]

Floats = NDArray[np.float64]

_REACH = 1.0  # in units of the target bound: a model that predicts 0 is never off by more
# Shares of the failure probability: tilt and check of the first attempt together, the tilts of wider ones, and what is
# said of a first attempt that missed. Whether a wider one follows depends on the noise, so the shares add up.
_FIRST_FAILURE = Fraction(98, 100)
_WIDER_FAILURES = (Fraction(10, 1000), Fraction(4, 1000), Fraction(2, 1000))
_MISSED_FAILURE = Fraction(4, 1000)
_CHECK_SHARE, _CHECK_FAILURE = Fraction(1, 4), Fraction(1, 4)  # of a given epsilon and its failure probability
_USUAL_COEFFICIENT = 1.5  # the largest coefficient, in units of bounds, for which tilt and check share the cost best
_MOST_TILT, _SEARCHES = 3.0, 6  # the tilt costs at most so much more than one without a check; points of the search
_NEAR = 0.85  # of the distance that the target allows
_CITATIONS = ("docs/proofs/objective-perturbation.md", "docs/proofs/truncated-ridge.md", "LNRWW17, Theorem 2.7")


@dataclass(frozen=True)
class _Attempt:
    """One fitted model with what it cost and the excess risk that was certified for it."""

    theta: Floats
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
        self._epsilon, self._scale = self._plan()
        if problem.aim.target is None:  # what will be said of the model is computed here once, before anything is paid
            self._check_of(np.zeros(problem.ball.dimension))
            self._known(1 - _CHECK_FAILURE)

    # What it will cost -------------------------------------------------------------------------------------------

    def _risk(self, reach: float) -> TiltedRisk:
        return TiltedRisk(TruncatedSquare(reach), self._problem.ball, self._problem.rows, self._problem.penalty)

    @property
    def _goal(self) -> float:
        return self._problem.aim.tolerance / self._problem.risk_unit

    def _plan(self) -> tuple[Fraction, float]:
        """The epsilon of the first tilt, and the noise of the first look at what truncation hides."""
        aim, prices = self._problem.aim, self._risk(_REACH).prices
        if aim.epsilon is not None:
            level = aim.epsilon * (1 - _CHECK_SHARE)
            prices.split(level)
            return level, 0.0
        least = aim.afford(prices.epsilon_for(self._goal, self._failure * _FIRST_FAILURE))
        at_least = prices.excess_risks(least, CELLS.tolist())
        usual = ResidualCheck(np.array([_USUAL_COEFFICIENT]), _REACH, self._problem.ball.norm, self._near).most

        def cost(factor: float) -> float:
            # Only the search for the best factor takes the risk to fall with its square; what is found is priced anew.
            scale = self._noise_beside(at_least / factor**2, precision=0.01)
            return math.inf if scale is None else factor * float(least) + CLIMB_COST * usual / scale

        best = _minimum(cost, 1.0, _MOST_TILT)
        epsilon = aim.afford(round_up((least - prices.jacobian) * Fraction(best) + prices.jacobian))
        return epsilon, self._noise_beside(prices.excess_risks(epsilon, CELLS.tolist())) or 0.0

    def _noise_beside(self, risks: Floats, precision: float = 1e-6) -> float | None:
        """How noisy the first look may be beside a tilt that leads to these risks; none if there is no room for noise."""
        goal = self._goal * (1 - 1e-9)
        # The two sides of _together, solved for what is hidden.
        rooms = np.minimum(goal - risks, self._slope * (math.sqrt(goal) - np.sqrt(risks))) * self._problem.rows
        return largest_scale(rooms, self._failure * _FIRST_FAILURE, grid=2.0**-GRID_BITS, precision=precision)

    @property
    def _near(self) -> float:
        """A distance from the best coefficients: most of what the risk aimed at allows, by strong convexity."""
        risk = self._goal if self._problem.aim.target is not None else 2 * self._known(Fraction(1, 10))
        return _NEAR * math.sqrt(2 * risk / self._problem.penalty)

    @property
    def _slope(self) -> float:
        return self._near * math.sqrt(2 * self._problem.penalty)

    def _check_of(self, theta: Floats, reach: float = _REACH) -> ResidualCheck:
        away = self._risk(_REACH).prices.output_length(self._epsilon, Fraction(CELLS[-1]))
        return ResidualCheck(theta, reach, self._problem.ball.norm, self._near + away)

    def _together(self, known: float, hidden: float) -> float:
        """A bound on the excess risk from the truncated risk's and the mean of what is hidden from it.

        Near the best coefficients what is hidden adds to the risk, far from them to the gradient
        (docs/proofs/truncated-ridge.md, 2).
        """
        return max(known + hidden, (math.sqrt(known) + hidden / self._slope) ** 2)

    def _known(self, share: Fraction) -> float:
        """What the first tilt alone can do to the truncated risk, except with this share of the failures."""
        return self._risk(_REACH).prices.excess_risk(self._epsilon, self._failure * share)

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
        theta = self._risk(_REACH).release(rows, self._epsilon, target_scale=2.0**-GRID_BITS, bits=bits)
        check = self._check_of(theta)
        left = self._problem.aim.cap - self._epsilon
        if self._problem.aim.target is None:
            checked = check.read(rows, left, bits=bits)
            bound = self._bound(checked, Fraction(1))
        else:
            checked = check.climb(rows, scale=self._scale, cap=left, bits=bits)
            bound = self._goal if checked.enough else self._missed(checked)
        return _Attempt(theta, self._epsilon, checked.epsilon, bound, checked.enough)

    def _missed(self, checked: Checked) -> float:
        """The bound of a first attempt that misses; none where so small a failure probability has no quantile."""
        try:
            return self._bound(checked, _MISSED_FAILURE)
        except InvalidRequest:
            return math.inf

    def _bound(self, checked: Checked, share: Fraction) -> float:
        """The excess risk that holds whatever was read, except with this share of the failure probability."""
        hidden = checked.hidden(float(self._failure * share * _CHECK_FAILURE)) / self._problem.rows
        return self._together(self._known(share * (1 - _CHECK_FAILURE)), hidden)

    def _wider(self, before: _Attempt, share: Fraction, rows: UnitRows, bits: BitSource | None) -> _Attempt | None:
        """An attempt whose reach covers every residual that a model like the last one can have, if it can be paid."""
        aim = self._problem.aim
        if aim.target is None:
            return None
        largest = self._check_of(before.theta).furthest
        risk = self._risk(1.25 * (1 + largest))
        try:
            epsilon = risk.prices.epsilon_for(self._goal, self._failure * share)
        except (
            InvalidRequest
        ):  # so wide a reach, or so rare a failure, is beyond floats: a miss, no error after the charge
            return None
        if before.generation + before.testing + epsilon > aim.cap:
            return None
        theta = risk.release(rows, epsilon, target_scale=2.0**-GRID_BITS, bits=bits)
        fits = self._check_of(theta, risk.loss.steepest).needless
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


def _minimum(cost: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is lowest on a grid, then twice on a finer one around that point."""
    for _ in range(3):
        points = np.linspace(low, high, _SEARCHES)
        best: float = min(points.tolist(), key=cost)
        step = (high - low) / (_SEARCHES - 1)
        low, high = max(low, best - step), min(high, best + step)
    return best
