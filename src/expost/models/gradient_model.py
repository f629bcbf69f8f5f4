"""What the estimators trained by private gradient descent share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from expost.core import InvalidRequest, Receipt, Release
from expost.core.rational import rational
from expost.curator import answer
from expost.data import Dataset
from expost.data.matrix import RowSource, column_names, read_rows
from expost.learning.sgd.checkpoint import Checkpoint
from expost.learning.sgd.descent import DescentRule
from expost.learning.sgd.features import FeatureGrid
from expost.learning.sgd.head import Head, Squared
from expost.learning.sgd.learner import LinearScores
from expost.learning.sgd.order import Order, Plan
from expost.learning.sgd.prices import PriceList
from expost.learning.sgd.progress import RichProgress
from expost.learning.sgd.request import TrainingRequest
from expost.learning.sgd.resumable import train_resumably
from expost.learning.sgd.table import LinearProblem, LinearTable
from expost.learning.sgd.tuning import TuningRequest
from expost.learning.sgd.validation import ScoreRule
from expost.ledger import Ledger, open_ledger
from expost.models.estimator import from_arrow, one_thread
from expost.noise import BitSource, SeededBits, system_bits

__all__ = ["PrivateGradientModel"]

OBSERVED = "observed"
"""Said by a caller for whom a fact about the table is public."""
_ACCOUNT = "dataset:table"
_CLIP = 0.3  # of feature_bound


class PrivateGradientModel(BaseEstimator):  # type: ignore[misc]
    """Base of the two estimators; arguments are kept as given and checked in ``fit``, before the data is touched."""

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
    steps: int
    phases: int | None
    solver: str
    validation_share: Any
    clip: Any
    learning_rate: Any
    momentum: float
    averaging: float
    accountant: str
    ledger: Any
    account: Any
    checkpoint: Any
    progress: bool
    simulation_seed: Any

    # Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Train, and bill the ledger; raises ``TargetNotMet`` with the last private model if the target is missed.

        ``X`` is a table with ``y`` beside it, or a ``Dataset`` whose neighbours add or remove a row, with ``y`` the name of
        its target column. Ctrl-C stops the training; the model so far is paid for and kept.
        """
        if any(value is not None for value in unsupported.values()):
            raise InvalidRequest(f"Expected no {next(iter(unsupported))}", do="Leave it out: it is not supported")
        if isinstance(X, Dataset):
            account = f"dataset:{X.name}" if X.name else None
            return self._fit_dataset(X, y, None, lambda request, source: self._pay(request, source, account))
        if y is None:
            name = type(self).__name__
            raise InvalidRequest(
                f"This {name} estimator requires y to be passed, but the target y is None", do="Pass one target a row"
            )
        names = column_names(X)
        matrix = validate_data(self, from_arrow(X), accept_sparse="csr", dtype="numeric", ensure_all_finite=False)
        targets = self._targets(y)
        if len(targets) != matrix.shape[0]:
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        plan = self._plan(matrix.shape[1], matrix.shape[0])
        problem = self._problem(matrix.shape[1], names, ladder=len(plan.schedule.phases) > 1)
        release = self._pay(self._request(plan, problem), (matrix, targets))
        self._keep(release, plan)
        return self

    def fit_with(
        self,
        pay: Callable[[TrainingRequest, RowSource], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str],
        target: str,
    ) -> Self:
        """Fit to columns of a dataset and let the caller pay; ``Session.fit`` is the friendly way in."""
        if isinstance(features, str) or not features:
            raise InvalidRequest("Expected at least one feature", do='Pass a list of columns: features=["age"]')
        if self.checkpoint is not None or self.ledger is not None:
            raise InvalidRequest("Expected no ledger or checkpoint beside a session", do="Leave them out")
        return self._fit_dataset(dataset, target, tuple(features), pay)

    def _fit_dataset(
        self,
        dataset: Dataset,
        target: Any,
        features: tuple[str, ...] | None,
        pay: Callable[[TrainingRequest, RowSource], Release[Any]],
    ) -> Self:
        source = read_rows(dataset, target, names=features, declared_rows=self._order(1, None).rows)
        # An empty column of the declared kind: classes are learned from what is public, before any row is read.
        self._targets(np.empty(0, np.float64 if dataset.schema.kind(target).is_number else str))
        self.n_features_in_ = source.width
        plan = self._plan(source.width, None)
        problem = self._problem(source.width, source.names, ladder=len(plan.schedule.phases) > 1)

        def table(rows: RowSource) -> LinearTable:
            matrix, labels = _gathered(rows)
            return problem.table(matrix, self._targets(labels))

        with one_thread():
            release = pay(replace(self._request(plan, problem), table=table), source)
        self._keep(release, plan)
        return self

    def price(self, width: int = 1) -> PriceList:
        """What training can cost, phase by phase, before any data is seen; needs a public ``rows``.

        ``width``, the number of features, only matters to ``batches="auto"``.
        """
        return self._plan(width, None).prices

    def _request(self, plan: Plan, problem: LinearProblem) -> TrainingRequest:
        return TrainingRequest(
            question=f"train {type(self).__name__}",
            schedule=plan.schedule,
            prices=plan.prices,
            table=lambda data: problem.table(*data),
            target=plan.target,
            rule=None if plan.target is None else ScoreRule.of(plan.target, scale=self._score_unit()),
            validation_share=plan.validation_share,
            terms=self._terms(plan, problem),
            progress=RichProgress if self.progress else None,
        )

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
        }

    def _pay(self, request: TrainingRequest | TuningRequest, data: Any, named: str | None = None) -> Release[Any]:
        seeded = self.simulation_seed is not None
        bits: BitSource = SeededBits(self.simulation_seed) if seeded else system_bits()
        account = named or _ACCOUNT if self.account is None else str(self.account)
        ledger = self._open_ledger(account, request)
        terms: dict[str, Any] = {"ledger": ledger, "accounts": (account,), "bits": bits, "simulation": seeded}
        try:
            with one_thread():
                if self.checkpoint is not None and isinstance(request, TrainingRequest):
                    return train_resumably(request, data, checkpoint=Checkpoint(self.checkpoint), **terms)
                return answer(request, data, **terms)
        finally:
            ledger.close()

    def _open_ledger(self, account: str, request: TrainingRequest | TuningRequest) -> Ledger:
        if self.ledger is None:
            ledger = open_ledger(None)
            ledger.open_account(account, request.worst_case.promise())
            return ledger
        if not isinstance(self.ledger, str):
            # A copy of a ledger in memory, as clone makes one, would be billed instead of the original.
            raise InvalidRequest("Expected ledger to be a path or a URL", do='Pass "flights.ledger"')
        ledger = open_ledger(self.ledger)
        if account not in ledger.accounts():
            ledger.close()
            raise InvalidRequest(
                f"Expected the account {account!r} in the ledger",
                do=f"Open it once: expost.open_ledger(path).open_account({account!r}, expost.approx(1.0, 1e-6))",
            )
        return ledger

    # Reading the arguments ----------------------------------------------------------------------------------------

    def _plan(self, width: int, found_rows: int | None) -> Plan:
        return self._order(width, found_rows).plan()

    def _order(self, width: int, found_rows: int | None) -> Order:
        rows = self.rows
        if isinstance(rows, str) and rows == OBSERVED:
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
            steps=self.steps,
            phases=self.phases,
            validation_share=self.validation_share,
            accountant=self.accountant,
            width=width,
        )

    def _problem(self, width: int, names: tuple[str, ...] | None, *, ladder: bool) -> LinearProblem:
        lows, highs = _column_bounds(self.bounds, width, names)
        bound = math.sqrt(width) if lows is not None else 1.0
        if self.feature_bound is not None:
            bound = float(rational(self.feature_bound, "feature_bound"))
        grid = FeatureGrid(width, bound, bool(self.fit_intercept), lows, highs)
        clip = _CLIP * bound if self.clip is None else float(rational(self.clip, "clip"))
        rate, head = None if self.learning_rate is None else float(self.learning_rate), self._head()
        # Squared errors have no bounded slope: sums of gradients that are weighed too high would run away.
        weighing = ladder and not isinstance(head, Squared)
        rule = DescentRule(rate, float(self.momentum), float(self.regularization), float(self.averaging), weighing)
        if self.solver == "newton":  # a quotient needs neither momentum nor weights
            rule = replace(rule, momentum=0.0, weighing=False)
        return LinearProblem(grid, head, clip, rule, self.solver)

    def _head(self) -> Head:
        raise NotImplementedError

    def _targets(self, y: Any) -> NDArray[Any]:
        raise NotImplementedError

    def _score_unit(self) -> float:
        return 1.0

    # What was released --------------------------------------------------------------------------------------------

    coef_: NDArray[np.float64]
    intercept_: Any

    def _keep(self, release: Release[LinearScores], plan: Plan | None) -> None:
        self.release_, self.prices_ = release, None if plan is None else plan.prices
        self.coef_, self.intercept_ = release.value.coefficients, release.value.intercepts

    @property
    def receipt_(self) -> Receipt:
        """What was paid, what was promised, and what reached it."""
        check_is_fitted(self, "release_")
        return self.release_.receipt

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "release_")
        matrix = validate_data(
            self, from_arrow(X), accept_sparse="csr", reset=False, dtype="numeric", ensure_all_finite=False
        )
        return np.asarray(_filled(matrix) @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # a missing value is a value like any other: refusing it would tell of it
        tags.non_deterministic = self.simulation_seed is None
        tags.target_tags.required = True
        return tags


def _gathered(source: RowSource) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """All rows at once; training goes over them many times."""
    parts = list(source.read())
    tables = [np.zeros((0, source.width)), *(np.asarray(table, np.float64) for table, _ in parts)]
    return np.concatenate(tables), np.concatenate([labels for _, labels in parts]) if parts else np.empty(0)


def _filled(matrix: Any) -> Any:
    """A missing value counts as zero, as it did in training."""
    if hasattr(matrix, "tocsr"):
        return matrix if np.isfinite(matrix.data).all() else np.nan_to_num(matrix.toarray())
    return np.nan_to_num(matrix) if matrix.dtype.kind == "f" and np.isnan(matrix).any() else matrix


def _column_bounds(bounds: Any, width: int, names: tuple[str, ...] | None) -> tuple[Any, Any]:
    if bounds is None:
        return None, None
    if isinstance(bounds, Mapping):
        if names is None or set(bounds) != set(names):
            raise InvalidRequest("Expected bounds for every column by name", do="Pass a table with column names")
        pairs = [bounds[name] for name in names]
    else:
        pairs = list(bounds)
    if len(pairs) != width or not all(len(pair) == 2 and pair[0] < pair[1] for pair in pairs):
        raise InvalidRequest("Expected one (low, high) for each column, low below high", do="Pass public bounds")
    return tuple(float(low) for low, _ in pairs), tuple(float(high) for _, high in pairs)
