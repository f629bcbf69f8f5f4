"""``Classifier`` and ``Regressor``: models of mixed tables, to the score that is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from expost.core import (
    Adjacency,
    InvalidRequest,
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
from expost.data.canonical_cell import Kind
from expost.data.value_place import label_codes
from expost.models.descent.sgd_estimator import target_numbers
from expost.models.descent.training_watch import RichProgress
from expost.models.estimator import (
    OBSERVED,
    PREDICTED_ROWS,
    PrivateEstimator,
    ScoreParameter,
    check_flag,
    limit_threads,
    pay_for_query,
    read_observed_classes,
    read_target_bounds,
    remember_columns,
)
from expost.models.tabular.column_declaration import read_columns
from expost.models.tabular.column_encoding import CategoryColumn, NumberColumn
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.pure_schedule import plan_pure_epsilon, plan_pure_score
from expost.models.tabular.pure_training import PureTraining
from expost.models.tabular.rung_schedule import plan_epsilon, plan_score
from expost.models.tabular.score_sum import clip_predictions, compute_chances, read_score
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.table_profile import RowBlocks
from expost.models.tabular.table_training import TableTraining
from expost.models.tabular.tabular_rows import RowChunk, TabularRows
from expost.models.tabular.tabular_source import encode_frame, table_dataset
from expost.models.tabular.training_choice import TrainingChoice, TrainingWay, read_delta, read_method

__all__ = ["Classifier", "Regressor", "TabularEstimator"]

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
        "member": "boolean"}``. A column that is not in it is not used. Default: what the dataset or its description
        declares. See docs/tables.md.
    unit : str, optional
        The column whose value names a person. Default: that of a ``Dataset``, or one row.
    max_rows_per_unit : int, optional
        The most rows of one person that are used; they share one weight.
    rows : int, optional
        The number of rows, or of persons, if it is public. Default: a noisy count, which is part of the bill.
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
    progress: Any
    _classifier: bool

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
        pay = partial(pay_for_query, **(self._payment_terms(self._account_of(X)) | {"unit": dataset.unit}))
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
        if encoder.width > _WIDEST:
            raise InvalidRequest(
                f"Expected at most {_WIDEST} features after encoding",
                got=encoder.width,
                do="Declare fewer levels, or leave columns out",
            )
        plan = self._build_plan(dataset, encoder, target, labels)
        remember_columns(self, encoder.names_in, len(encoder.names_in))
        self.encoder_ = encoder
        try:
            with limit_threads():
                release = pay(plan, dataset)
        except TargetNotMet as missed:
            self._keep_release(missed.release)  # paid for and private: the caller may want it
            raise
        self._keep_release(release)
        return self

    def _build_plan(
        self, dataset: Dataset, encoder: TableEncoder, target: str, known: Sequence[Any] | None
    ) -> TrainingChoice:
        """Return the training of public facts and arguments; reads no rows."""
        wanted, epsilon, cap = self._read_terms()
        delta = read_delta(self.delta)
        method = read_method(self.method, delta, classifier=self._classifier)
        classes, bounds = self._read_target(dataset, target, known)
        labels = None if classes is None else tuple(classes.tolist())
        source = TabularRows.read(dataset, encoder, target, classes=labels)

        def read(_: Any) -> RowBlocks:
            if labels is not None:
                return lambda: iter(source)
            return lambda: map(partial(_scale_targets, bounds=bounds), source)

        row = dataset.unit.is_row
        question = f"train {type(self).__name__}"
        common: dict[str, Any] = {
            "question": question,
            "read": read,
            "classes": None if labels is None else len(labels),
            "target": wanted,
            "target_bounds": bounds,
            "rows_per_unit": 1 if row else int(dataset.max_rows_per_unit or 1),
            "unit": dataset.unit,
            "public_rows": self._read_rows(),
            "failure_probability": probability(self.failure_probability, "failure_probability"),
            "progress": RichProgress if check_flag(self.progress, "progress") else None,
        }
        terms = {
            "target column": target,
            **({"target bounds": list(bounds)} if labels is None else {"classes": list(labels)}),
            "columns": list(encoder.names_in),
            "features": encoder.width,
            **({} if row else {"rows per unit, at most": dataset.max_rows_per_unit}),
        }

        def build(way: TrainingWay, reason: str) -> TableTraining | PureTraining:
            """Return the plan of one way."""
            told = terms | {"way": f"{way}: {reason}"}
            if way == "newton":
                numeric = not self._classifier
                schedule = plan_epsilon(epsilon, delta) if epsilon else plan_score(cap, delta, numeric=numeric)
                return TableTraining(
                    schedule=schedule,
                    width=encoder.width,
                    squared_length=encoder.squared_length,
                    indicators=_find_indicators(encoder),
                    terms=told,
                    **common,
                )
            moments = way == "moments"
            pure = plan_pure_score(cap, classes=self._classifier, refines=moments)
            return PureTraining(
                schedule=plan_pure_epsilon(epsilon, classes=self._classifier) if epsilon else pure,
                shape=EncodedShape.of(encoder),
                moments=moments,
                terms=told,
                **common,
            )

        choice = TrainingChoice(question, method, delta, build)
        choice.plan(dataset, PlanContext())  # what is wrong is said here, before anything is asked of a ledger
        return choice

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
            declared = columns if isinstance(columns, Mapping) else {}
            if columns is not None and not isinstance(columns, Mapping):
                raise InvalidRequest("Expected features or columns, one of them", do="Leave one of them out")
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


@share_parameters(TabularEstimator, PrivateEstimator)
class Classifier(ClassifierMixin, TabularEstimator):  # type: ignore[misc]
    """Classify the rows of a mixed table, as privately as the score allows.

    A linear model (logistic, or softmax over several classes) of numbers, categories, flags and dates is trained by Newton
    steps with Gaussian noise, or by objective perturbation if ``delta`` is 0. Adjacency is add/remove of one row, or of one
    person with all rows (``unit``).

    Parameters
    ----------
    classes : sequence or "observed", optional
        The labels, as public knowledge; a row with another label is never predicted correctly. Default: what ``columns``
        or the dataset declares of the target, or False and True for a boolean one. ``"observed"`` declares it public which
        labels occur and reads them.

    Attributes
    ----------
    classes_ : ndarray
        The classes.

    See Also
    --------
    expost.LogisticRegression : objective perturbation with every number by hand, for two classes.
    expost.SGDClassifier : every setting of the training by hand.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age, job = rng.integers(18, 80, 20_000), rng.choice(["a", "b"], 20_000)
    >>> table = {"age": age, "job": job, "rich": (age > 40) ^ (job == "b") & (age < 60)}
    >>> columns = {"age": (18, 80), "job": ["a", "b"], "rich": [False, True]}
    >>> model = Classifier(score=("accuracy", 0.7), columns=columns).fit(table, target="rich")
    >>> model.receipt_.outcome.value, model.receipt_.epsilon < 0.5
    ('tested', True)
    """

    _classifier = True
    classes: Any

    @explain_arguments
    def __init__(
        self,
        *,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        max_epsilon: float | None = None,
        delta: float = 1e-6,
        method: str = "auto",
        failure_probability: float = 0.1,
        columns: Any = None,
        classes: Sequence[Any] | Literal["observed"] | None = None,
        unit: str | None = None,
        max_rows_per_unit: int | None = None,
        rows: int | None = None,
        ledger: str | None = None,
        account: str | None = None,
        progress: bool = False,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    def _early_classes(self, y: Any) -> Sequence[Any] | None:
        if self._labels_are_public:
            if isinstance(y, str) or y is None:
                raise InvalidRequest(
                    "Expected a list of classes: labels in a table are read only after the charge",
                    got=OBSERVED,
                    do="Pass classes=[...], the public ones",
                )
            return list(read_observed_classes(self._read_vector(y)).tolist())
        declared = self._declared_target(y) if isinstance(y, str) else None
        found = self.classes if self.classes is not None else declared
        if found is None:
            return None
        if isinstance(found, str | bytes) or not (isinstance(found, Sequence) or hasattr(found, "__array__")):
            raise InvalidRequest("Expected a list of classes", got=found, do="Pass classes=[...], the public ones")
        listed: Sequence[Any] = np.asarray(found).tolist()
        return listed

    def _read_target(
        self, dataset: Dataset, target: str, known: Sequence[Any] | None
    ) -> tuple[NDArray[Any] | None, tuple[float, float]]:
        if known is None:
            known = dataset.categories.get(target)
        if known is None and dataset.schema.kind(target) is Kind.BOOLEAN:
            known = [False, True]
        if known is None:
            raise InvalidRequest(
                f"Expected the classes of {target!r} as public knowledge",
                do=f'Pass classes=[...], or add "{target}": [...] to columns',
            )
        self.classes_ = np.asarray(known)
        return self.classes_, (-1.0, 1.0)

    @share_parameters(PREDICTED_ROWS)
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return one score per class and row; for two classes one per row, positive for the second class."""
        scores = self._compute_scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @share_parameters(PREDICTED_ROWS)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of ``classes_``; none is below 0.002."""
        return compute_chances(self._compute_scores(X).T).T

    @share_parameters(PREDICTED_ROWS)
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of each row."""
        scores = self._compute_scores(X)
        chosen = (scores[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    @share_parameters(PREDICTED_ROWS)
    def _score_accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that are predicted correctly; a label that is not a class never is."""
        predicted = self.predict(X)
        told = label_codes(self._read_true_targets(y, predicted), self.classes_)
        right = label_codes(predicted, self.classes_) == told
        return float(np.average(right, weights=sample_weight))

    score = ScoreParameter(_score_accuracy)


@share_parameters(TabularEstimator, PrivateEstimator)
class Regressor(RegressorMixin, TabularEstimator):  # type: ignore[misc]
    """Predict a number for the rows of a mixed table, as privately as the score allows.

    A linear model of numbers, categories, flags and dates is trained by Newton steps with Gaussian noise, or by objective
    perturbation if ``delta`` is 0. Adjacency is add/remove of one row, or of one person with all rows (``unit``). Rows
    without a target are left out.

    Parameters
    ----------
    target_bounds : (low, high) or float, optional
        Public bounds of the target; targets and predictions are clipped to them. Default: what ``columns`` or the dataset
        declares.

    See Also
    --------
    expost.Ridge : regression to an excess risk.
    expost.SGDRegressor : every setting of the training by hand.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age, job = rng.integers(18, 80, 20_000), rng.choice(["a", "b"], 20_000)
    >>> table = {"age": age, "job": job, "pay": age + 20 * (job == "b") + rng.normal(0, 5, 20_000)}
    >>> columns = {"age": (18, 80), "job": ["a", "b"], "pay": (0, 120)}
    >>> model = Regressor(score=("r2", 0.8), columns=columns).fit(table, target="pay")
    >>> model.receipt_.outcome.value, model.receipt_.epsilon < 0.5
    ('tested', True)
    """

    _classifier = False
    target_bounds: Any

    @explain_arguments
    def __init__(
        self,
        *,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        max_epsilon: float | None = None,
        delta: float = 1e-6,
        method: str = "auto",
        failure_probability: float = 0.1,
        columns: Any = None,
        target_bounds: tuple[float, float] | float | None = None,
        unit: str | None = None,
        max_rows_per_unit: int | None = None,
        rows: int | None = None,
        ledger: str | None = None,
        account: str | None = None,
        progress: bool = False,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    _bounds: tuple[float, float]

    def _read_target(
        self, dataset: Dataset, target: str, known: Sequence[Any] | None
    ) -> tuple[NDArray[Any] | None, tuple[float, float]]:
        found = self.target_bounds
        if found is None:
            found = self._declared_target(target)
        if isinstance(found, NumberColumn):
            found = (found.low, found.high)
        if found is None:
            found = dataset.bounds.get(target)
        if found is None:
            raise InvalidRequest(
                f"Expected bounds of the target {target!r} as public knowledge: it would be clipped to wrong ones silently",
                do=f'Pass target_bounds=(LOW, HIGH), or add "{target}": (LOW, HIGH) to columns',
            )
        self._bounds = read_target_bounds(found)
        return None, self._bounds

    @share_parameters(PREDICTED_ROWS)
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted target of each row, clipped to the target's bounds."""
        scores = self._compute_scores(X)[:, 0]
        (low, high), model = self._bounds, self.release_.value
        inside = clip_predictions(scores, model.profile, model.reach)
        return inside * ((high - low) / 2) + (high + low) / 2

    @share_parameters(PREDICTED_ROWS)
    def _score_r2(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions; targets are clipped to the bounds as in training."""
        predicted, (low, high) = self.predict(X), self._bounds
        told = target_numbers(self._read_true_targets(y, predicted), low, high) * ((high - low) / 2) + (high + low) / 2
        return float(r2_score(told, predicted, sample_weight=sample_weight))

    score = ScoreParameter(_score_r2)

    def _keep_release(self, release: Release[TableModel]) -> None:
        super()._keep_release(release)
        (low, high), profile = self._bounds, release.value.profile
        half, middle = (high - low) / 2, (high + low) / 2
        self.coef_ = self.coef_[0] * (profile.target_spread * half)
        self.intercept_ = (self.intercept_[0] * profile.target_spread + profile.target_middle) * half + middle


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
        if isinstance(column, CategoryColumn)
        else np.arange(column.width) > 0
        if isinstance(column, NumberColumn)
        else np.full(column.width, False)
        for column in encoder.columns
    ]
    return np.concatenate(parts)
