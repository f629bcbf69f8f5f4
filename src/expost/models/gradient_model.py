"""What the estimators trained by private gradient descent share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from expost.answer import answer
from expost.core import Adjacency, InvalidRequest, Measure, Release, Request, Target, TargetNotMet
from expost.core.rational import rational
from expost.data import Dataset
from expost.data.matrix import RowSource, column_names, read_rows
from expost.data.schema import Kind
from expost.models.column_bounds import column_bounds
from expost.models.columns import remember_columns
from expost.models.descent.checkpoint import Checkpoint
from expost.models.descent.descent import DescentRule
from expost.models.descent.features import FeatureGrid
from expost.models.descent.fingerprint import fingerprint
from expost.models.descent.head import Head, Squared
from expost.models.descent.learner import LinearScores
from expost.models.descent.order import Order, Plan
from expost.models.descent.prices import PriceList
from expost.models.descent.progress import RichProgress
from expost.models.descent.request import TrainingRequest
from expost.models.descent.resumable import train_resumably
from expost.models.descent.stop_test import PublicTest
from expost.models.descent.table import LinearProblem, LinearTable, default_steps
from expost.models.descent.validation import ScoreRule
from expost.models.descent.watch import Watch
from expost.models.observed import OBSERVED
from expost.models.private_estimator import PrivateEstimator, chosen_columns, filled, one_thread

__all__ = ["GivenRows", "PrivateGradientModel"]

_CLIP = 0.3  # of feature_bound
_STORED = {Kind.TEXT: pa.large_string(), Kind.TIME: pa.timestamp("us"), Kind.OTHER: pa.null()}  # others are numbers


@dataclass(frozen=True)
class GivenRows:
    """What a caller wants a model fitted to: where the rows are, and the public facts about them.

    ``gathered`` makes features and targets of ``data``; it is called once the ledger is charged.
    """

    data: Any
    gathered: Callable[[Any], tuple[Any, NDArray[Any]]]
    width: int
    names: tuple[str, ...] | None = None
    rows: int | None = None

    def table(self, problem: LinearProblem) -> Callable[[Any], LinearTable]:
        """What a request reads the rows with."""
        return lambda data: problem.table(*self.gathered(data))

    def __repr__(self) -> str:
        return f"<private rows of {self.width} features>"


class PrivateGradientModel(PrivateEstimator):
    """Base of the two estimators that are trained step by step."""

    _measure: Measure

    # What the subclasses' constructors set.
    rows: Any
    target: Any
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

    def fit(self, X: Any, y: Any = None, *, public_validation: Any = None, **unsupported: Any) -> Self:
        """Train, and bill the ledger; raises ``TargetNotMet`` with the last private model if the target is missed.

        ``X`` is a table with ``y`` beside it, or a ``Dataset`` whose neighbours add or remove a row, with ``y`` the name of
        its target column. Ctrl-C stops the training; the model so far is paid for and kept, also where ``TargetNotMet``
        says that a target was not reached by then. ``public_validation`` is a pair of features and targets that are
        nobody's secret: the target is then tested on them, exactly and for free, and no private row is held out.
        """
        self._refuse(unsupported)
        account = self._account_of(X)
        given = self._given(X, y)
        return self._fitted(given, lambda request, data: self._pay(request, data, account), public_validation)

    def fit_with(
        self,
        pay: Callable[[Request, RowSource], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str],
        target: str,
        public_validation: Any = None,
    ) -> Self:
        """Fit to columns of a dataset and let the caller pay; ``Session.fit`` is the friendly way in."""
        self._check_unpaid()
        return self._fitted(self._given(dataset, target, chosen_columns(features)), pay, public_validation)

    def _check_unpaid(self) -> None:
        if self.checkpoint is not None or self.ledger is not None:
            raise InvalidRequest("Expected no ledger or checkpoint beside a session", do="Leave them out")

    def _fitted(self, given: GivenRows, pay: Callable[[Request, Any], Release[Any]], public: Any) -> Self:
        plan = replace(self._order(given.width, given.rows), public_test=public is not None).plan()
        problem = self._problem(given, ladder=len(plan.schedule.phases) > 1)
        problem.check(plan.schedule)
        request = replace(self._request(plan, problem), table=given.table(problem))
        if public is not None:
            request = self._tested_on(public, request)
        try:
            with one_thread():
                release = pay(request, given.data)
        except TargetNotMet as missed:
            if "stopped" in missed.receipt.terms:  # whoever stopped it wants what there is
                self._keep(missed.release, plan)
            raise
        self._keep(release, plan)
        return self

    def _given(self, X: Any, y: Any, features: tuple[str, ...] | None = None) -> GivenRows:
        """The rows and what is public about them; shapes are checked, values are not."""
        if isinstance(X, Dataset):
            return self._described(X, y, features)
        matrix, targets = self._matrix(X), self._targets(self._vector(y))
        if len(targets) != matrix.shape[0]:
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        return GivenRows(
            (matrix, targets), lambda data: data, matrix.shape[1], names=column_names(X), rows=matrix.shape[0]
        )

    def _tested_on(self, public: Any, request: TrainingRequest) -> TrainingRequest:
        """The request with its test on public rows, read as the private ones are."""
        if not isinstance(public, tuple | list) or len(public) != 2:
            raise InvalidRequest("Expected public_validation to be a pair", do="Pass (features, targets)")
        matrix, targets = self._matrix(public[0], fitting=False), self._public_targets(self._vector(public[1]))
        if len(targets) != matrix.shape[0]:
            raise InvalidRequest("Expected one public target for each public row", do="Pass a vector as long")
        assert request.rule is not None
        return replace(request, public=PublicTest(request.rule, (matrix, targets), len(targets)))

    def _described(self, dataset: Dataset, target: Any, features: tuple[str, ...] | None) -> GivenRows:
        if self._labels_are_public:
            raise InvalidRequest(
                "Expected a list of classes beside a Dataset, whose labels are read once they are paid for",
                got=OBSERVED,
                do="Pass classes=[...], the public ones",
            )
        source = read_rows(dataset, target, names=features, declared_rows=self._order(1, None).rows)
        remember_columns(self, source.names, source.width)
        # An empty column of the declared kind: classes are learned from what is public, before any row is read.
        nobody = self._targets(pa.nulls(0, _STORED.get(dataset.schema.kind(target), pa.float64())))
        classes = self._public_classes()
        if classes is not None:
            source = read_rows(
                dataset, target, names=features, declared_rows=self._order(1, None).rows, classes=classes
            )

        def gathered(rows: RowSource) -> tuple[Any, NDArray[Any]]:
            matrix, labels = _gathered(rows, nobody)
            return matrix, self._targets(labels) if classes is None else labels

        return GivenRows(source, gathered, source.width, names=source.names)

    def _public_classes(self) -> NDArray[Any] | None:
        """Return the classes among which targets are coded; None where targets are numbers."""
        return None

    def price(self, width: int = 1) -> PriceList:
        """What training can cost, phase by phase, before any data is seen; needs a public ``rows``.

        ``width``, the number of features, only matters to ``batches="auto"``.
        """
        return self._order(_positive(width, "width"), None).plan().prices

    def _request(self, plan: Plan, problem: LinearProblem) -> TrainingRequest:
        return TrainingRequest(
            question=f"train {type(self).__name__}",
            schedule=plan.schedule,
            prices=plan.prices,
            table=lambda data: problem.table(*data),
            target=plan.target,
            rule=None if plan.target is None else self._rule(plan.target),
            validation_share=plan.validation_share,
            terms=self._terms(plan, problem),
            progress=RichProgress if _flag(self.progress, "progress") else None,
            watch=Watch(scale=self._score_unit()) if self.progress else None,
        )

    def _rule(self, target: Target) -> ScoreRule:
        if target.measure is not self._measure:
            raise InvalidRequest(
                f"Expected a target of {self._measure.value} for {type(self).__name__}",
                got=target.measure.value,
                do=f'Pass target=("{self._measure.value}", ...)',
            )
        return ScoreRule.of(target, scale=self._score_unit())

    def _terms(self, plan: Plan, problem: LinearProblem) -> dict[str, Any]:
        batches = plan.schedule.batches
        return {
            "batches": type(batches).__name__.lower(),
            "expected batch size": float(batches.expected_size),
            "rows (public)": batches.rows,
            "loss": problem.head.name,
            "solver": problem.solver,
            "feature bound": problem.grid.bound,
            "clip": problem.clip,
            "learning rate": problem.rule.learning_rate,
            "momentum": problem.rule.momentum,
            "averaging": problem.rule.averaging,
            "regularization": problem.rule.regularization,
            # Who goes on from a checkpoint must say the same of all that a step depends on beside rows and noise.
            "settings": fingerprint({"problem": repr(problem), "labels": self._labels()}),
        }

    def _labels(self) -> Any:
        """How targets become numbers, in public terms."""
        raise NotImplementedError

    @property
    def _neighbours(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    def _answer(self, request: Any, data: Any, terms: dict[str, Any]) -> Release[Any]:
        if self.checkpoint is None:
            return answer(request, data, **terms)
        return train_resumably(request, data, checkpoint=Checkpoint(self.checkpoint), **terms)

    # Reading the arguments ----------------------------------------------------------------------------------------

    def _order(self, width: int, found_rows: int | None) -> Order:
        rows = self.rows
        if isinstance(rows, str) and rows == OBSERVED:
            if found_rows is None:
                raise InvalidRequest(
                    "Expected rows to be a number where no table is at hand to count: in price(), beside a Dataset",
                    got=OBSERVED,
                    do="Pass rows=50_000, about how many there are",
                )
            # The caller says that the number of rows is public; only then may it be read off the data.
            rows = found_rows
        if rows is None:
            raise InvalidRequest(
                "Expected rows, about how many rows there are, as public knowledge",
                do='Pass rows=50_000; or rows="observed" if the number of rows is public',
            )
        return Order(
            rows=rows,
            delta=self.delta,
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
            target=self.target,
            max_epsilon=self.max_epsilon,
            failure_probability=self.failure_probability,
            batches=self.batches,
            batch_size=self.batch_size,
            steps=self.steps if self.steps is not None else default_steps(self.solver, phases=self.target is not None),
            phases=self.phases,
            validation_share=self.validation_share,
            accountant=self.accountant,
            width=width,
        )

    def _problem(self, given: GivenRows, *, ladder: bool) -> LinearProblem:
        lows, highs = column_bounds(self.bounds, given.width, given.names)
        bound = math.sqrt(given.width) if lows is not None else 1.0
        if self.feature_bound is not None:
            bound = float(rational(self.feature_bound, "feature_bound"))
        grid = FeatureGrid(given.width, bound, _flag(self.fit_intercept, "fit_intercept"), lows, highs)
        clip = _CLIP * bound if self.clip is None else float(rational(self.clip, "clip"))
        head = self._head()
        # Squared errors have no bounded slope: sums of gradients that are weighed too high would run away.
        rule = self._descent(weighing=ladder and not isinstance(head, Squared))
        return LinearProblem(grid, head, clip, rule, self.solver)

    def _descent(self, *, weighing: bool) -> DescentRule:
        rate = None if self.learning_rate is None else float(rational(self.learning_rate, "learning_rate"))
        momentum, penalty, averaging = (
            float(rational(getattr(self, name), name, positive=False))
            for name in ("momentum", "regularization", "averaging")
        )
        if self.solver == "newton":  # a quotient needs neither momentum nor weights
            return DescentRule(rate, 0.0, penalty, averaging)
        return DescentRule(rate, momentum, penalty, averaging, weighing)

    def _head(self) -> Head:
        raise NotImplementedError

    def _targets(self, y: Any) -> NDArray[Any]:
        raise NotImplementedError

    def _public_targets(self, y: Any) -> NDArray[Any]:
        """Targets that are nobody's secret, in the form of the private ones."""
        return self._targets(y)

    def _score_unit(self) -> float:
        return 1.0

    # What was released --------------------------------------------------------------------------------------------

    coef_: NDArray[np.float64]
    intercept_: Any
    _missing: Any = 0.0  # what stands for a missing value in a file of an earlier version

    def _keep(self, release: Release[LinearScores], plan: Plan | None) -> None:
        self.release_, self.prices_ = release, None if plan is None else plan.prices
        self.coef_, self.intercept_ = release.value.coefficients, release.value.intercepts

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """The scores of rows read as in training: cut to the bounds, missing values filled, on the grid."""
        check_is_fitted(self, "release_")
        matrix, model = self._matrix(X, fitting=False), self.release_.value
        scores: NDArray[np.float64] = model.scores(matrix if model.reading else filled(matrix, self._missing))
        return scores


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InvalidRequest(f"Expected {name} to be True or False", got=value, do="Pass one of them")
    return bool(value)


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidRequest(f"Expected {name} to be a whole number >= 1", got=value, do="Pass a public number")
    return int(value)


def _gathered(source: RowSource, nobody: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """All rows at once, as training goes over them many times; ``nobody`` are the targets of a table without rows."""
    parts = list(source.read())
    tables = [np.zeros((0, source.width)), *(np.asarray(table, np.float64) for table, _ in parts)]
    return np.concatenate(tables), np.concatenate([labels for _, labels in parts]) if parts else nobody
