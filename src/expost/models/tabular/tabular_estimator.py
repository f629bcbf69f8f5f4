"""What ``Classifier`` and ``Regressor`` share: reading tables, planning a training, and what was released."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from expost.data.row_source import column_names
from expost.models.descent.sgd_estimator import target_numbers
from expost.models.descent.training_watch import RichProgress
from expost.models.estimator import (
    PrivateEstimator,
    check_columns,
    check_flag,
    limit_threads,
    pay_for_query,
    remember_columns,
)
from expost.models.tabular.class_weight import BALANCED_SHARE, ClassWeights
from expost.models.tabular.coefficient_estimates import list_contrasts
from expost.models.tabular.coefficient_table import CoefficientTable
from expost.models.tabular.column_declaration import declare_columns, declared_target, read_columns
from expost.models.tabular.column_encoding import CategoryColumn, NumberColumn
from expost.models.tabular.column_selection import (
    ColumnSelection,
    SelectFirst,
    read_select,
    selection_noise,
    split_for_selection,
)
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.private_levels import LevelsFirst, PrivateLevelColumn, plan_searches, split_for_levels
from expost.models.tabular.promise_margin import PromiseMargin, find_promise_margin
from expost.models.tabular.pure_schedule import plan_pure_epsilon, plan_pure_score
from expost.models.tabular.pure_training import PureTraining
from expost.models.tabular.rung_schedule import SideShares, plan_epsilon, plan_score
from expost.models.tabular.score_sum import read_score
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.table_profile import ChangedBlocks, RowBlocks
from expost.models.tabular.table_report import TableReport
from expost.models.tabular.table_training import TableTraining
from expost.models.tabular.tabular_rows import RowChunk, TabularRows
from expost.models.tabular.tabular_source import encode_frame, name_matrix, stored_names, table_dataset
from expost.models.tabular.training_choice import (
    TrainingChoice,
    TrainingPlan,
    TrainingTerms,
    TrainingWay,
    plan_blank,
    read_delta,
    read_method,
)

__all__ = ["TabularEstimator", "label_of", "read_one_target"]

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
        perturbation, pure, for classes or a number. "moments": moments under Laplace noise, pure, for a number.
        "auto": "newton" with a delta, "objective" without one. The receipt names the way and the reason.
    about : {"rows", "population"}, default "rows"
        Whom the promise of ``score`` is about. "rows": the rows of the table, which the model learns from. "population": what
        the rows are drawn from, independently of each other. Then about 30 % of the rows are held out for one test, whose
        margin includes the error of sampling; for accuracy, log loss, RMSE and MAE, where a unit is a row.
    columns : mapping, sequence or path, optional
        Public declarations of the features: ``{"age": (17, 90), "education": ["school", "college"], "since": (date, date),
        "member": "boolean", "city": "private"}``. The levels of a private column are found in the rows, inside the bill. A
        column that is not in it is not used. A path names a description file, whose unit, target and formulas count too.
        Default: what the dataset declares. See docs/tables.md.
    select : int, optional
        Train with this many of the declared columns: those that vary most with the target, chosen inside the bill from one
        noisy release. Default: all of them.
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
    selected_columns_ : tuple of str
        The columns that the model uses: all declared ones, or those that ``select`` kept.
    """

    score: Any
    epsilon: Any
    max_epsilon: Any
    delta: Any
    method: Any
    failure_probability: Any
    about: Any
    columns: Any
    select: Any
    unit: Any
    max_rows_per_unit: Any
    rows: Any
    report: Any
    progress: Any
    _classifier: bool
    _table_names: tuple[str, ...] | None = None
    """All columns of the table that was passed to ``fit``, for the receipt; None if only the dataset knows them."""
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
        wanted = read_one_target(y, target)
        dataset, name, labels, pay = self._open_table(X, wanted, self._feature_columns(wanted))
        return self._fit_dataset(dataset, name, pay, labels=labels)

    def _open_table(
        self, X: Any, wanted: Any, columns: Any
    ) -> tuple[Dataset, str, Sequence[Any] | None, Callable[[Query, Any], Release[Any]]]:
        """Return a table as a dataset, the name of its target, the classes known so far, and who pays."""
        if wanted is None:
            self._read_vector(None)  # raises
        named = name_matrix(X)
        self._table_names = stored_names(named)
        labels = self._early_classes(wanted)
        dataset, name = table_dataset(
            named,
            wanted,
            columns=columns,
            classes=labels,
            unit=self.unit,
            max_rows_per_unit=self.max_rows_per_unit,
        )
        own = {"unit": dataset.unit, "columns": tuple(dataset.schema)}
        return dataset, name, labels, partial(pay_for_query, **(self._payment_terms(self._account_of(X)) | own))

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
        self._check_session(dataset)
        self._table_names = None
        return self._fit_dataset(dataset, target, pay, features, labels=self._early_classes(target))

    def _check_session(self, dataset: Dataset) -> None:
        """Refuse a ledger or a unit of the model's own where a session pays."""
        if self.ledger is not None:
            raise InvalidRequest("Expected no ledger together with a session", do="Leave it out")
        if self.unit not in (None, dataset.unit.column):
            raise InvalidRequest(
                "Expected the unit of the session's dataset", got=self.unit, do="Leave unit out; the dataset has one"
            )

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
        query = self._plan_fit(dataset, target, features, labels=labels, terms=self._read_terms())
        query.plan(dataset, PlanContext())  # what is wrong is said here, before anything is asked of a ledger
        try:
            with limit_threads():
                release = pay(query, dataset)
        except TargetNotMet as missed:
            self._keep_release(missed.release)  # paid for and private: the caller may want it
            raise
        self._keep_release(release)
        return self

    def _plan_fit(
        self,
        dataset: Dataset,
        target: str,
        features: Sequence[str] | None,
        *,
        labels: Sequence[Any] | None,
        terms: TrainingTerms,
    ) -> TrainingChoice:
        """Return the training of a dataset, and keep what is public about its columns; reads no rows."""
        if dataset.adjacency is not Adjacency.ADD_REMOVE:
            raise InvalidRequest(
                "Expected a dataset whose rows are added or removed",
                do='Describe it with adjacency="add-remove"; its number of rows is then private',
            )
        encoder = read_columns(
            self._feature_columns(target, features), dataset, target=target, unit=dataset.unit.column
        )
        if dataset.unit.column in (target, *encoder.names_in):
            raise InvalidRequest(
                "Expected features and a target besides the id of the unit: what is learned of an id holds for one person",
                got=dataset.unit.column,
                do="Leave that column out, or name another unit",
            )
        query = self._build_query(dataset, encoder, target, labels, terms)
        remember_columns(self, encoder.names_in, len(encoder.names_in))
        self.encoder_ = encoder  # replaced once private levels are found, or columns selected
        return query

    def _build_query(
        self,
        dataset: Dataset,
        encoder: TableEncoder,
        target: str,
        known: Sequence[Any] | None,
        given: TrainingTerms,
    ) -> TrainingChoice:
        """Return the training of public facts and arguments; reads no rows."""
        method = read_method(self.method, given.delta, classifier=self._classifier)
        classes, bounds = self._read_target(dataset, target, known)
        labels = None if classes is None else tuple(classes.tolist())
        extras = _Extras(self._read_class_weights(labels), self._read_report(labels))
        select = read_select(self.select, len(encoder.columns))
        rows = self._read_rows()
        row = dataset.unit.is_row
        of_population = self._read_about(given, extras, row=row)
        if of_population and dataset.distributed:
            raise InvalidRequest(
                'Cannot hold rows out for about="population" where they lie on other machines',
                do='Pass about="rows", or a table that this process can read',
            )
        question = f"train {type(self).__name__}"
        common: dict[str, Any] = {
            "question": question,
            "classes": None if labels is None else len(labels),
            "target": given.target,
            "target_bounds": bounds,
            "rows_per_unit": 1 if row else int(dataset.max_rows_per_unit or 1),
            "unit": dataset.unit,
            "public_rows": rows,
            "failure_probability": given.failure_probability,
            "progress": RichProgress if check_flag(self.progress, "progress") else None,
        }

        def describe(encoder: TableEncoder, way: str) -> dict[str, Any]:
            """Return how the rows are read, and the terms of a way."""
            _check_width(encoder, rows)
            source = TabularRows.read(dataset, encoder, target, classes=labels)
            used = {*encoder.names_in, target, dataset.unit.column}
            unused = [name for name in self._table_names or dataset.schema if name not in used]

            def read(_: Any) -> RowBlocks:
                return source if labels is not None else ChangedBlocks(source, partial(_scale_targets, bounds=bounds))

            terms = {
                "target column": target,
                **({"target bounds": list(bounds)} if labels is None else {"classes": list(labels)}),
                "columns": list(encoder.names_in),
                **({"columns not used": unused} if unused else {}),
                "features": encoder.width,
                **({} if row else {"rows per unit, at most": dataset.max_rows_per_unit}),
                "way": way,
            }
            return common | {"read": read, "terms": terms}

        def build(way: TrainingWay, reason: str) -> TrainingPlan:
            """Return the plan of one way."""
            told = partial(describe, way=f"{way}: {reason}")
            if way == "newton":
                return self._plan_newton(dataset, encoder, given, told, extras, select)
            if of_population:
                raise InvalidRequest(
                    'Expected a delta for about="population"',
                    do="Pass delta=1e-6, in an account with a delta, or leave about out",
                )
            self._refuse_extras(encoder, given.target, extras)
            return self._plan_pure(encoder, given, told, select, moments=way == "moments")

        return TrainingChoice(question, method, given.delta, build, climbs=given.epsilon is None)

    def _plan_newton(
        self,
        dataset: Dataset,
        encoder: TableEncoder,
        given: TrainingTerms,
        describe: Callable[[TableEncoder], dict[str, Any]],
        extras: _Extras,
        select: int | None,
    ) -> TrainingPlan:
        """Return the training by Newton steps, after a search for levels if some are private; reads no rows."""
        fixed = given.epsilon is not None
        each, small, cap, delta = split_for_levels(encoder, cap=given.level, delta=given.delta, fixed=fixed)
        weights = extras.class_weights
        sides = SideShares(
            before=BALANCED_SHARE if weights is not None and weights.public is None else 0.0,
            after=self._make_report(encoder, extras.reported).share,
            first=None if select is None else selection_noise(cap, delta, fixed=fixed),
        )
        if fixed:
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
                laplace=not fixed,
                of_population=self.about == "population",
                **describe(encoder),
            )

        def build_stages(encoder: TableEncoder) -> TableTraining | SelectFirst:
            if select is None:
                self.encoder_ = encoder
                return build_training(encoder)
            return self._select_first(encoder, select, build_training, noise=sides.first)

        def train(levels: Mapping[str, Sequence[str]]) -> TableTraining | SelectFirst:
            # A column without a frequent level is "other" throughout.
            found = (
                CategoryColumn(column.name, tuple(levels[column.name]) or ("",)) if column.name in levels else column
                for column in encoder.columns
            )
            return build_stages(TableEncoder(tuple(found)))

        # With private levels the largest number of them is checked, so that nothing is refused after the charge.
        whole = build_stages(encoder)
        if not any(isinstance(column, PrivateLevelColumn) for column in encoder.columns):
            return whole
        return LevelsFirst(searches=plan_searches(dataset, encoder, each, small), train=train, whole=whole)

    def _plan_pure(
        self,
        encoder: TableEncoder,
        given: TrainingTerms,
        describe: Callable[[TableEncoder], dict[str, Any]],
        select: int | None,
        *,
        moments: bool,
    ) -> PureTraining | SelectFirst:
        """Return the training without a delta; reads no rows."""
        fixed, level, epsilon = given.epsilon is not None, given.level, Fraction(0)
        if select is not None:
            epsilon, level = split_for_selection(level, fixed=fixed)
        if fixed:
            schedule = plan_pure_epsilon(level, classes=self._classifier)
        else:
            schedule = plan_pure_score(level, classes=self._classifier, refines=moments)

        def build_training(encoder: TableEncoder) -> PureTraining:
            return PureTraining(schedule=schedule, shape=EncodedShape.of(encoder), moments=moments, **describe(encoder))

        return (
            build_training(encoder)
            if select is None
            else self._select_first(encoder, select, build_training, epsilon=epsilon)
        )

    def _select_first(
        self, encoder: TableEncoder, picks: int, build_training: Callable[[TableEncoder], Any], **level: Any
    ) -> SelectFirst:
        """Return a training that starts with a selection of columns, at a noise multiplier or an epsilon."""
        whole = build_training(encoder)

        def train(chosen: tuple[str, ...]) -> Any:
            self.encoder_ = TableEncoder(tuple(each for each in encoder.columns if each.name in chosen))
            return build_training(self.encoder_)

        selection = ColumnSelection(
            encoder=encoder, picks=picks, classes=whole.classes, rows_per_unit=whole.rows_per_unit, **level
        )
        return SelectFirst(selection=selection, read=whole.read, train=train, whole=whole)

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

    def _read_terms(self) -> TrainingTerms:
        """Return the score asked for, or the epsilon given, with the cap and the delta."""
        asked = self.__dict__["score"]
        wanted = read_score(asked, self.failure_probability, classifier=self._classifier)
        cap = read_cap(self.max_epsilon)
        if (wanted is None) == (self.epsilon is None):
            example = '("accuracy", 0.9)' if self._classifier else '("r2", 0.8)'
            raise InvalidRequest(
                "Expected a score or an epsilon, one of them", do=f"Pass score={example} or epsilon=0.1"
            )
        epsilon = None if wanted is not None else rational(self.epsilon, "epsilon")
        if epsilon is not None and self.max_epsilon is not None and epsilon > cap:
            raise InvalidRequest(
                "Expected an epsilon of at most max_epsilon",
                got=f"epsilon={self.epsilon}, max_epsilon={self.max_epsilon}",
                do="Leave max_epsilon out, or lower epsilon",
            )
        delta, rows = read_delta(self.delta), self._read_rows()
        if rows is not None and delta * rows > 1:
            raise InvalidRequest(
                "Expected a delta of at most 1 / rows: a larger one would allow a row to be published as it is",
                got=f"delta={self.delta}, rows={rows}",
                do=f"Pass delta={10.0 ** -(len(str(rows)) + 2):g}, or a smaller one",
            )
        failure = probability(self.failure_probability, "failure_probability")
        return TrainingTerms(wanted, epsilon, cap, delta, failure)

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
                f"Expected two classes for report={list(listed)}. Only binary classification is supported for it",
                got=f"{len(labels)} classes",
                do="Leave report out",
            )
        return tuple(listed)

    def _make_report(self, encoder: TableEncoder, reported: Sequence[str]) -> TableReport:
        contrasts = list_contrasts(encoder)[1] if "coefficients" in reported else None
        return TableReport(auc="auc" in reported, contrasts=contrasts)

    def _read_about(self, given: TrainingTerms, extras: _Extras, *, row: bool) -> bool:
        """Return whether the promise is about a population; refuse what has no such promise."""
        if self.about not in ("rows", "population"):
            raise InvalidRequest('Expected about to be "rows" or "population"', got=self.about, do="Leave it out")
        if self.about == "rows":
            return False
        needed = {
            'a score, as in score=("accuracy", 0.8), and no epsilon': given.target is None or given.epsilon is not None,
            "another score than r2 and auc": given.target is not None
            and given.target.measure in (Measure.R2, Measure.AUC),
            "a row as the unit: rows of one person are not drawn independently": not row,
            "no class_weight": extras.class_weights is not None,
        }
        for expected, wrong in needed.items():
            if wrong:
                raise InvalidRequest(
                    f'Expected {expected} for about="population"', do="Change that, or leave about out"
                )
        return True

    def _read_class_weights(self, labels: Sequence[Any] | None) -> ClassWeights | None:
        return None

    def _read_rows(self, given: Any = None) -> int | None:
        rows = self.rows if given is None else given
        if rows is None:
            return None
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
            raise InvalidRequest("Expected rows to be a whole number >= 1", got=rows, do="Pass a public number")
        return int(rows)

    @explain_arguments
    def find_plan_margin(self, plan: Any, *, rows: int | None = None) -> PromiseMargin | None:
        """Return how good a model must be for the test of a planned fit. Call ``Session.price`` instead.

        Parameters
        ----------
        plan : TrainingPlan
            The plan of a fit.
        rows : int, optional
            The number of rows, or of persons, or about that. Default: the declared one.

        Returns
        -------
        PromiseMargin or None
            None if the plan has no score to reach, its margin is not known before, or the number of rows is not.
        """
        return find_promise_margin(plan, self._read_rows(rows))

    def _find_margin(
        self, rows: Any, bounds: tuple[float, float] = (-1.0, 1.0), spread: float | None = None
    ) -> PromiseMargin:
        """Return the margin of the promise for a number of rows; reads no rows."""
        count = self._read_rows(rows)
        if count is None:
            raise InvalidRequest("Expected the number of rows, or about that", do="Pass rows=20_000")
        given = self._read_terms()
        method = read_method(self.method, given.delta, classifier=self._classifier)
        per_unit = 1 if self.unit is None else int(self.max_rows_per_unit or 1)
        plan = plan_blank(given, method, classifier=self._classifier, target_bounds=bounds, rows_per_unit=per_unit)
        if self._read_about(given, _Extras(None, ()), row=self.unit is None) and isinstance(plan, TableTraining):
            plan = replace(plan, of_population=True)
        found = None if given.target is None else find_promise_margin(plan, count, spread)
        if found is None:
            known = "accuracy or log_loss" if self._classifier else "r2, rmse or mae"
            raise InvalidRequest(
                f"Expected a score whose margin is known before the training: {known}",
                got=self.__dict__["score"],
                do='Pass score=("accuracy", 0.9)' if self._classifier else 'Pass score=("r2", 0.8)',
            )
        return found

    def _feature_columns(self, target: Any, features: Sequence[str] | None = None) -> Any:
        """Return the declarations of the features: ``columns`` without the target, or those of some features."""
        columns = self.columns
        if features is not None:
            names = [features] if isinstance(features, str) else list(features)
            declared = columns if isinstance(columns, Mapping) else declare_columns(columns, names)
            return {name: declared.get(name) for name in names}
        if isinstance(columns, Mapping):
            return {name: each for name, each in columns.items() if name != label_of(target)}
        return columns

    def _declared_target(self, target: str) -> Any:
        """Return what ``columns`` declares of the target, or None."""
        return declared_target(self.columns, target)

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
        self.selected_columns_ = self.encoder_.names_in
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
        shape: Any = getattr(X, "shape", ())
        if column_names(X) is None and len(shape) == 2:
            check_columns(self, None, int(shape[1]))
        model: TableModel = self.release_.value
        return model.compute_scores(encode_frame(X, self.encoder_, names=tuple(self.feature_names_in_)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
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


def label_of(target: Any) -> str | None:
    """Return the name of a target: a column's, or that of a named column of pandas or polars.

    >>> label_of("income"), label_of([1, 2])
    ('income', None)
    """
    name = target if isinstance(target, str) else getattr(target, "name", None)
    return name if isinstance(name, str) and name else None


def read_one_target(y: Any, target: str | None) -> Any:
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
