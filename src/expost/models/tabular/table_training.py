"""The training of a linear model on a table: profile, Newton steps and measured scores, rung by rung."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accounting import ExPostEvent, Parallel
from expost.accounting import Sequence as Events
from expost.core import (
    Adjacency,
    ApproxLoss,
    InvalidRequest,
    Loss,
    Measure,
    Outcome,
    PlanContext,
    Receipt,
    Release,
    Target,
    Unit,
)
from expost.models.descent.clipped_gradient import CurvedGradient
from expost.models.descent.score_head import CurvedHead, Logistic, Softmax, Squared
from expost.models.descent.training_watch import Progress, Quiet
from expost.models.tabular.class_weight import ClassWeights, weigh_rows
from expost.models.tabular.held_out_rows import HELD_OUT, SAMPLED, DealtRows, HeldOutConfirmation
from expost.models.tabular.prediction_line import LINE_SHARE, PredictionLine
from expost.models.tabular.profile_note import describe_measure, note_profile, note_scores
from expost.models.tabular.rank_tree import AucSum, RankTree, center_of
from expost.models.tabular.rung_schedule import MOST_RUNGS, RungSchedule
from expost.models.tabular.score_confirmation import Confirmation, OpenSums, find_needed_sum
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum, combine_scores, find_reach
from expost.models.tabular.stop_rule import FIXED_TEST, NEAR_NUMERIC_TEST, StopRule, certify_score
from expost.models.tabular.table_model import TableModel, fit_grid
from expost.models.tabular.table_profile import RowBlocks, TableProfile, profile_lattices
from expost.models.tabular.table_report import NO_REPORT, TableReport
from expost.models.tabular.table_run import TableRun, TrainedTable, plain_profile
from expost.noise import BitSource

__all__ = ["TableTraining", "describe_baseline", "describe_score"]

# Chosen on the tables that newton_descent.py names; factors of two either way changed little.
_CLIP = {True: 0.5, False: 0.5}  # of a gradient, in usual lengths of a row: for classes, for targets of spread 1
_ROW_LIMIT = 1.2  # usual lengths of a row up to which its curvature counts in full
_SPARE_BITS = 8  # noise of 40 bits: for small epsilons, many classes or many columns
# The curvature's sensitivity over the gradient's in a step that measures both: curvatures get a fifth of all steps together,
# with a given epsilon, where one step of three measures one, and in rungs, where every step does.
_SLOPE, _RUNG_SLOPE = 1.5**0.5, 0.5
_CLEAR = 0.01  # of the released mean of a target: up to that its spread is worth showing
_LIKELIEST = 0.9  # the largest accuracy from which that of a training at a given epsilon is counted
_PLAIN_SUM = Fraction(10**3)  # a cap of tests beyond every other, so that each Renyi order charges the loss itself
_CITATIONS = (
    "docs/proofs/tabular-models.md",
    "docs/proofs/sgd-gradient.md",
    "docs/proofs/sgd-stopping.md, Theorem 1",
    "docs/proofs/discrete-gaussian-calibration.md",
)


_POPULATION = f"{HELD_OUT:.0%} of the rows, held out, where it was tested; the promise is about the population of rows"

_Climb = tuple[int, MeasuredScore, StopRule | Confirmation, str]
"""The rung where a climb ended, the last score, what decided, and why it ended."""


@dataclass(frozen=True, kw_only=True)
class TableTraining:
    """How a model of a table will be trained. A frozen value made from public facts, so it is its own query.

    ``read`` makes the rows of what the dataset holds, once the ledger is charged. ``classes`` is the number of classes,
    None for a numeric target. ``target_bounds`` are the public bounds of a numeric target. ``terms`` are the public settings
    for the receipt.

    Guarantee: approximate ex-post, known only after the run: the price of the rung it stopped at.
    Adjacency: add/remove of one unit; the rows of a unit share a weight of 1.
    Sensitivity: L2, of each release: see ``LatticeSum`` and ``CurvedGradient``.
    Accuracy: if the target is reported as met, it is missed with its failure probability at most. It is about the rows of
        the table, each with its weight.
    Numerics: exact integer sums and noise; steps are floats computed from released numbers.
    Reference: docs/proofs/tabular-models.md.
    """

    question: str
    schedule: RungSchedule
    read: Callable[[Any], RowBlocks]
    width: int
    squared_length: float
    classes: int | None
    indicators: NDArray[np.bool_] | None = None
    target: Target | None = None
    target_bounds: tuple[float, float] = (-1.0, 1.0)
    rows_per_unit: int = 1
    unit: Unit = Unit()
    public_rows: int | None = None
    failure_probability: Fraction = Fraction(1, 10)
    terms: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[], Progress] | None = None
    class_weights: ClassWeights | None = None
    report: TableReport = NO_REPORT
    of_population: bool = False
    """Whether the promise is about the population that rows are drawn from: then the test is made with rows held out."""
    laplace: bool = True
    """Whether scores are tested with Laplace noise. Accounts that add up Gaussian losses have Gaussian tests instead."""

    def plan(self, dataset: Any, context: PlanContext) -> TableTraining:
        """Return this plan, with the tests that the accounts can be charged for at the least price."""
        laplace = self.laplace and not context.definitions & {"zcdp", "gdp", "rdp"}
        if self.of_population and not laplace:
            raise InvalidRequest(
                'Expected a score and an account of epsilon and delta for about="population"',
                do='Pass score=("accuracy", 0.8) to fit or Session.fit, or leave about out',
            )
        return replace(self, laplace=laplace)

    @property
    def worst_case(self) -> Loss:
        return self.schedule.prices.cap

    @property
    def event(self) -> Any:
        """Return all releases that the cap allows: on every path of a training, whichever is the most expensive."""
        rungs, cap = len(self.schedule.rungs), self.schedule.prices.cap.epsilon
        if not self.tested_sum:
            return self.schedule.event(rungs)
        paths = [self._build_event(number, cap - self.schedule.prices.epsilons[number]) for number in range(rungs)]
        return Parallel(tuple(paths))

    def event_of(self, receipt: Receipt) -> Any:
        """Return the releases of the rungs and tests that ran."""
        number = 0 if receipt.rung is None else receipt.rung
        if not self.tested_sum:
            return self.schedule.event(number + 1)
        return self._build_event(number, receipt.breakdown.get("tests", Fraction(0)))

    def _build_event(self, number: int, tested: Fraction) -> Any:
        return Events((self.schedule.event(number + 1), ExPostEvent(tested, _PLAIN_SUM)))

    @property
    def tested_sum(self) -> bool:
        """Return whether one sum under Laplace noise decides about the target."""
        return self.laplace and self.target is not None and self.target.measure is not Measure.AUC

    @property
    def most_epsilon(self) -> Fraction:
        """Return the cap."""
        return self.schedule.prices.cap.epsilon

    def find_needed_sum(self, epsilon: Fraction | None, sums: ScoreSum) -> float:
        """Return the noisy sum that the first test needs at a total epsilon, or at the finest level of the cap."""
        first, cap = self.schedule.prices.epsilons[0], self.most_epsilon
        if not self.of_population:
            return find_needed_sum(sums, self.failure_probability, cap=cap, first=first, epsilon=epsilon)
        failure = self.failure_probability * Fraction(1 - SAMPLED)
        return find_needed_sum(sums, failure, cap=cap, first=first, epsilon=epsilon, most_models=1)

    def check(self) -> None:
        """Raise ``InvalidRequest`` if a rung's noise is too large for the integers that sums are made of; reads no rows."""
        # The lattice is the same for every profile: clip, grid and row limit are multiples of its length. Roundings are far
        # below a thousandth.
        blank, targets = plain_profile(self.width), self.classes or 1
        sums = profile_lattices(self.width, self.squared_length, self.classes, self.rows_per_unit, self.indicators)
        try:
            for rung in self.schedule.rungs:
                step_noise, test_noise = rung.divide(NEAR_NUMERIC_TEST)[0], rung.divide(FIXED_TEST)[1]
                self.curved_gradient(blank, step_noise * Fraction(1001, 1000))
                self.score_sum(blank).lattice.check_noise(test_noise)
                if self.classes is None:
                    line = PredictionLine(1.0, 1.0, self.rows_per_unit)
                    line.lattice.check_noise(rung.divide(LINE_SHARE)[1])
                for lattice, noise in zip(sums, rung.profile_noise or (), strict=False):
                    lattice.check_noise(noise)
            if self.class_weights is not None and self.schedule.sides.before:
                self.class_weights.counting(self.rows_per_unit).check_noise(self.schedule.before_noise)
            if self.report.share:
                self.report.check(blank, self.head, self.schedule.after_noise(0), self.rows_per_unit)
        except InvalidRequest:
            raise InvalidRequest(
                "Expected an epsilon that the noise of so many features, classes and rows per unit can keep",
                got=f"{self.width} features, {targets} targets, {self.rows_per_unit} rows per unit",
                do="Raise epsilon or max_epsilon, declare fewer columns, or lower max_rows_per_unit",
            ) from None

    def curved_gradient(self, profile: TableProfile, noise: Fraction) -> CurvedGradient:
        """Return how gradients and curvatures are summed."""
        return CurvedGradient(
            fit_grid(profile),
            self.head,
            clip=_CLIP[self.classes is not None] * profile.length,
            noise_multiplier=float(noise),
            row_limit=_ROW_LIMIT * profile.length,
            rows_per_unit=self.rows_per_unit,
            spare_bits=_SPARE_BITS,
            slope=_SLOPE if self.target is None else _RUNG_SLOPE,
        )

    def measure(self, dataset: Any) -> TrainedTable:
        return TrainedTable(self.read(dataset))

    def climb(self, sealed: TrainedTable, bits: BitSource) -> Release[TableModel]:
        """Train rung by rung until the target is met, shown to be out of reach, or the cap is spent."""
        factors = self._find_class_factors(sealed, bits)
        if factors is not None:
            sealed = TrainedTable(weigh_rows(sealed.blocks, factors))
        held_out = None
        if self.of_population:
            dealt = DealtRows(sealed.blocks, bits)
            sealed, held_out = TrainedTable(dealt.training), dealt.held_out
        run = TableRun(self, sealed, bits, held_out)
        with self.progress() if self.progress else Quiet() as progress:
            climb = self._climb_confirmed if self.tested_sum else self._climb_measured
            number, score, stops, reason = climb(run, progress)
        model, lines = run.scored, dict[str, Any]()
        if self.report.share:
            model, lines = self.report.release(run.finish(score), self.schedule.after_noise(number), bits)
        if factors is not None:
            labels = self.terms.get("classes", range(len(factors)))
            lines["class weights"] = ", ".join(f"{a} {b:.4g}" for a, b in zip(labels, factors, strict=True))
        if model.limits is not None:
            low, high = self.target_bounds
            ends = [(high - low) / 2 * (end + model.profile.target_middle) + (high + low) / 2 for end in model.limits]
            lines["predictions limited to"] = "{:.6g} to {:.6g}: a test of near ones costs less".format(*ends)
        return Release(model, self._receipt(number, score, stops, reason, model.profile, lines))

    def _climb_confirmed(self, run: TableRun, progress: Progress) -> _Climb:
        """Train on a rung at a time, and test the model with Laplace noise once that is worth its price."""
        assert self.target is not None
        rungs, prices = self.schedule.rungs, self.schedule.prices
        if self.of_population:
            stops: Confirmation = HeldOutConfirmation(self.target, self.failure_probability, prices.cap.epsilon)
        else:
            stops = Confirmation(self.target, self.failure_probability, prices.cap.epsilon, self.rows_per_unit)
        source = OpenSums(run.open_test, run.open_mean)
        steps, total = 0, sum(rung.steps for rung in rungs)
        score: MeasuredScore | None = None
        number, reason = 0, ""
        for number, rung in enumerate(rungs):
            try:
                score = run.take_rung(rung, stops.measure_share)
            except KeyboardInterrupt:
                if score is None:
                    raise
                reason = "stopped by the caller"  # the rung that it interrupted is billed
                break
            steps += rung.steps
            following = prices.epsilons[number + 1] if number + 1 < len(rungs) else None
            sums = self._pure_sum(run.profile)
            reason = stops.confirm(score, sums, run.profile, source, prices.epsilons[number], following=following)
            progress.advance_steps(steps, total, prices.epsilons[number] + stops.spent, describe_score(score))
            if reason:
                break
        assert score is not None
        if stops.seen is not None:
            seen = self._pure_sum(run.profile).read_look(stops.seen, stops.find_tested(run.profile))
            score = replace(score, values=score.values | seen)
        return number, score, stops, reason

    def _climb_measured(self, run: TableRun, progress: Progress) -> _Climb:
        """Train rung by rung, and decide by the score that each rung measures with Gaussian noise."""
        stops = StopRule(self.target, self.failure_probability)
        steps, total = 0, sum(rung.steps for rung in self.schedule.rungs)
        score: MeasuredScore | None = None
        number, owed = 0, False
        reason = ""
        for number, rung in enumerate(self.schedule.rungs):
            try:
                if stops.confirming:
                    owed |= rung.profiled
                    again = run.measure_again(rung)
                    score = again if stops.first_look or score is None else combine_scores(score, again)
                else:
                    # A profile that was due while a model was confirmed is made now, out of this rung.
                    score = run.take_rung(replace(rung, profiled=rung.profiled or owed), stops.test_share)
                    owed = False
            except KeyboardInterrupt:
                if self.target is None or score is None:
                    raise
                reason = "stopped by the caller"
                break
            steps += rung.steps
            last = number + 1 == len(self.schedule.rungs)
            reason = stops.judge(score, self.score_sum(run.profile), run.profile, last=last)
            progress.advance_steps(steps, total, self.schedule.prices.epsilons[number], describe_score(score))
            if reason:
                break
        assert score is not None
        return number, score, stops, reason

    def _find_class_factors(self, table: TrainedTable, bits: BitSource) -> tuple[float, ...] | None:
        """Return how much a row of each class counts, None if all count the same; balanced ones are released first."""
        if self.class_weights is None:
            return None
        noise = self.schedule.before_noise if self.schedule.sides.before else None
        return self.class_weights.find_factors(table.blocks, rows_per_unit=self.rows_per_unit, noise=noise, bits=bits)

    @property
    def weighted(self) -> bool:
        """Return whether rows have weights other than 1."""
        return self.rows_per_unit > 1 or self.class_weights is not None

    def score_sum(self, profile: TableProfile) -> ScoreSum | AucSum:
        """Return the sums that decide whether the target is met."""
        if self.target is not None and self.target.measure is Measure.AUC:
            least = (1.0 if self.class_weights is None else self.class_weights.least) / self.rows_per_unit
            tree = RankTree(self.rows_per_unit, center_of(profile))
            return AucSum(self.target, tree, least if not self.weighted else 0.99 * least)
        if self.classes is not None:
            likely = min(max(0.5, *profile.shares), _LIKELIEST) if profile.shares else 0.5
            return ScoreSum(self.target, self.classes, self.rows_per_unit, center=likely)
        low, high = self.target_bounds
        reach = find_reach(self.target, profile)
        half, middle = (high - low) / 2, profile.target_middle
        return ScoreSum(self.target, None, self.rows_per_unit, half, middle, reach, guided=self.tested_sum)

    def _pure_sum(self, profile: TableProfile) -> ScoreSum:
        """Return the sums of a test with Laplace noise, which is never about an area under the curve."""
        sums = self.score_sum(profile)
        assert isinstance(sums, ScoreSum)
        return sums

    @property
    def head(self) -> CurvedHead:
        if self.classes is None:
            return Squared()
        return Logistic() if self.classes == 2 else Softmax(self.classes)

    def _receipt(
        self,
        number: int,
        score: MeasuredScore,
        stops: StopRule | Confirmation,
        reason: str,
        profile: TableProfile,
        lines: Mapping[str, Any],
    ) -> Receipt:
        prices = self.schedule.prices
        trained = prices.epsilons[number]
        tested = stops.spent if isinstance(stops, Confirmation) else Fraction(0)
        outcome = Outcome.FIXED if self.target is None else Outcome.TESTED if stops.met else Outcome.NOT_MET
        labels = None if self.classes is None else self.terms.get("classes", range(self.classes))
        terms = {
            **self.terms,
            "rows, about" if self.class_weights is None else "weight of the rows, about": round(
                profile.rows / (1 - HELD_OUT * self.of_population)
            ),
            **({"rows, off by at most about": round(2 * profile.rows_error)} if profile.rows_error else {}),
            **note_profile(profile, labels=labels, width=self.width, declared_rows=self.public_rows),
            **note_scores(score.values),
            **lines,
            **describe_baseline(score, profile, self.target_bounds),
            "measured on": _POPULATION
            if self.of_population
            else describe_measure(by_row=self.unit.is_row, weighted=self.class_weights is not None),
        }
        if self.target is not None:
            terms["margin of the last test"] = float(f"{stops.margin:.3g}")
            if not stops.met:
                terms["ended"] = reason
        if self.target is not None and stops.met:
            achieved: float | None = float(self.target.tolerance)
        elif self.of_population:
            achieved = None  # what was measured besides the test is about the rows of the training
        else:
            several_stops = 1 if self.target is None else MOST_RUNGS
            achieved = certify_score(
                score, self.failure_probability, stops=several_stops, target_bounds=self.target_bounds
            )
        several = len(self.schedule.rungs) > 1
        return Receipt(
            question=self.question,
            method="Newton steps with Gaussian noise on the rows of a table",
            promise=prices.cap.promise(),
            bill=ApproxLoss(trained + tested, prices.delta),
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
            outcome=outcome,
            target=self.target,
            achieved=achieved,
            achieved_measure=Measure.ACCURACY if self.target is None and self.classes is not None else None,
            rung=number if several else None,
            rungs=len(self.schedule.rungs) if several else None,
            terms=terms,
            breakdown={"training": trained, "tests": tested} if tested else {},
            citations=_CITATIONS,
        )


def describe_score(score: MeasuredScore) -> str:
    """Return the main measure of a score with its error."""
    name, (value, deviation) = next(iter(score.values.items()))
    return f"{name} {value:.3f} ± {2 * deviation:.3f}"


def describe_baseline(
    score: MeasuredScore, profile: TableProfile, target_bounds: tuple[float, float]
) -> dict[str, str]:
    """Return what a model without features would reach, from what was released anyway."""
    if profile.shares:
        share = max(profile.shares)
        # A share is a noisy count over a noisy count, with independent noises.
        deviation = math.hypot(profile.target_error, share * profile.rows_error / profile.rows)
        if 2 * deviation >= 1:
            return {"baseline": "always the most frequent class: the noise hides its accuracy"}
        error = f" ± {2 * deviation:.2g}" if deviation else ""
        return {"baseline": f"always the most frequent class: accuracy {share:.3g}{error}"}
    less = ", mae at most that" if "mae" in score.values else ""
    if score.baseline is not None:
        root, deviation = score.baseline
        return {"baseline": f"always the mean: r2 0, rmse {root:.3g} ± {2 * deviation:.2g}{less}"}
    if profile.target_error < _CLEAR:
        half = (target_bounds[1] - target_bounds[0]) / 2
        return {"baseline": f"always the mean: r2 0, rmse roughly {profile.target_spread * half:.2g}{less}"}
    return {"baseline": "always the mean: r2 0; the noise hides its rmse"}
