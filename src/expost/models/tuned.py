"""Choosing the settings of a model privately: one bill for all that is tried."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeVar

from sklearn.base import clone
from sklearn.utils.validation import validate_data

from expost.core import InvalidRequest
from expost.core.rational import probability, rational
from expost.data.matrix import column_names
from expost.learning.sgd.tuning import Setting, TuningRequest, doubling_ladder
from expost.learning.sgd.validation import ScoreRule
from expost.models.estimator import from_arrow
from expost.models.gradient_model import PrivateGradientModel

__all__ = ["fit_one_of"]

Model = TypeVar("Model", bound=PrivateGradientModel)


def fit_one_of(
    models: Sequence[Model],
    X: Any,
    y: Any = None,
    *,
    target: tuple[str, float],
    max_epsilon: float = 1.0,
    delta: float = 1e-6,
    levels: int = 5,
    failure_probability: float = 0.1,
    validation_share: float = 0.2,
) -> Model:
    """The first of several models, tried in random order at rising privacy levels, that reaches a target; fitted.

    ``models`` differ in settings (clip, steps, learning_rate, bounds, batches, ...) and say nothing of epsilon, target or
    noise. How many were tried, and which failed, costs nothing and is not told: the bill is at most about twice the
    level that succeeded. The ledger, account and simulation seed are those of the first model. ``TargetNotMet`` carries no model.

    >>> import numpy as np
    >>> from expost.models.sgd import SGDClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> models = [SGDClassifier(classes=[0, 1], rows=20_000, feature_bound=3.0, steps=20, clip=clip) for clip in (0.01, 1)]
    >>> model = fit_one_of(models, X, y, target=("accuracy", 0.9), max_epsilon=2.0)
    >>> model.receipt_.outcome.value, model.receipt_.epsilon <= 2.0
    ('tested', True)
    """
    chosen = [clone(model) for model in models]
    if len({(type(model), _labels(model)) for model in chosen}) != 1:
        raise InvalidRequest(
            "Expected models of one kind, with the same classes or target bounds",
            do="Let them differ in other settings",
        )
    for model in chosen:
        if any(value is not None for value in (model.epsilon, model.noise_multiplier, model.target)):
            raise InvalidRequest("Expected models without epsilon, noise_multiplier or target", do="Leave them out")
        model.set_params(target=target, max_epsilon=max_epsilon, delta=delta, failure_probability=failure_probability)
    share = probability(validation_share, "validation_share")
    first, names = chosen[0], column_names(X)
    matrix = from_arrow(X)
    for model in chosen:
        matrix = validate_data(model, matrix, accept_sparse="csr", dtype="numeric", ensure_all_finite=False)
        numbers = model._targets(y)  # of equal classes or bounds, hence the same for all
    order = first._order(matrix.shape[1], matrix.shape[0])
    aim = order.aim()
    request = TuningRequest(
        question=f"train one of {len(chosen)} {type(first).__name__}",
        settings=tuple(_setting(model, number, matrix, names, share) for number, model in enumerate(chosen)),
        ladder=doubling_ladder(
            rational(max_epsilon, "max_epsilon"), probability(delta, "delta"), levels=_levels(levels)
        ),
        target=aim,
        rule=ScoreRule.of(aim, scale=first._score_unit()),
        validation_share=share,
        accountant=first.accountant,
    )
    release = first._pay(request, (matrix, numbers))
    number, scores = release.value
    best: Model = chosen[number]
    best._keep(type(release)(scores, release.receipt), None)
    return best


def _labels(model: PrivateGradientModel) -> str:
    terms = model.get_params()
    public = terms.get("classes", terms.get("target_bounds"))
    return public if isinstance(public, str) else repr(None if public is None else list(public))


def _levels(levels: int) -> int:
    if isinstance(levels, bool) or not isinstance(levels, int) or levels < 1:
        raise InvalidRequest("Expected levels to be a whole number >= 1", got=levels, do="Pass e.g. 5")
    return levels


def _setting(model: PrivateGradientModel, number: int, matrix: Any, names: Any, share: Fraction) -> Setting:
    problem = model._problem(matrix.shape[1], names, ladder=False)
    order = model._order(matrix.shape[1], matrix.shape[0])
    return Setting(
        name=f"model {number}",
        table=lambda data: problem.table(*data),
        batches=order.drawn_from(share),
        steps=model.steps,
    )
