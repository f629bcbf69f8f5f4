"""The base of the linear estimators: reading their arguments, fitting, and keeping the released model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from expost.core import (
    Adjacency,
    InvalidRequest,
    Norm,
    PlanContext,
    Query,
    Release,
    Unit,
    explain_arguments,
    share_parameters,
)
from expost.core.rational import probability, rational, whole
from expost.core.release import draw_picture
from expost.data import Dataset
from expost.data.person_rows import read_added_rows
from expost.data.row_source import RowSource, column_names, plain_numbers, read_rows
from expost.data.value_place import label_codes
from expost.models.declared_bounds import check_declared, read_described_bounds, read_described_classes
from expost.models.estimator import (
    FITTED_ROWS,
    PREDICTED_ROWS,
    PlannedQuery,
    PrivateEstimator,
    ScoreParameter,
    check_flag,
    fill_missing,
    limit_threads,
    pay_for_query,
    read_feature_names,
    read_observed_classes,
    read_target_bounds,
    remember_columns,
)
from expost.models.linear.linear_fit import Aim, FitTerms, LinearModel, Problem

__all__ = ["DeclaredClasses", "PrivateLinearModel", "PrivateRegressor"]

_NORMS = {"l1": Norm.L1, "l2": Norm.L2}
_LARGEST_COUNT = 10**12  # rows beyond which floats lose count
_LARGEST_DELTA = Fraction(1, 10)


class PrivateLinearModel(PrivateEstimator):
    """Base of the estimators whose accuracy is a risk or a score: a linear model that pays for it from a ledger.

    A subclass writes an explicit constructor, names the ``_scores`` it can be asked for and builds its query in
    ``_build_query`` (docs/howto/add-an-estimator.md). Parameters that linear models share are described here.

    Parameters
    ----------
    epsilon : float, optional
        Spend this much and report the accuracy it guarantees.
    regularization : float, default 0.005
        The l2 penalty.
    feature_bound : float, optional
        Rows are clipped to this norm. Default: large enough for every row within ``bounds``. Without bounds it must be
        given, such as 1.0 for rows that are scaled already.
    feature_norm : {"l1", "l2"}, default "l1"
        The norm in which rows are clipped.
    bounds : (low, high), sequence of pairs or mapping of str to pair, optional
        Public bounds of the columns: one pair for all of them, one per column, or by name. Default: those of the ``Dataset``. Columns are then scaled to [0, 1], and penalty and risk are
        those of the scaled problem.
    fit_intercept : bool, default False
        Fit a constant term, penalized like the coefficients.
    rows : int, optional
        About how many rows (or persons) there are, as public knowledge, where they are added or removed: losses are
        summed and divided by it. Default: count them under noise, inside the bill.
    adjacency : {"add-remove", "replace-one"}, optional
        Which tables are neighbors. Default: what the ``Dataset`` states; for arrays ``"replace-one"``, or
        ``"add-remove"`` with ``rows``.
    delta : float, default 0.0
        Allow Gaussian noise where it costs less; the bill is then an (epsilon, delta) pair.
    """

    _scores: tuple[str, ...] = ()

    # The values of arguments that a constructor does not have.
    excess_risk: Any = None
    epsilon: Any = None
    regularization: Any = 0.005
    feature_bound: Any = None
    feature_norm: Any = "l1"
    target_bounds: Any = None
    bounds: Any = None
    fit_intercept: bool = False
    failure_probability: Any = 0.1
    max_epsilon: Any = None
    rows: Any = None
    adjacency: Any = None
    method: Any = "auto"
    delta: Any = 0.0
    ledger: Any = None
    account: Any = None
    simulation_seed: Any = None

    _saved_lows: Any = None  # lower bounds in a file of an earlier version, which does not say how rows were read
    _fitted_problem: Problem
    _has_number_targets = False
    _described: tuple[Any, Any] = (None, None)
    _fitted_units: tuple[Adjacency, Unit] = (Adjacency.REPLACE_ONE, Unit())

    @share_parameters(FITTED_ROWS)
    @explain_arguments
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model and bill the ledger.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        TargetNotMet
            The accuracy cannot be reached under the cap. The exception carries the best private model and its receipt.
        """
        account = self._account_of(X)
        source = self._read_table(X, y)
        query = self._build_query()
        planned = PlannedQuery(query, query.plan(source, PlanContext()))
        return self._keep_fit(query, source, pay_for_query(planned, source, **self._payment_terms(account)))

    @share_parameters(FITTED_ROWS)
    def fit_with(
        self, pay: Callable[[Query, RowSource], Release[Any]], dataset: Dataset, *, features: Sequence[str], target: str
    ) -> Self:
        """Fit to columns of a dataset and let the caller pay. Call ``Session.fit`` instead."""
        source = self._read_table(dataset, target, read_feature_names(features))
        query = self._build_query()
        with limit_threads():
            release = pay(query, source)
        return self._keep_fit(query, source, release)

    def _keep_fit(self, query: Any, source: RowSource, release: Release[LinearModel]) -> Self:
        self._fitted_problem = query.terms.describe(source)
        self._keep_release(release)
        return self

    def _build_query(self) -> Any:
        """Return the query that the arguments ask for; it keeps the ``FitTerms`` as ``terms``."""
        raise NotImplementedError

    def _read_table(self, X: Any, y: Any, features: tuple[str, ...] | None = None) -> RowSource:
        """Return the rows. Shapes are checked as scikit-learn does; values are private."""
        declared = self._declared_rows()
        if isinstance(X, Dataset):
            self._check_adjacency(X.adjacency)
            read: Any = read_rows if X.adjacency.public_size else read_added_rows
            source: RowSource = read(X, y, names=features, declared_rows=declared, classes=self._public_classes())
            remember_columns(self, source.names, source.width)
            needed = self.bounds is None and self.feature_bound is None
            self._described = read_described_bounds(X, source.names or (), y, needed=needed)
        else:
            self._described = None, None
            matrix = self._read_matrix(X)
            target = self._read_target(y)
            source = read_rows(matrix, target, names=column_names(X), classes=self._public_classes())
            if self._array_adjacency is Adjacency.ADD_REMOVE:
                source = replace(source, adjacency=Adjacency.ADD_REMOVE, rows=declared or 0)
        self._check_declared(source, described=isinstance(X, Dataset))
        self._fitted_units = source.adjacency, source.unit
        return source

    def _check_declared(self, source: RowSource, *, described: bool) -> None:
        """Refuse bounds that nobody declared, from public facts."""
        if not {"feature_bound", "bounds"} & set(self._get_param_names()):
            return  # a model of its own kind, which clips nothing or says how
        columns, target = self._described
        norm = "1-norm" if self.feature_norm == "l1" else "Euclidean norm"
        check_declared(
            features=not (self.feature_bound is None and self.bounds is None and columns is None),
            targets=not (self._has_number_targets and self.target_bounds is None and target is None),
            width=source.width,
            names=source.names,
            length=norm,
            described=described,
        )

    @property
    def _array_adjacency(self) -> Adjacency:
        """Return the neighbors of a table that comes as arrays: with a declared number of rows theirs is private."""
        declared = self._declared_rows() is not None
        if self.adjacency is None:
            return Adjacency.ADD_REMOVE if declared else Adjacency.REPLACE_ONE
        found = Adjacency.parse(self.adjacency)
        if declared and found.public_size:
            raise InvalidRequest(
                "Expected no rows under replace-one adjacency, where their number is public", do="Leave rows out"
            )
        return found

    def _check_adjacency(self, described: Adjacency) -> None:
        if self.adjacency is not None and Adjacency.parse(self.adjacency) is not described:
            raise InvalidRequest(
                f"Expected the adjacency of the dataset, {described.value}",
                got=self.adjacency,
                do="Leave it out, or describe the dataset with it",
            )

    def _public_classes(self) -> NDArray[Any] | None:
        """Return the classes among which targets are coded; None where targets are numbers."""
        return None

    def _declared_rows(self) -> int | None:
        """Return the public number that stands for a private number of rows, if one was declared."""
        if self.rows is None:
            return None
        return whole(
            self.rows, "rows", least=1, most=_LARGEST_COUNT, do="Pass about how many there are, a public number"
        )

    @property
    def _bill_adjacency(self) -> Adjacency:
        return self._fitted_units[0]

    @property
    def _bill_unit(self) -> Unit:
        return self._fitted_units[1]

    def _read_target(self, y: Any) -> Any:
        return self._read_vector(y)

    def _keep_release(self, release: Release[LinearModel]) -> None:
        self.release_ = release

    def _read_terms(self, regularization: Any = None) -> FitTerms:
        """Check the arguments that all linear models share; ``regularization`` replaces the argument."""
        if not isinstance(self.feature_norm, str) or self.feature_norm not in _NORMS:
            raise InvalidRequest("Expected feature_norm to be 'l1' or 'l2'", got=self.feature_norm, do="Name one")
        penalty = self.regularization if regularization is None else regularization
        bound, columns, targets = self.feature_bound, self.bounds, self.target_bounds
        if bound is None and columns is None:
            columns = self._described[0]
        targets = self._described[1] if targets is None else targets
        return FitTerms(
            aim=Aim.of(
                excess_risk=self.excess_risk,
                score=self.__dict__.get("score"),
                epsilon=self.epsilon,
                failure_probability=self.failure_probability,
                max_epsilon=self.max_epsilon,
                scores=self._scores,
            ),
            regularization=float(rational(penalty, "regularization")),
            norm=_NORMS[self.feature_norm],
            feature_bound=None if bound is None else float(rational(bound, "feature_bound")),
            column_bounds=columns,
            intercept=check_flag(self.fit_intercept, "fit_intercept"),
            target_bounds=read_target_bounds(1.0 if targets is None or not self._has_number_targets else targets),
            declared_rows=self._declared_rows(),
        )

    def _read_delta(self) -> Fraction | None:
        """Return the delta asked for; None where the fit is to be pure."""
        if self.delta is None or (isinstance(self.delta, int | float) and self.delta == 0):
            return None
        delta = probability(self.delta, "delta")
        if delta > _LARGEST_DELTA:
            raise InvalidRequest(
                f"Expected a delta of at most {float(_LARGEST_DELTA)}",
                got=self.delta,
                do="Pass one far below 1 / rows, such as 1e-9: a larger one does not protect",
            )
        return delta

    @explain_arguments
    def plot_climb(self, path: str | Path | None = None) -> Any:
        """Draw what was certified at each rung of the climb.

        Parameters
        ----------
        path : str or Path, optional
            The file to write. Default: return the figure only.

        Raises
        ------
        InvalidRequest
            The method did not climb.
        """
        check_is_fitted(self, "release_")
        if not self.release_.climb:
            raise InvalidRequest(
                "Expected a fit that climbed", do="Its price was known before the run: see receipt_ for what it bought"
            )
        return draw_picture("climb", self.release_, path=path)

    def _score_rows(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of rows read as in ``fit``: clipped to the bounds, missing values filled, on the grid."""
        check_is_fitted(self, "release_")
        matrix, model = self._read_matrix(X, fitting=False), self.release_.value
        if isinstance(model, LinearModel) and model.reading is None:  # from a file of an earlier version
            matrix = fill_missing(matrix, 0.0 if self._saved_lows is None else np.array(self._saved_lows))
        scores: NDArray[np.float64] = model.predict(matrix)
        return scores


class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base of the linear regressions."""

    _has_number_targets = True

    def _read_table(self, X: Any, y: Any, features: tuple[str, ...] | None = None) -> RowSource:
        if isinstance(X, Dataset) and isinstance(y, str) and y in X.schema and not X.schema.kind(y).is_number:
            raise InvalidRequest("Expected a target of numbers", got=y, do="Name a column of numbers")
        return super()._read_table(X, y, features)

    def _read_target(self, y: Any) -> Any:
        target = super()._read_target(y)
        plain_numbers(target[:0])  # refuses a type that is not numeric, before anything is paid
        return target

    def _keep_release(self, release: Release[LinearModel]) -> None:
        super()._keep_release(release)
        self.coef_: NDArray[np.float64] = release.value.coefficients
        self.intercept_: float = release.value.intercept

    @share_parameters(PREDICTED_ROWS)
    @explain_arguments
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the target of each row."""
        return self._score_rows(X)

    @share_parameters(PREDICTED_ROWS)
    def _r_squared(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions; targets are clipped and filled as in ``fit``."""
        predicted = self._score_rows(X)
        told, reading = self._read_true_targets(y, predicted), self.release_.value.reading
        if reading is not None:
            told = reading.clip_targets(told)
        return float(r2_score(told, predicted, sample_weight=sample_weight))

    score = ScoreParameter(_r_squared)


class DeclaredClasses(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base of the classifiers: two or more classes, which are public.

    ``_score_rows`` returns one score per row, positive for the second of two classes, or one column of scores per class.
    """

    classes: Any = None
    _usual_classes = "classes=[...]"  # what errors ask for

    def _read_table(self, X: Any, y: Any, features: tuple[str, ...] | None = None) -> RowSource:
        described = read_described_classes(X, y) if self.classes is None and isinstance(X, Dataset) else None
        if described is not None:
            self._set_classes(described)
            return super()._read_table(X, y, features)
        if self.classes is None:
            raise InvalidRequest(
                "Expected the classes as public knowledge",
                do=f'Pass {self._usual_classes}; or classes="observed" if it is public which labels occur',
            )
        if isinstance(self.classes, Iterable) and not isinstance(self.classes, str | bytes):
            self._set_classes(list(self.classes))
        elif not self._labels_are_public or isinstance(X, Dataset):
            where = "The labels of a dataset are private: pass" if self._labels_are_public else "Pass"
            raise InvalidRequest("Expected a list of classes", got=self.classes, do=f"{where} {self._usual_classes}")
        return super()._read_table(X, y, features)

    def _read_target(self, y: Any) -> Any:
        labels = super()._read_target(y)
        if self._labels_are_public:  # only then may the classes be read off the data
            self._set_classes(read_observed_classes(labels))
        return labels

    def _set_classes(self, classes: Any) -> None:
        """Check the classes, and keep them."""
        try:
            known = np.asarray(classes)
            distinct = known.ndim == 1 and len(set(known.tolist())) == len(known) and bool((known == known).all())
        except (TypeError, ValueError):  # labels that are lists
            distinct = False
        if not distinct or len(known) < 2:
            got = "one class" if len(classes) == 1 else "some that are equal, missing or not labels"
            raise InvalidRequest(
                f"Expected at least two different classes, got {got}", do=f"Pass {self._usual_classes}"
            )
        self.classes_ = known

    def _public_classes(self) -> NDArray[Any]:
        return self.classes_

    def _choose_class(self, X: Any) -> NDArray[np.intp]:
        """Return the index of the predicted class of each row."""
        scores = self._score_rows(X)
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    @share_parameters(PREDICTED_ROWS)
    @explain_arguments
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each row."""
        chosen = self._choose_class(X)  # first, because it refuses a model that is not fitted
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    def _measure_accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that are predicted right.

        A label that is not a class is never predicted right, as in a private test.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Arrow table
            The columns of the fit.
        y : array
            The true labels.
        sample_weight : array, optional
            Weights of the rows.

        Returns
        -------
        float
            The accuracy, from 0 to 1.
        """
        chosen = self._choose_class(X)
        known = label_codes(self._read_true_targets(y, chosen), self.classes_)
        return float(np.average(chosen == known, weights=sample_weight))

    score = ScoreParameter(_measure_accuracy)
