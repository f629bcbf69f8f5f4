"""Models for a score: fitted with more and more epsilon until a private test says that the score is reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Measure, Outcome, PureGuarantee, PureLoss, Release
from expost.core import Loss as Bill
from expost.data.matrix import GRID_BITS, RowSource, UnitRows
from expost.data.row_split import KeyedRows, split_rows
from expost.models.linear.classification import signs
from expost.models.linear.hypotheses import onto_ball
from expost.models.linear.losses import Loss, TruncatedSquare
from expost.models.linear.model import LinearModel
from expost.models.linear.objective import TiltedRisk
from expost.models.linear.problem import Problem
from expost.models.linear.score_query import ScoreQuery
from expost.noise import BitSource, ReducedAboveThreshold
from expost.noise.bits import source_of
from expost.noise.level import LARGEST_RATE

__all__ = ["Parts", "TestedFit"]

Floats = NDArray[np.float64]

_LEVELS = 9  # each twice the last
_THRESHOLD_SHARE = Fraction(1, 4)
_CITATIONS = (
    "docs/proofs/objective-perturbation.md",
    "docs/proofs/score-tests.md",
    "docs/proofs/above-threshold.md",
)
_SPLIT_CITATION = "docs/proofs/row-identity.md"

Parts = tuple[UnitRows, UnitRows]


class TestedFit:
    """Tilted minima at levels that double, each tested for the score by reduced above-threshold.

    A low level comes with a noisy, cheap test, a high one with a sharp test; the first hit ends the run. With
    ``validation`` k > 0 about one row in k, by a keyed coin of its content, is kept for the tests alone; a row pays for either
    fitting or testing.
    ``known_target`` makes the signs that an accuracy is counted with, 0 for a label that is no class; fits take it for -1.

    Guarantee: pure ex-post DP, known only after the run: the sum of the levels fitted plus the test's last level; with
        ``validation`` the sum of the levels fitted, which tests stay below; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: see TiltedRisk for the fits and ScoreQuery for the tests. With ``validation`` a replaced row stays in its part, or
        leaves one and joins the other.
    Accuracy: the score is reached, on the rows tested, except with the failure probability.
    Numerics: exact noise; scores are integers, rounded against the model.
    Reference: docs/proofs/score-tests.md; docs/proofs/objective-perturbation.md; docs/proofs/row-identity.md; WRWR22, section 4.
    """

    __test__ = False  # not a test of ours, whatever pytest thinks of the name

    def __init__(
        self,
        problem: Problem,
        loss: Loss,
        grid_target: Callable[[Any], Floats],
        *,
        validation: int = 0,
        known_target: Callable[[Any], Floats] | None = None,
    ) -> None:
        self._problem, self._grid_target, self._validation = problem, grid_target, validation
        self._known_target = known_target or grid_target
        self._regression = isinstance(loss, TruncatedSquare)
        if validation and not 2 <= validation <= problem.rows:
            raise InvalidRequest(
                "Expected a split that leaves rows on both sides",
                got=validation,
                do="Pass validation_every=5, or fewer",
            )
        self._risk = self._build_risk(loss, problem.rows)
        self._levels = self._build_levels()
        for level in self._levels:  # refused here where floats cannot resolve it, before anything is paid
            self._risk.prices.output_sensitivity(level)
        self._rule = self._build_rule()

    # What it can cost ---------------------------------------------------------------------------------------------

    def _build_risk(self, loss: Loss, rows: int) -> TiltedRisk:
        # A row of the other part counts as one without a loss, so that the number of rows stays public; the penalty is then
        # relative to the losses that are expected (docs/proofs/row-identity.md, Lemma 2).
        fitted = 1 - 1 / self._validation if self._validation else 1.0
        return TiltedRisk(loss, self._problem.ball, rows, self._problem.penalty * fitted)

    def _build_levels(self) -> tuple[Fraction, ...]:
        """Fitting levels; with levels that double, fits up to one cost less than twice it, and its test once more."""
        aim = self._problem.aim
        most = LARGEST_RATE * Fraction(self._query.sensitivity.amount) / 2  # beyond it a test has no noise left
        top = min(aim.cap / (2 if self._validation else 3), most)
        least = 2 * self._risk.prices.jacobian
        aim.afford(least * (2 if self._validation else 3))
        levels = [top / 2**step for step in range(_LEVELS)]
        return tuple(sorted(level for level in levels if level >= least or level == top))

    def _test_level(self, index: int) -> Fraction:
        """With rows kept for tests, the most that makes no bill dearer, wherever the two forms of a replaced row are."""
        if not self._validation:
            return self._levels[index]
        fitted = self._levels[: index + 1]
        # A row that leaves the fitted part spares half of each tilt, which is left for joining the tested part.
        spared = sum((self._risk.prices.split(level)[0] for level in fitted), Fraction(0)) / 2
        return min(sum(fitted, Fraction(0)), spared / self._query.added_share(_THRESHOLD_SHARE))

    @property
    def _query(self) -> ScoreQuery:
        target = self._problem.aim.target
        assert target is not None
        goal = float(target.tolerance)
        if target.measure is Measure.RMSE:
            goal /= self._problem.target_bound
        return ScoreQuery(target.measure, goal, None if self._validation else self._problem.rows, self._radius)

    @property
    def _radius(self) -> float:
        """A bound on the best coefficients: no worse than zero (docs/proofs/score-tests.md)."""
        return math.sqrt(2 * self._risk.loss.at_zero / self._problem.penalty)

    def _build_rule(self) -> ReducedAboveThreshold:
        ladder = Ladder(tuple(self._test_level(index) for index in range(len(self._levels))))
        return ReducedAboveThreshold(
            threshold=self._query.threshold,
            sensitivity=self._query.sensitivity,
            ladder=ladder,
            threshold_share=_THRESHOLD_SHARE,
        )

    def _margin(self, rung: int) -> int:
        """What a query's noise exceeds with at most this rung's share of the failure probability."""
        share = float(self._problem.aim.failure_probability) / len(self._levels)
        return math.ceil(float(self._rule.query_scale(rung)) * math.log(1 / share) * (1 + 1e-9))

    @property
    def question(self) -> str:
        return f"linear model with {self._problem.aim.target}"

    @property
    def worst_case(self) -> Bill:
        return PureLoss(self._total(len(self._levels) - 1, self._test_level(len(self._levels) - 1)))

    def _total(self, index: int, testing: Fraction) -> Fraction:
        fitting = sum(self._levels[: index + 1], Fraction(0))
        return max(fitting, testing) if self._validation else fitting + testing

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> Parts | RowSource:
        """The rows to fit and the rows to test, which are the same; or all rows, where a climb deals them to two parts."""
        if self._validation:
            return source.retargeted(self._scored_target)
        rows = UnitRows(source, self._problem.ball, self._scored_target)
        return rows if self._scored_target is self._grid_target else rows.retargeted(signs), rows

    @property
    def _scored_target(self) -> Callable[[Any], Floats]:
        return self._known_target if self._query.measure is Measure.ACCURACY else self._grid_target

    def _dealt(self, source: RowSource, bits: BitSource | None) -> Parts:
        """Two disjoint parts, under a fresh secret key; targets are numbers by now."""
        ball, key = self._problem.ball, source_of(bits).words(4).tobytes()
        first, second = split_rows(KeyedRows.of(source, key), self._validation)
        fitted = UnitRows(first, ball, np.asarray if self._scored_target is self._grid_target else signs)
        return fitted, UnitRows(second, ball, np.asarray)

    def climb(self, rows: Parts | RowSource, bits: BitSource | None) -> Release[LinearModel]:
        fitted, tested = self._dealt(rows, bits) if isinstance(rows, RowSource) else rows
        session = self._rule.open(bits=bits)
        scale = 2.0**-GRID_BITS if self._regression else 1.0
        for index, level in enumerate(self._levels):
            theta = onto_ball(self._risk.release(fitted, level, target_scale=scale, bits=bits), self._radius)
            theta = self._query.exact(theta, self._problem.ball)
            if session.ask(self._query.ask(tested, theta, minus=self._margin(index)), rung=index).above:
                return self._release(theta, index, session.loss.epsilon, met=True)
        return self._release(theta, index, session.loss.epsilon, met=False)

    def _release(self, theta: Floats, index: int, testing: Fraction, *, met: bool) -> Release[LinearModel]:
        problem = self._problem
        assert problem.aim.target is not None
        fitting = sum(self._levels[: index + 1], Fraction(0))
        receipt = problem.receipt(
            question=self.question,
            method="objective perturbation at doubling levels, reduced above-threshold",
            promise=PureGuarantee(self.worst_case.amounts()["epsilon"]),
            bill=PureLoss(self._total(index, testing)),
            outcome=Outcome.TESTED if met else Outcome.NOT_MET,
            achieved=float(problem.aim.target.tolerance) if met else None,
            rung=index,
            rungs=len(self._levels),
            breakdown={"generation": fitting, "testing": testing},
            citations=(*_CITATIONS, _SPLIT_CITATION) if self._validation else _CITATIONS,
            terms=problem.terms
            | ({"rows kept for tests": f"about 1 in {self._validation}"} if self._validation else {}),
        )
        model = problem.model(theta)
        return Release(replace(model, limit=problem.target_bound) if self._regression else model, receipt)
