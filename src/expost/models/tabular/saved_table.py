"""A fitted model of a mixed table as values that JSON can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Receipt, Release
from expost.models.estimator import remember_columns
from expost.models.tabular.table_classifier import Classifier
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import CoefficientEstimates, TableModel
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.table_regressor import Regressor
from expost.models.tabular.tabular_estimator import TabularEstimator

__all__ = ["TABLE_MODELS", "restore_table_model", "table_document"]

TABLE_MODELS: dict[str, type[TabularEstimator]] = {"Classifier": Classifier, "Regressor": Regressor}
"""The estimators that these documents are of, by name."""
_NUMBERS = ("rows", "length", "target_middle", "target_spread", "target_error", "level", "rows_error")
_ESTIMATES = ("values", "noise", "sampling")


def table_document(model: TabularEstimator) -> dict[str, Any]:
    """Return a fitted model as values that JSON can hold. Everything in it is released or public."""
    released: TableModel = model.release_.value
    profile = released.profile
    classes = model.classes_.tolist() if isinstance(model, Classifier) else None
    if classes is not None and not all(isinstance(each, str | int | float) for each in classes):
        raise InvalidRequest("Expected classes that are numbers or text", do="Fit it to such labels to save it")
    return {
        "estimator": type(model).__name__,
        "columns": model.encoder_.to_json(),
        "features": [str(name) for name in model.feature_names_in_],
        "profile": {name: float(getattr(profile, name)) for name in _NUMBERS}
        | {"middles": profile.middles.tolist(), "factors": profile.factors.tolist(), "shares": list(profile.shares)},
        "weights": released.weights.tolist(),
        "reach": released.reach,
        "limits": None if released.limits is None else list(released.limits),
        "calibration": None if released.calibration is None else list(released.calibration),
        "estimates": None if released.estimates is None else _write_estimates(released.estimates),
        "classes": classes,
        "target_bounds": list(model._bounds) if isinstance(model, Regressor) else None,
        "receipt": model.receipt_.to_dict(),
    }


def restore_table_model(document: Mapping[str, Any]) -> TabularEstimator:
    """Return the fitted estimator of a document; raises ``ValueError``, ``KeyError`` or ``TypeError`` if it is damaged."""
    kind = TABLE_MODELS[document["estimator"]]
    model = kind()
    encoder = TableEncoder.from_json(document["columns"])
    told = document["profile"]
    weights = np.array(document["weights"], np.float64)
    middles, factors = (np.array(told[name], np.float64) for name in ("middles", "factors"))
    outputs = 1 if document["classes"] is None or len(document["classes"]) == 2 else len(document["classes"])
    shapes = middles.shape == factors.shape == (encoder.width,) and weights.shape == (outputs, encoder.width + 1)
    if not shapes or not all(np.isfinite(each).all() for each in (weights, middles, factors)):
        raise ValueError("weights that do not belong to these columns")
    numbers = {name: float(told[name]) for name in _NUMBERS}
    profile = TableProfile(middles=middles, factors=factors, shares=tuple(map(float, told["shares"])), **numbers)
    if isinstance(model, Classifier):
        labels = np.asarray(document["classes"])
        model.classes_ = (
            labels if labels.tolist() == document["classes"] else np.array(document["classes"], dtype=object)
        )
    elif isinstance(model, Regressor):
        low, high = map(float, document["target_bounds"])
        if not low < high:
            raise ValueError("bounds in the wrong order")
        model._bounds = (low, high)
    model.encoder_ = encoder
    names = document.get("features", list(encoder.names_in))  # more than the encoder's if some were selected
    if not isinstance(names, list) or not set(encoder.names_in) <= set(names):
        raise ValueError("columns that were not in the table")
    remember_columns(model, names, len(names))
    calibration = document.get("calibration")
    slope, shift = (1.0, 0.0) if calibration is None else map(float, calibration)
    if not (slope > 0 and np.isfinite([slope, shift]).all()):
        raise ValueError("a calibration that is not a slope and a shift")
    limits = document.get("limits")
    low, high = (-2.0, 2.0) if limits is None else map(float, limits)
    if not -2 <= low <= high <= 2:
        raise ValueError("limits of predictions in the wrong order")
    released = TableModel(
        profile,
        weights,
        float(document["reach"]),
        limits=None if limits is None else (low, high),
        calibration=None if calibration is None else (slope, shift),
        estimates=_read_estimates(document.get("estimates"), encoder.width),
    )
    model._keep_release(Release(released, Receipt.from_dict(document["receipt"])))
    return model


def _write_estimates(estimates: CoefficientEstimates) -> dict[str, list[float | None]]:
    """Return estimates as lists, None where there is no number."""
    return {
        name: [each if np.isfinite(each) else None for each in getattr(estimates, name).tolist()] for name in _ESTIMATES
    }


def _read_estimates(document: Mapping[str, Any] | None, width: int) -> CoefficientEstimates | None:
    """Return the estimates of a document, one for each feature."""
    if document is None:
        return None
    found = {name: np.array(document[name], np.float64) for name in _ESTIMATES}
    if any(each.shape != (width,) for each in found.values()):
        raise ValueError("estimates that do not belong to these columns")
    return CoefficientEstimates(**found)
