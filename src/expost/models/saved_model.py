"""A fitted model as a JSON file: readable, diffable, and without pickle."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from expost.core import InvalidRequest, Norm, Receipt, Release, explain_arguments
from expost.core.whole_file import write_file
from expost.data.unit_ball import UnitBall
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.gradient_model import PrivateGradientModel
from expost.models.descent.linear_learner import GridReading, LinearScores
from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor
from expost.models.estimator import is_interval, read_column_bounds, remember_columns
from expost.models.linear.linear_classifier import HuberSVC, LogisticRegression
from expost.models.linear.linear_estimator import PrivateLinearModel
from expost.models.linear.linear_fit import LinearModel, UnitReading
from expost.models.linear.ridge import Ridge
from expost.models.tabular.saved_table import TABLE_MODELS, restore_table_model, table_document
from expost.models.tabular.tabular_estimator import TabularEstimator

__all__ = ["load_model", "model_document", "restore_document", "save_model", "write_model"]

SavedModel = PrivateLinearModel | PrivateGradientModel | TabularEstimator

_FORMAT, _OLD_FORMAT = 2, 1  # the older one does not state how rows were read
_KINDS: dict[str, type[PrivateLinearModel] | type[PrivateGradientModel]] = {
    kind.__name__: kind for kind in (Ridge, LogisticRegression, HuberSVC, SGDClassifier, SGDRegressor)
}
_NAMES = f"{', '.join([*_KINDS, *TABLE_MODELS][:-1])} or {list(TABLE_MODELS)[-1]}"
_OLD = (
    "This file was written by a version that did not keep how rows were read. Predictions are not clipped to the bounds "
    "of the fit, so its accuracy holds for rows within them only. Save the fitted model again."
)
# The errors that reading a damaged or foreign file can end in.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError)


@explain_arguments
def save_model(model: SavedModel, path: str | Path) -> None:
    """Write a fitted model with its receipt. Everything in the file is released or public.

    Parameters
    ----------
    model : Ridge, LogisticRegression, HuberSVC, SGDClassifier, SGDRegressor, Classifier or Regressor
        A fitted estimator.
    path : str or Path
        The file to write. Its folder must exist.

    Raises
    ------
    InvalidRequest
        The model is not fitted, its classes are neither numbers nor text, or the file cannot be written.

    Examples
    --------
    >>> save_model(Ridge(), "model.json")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a fitted Ridge, LogisticRegression, HuberSVC, SGDClassifier, ...
    """
    try:
        write_model(model, path)
    except InvalidRequest:
        raise
    except (OSError, TypeError, ValueError):
        shown = str(path) if isinstance(path, Path) else path
        raise InvalidRequest("Expected a file that can be written", got=shown, do="Create its folder first") from None


def write_model(model: SavedModel, path: str | Path) -> None:
    """Write a fitted model. ``OSError`` propagates to the caller."""
    text = json.dumps(model_document(model), indent=2, ensure_ascii=False) + "\n"
    write_file(path, text.encode())


def model_document(model: SavedModel) -> dict[str, Any]:
    """Return the content of the file."""
    if type(model) not in (*_KINDS.values(), *TABLE_MODELS.values()):
        do = "Save one of these. Pickle any other estimator"
        raise InvalidRequest(f"Expected a fitted {_NAMES}", got=type(model).__name__, do=do)
    if not hasattr(model, "release_"):
        raise InvalidRequest(f"Expected a fitted {_NAMES}", do="Fit it first")
    if isinstance(model, TabularEstimator):
        return {"format": _FORMAT, **table_document(model)}
    released = model.release_.value
    names, classes = model._fitted_names, None
    if hasattr(model, "classes_"):
        classes = model.classes_.tolist()
        plain = all(isinstance(each, str | int | float) for each in classes)
        if model.classes_.dtype.kind not in "biufUO" or not plain:
            raise InvalidRequest("Expected classes that are numbers or text", do="Fit it to such labels to save it")
    return {
        "format": _OLD_FORMAT if released.reading is None else _FORMAT,
        "estimator": type(model).__name__,
        "coefficients": released.coefficients.tolist(),
        "features": None if names is None else list(names),
        **(_gradient_fields(model) if isinstance(model, PrivateGradientModel) else _linear_fields(model)),
        "classes": classes,
        "receipt": model.receipt_.to_dict(),
    }


@explain_arguments
def load_model(path: str | Path) -> Any:
    """Read a model that ``save_model`` or ``expost fit`` wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Ridge, LogisticRegression, HuberSVC, SGDClassifier, SGDRegressor, Classifier or Regressor
        The fitted estimator, ready to predict.

    Raises
    ------
    InvalidRequest
        The file cannot be read, or is not a model file.

    Examples
    --------
    >>> load_model("no-such-model.json")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a model file, got 'no-such-model.json'. Write one with save_model ...
    """
    shown = str(path) if isinstance(path, Path) else path
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except _UNREADABLE:
        raise _not_a_model(shown) from None
    model = restore_document(document, shown)
    if document["format"] == _OLD_FORMAT:
        warnings.warn(_OLD, UserWarning, stacklevel=2)
    return model


def restore_document(document: Any, shown: Any = "a document") -> Any:
    """Return the fitted estimator that ``model_document`` described; ``shown`` is what an error calls the document."""
    try:
        if document["format"] not in (_FORMAT, _OLD_FORMAT):
            raise ValueError("written by another version")
        return _restore_model(document)
    except _UNREADABLE:
        raise _not_a_model(shown) from None


def _not_a_model(shown: Any) -> InvalidRequest:
    return InvalidRequest("Expected a model file", got=shown, do="Write one with save_model or expost fit")


def _linear_fields(model: PrivateLinearModel) -> dict[str, Any]:
    """Return the fields of a linear model: intercept, limits, and how rows were read."""
    linear: LinearModel = model.release_.value
    fields: dict[str, Any] = {
        "intercept": float(linear.intercept),
        "limits": None if linear.limits is None else list(linear.limits),
    }
    if linear.reading is None:
        return fields | {"lows": model._saved_lows}
    ball = linear.reading.ball
    reading = {
        "norm": ball.norm.value,
        **_ball_fields(ball),
        "coefficients": linear.reading.coefficients.tolist(),
        "target_bounds": list(linear.reading.target_bounds),
    }
    return fields | {"reading": reading}


def _gradient_fields(model: PrivateGradientModel) -> dict[str, Any]:
    """Return the fields of a model trained by gradient descent."""
    scores: LinearScores = model.release_.value
    fields: dict[str, Any] = {"intercepts": scores.intercepts.tolist()}
    if isinstance(model, SGDRegressor):
        fields["target_bounds"] = list(model._read_bounds())
    if scores.reading is None:
        missing = model._missing  # None where a missing value counts as zero in every column
        return fields | {"missing": None if np.ndim(missing) == 0 else [float(each) for each in missing]}
    return fields | {"reading": {**_ball_fields(scores.reading.grid), "weights": scores.reading.weights.tolist()}}


def _ball_fields(grid: UnitBall | FeatureGrid) -> dict[str, Any]:
    """Return the public numbers with which rows were clipped and scaled."""
    return {
        "bound": grid.bound,
        "lows": None if grid.lows is None else list(grid.lows),
        "highs": None if grid.highs is None else list(grid.highs),
        "intercept": grid.intercept,
    }


def _restore_model(document: dict[str, Any]) -> SavedModel:
    """Return the fitted estimator; raises one of _UNREADABLE if the document is not what save_model writes."""
    if document["estimator"] in TABLE_MODELS:
        return restore_table_model(document)
    kind, names, classes = _KINDS[document["estimator"]], document["features"], document["classes"]
    model: Any = kind()
    if names is not None:
        _check_file(isinstance(names, list) and all(isinstance(name, str) for name in names))
    _check_file((classes is not None) == issubclass(kind, ClassifierMixin))
    if classes is not None:
        _check_file(isinstance(classes, list) and len(classes) > 1)
        _check_file(all(isinstance(each, str | int | float) for each in classes))
        array = np.asarray(classes)
        # An array of one type would make text of numbers that stand next to text.
        model.classes_ = array if array.tolist() == classes else np.array(classes, dtype=object)
    restore = _restore_gradient if issubclass(kind, PrivateGradientModel) else _restore_linear
    restore(model, document, Receipt.from_dict(document["receipt"]))
    _check_file(names is None or len(names) == model.n_features_in_)
    remember_columns(model, names, model.n_features_in_)
    return model  # type: ignore[no-any-return]


def _restore_linear(model: Any, document: dict[str, Any], receipt: Receipt) -> None:
    coefficients = _read_numbers(document["coefficients"], dimensions=1)
    _check_file(document["classes"] is None or len(document["classes"]) == 2)
    model.n_features_in_ = len(coefficients)
    reading = None
    if document["format"] == _FORMAT:
        terms = document["reading"]
        norm, (lows, highs) = Norm(terms["norm"]), _read_ends(terms, model.n_features_in_)
        _check_file(norm in (Norm.L1, Norm.L2))
        bound, intercept = _read_positive(terms["bound"]), _read_flag(terms["intercept"])
        ball = UnitBall(model.n_features_in_, norm, bound, lows, highs, intercept)
        theta = _read_numbers(terms["coefficients"], dimensions=1)
        _check_file(len(theta) == ball.dimension)
        reading = UnitReading(ball, theta, _read_interval(terms["target_bounds"]))
    elif "lows" in document:
        model._saved_lows = document["lows"]
    elif "bounds" in str(document["receipt"]["terms"].get("rows clipped to", "")):
        # The oldest files do not name the bounds: a missing value is predicted as missing, not as a wrong number.
        model._saved_lows = [float("nan")] * len(coefficients)
    constant = float(_read_numbers(document["intercept"], dimensions=0))
    if document["format"] == _OLD_FORMAT and "limit" in document:  # one number stands for both signs
        limit = document["limit"]
        document = document | {"limits": None if limit is None else [-limit, limit]}
    limits = None if document["limits"] is None else _read_interval(document["limits"])
    model._keep_release(Release(LinearModel(coefficients, constant, limits, reading), receipt))


def _restore_gradient(model: Any, document: dict[str, Any], receipt: Receipt) -> None:
    coefficients = _read_numbers(document["coefficients"], dimensions=2)
    intercepts = _read_numbers(document["intercepts"], dimensions=1)
    outputs, model.n_features_in_ = coefficients.shape
    classes = len(model.classes_) if hasattr(model, "classes_") else 1
    _check_file(len(intercepts) == outputs == (1 if classes == 2 else classes))  # two classes share one score
    reading = None
    if document["format"] == _FORMAT:
        terms, width = document["reading"], model.n_features_in_
        lows, highs = _read_ends(terms, width)
        grid = FeatureGrid(width, _read_positive(terms["bound"]), _read_flag(terms["intercept"]), lows, highs)
        weights = _read_numbers(terms["weights"], dimensions=2)
        _check_file(weights.shape == (outputs, grid.columns))
        reading = GridReading(grid, weights)
    elif document["missing"] is not None:
        model._missing = _read_numbers(document["missing"], dimensions=1)
        _check_file(len(model._missing) == model.n_features_in_)
    if isinstance(model, SGDRegressor):
        model.target_bounds = _read_interval(document["target_bounds"])
    model._keep_release(Release(LinearScores(coefficients, intercepts, reading), receipt), None)


def _read_numbers(values: Any, *, dimensions: int) -> NDArray[np.float64]:
    array = np.asarray(values)
    _check_file(
        array.ndim == dimensions and array.size > 0 and array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
    )
    return array.astype(np.float64)


def _read_positive(value: Any) -> float:
    number = float(_read_numbers(value, dimensions=0))
    _check_file(number > 0)
    return number


def _read_flag(value: Any) -> bool:
    _check_file(isinstance(value, bool))
    return bool(value)


def _read_interval(pair: Any) -> tuple[float, float]:
    _check_file(isinstance(pair, list) and is_interval(pair))
    return float(pair[0]), float(pair[1])


def _read_ends(terms: dict[str, Any], width: int) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[None, None]:
    lows, highs = terms["lows"], terms["highs"]
    _check_file((lows is None) == (highs is None))
    return read_column_bounds(None if lows is None else list(zip(lows, highs, strict=True)), width, None)


def _check_file(holds: bool) -> None:
    """Raise ``ValueError`` where a file is not what save_model writes."""
    if not holds:
        raise ValueError("not what save_model writes")
