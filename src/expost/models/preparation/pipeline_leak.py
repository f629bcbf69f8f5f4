"""Steps of a pipeline that read private rows without paying for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion
from sklearn.pipeline import Pipeline as PublicPipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from expost.core import InvalidRequest, explain_arguments
from expost.models.estimator import PrivateEstimator

__all__ = ["check_pipeline", "find_leaks"]

# Transformers whose fit looks at the number of columns only, although their tags do not say so.
_SHAPE_ONLY = frozenset(
    {
        "AdditiveChi2Sampler",
        "FeatureHasher",
        "GaussianRandomProjection",
        "PolynomialCountSketch",
        "PolynomialFeatures",
        "RBFSampler",
        "SkewedChi2Sampler",
    }
)
_FROM_ROWS = frozenset({"auto", "scale"})  # values of their arguments that stand for numbers computed from rows
_CODERS = frozenset({"OneHotEncoder", "OrdinalEncoder"})  # public if their categories are listed
_INSTEAD = {
    "StandardScaler": "expost.StandardScaler",
    "MinMaxScaler": "bounds= of the model",
    "MaxAbsScaler": "bounds= of the model",
    "RobustScaler": "expost.StandardScaler",
    "PCA": "expost.PCA",
    "TruncatedSVD": "expost.PCA",
    "SelectKBest": "expost.SelectKBest",
    "SimpleImputer": "nothing: missing values have a public meaning in every estimator",
    "OneHotEncoder": "the same with categories=[...]",
    "OrdinalEncoder": "the same with categories=[...]",
}


def find_leaks(pipeline: Any, public_steps: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the name and the class of each step that would be fitted to private rows without noise.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer, StandardScaler
    >>> find_leaks(make_pipeline(Normalizer(), StandardScaler()))
    [('standardscaler', 'StandardScaler')]
    """
    return [(name, type(step).__name__) for name, step in _walk_steps(pipeline) if name not in public_steps]


def _walk_steps(step: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the steps, inner ones by their path, whose fit depends on rows and pays nothing."""
    if isinstance(step, PublicPipeline):
        inner = [(each, part) for each, part in step.steps]
    elif isinstance(step, FeatureUnion):
        inner = [(each, part) for each, part in step.transformer_list]
    elif isinstance(step, ColumnTransformer):
        inner = [(each, part) for each, part, _ in step.transformers] + [("remainder", step.remainder)]
    else:
        if not _is_public(step):
            yield name, step
        return
    for each, part in inner:
        yield from _walk_steps(part, f"{name}__{each}" if name else each)


def _is_public(step: Any) -> bool:
    """Return whether fitting this step reveals nothing about rows, or is paid for."""
    if step is None or isinstance(step, str | PrivateEstimator):
        return True
    if hasattr(step, "fit_with"):  # a choice among private models
        return True
    kind = type(step)
    if not kind.__module__.startswith("sklearn.") or kind is FrozenEstimator:
        return False  # what another library's fit reads, or what a frozen step was fitted to, cannot be known
    if kind is FunctionTransformer:
        # Any other function may look across rows, as one that subtracts the mean does.
        return step.func is None or isinstance(step.func, np.ufunc)
    if kind.__name__ in _CODERS:
        # Rare categories are found by counting rows.
        rare = (getattr(step, each, None) for each in ("min_frequency", "max_categories"))
        return not isinstance(step.categories, str) and all(each is None for each in rare)
    if kind.__name__ in _SHAPE_ONLY:
        return not _FROM_ROWS & {each for each in step.get_params(deep=False).values() if isinstance(each, str)}
    return not get_tags(step).requires_fit


@explain_arguments
def check_pipeline(pipeline: Any, *, public_steps: Sequence[str] = ()) -> None:
    """Refuse a pipeline whose steps are fitted to private rows without noise.

    A private model at the end of a pipeline protects its own coefficients. A ``StandardScaler`` before it keeps the exact
    means, a ``TargetEncoder`` the exact means of the target: published together they reveal rows, whatever the receipt
    of the model says. scikit-learn gives the model no sign of the steps before it, so call this function, or use
    ``expost.Pipeline``, which calls it.

    Parameters
    ----------
    pipeline : Pipeline
        A scikit-learn pipeline, with or without inner unions and column transformers.
    public_steps : sequence of str, optional
        Steps that were fitted to public rows and treat each row by itself, by name; inner ones as ``outer__inner``. A
        ``FunctionTransformer`` with another function than a NumPy ufunc must be named, because it may look across rows.

    Raises
    ------
    InvalidRequest
        The sentence names each leaking step and what to use instead.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from expost import Ridge
    >>> check_pipeline(make_pipeline(StandardScaler(), Ridge(epsilon=1)))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected steps that are private or public, got 'standardscaler (StandardScaler)...
    """
    if not isinstance(pipeline, PublicPipeline | FeatureUnion | ColumnTransformer):
        raise InvalidRequest("Expected a pipeline", got=type(pipeline).__name__, do="Pass make_pipeline(...)")
    if isinstance(public_steps, str) or not all(isinstance(name, str) for name in public_steps):
        raise InvalidRequest("Expected public_steps to be names of steps", do='Pass public_steps=["scale"]')
    leaks = find_leaks(pipeline, public_steps)
    if not leaks:
        return
    instead = dict.fromkeys(f"{_INSTEAD[kind]} instead of {kind}" for _, kind in leaks if kind in _INSTEAD)
    use = f"Use {', '.join(instead)}, or" if instead else "Leave them out, or"
    raise InvalidRequest(
        "Expected steps that are private or public: a fit without noise reveals rows",
        got=", ".join(f"{name} ({kind})" for name, kind in leaks),
        do=f"{use} name them in public_steps=[...] if they were fitted to public rows and treat each row by itself",
    )
