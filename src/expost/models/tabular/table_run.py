"""The state of a training on a table: rows on the grid of a profile, Newton steps, and measured scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from expost.core import SingleOwner
from expost.models.descent.clipped_gradient import SumGradients, grid_scores
from expost.models.tabular.grid_table import GridBlock, GridTable
from expost.models.tabular.laplace_test import LaplaceTest
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.newton_descent import NoisyNewton, NoisyStep
from expost.models.tabular.prediction_line import LINE_SHARE, PredictionLine
from expost.models.tabular.rank_tree import AucSum
from expost.models.tabular.rung_schedule import Rung
from expost.models.tabular.score_sum import (
    LARGEST_LOSS,
    MeasuredScore,
    ScoreSum,
    clip_predictions,
    compute_chances,
    find_reach,
)
from expost.models.tabular.table_model import TableModel, fit_grid
from expost.models.tabular.table_profile import RowBlocks, TableProfile, measure_profile, sum_blocks
from expost.models.tabular.table_report import FinishedModel, residual_variance_of
from expost.models.tabular.tabular_rows import ChunkSum
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

if TYPE_CHECKING:
    from expost.models.tabular.table_training import TableTraining

__all__ = ["TableRun", "TrainedTable", "plain_profile", "row_outcomes"]

Floats = NDArray[np.float64]
_PRIOR = {True: 3.0, False: 1.0}  # the usual size of a score
_HIDDEN = {True: 0.5, False: 1.0}  # of a curvature's noise; chosen on adult and diamonds
# A curvature takes most of a step's time. With a given epsilon one in every third step is as accurate as one in every step,
# in half the time. The few steps of a rung need one each.
_CURVED_EVERY = 3
_USUAL_SCORES = 0.3, 1.0  # spreads of the target, for the line


class TrainedTable(SingleOwner):
    """The private rows of a training. They are read again for every profile (``GridTable``)."""

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(self, blocks: RowBlocks) -> None:
        super().__init__()
        self.blocks = blocks

    def __repr__(self) -> str:
        return "<rows of a private table>"


def plain_profile(width: int) -> TableProfile:
    """Return the profile of columns that are used as they are."""
    return TableProfile(1.0, np.zeros(width), np.ones(width), 1.0)


NO_PROFILE = plain_profile(1)


class TableRun:
    """The state of one training: the profile, the rows on its grid, and the weights."""

    def __init__(
        self, plan: TableTraining, table: TrainedTable, bits: BitSource, held_out: RowBlocks | None = None
    ) -> None:
        self._plan, self._table, self._bits, self._held_out = plan, table, bits, held_out
        self._newton: NoisyNewton | None = None
        self._rows: Any = ()
        self.profile: TableProfile = NO_PROFILE
        self.model: TableModel = TableModel(NO_PROFILE, np.zeros((1, 1)))
        self.scored: TableModel = self.model  # the last one whose score was released

    def take_rung(self, rung: Rung, test_share: float) -> MeasuredScore:
        """Make the profile that the rung pays for, take its steps, and measure the score."""
        profile_noise, shares = rung.profile_noise, (test_share, LINE_SHARE * (self._plan.classes is None))
        step_noise, *noises = rung.divide(*(share for share in shares if share))
        if profile_noise is not None:
            self._change_profile(profile_noise)
        self._take_steps(rung.steps, step_noise)
        if len(noises) > 1:
            self._straighten(noises[1])
        return self._measure_score(noises[0])

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
        every = _CURVED_EVERY if plan.target is None else 1
        bent = -(-steps // every)
        both = draw(curved.sensitivity, size=curved.size, releases=bent)
        slopes = draw(curved.gradient.sensitivity, size=curved.gradient.size, releases=steps - bent)
        for number in range(steps):
            if number % every:
                total = self._sum_rows(SumGradients(curved, newton.weights, plan.weighted, curved=False))
                released = slopes.release(curved.seal_sum(total, curved=False))
                deviation = noise * float(curved.gradient.sensitivity.amount) / profile.rows
                slope = released.reshape(newton.weights.shape) / curved.gradient.unit
                step = NoisyStep(slope / profile.rows, deviation / curved.gradient.unit)
            else:
                total = self._sum_rows(SumGradients(curved, newton.weights, plan.weighted))
                slope, bend = curved.split(both.release(curved.seal_sum(total)))
                deviation = noise * float(curved.sensitivity.amount) / profile.rows
                step = NoisyStep(
                    slope / profile.rows,
                    deviation / curved.gradient.unit,
                    bend / profile.rows,
                    deviation / curved.unit,
                )
            newton.take_step(step)
        self.model = TableModel(profile, newton.weights.copy(), find_reach(plan.target, profile))

    def _straighten(self, noise: Fraction) -> None:
        """Move a regression's predictions along the line that its targets call for; the next steps begin without that."""
        assert self._newton is not None
        profile, usual = self.profile, float(np.clip(self._newton.find_usual_score(), *_USUAL_SCORES))
        cut = PredictionLine.fit_cut(noise, profile.rows, profile.target_spread, profile.target_middle)
        line = PredictionLine(usual, cut, self._plan.rows_per_unit)
        total = self._sum_rows(partial(_sum_line, line, self.model))
        shift, tilt = line.read(line.lattice.release(total, noise, self._bits), noise, profile.rows)
        self.model = self.model.straightened(shift, tilt)

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
            classifies = plan.classes is not None
            self._newton = NoisyNewton(
                plan.head.outputs,
                fit_grid(profile).columns,
                length=profile.length,
                prior=_PRIOR[classifies],
                hidden=_HIDDEN[classifies],
            )
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
            blocks=rows,
            head=plan.head,
            rows_per_unit=plan.rows_per_unit,
            weighted=plan.weighted,
            residual_variance=1.0 if plan.classes is not None else residual_variance_of(score.values, scale),
            unit_scale=scale,
        )

    def _measure_score(self, noise: Fraction) -> MeasuredScore:
        """Release how well the model predicts all rows."""
        score = self._plan.score_sum(self.profile)
        if isinstance(score, AucSum):
            total = self._sum_rows(partial(_sum_ranked, score, self.model))
        else:
            vectors = partial(score.vectors, spread=self.profile.target_spread)
            total = self._sum_outcomes(score.lattice, vectors)
        released = score.lattice.release(total, noise, self._bits)
        self.scored = self.model
        return score.read(released, noise, self.profile)

    def open_test(self, sums: ScoreSum) -> LaplaceTest:
        """Return a test of the model whose score was released last, with the limits of the sums; nothing is released yet."""
        self.scored = self.model = replace(self.model, limits=sums.limits)
        tested = self._rows
        if self._held_out is not None:
            tested = GridTable(self._held_out, self.profile, classes=self._plan.classes)
        total = self._sum_outcomes(sums.deciding, partial(_column_of, sums.terms), tested)
        return LaplaceTest(total, sums.deciding, sums.height, self._bits)

    def open_mean(self, center: float) -> LaplaceTest:
        """Return the sum of a numeric target's distances from a number; nothing is released yet."""
        lattice, farthest = LatticeSum(1, 1.0, self._plan.rows_per_unit), 1 + abs(center)
        total = self._sum_outcomes(lattice, partial(_distances, self.profile.target_middle - center, farthest))
        return LaplaceTest(total, lattice, farthest, self._bits)

    def _sum_rows(self, function: ChunkSum[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Sum a function of all rows, where they lie."""
        return sum_blocks(self._rows, function)

    def _sum_outcomes(
        self, lattice: LatticeSum, vectors: Callable[[Floats], Floats], rows: GridTable | None = None
    ) -> NDArray[np.int64]:
        """Sum vectors made of what the model makes of some rows, those of the training by default."""
        outcomes = _OutcomeSum(lattice, vectors, self.model, self._plan.classes)
        return sum_blocks(self._rows if rows is None else rows, outcomes)


@dataclass(frozen=True)
class _OutcomeSum:
    """Sums vectors made of what a model makes of each row."""

    lattice: LatticeSum
    vectors: Callable[[Floats], Floats]
    model: TableModel
    classes: int | None

    def __call__(self, blocks: Iterable[GridBlock]) -> NDArray[np.int64]:
        total = self.lattice.start()
        for rows, targets, weights in blocks:
            scores = grid_scores(rows.integers(), self.model.weights, self.model.grid)
            outcomes = row_outcomes(scores, targets, self.classes, self.model)
            self.lattice.add(total, self.vectors(outcomes), weights)
        return total


def _sum_ranked(score: AucSum, model: TableModel, blocks: Iterable[GridBlock]) -> NDArray[np.int64]:
    total = score.lattice.start()
    for rows, targets, weights in blocks:
        scores = grid_scores(rows.integers(), model.weights, model.grid)
        score.lattice.add(total, np.column_stack([scores[0], targets]), weights)
    return total


def _sum_line(line: PredictionLine, model: TableModel, blocks: Iterable[GridBlock]) -> NDArray[np.int64]:
    total = line.lattice.start()
    for rows, targets, weights in blocks:
        scores = grid_scores(rows.integers(), model.weights, model.grid)[0]
        line.lattice.add(total, line.vectors(scores, targets), weights)
    return total


def _column_of(terms: Callable[[Floats], Floats], outcomes: Floats) -> Floats:
    return terms(outcomes)[:, None]


def _distances(shift: float, farthest: float, outcomes: Floats) -> Floats:
    found: Floats = (outcomes[:, 1:] + shift) / farthest
    return found


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
        predicted = clip_predictions(scores[0], model.profile, model.reach, model.limits)
        truth = np.clip(targets * spread + middle, -1.0, 1.0)
        return np.column_stack([predicted - truth, truth - middle])
    predicted = (scores[0] > 0).astype(np.intp) if classes == 2 else scores.argmax(axis=0)
    known = targets >= 0
    chance = np.take_along_axis(compute_chances(scores), np.maximum(targets, 0)[None, :], axis=0)[0]
    loss = np.where(known, -np.log(chance), LARGEST_LOSS)
    return np.column_stack([(predicted == targets).astype(np.float64), np.clip(loss, 0.0, LARGEST_LOSS)])
