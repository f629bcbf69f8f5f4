"""Steps of a pipeline that read private rows without paying for them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion
from sklearn.pipeline import Pipeline as PublicPipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from expost.core import InvalidRequest, explain_arguments

__all__ = ["LeakingStepWarning", "check_pipeline", "find_leaks", "warn_of_leaks"]

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
_UNFITTED = frozenset({"FrozenEstimator", "FunctionTransformer"})  # these are not fitted to the rows at hand
# Models around others that fit something of their own to the same rows, and what they publish.
_AROUND = {
    "CalibratedClassifierCV": "a calibration",
    "RFE": "a choice of columns",
    "RFECV": "a choice of columns",
    "SelectFromModel": "a choice of columns",
    "SequentialFeatureSelector": "a choice of columns",
    "StackingClassifier": "a model on top",
    "StackingRegressor": "a model on top",
    "TunedThresholdClassifierCV": "a threshold",
}


class LeakingStepWarning(UserWarning):
    """A step around a private model is fitted to the same rows without noise, and no receipt counts it.

    The warning depends on the types of the steps only. It comes before the fit, so nothing is spent where warnings are
    errors.

    Examples
    --------
    >>> issubclass(LeakingStepWarning, UserWarning)
    True
    """


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
    if step is None or isinstance(step, str) or hasattr(step, "fit_with"):  # private: they can be paid by a session
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
    of the model says. The fit of the model warns of them (``LeakingStepWarning``); this function refuses them, and so does
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
    instead = _name_substitutes(leaks)
    use = f"Use {instead}, or" if instead else "Leave them out, or"
    raise InvalidRequest(
        "Expected steps that are private or public: a fit without noise reveals rows",
        got=_name_leaks(leaks),
        do=f"{use} name them in public_steps=[...] if they were fitted to public rows and treat each row by itself",
    )


def _name_leaks(leaks: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in leaks)


def _name_substitutes(leaks: Sequence[tuple[str, str]]) -> str:
    """Return what to use instead of the leaking steps, as far as there is something."""
    return ", ".join(dict.fromkeys(f"{_INSTEAD[kind]} instead of {kind}" for _, kind in leaks if kind in _INSTEAD))


def warn_of_leaks() -> None:
    """Warn if scikit-learn is fitting the caller, a private model, after or inside a step that pays nothing.

    scikit-learn tells a model nothing about the steps around it, but it calls its fit: the pipeline is among the callers.
    Only their types are looked at, which are public.
    """
    frame: FrameType | None = sys._getframe(1)
    level, leaks = 2, dict[str, str]()
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).split(".")[0]
        if package not in ("expost", "sklearn", "joblib"):
            break  # the person who called fit; what is around that is their own code
        if package == "sklearn":
            leaks |= _find_leaks_around(frame.f_locals.get("self"))
        level, frame = level + 1, frame.f_back
    if leaks:
        found = [*leaks.items()]
        instead = _name_substitutes(found)
        warnings.warn(
            f"The receipt of this model does not cover what is fitted to the same rows without noise: {_name_leaks(found)}. "
            f"Publish the model alone{f', or use {instead}' if instead else ''}. expost.Pipeline bills all steps together.",
            LeakingStepWarning,
            stacklevel=level,
        )


def _find_leaks_around(caller: Any) -> dict[str, str]:
    """Return what an object of scikit-learn that fits a private model publishes besides it: names and classes."""
    if isinstance(caller, PublicPipeline):
        return {name: kind for name, kind in find_leaks(caller) if kind not in _UNFITTED}
    kind = type(caller).__name__
    if kind in _AROUND:
        return {_AROUND[kind]: kind}
    transformer = getattr(caller, "transformer", None) if kind == "TransformedTargetRegressor" else None
    return {} if _is_public(transformer) else {"transformer": type(transformer).__name__}
