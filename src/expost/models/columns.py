"""The names of the columns a model was fitted to, and the check that a table has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from expost.core import InvalidRequest

__all__ = ["check_columns", "remember_columns"]

_SHOWN = 5
_DO = "Pass the columns of feature_names_in_, in their order"


def remember_columns(model: Any, names: Sequence[str] | None, width: int) -> None:
    """Keep the public shape of a fitted table as scikit-learn does: ``n_features_in_`` and ``feature_names_in_``.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace()
    >>> remember_columns(model, ("age", "hours"), 2)
    >>> model.feature_names_in_.tolist(), model.n_features_in_
    (['age', 'hours'], 2)
    """
    model.n_features_in_ = width
    if names is not None:
        model.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_  # of an earlier fit


def check_columns(model: Any, names: Sequence[str] | None, width: int) -> None:
    """Refuse a table with other columns than those of the fit, or in another order.

    A table without names, such as a NumPy array, is checked for its width alone. Messages begin as scikit-learn's do.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(n_features_in_=2, feature_names_in_=np.array(["age", "hours"], dtype=object))
    >>> check_columns(model, None, 2)
    >>> check_columns(model, ("hours", "age"), 2)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: The feature names should match those that were passed during fit.
    Feature names must be in the same order as they were in fit.
    Pass the columns of feature_names_in_, in their order.
    """
    fitted = getattr(model, "feature_names_in_", None)
    if fitted is not None and names is not None and list(fitted) != list(names):
        raise InvalidRequest(
            f"The feature names should match those that were passed during fit.\n{_differences(fitted, names)}{_DO}"
        )
    if width != model.n_features_in_:
        said = (
            f"X has {width} features, but {type(model).__name__} is expecting {model.n_features_in_} features as input"
        )
        raise InvalidRequest(f"Expected the columns of the fit: {said}", do="Pass the same columns in the same order")


def _differences(fitted: Iterable[str], given: Iterable[str]) -> str:
    unseen, missing = sorted(set(given) - set(fitted)), sorted(set(fitted) - set(given))
    if not unseen and not missing:
        return "Feature names must be in the same order as they were in fit.\n"
    parts = [("Feature names unseen at fit time", unseen), ("Feature names seen at fit time, yet now missing", missing)]
    return "".join(f"{text}:\n{_listed(names)}" for text, names in parts if names)


def _listed(names: Sequence[str]) -> str:
    more = "- ...\n" if len(names) > _SHOWN else ""
    return "".join(f"- {name}\n" for name in names[:_SHOWN]) + more
