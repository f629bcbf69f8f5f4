"""Models for a score: fitted with more and more epsilon until a private test accepts the score."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Ladder, Loss, Measure, Norm, PureLoss, Release, Sealed, Sensitivity
from expost.data.row_source import KeyedRows, RowSource, split_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, WeightedChunk
from expost.models.linear.fit_neighbours import ADDED_ROWS
from expost.models.linear.linear_fit import FitPlan, LinearModel, Problem
from expost.models.linear.output_perturbation import project_to_ball
from expost.models.linear.row_loss import LogisticLoss, RowLoss, TruncatedSquare
from expost.models.linear.tilted_risk import TiltedRisk
from expost.noise import BitSource, ReducedAboveThreshold
from expost.noise.bits import resolve_bits
from expost.noise.parameter import LARGEST_RATE

__all__ = ["MonotoneFit", "ScoreQuery", "TestedFit", "codes_to_signs", "known_to_signs"]

Floats = NDArray[np.float64]
Parts = tuple[UnitRows, UnitRows]

_GRID = math.ldexp(1.0, -GRID_BITS)
_LEAST_STEP = Fraction(5, 4)  # the last level, which the cap sets, over the one before it
_SHARES = 12  # levels among which the failure probability is shared, at least: the same for usual caps
_THRESHOLD_SHARE = Fraction(1, 4)
_CITATIONS = ("docs/proofs/objective-perturbation.md", "docs/proofs/score-tests.md", "docs/proofs/above-threshold.md")
_SPLIT_CITATION = "docs/proofs/row-identity.md"


def codes_to_signs(codes: NDArray[np.intp]) -> Floats:
    """Convert places among two classes to -1 and 1, and labels that are neither class to 0.

    >>> codes_to_signs(np.array([1, 0, -1])).tolist()
    [1.0, -1.0, 0.0]
    """
    return np.array([-1.0, 1.0, 0.0])[codes]


def known_to_signs(known: Floats) -> Floats:
    """Return labels as a fit takes them: one that is neither class (0) counts as the first class.

    >>> known_to_signs(np.array([1.0, -1.0, 0.0])).tolist()
    [1.0, -1.0, -1.0]
    """
    return np.where(known > 0, 1.0, -1.0)


@dataclass(frozen=True)
class ScoreQuery:
    """An integer that is at least ``threshold`` exactly when a model reaches its score on the rows.

    If ``rows`` is None the number of rows is private: every row brings its own part of the goal and the threshold is
    0. Coefficients must be ``exact``, so that no score depends on where a row stands.

    accuracy: the number of rows with the right sign; a label that is neither class (0) has none. log loss: minus the
    sum of logistic losses of coefficients within ``radius``. rmse: minus the sum of squared errors of predictions
    clipped to [-1, 1]. r2: (1 - goal) times the squared deviations from the mean, minus the squared errors. Proof of
    the sensitivities: docs/proofs/score-tests.md.
    """

    measure: Measure
    goal: float
    rows: int | None
    radius: float = math.inf
    """The largest |score| of a row, for the log loss."""
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    """Added or removed rows move a sum of losses no further than replaced ones, and all such sums in one direction."""

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far one row moves the integer."""
        if self.rows is None and self.adjacency is Adjacency.ADD_REMOVE:
            units = max(self.interval)
        elif self.rows is None:
            units = sum(self.interval)
        else:
            units = 1 if self.measure is Measure.ACCURACY else self._largest_move
        return Sensitivity(units, adjacency=self.adjacency)

    @property
    def interval(self) -> tuple[int, int]:
        """Return how far down and how far up an added row moves the integer, if the number of rows is private."""
        match self.measure:
            case Measure.ACCURACY:
                return self._row_goal, (1 << GRID_BITS) - self._row_goal
            case Measure.R2:
                return math.ceil(4.0 / _GRID) + 2, math.ceil(4.0 * (1 - self.goal) / _GRID) + 2
            case _:
                return max(self._largest_move - self._row_goal, 0), max(self._row_goal, 0)

    def added_share(self, threshold_share: Fraction) -> Fraction:
        """Return the cost of an added row in a test as a part of that of a replaced one.

        Proof: docs/proofs/row-identity.md, Lemma 3.
        """
        return threshold_share * Fraction(max(self.interval), sum(self.interval)) + (1 - threshold_share) / 2

    @property
    def _row_goal(self) -> int:
        """Return the part of the goal that each row brings, rounded against the model."""
        match self.measure:
            case Measure.ACCURACY:
                return min(math.ceil(self.goal / _GRID), 1 << GRID_BITS)
            case Measure.LOG_LOSS:
                return math.floor(self.goal / _GRID)
            case Measure.RMSE:
                return math.floor(self.goal**2 / _GRID)
            case _:
                return 0

    @property
    def _largest_move(self) -> int:
        """Return the largest effect of a replaced row, in grid units."""
        match self.measure:
            case Measure.LOG_LOSS:
                largest = float(np.logaddexp(0.0, self.radius))
            case Measure.RMSE:
                largest = 4.0  # two numbers between -1 and 1 differ by at most 2
            case Measure.R2:
                largest = 4.0 + 4.0 * (1 - self.goal)
            case _:
                raise InvalidRequest("Expected a score", got=self.measure.value, do="Ask for the excess risk instead")
        return math.ceil(largest / _GRID) + 2  # rounding

    @property
    def threshold(self) -> int:
        """Return what the integer must reach, rounded against the model."""
        if self.rows is None:
            return 0
        match self.measure:
            case Measure.ACCURACY:
                return math.ceil(self.goal * self.rows - 1e-9)
            case Measure.LOG_LOSS:
                return -math.floor(self.goal * self.rows / _GRID)
            case Measure.RMSE:
                return -math.floor(self.goal**2 * self.rows / _GRID)
            case _:
                return 0

    def seal_score(self, rows: UnitRows, theta: Floats, *, minus: int = 0) -> Sealed:
        """Seal the integer of one model, less a public number."""
        if self.measure is Measure.R2:
            exact = self._sum_explained(rows, theta)
        else:
            exact = rows.reduce(functools.partial(self._sum_shares, theta), operator.add)
        return Sealed(exact - minus, self.sensitivity)

    def _sum_shares(self, theta: Floats, chunks: Iterable[WeightedChunk]) -> int:
        return sum(self._share_of_chunk(features @ (theta * _GRID), target) for features, target, _ in chunks)

    def cut_to_grid(self, theta: Floats, ball: UnitBall) -> Floats:
        """Cut coefficients to a grid on which the score of a row is exact, in whatever order its terms are added.

        A row's numbers are integers whose magnitudes add up to ``2^GRID_BITS spread`` at most; times multiples of 2^-b
        below ``radius`` they and their sums stay below 2^53 multiples.
        """
        spread = 1.0 if ball.norm is Norm.L1 else math.sqrt(ball.dimension)
        largest = spread * (float(np.abs(theta).max(initial=0.0)) if math.isinf(self.radius) else self.radius)
        bits = 52 - GRID_BITS - math.ceil(math.log2(max(largest, 2.0**-GRID_BITS)))
        return np.ldexp(np.trunc(np.ldexp(theta, bits)), -bits)

    def _share_of_chunk(self, score: Floats, target: Floats) -> int:
        """Return one chunk's share of the integer."""
        if self.rows is not None:
            return self._sum_chunk(score, target)
        unit = 1 << GRID_BITS if self.measure is Measure.ACCURACY else 1
        sign = -1 if self.measure is Measure.ACCURACY else 1
        return unit * self._sum_chunk(score, target) + sign * self._row_goal * len(target)

    def _sum_chunk(self, score: Floats, target: Floats) -> int:
        """Return one chunk's count or loss. Losses are rounded up per row: the sum is exact and never too good."""
        if self.measure is Measure.ACCURACY:
            # A target of 0 is a label that is neither class: no prediction gets it right.
            return int(np.count_nonzero(((score > 0) == (target > 0)) & (target != 0)))
        if self.measure is Measure.LOG_LOSS:
            losses = LogisticLoss().value_at(np.clip(score, -self.radius, self.radius), target)
        else:
            losses = (np.clip(score, -1.0, 1.0) - target * _GRID) ** 2
        return -int(np.ceil(losses / _GRID).sum())

    def _sum_squares(self, theta: Floats, chunks: Iterable[WeightedChunk]) -> NDArray[Any]:
        """Sum the squared errors, the targets, their squares and the number of rows."""
        sums: NDArray[Any] = np.zeros(4, dtype=object)
        squared = replace(self, measure=Measure.RMSE, goal=1.0)
        for features, target, _ in chunks:
            errors = -squared._sum_chunk(features @ (theta * _GRID), target)
            sums += np.array([errors, int(target.sum()), int(np.floor(target**2 * _GRID).sum()), len(target)], object)
        return sums

    def _sum_explained(self, rows: UnitRows, theta: Floats) -> int:
        """Return the integer of r2."""
        parts = rows.reduce(functools.partial(self._sum_squares, theta), operator.add)
        errors, total, squares, count = (int(part) for part in parts)
        # Squared deviations from the mean, in the same units: sum y^2 - (sum y)^2 / n, rounded down.
        divisor = max(count, 1) if self.rows is None else self.rows
        deviations = squares - -(-(total**2) // (divisor << GRID_BITS))
        return math.floor((1 - self.goal) * deviations) - errors


class TestedFit(FitPlan):
    """Tilted minima at levels that double, each tested for the score by reduced above-threshold.

    A low level comes with a noisy, cheap test, a high one with a sharp test; the first hit ends the run. With
    ``validation`` k > 0 about one row in k, by a keyed coin of its content, is kept for the tests alone; a row pays for
    either fitting or testing. ``known_target`` makes the signs that an accuracy is counted with, 0 for a label that is
    neither class; fits take it for -1.

    Guarantee: pure ex-post DP, known only after the run: the sum of the levels fitted plus the test's last level; with
        ``validation`` the sum of the levels fitted, which tests stay below; at most the cap.
    Adjacency: that of the problem: a row is replaced, or added or removed; a number of rows is public.
    Sensitivity: see TiltedRisk for the fits and ScoreQuery for the tests. With ``validation`` a replaced row stays in
        its part, or leaves one and joins the other.
    Accuracy: the score is reached, on the rows tested, except with the failure probability.
    Numerics: exact noise; scores are integers, rounded against the model.
    Reference: docs/proofs/score-tests.md; docs/proofs/objective-perturbation.md; docs/proofs/row-identity.md; WRWR22, section 4.
    """

    __test__ = False  # pytest would collect a class of this name
    _adds_rows = True

    def __init__(
        self,
        problem: Problem,
        loss: RowLoss,
        grid_target: Callable[[Any], Floats],
        *,
        validation: int = 0,
        known_target: Callable[[Any], Floats] | None = None,
    ) -> None:
        self._problem, self._fitted_target, self._validation = problem, grid_target, validation
        self._known_target = known_target or grid_target
        self._regression = isinstance(loss, TruncatedSquare)
        if validation and not 2 <= validation <= problem.rows:
            raise InvalidRequest(
                "Expected a split that leaves rows on both sides",
                got=validation,
                do="Pass validation_every=5, or fewer",
            )
        self._risk = self._build_risk(loss, problem.rows)
        # A bound on the best coefficients: they are no worse than zero (docs/proofs/score-tests.md).
        self._radius = math.sqrt(2 * loss.at_zero / problem.penalty)
        self._query = self._build_query()
        self._levels = self._build_levels()
        for level in self._levels:  # refused here where floats cannot resolve it, before anything is paid
            self._risk.prices.output_sensitivity(level)
        self._rule = self._build_rule()
        top = len(self._levels) - 1
        self._most = self._total_price(top, self._test_level(top))

    def _build_risk(self, loss: RowLoss, rows: int) -> TiltedRisk:
        # A row of the other part counts as one without a loss, so that the number of rows stays public; the penalty is
        # then relative to the losses that are expected (docs/proofs/row-identity.md, Lemma 2).
        fitted = 1 - 1 / self._validation if self._validation else 1.0
        penalty, neighbours = self._problem.penalty * fitted, self._problem.neighbours
        return TiltedRisk(loss, self._problem.ball, rows, penalty, neighbours=neighbours)

    def _build_query(self) -> ScoreQuery:
        target = self._problem.aim.target
        assert target is not None
        goal = float(target.tolerance)
        if target.measure is Measure.RMSE:
            goal /= self._problem.half_width
        adjacency = self._problem.neighbours.adjacency
        public = adjacency.public_size and not self._validation
        return ScoreQuery(target.measure, goal, self._problem.rows if public else None, self._radius, adjacency)

    def _build_levels(self) -> tuple[Fraction, ...]:
        """Return fitting levels that double: fits up to one cost less than twice it, and its test once more."""
        aim, parts = self._problem.aim, 2 if self._validation else 3
        most = LARGEST_RATE * Fraction(self._query.sensitivity.amount) / 2  # beyond it a test has no noise left
        least = 2 * self._risk.prices.jacobian
        aim.check_price(least * parts)
        # Powers of two, whatever the cap: a larger cap adds levels above and changes none below. A level of half a row
        # is too noisy to be accepted. The last level is what the cap leaves.
        level = Fraction(2) ** math.ceil(math.log2(max(least, Fraction(1, 2 * self._problem.rows))))
        levels: list[Fraction] = []
        while level <= most and (aim.cap - sum(levels) - level) / (parts - 1) >= _LEAST_STEP * level:
            levels.append(level)
            level *= 2
        last = min((aim.cap - sum(levels)) / (parts - 1) if levels else aim.cap / parts, most)
        return (*levels, last) if not levels or last > levels[-1] else tuple(levels)

    def _test_level(self, index: int) -> Fraction:
        """Return the level of a test.

        With rows kept for tests it is the most that raises no bill, wherever the two forms of a replaced row are.
        """
        if not self._validation:
            return self._levels[index]
        fitted = self._levels[: index + 1]
        if not self._problem.neighbours.adjacency.public_size:
            return sum(fitted, Fraction(0))  # an added row is in one part only
        # A row that leaves the fitted part spares half of each tilt, which is left for joining the tested part.
        spared = sum((self._risk.prices.split(level)[0] for level in fitted), Fraction(0)) / 2
        return min(sum(fitted, Fraction(0)), spared / self._query.added_share(_THRESHOLD_SHARE))

    def _build_rule(self) -> ReducedAboveThreshold:
        return ReducedAboveThreshold(
            threshold=self._query.threshold,
            sensitivity=self._query.sensitivity,
            ladder=Ladder(tuple(self._test_level(index) for index in range(len(self._levels)))),
            threshold_share=_THRESHOLD_SHARE,
        )

    @property
    def question(self) -> str:
        return f"linear model with {self._problem.aim.target}"

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._most)

    def _total_price(self, index: int, testing: Fraction) -> Fraction:
        fitting = sum(self._levels[: index + 1], Fraction(0))
        return max(fitting, testing) if self._validation else fitting + testing

    @property
    def _scored_target(self) -> Callable[[Any], Floats]:
        return self._known_target if self._query.measure is Measure.ACCURACY else self._fitted_target

    def measure(self, source: RowSource) -> Parts | RowSource:
        """Return the rows to fit and the rows to test, which are the same; or all rows, which ``climb`` splits."""
        source = replace(source, rows=self._problem.rows)
        if self._validation:
            return source.map_targets(self._scored_target)
        rows = UnitRows(source, self._problem.ball, self._scored_target)
        return rows if self._scored_target is self._fitted_target else rows.map_targets(known_to_signs), rows

    def _split_parts(self, source: RowSource, bits: BitSource | None) -> Parts:
        """Split the rows in two under a fresh secret key; their targets are numbers by now."""
        ball, key = self._problem.ball, resolve_bits(bits).words(4).tobytes()
        first, second = split_rows(KeyedRows.of(source, key), self._validation)
        fitted = UnitRows(first, ball, np.asarray if self._scored_target is self._fitted_target else known_to_signs)
        return fitted, UnitRows(second, ball, np.asarray)

    def climb(self, rows: Parts | RowSource, bits: BitSource | None) -> Release[LinearModel]:
        fitted, tested = self._split_parts(rows, bits) if isinstance(rows, RowSource) else rows
        session = self._rule.open(bits=bits)
        scale = _GRID if self._regression else 1.0
        share = float(self._problem.aim.failure_probability) / max(len(self._levels), _SHARES)
        for index, level in enumerate(self._levels):
            theta = project_to_ball(self._risk.release(fitted, level, target_scale=scale, bits=bits), self._radius)
            theta = self._query.cut_to_grid(theta, self._problem.ball)
            # The noise of a query exceeds this margin with at most this rung's share of the failure probability.
            margin = math.ceil(float(self._rule.query_scale(index)) * math.log(1 / share) * (1 + 1e-9))
            met = session.ask(self._query.seal_score(tested, theta, minus=margin), rung=index).above
            if met:
                break
        return self._build_release(theta, index, session.loss.epsilon, met=met)

    def _build_release(self, theta: Floats, index: int, testing: Fraction, *, met: bool) -> Release[LinearModel]:
        """Return the last model with its receipt."""
        problem = self._problem
        assert problem.aim.target is not None
        kept = {"rows kept for tests": f"about 1 in {self._validation}"} if self._validation else {}
        release = self.release_model(
            theta,
            method="objective perturbation at doubling levels, reduced above-threshold",
            generation=sum(self._levels[: index + 1], Fraction(0)),
            testing=testing,
            bill=PureLoss(self._total_price(index, testing)),
            met=met,
            achieved=float(problem.aim.target.tolerance) if met else None,
            rung=index,
            rungs=len(self._levels),
            citations=(*_CITATIONS, _SPLIT_CITATION) if self._validation else _CITATIONS,
            terms=problem.terms | kept,
        )
        if not self._regression:
            return release
        return replace(release, value=replace(release.value, limits=problem.target_bounds))


class MonotoneFit(TestedFit):
    """Tilted minima at levels that double, each tested for the sum of its losses, which one row moves in one direction.

    The number of rows is private. ``problem.rows`` is a public number near it: the risk that is minimized is the sum of
    losses over that number, and the target is a sum of losses of at most the mean asked for times that number.

    Guarantee: pure ex-post DP, known only after the run: the sum of the levels fitted plus the test's last level; at most
        the cap.
    Adjacency: add or remove one row; the number of rows is private.
    Sensitivity: one row moves the sum of gradients by at most steepest, half of what a replaced row does, and the sum of
        losses by at most the largest loss, downward if it is added whatever the model: tests are monotone.
    Accuracy: the sum of losses is at most tolerance times ``problem.rows``, except with the failure probability; with at
        least that many rows their mean loss is within the tolerance.
    Numerics: exact noise; losses are integers, rounded against the model; float errors are bounded for tables of up to
        4 times ``problem.rows`` rows.
    Reference: docs/proofs/monotone-loss.md; docs/proofs/above-threshold.md (monotone queries); WRWR22, section 4.
    """

    def __init__(self, problem: Problem, loss: RowLoss, grid_target: Callable[[Any], Floats]) -> None:
        if problem.aim.target is None or problem.aim.target.measure is not Measure.LOG_LOSS:
            raise InvalidRequest("Expected a log loss to test for", do='Pass score=("log_loss", 0.4)')
        self.check_neighbours(problem)
        # A row is there or not, its gradient is not exchanged for an opposite one.
        super().__init__(replace(problem, neighbours=ADDED_ROWS), loss, grid_target)

    def _build_query(self) -> ScoreQuery:
        # The sum of losses alone, which every row moves in one direction, against the declared number of rows.
        return replace(super()._build_query(), rows=self._problem.rows)

    def _build_rule(self) -> ReducedAboveThreshold:
        return replace(super()._build_rule(), monotone=True)

    def _build_release(self, theta: Floats, index: int, testing: Fraction, *, met: bool) -> Release[LinearModel]:
        release = super()._build_release(theta, index, testing, met=met)
        receipt = replace(
            release.receipt,
            method="objective perturbation at doubling levels, monotone above-threshold for the sum of losses",
            citations=(*release.receipt.citations, "docs/proofs/monotone-loss.md"),
        )
        return replace(release, receipt=receipt)
