"""Any classifier as a function from inputs to scores in [0, 1]."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, MissingExtra
from expost.robustness.perturbation import Floats

__all__ = ["Scores", "as_scores"]

Scores = Callable[[Floats], NDArray[np.float64]]
"""Scores in [0, 1], one row an input; a row of which one is not a number is NaN throughout: it is no vote."""


def as_scores(model: Any) -> Scores:
    """A batched score function from a scikit-learn classifier, a torch module, or any callable.

    A torch module is run in evaluation mode, so that dropout and batch statistics do not make its scores depend on
    chance or on other inputs, and its outputs go through a softmax; other outputs must already be scores in [0, 1],
    and are clipped. Inputs are handed on in the caller's precision; a torch module gets them in its own.

    >>> as_scores(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1))(np.array([[0.25]])).tolist()
    [[0.25, 0.75]]
    """
    if hasattr(model, "predict_proba"):
        return lambda x: _checked(model.predict_proba(x.reshape(len(x), -1)), len(x))
    if hasattr(model, "forward") and hasattr(model, "parameters"):
        return _torch_scores(model)
    if callable(model):
        return lambda x: _checked(model(x), len(x))
    raise InvalidRequest(
        "Expected a classifier", got=type(model).__name__, do="Pass a callable, or a model with predict_proba"
    )


def _torch_scores(module: Any) -> Scores:
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        raise MissingExtra("torch", package="torch") from None
    parameter = next(iter(module.parameters()), None)
    place = {} if parameter is None else {"device": parameter.device, "dtype": parameter.dtype}

    def scores(x: Floats) -> NDArray[np.float64]:
        training = getattr(module, "training", False)
        if training:
            module.eval()
        try:
            with torch.no_grad():
                outputs = torch.softmax(module(torch.from_numpy(x).to(**place)), dim=-1)
        finally:
            if training:
                module.train()
        return _checked(outputs.cpu().numpy(), len(x))

    return scores


def _checked(outputs: Any, inputs: int) -> NDArray[np.float64]:
    scores = np.asarray(outputs, np.float64)
    if scores.ndim != 2 or len(scores) != inputs or scores.shape[1] < 2:
        raise InvalidRequest("Expected one row of scores for each input", do="Return an array (inputs, classes)")
    clipped: NDArray[np.float64] = np.clip(scores, 0.0, 1.0)
    clipped[np.isnan(clipped).any(1)] = np.nan
    return clipped
