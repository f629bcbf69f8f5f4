"""The pure training of a linear model on a table: summary, fits and measured scores, rung by rung, without a delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    Adjacency,
    InvalidRequest,
    Loss,
    Measure,
    Outcome,
    PlanContext,
    PureLoss,
    Receipt,
    Release,
    Target,
    Unit,
)
from expost.models.descent.training_watch import Progress, Quiet
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.profile_note import note_scores
from expost.models.tabular.pure_schedule import MOST_PURE_RUNGS, PureSchedule
from expost.models.tabular.pure_score import PureScoreSum, TableSummary, find_pure_reach, laplace_reach
from expost.models.tabular.score_sum import MeasuredScore, bound_score
from expost.models.tabular.table_model import TableModel, fit_grid
from expost.models.tabular.table_moments import TableMoments
from expost.models.tabular.table_profile import RowBlocks, TableProfile, sum_blocks
from expost.models.tabular.table_run import row_outcomes
from expost.models.tabular.table_training import describe_baseline, describe_score
from expost.models.tabular.tabular_rows import RowChunk
from expost.models.tabular.tilted_table import USUAL_CURVATURE, KeptRows, TiltedTable
from expost.noise import BitSource

__all__ = ["PureTraining"]

Floats = NDArray[np.float64]
_LIKELIEST = 0.9  # the largest accuracy from which that of a training at a given epsilon is counted
_POWERED = 0.1  # a test's margin may be this part of the errors that the target allows, or half the surplus before
_NEAR = 0.3  # of the errors that the target allows: from a score that far below it on the next test may be passed
_CLEARLY = 1.0  # deviations above the target from which on a model is measured again before the next fit
_HOPED = 0.6  # of the measured surplus, which the next measurement of the same model must confirm
_SPARE = {False: Fraction(1, 4), True: Fraction(1, 2)}  # of the next fit, or of the next test of one path, for that
_LEAST_LOOK = Fraction(1, 10**6)
_HOPELESS = 3.0  # deviations that separate a plateau from the target
_FLAT_RUNGS = 2
_TRAINED = 0.002  # a loss per row that the noise of a fit may cost where a plateau is taken for one
_CITATIONS = (
    "docs/proofs/pure-tabular-models.md",
    "docs/proofs/objective-perturbation.md",
    "docs/proofs/added-units.md",
    "LNRWW17, Theorem 2.7",
)


@dataclass(frozen=True, kw_only=True)
class PureTraining:
    """How a model of a table will be trained without a delta. A frozen value made from public facts, its own query.

    ``read`` makes the rows of what the dataset holds, once the ledger is charged. ``classes`` is None for a numeric
    target. Of several classes each is fitted against the others, with an equal part of epsilon. ``moments`` trains a regression by its moments instead of objective perturbation.

    Guarantee: pure ex-post, known only after the run: the sum of what ran; at most the cap of the schedule.
    Adjacency: add/remove of one unit; the rows of a unit share a weight of 1.
    Sensitivity: L1, of each release: see ``LaplaceSum``, ``TableMoments`` and ``TiltedTable``.
    Accuracy: if the target is reported as met, it is missed with its failure probability at most. It is about the rows of
        the table, each with its weight.
    Numerics: exact integer sums and noise; for fits see ``TiltedRisk``.
    Reference: docs/proofs/pure-tabular-models.md.
    """

    question: str
    schedule: PureSchedule
    read: Callable[[Any], RowBlocks]
    shape: EncodedShape
    classes: int | None
    moments: bool = False
    target: Target | None = None
    target_bounds: tuple[float, float] = (-1.0, 1.0)
    rows_per_unit: int = 1
    unit: Unit = Unit()
    public_rows: int | None = None
    failure_probability: Fraction = Fraction(1, 10)
    terms: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[], Progress] | None = None

    def plan(self, dataset: Any, context: PlanContext) -> PureTraining:
        """Return this plan."""
        return self

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self.schedule.cap)

    @cached_property
    def summary(self) -> TableSummary:
        """Return what is measured of the table besides its models."""
        return TableSummary(
            self.shape.width, self.shape.squared_length, self.classes, self.rows_per_unit, self.public_rows
        )

    @property
    def fits(self) -> int:
        """Return how many fits make a model: one, or one per class if there are several."""
        return 1 if self.classes is None or self.classes == 2 else self.classes

    @cached_property
    def tilted(self) -> TiltedTable:
        """Return how models are fitted by objective perturbation."""
        return TiltedTable(self.shape, self.classes is not None, self.unit, self.rows_per_unit)

    @property
    def most_epsilon(self) -> Fraction:
        """Return the cap."""
        return self.schedule.cap

    @property
    def tested_sum(self) -> bool:
        """Return whether there is a target to test."""
        return self.target is not None

    def find_needed_sum(self, epsilon: Fraction | None, sums: PureScoreSum) -> float:
        """Return the noisy sum that the first test needs at a total epsilon, or at the finest level of the cap."""
        schedule, levels = self.schedule, [rung.test for rung in self.schedule.rungs]
        fits = [rung.fit for rung in schedule.rungs]
        if epsilon is None:
            levels += [] if schedule.refines else [_SPARE[False] * fit for fit in fits[1:]]
        else:
            prices = [schedule.price(fits[: k + 1], levels[: k + 1], k) for k in range(len(fits))]
            levels = [level for level, price in zip(levels, prices, strict=True) if price <= epsilon]
        if not levels:
            return math.inf
        allowed = _share_failure(float(self.failure_probability), 0)
        return sums.passing_surplus(max(levels), allowed, sums.height / sums.lattice.unit)

    def check(self) -> None:
        """Raise ``InvalidRequest`` if a rung's noise cannot be drawn, or floats cannot resolve a fit; reads no rows."""
        rungs, blank = self.schedule.rungs, TableProfile(1.0, np.zeros(1), np.ones(1), 1.0)
        try:
            self.summary.lattice.check_levels(self.schedule.summary_ladder)
            for rung in rungs:
                self.score_sum(blank).lattice.check_levels(self.schedule.summary_ladder)
                if not self.moments:
                    risk = self.tilted.build_risk(rung.fit / self.fits, blank, self.public_rows or 10**6)
                    risk.prices.output_sensitivity(rung.fit / self.fits)
            if self.moments:
                TableMoments(self.shape).check_levels(self.schedule.fit_ladder)
        except InvalidRequest:
            raise InvalidRequest(
                "Expected an epsilon that the noise of so many features and rows per unit can keep",
                got=f"{self.shape.width} features, {self.rows_per_unit} rows per unit",
                do="Raise epsilon or max_epsilon, declare fewer columns, or lower max_rows_per_unit",
            ) from None

    def score_sum(self, profile: TableProfile) -> PureScoreSum:
        """Return the sums that decide whether the target is met."""
        if self.classes is not None:
            likely = min(max(0.5, *profile.shares), _LIKELIEST) if profile.shares else 0.5
            return PureScoreSum(self.target, self.classes, self.rows_per_unit, center=likely)
        low, high = self.target_bounds
        reach = find_pure_reach(self.target, profile)
        return PureScoreSum(self.target, None, self.rows_per_unit, (high - low) / 2, profile.target_middle, reach)

    def measure(self, dataset: Any) -> KeptRows:
        return KeptRows(self.read(dataset))

    def climb(self, sealed: KeptRows, bits: BitSource) -> Release[TableModel]:
        """Train rung by rung until the target is met, shown to be out of reach, or the cap is spent."""
        run = _PureRun(self, sealed, bits)
        stops = _PureStop(self)
        score: MeasuredScore | None = None
        rungs = self.schedule.rungs
        reason = ""
        with self.progress() if self.progress else Quiet() as progress:
            for number, rung in enumerate(rungs):
                try:
                    look = stops.find_look(number, run.model)
                    if look is not None:
                        again = run.measure_score(look)
                        if stops.judge(again, look, run.model.profile, last=False, looked=True):
                            score, reason = again, "met"
                            break
                    score, test = run.take_rung(number, look or Fraction(0), far=stops.is_far)
                except KeyboardInterrupt:
                    if self.target is None or score is None:
                        raise
                    reason = "stopped by the caller"
                    break
                reason = stops.judge(score, test, run.model.profile, last=number + 1 == len(rungs), fit=rung.fit)
                progress.advance_steps(number + 1, len(rungs), run.price, describe_score(score))
                if reason:
                    break
        assert score is not None
        return Release(run.scored, self._receipt(run, score, stops, reason))

    def _receipt(self, run: _PureRun, score: MeasuredScore, stops: _PureStop, reason: str) -> Receipt:
        outcome = Outcome.FIXED if self.target is None else Outcome.TESTED if stops.met else Outcome.NOT_MET
        profile = run.scored.profile
        terms = {
            **self.terms,
            "rows, about": round(profile.rows),
            **note_scores(score.values),
            **describe_baseline(score, profile, self.target_bounds),
            "measured on": "the rows of the table" if self.unit.is_row else "the rows kept, each unit with weight 1",
        }
        if self.target is not None:
            terms["margin of the last test"] = float(f"{stops.margin:.3g}")
            if not stops.met:
                terms["ended"] = reason
        achieved = float(self.target.tolerance) if stops.met and self.target is not None else stops.certified(score)
        several = len(self.schedule.rungs) > 1
        return Receipt(
            question=self.question,
            method=TableMoments.name if self.moments else TiltedTable.name,
            promise=self.worst_case.promise(),
            bill=PureLoss(run.price),
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
            outcome=outcome,
            target=self.target,
            achieved=achieved,
            achieved_measure=Measure.ACCURACY if self.target is None and self.classes is not None else None,
            rung=run.number if several else None,
            rungs=len(self.schedule.rungs) if several else None,
            breakdown=run.breakdown,
            terms=terms,
            citations=_CITATIONS,
        )


class _PureRun:
    """The state of one training: what was released, what it cost, and the model."""

    def __init__(self, plan: PureTraining, blocks: KeptRows, bits: BitSource) -> None:
        self._plan, self._blocks, self._bits = plan, blocks, bits
        self._summary = plan.summary.open_path(blocks, plan.schedule.summary_ladder, bits)
        self._moments = None
        if plan.moments:
            moments = TableMoments(plan.shape)
            self._moments = moments.open_path(moments.measure(blocks), plan.schedule.fit_ladder, bits)
        self._fits: list[Fraction] = []
        self._tests: list[Fraction] = []
        self.number = 0
        self.model = TableModel(TableProfile(1.0, np.zeros(1), np.ones(1), 1.0), np.zeros((1, 2)))
        self.scored = self.model  # the last one whose score was released

    @property
    def price(self) -> Fraction:
        """Return what was paid so far."""
        return self._plan.schedule.price(self._fits, self._tests, self.number)

    @property
    def breakdown(self) -> dict[str, Fraction]:
        """Return what was paid for what."""
        summary, tests = self._plan.schedule.rungs[self.number].summary, sum(self._tests, Fraction(0))
        return {"generation": self.price - tests - summary, "testing": tests, "summary": summary}

    def take_rung(self, number: int, looked: Fraction, *, far: bool) -> tuple[MeasuredScore, Fraction]:
        """Fit a model and measure its score; ``looked`` of the rung was spent on the model before."""
        plan, rung = self._plan, self._plan.schedule.rungs[number]
        self.number = number
        profile, units = plan.summary.read(self._summary.at(number), rung.summary)
        fit, test = (rung.fit, rung.test - looked) if plan.schedule.refines else (rung.fit - looked, rung.test)
        test = rung.far_test if far else test
        self._fits.append(fit)
        if self._moments is not None:
            found = [TableMoments(plan.shape).solve(self._moments.at(number), fit, profile)]
        else:
            release, part = partial(plan.tilted.release, self._blocks), fit / plan.fits
            places = [1] if plan.fits == 1 else range(plan.fits)
            found = [release(part, profile, units, self._bits, positive=place) for place in places]
        grid = fit_grid(profile)
        weights = np.stack([np.append(slopes, constant * (grid.unit / grid.constant)) for slopes, constant in found])
        self.model = TableModel(profile, weights, find_pure_reach(plan.target, profile))
        return self.measure_score(test), test

    def measure_score(self, epsilon: Fraction) -> MeasuredScore:
        """Release how well the model predicts all rows."""
        plan, model = self._plan, self.model
        score = plan.score_sum(model.profile)
        total = sum_blocks(self._blocks, partial(_sum_scores, score, model, plan.classes))
        self._tests.append(epsilon)
        released = score.lattice.release(total, epsilon, self._bits)
        self.scored = model
        return score.read(released, epsilon, model.profile)


def _sum_scores(
    score: PureScoreSum, model: TableModel, classes: int | None, chunks: Iterable[RowChunk]
) -> NDArray[np.int64]:
    total = score.lattice.start()
    for rows in chunks:
        targets = np.asarray(rows.targets)
        if classes is None:
            targets = (targets - model.profile.target_middle) / model.profile.target_spread
        outcomes = row_outcomes(model.compute_scores(rows.features).T, targets, classes, model)
        score.lattice.add(total, score.vectors(outcomes), rows.weights)
    return total


def _share_failure(failure: float, tests: int) -> float:
    """Return the probability with which a test may err after this many others."""
    return float(0.9 * failure / 2 ** (tests + 1))


class _PureStop:
    """Decides after each measurement whether the target is met or out of reach.

    A test may be passed only if the score before came near the target and its margin is a small part of the errors that
    the target allows: tests without a chance would use up the failure probability. The first one may err with half of it,
    the second with a quarter, and so on. A model measured above the target is measured once more before the next fit.
    """

    def __init__(self, plan: PureTraining) -> None:
        self._plan, self._target = plan, plan.target
        self._failure = float(plan.failure_probability)
        self._history: list[tuple[float, float]] = []
        self._tests = 0
        self._flat = 0
        self._errors = 0.0  # that the target allows, in the units of the surplus
        self.met = False
        self.margin = 0.0

    @property
    def _allowed(self) -> float:
        """Return the probability with which the next test may err."""
        return _share_failure(self._failure, self._tests)

    def find_look(self, number: int, model: TableModel) -> Fraction | None:
        """Return the level of another measurement of the last model, if that promises to show the target.

        It may follow from the reading before, because every measurement draws its own noise and is paid for in full.
        """
        if self._target is None or not self._history or self.met:
            return None
        surplus, deviation = self._history[-1]
        if surplus < _CLEARLY * deviation:
            return None
        sums, rung = self._plan.score_sum(model.profile), self._plan.schedule.rungs[number]
        extra = sums.find_margin(model.profile, self._failure / (10 * MOST_PURE_RUNGS))
        hoped = _HOPED * surplus * model.profile.rows - extra
        if hoped <= 0:
            return None
        level = Fraction(laplace_reach(self._allowed) * sums.lattice.scale(Fraction(1)) * sums.height / hoped)
        refines = self._plan.schedule.refines
        spare = _SPARE[refines] * (rung.test if refines else rung.fit)
        return max(level, _LEAST_LOOK).limit_denominator(10**9) if level <= spare else None

    def judge(
        self,
        score: MeasuredScore,
        test: Fraction,
        profile: TableProfile,
        *,
        last: bool,
        fit: Fraction = Fraction(0),
        looked: bool = False,
    ) -> str:
        """Return why the training ends, or an empty text if it goes on."""
        if self._target is None:
            return "one rung" if last else ""
        sums = self._plan.score_sum(profile)
        surplus, deviation = score.surplus / profile.rows, score.deviation / profile.rows
        # A tenth of the failure probability is for summaries whose noise hides more than the margin allows.
        extra = sums.find_margin(profile, self._failure / (10 * MOST_PURE_RUNGS))
        needed = sums.passing_surplus(test, self._allowed, extra)
        one = sums.surplus_of_one(profile)
        self.margin = needed / profile.rows / one
        near = looked or last or not self.is_far
        self._errors = one * sums.errors_allowed
        likely = self._history[-1][0] / 2 if self._history else 0.0
        if near and (last or needed / profile.rows <= max(_POWERED * self._errors, likely)):
            self._tests += 1
            if score.surplus >= needed:
                self.met = True
                return "met"
        if looked:
            return ""
        if last:
            return "the cap is spent"
        before = self._history[-1][0] if self._history else surplus
        self._history.append((surplus, deviation))
        gain = max(surplus - before, 0.0)
        hopeless = surplus + gain + _HOPELESS * deviation < 0 and self._is_trained(fit, profile)
        self._flat = self._flat + 1 if hopeless else 0
        if self._flat >= _FLAT_RUNGS:
            return "out of reach: more privacy budget improves the score too little"
        return ""

    @property
    def is_far(self) -> bool:
        """Return whether the last measured score is far below the target, or none was measured before the last rung."""
        if self._target is None or len(self._plan.schedule.rungs) == len(self._history) + 1:
            return False
        if not self._history:
            return True
        surplus, deviation = self._history[-1]
        return surplus + deviation < -_NEAR * self._errors

    def _is_trained(self, fit: Fraction, profile: TableProfile) -> bool:
        """Return whether the noise of a fit at this level costs little, by public and released numbers."""
        shape, classes = self._plan.shape, self._plan.classes is not None
        length = shape.absolute_length + 1  # of a gradient; one of products has about half its square
        noise = (length**2 if self._plan.moments else length) / float(fit / self._plan.fits) / profile.rows
        return shape.width * noise**2 / USUAL_CURVATURE[classes] <= _TRAINED

    def certified(self, score: MeasuredScore) -> float | None:
        """Return the score that holds at the failure probability, whatever rung it stopped at; None for R^2."""
        name, (value, deviation) = next(iter(score.values.items()))
        if name == "r2":
            return None  # its denominator is an estimate without a proved error
        failure = self._failure if self._target is None else self._failure / (4 * MOST_PURE_RUNGS)
        # Noise of the sum and of the count, each beyond its scale times this with half the probability; scales s and t add
        # up to at most the root of 2 (s^2 + t^2), which is the deviation.
        reach = laplace_reach(failure / 2) * deviation
        return bound_score(name, value, reach, self._plan.target_bounds)
