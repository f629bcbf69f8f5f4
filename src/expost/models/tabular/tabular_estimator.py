"""What ``Classifier`` and ``Regressor`` share: reading tables, planning a training, and what was released."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from expost.core import (
    Adjacency,
    InvalidRequest,
    Measure,
    PlanContext,
    Query,
    Release,
    Target,
    TargetNotMet,
    explain_arguments,
    share_parameters,
)
from expost.core.question_cap import read_cap
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.models.descent.sgd_estimator import target_numbers
from expost.models.descent.training_watch import RichProgress
from expost.models.estimator import (
    PrivateEstimator,
    check_flag,
    limit_threads,
    pay_for_query,
    remember_columns,
)
from expost.models.tabular.class_weight import BALANCED_SHARE, ClassWeights
from expost.models.tabular.coefficient_estimates import list_contrasts
from expost.models.tabular.coefficient_table import CoefficientTable
from expost.models.tabular.column_declaration import declare_columns, read_columns
from expost.models.tabular.column_encoding import CategoryColumn, NumberColumn
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.private_levels import LevelsFirst, PrivateLevelColumn, plan_searches, split_for_levels
from expost.models.tabular.pure_schedule import plan_pure_epsilon, plan_pure_score
from expost.models.tabular.pure_training import PureTraining
from expost.models.tabular.rung_schedule import SideShares, plan_epsilon, plan_score
from expost.models.tabular.score_sum import read_score
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.table_profile import RowBlocks
from expost.models.tabular.table_report import TableReport
from expost.models.tabular.table_training import TableTraining
from expost.models.tabular.tabular_rows import RowChunk, TabularRows
from expost.models.tabular.tabular_source import encode_frame, table_dataset
from expost.models.tabular.training_choice import TrainingChoice, TrainingWay, read_delta, read_method

__all__ = ["TabularEstimator"]

_WIDEST = 511  # features: a Newton step releases half the square of their number

_FIT = {
    "X": "data frame, Arrow table, mapping, matrix, path or Dataset\nThe table. A path may be a Parquet or CSV file or a "
    "pattern of several.",
    "y": "array or str, optional\nThe targets, one per row, or the name of their column.",
    "target": "str, optional\nThe name of the target's column; the same as a name passed as ``y``.",
    "pay": "callable\nAnswers a query about the rows, charges for it and returns the release.",
    "dataset": "Dataset\nThe table.",
    "features": "sequence of str, optional\nThe features. Default: those that ``columns`` or the dataset declare.",
}


class TabularEstimator(PrivateEstimator):
    """The base of ``Classifier`` and ``Regressor``.

    Parameters
    ----------
    score : (str, float), optional
        The score that the model must reach on the rows of the table. Training stops as soon as a private test shows it.
    epsilon : float, optional
        Train at this privacy level instead, and report the score that it reaches.
    delta : float, default 1e-6
        The delta of the guarantee, far below one over the number of rows; 0 for pure differential privacy, which needs
        several times the epsilon. Where the budget has no delta, training is pure whatever is passed.
    method : str, default "auto"
        "newton": Newton steps with Gaussian noise, with a delta, for any number of classes. "objective": objective
        perturbation, pure, for two classes or a number. "moments": moments under Laplace noise, pure, for a number.
        "auto": "newton" with a delta, "objective" without one. The receipt names the way and the reason.
    columns : mapping, sequence or path, optional
        Public declarations of the features: ``{"age": (17, 90), "education": ["school", "college"], "since": (date, date),
        "member": "boolean", "city": "private"}``. The levels of a private column are found in the rows, inside the bill. A
        column that is not in it is not used. Default: what the dataset or its description declares. See docs/tables.md.
    unit : str, optional
        The column whose value names a person. Default: that of a ``Dataset``, or one row.
    max_rows_per_unit : int, optional
        The most rows of one person that are used; they share one weight.
    rows : int, optional
        The number of rows, or of persons, if it is public. Default: a noisy count, which is part of the bill. A number that is
        far from that count is not used, and the receipt says so.
    report : sequence of str, default ()
        What else to release with the model, inside the bill: ``"coefficients"`` for intervals in ``coefficients()``, and
        ``"auc"`` for the area under the curve of two classes.
    progress : bool, default False
        Show the progress, the epsilon charged so far and the measured score.

    Attributes
    ----------
    coef_ : ndarray
        The coefficients of the features that ``encoder_`` makes, one row per score.
    intercept_ : ndarray
        The intercepts.
    encoder_ : TableEncoder
        How rows become features; ``encoder_.names_out`` names them.
    """

    score: Any
    epsilon: Any
    max_epsilon: Any
    delta: Any
    method: Any
    failure_probability: Any
    columns: Any
    unit: Any
    max_rows_per_unit: Any
    rows: Any
    report: Any
    progress: Any
    _classifier: bool
    _reports: tuple[str, ...] = ("coefficients",)

    # Fitting ----------------------------------------------------------------------------------------------------------

    @share_parameters(_FIT)
    @explain_arguments
    def fit(self, X: Any, y: Any = None, *, target: str | None = None) -> Self:
        """Train the model and charge the ledger.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        TargetNotMet
            The score was not reached: it is out of reach, or the cap is spent. The model so far is kept in the estimator,
            and the receipt states the score that it does reach.
        EngineFailed
            The data source failed; the worst case stays charged.
        """
        wanted = _one_target(y, target)
        labels = self._early_classes(wanted)
        dataset, name = table_dataset(
            X,
            wanted,
            columns=self._feature_columns(wanted),
            classes=labels,
            unit=self.unit,
            max_rows_per_unit=self.max_rows_per_unit,
        )
        own = {"unit": dataset.unit, "columns": tuple(dataset.schema)}
        pay = partial(pay_for_query, **(self._payment_terms(self._account_of(X)) | own))
        return self._fit_dataset(dataset, name, pay, labels=labels)

    @share_parameters(_FIT)
    def fit_with(
        self,
        pay: Callable[[Query, Any], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str] | None = None,
        target: str,
    ) -> Self:
        """Train on columns of a dataset and let the caller pay. Call ``Session.fit`` instead."""
        if self.ledger is not None:
            raise InvalidRequest("Expected no ledger together with a session", do="Leave it out")
        if self.unit not in (None, dataset.unit.column):
            raise InvalidRequest(
                "Expected the unit of the session's dataset", got=self.unit, do="Leave unit out; the dataset has one"
            )
        return self._fit_dataset(dataset, target, pay, features, labels=self._early_classes(target))

    def _fit_dataset(
        self,
        dataset: Dataset,
        target: str,
        pay: Callable[[Query, Any], Release[Any]],
        features: Sequence[str] | None = None,
        *,
        labels: Sequence[Any] | None,
    ) -> Self:
        """Plan the training from public facts, let it be paid for, and keep what was released."""
        if dataset.adjacency is not Adjacency.ADD_REMOVE:
            raise InvalidRequest(
                "Expected a dataset whose rows are added or removed",
                do='Describe it with adjacency="add-remove"; its number of rows is then private',
            )
        encoder = read_columns(
            self._feature_columns(target, features), dataset, target=target, unit=dataset.unit.column
        )
        query = self._build_query(dataset, encoder, target, labels)
        remember_columns(self, encoder.names_in, len(encoder.names_in))
        self.encoder_ = encoder  # private levels, once they are found, replace it
        try:
            with limit_threads():
                release = pay(query, dataset)
        except TargetNotMet as missed:
            self._keep_release(missed.release)  # paid for and private: the caller may want it
            raise
        self._keep_release(release)
        return self

    def _build_query(
        self, dataset: Dataset, encoder: TableEncoder, target: str, known: Sequence[Any] | None
    ) -> TrainingChoice:
        """Return the training of public facts and arguments; reads no rows."""
        wanted, epsilon, cap = self._read_terms()
        delta = read_delta(self.delta)
        method = read_method(self.method, delta, classifier=self._classifier)
        classes, bounds = self._read_target(dataset, target, known)
        labels = None if classes is None else tuple(classes.tolist())
        extras = _Extras(self._read_class_weights(labels), self._read_report(labels))
        rows = self._read_rows()
        row = dataset.unit.is_row
        question = f"train {type(self).__name__}"
        common: dict[str, Any] = {
            "question": question,
            "classes": None if labels is None else len(labels),
            "target": wanted,
            "target_bounds": bounds,
            "rows_per_unit": 1 if row else int(dataset.max_rows_per_unit or 1),
            "unit": dataset.unit,
            "public_rows": rows,
            "failure_probability": probability(self.failure_probability, "failure_probability"),
            "progress": RichProgress if check_flag(self.progress, "progress") else None,
        }

        def describe(encoder: TableEncoder, way: str) -> dict[str, Any]:
            """Return how the rows are read, and the terms of a way."""
            _check_width(encoder, rows)
            source = TabularRows.read(dataset, encoder, target, classes=labels)

            def read(_: Any) -> RowBlocks:
                if labels is not None:
                    return lambda: iter(source)
                return lambda: map(partial(_scale_targets, bounds=bounds), source)

            terms = {
                "target column": target,
                **({"target bounds": list(bounds)} if labels is None else {"classes": list(labels)}),
                "columns": list(encoder.names_in),
                "features": encoder.width,
                **({} if row else {"rows per unit, at most": dataset.max_rows_per_unit}),
                "way": way,
            }
            return common | {"read": read, "terms": terms}

        def build(way: TrainingWay, reason: str) -> TableTraining | LevelsFirst | PureTraining:
            """Return the plan of one way."""
            told = f"{way}: {reason}"
            if way == "newton":
                given = (wanted, epsilon or cap, delta)
                return self._plan_newton(dataset, encoder, given, partial(describe, way=told), extras)
            self._refuse_extras(encoder, wanted, extras)
            moments = way == "moments"
            pure = plan_pure_score(cap, classes=self._classifier, refines=moments)
            return PureTraining(
                schedule=plan_pure_epsilon(epsilon, classes=self._classifier) if epsilon else pure,
                shape=EncodedShape.of(encoder),
                moments=moments,
                **describe(encoder, told),
            )

        choice = TrainingChoice(question, method, delta, build)
        choice.plan(dataset, PlanContext())  # what is wrong is said here, before anything is asked of a ledger
        return choice

    def _plan_newton(
        self,
        dataset: Dataset,
        encoder: TableEncoder,
        given: tuple[Target | None, Fraction, Fraction],
        describe: Callable[[TableEncoder], dict[str, Any]],
        extras: _Extras,
    ) -> TableTraining | LevelsFirst:
        """Return the training by Newton steps, after a search for levels if some are private; reads no rows."""
        wanted, cap, delta = given
        each, small, cap, delta = split_for_levels(encoder, cap=cap, delta=delta, fixed=wanted is None)
        weights = extras.class_weights
        before = BALANCED_SHARE if weights is not None and weights.public is None else 0.0
        sides = SideShares(before=before, after=self._make_report(encoder, extras.reported).share)
        if wanted is None:
            schedule = plan_epsilon(cap, delta, sides)
        else:
            schedule = plan_score(cap, delta, numeric=not self._classifier, sides=sides)

        def build_training(encoder: TableEncoder) -> TableTraining:
            return TableTraining(
                schedule=schedule,
                width=encoder.width,
                squared_length=encoder.squared_length,
                indicators=_find_indicators(encoder),
                class_weights=weights,
                report=self._make_report(encoder, extras.reported),
                **describe(encoder),
            )

        def train(levels: Mapping[str, Sequence[str]]) -> TableTraining:
            self.encoder_ = TableEncoder(
                tuple(
                    # A column without a frequent level is "other" throughout.
                    CategoryColumn(column.name, tuple(levels[column.name]) or ("",))
                    if column.name in levels
                    else column
                    for column in encoder.columns
                )
            )
            return build_training(self.encoder_)

        # With private levels the largest number of them is checked, so that nothing is refused after the charge.
        whole = build_training(encoder)
        whole.check()
        if not any(isinstance(column, PrivateLevelColumn) for column in encoder.columns):
            return whole
        return LevelsFirst(
            searches=plan_searches(dataset, encoder, each, small),
            train=train,
            training_cap=schedule.prices.cap,
            question=f"train {type(self).__name__}",
        )

    def _refuse_extras(self, encoder: TableEncoder, wanted: Target | None, extras: _Extras) -> None:
        """Raise ``InvalidRequest`` for what only a training with a delta can do."""
        named = {
            "columns with private levels": any(isinstance(each, PrivateLevelColumn) for each in encoder.columns),
            "class_weight": extras.class_weights is not None,
            "report": bool(extras.reported),
            "calibrate": self._make_report(encoder, extras.reported) != TableReport(),
            "a target for the area under the curve": wanted is not None and wanted.measure is Measure.AUC,
        }
        for name, asked in named.items():
            if asked:
                raise InvalidRequest(
                    f"Expected a delta for {name}",
                    do="Pass delta=1e-6, in an account with a delta, or leave it out",
                )

    def _read_terms(self) -> tuple[Target | None, Fraction | None, Fraction]:
        """Return the score asked for, or the epsilon given, and the cap."""
        asked = self.__dict__["score"]
        wanted = read_score(asked, self.failure_probability, classifier=self._classifier)
        cap = read_cap(self.max_epsilon)
        if (wanted is None) == (self.epsilon is None):
            example = '("accuracy", 0.9)' if self._classifier else '("r2", 0.8)'
            raise InvalidRequest(
                "Expected a score or an epsilon, one of them", do=f"Pass score={example} or epsilon=0.1"
            )
        return wanted, None if wanted is not None else rational(self.epsilon, "epsilon"), cap

    def _read_report(self, labels: Sequence[Any] | None) -> tuple[str, ...]:
        """Return what else is to be released."""
        given = self.report
        listed = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(each, str) and each in self._reports for each in listed):
            raise InvalidRequest(
                f"Expected report to list some of {', '.join(self._reports)}", got=given, do='Pass ["coefficients"]'
            )
        if listed and labels is not None and len(labels) != 2:
            raise InvalidRequest(
                f"Expected two classes for report={list(listed)}", got=f"{len(labels)} classes", do="Leave report out"
            )
        return tuple(listed)

    def _make_report(self, encoder: TableEncoder, reported: Sequence[str]) -> TableReport:
        contrasts = list_contrasts(encoder)[1] if "coefficients" in reported else None
        return TableReport(auc="auc" in reported, contrasts=contrasts)

    def _read_class_weights(self, labels: Sequence[Any] | None) -> ClassWeights | None:
        return None

    def _read_rows(self) -> int | None:
        if self.rows is None:
            return None
        if isinstance(self.rows, bool) or not isinstance(self.rows, int | np.integer) or self.rows < 1:
            raise InvalidRequest("Expected rows to be a whole number >= 1", got=self.rows, do="Pass a public number")
        return int(self.rows)

    def _feature_columns(self, target: Any, features: Sequence[str] | None = None) -> Any:
        """Return the declarations of the features: ``columns`` without the target, or those of some features."""
        columns = self.columns
        if features is not None:
            names = [features] if isinstance(features, str) else list(features)
            declared = columns if isinstance(columns, Mapping) else declare_columns(columns, names)
            return {name: declared.get(name) for name in names}
        if isinstance(columns, Mapping) and isinstance(target, str):
            return {name: each for name, each in columns.items() if name != target}
        return columns

    def _declared_target(self, target: str) -> Any:
        """Return what ``columns`` declares of the target, or None."""
        return self.columns.get(target) if isinstance(self.columns, Mapping) else None

    def _early_classes(self, y: Any) -> Sequence[Any] | None:
        """Return the classes that are known before the table is opened; they decide the type of an untyped target."""
        return None

    def _read_target(
        self, dataset: Dataset, target: str, known: Sequence[Any] | None
    ) -> tuple[NDArray[Any] | None, tuple[float, float]]:
        """Return the classes, or None and the bounds of a numeric target."""
        raise NotImplementedError

    @property
    def _bill_adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    # What was released ------------------------------------------------------------------------------------------------

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def _keep_release(self, release: Release[TableModel]) -> None:
        """Keep a release as the fitted model."""
        self.release_ = release
        self.coef_, self.intercept_ = release.value.coefficients

    def coefficients(self, *, confidence: float = 0.95) -> CoefficientTable:
        """Return the coefficients in the units of the columns, with intervals where they are valid.

        Parameters
        ----------
        confidence : float, default 0.95
            How often an interval contains the coefficient, one by one.

        Returns
        -------
        CoefficientTable
            It prints as text, shows as HTML in a notebook, and ``to_pandas()`` makes a data frame of it.

        Raises
        ------
        InvalidRequest
            The confidence is not between 0 and 1.
        """
        check_is_fitted(self, "release_")
        return CoefficientTable.of(self, confidence)

    def _compute_scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "release_")
        model: TableModel = self.release_.value
        return model.compute_scores(encode_frame(X, self.encoder_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


@dataclass(frozen=True)
class _Extras:
    """What is asked for besides a model: weights of classes, and reports."""

    class_weights: ClassWeights | None
    reported: tuple[str, ...]


def _check_width(encoder: TableEncoder, rows: int | None) -> None:
    """Raise ``InvalidRequest`` if there are too many features for a training, or for the declared number of rows."""
    if encoder.width > _WIDEST:
        raise InvalidRequest(
            f"Expected at most {_WIDEST} features after encoding",
            got=encoder.width,
            do="Declare fewer levels, or leave columns out",
        )
    if rows is not None and rows < encoder.width:
        raise InvalidRequest(
            f"Expected at least as many rows as the {encoder.width} features",
            got=f"rows={rows}",
            do="Declare fewer levels, leave columns out, or correct rows",
        )


def _one_target(y: Any, target: str | None) -> Any:
    """Return the target: a name, or an array."""
    if target is None:
        return y
    if y is not None:
        raise InvalidRequest("Expected y or target, one of them", do="Leave one of them out")
    if not isinstance(target, str):
        raise InvalidRequest("Expected target to be the name of a column", do='Pass target="income"')
    return target


def _scale_targets(rows: RowChunk, *, bounds: tuple[float, float]) -> RowChunk:
    """Return rows whose targets are clipped to the bounds and mapped to [-1, 1]; rows without a target are left out."""
    known = ~np.isnan(rows.targets)
    return RowChunk(rows.features[known], target_numbers(rows.targets[known], *bounds), rows.weights[known])


def _find_indicators(encoder: TableEncoder) -> NDArray[np.bool_]:
    """Return which features are 0 or 1 in every row."""
    parts = [
        np.full(column.width, True)
        if isinstance(column, CategoryColumn | PrivateLevelColumn)
        else np.arange(column.width) > 0
        if isinstance(column, NumberColumn)
        else np.full(column.width, False)
        for column in encoder.columns
    ]
    return np.concatenate(parts)
