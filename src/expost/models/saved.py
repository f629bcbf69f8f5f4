"""A fitted model as JSON: readable, diffable, and no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Receipt, Release
from expost.learning.model import LinearModel
from expost.models.classifier import HuberSVC, LogisticRegression
from expost.models.estimator import PrivateLinearModel
from expost.models.ridge import Ridge

__all__ = ["load_model", "save_model"]

_FORMAT = 1
_KINDS: dict[str, type[PrivateLinearModel]] = {kind.__name__: kind for kind in (Ridge, LogisticRegression, HuberSVC)}


def save_model(model: PrivateLinearModel, path: str | Path) -> None:
    """Write a fitted model with its receipt; everything in the file is released, nothing is exact.

    >>> save_model(Ridge(), "model.json")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a fitted Ridge, LogisticRegression or HuberSVC. Fit it first.
    """
    if type(model).__name__ not in _KINDS or not hasattr(model, "release_"):
        raise InvalidRequest("Expected a fitted Ridge, LogisticRegression or HuberSVC", do="Fit it first")
    linear: LinearModel = model.release_.value
    document = {
        "format": _FORMAT,
        "estimator": type(model).__name__,
        "coefficients": [float(each) for each in linear.coefficients],
        "intercept": float(linear.intercept),
        "limit": linear.limit,
        "lows": _lows(model),
        "features": None if model._fitted_names is None else list(model._fitted_names),
        "classes": None if not hasattr(model, "classes_") else model.classes_.tolist(),
        "receipt": model.receipt_.to_dict(),
    }
    Path(path).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _lows(model: PrivateLinearModel) -> list[float] | None:
    values = model._missing_values()
    return None if np.ndim(values) == 0 else [float(each) for each in values]


def load_model(path: str | Path) -> Any:
    """The model that ``save_model`` wrote, ready to predict.

    >>> load_model("no-such-model.json")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a model file, got 'no-such-model.json'. Write one with save_model ...
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        kind = _KINDS[document["estimator"]]
        known = document["format"] == _FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise InvalidRequest(
            "Expected a model file", got=str(path), do="Write one with save_model or expost fit"
        ) from None
    return _restored(kind, document)


def _restored(kind: type[PrivateLinearModel], document: dict[str, Any]) -> PrivateLinearModel:
    model = kind()
    coefficients = np.array(document["coefficients"], dtype=float)
    model.n_features_in_ = len(coefficients)
    if document["classes"] is not None:
        model.classes_ = np.asarray(document["classes"])
    model._saved_lows = _read_lows(document)
    names = document["features"]
    if names is not None:
        model.feature_names_in_ = np.asarray(names, dtype=object)
    linear = LinearModel(coefficients, document["intercept"], document["limit"])
    model._keep(Release(linear, Receipt.from_dict(document["receipt"])), None if names is None else tuple(names))
    return model


def _read_lows(document: dict[str, Any]) -> list[float] | None:
    """The lower bounds that stand for missing values; files written before they were kept say only whether any were."""
    if "lows" in document:
        lows: list[float] | None = document["lows"]
        return lows
    scaled = "bounds" in str(document["receipt"]["terms"].get("rows clipped to", ""))
    # Not known: a missing value is then predicted as missing rather than as a wrong number.
    return [float("nan")] * len(document["coefficients"]) if scaled else None
