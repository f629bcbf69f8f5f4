"""The base of the estimators trained by private gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from expost.core import (
    Adjacency,
    InvalidRequest,
    Measure,
    Query,
    Release,
    Target,
    TargetNotMet,
    Unit,
    explain_arguments,
    share_parameters,
)
from expost.core.rational import rational
from expost.data import Dataset
from expost.data.canonical_cell import Kind
from expost.data.person_rows import read_added_rows
from expost.data.row_source import RowSource, column_names, read_rows
from expost.models.declared_bounds import check_declared, read_described_bounds, read_described_classes
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearProblem, LinearScores, LinearTable, default_steps
from expost.models.descent.score_head import Head, Squared
from expost.models.descent.stopping_price import PriceList
from expost.models.descent.stopping_test import PublicTest, ScoreRule
from expost.models.descent.training_checkpoint import hash_settings
from expost.models.descent.training_order import TrainingCourse, TrainingOrder
from expost.models.descent.training_query import TrainingPlan, run_training
from expost.models.descent.training_rows import TargetCode
from expost.models.descent.training_watch import RichProgress, Watch
from expost.models.estimator import (
    FITTED_ROWS,
    OBSERVED,
    PrivateEstimator,
    check_flag,
    fill_missing,
    limit_threads,
    pay_for_query,
    read_column_bounds,
    read_feature_names,
    remember_columns,
)
from expost.noise.bits import system_bits

__all__ = ["GivenRows", "PrivateGradientModel"]

_KEPT_BYTES = 1 << 28  # of encoded rows; more are read again in every step, if all rows are in it
_BYTES = np.dtype(np.int16).itemsize
_CLIP = 0.3  # default clip, as a share of feature_bound
_ORDERED = (  # terms of an order that have the names of arguments
    *("delta", "epsilon", "noise_multiplier", "max_epsilon", "failure_probability"),
    *("batches", "batch_size", "phases", "validation_share", "accountant"),
)
_STORED = {Kind.TEXT: pa.large_string(), Kind.TIME: pa.timestamp("us"), Kind.OTHER: pa.null()}  # others are numbers


@dataclass(frozen=True)
class GivenRows:
    """What a model is fitted to: where the rows are, and the public facts about them.

    ``gathered`` makes features and targets of ``data`` in memory; it is called once the ledger is charged. Rows of a
    dataset are encoded as they are read, and ``code`` makes numbers of their targets.
    """

    data: Any
    gathered: Callable[[Any], tuple[Any, ...]]
    width: int
    names: tuple[str, ...] | None = None
    rows: int | None = None
    bounds: Any = None
    target_bounds: Any = None
    """Bounds that a dataset was described with, of features and target."""
    unit: Unit = Unit()
    rows_per_unit: int = 1
    code: TargetCode | None = None

    @property
    def far(self) -> bool:
        """Return whether the rows lie on other machines, where each step is taken."""
        return isinstance(self.data, RowSource) and self.data.distributed

    def make_table(self, problem: LinearProblem, *, streamed: bool) -> LinearTable:
        """Return the rows as integers: in memory, or ``streamed`` from their source in every step."""
        if self.code is None:
            return problem.table(*self.gathered(self.data))
        # Which rows a person keeps is drawn afresh.
        return problem.read_table(self.data, self.code, system_bits().words(4).tobytes(), streamed=streamed)

    def __repr__(self) -> str:
        return f"<private rows of {self.width} features>"


class PrivateGradientModel(PrivateEstimator):
    """Base of ``SGDClassifier`` and ``SGDRegressor``. Parameters and attributes that they share are described here.

    Parameters
    ----------
    score : (str, number), optional
        The accuracy to reach: ``("accuracy", 0.95)`` of a classifier, ``("r2", 0.8)`` or ``("rmse", 0.1)`` of a regression.
        Training stops as soon as a private test passes, at a bill of at most ``max_epsilon``. The test is on all rows of the
        table, or on rows held out if ``validation_share``, ``phases``, ``noise_multiplier`` or sampled batches are given,
        which an r2 does not allow. Give exactly one of ``score``, ``epsilon`` and ``noise_multiplier``, or ``score`` with
        ``noise_multiplier``.
    epsilon : float, optional
        Train at this privacy level; the noise is calibrated to it.
    noise_multiplier : float, optional
        Train with this noise, in units of the clip; ``price()`` returns the epsilon.
    delta : float, default 1e-6
        The delta of the guarantee, from 1e-18 to 0.1. Choose it far below 1 / rows.
    rows : int or "observed"
        About how many rows there are, or persons if the unit of a ``Dataset`` is an id, as public knowledge. A wrong number costs accuracy, never privacy.
        ``"observed"`` declares the number of rows public and counts them.
    feature_bound : float, optional
        Rows are shortened to this Euclidean length. Default: the root of the number of columns with ``bounds``. Without
        bounds it must be given, such as 1.0 for rows that are scaled already.
    bounds : (low, high), sequence of pairs or mapping of str to pair, optional
        Public bounds of the columns: one pair for all of them, one per column, or by name. Columns are clipped to them and scaled to [-1, 1].
        Default: those of the ``Dataset``, unless ``feature_bound`` is given.
    fit_intercept : bool, default True
        Whether to fit an intercept.
    regularization : float, default 0.0
        Weight of the l2 penalty, half of it times the squared weights.
    batches : {"auto", "poisson", "disjoint", "full"}, default "auto"
        How the rows of a step are drawn. ``"auto"`` takes all rows where a step is fast enough, else Poisson batches.
    batch_size : int, optional
        Expected number of rows of a batch. Default: a sixteenth of the rows.
    steps : int, optional
        Number of steps. Default: 100, or 40 Newton steps if no score is asked. Where a score is tested on all
        rows, each phase takes a 25th of them.
    phases : int, optional
        Number of possible stops on the way to a score. Default: from the first useful price and the cap.
    solver : {"gradient", "newton"}, default "gradient"
        ``"newton"`` releases curvatures with the gradients, at the same price, and takes Newton steps.
        At most 511 columns.
    validation_share : float, optional
        Share of the rows held out to test the score. Default: none, the score is tested on all rows; where batches are
        sampled, noise is given or phases are, chosen from public numbers, 0.02 to 0.2.
    clip : float, optional
        The largest Euclidean norm of a row's gradient. Default: 0.3 times ``feature_bound``.
    learning_rate : float, optional
        The step size. Default: the largest that noise and curvature allow; 1 for Newton steps, which it damps.
    momentum : float, default 0.9
        Heavy-ball momentum in [0, 1). Newton steps do not use it.
    averaging : float, default 8.0
        Power by which late iterates weigh more in the released average; 0 releases the last iterate.
    accountant : {"auto", "pld", "rdp"}, default "auto"
        How steps are priced: by loss distributions or Renyi divergences. ``"auto"`` takes the best available.
    checkpoint : str, optional
        A file from which an interrupted training continues under its first charge.
    progress : bool, default False
        Show the progress, the epsilon charged so far and private metrics of the training rows.

    Attributes
    ----------
    prices_ : PriceList or None
        The bill of stopping after each phase.
    """

    _measures: tuple[Measure, ...]
    """What a score may name."""

    # Set by the constructors of the subclasses.
    rows: Any
    epsilon: Any
    noise_multiplier: Any
    max_epsilon: Any
    delta: Any
    failure_probability: Any
    feature_bound: Any
    bounds: Any
    fit_intercept: bool
    regularization: float
    batches: str
    batch_size: Any
    steps: int | None
    phases: int | None
    solver: str
    validation_share: Any
    clip: Any
    learning_rate: Any
    momentum: float
    averaging: float
    accountant: str
    checkpoint: Any
    progress: bool

    # Fitting ------------------------------------------------------------------------------------------------------

    @share_parameters(FITTED_ROWS)
    @explain_arguments
    def fit(self, X: Any, y: Any = None, *, public_validation: Any = None) -> Self:
        """Train the model and charge the ledger.

        Ctrl-C stops the training. The model so far is paid for and kept, also where ``TargetNotMet`` reports that the
        score was not reached by then.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        TargetNotMet
            The score was not reached under ``max_epsilon``. The exception carries the last private model.
        EngineFailed
            The data source failed; the worst case stays charged.
        """
        account = self._account_of(X)
        given = self._read_given(X, y)
        pay = partial(pay_for_query, **self._payment_terms(account))
        return self._fit_given(given, pay, public_validation)

    @share_parameters(FITTED_ROWS)
    def fit_with(
        self,
        pay: Callable[[Query, RowSource], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str],
        target: str,
        public_validation: Any = None,
    ) -> Self:
        """Train on columns of a dataset and let the caller pay. Call ``Session.fit`` instead."""
        self._check_unpaid()
        return self._fit_given(self._read_given(dataset, target, read_feature_names(features)), pay, public_validation)

    def _check_unpaid(self) -> None:
        """Refuse a ledger of the model's own where a session pays."""
        if self.checkpoint is not None or self.ledger is not None:
            raise InvalidRequest("Expected no ledger or checkpoint together with a session", do="Leave them out")

    def _fit_given(self, given: GivenRows, pay: Callable[[Query, Any], Release[Any]], public: Any) -> Self:
        """Build the query, let it be paid for, and keep what was released."""
        order = replace(self._build_order(given.width, given.rows), public_test=public is not None)
        if not given.unit.is_row:
            order = self._check_persons(order)
        if given.far:
            order = self._check_far(order)
        course = order.plan_course()
        problem = self._build_problem(given, ladder=len(course.schedule.phases) > 1)
        problem.check(course.schedule)
        rule = None if course.target is None else self._build_rule(course.target, measured=course.measured)
        if rule is not None:
            rule = replace(rule, rows_per_unit=given.rows_per_unit)
        watched = bool(self.progress) and given.unit.is_row and not given.far
        many = order.rows * problem.grid.columns * _BYTES > _KEPT_BYTES
        streamed = given.far or (many and course.uses_all_rows and not watched)
        query = TrainingPlan.along(
            course,
            question=f"train {type(self).__name__}",
            table=lambda _: given.make_table(problem, streamed=streamed),
            unit=given.unit,
            rule=rule,
            public=None if public is None or rule is None else self._public_test(public, rule),
            terms={
                "loss": problem.head.name,
                "solver": problem.solver,
                "feature bound": problem.grid.bound,
                "clip": problem.clip,
                "learning rate": problem.rule.learning_rate,
                "momentum": problem.rule.momentum,
                "averaging": problem.rule.averaging,
                "regularization": problem.rule.regularization,
                **({} if given.unit.is_row else {"rows per unit, at most": given.rows_per_unit}),
                # A checkpoint is continued only if everything that a step depends on, besides rows and noise, is equal.
                "settings": hash_settings({"problem": repr(problem), "labels": self._describe_labels()}),
            },
            progress=RichProgress if check_flag(self.progress, "progress") else None,
            watch=Watch(scale=self._score_unit()) if watched else None,
        )
        try:
            with limit_threads():
                release = pay(query, given.data)
        except TargetNotMet as missed:
            if "stopped" in missed.receipt.terms:  # the person who stopped it wants the model so far
                self._keep_release(missed.release, course)
            raise
        self._keep_release(release, course)
        return self

    def _check_persons(self, order: TrainingOrder) -> TrainingOrder:
        """Return the order of a training of persons, in which all rows are in every step; refuse what needs parts of them."""
        wrong = {
            "a checkpoint": self.checkpoint is not None,
            'a score of "r2"': isinstance(order.score, tuple | list) and order.score[:1] in (("r2",), ["r2"]),
        }
        why, do = "persons with several rows are in every step together", "use expost.Classifier or expost.Regressor"
        return _take_all_rows(order, wrong, why=why, do=do)

    def _check_far(self, order: TrainingOrder) -> TrainingOrder:
        """Return the order of a training where the rows lie: a step is one pass over all of them."""
        why, do = "a step is a pass over all rows, where they lie", "read the columns into memory first"
        return _take_all_rows(order, {}, why=why, do=do)

    def _read_given(self, X: Any, y: Any, features: tuple[str, ...] | None = None) -> GivenRows:
        """Collect the rows and what is public about them. Shapes are checked, values are not: they are private."""
        if isinstance(X, Dataset):
            return self._given_dataset(X, y, features)
        self._described_targets, self._described_classes, self._unit = None, None, Unit()
        matrix, targets = self._read_matrix(X), self._encode_targets(self._read_vector(y))
        if len(targets) != matrix.shape[0]:
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        return GivenRows(
            (matrix, targets), lambda data: data, matrix.shape[1], names=column_names(X), rows=matrix.shape[0]
        )

    def _given_dataset(self, dataset: Dataset, target: Any, features: tuple[str, ...] | None) -> GivenRows:
        """Describe the rows of a dataset; none is read before the ledger is charged."""
        if self._labels_are_public:
            raise InvalidRequest(
                "Expected a list of classes for a Dataset: its labels are read only after the charge",
                got=OBSERVED,
                do="Pass classes=[...], the public ones",
            )
        declared = self._build_order(1, None).rows
        read = read_rows if dataset.unit.is_row else read_added_rows
        source = read(dataset, target, names=features, declared_rows=declared)
        self._unit, self._described_classes = dataset.unit, read_described_classes(dataset, target)
        remember_columns(self, source.names, source.width)
        needed = self.bounds is None and self.feature_bound is None
        bounds, self._described_targets = read_described_bounds(dataset, source.names or (), target, needed=needed)
        # An empty column of the declared kind: classes are fixed from public facts, before any row is read.
        no_targets = self._encode_targets(pa.nulls(0, _STORED.get(dataset.schema.kind(target), pa.float64())))
        classes = self._public_classes()
        if classes is not None:
            source = read(dataset, target, names=features, declared_rows=declared, classes=classes)

        def gather(rows: RowSource) -> tuple[Any, ...]:
            # All rows at once, where several models read them.
            parts = list(rows.read())
            matrix = np.concatenate([np.zeros((0, rows.width)), *(np.asarray(part[0], np.float64) for part in parts)])
            labels = np.concatenate([part[1] for part in parts]) if parts else no_targets
            return matrix, code(labels)

        code = self._target_code()
        described: dict[str, Any] = {"bounds": bounds, "target_bounds": self._described_targets, "code": code}
        described |= {"unit": source.unit, "rows_per_unit": source.rows_per_unit}
        return GivenRows(source, gather, source.width, names=source.names, **described)

    def _public_test(self, public: Any, rule: ScoreRule) -> PublicTest:
        """Return the test on public rows, read as the private ones are."""
        if not isinstance(public, tuple | list) or len(public) != 2:
            raise InvalidRequest("Expected public_validation to be a pair", do="Pass (features, targets)")
        matrix = self._read_matrix(public[0], fitting=False)
        targets = self._public_targets(self._read_vector(public[1]))
        if len(targets) != matrix.shape[0]:
            raise InvalidRequest("Expected one public target for each public row", do="Pass a vector as long")
        return PublicTest(rule, (matrix, targets), len(targets))

    def price(self, width: int = 1) -> PriceList:
        """Return what training can cost, phase by phase, before any data is seen. Needs a public ``rows``.

        Parameters
        ----------
        width : int, default 1
            The number of features. It matters to ``batches="auto"`` only.
        """
        if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
            raise InvalidRequest("Expected width to be a whole number >= 1", got=width, do="Pass a public number")
        return self._build_order(int(width), None).plan_course().prices

    def _build_rule(self, target: Target, *, measured: bool = False) -> ScoreRule:
        """Return how the target is counted on rows, ``measured`` if on all of them."""
        if target.measure not in self._measures:
            names = [measure.value for measure in self._measures]
            raise InvalidRequest(
                f"Expected a score of {' or '.join(names)} for {type(self).__name__}",
                got=target.measure.value,
                do=f'Pass score=("{names[0]}", ...)',
            )
        return ScoreRule.of(target, scale=self._score_unit(), measured=measured)

    @property
    def _bill_adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    @property
    def _bill_unit(self) -> Unit:
        return self._unit

    def _answer_query(self, query: Any, data: Any, **terms: Any) -> Release[Any]:
        return run_training(query, data, checkpoint=self.checkpoint, **terms)

    # Reading the arguments ----------------------------------------------------------------------------------------

    def _build_order(self, width: int, found_rows: int | None) -> TrainingOrder:
        """Return the public terms of the training."""
        rows, score = self.rows, self.__dict__["score"]
        if isinstance(rows, str) and rows == OBSERVED:
            if found_rows is None:
                raise InvalidRequest(
                    "Expected rows to be a number: price() and a Dataset have no table to count",
                    got=OBSERVED,
                    do="Pass rows=50_000, about how many there are",
                )
            # The caller declares the number of rows public; only then may it be read from the data.
            rows = found_rows
        if rows is None:
            raise InvalidRequest(
                "Expected rows, about how many rows there are, as public knowledge",
                do='Pass rows=50_000; or rows="observed" if the number of rows is public',
            )
        steps = default_steps(self.solver, phases=score is not None) if self.steps is None else self.steps
        same = {name: getattr(self, name) for name in _ORDERED}
        return TrainingOrder(rows=rows, score=score, steps=steps, width=width, **same)

    def _column_bounds(self, given: GivenRows) -> Any:
        """Return the bounds of the columns: the caller's, or those of a described dataset."""
        own = self.bounds is not None or self.feature_bound is not None
        return self.bounds if own else given.bounds

    def _check_declared(self, given: GivenRows) -> None:
        """Refuse bounds that nobody declared, from public facts."""
        check_declared(
            features=self.feature_bound is not None or self._column_bounds(given) is not None,
            targets=self._targets_are_declared,
            width=given.width,
            names=given.names,
            length="Euclidean norm",
            described=isinstance(given.data, RowSource),
        )

    @property
    def _targets_are_declared(self) -> bool:
        """Return whether targets need no bounds, or have some."""
        return True

    def _build_problem(self, given: GivenRows, *, ladder: bool) -> LinearProblem:
        """Return the public side of the model; ``ladder`` if the noise of its phases falls."""
        self._described_targets = given.target_bounds  # where several models share the rows, one of them read them
        self._check_declared(given)
        lows, highs = read_column_bounds(self._column_bounds(given), given.width, given.names)
        most = given.rows_per_unit
        bound = math.sqrt(given.width) if lows is not None else 1.0
        if self.feature_bound is not None:
            bound = float(rational(self.feature_bound, "feature_bound"))
        grid = FeatureGrid(given.width, bound, check_flag(self.fit_intercept, "fit_intercept"), lows, highs)
        clip = _CLIP * bound if self.clip is None else float(rational(self.clip, "clip"))
        head = self._build_head()
        rate = None if self.learning_rate is None else float(rational(self.learning_rate, "learning_rate"))
        momentum, penalty, averaging = (
            float(rational(getattr(self, name), name, positive=False))
            for name in ("momentum", "regularization", "averaging")
        )
        if self.solver == "newton":  # a quotient needs neither momentum nor weights
            return LinearProblem(grid, head, clip, DescentRule(rate, 0.0, penalty, averaging), self.solver, most)
        # Squared errors have unbounded slopes: sums of gradients that are weighted too high would diverge.
        weighing = ladder and not isinstance(head, Squared)
        rule = DescentRule(rate, momentum, penalty, averaging, weighing)
        return LinearProblem(grid, head, clip, rule, self.solver, most)

    # What the subclasses define -----------------------------------------------------------------------------------

    def _build_head(self) -> Head:
        raise NotImplementedError

    def _describe_labels(self) -> Any:
        """Return how targets become numbers, in public terms."""
        raise NotImplementedError

    def _encode_targets(self, y: Any) -> NDArray[Any]:
        """Convert targets to numbers."""
        raise NotImplementedError

    def _target_code(self) -> TargetCode:
        """Return how targets of a dataset, or their places among the classes, become numbers where the rows lie."""
        return np.asarray

    def _public_targets(self, y: Any) -> NDArray[Any]:
        """Convert public targets to numbers; unlike private ones they may be refused by value."""
        return self._encode_targets(y)

    def _public_classes(self) -> NDArray[Any] | None:
        """Return the classes among which targets are coded; None where targets are numbers."""
        return None

    def _score_unit(self) -> float:
        """Return what a score of 1 is in the target's own units."""
        return 1.0

    # What was released --------------------------------------------------------------------------------------------

    coef_: NDArray[np.float64]
    intercept_: Any
    _described_targets: Any = None
    _described_classes: list[Any] | None = None
    _unit = Unit()
    _missing: Any = 0.0  # replaces missing values in a file of an earlier version

    def _keep_release(self, release: Release[LinearScores], course: TrainingCourse | None) -> None:
        """Keep a release as the fitted model."""
        self.release_, self.prices_ = release, None if course is None else course.prices
        self.coef_, self.intercept_ = release.value.coefficients, release.value.intercepts

    def _score_rows(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of rows read as in training: clipped to the bounds, missing values filled, on the grid."""
        check_is_fitted(self, "release_")
        matrix, model = self._read_matrix(X, fitting=False), self.release_.value
        if model.reading is None:  # from a file of an earlier version
            matrix = fill_missing(matrix, self._missing)
        scores: NDArray[np.float64] = model.compute_scores(matrix)
        return scores


def _take_all_rows(order: TrainingOrder, wrong: dict[str, bool], *, why: str, do: str) -> TrainingOrder:
    """Return an order of full batches without rows held out; refuse one that asks for parts of the rows."""
    held_out = order.score is not None and not (order.public_test or replace(order, batches="full").measures_all_rows)
    asked = {
        f"batches={order.batches!r}": order.batches not in ("auto", "full"),
        "batch_size": order.batch_size is not None,
        "rows held out for the score (validation_share, phases, noise_multiplier)": held_out,
    }
    for what, found in (asked | wrong).items():
        if found:
            raise InvalidRequest(f"Expected a training without {what}: {why}", do=f"Leave it out, or {do}")
    return replace(order, batches="full")
