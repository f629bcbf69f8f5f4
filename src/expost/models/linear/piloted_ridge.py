"""Ridge regression after cheap private readings: how far residuals reach, and whether one direction is enough."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from expost.core import ExpostError, InvalidRequest, Ladder, Norm, PureLoss, Release, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.data.unit_ball import GRID_BITS, UnitRows, WeightedChunk
from expost.models.linear.linear_fit import FitPlan, LinearModel, Problem
from expost.models.linear.ridge_objective import REACH, TiltedRidge
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["PilotedRidge", "choose_reach", "hidden_share"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
_SLOPE_CHANGE = Fraction(9, 4)  # of (s^2, s y) for |s|, |y| <= 1, in the 1-norm (docs/proofs/piloted-ridge.md, 1)
_CLIP = 0.6  # residuals are clipped to it where their size is guessed
# Shares of the failure probability: one direction that does not meet the target; a short reach; the usual reach after it.
_DIRECTION_FAILURE, _SHORT_FAILURE, _USUAL_FAILURE = Fraction(2, 100), Fraction(90, 100), Fraction(8, 100)
# Prices as parts of that of a tilt at the usual reach: of the slope, of the residuals' size, of the last reading of the risk.
_SLOPE_SHARE, _SIZE_SHARE, _RISK_SHARE = Fraction(1, 25), Fraction(1, 50), Fraction(1, 10)
_PRECISE = 0.005  # of a mean: slope and size need not be more precise
_TOO_NOISY = 0.1  # a slope as noisy as this would not shorten the reach
_RATIO = Fraction(3, 2)
_RISK_READINGS = 6
_HOPELESS = 1.5  # units of noise above the target beyond which a further reading will hardly accept
_STEEPEST = 4.0  # multiples of the direction are at most this
_REACHES = (0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.85)
_HIDDEN = 0.4  # of the target: what a short reach may hide of residuals with normal tails
_CITATIONS = ("docs/proofs/piloted-ridge.md", "LNRWW17, Theorem 2.7")


def hidden_share(ratio: float) -> float:
    """Return E (|z| - ratio)+^2 of a standard normal z: the part of squared residuals that a reach hides.

    >>> hidden_share(0.0), round(hidden_share(2.0), 4)
    (1.0, 0.0115)
    """
    return float(2 * ((1 + ratio**2) * norm.sf(ratio) - ratio * norm.pdf(ratio)))


def _multiply_scores(score: Floats, told: Floats) -> Floats:
    return np.stack([score**2, score * told])


@dataclass(frozen=True)
class _ClippedSquares:
    multiple: float

    def __call__(self, score: Floats, told: Floats) -> Floats:
        return np.minimum(np.abs(told - self.multiple * score), _CLIP)[None] ** 2


@dataclass(frozen=True)
class _HalfSquares:
    multiple: float

    def __call__(self, score: Floats, told: Floats) -> Floats:
        return (told - self.multiple * score)[None] ** 2 / 2


@dataclass(frozen=True)
class _SumOfParts:
    """Sums numbers made of each row's score along a direction and its target."""

    parts: Callable[[Floats, Floats], Floats]
    along: float
    """Each entry of the direction."""

    def __call__(self, chunks: Iterable[WeightedChunk]) -> NDArray[np.int64]:
        total = np.zeros(len(self.parts(np.zeros(0), np.zeros(0))), np.int64)
        for features, target, weights in chunks:
            # Sums of integers are exact in any order; the rest is computed number by number.
            score = np.clip(features.sum(axis=1) * (_GRID * self.along), -1.0, 1.0)
            found = self.parts(score, np.clip(target * _GRID, -1.0, 1.0)) / _GRID
            total += np.ceil(found if weights is None else found * weights).astype(np.int64).sum(axis=1)
        return total


def choose_reach(mean_square: float, goal: float) -> float:
    """Return the shortest reach that would hide a small part of the goal if residuals of this size were normal.

    Only prices depend on the choice: what a reach really hides is checked.

    >>> choose_reach(0.01, 0.01), choose_reach(0.1, 0.01), choose_reach(0.5, 0.01)
    (0.3, 0.45, 1.0)
    """
    spread = math.sqrt(max(mean_square, 1e-12))
    fitting = (each for each in _REACHES if spread**2 / 2 * hidden_share(each / spread) <= _HIDDEN * goal)
    return next(fitting, REACH)


class PilotedRidge(FitPlan):
    """Ridge regression to an excess risk, with a reach of the truncated loss that follows from a reading of the residuals.

    The residuals are those along one public direction, equal coefficients, whose best multiple is read from two noisy
    sums. Where they are small, a short reach suffices, and a tilt needs noise in proportion to the reach. Where the risk
    of that multiple already meets the target, it is the model.

    Guarantee: pure ex-post DP, known only after the run: what the readings and the fits cost; at most the cap.
    Adjacency: that of the problem: a row or a person is replaced, or added or removed; a number of rows is public.
    Sensitivity: 9/4 (L1) for the sums of s^2 and s y, 0.36 for clipped squares of residuals, (1 + |c|)^2 / 2 for half
        their squares at a multiple c; see TiltedRidge for the fits.
    Accuracy: excess risk within the target except with the failure probability, which the readings and the fits share.
    Numerics: exact integers and exact noise for the readings; see TiltedRidge.
    Reference: docs/proofs/piloted-ridge.md; docs/proofs/truncated-ridge.md; LNRWW17, Theorem 2.7.
    """

    question = "ridge regression"
    _adds_rows = _weighs_rows = True

    def __init__(self, problem: Problem) -> None:
        if problem.aim.target is None or problem.aim.is_score:
            raise InvalidRequest("Expected an excess risk", do="Pass excess_risk=")
        self._problem = problem
        self._usual = TiltedRidge(problem)
        self._price = price = self._usual.tilt_price
        precise = round_up(1 / (_PRECISE * problem.rows))
        self._slope_level = price * _SLOPE_SHARE
        self._size_level = price * _SIZE_SHARE
        if precise < price:  # far more precise than needed: a fifth of the shares is enough
            self._slope_level = min(self._slope_level, max(_SLOPE_CHANGE * precise, self._slope_level / 5))
            self._size_level = min(self._size_level, max(Fraction(_CLIP) ** 2 * precise, self._size_level / 5))
        self._after_pilot = self._plan_after_pilot()

    def _plan_after_pilot(self) -> TiltedRidge | None:
        """Return the fit at the usual reach after all readings; None where readings do not fit under the cap or are too noisy."""
        if self._slope_noise > _TOO_NOISY:
            return None
        readings = self._slope_level + self._size_level + self._price * _RISK_SHARE
        try:
            return self._plan_within(_SHORT_FAILURE + _USUAL_FAILURE, readings)
        except ExpostError:
            return None

    @property
    def _slope_noise(self) -> float:
        return float(_SLOPE_CHANGE / self._slope_level) / self._problem.rows

    @cached_property
    def _direction(self) -> Floats:
        """Return coefficients whose scores lie between -1 and 1 for every row in the ball."""
        ball = self._problem.ball
        return np.full(ball.dimension, 1.0 if ball.norm is Norm.L1 else 1 / math.sqrt(ball.dimension))

    @cached_property
    def _direction_penalty(self) -> float:
        """Return the penalty on the square of a multiple of the direction."""
        return self._problem.penalty * float(self._direction @ self._direction)

    def _seal_sums(self, rows: UnitRows, parts: Callable[[Floats, Floats], Floats], most: float) -> Sealed:
        """Seal sums over rows of numbers made of score and target; one row changes them by ``most`` in the 1-norm."""
        total = rows.reduce(_SumOfParts(parts, float(self._direction[0])), operator.add)
        # The numbers of a unit's rows are rounded one by one.
        neighbours = self._problem.neighbours
        units = math.ceil(most / _GRID * (1 + 1e-9)) + len(total) * neighbours.rows_per_unit * neighbours.gradients
        return Sealed(total, Sensitivity(units, adjacency=neighbours.adjacency))

    def _seal_slope(self, rows: UnitRows) -> Sealed:
        """Seal the sums of s^2 and s y."""
        return self._seal_sums(rows, _multiply_scores, float(_SLOPE_CHANGE))

    def _seal_size(self, rows: UnitRows, multiple: float) -> Sealed:
        """Seal the sum of clipped squares of residuals."""
        return self._seal_sums(rows, _ClippedSquares(multiple), _CLIP**2)

    def _seal_risk(self, rows: UnitRows, multiple: float) -> Sealed:
        """Seal the sum of half the squares of residuals."""
        return self._seal_sums(rows, _HalfSquares(multiple), (1 + abs(multiple)) ** 2 / 2)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        if self._after_pilot is None:
            return self._usual.climb(rows, bits)
        multiple = self._read_slope(rows, bits)
        size = self._read_size(multiple, rows, bits)
        spent = self._slope_level + self._size_level
        if size / 2 + self._direction_penalty / 2 * multiple**2 <= self._problem.goal:
            bound, paid = self._read_risk(multiple, rows, bits)
            spent += paid
            if bound <= self._problem.goal:
                return self._release_direction(multiple, bound, spent)
        return self._fit_within(choose_reach(size, self._problem.goal), spent, rows, bits)

    def _read_slope(self, rows: UnitRows, bits: BitSource | None) -> float:
        """Return a multiple of the direction that about minimizes the risk along it."""
        noisy = DiscreteLaplacePath(self._seal_slope(rows), Ladder((self._slope_level,)), bits=bits).at(0)
        square, cross = (float(each) * _GRID / self._problem.rows for each in noisy)
        # Shrunk by the noise: only prices depend on the multiple.
        slope = cross / (max(square, 0.0) + self._direction_penalty + self._slope_noise)
        return float(np.clip(slope, -_STEEPEST, _STEEPEST))

    def _read_size(self, multiple: float, rows: UnitRows, bits: BitSource | None) -> float:
        """Return a cautious guess of the mean squared residual, from residuals clipped to a short length."""
        sealed = self._seal_size(rows, multiple)
        noisy = int(DiscreteLaplacePath(sealed, Ladder((self._size_level,)), bits=bits).at(0)[0])
        noise = _CLIP**2 / float(self._size_level)
        return max(noisy * _GRID + noise, noise) / self._problem.rows

    def _read_risk(self, multiple: float, rows: UnitRows, bits: BitSource | None) -> tuple[float, Fraction]:
        """Bound the risk of a multiple of the direction, with as little noise as the target needs, and return the price."""
        problem, sealed = self._problem, self._seal_risk(rows, multiple)
        penalty = self._direction_penalty / 2 * multiple**2
        amount = float(sealed.sensitivity.amount) * _GRID
        levels = [self._price * _RISK_SHARE]
        # P(noise < -t) <= exp(-t / scale) / 2. More readings than these start above the target's own size.
        failure = float(problem.aim.failure_probability * _DIRECTION_FAILURE) / _RISK_READINGS
        units = math.log(1 / (2 * failure)) * (1 + 1e-9)
        while (
            len(levels) < _RISK_READINGS and amount / float(levels[0] / _RATIO) * units <= problem.goal * problem.rows
        ):
            levels.insert(0, levels[0] / _RATIO)
        if amount / float(levels[-1]) * units > (problem.goal - penalty) * problem.rows:
            return math.inf, Fraction(0)  # no reading could accept
        path = DiscreteLaplacePath(sealed, Ladder(tuple(levels)), bits=bits)
        for rung, level in enumerate(levels):
            scale = amount / float(level)
            risk = int(path.at(rung)[0]) * _GRID / problem.rows + penalty
            # Two grid units: discrete Laplace noise is within a unit of real noise.
            bound = max(risk, 0.0) + (scale * units + 2 * _GRID) / problem.rows
            if bound <= problem.goal or risk - _HOPELESS * scale / problem.rows > problem.goal:
                break
        return bound, level

    def _release_direction(self, multiple: float, bound: float, paid: Fraction) -> Release[LinearModel]:
        """Return equal coefficients, which already meet the target."""
        note = "equal coefficients already meet this target; ask for a smaller excess risk to learn more from the rows"
        return self.release_model(
            multiple * self._direction,
            method="one direction, risk read under noise",
            generation=self._slope_level,
            testing=paid - self._slope_level,
            achieved=bound * self._problem.risk_unit,
            terms=self._problem.terms | {"note": note},
            citations=_CITATIONS,
        )

    def _plan_within(
        self, share: Fraction, paid: Fraction, *, reach: float = REACH, widens: bool = True
    ) -> TiltedRidge:
        """Return the fit of a reach, with a share of the failures and what the cap leaves."""
        aim = self._problem.aim
        left = replace(aim, cap=aim.cap - paid, failure_probability=aim.failure_probability * share)
        return TiltedRidge(replace(self._problem, aim=left), reach=reach, widens=widens)

    def _fit_within(
        self, reach: float, pilot: Fraction, rows: UnitRows, bits: BitSource | None
    ) -> Release[LinearModel]:
        """Fit at a reach and, where its check rejects a short one, at the usual reach."""
        spent: dict[str, Fraction] = {"pilot": pilot}
        try:
            short = None if reach >= REACH else self._plan_within(_SHORT_FAILURE, pilot, reach=reach, widens=False)
        except ExpostError:  # a fact about released numbers: this reach cannot be paid
            short = None
        if short is None:
            assert self._after_pilot is not None
            return self._add_spent(self._after_pilot.climb(rows, bits), spent, REACH)
        release = short.climb(rows, bits)
        if release.receipt.outcome.met:
            return self._add_spent(release, spent, reach)
        try:
            plan = self._plan_within(_USUAL_FAILURE, pilot + release.receipt.bill.amounts()["epsilon"])
        except ExpostError:  # a fact about released numbers: the cap does not allow a second attempt
            return self._add_spent(release, spent, reach)
        return self._add_spent(plan.climb(rows, bits), spent | dict(release.receipt.breakdown), REACH)

    def _add_spent(
        self, release: Release[LinearModel], spent: dict[str, Fraction], reach: float
    ) -> Release[LinearModel]:
        """Return a release whose bill contains what was spent before it."""
        receipt = release.receipt
        parts = {name: spent.get(name, Fraction(0)) + each for name, each in receipt.breakdown.items()}
        breakdown = spent | parts
        paid = replace(
            receipt,
            promise=self.worst_case.promise(),
            bill=PureLoss(sum(breakdown.values(), Fraction(0))),
            breakdown=breakdown,
            terms={**receipt.terms, "reach": f"{reach:g} of the target bound"},
            citations=tuple(dict.fromkeys((*receipt.citations, *_CITATIONS))),
        )
        return replace(release, receipt=paid)
