"""Linear models in training, by gradient steps or Newton steps, and the released model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Sealed, Sensitivity
from expost.data.row_source import RowSource
from expost.models.descent.clipped_gradient import ClippedGradient, CurvedGradient, Watcher, check_curved, grid_scores
from expost.models.descent.descent_rule import Descent, DescentRule, Stride
from expost.models.descent.feature_grid import FeatureGrid, Index
from expost.models.descent.score_head import Head, Squared, count_metrics, row_numbers
from expost.models.descent.stopping_test import MeasureScale, ScoreRule
from expost.models.descent.training_rows import GatheredRows, RowBlock, StreamedRows, TargetCode, TrainingRows
from expost.models.descent.training_schedule import Phase, Schedule
from expost.models.descent.training_watch import Watch, WatchTally

__all__ = [
    "GridReading",
    "LinearLearner",
    "LinearProblem",
    "LinearScores",
    "LinearTable",
    "NewtonLearner",
    "default_steps",
]

Floats = NDArray[np.float64]
Lattice = TypeVar("Lattice")

_CHUNK = 1 << 13  # rows scored at a time
_SPARE_BITS = 8  # of noise beyond 32 bits
_BEARABLE = 2.0  # how far the noise of one Newton step may move a score
# Deviations per root of the columns that hide an eigenvalue. Found by search: 0.5 and 2 were each worse somewhere.
_HIDDEN = 1.0
_NEWTON_STATE = ("curvature", "curvature precision")
# Of 10 to 100 Newton steps, 30 to 50 were the best or nearly so on most of 13 tables at four epsilons (docs/sgd.md). No
# rule in rows, columns, epsilon and delta was better than this constant by more than the noise of the measurement. A
# training that may stop at a score divides its steps among many phases, and there 100 were better.
_STEPS, _NEWTON_STEPS = 100, 40


@dataclass(frozen=True, eq=False)
class GridReading:
    """How a training read raw rows, and its weights for encoded rows. Everything is public or released.

    Rows are clipped to the public bounds, missing values filled and the rest rounded exactly as in the training. So an
    accuracy that was tested on rows is the accuracy of the predictions for them.

    >>> GridReading(FeatureGrid(1, intercept=False), np.array([[2.0]])).compute_scores(np.array([[0.5], [1e9]])).round(1).tolist()
    [[1.0], [2.0]]
    """

    grid: FeatureGrid
    weights: Floats

    def compute_scores(self, features: Any) -> Floats:
        scores = np.empty((features.shape[0], len(self.weights)))
        for start in range(0, len(scores), _CHUNK):
            rows = self.grid.encode_rows(features[start : start + _CHUNK]).integers()
            scores[start : start + _CHUNK] = grid_scores(rows, self.weights, self.grid).T
        return scores


@dataclass(frozen=True, eq=False)
class LinearScores:
    """A released linear model: one score, or one per class, for raw rows.

    The coefficients are valid for rows within the public bounds. ``scores`` reads rows as the training did, where
    ``reading`` is known.

    >>> LinearScores(np.array([[1.0, 2.0]]), np.array([0.5])).compute_scores(np.array([[1.0, 1.0]])).tolist()
    [[3.5]]
    """

    coefficients: Floats
    intercepts: Floats
    reading: GridReading | None = None

    def compute_scores(self, features: Any) -> Floats:
        """Return the scores of raw rows (rows x outputs)."""
        if self.reading is not None:
            return self.reading.compute_scores(features)
        return np.asarray(features @ self.coefficients.T + self.intercepts)

    def __repr__(self) -> str:
        return f"LinearScores({len(self.coefficients)} x {self.coefficients.shape[1]} coefficients)"


class LinearLearner:
    """A linear model with any head; gradients are exact integers. It implements ``trainer.Learner``."""

    def __init__(self, problem: LinearProblem, training: TrainingRows, validation: GatheredRows | None = None) -> None:
        self._grid, self._head, self._clip = problem.grid, problem.head, problem.clip
        self._training, self._validation = training, validation
        self._rows_per_unit = problem.rows_per_unit
        self._descent = Descent(problem.rule, np.zeros((self._head.outputs, self._grid.columns)))
        self._gradient: ClippedGradient | None = None
        self._scale, self._stride = 0.0, Stride(0.0)
        self._height, self._tally = 0, WatchTally(0, 0)
        self._measured: Index = slice(0)

    @property
    def size(self) -> int:
        return self._head.outputs * self._grid.columns

    @property
    def rows(self) -> int:
        # Rows that are streamed are all in every step, and nobody counts them.
        return len(self._training) if isinstance(self._training, GatheredRows) else 0

    @property
    def weights(self) -> int:
        """Return the number of weights of the model."""
        return self._descent.weights.size

    @property
    def stride(self) -> Stride:
        """Return the steps of the open phase, which follow from public numbers."""
        return self._stride

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase: choose the finest lattice and the longest steps that its noise allows."""
        multiplier, length = float(phase.noise_multiplier), math.sqrt(self._grid.longest) / self._grid.unit
        terms = (self._grid, self._head, self._clip, multiplier, expected_size, self._rows_per_unit)
        self._gradient = _with_spare_bits(lambda spare: ClippedGradient(*terms, spare_bits=spare))
        self._scale = 1 / (self._gradient.unit * expected_size)
        self._stride = self._descent.rule.find_stride(
            noise=multiplier * self._clip / expected_size,
            steps=phase.steps,
            row_length=length,
            curvature=self._head.curvature * length**2,
            bounded_slope=not isinstance(self._head, Squared),
        )
        return self._gradient.sensitivity

    def measure(self, index: Index) -> Sealed:
        assert self._gradient is not None
        self._measured = index
        return self._gradient.seal_sum(self._sum_gradients(self._gradient, index))

    def _sum_gradients(self, gradient: ClippedGradient | CurvedGradient, index: Index) -> NDArray[Any]:
        """Return the exact sum of gradients over some training rows. SECRET."""
        terms: dict[str, Any] = {"index": index, "watcher": self._make_watcher()}
        return self._training.sum(partial(gradient.sum_blocks, weights=self._descent.weights, **terms))

    @property
    def watchable(self) -> tuple[int, float | None]:
        return count_metrics(self._head) if self._rows_per_unit == 1 else (0, None)

    def start_watch(self, height: int) -> None:
        self._height = height

    def read_watch(self) -> Sealed:
        return self._tally.sealed()

    def read_average_watch(self) -> Sealed:
        assert isinstance(self._training, GatheredRows)  # rows that are streamed are not watched
        integers = self._training.rows.integers()[self._measured]
        told = self._training.targets[self._measured]
        tally = WatchTally(self._height, self.watchable[0])
        for start in range(0, len(told), _CHUNK):
            part = slice(start, start + _CHUNK)
            scores = grid_scores(integers[part], self._descent.result, self._grid)
            tally.add(row_numbers(self._head, scores, told[part]))
        return tally.sealed()

    def _make_watcher(self) -> Watcher | None:
        """Start a new tally, if metrics are counted."""
        if not self._height:
            return None
        tally = self._tally = WatchTally(self._height, self.watchable[0])
        return lambda scores, targets: tally.add(row_numbers(self._head, scores, targets))

    def take_step(self, noisy: NDArray[Any]) -> None:
        gradient = noisy.reshape(self._descent.weights.shape).astype(np.float64)
        gradient *= self._scale
        self._descent.apply_gradient(gradient, self._stride)

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        assert self._validation is not None and self._rows_per_unit == 1
        total = self._validation.sum(_ScoreSum(rule, self._head, self._grid, self._descent.result))
        return Sealed(int(total[0]) - margin, rule.sensitivity)

    def measured_score(self, rule: ScoreRule, scale: MeasureScale) -> Sealed:
        """Return the score of all training rows, their number and sums of targets, each in its lattice units, sealed."""
        sums = _ScoreSum(rule, self._head, self._grid, self._descent.result, scale.score, scale.count)
        return Sealed(self._training.sum(sums), scale.sensitivity)

    def public_score(self, rule: ScoreRule, rows: tuple[Any, NDArray[Any]]) -> int:
        features, targets = rows
        return rule.total(self._head, self.build_result().compute_scores(features).T, targets)

    def copy_state(self) -> dict[str, NDArray[Any]]:
        return self._descent.copy_state()

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._descent.restore_state(state)

    def build_result(self) -> LinearScores:
        weights = np.array(self._descent.result)
        return LinearScores(*self._grid.raw_weights(weights), GridReading(self._grid, weights))


@dataclass(frozen=True)
class _ScoreSum:
    """Sums the score of a model over rows in parts of ``unit``, then the rows in parts of ``count``, then their targets."""

    rule: ScoreRule
    head: Head
    grid: FeatureGrid
    weights: Floats
    unit: int = 1
    count: int = 1

    def __call__(self, blocks: Iterable[RowBlock]) -> NDArray[np.int64]:
        total, rule = [0, 0, *self.rule.sum_sides(np.zeros(0))], self.rule
        for rows, targets, shares in blocks:
            found = 0
            for start in range(0, len(rows), _CHUNK):
                part = slice(start, min(start + _CHUNK, len(rows)))
                scores = grid_scores(rows.integers()[part], self.weights, self.grid)
                if shares is None:
                    found += self.unit * rule.total(self.head, scores, targets[part])
                else:
                    found += rule.total_of_shares(self.head, scores, targets[part], self.unit * shares[part])
            counted = self.count * len(rows) if shares is None else int(np.floor(self.count * shares).sum())
            total = [old + new for old, new in zip(total, [found, counted, *rule.sum_sides(targets)], strict=True)]
        return np.array(total, np.int64)


class NewtonLearner(LinearLearner):
    """Measures gradients and curvatures in one vector and steps by the quotient of what was released.

    Everything after the release is post-processing: curvatures are averaged over all steps so far, weighted by their
    precision; eigenvalues that the public noise hides are raised to its level.

    Guarantee: each measured vector, released by a Gaussian stream, is one Gaussian event of the schedule's noise
        multiplier; the training costs what gradient descent with this schedule costs.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of gradient and curvature together: the root of the sum of their squares, rounded up.
    Accuracy: none is promised of a step; a score is tested on rows held out, as for gradient descent.
    Numerics: integer sums are exact; steps are floats computed from released numbers.
    Reference: docs/proofs/sgd-gradient.md (curvature); ACG16, Algorithm 1.
    """

    def __init__(self, problem: LinearProblem, training: TrainingRows, validation: GatheredRows | None = None) -> None:
        grid, rule = problem.grid, problem.rule
        walk = replace(rule, momentum=0.0, regularization=0.0, weighing=False)  # the penalty is in the quotient
        super().__init__(replace(problem, rule=walk), training, validation)
        self._curved_head, self._regularization = check_curved(problem.head, grid.columns), rule.regularization
        self._damping = Stride(1.0 if rule.learning_rate is None else rule.learning_rate)
        self._curved: CurvedGradient | None = None
        self._curvature, self._precision = np.zeros((grid.columns, grid.columns)), 0.0
        self._expected_size, self._deviation = 0.0, 0.0

    @property
    def size(self) -> int:
        columns = self._grid.columns
        return self._head.outputs * columns + columns * (columns + 1) // 2

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase: choose the finest lattice that its noise allows."""
        multiplier = float(phase.noise_multiplier)
        terms, most = (self._grid, self._curved_head, self._clip, multiplier), self._rows_per_unit
        self._curved = _with_spare_bits(lambda spare: CurvedGradient(*terms, rows_per_unit=most, spare_bits=spare))
        self._expected_size = expected_size
        self._deviation = multiplier * float(self._curved.sensitivity.amount)
        return self._curved.sensitivity

    def measure(self, index: Index) -> Sealed:
        assert self._curved is not None
        return self._curved.seal_sum(self._sum_gradients(self._curved, index))

    def take_step(self, noisy: NDArray[Any]) -> None:
        """Take one damped Newton step from the released sums over their expected number of rows."""
        assert self._curved is not None
        slope, bend = self._curved.split(noisy)
        precision = (self._curved.unit * self._expected_size / self._deviation) ** 2
        self._precision += precision
        self._curvature += (bend / self._expected_size - self._curvature) * (precision / self._precision)
        slope = slope / self._expected_size + self._regularization * self._descent.weights
        columns, length = self._grid.columns, math.sqrt(self._grid.longest) / self._grid.unit
        # The eigenvalues of a symmetric noise matrix lie within about 2 sqrt(columns) deviations, most within half of
        # that (semicircle law): smaller ones of the noisy curvature are not told from zero. The second bound keeps the
        # noise of this step from moving a score too far. Both are public numbers.
        hidden = _HIDDEN * math.sqrt(columns / self._precision)
        shaken = self._deviation / (self._curved.gradient.unit * self._expected_size) * length / _BEARABLE
        values, vectors = np.linalg.eigh(self._curvature)
        steepness = np.maximum(np.maximum(values, 0.0) + self._regularization, max(hidden, shaken))
        quotient: Floats = ((slope @ vectors) / steepness) @ vectors.T
        self._descent.apply_gradient(quotient, self._damping)

    def copy_state(self) -> dict[str, NDArray[Any]]:
        return super().copy_state() | dict(
            zip(_NEWTON_STATE, (self._curvature, np.array([self._precision])), strict=True)
        )

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        if any(name not in state for name in _NEWTON_STATE) or state[_NEWTON_STATE[0]].shape != self._curvature.shape:
            raise InvalidRequest("Expected a checkpoint of this model", do="Start again without the checkpoint")
        super().restore_state(state)
        self._curvature = np.array(state[_NEWTON_STATE[0]])
        self._precision = float(state[_NEWTON_STATE[1]][0])


def _with_spare_bits(make: Callable[[int], Lattice]) -> Lattice:
    """Return a lattice whose noise fits 32 bits or, where it is too large for that, one of 40 bits, which is slower.

    The wider one is exact as well (docs/proofs/tabular-models.md, Lemma 2). The first levels of a training to a score have
    noise that large if it has many columns or classes.
    """
    try:
        return make(0)
    except InvalidRequest:
        return make(_SPARE_BITS)


_SOLVERS: dict[str, type[LinearLearner]] = {"gradient": LinearLearner, "newton": NewtonLearner}


@dataclass(frozen=True)
class LinearProblem:
    """The public side of a linear model: how rows become integers, the head, how it descends."""

    # Checkpoints identify a training by the text of this class, so its fields keep their names.
    grid: FeatureGrid
    head: Head
    clip: float
    rule: DescentRule
    solver: str = "gradient"
    rows_per_unit: int = field(default=1, repr=False)
    """The most rows of a person, which share one weight; trainings of persons have no checkpoints."""

    def __post_init__(self) -> None:
        _check_solver(self.solver)
        if self.solver == "newton":
            check_curved(self.head, self.grid.columns)

    def check(self, schedule: Schedule) -> None:
        """Raise ``InvalidRequest`` for noise, clip or penalty that the lattice or the steps cannot follow; reads no rows."""
        empty = self.table(np.zeros((0, self.grid.width)), np.zeros(0, np.intp)).learner(slice(None), None)
        for phase in schedule.phases:
            try:  # always as if watched, so that watching does not decide what is refused
                wider = replace(phase, noise_multiplier=phase.noise_multiplier * Watch().factor(empty.watchable[0]))
                empty.open(wider, float(schedule.batches.expected_size))
            except InvalidRequest:
                raise InvalidRequest(
                    "Expected a noise multiplier that the lattice can represent",
                    got=float(phase.noise_multiplier),
                    do="Raise epsilon or clip, or take fewer steps",
                ) from None
            # Heavy-ball descent on the penalty alone diverges beyond this (Pol64); the weights would overflow.
            if empty.stride.rate * self.rule.regularization >= 2 * (1 + self.rule.momentum):
                raise InvalidRequest(
                    "Expected a regularization at which the steps converge",
                    got=self.rule.regularization,
                    do="Lower it, or pass a smaller learning_rate",
                )

    def table(self, features: Any, targets: NDArray[Any], shares: Floats | None = None) -> LinearTable:
        """Return encoded rows; ``shares`` are the weights of persons' rows, which add up to at most 1 for a person."""
        return LinearTable(self, GatheredRows(self.grid.encode_rows(features), targets, shares))

    def read_table(self, source: RowSource, code: TargetCode, secret: bytes, *, streamed: bool) -> LinearTable:
        """Return the encoded rows of a source: kept here, or ``streamed`` in every step of full batches."""
        read = StreamedRows if streamed else GatheredRows.read
        return LinearTable(self, read(source, self.grid, code, secret))


@dataclass(frozen=True)
class LinearTable:
    """Encoded rows with their targets. It implements ``trainer.TrainingTable``."""

    problem: LinearProblem
    training: TrainingRows = field(repr=False)

    @property
    def kept(self) -> GatheredRows:
        """The rows in the memory of this process."""
        assert isinstance(self.training, GatheredRows)  # parts of rows are taken only where they are kept
        return self.training

    def __len__(self) -> int:
        return len(self.kept)

    def learner(self, training: Index, validation: NDArray[np.intp] | None) -> LinearLearner:
        make = _SOLVERS[self.problem.solver]
        if validation is None and isinstance(training, slice):
            return make(self.problem, self.training)
        held_out = None if validation is None else self.kept.take_rows(validation)
        return make(self.problem, self.kept.take_rows(training), held_out)

    def yield_contents(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        yield self.kept.rows.integers(), self.kept.targets


def default_steps(solver: str, *, phases: bool = False) -> int:
    """Return the default number of steps of a solver; ``phases`` if the training may stop in between.

    >>> default_steps("gradient"), default_steps("newton"), default_steps("newton", phases=True)
    (100, 40, 100)
    """
    _check_solver(solver)
    return _NEWTON_STEPS if solver == "newton" and not phases else _STEPS


def _check_solver(solver: object) -> None:
    if not isinstance(solver, str) or solver not in _SOLVERS:
        raise InvalidRequest("Expected solver to be gradient or newton", got=solver, do="Name one of them")
