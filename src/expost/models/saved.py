"""A fitted model as JSON: readable, diffable, and no pickle."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from expost.core import InvalidRequest, Norm, Receipt, Release
from expost.core.whole_file import write_file
from expost.data.matrix import UnitBall
from expost.models.classifier import HuberSVC, LogisticRegression
from expost.models.column_bounds import column_bounds, is_interval
from expost.models.columns import remember_columns
from expost.models.descent.features import FeatureGrid
from expost.models.descent.learner import GridReading, LinearScores
from expost.models.estimator import PrivateLinearModel
from expost.models.gradient_model import PrivateGradientModel
from expost.models.linear.model import LinearModel, UnitReading
from expost.models.ridge import Ridge
from expost.models.sgd import SGDClassifier, SGDRegressor

__all__ = ["load_model", "save_model"]

_FORMAT, _OLD_FORMAT = 2, 1  # the older one does not say how rows were read
_KINDS: dict[str, type[PrivateLinearModel] | type[PrivateGradientModel]] = {
    kind.__name__: kind for kind in (Ridge, LogisticRegression, HuberSVC, SGDClassifier, SGDRegressor)
}
_NAMES = f"{', '.join(list(_KINDS)[:-1])} or {list(_KINDS)[-1]}"
_OLD = (
    "This file was written by a version that did not keep how rows were read. Predictions are not cut to the bounds of the "
    "fit, so its accuracy holds for rows within them only. Save the fitted model again."
)
# What reading a file of another making can end in.
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)


def save_model(model: PrivateLinearModel | PrivateGradientModel, path: str | Path) -> None:
    """Write a fitted model with its receipt; everything in the file is released or public, nothing is exact.

    >>> save_model(Ridge(), "model.json")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a fitted Ridge, LogisticRegression, HuberSVC, SGDClassifier or ...
    """
    try:
        write_model(model, path)
    except InvalidRequest:
        raise
    except (OSError, TypeError, ValueError):
        raise InvalidRequest(
            "Expected a file that can be written", got=_path_text(path), do="Create its folder first"
        ) from None


def write_model(model: PrivateLinearModel | PrivateGradientModel, path: str | Path) -> None:
    """Write a fitted model; a disk that fails is the caller's to tell of."""
    text = json.dumps(model_document(model), indent=2, ensure_ascii=False) + "\n"
    write_file(path, text.encode())


def model_document(model: PrivateLinearModel | PrivateGradientModel) -> dict[str, Any]:
    """What a saved model says."""
    if type(model).__name__ not in _KINDS or not hasattr(model, "release_"):
        raise InvalidRequest(f"Expected a fitted {_NAMES}", do="Fit it first")
    return {
        "format": _OLD_FORMAT if model.release_.value.reading is None else _FORMAT,
        "estimator": type(model).__name__,
        **(_scores_of(model) if isinstance(model, PrivateGradientModel) else _line_of(model)),
        "classes": None if not hasattr(model, "classes_") else _plain_classes(model.classes_),
        "receipt": model.receipt_.to_dict(),
    }


def load_model(path: str | Path) -> Any:
    """The model that ``save_model`` wrote, ready to predict.

    >>> load_model("no-such-model.json")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a model file, got 'no-such-model.json'. Write one with save_model ...
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] not in (_FORMAT, _OLD_FORMAT):
            raise ValueError("written by another version")
        model = _restored(document)
    except _UNREADABLE:
        raise InvalidRequest(
            "Expected a model file", got=_path_text(path), do="Write one with save_model or expost fit"
        ) from None
    if document["format"] == _OLD_FORMAT:
        warnings.warn(_OLD, UserWarning, stacklevel=2)
    return model


def _path_text(path: object) -> object:
    return str(path) if isinstance(path, Path) else path


# What is written ------------------------------------------------------------------------------------------------------


def _line_of(model: PrivateLinearModel) -> dict[str, Any]:
    linear: LinearModel = model.release_.value
    return {
        "coefficients": [float(each) for each in linear.coefficients],
        "intercept": float(linear.intercept),
        "limit": linear.limit,
        "features": _names_of(model),
        **({"lows": model._saved_lows} if linear.reading is None else {"reading": _unit_reading(linear.reading)}),
    }


def _unit_reading(reading: UnitReading) -> dict[str, Any]:
    """How rows were read, in public numbers, and the coefficients for rows read so."""
    ball = reading.ball
    return {
        "norm": ball.norm.value,
        "bound": ball.bound,
        "lows": None if ball.lows is None else list(ball.lows),
        "highs": None if ball.highs is None else list(ball.highs),
        "intercept": ball.intercept,
        "coefficients": reading.coefficients.tolist(),
        "target_bound": reading.target_bound,
    }


def _scores_of(model: PrivateGradientModel) -> dict[str, Any]:
    scores: LinearScores = model.release_.value
    return {
        "coefficients": scores.coefficients.tolist(),
        "intercepts": scores.intercepts.tolist(),
        "features": _names_of(model),
        **(
            {"missing": _one_a_column(model._missing)}
            if scores.reading is None
            else {"reading": _grid_reading(scores.reading)}
        ),
        **({"target_bounds": list(model._bounds())} if isinstance(model, SGDRegressor) else {}),
    }


def _grid_reading(reading: GridReading) -> dict[str, Any]:
    grid = reading.grid
    return {
        "bound": grid.bound,
        "lows": None if grid.lows is None else list(grid.lows),
        "highs": None if grid.highs is None else list(grid.highs),
        "intercept": grid.intercept,
        "weights": reading.weights.tolist(),
    }


def _names_of(model: PrivateLinearModel | PrivateGradientModel) -> list[str] | None:
    """The columns it was fitted to, of a table or a dataset that names them."""
    return None if model._fitted_names is None else list(model._fitted_names)


def _one_a_column(values: Any) -> list[float] | None:
    """What stands for missing values; none where it is zero in every column."""
    return None if np.ndim(values) == 0 else [float(each) for each in values]


def _plain_classes(classes: NDArray[Any]) -> list[Any]:
    plain: list[Any] = classes.tolist()
    if classes.dtype.kind not in "biufUO" or not all(isinstance(each, str | int | float) for each in plain):
        raise InvalidRequest("Expected classes that are numbers or text", do="Fit it to such labels to save it")
    return plain


# What is read ---------------------------------------------------------------------------------------------------------


def _restored(document: dict[str, Any]) -> PrivateLinearModel | PrivateGradientModel:
    kind, names = _KINDS[document["estimator"]], document["features"]
    model: Any = kind()
    if names is not None:
        _expect(isinstance(names, list) and all(isinstance(name, str) for name in names))
    _expect((document["classes"] is not None) == issubclass(kind, ClassifierMixin))
    if document["classes"] is not None:
        model.classes_ = _read_classes(document["classes"])
    restore = _restore_scores if issubclass(kind, PrivateGradientModel) else _restore_line
    restore(model, document, Receipt.from_dict(document["receipt"]))
    _expect(names is None or len(names) == model.n_features_in_)
    remember_columns(model, names, model.n_features_in_)
    return model  # type: ignore[no-any-return]


def _restore_line(model: Any, document: dict[str, Any], receipt: Receipt) -> None:
    coefficients = _numbers(document["coefficients"], dimensions=1)
    _expect(document["classes"] is None or len(document["classes"]) == 2)
    model.n_features_in_ = len(coefficients)
    reading = None
    if document["format"] == _FORMAT:
        reading = _read_unit(document["reading"], model.n_features_in_)
    else:
        model._saved_lows = _read_lows(document)
    intercept = float(_numbers(document["intercept"], dimensions=0))
    limit = document["limit"] if document["limit"] is None else float(_numbers(document["limit"], dimensions=0))
    model._keep(Release(LinearModel(coefficients, intercept, limit, reading), receipt))


def _read_unit(terms: dict[str, Any], width: int) -> UnitReading:
    norm, (lows, highs) = Norm(terms["norm"]), _ends(terms, width)
    _expect(norm in (Norm.L1, Norm.L2))
    ball = UnitBall(width, norm, _positive(terms["bound"]), lows, highs, _flag(terms["intercept"]))
    coefficients = _numbers(terms["coefficients"], dimensions=1)
    _expect(len(coefficients) == ball.dimension)
    return UnitReading(ball, coefficients, _positive(terms["target_bound"]))


def _read_grid(terms: dict[str, Any], width: int, outputs: int) -> GridReading:
    lows, highs = _ends(terms, width)
    grid = FeatureGrid(width, _positive(terms["bound"]), _flag(terms["intercept"]), lows, highs)
    weights = _numbers(terms["weights"], dimensions=2)
    _expect(weights.shape == (outputs, grid.columns))
    return GridReading(grid, weights)


def _positive(value: Any) -> float:
    number = float(_numbers(value, dimensions=0))
    _expect(number > 0)
    return number


def _ends(terms: dict[str, Any], width: int) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[None, None]:
    lows, highs = terms["lows"], terms["highs"]
    _expect((lows is None) == (highs is None))
    return column_bounds(None if lows is None else list(zip(lows, highs, strict=True)), width, None)


def _flag(value: Any) -> bool:
    _expect(isinstance(value, bool))
    return bool(value)


def _restore_scores(model: Any, document: dict[str, Any], receipt: Receipt) -> None:
    coefficients = _numbers(document["coefficients"], dimensions=2)
    intercepts = _numbers(document["intercepts"], dimensions=1)
    outputs, model.n_features_in_ = coefficients.shape
    _expect(len(intercepts) == outputs == (_outputs(model.classes_) if hasattr(model, "classes_") else 1))
    reading = None
    if document["format"] == _FORMAT:
        reading = _read_grid(document["reading"], model.n_features_in_, outputs)
    elif document["missing"] is not None:
        model._missing = _numbers(document["missing"], dimensions=1)
        _expect(len(model._missing) == model.n_features_in_)
    if isinstance(model, SGDRegressor):
        _expect(is_interval(document["target_bounds"]))
        model.target_bounds = tuple(document["target_bounds"])
    model._keep(Release(LinearScores(coefficients, intercepts, reading), receipt), None)


def _outputs(classes: NDArray[Any]) -> int:
    """Two classes share one score."""
    return 1 if len(classes) == 2 else len(classes)


def _numbers(values: Any, *, dimensions: int) -> NDArray[np.float64]:
    array = np.asarray(values)
    _expect(
        array.ndim == dimensions and array.size > 0 and array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
    )
    return array.astype(np.float64)


def _read_classes(values: Any) -> NDArray[Any]:
    """The labels as they were; an array of their own type would make text of numbers beside text."""
    _expect(
        isinstance(values, list) and len(values) > 1 and all(isinstance(each, str | int | float) for each in values)
    )
    classes = np.asarray(values)
    return classes if classes.tolist() == values else np.array(values, dtype=object)


def _read_lows(document: dict[str, Any]) -> list[float] | None:
    """The lower bounds that stand for missing values in a file without a reading; the oldest say only whether any were."""
    if "lows" in document:
        lows: list[float] | None = document["lows"]
        return lows
    scaled = "bounds" in str(document["receipt"]["terms"].get("rows clipped to", ""))
    # Not known: a missing value is then predicted as missing rather than as a wrong number.
    return [float("nan")] * len(document["coefficients"]) if scaled else None


def _expect(holds: bool) -> None:
    if not holds:
        raise ValueError("not what save_model writes")
