"""The training of a linear model on a table: profile, Newton steps and measured scores, rung by rung."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

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
    SingleOwner,
    Target,
    Unit,
)
from expost.models.descent.clipped_gradient import CurvedGradient, grid_scores
from expost.models.descent.score_head import CurvedHead, Logistic, Softmax, Squared
from expost.models.descent.training_watch import Progress, Quiet
from expost.models.tabular.class_weight import ClassWeights, weigh_rows
from expost.models.tabular.grid_table import GridBlock, GridTable
from expost.models.tabular.newton_descent import NoisyNewton, NoisyStep
from expost.models.tabular.profile_note import describe_measure, note_profile
from expost.models.tabular.rank_tree import AucSum, RankTree, center_of
from expost.models.tabular.rung_schedule import MOST_PROFILES, Rung, RungSchedule
from expost.models.tabular.score_sum import (
    LARGEST_LOSS,
    MeasuredScore,
    ScoreSum,
    clip_predictions,
    combine_scores,
    compute_chances,
    find_reach,
)
from expost.models.tabular.table_model import TableModel, fit_grid
from expost.models.tabular.table_profile import RowBlocks, TableProfile, measure_profile, profile_lattices
from expost.models.tabular.table_report import NO_REPORT, FinishedModel, TableReport, residual_variance_of
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["TableTraining", "TrainedTable", "describe_baseline", "describe_score", "row_outcomes"]

Floats = NDArray[np.float64]

# Chosen on the tables that newton_descent.py names; factors of two either way changed little.
_CLIP = {True: 0.5, False: 0.8}  # of a gradient, in usual lengths of a row: for classes, for targets of spread 1
_ROW_LIMIT = 1.2  # usual lengths of a row up to which its curvature counts in full
_SPARE_BITS = 8  # noise of 40 bits: for small epsilons, many classes or many columns
# A curvature takes most of a step's time; one in every third step is as accurate as one in every step, in half the time.
_CURVED_EVERY = 3
# The curvature's sensitivity over the gradient's in such a step: curvatures get a fifth of all steps together.
_SLOPE = 1.5**0.5
_PRIOR = {True: 3.0, False: 1.0}  # the usual size of a score
_PLAUSIBLE = 1.0  # deviations below the target from which on a test may be passed at the next rung
# Shares of a rung for measuring the score; near the target the measurement decides. A squared error can be as large as the
# square of the target's range, so that of a regression needs more.
_FIXED_TEST, _FAR_TEST, _NEAR_TEST, _NEAR_NUMERIC_TEST = 0.06, 0.15, 0.5, 0.75
_COUNTED = 2.0  # deviations of the noisy number of rows, which it must have for a model to be confirmed
_CLEARLY = 1.0  # deviations above the target from which on a model is kept and measured again
_MOST_LOOKS = 2  # then the training goes on: a better model is easier to confirm
_TELLING = 0.5  # an error of a side measure, as a share of its value, up to which it is shown
_LIKELIEST = 0.9  # the largest accuracy from which that of a training at a given epsilon is counted
_POWERED = 0.25  # a test's margin may be this part of the errors that the target allows
_HOPELESS = 3.0  # deviations that separate a plateau from the target
_RUNGS_BACK = 2  # a plateau is told from the gain over this many rungs
_CITATIONS = (
    "docs/proofs/tabular-models.md",
    "docs/proofs/sgd-gradient.md",
    "docs/proofs/sgd-stopping.md, Theorem 1",
    "docs/proofs/discrete-gaussian-calibration.md",
)


class TrainedTable(SingleOwner):
    """The private rows of a training. They are read again for every profile (``GridTable``)."""

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(self, blocks: RowBlocks) -> None:
        super().__init__()
        self.blocks = blocks

    def __repr__(self) -> str:
        return "<rows of a private table>"


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

    def plan(self, dataset: Any, context: PlanContext) -> TableTraining:
        """Return this plan."""
        return self

    @property
    def worst_case(self) -> Loss:
        return self.schedule.prices.cap

    @property
    def event(self) -> Any:
        """Return all releases of the schedule."""
        return self.schedule.event(len(self.schedule.rungs))

    def event_of(self, receipt: Receipt) -> Any:
        """Return the releases of the rungs that ran."""
        return self.schedule.event(1 if receipt.rung is None else receipt.rung + 1)

    def check(self) -> None:
        """Raise ``InvalidRequest`` if a rung's noise is too large for the integers that sums are made of; reads no rows."""
        # The lattice is the same for every profile: clip, grid and row limit are multiples of its length. Roundings are far
        # below a thousandth.
        blank, targets = _plain_profile(self.width), self.classes or 1
        sums = profile_lattices(self.width, self.squared_length, self.classes, self.rows_per_unit, self.indicators)
        try:
            for rung in self.schedule.rungs:
                step_noise, test_noise = rung.divide(_NEAR_NUMERIC_TEST)[0], rung.divide(_FIXED_TEST)[1]
                self.curved_gradient(blank, step_noise * Fraction(1001, 1000))
                self.score_sum(blank).lattice.check_noise(test_noise)
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
            slope=_SLOPE,
        )

    def measure(self, dataset: Any) -> TrainedTable:
        return TrainedTable(self.read(dataset))

    def climb(self, sealed: TrainedTable, bits: BitSource) -> Release[TableModel]:
        """Train rung by rung until the target is met, shown to be out of reach, or the cap is spent."""
        factors = self._find_class_factors(sealed, bits)
        if factors is not None:
            sealed = TrainedTable(weigh_rows(sealed.blocks, factors))
        run = _TableRun(self, sealed, bits)
        stops = _StopRule(self.target, self.failure_probability)
        steps, total = 0, sum(rung.steps for rung in self.schedule.rungs)
        score: MeasuredScore | None = None
        number, owed = 0, False
        reason = ""
        with self.progress() if self.progress else Quiet() as progress:
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
                news = "" if score is None else describe_score(score)
                progress.advance_steps(steps, total, self.schedule.prices.epsilons[number], news)
                if reason:
                    break
        assert score is not None
        model, lines = run.scored, dict[str, Any]()
        if self.report.share:
            model, lines = self.report.release(run.finish(score), self.schedule.after_noise(number), bits)
        if factors is not None:
            labels = self.terms.get("classes", range(len(factors)))
            lines["class weights"] = ", ".join(f"{a} {b:.4g}" for a, b in zip(labels, factors, strict=True))
        return Release(model, self._receipt(number, score, stops, reason, model.profile, lines))

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
        return ScoreSum(self.target, None, self.rows_per_unit, (high - low) / 2, profile.target_middle, reach)

    @property
    def head(self) -> CurvedHead:
        if self.classes is None:
            return Squared()
        return Logistic() if self.classes == 2 else Softmax(self.classes)

    def _receipt(
        self,
        number: int,
        score: MeasuredScore,
        stops: _StopRule,
        reason: str,
        profile: TableProfile,
        lines: Mapping[str, Any],
    ) -> Receipt:
        prices = self.schedule.prices
        bill = prices.bill_at(number)
        outcome = Outcome.FIXED if self.target is None else Outcome.TESTED if stops.met else Outcome.NOT_MET
        main = next(iter(score.values))
        measured = {
            f"measured {name}": f"{value:.4g} ± {2 * deviation:.2g}"
            for name, (value, deviation) in score.values.items()
            if name == main or 2 * deviation < _TELLING * abs(value)  # a side measure that is all noise says nothing
        }
        labels = None if self.classes is None else self.terms.get("classes", range(self.classes))
        terms = {
            **self.terms,
            "rows, about" if self.class_weights is None else "weight of the rows, about": round(profile.rows),
            **note_profile(profile, labels=labels, width=self.width, declared_rows=self.public_rows),
            **measured,
            **lines,
            **describe_baseline(self.classes, self.target_bounds, profile),
            "measured on": describe_measure(by_row=self.unit.is_row, weighted=self.class_weights is not None),
        }
        if self.target is not None:
            terms["margin of the last test"] = float(f"{stops.margin:.3g}")
            if not stops.met:
                terms["ended"] = reason
        achieved = float(self.target.tolerance) if stops.met and self.target is not None else stops.certified(score)
        several = len(self.schedule.rungs) > 1
        return Receipt(
            question=self.question,
            method="Newton steps with Gaussian noise on the rows of a table",
            promise=prices.cap.promise(),
            bill=ApproxLoss(bill.epsilon, bill.delta),
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
            outcome=outcome,
            target=self.target,
            achieved=achieved,
            rung=number if several else None,
            rungs=len(self.schedule.rungs) if several else None,
            terms=terms,
            citations=_CITATIONS,
        )


class _TableRun:
    """The state of one training: the profile, the rows on its grid, and the weights."""

    def __init__(self, plan: TableTraining, table: TrainedTable, bits: BitSource) -> None:
        self._plan, self._table, self._bits = plan, table, bits
        self._newton: NoisyNewton | None = None
        self._rows: Iterable[GridBlock] = ()
        self.profile: TableProfile = _NO_PROFILE
        self.model: TableModel = TableModel(_NO_PROFILE, np.zeros((1, 1)))
        self.scored: TableModel = self.model  # the last one whose score was released

    def take_rung(self, rung: Rung, test_share: float) -> MeasuredScore:
        """Make the profile that the rung pays for, take its steps, and measure the score."""
        profile_noise, (step_noise, test_noise) = rung.profile_noise, rung.divide(test_share)
        if profile_noise is not None:
            self._change_profile(profile_noise)
        self._take_steps(rung.steps, step_noise)
        return self._measure_score(test_noise)

    def measure_again(self, rung: Rung) -> MeasuredScore:
        """Spend all of a rung on measuring the model once more."""
        return self._measure_score(rung.noise)

    def _take_steps(self, steps: int, step_noise: Fraction) -> None:
        plan = self._plan
        newton = self._newton
        assert newton is not None
        newton.start_rung()
        profile, noise = self.profile, float(step_noise)
        curved = plan.curved_gradient(profile, step_noise)
        # Each step is one Gaussian event of the same multiplier, with or without a curvature.
        draw = partial(GaussianStream, step_noise, bits=self._bits)
        bent = -(-steps // _CURVED_EVERY)
        both = draw(curved.sensitivity, size=curved.size, releases=bent)
        slopes = draw(curved.gradient.sensitivity, size=curved.gradient.size, releases=steps - bent)
        for number in range(steps):
            blocks = ((rows, targets, weights if plan.weighted else None) for rows, targets, weights in self._rows)
            if number % _CURVED_EVERY:
                released = slopes.release(curved.measure_blocks(blocks, newton.weights, curved=False))
                deviation = noise * float(curved.gradient.sensitivity.amount) / profile.rows
                slope = released.reshape(newton.weights.shape) / curved.gradient.unit
                step = NoisyStep(slope / profile.rows, deviation / curved.gradient.unit)
            else:
                slope, bend = curved.split(both.release(curved.measure_blocks(blocks, newton.weights)))
                deviation = noise * float(curved.sensitivity.amount) / profile.rows
                step = NoisyStep(
                    slope / profile.rows,
                    deviation / curved.gradient.unit,
                    bend / profile.rows,
                    deviation / curved.unit,
                )
            newton.take_step(step)
        self.model = TableModel(profile, newton.weights.copy(), find_reach(plan.target, profile))

    def _change_profile(self, noises: tuple[Fraction, Fraction]) -> None:
        plan = self._plan
        profile = measure_profile(
            self._table.blocks,
            width=plan.width,
            squared_length=plan.squared_length,
            classes=plan.classes,
            noises=noises,
            rows_per_unit=plan.rows_per_unit,
            bits=self._bits,
            public_rows=plan.public_rows,
            indicators=plan.indicators,
        )
        if self._newton is None:
            prior = _PRIOR[plan.classes is not None]
            self._newton = NoisyNewton(plan.head.outputs, fit_grid(profile).columns, length=profile.length, prior=prior)
        else:
            moved = _rescale_target(self.model, profile, plan.classes)
            self._newton.change_columns(moved.weights, profile.length)
        self.profile = profile
        self._rows = GridTable(self._table.blocks, profile, classes=plan.classes)

    def finish(self, score: MeasuredScore) -> FinishedModel:
        """Return the model whose score was released last, and how its rows are read once more."""
        plan, model = self._plan, self.scored
        low, high = plan.target_bounds
        scale = 1.0 if plan.classes is not None else model.profile.target_spread * (high - low) / 2
        rows = self._rows
        if model.profile is not self.profile:
            rows = GridTable(self._table.blocks, model.profile, classes=plan.classes)
        return FinishedModel(
            model=model,
            blocks=lambda: rows,
            head=plan.head,
            rows_per_unit=plan.rows_per_unit,
            weighted=plan.weighted,
            residual_variance=1.0 if plan.classes is not None else residual_variance_of(score.values, scale),
            unit_scale=scale,
        )

    def _measure_score(self, noise: Fraction) -> MeasuredScore:
        """Release how well the model predicts all rows."""
        plan, score = self._plan, self._plan.score_sum(self.profile)
        total = score.lattice.start()
        for rows, targets, weights in self._rows:
            scores = grid_scores(rows.integers(), self.model.weights, self.model.grid)
            if isinstance(score, AucSum):
                score.lattice.add(total, np.column_stack([scores[0], targets]), weights)
            else:
                outcomes = row_outcomes(scores, targets, plan.classes, self.model)
                score.lattice.add(total, score.vectors(outcomes), weights)
        released = score.lattice.release(total, noise, self._bits)
        self.scored = self.model
        return score.read(released, noise, self.profile)


def _plain_profile(width: int) -> TableProfile:
    """Return the profile of columns that are used as they are."""
    return TableProfile(1.0, np.zeros(width), np.ones(width), 1.0)


_NO_PROFILE = _plain_profile(1)


def _rescale_target(model: TableModel, profile: TableProfile, classes: int | None) -> TableModel:
    """Return the model for another profile, its scores in units of the new target spread."""
    moved = model.rescaled(profile)
    if classes is not None:
        return moved
    old = model.profile
    ratio = old.target_spread / profile.target_spread
    weights = moved.weights * ratio
    grid = fit_grid(profile)
    weights[:, -1] += (old.target_middle - profile.target_middle) / profile.target_spread * (grid.unit / grid.constant)
    return TableModel(profile, weights)


def row_outcomes(scores: Floats, targets: NDArray[Any], classes: int | None, model: TableModel) -> Floats:
    """Return what a score sum reads of each row, from scores (outputs x rows)."""
    if classes is None:
        spread, middle = model.profile.target_spread, model.profile.target_middle
        predicted = clip_predictions(scores[0], model.profile, model.reach)
        truth = np.clip(targets * spread + middle, -1.0, 1.0)
        return np.column_stack([predicted - truth, truth - middle])
    predicted = (scores[0] > 0).astype(np.intp) if classes == 2 else scores.argmax(axis=0)
    known = targets >= 0
    chance = np.take_along_axis(compute_chances(scores), np.maximum(targets, 0)[None, :], axis=0)[0]
    loss = np.where(known, -np.log(chance), LARGEST_LOSS)
    return np.column_stack([(predicted == targets).astype(np.float64), np.clip(loss, 0.0, LARGEST_LOSS)])


class _StopRule:
    """Decides after each rung whether the target is met or out of reach.

    A test may be passed only at a rung whose predecessor came near the target, and whose margin is a small part of the
    errors that the target allows: tests without a chance would use up the failure probability. The first one may err
    with half of it, the second with a quarter, and so on, so all of them together with the whole.

    A model that was measured clearly above the target is confirmed: it is kept, and whole rungs measure it again. These
    measurements are combined. The one that made it a candidate is left out, because it was chosen for being high.
    """

    def __init__(self, target: Target | None, failure_probability: Fraction) -> None:
        self._target, self._failure = target, float(failure_probability)
        self._history: list[tuple[float, float]] = []
        self._tests = 0
        self._flat = 0
        self.confirming = False
        self._looks = 0  # measurements of the candidate after the one that made it one
        self.met = False
        self.margin = 0.0

    @property
    def test_share(self) -> float:
        """Return the share of the next rung that measures its score."""
        if self._target is None:
            return _FIXED_TEST
        near = _NEAR_NUMERIC_TEST if self._numeric or self._target.measure is Measure.AUC else _NEAR_TEST
        return near if self._near else _FAR_TEST

    @property
    def _numeric(self) -> bool:
        """Return whether the target is that of a regression."""
        return self._target is not None and self._target.measure in (Measure.R2, Measure.RMSE, Measure.MEAN_LOSS)

    @property
    def first_look(self) -> bool:
        """Return whether the next measurement of a candidate is the first one that counts."""
        return self._looks == 0

    @property
    def _near(self) -> bool:
        """Return whether the last measured score is near the target, or above it."""
        return bool(self._history) and self._history[-1][0] + _PLAUSIBLE * self._history[-1][1] >= 0

    def judge(self, score: MeasuredScore, sums: ScoreSum | AucSum, profile: TableProfile, *, last: bool) -> str:
        """Return why the training ends, or an empty text if it goes on."""
        if self._target is None:
            return "" if not last else "one rung"
        surplus, deviation = score.surplus / profile.rows, score.deviation / profile.rows
        allowed = self._failure / 2 ** (self._tests + 1)
        # A tenth of the failure probability is for profiles whose noise hides more than the margin allows.
        extra = sums.find_margin(profile, self._failure / (10 * MOST_PROFILES))
        self.margin = (-float(ndtri(allowed * 0.9)) * deviation + extra / profile.rows) / sums.surplus_of_one(profile)
        near = self._near or not self._history or self.confirming
        self._history.append((surplus, deviation))
        if near and self.margin <= _POWERED * sums.errors_allowed:
            self._tests += 1
            if score.passes(allowed * 0.9, extra):
                self.met = True
                return "met"
        if last:
            return "the cap is spent"
        self._looks = self._looks + 1 if self.confirming else 0
        # Regressions train on instead: their margin needs a fresh profile too, and their scores rise longer.
        counted = profile.rows >= _COUNTED * profile.rows_error  # else a score per row says nothing
        clear = not self._numeric and counted and surplus >= _CLEARLY * deviation
        self.confirming = clear and self._looks < _MOST_LOOKS
        if len(self._history) > _RUNGS_BACK:
            gain = max(surplus - self._history[-1 - _RUNGS_BACK][0], 0.0)
            self._flat = self._flat + 1 if surplus + gain + _HOPELESS * deviation < 0 else 0
            if self._flat >= _RUNGS_BACK:
                return "out of reach: more privacy budget improves the score too little"
        return ""

    def certified(self, score: MeasuredScore) -> float | None:
        """Return the score that holds at the failure probability, whatever rung it stopped at; None for R^2.

        At most 32 rungs may be the last one, so a 64th of the failure probability is enough for each.
        """
        name, (value, deviation) = next(iter(score.values.items()))
        if name == "r2":
            return None  # its denominator is an estimate without a proved error
        if name == "auc":
            return score.certified
        failure = self._failure if self._target is None else self._failure / 64
        reach = -float(ndtri(failure)) * deviation
        found = value + reach if name in ("log loss", "rmse", "mae") else value - reach
        return float(found)


def describe_score(score: MeasuredScore) -> str:
    """Return the main measure of a score with its error."""
    name, (value, deviation) = next(iter(score.values.items()))
    return f"{name} {value:.3f} ± {2 * deviation:.3f}"


def describe_baseline(classes: int | None, target_bounds: tuple[float, float], profile: TableProfile) -> dict[str, str]:
    """Return what a model without features would reach, from what was released anyway."""
    if classes is not None:
        return {"baseline": f"always the most frequent class: accuracy {max(profile.shares):.3g}"}
    half = (target_bounds[1] - target_bounds[0]) / 2
    return {"baseline": f"always the mean: r2 0, rmse about {profile.target_spread * half:.3g}"}
