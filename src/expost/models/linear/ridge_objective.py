"""Ridge regression by objective perturbation of a truncated squared loss, with a check of what the truncation hid."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.ridge_certificate import CLIMB_COST, REMAINDER_RATIO, THRESHOLDS, cells_for, largest_scale
from expost.core import InvalidRequest, Ladder, Release, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, WeightedChunk
from expost.models.descent.score_head import row_sums
from expost.models.linear.fit_neighbours import REPLACED_ROWS, FitNeighbours
from expost.models.linear.linear_fit import FitPlan, LinearModel, Problem
from expost.models.linear.row_loss import TruncatedSquare
from expost.models.linear.tilted_risk import TiltedRisk
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.parameter import LARGEST_RATE

__all__ = ["REACH", "CheckResult", "ResidualCheck", "TiltedRidge"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
REACH = 1.0
"""The usual reach, in units of the target bound: a model that predicts 0 is never off by more."""
# Shares of the failure probability: tilt and check of the first attempt together, the tilts of wider ones, and what is
# stated about a first attempt that missed. Whether a wider one follows depends on the noise, so the shares add up.
_FIRST_FAILURE = Fraction(98, 100)
_WIDER_FAILURES = (Fraction(10, 1000), Fraction(4, 1000), Fraction(2, 1000))
_MISSED_FAILURE = Fraction(4, 1000)
_CHECK_SHARE, _CHECK_FAILURE = Fraction(1, 4), Fraction(1, 4)  # of a given epsilon and its failure probability
_LARGEST_JACOBIAN = Fraction(9, 10)  # of a given epsilon: beyond it next to nothing is left for the tilt
_USUAL_SCORE = 1.5  # the largest |row . theta|, in units of target bounds, for which tilt and check share the cost best
_USUAL_PENALTY, _USUAL_GROWTH = 0.005, 0.3  # below this penalty it grows by this power, on the tables measured
_USUAL_CURVATURE = 1 / 12  # of a column, in squared units of its bounds: the variance of evenly spread values
_MOST_TILT, _SEARCHES = 6.0, 7  # the tilt costs at most so much more than one without a check; points of the search
_NEAR = 0.85  # of the distance that the target allows
_HOPELESS = 8  # units of noise above the threshold beyond which a further rung will hardly accept
_FLOAT_ERROR = 1e-9  # more than float64 can be off in a residual of rows in the unit ball
_CITATIONS = ("docs/proofs/objective-perturbation.md", "docs/proofs/truncated-ridge.md", "LNRWW17, Theorem 2.7")


@dataclass(frozen=True)
class CheckResult:
    """How a check ended: the noisy hidden loss, the scale of its noise, and what reading it cost.

    ``rungs`` is the number of rungs at which the reading could have stopped, depending on its noise.
    """

    noisy: float
    scale: float
    epsilon: Fraction
    enough: bool
    rungs: int = 1

    def bound_hidden(self, failure_probability: float) -> float:
        """Bound the hidden loss from above, except with this probability.

        The rung was chosen by its noise, so every rung gets an even part of the probability: a union bound.
        """
        if self.scale == 0:
            return 0.0
        # One-sided; two units for the grid.
        tail = math.log(1 / min(2 * failure_probability / self.rungs, 1.0))
        return max(self.noisy, 0.0) + self.scale * tail * (1 + 1e-9) + 2 * _GRID


@dataclass(frozen=True)
class ResidualCheck:
    """Reads under noise how much loss the truncation can hide for coefficients within ``leash`` of the best ones.

    A row whose residual is ``beyond`` the reach contributes d beyond - d^2 / 2, d = min(beyond, |row| leash): how much
    half the square of ``beyond`` can fall between these coefficients and the best ones. That is at most ``most``, a
    public number because targets, rows and coefficients are bounded or public.

    Guarantee: pure ex-post DP, known only after the run: the rung at which the sum was low enough, at most the cap.
    Adjacency: that of ``neighbours``; the rows of a person share one weight.
    Sensitivity: ``most`` (L1), in grid units: contributions of a unit lie between 0 and it.
    Accuracy: the law of the noise is public and does not depend on the data or the coefficients (accuracy/ridge_certificate.py).
    Numerics: exact integers and exact noise; contributions are rounded up.
    Reference: LNRWW17, Theorem 2.7 (gradual release); docs/proofs/truncated-ridge.md.
    """

    theta: Floats
    reach: float
    ball: UnitBall
    leash: float
    neighbours: FitNeighbours = REPLACED_ROWS

    @property
    def furthest(self) -> float:
        """Bound how far beyond the reach a residual can be: |residual| is at most 1 + |row . theta|."""
        return max(1 + self.ball.furthest_score(self.theta) - self.reach, 0.0) * (1 + _FLOAT_ERROR) + _FLOAT_ERROR

    @property
    def most(self) -> float:
        """Bound the contribution of one row."""
        return float(_largest_fall(np.array(self.furthest), self.leash))

    @property
    def needless(self) -> bool:
        """Return whether no row can have a residual beyond the reach."""
        return self.furthest <= 2 * _FLOAT_ERROR

    def climb(self, rows: UnitRows, *, scale: float, cap: Fraction, bits: BitSource | None = None) -> CheckResult:
        """Read the sum with less and less noise, ``scale`` first, until a rung's threshold accepts it."""
        if self.needless:
            return CheckResult(0.0, 0.0, Fraction(0), True)
        first = math.floor(scale / _GRID)
        levels = (Fraction(self._grid_units, max(first, 1)) * REMAINDER_RATIO**rung for rung in range(len(THRESHOLDS)))
        ladder = tuple(level for level in levels if level <= cap)
        if not first or not ladder:
            return CheckResult(math.inf, math.inf, Fraction(0), False)
        path = DiscreteLaplacePath(self._seal_contributions(rows), Ladder(ladder), bits=bits)
        for rung, threshold in enumerate(THRESHOLDS[: len(ladder)]):
            noisy, noise = int(path.at(rung)[0]), first / REMAINDER_RATIO**rung
            # One unit stricter: discrete Laplace noise is within a unit of real noise.
            enough = noisy <= first * threshold - 1
            if enough or noisy > first * threshold + _HOPELESS * noise:
                break
        return CheckResult(noisy * _GRID, float(noise) * _GRID, ladder[rung], enough, len(ladder))

    def read(self, rows: UnitRows, epsilon: Fraction, *, bits: BitSource | None = None) -> CheckResult:
        """Read the sum once, at a given price."""
        if self.needless:
            return CheckResult(0.0, 0.0, Fraction(0), True)
        epsilon = min(epsilon, Fraction(LARGEST_RATE * self._grid_units))  # beyond it there is no noise left to shrink
        noisy = int(DiscreteLaplacePath(self._seal_contributions(rows), Ladder((epsilon,)), bits=bits).at(0)[0])
        return CheckResult(noisy * _GRID, float(self._grid_units / epsilon) * _GRID, epsilon, True)

    @property
    def _grid_units(self) -> int:
        # The contributions of a person's rows are weighted and rounded one by one.
        return math.ceil(self.most / _GRID) + self.neighbours.rows_per_unit

    def _seal_contributions(self, rows: UnitRows) -> Sealed:
        """Seal the sum of the contributions."""
        total = rows.reduce(self._sum_contributions, operator.add)
        return Sealed(total, Sensitivity(self._grid_units, adjacency=self.neighbours.adjacency))

    def _sum_contributions(self, chunks: Iterable[WeightedChunk]) -> int:
        total, units = 0, self._grid_units
        for features, target, weights in chunks:
            # Added one product after the other, so that no residual depends on where in a chunk its row stands.
            residual = np.abs(row_sums((features * self.theta).T) - target) * _GRID
            outside = np.flatnonzero(residual > self.reach - _FLOAT_ERROR)
            beyond = residual[outside] - self.reach + _FLOAT_ERROR
            length = np.linalg.norm(features[outside], axis=1) * _GRID
            hidden = _largest_fall(beyond, length * self.leash) / _GRID
            hidden = np.minimum(hidden, units - self.neighbours.rows_per_unit)
            total += int(np.ceil(hidden if weights is None else hidden * weights[outside]).sum())
        return total


def _largest_fall(number: Floats, change: Floats | float) -> Floats:
    """Return how much half the square of a number can fall when the number shrinks by at most this much, to 0 at most."""
    moved = np.minimum(number, change)
    return moved * (number - moved / 2)


@dataclass(frozen=True)
class _Attempt:
    """One fitted model with what it cost and the excess risk that was certified for it."""

    theta: Floats
    generation: Fraction
    testing: Fraction
    excess_risk: float
    met: bool


class TiltedRidge(FitPlan):
    """Ridge regression: minimum of a tilted, truncated risk, then a check that the truncation did not matter.

    The squared loss is steep far from the target. Beyond one target bound it is continued as a straight line, which
    makes one row's gradient small. Where residuals stay within that reach both losses have the same gradient; a
    private check finds out whether they do. If they do not, the reach is widened until no row can leave it. The first
    reach may be any public or released number: a shorter one needs less noise, a longer one hides less.

    Guarantee: pure ex-post DP, known only after the run: the sum of what tilts and check cost; at most the cap.
    Adjacency: that of the problem: a row or a person is replaced, or added or removed; a number of rows is public.
    Sensitivity: see TiltedRisk and ResidualCheck, which are composed.
    Accuracy: excess risk of the *squared* loss within the target except with the failure probability.
    Numerics: see TiltedRisk and ResidualCheck.
    Reference: docs/proofs/truncated-ridge.md; docs/proofs/objective-perturbation.md; KST12, Theorem 1.
    """

    question = "ridge regression"
    _adds_rows = _weighs_rows = True

    def __init__(self, problem: Problem, *, reach: float = REACH, widens: bool = True) -> None:
        self._problem, self._reach, self._widens = problem, reach, widens
        self._failure = problem.aim.failure_probability
        self._cells = cells_for(float(self._failure))
        self._first_risk = self._risk_within(reach)
        self._epsilon, self._scale = self._price_first()
        if problem.aim.target is None:  # compute once, before anything is paid, what the receipt will state
            self._check_for(np.zeros(problem.ball.dimension))
            self._known_risk(1 - _CHECK_FAILURE)

    @property
    def tilt_price(self) -> Fraction:
        """Return what the first tilt costs."""
        return self._epsilon

    @property
    def jacobian_share(self) -> float:
        """Return the part of the tilt's epsilon that the change of variables takes."""
        return float(self._first_risk.prices.jacobian / self._epsilon)

    def _risk_within(self, reach: float) -> TiltedRisk:
        problem = self._problem
        loss = TruncatedSquare(reach)
        return TiltedRisk(loss, problem.ball, problem.rows, problem.penalty, neighbours=problem.neighbours)

    def _price_first(self) -> tuple[Fraction, float]:
        """Return the epsilon of the first tilt, and the noise of the first reading of what truncation hides."""
        aim, prices = self._problem.aim, self._first_risk.prices
        if aim.epsilon is not None:
            level = aim.epsilon * (1 - _CHECK_SHARE)
            if level * _LARGEST_JACOBIAN <= prices.jacobian:
                needed = float(prices.jacobian / (1 - _CHECK_SHARE) / _LARGEST_JACOBIAN)
                raise InvalidRequest(
                    f"Expected an epsilon above {needed:.3g} for objective perturbation with this number of rows and "
                    "regularization",
                    got=float(aim.epsilon),
                    do='Raise epsilon or regularization, or pass method="certificate"',
                )
            return level, 0.0
        least = aim.check_price(prices.epsilon_for(self._problem.goal, self._failure * _FIRST_FAILURE))
        cells = self._cells.tolist()
        at_least = prices.excess_risks(least, cells)
        tilt = float(least - prices.jacobian)

        def cost(factor: float) -> float:
            # Only the search for the best factor assumes that the risk falls with its square; the result is priced anew.
            scale = self._reading_scale(at_least / factor**2, precision=0.01)
            usual = float(_largest_fall(np.array(self._usual_score(factor * tilt)), self._near_distance))
            return math.inf if scale is None else factor * tilt + CLIMB_COST * usual / scale

        low, high = 1.0, _MOST_TILT
        for _ in range(3):  # on a grid, then twice on a finer one around the best point
            best: float = min(np.geomspace(low, high, _SEARCHES).tolist(), key=cost)
            step = (high / low) ** (1 / (_SEARCHES - 1))
            low, high = max(low, best / step), min(high, best * step)
        epsilon = round_up((least - prices.jacobian) * Fraction(best) + prices.jacobian)
        # A tilt whose check could accept nothing would be paid in vain; so would one that leaves nothing for the check.
        while epsilon <= aim.cap:
            scale = self._reading_scale(prices.excess_risks(epsilon, cells))
            if scale is not None:
                return epsilon, scale
            epsilon = round_up(epsilon * Fraction(11, 10))
        aim.check_price(epsilon)
        raise InvalidRequest("Expected a failure probability that this noise can reach", do="Allow more failures")

    def _usual_score(self, tilt_level: float) -> float:
        """Guess the largest |row . theta| after a tilt of this level. Only the shares of tilt and check depend on it."""
        ball, law = self._problem.ball, self._first_risk.law
        assert law is not None
        coordinate = law.length_quantile(Fraction(tilt_level), 0.5) / math.sqrt(ball.dimension) / self._problem.rows
        # The curvature of columns that are spread evenly over their bounds, or over the ball.
        entry = 1 / ball.bound if ball.lows is not None else 1 / ball.width
        moved = coordinate / (self._problem.penalty + _USUAL_CURVATURE * entry**2)
        score = _USUAL_SCORE
        if ball.lows is None:  # rows are seldom as long as the ball: the less penalty, the larger the coefficients
            score *= max(_USUAL_PENALTY / self._problem.penalty, 1.0) ** _USUAL_GROWTH
        return score + ball.furthest_score(np.resize([moved, -moved], ball.dimension))

    def _reading_scale(self, risks: Floats, precision: float = 1e-6) -> float | None:
        """Return how noisy the first reading may be with a tilt that leads to these risks; None if no noise fits."""
        goal = self._problem.goal * (1 - 1e-9)
        # The two sides of _together, solved for what is hidden.
        allowed = (
            np.minimum(goal - risks, self._residual_slope * (math.sqrt(goal) - np.sqrt(risks))) * self._problem.rows
        )
        failure = self._failure * _FIRST_FAILURE
        return largest_scale(allowed, failure, grid=_GRID, precision=precision, cells=self._cells)

    @cached_property
    def _near_distance(self) -> float:
        """Return a distance from the best coefficients: most of what the risk allows, by strong convexity."""
        given = self._problem.aim.target is None
        risk = 2 * self._known_risk(Fraction(1, 10)) if given else self._problem.goal
        return _NEAR * math.sqrt(2 * risk / self._problem.penalty)

    @cached_property
    def _residual_slope(self) -> float:
        return self._near_distance * math.sqrt(2 * self._problem.penalty)

    def _check_for(self, theta: Floats, reach: float | None = None) -> ResidualCheck:
        """Return the check of released coefficients, at the first reach by default: the leash covers the best ones."""
        reach = self._reach if reach is None else reach
        away = self._first_risk.prices.output_length(self._epsilon, Fraction(self._cells[-1]))
        return ResidualCheck(theta, reach, self._problem.ball, self._near_distance + away, self._problem.neighbours)

    def _bound_together(self, known: float, hidden: float) -> float:
        """Bound the excess risk from the truncated risk's and the mean of what is hidden from it.

        Near the best coefficients what is hidden adds to the risk, far from them to the gradient
        (docs/proofs/truncated-ridge.md, 2).
        """
        return max(known + hidden, (math.sqrt(known) + hidden / self._residual_slope) ** 2)

    def _known_risk(self, share: Fraction) -> float:
        """Bound what the first tilt alone can do to the truncated risk, except with this share of the failures."""
        return self._first_risk.prices.excess_risk(self._epsilon, self._failure * share)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        theta = self._first_risk.release(rows, self._epsilon, target_scale=_GRID, bits=bits)
        attempt = self._check_first(theta, rows, bits)
        for share in _WIDER_FAILURES:
            wider = None if attempt.met else self._fit_wider(attempt, share, rows, bits)
            if wider is None:
                break
            attempt = wider
        return self.release_model(
            attempt.theta,
            method="objective perturbation of the truncated squared loss, residual check",
            generation=attempt.generation,
            testing=attempt.testing,
            met=attempt.met,
            achieved=attempt.excess_risk * self._problem.risk_unit,
            citations=_CITATIONS,
        )

    def _check_first(self, theta: Floats, rows: UnitRows, bits: BitSource | None) -> _Attempt:
        """Check the residuals of the model that was fitted at the reach of one target bound."""
        check, left = self._check_for(theta), self._problem.aim.cap - self._epsilon
        if self._problem.aim.target is None:
            result = check.read(rows, left, bits=bits)
            bound = self._bound_risk(result, Fraction(1))
        else:
            result = check.climb(rows, scale=self._scale, cap=left, bits=bits)
            bound = self._problem.goal
            if not result.enough:
                try:
                    bound = self._bound_risk(result, _MISSED_FAILURE)
                except InvalidRequest:  # so small a failure probability has no quantile
                    bound = math.inf
        return _Attempt(theta, self._epsilon, result.epsilon, bound, result.enough)

    def _bound_risk(self, result: CheckResult, share: Fraction) -> float:
        """Bound the excess risk, whatever was read, except with this share of the failure probability."""
        hidden = result.bound_hidden(float(self._failure * share * _CHECK_FAILURE)) / self._problem.rows
        return self._bound_together(self._known_risk(share * (1 - _CHECK_FAILURE)), hidden)

    def _fit_wider(self, before: _Attempt, share: Fraction, rows: UnitRows, bits: BitSource | None) -> _Attempt | None:
        """Fit with a reach that covers every residual that a model like the last one can have, if it can be paid."""
        aim = self._problem.aim
        if aim.target is None or not self._widens:
            return None
        risk = self._risk_within(1.25 * (self._reach + self._check_for(before.theta).furthest))
        try:
            epsilon = risk.prices.epsilon_for(self._problem.goal, self._failure * share)
        except InvalidRequest:  # so wide a reach, or so rare a failure, is beyond floats: a miss, not an error
            return None
        generation = before.generation + epsilon
        if generation + before.testing > aim.cap:
            return None
        theta = risk.release(rows, epsilon, target_scale=_GRID, bits=bits)
        fits = self._check_for(theta, risk.loss.steepest).needless
        bound = risk.prices.excess_risk(epsilon, self._failure * share) if fits else math.inf
        met = bound <= self._problem.goal
        return replace(before, theta=theta, generation=generation, excess_risk=bound, met=met)
