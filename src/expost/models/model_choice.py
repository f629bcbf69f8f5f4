"""A private choice among the settings of a model: one bill for all that is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import partial
from itertools import repeat
from typing import Any, Generic, NoReturn, TypeVar, cast

from numpy.typing import NDArray
from sklearn.base import clone

from expost.core import InvalidRequest, Measure, Release, explain_arguments, share_parameters
from expost.core.question_cap import read_cap
from expost.core.rational import probability
from expost.data import Dataset
from expost.models.descent.feature_grid import FeatureGrid, GridRows
from expost.models.descent.gradient_model import GivenRows, PrivateGradientModel
from expost.models.descent.linear_learner import LinearProblem, LinearTable, default_steps
from expost.models.descent.training_order import TrainingOrder
from expost.models.descent.training_rows import GatheredRows
from expost.models.descent.training_schedule import Schedule
from expost.models.descent.training_watch import RichProgress
from expost.models.descent.tuning_plan import TuningPlan, TuningSetting, doubling_ladder
from expost.models.estimator import FITTED_ROWS, WRONG_ARGUMENTS, limit_threads, pay_for_query, read_feature_names
from expost.models.tabular.table_choice import TableChoice
from expost.models.tabular.tabular_estimator import TabularEstimator, read_one_target

__all__ = ["OneOf", "SharedRows", "fit_one_of"]

Model = TypeVar("Model", bound=PrivateGradientModel | TabularEstimator)
Pay = Callable[[Any, Any], Release[Any]]

_LEFT_OUT = ("epsilon", "noise_multiplier", "score", "phases", "validation_share")
_SHARED = (
    *("classes", "target_bounds", "class_weight", "unit", "max_rows_per_unit", "rows"),
    *("accountant", "progress", "ledger", "account", "simulation_seed"),
)
_SHARE = 0.2  # of the rows, for tests of models trained by gradient descent
_RAISED = """
InvalidRequest, BudgetExceeded
    Before the data is touched; nothing is spent.
TargetNotMet
    No model reached the score.
"""
_MOST_LEVELS = 30  # each is half of the next


class SharedRows:
    """Private rows that several problems read, encoded once for all problems with the same grid.

    Tables are made before anything is tried, so the time that takes depends on the settings alone and does not reveal
    which of them are tried.
    """

    def __init__(self, features: Any, targets: NDArray[Any]) -> None:
        self._features, self._targets = features, targets
        self._encoded: dict[FeatureGrid, GridRows] = {}

    def table(self, problem: LinearProblem) -> LinearTable:
        if problem.grid not in self._encoded:
            self._encoded[problem.grid] = problem.grid.encode_rows(self._features)
        return LinearTable(problem, GatheredRows(self._encoded[problem.grid], self._targets))

    def __repr__(self) -> str:
        return "<private rows shared by settings>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private rows cannot be pickled.")


@share_parameters(raises=WRONG_ARGUMENTS)
@dataclass(frozen=True, eq=False)
class OneOf(Generic[Model]):
    """Several models under one bill: the first that reaches a score, or the best at a given epsilon.

    With a ``score`` models are tried in random order at rising privacy levels, and the first that reaches it is kept. How many were tried, and which failed, costs nothing and is not revealed: the bill is at most about twice the level
    that succeeded. For the same reason ``TargetNotMet`` carries none of the models that failed. Every level is left
    with probability 1/2 before anything is tried at it, so one ladder in 2^levels tries nothing. A ladder that was
    stopped cannot be resumed, so no checkpoint is written; it stays charged at its cap
    (docs/proofs/black-box-ladder.md). Models of tables are tested on all rows, others on rows that are held out.

    With an ``epsilon``, for ``Classifier`` and ``Regressor``, every model is trained with an equal share of it, and the one
    with the best measured score is kept. Shares of Gaussian noise add up in squares: each of four models has the noise of
    about half the epsilon.

    A session pays for it like for any estimator: ``session.fit(OneOf(...), features=[...], target="column")``.

    Parameters
    ----------
    models : sequence of Classifier, Regressor, SGDClassifier or SGDRegressor
        Models of one kind that differ in settings (columns, select, method, clip, steps, learning_rate, ...). They must not
        state an epsilon, a score or a noise multiplier; classes, class weights, unit, rows, ledger and seed are the same in
        all.
    score : tuple of str and float, optional
        The accuracy asked for, such as ``("accuracy", 0.9)`` or ``("rmse", 0.1)``. Give this or ``epsilon``.
    epsilon : float, optional
        The price of the whole choice, for models of tables.
    max_epsilon : float, optional
        The most that the choice may cost.
    delta : float, default 1e-6
        The delta of the bill; 0 for models of tables that are pure.
    levels : int, default 5
        The number of privacy levels, each twice the last; from 1 to 30.
    failure_probability : float, default 0.1
        How often the score may be missed although it is reported as reached.
    validation_share : float, optional
        The share of the rows that is kept for tests of models trained by gradient descent. Default: 0.2.
    fallback : int, optional
        The index of a model, trained by gradient descent, that is trained once more at the highest level after a miss and
        comes with the error; a miss then costs the cap.

    Examples
    --------
    >>> import numpy as np
    >>> from expost.models.descent.sgd_estimator import SGDClassifier
    >>> public = {"classes": [0, 1], "rows": 20_000, "feature_bound": 3.0, "simulation_seed": 1}
    >>> models = [SGDClassifier(steps=20, clip=clip, **public) for clip in (0.1, 1)]
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = OneOf(models, score=("accuracy", 0.9), max_epsilon=2.0).fit(X, y)
    >>> model.receipt_.outcome.value, model.receipt_.epsilon <= 2.0
    ('tested', True)
    """

    models: Sequence[Model]
    _: KW_ONLY
    score: tuple[str, float] | None = None
    epsilon: float | None = None
    max_epsilon: float | None = None
    delta: float = 1e-6
    levels: int = 5
    failure_probability: float = 0.1
    validation_share: float | None = None
    fallback: int | None = None

    @share_parameters(FITTED_ROWS, raises=_RAISED)
    @explain_arguments
    def fit(self, X: Any, y: Any = None, *, target: str | None = None) -> Model:
        """Return the model that reached the score, fitted. The ledger, account and seed of the models are used."""
        tried = self._copy_models()
        given = read_one_target(y, target)
        if isinstance(tried, TableChoice):
            return cast(Model, tried.fit(X, given))
        account = tried[0]._account_of(X)
        return self._fit_tried(tried, X, given, None, partial(pay_for_query, **tried[0]._payment_terms(account)))

    @share_parameters(FITTED_ROWS)
    def fit_with(self, pay: Pay, dataset: Dataset, *, features: Sequence[str] | None = None, target: str) -> Model:
        """Fit to columns of a dataset and let the caller pay. Call ``Session.fit`` instead."""
        tried = self._copy_models()
        if isinstance(tried, TableChoice):
            return cast(Model, tried.fit_with(pay, dataset, features=features, target=target))
        tried[0]._check_unpaid()
        return self._fit_tried(tried, dataset, target, read_feature_names(features), pay)

    def _fit_tried(self, tried: list[Any], X: Any, y: Any, features: tuple[str, ...] | None, pay: Pay) -> Model:
        given = tried[0]._read_given(X, y, features)
        if not given.unit.is_row:
            raise InvalidRequest(
                "Expected single rows to choose among models trained by gradient descent: some are held out for a test",
                got=str(given.unit),
                do="Pass models of expost.Classifier or expost.Regressor",
            )
        if given.far:
            raise InvalidRequest(
                "Expected rows that can be read here to choose among models trained by gradient descent: some are held out",
                do="Pass models of expost.Classifier or expost.Regressor, or read the columns into memory first",
            )
        for other in tried[1:]:
            other.__dict__ |= {name: value for name, value in vars(tried[0]).items() if name.endswith("_")}
        problems = [model._build_problem(given, ladder=False) for model in tried]
        request = self._build_query(tried, given, problems)
        for (number, level), schedule in request.schedules.items():
            _check_trainable(number, problems[number], level, schedule)
        with limit_threads():
            release = pay(request, given.data)
        best = tried[[setting.name for setting in request.settings].index(release.receipt.terms["setting"])]
        best._keep_release(release, None)
        return cast(Model, best)

    def _build_query(self, tried: list[Any], given: GivenRows, problems: Sequence[LinearProblem]) -> TuningPlan:
        given_share = _SHARE if self.validation_share is None else self.validation_share
        first, share = tried[0], probability(given_share, "validation_share")
        orders = [model._build_order(given.width, given.rows) for model in tried]
        aim = orders[0].build_target()
        if aim.measure is Measure.R2:
            raise InvalidRequest(
                "Expected an rmse to choose among models trained by gradient descent: they are tested on rows held out",
                got="r2",
                do='Pass score=("rmse", ...), or models of expost.Regressor, which are tested on all rows',
            )
        cap, delta = read_cap(self.max_epsilon), probability(self.delta, "delta")
        return TuningPlan(
            question=f"train one of {len(tried)} {type(first).__name__}",
            settings=tuple(map(_build_setting, range(len(tried)), orders, problems, repeat(share))),
            ladder=doubling_ladder(cap, delta, levels=self._check_levels(), fallback=self.fallback is not None),
            target=aim,
            rule=first._build_rule(aim),
            validation_share=share,
            accountant=first.accountant,
            read=lambda data: SharedRows(*given.gathered(data)),
            fallback=self._check_fallback(len(tried)),
            progress=RichProgress if first.progress else None,
        )

    def _copy_models(self) -> list[Any] | TableChoice:
        """Return copies of the models, each with the score to reach or the epsilon to spend."""
        models: Sequence[Any] = self.models
        if isinstance(models, str) or not isinstance(models, Sequence) or not models:
            raise InvalidRequest("Expected a list of models to choose from", do="Pass [Classifier(...), ...]")
        tables = all(isinstance(model, TabularEstimator) for model in models)
        if not tables and not all(isinstance(model, PrivateGradientModel) for model in models):
            raise InvalidRequest(
                "Expected models of tables, or models trained by gradient descent",
                got=_name_kinds(models),
                do="Pass Classifier, Regressor, SGDClassifier or SGDRegressor",
            )
        left_out = [name for name in _LEFT_OUT if name in models[0].get_params()]
        for model in models:
            terms = model.get_params()
            if any(terms.get(name) is not None for name in left_out):
                raise InvalidRequest(f"Expected models without {', '.join(left_out)}", do="Leave them out")
            if terms.get("checkpoint") is not None:
                raise InvalidRequest(
                    "Expected models without a checkpoint",
                    do="Leave it out: a ladder that was stopped cannot be resumed",
                )
        if any(_shared_terms(model) != _shared_terms(models[0]) for model in models):
            shared = [name for name in _SHARED if name in models[0].get_params()]
            raise InvalidRequest(
                f"Expected models of one kind, with the same {', '.join(shared)}",
                do="Let them differ in other settings",
            )
        asked = {name: getattr(self, name) for name in ("score", "max_epsilon", "delta", "failure_probability")}
        if tables:
            if any(model.about == "population" for model in models):
                raise InvalidRequest(
                    "Expected models about the rows of the table: rows held out for a population test one model only",
                    do="Leave about out, or fit one model",
                )
            self._check_table_terms()
            copies = [clone(model).set_params(epsilon=self.epsilon, **asked) for model in models]
            return TableChoice(copies, self._check_levels())
        if self.epsilon is not None or self.score is None:
            raise InvalidRequest(
                "Expected a score and no epsilon with models trained by gradient descent",
                do='Pass score=("accuracy", 0.9), or models of tables, Classifier or Regressor',
            )
        # An attempt runs to its end, like a training without a score.
        usual = [default_steps(model.solver) if model.steps is None else model.steps for model in models]
        return [clone(model).set_params(steps=steps, **asked) for model, steps in zip(models, usual, strict=True)]

    def _check_table_terms(self) -> None:
        if self.validation_share is not None or self.fallback is not None:
            raise InvalidRequest(
                "Expected no validation_share and no fallback with models of tables: they are tested on all rows",
                do="Leave them out; after a miss, fit one model with an epsilon",
            )

    def _check_levels(self) -> int:
        if isinstance(self.levels, bool) or not isinstance(self.levels, int) or not 1 <= self.levels <= _MOST_LEVELS:
            raise InvalidRequest(
                f"Expected levels to be a whole number from 1 to {_MOST_LEVELS}", got=self.levels, do="Pass e.g. 5"
            )
        return self.levels

    def _check_fallback(self, models: int) -> int:
        number = 0 if self.fallback is None else self.fallback
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < models:
            raise InvalidRequest(
                "Expected fallback to be the number of a model", got=self.fallback, do="Pass 0 for the first one"
            )
        return number


def _name_kinds(models: Sequence[Any]) -> str:
    return ", ".join(dict.fromkeys(type(model).__name__ for model in models))


@share_parameters(OneOf, OneOf.fit, raises=_RAISED)
@explain_arguments
def fit_one_of(
    models: Sequence[Model],
    X: Any,
    y: Any = None,
    *,
    score: tuple[str, float] | None = None,
    epsilon: float | None = None,
    max_epsilon: float | None = None,
    delta: float = 1e-6,
    levels: int = 5,
    failure_probability: float = 0.1,
    validation_share: float | None = None,
    fallback: int | None = None,
    target: str | None = None,
) -> Model:
    """Fit one of several models under one bill: the first that reaches a score, or the best at a given epsilon.

    Equivalent to ``OneOf(models, score=..., ...).fit(X, y)``.

    Returns
    -------
    Classifier, Regressor, SGDClassifier or SGDRegressor
        One of the models, fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from expost.models.descent.sgd_estimator import SGDClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> public = {"classes": [0, 1], "rows": 20_000, "feature_bound": 3.0, "simulation_seed": 1}
    >>> models = [SGDClassifier(steps=20, clip=clip, **public) for clip in (0.1, 1)]
    >>> model = fit_one_of(models, X, y, score=("accuracy", 0.9), max_epsilon=2.0)
    >>> model.receipt_.outcome.value, model.receipt_.epsilon <= 2.0
    ('tested', True)
    """
    return OneOf(
        models,
        score=score,
        epsilon=epsilon,
        max_epsilon=max_epsilon,
        delta=delta,
        levels=levels,
        failure_probability=failure_probability,
        validation_share=validation_share,
        fallback=fallback,
    ).fit(X, y, target=target)


def _check_trainable(number: int, problem: LinearProblem, level: Fraction, schedule: Schedule) -> None:
    try:
        problem.check(schedule)
    except InvalidRequest:
        raise InvalidRequest(
            "Expected models that can be trained at every level",
            got=f"model {number} at epsilon {float(level):.2g}",
            do="Raise its clip, lower its regularization, lower levels or raise max_epsilon",
        ) from None


def _shared_terms(model: Any) -> list[Any]:
    """Return the terms that must be equal in all models."""
    terms = model.get_params()
    return [type(model), *(_as_lists(terms[name]) for name in _SHARED if name in terms)]


def _as_lists(value: Any) -> Any:
    """Convert sequences and arrays to lists, which are equal where their values are."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {key: _as_lists(each) for key, each in value.items()}
    return [_as_lists(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def _build_setting(number: int, order: TrainingOrder, problem: LinearProblem, share: Fraction) -> TuningSetting:
    return TuningSetting(f"model {number}", lambda rows: rows.table(problem), order.draw_from(share), order.steps)
