"""Any classifier as a function from inputs to votes, or to scores in [0, 1]."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, MissingExtra
from expost.robustness.perturbation import Floats

__all__ = ["Scores", "as_scores", "as_votes"]

Scores = Callable[[Floats], NDArray[np.float64]]
"""Values in [0, 1], one row per input; a row that is NaN throughout counts for no class."""

_ROUNDING = 1e-6  # probabilities computed in single precision may leave [0, 1] by less


def as_scores(model: Any) -> Scores:
    """Make a batched function to scores in [0, 1] of a scikit-learn classifier, a torch module, or any callable.

    A torch module is run in evaluation mode, so that dropout and batch statistics do not make its scores depend on
    chance or on other inputs, and its outputs go through a softmax. Other outputs must lie in [0, 1] and are refused
    otherwise: clipping them would change which class is on top. Inputs keep the caller's precision; a torch
    module gets them in its own.

    >>> as_scores(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1))(np.array([[0.25]])).tolist()
    [[0.25, 0.75]]
    """
    outputs = _outputs(model, softmax=True)
    return lambda x: _probabilities(outputs(x))


def as_votes(model: Any) -> Scores:
    """Make a batched function to votes: 1 for the class that the model predicts, 0 for the others.

    A scikit-learn classifier votes for what its ``predict`` returns. Any other model votes for the class of its largest
    output, the first one among equals, whether the outputs are probabilities, log-probabilities or logits. A row of
    outputs with a NaN votes for no class.

    >>> as_votes(lambda x: np.stack([x[:, 0], x[:, 0] - 1], axis=1))(np.array([[-7.0], [np.nan]])).tolist()
    [[1.0, 0.0], [nan, nan]]
    """
    if hasattr(model, "predict") and getattr(model, "classes_", None) is not None:
        return lambda x: _predicted(model, x)
    outputs = _outputs(model, softmax=False)
    return lambda x: _largest(outputs(x))


def _outputs(model: Any, *, softmax: bool) -> Scores:
    """Find the model's raw outputs, checked for their shape alone."""
    if hasattr(model, "predict_proba"):
        return lambda x: _shaped(model.predict_proba(x.reshape(len(x), -1)), len(x))
    if hasattr(model, "forward") and hasattr(model, "parameters"):
        return _torch_outputs(model, softmax=softmax)
    if callable(model):
        return lambda x: _shaped(model(x), len(x))
    raise InvalidRequest(
        "Expected a classifier", got=type(model).__name__, do="Pass a callable, or a model with predict_proba"
    )


def _torch_outputs(module: Any, *, softmax: bool) -> Scores:
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        raise MissingExtra("torch", package="torch") from None
    parameter = next(iter(module.parameters()), None)
    place = {} if parameter is None else {"device": parameter.device, "dtype": parameter.dtype}

    def outputs(x: Floats) -> NDArray[np.float64]:
        training = getattr(module, "training", False)
        if training:
            module.eval()
        try:
            with torch.no_grad():
                found = module(torch.from_numpy(x).to(**place))
                # The largest logit need not be the largest after a softmax, which rounds: votes are taken before it.
                found = torch.softmax(found, dim=-1) if softmax else found
        finally:
            if training:
                module.train()
        return _shaped(found.cpu().numpy(), len(x))

    return outputs


def _shaped(outputs: Any, inputs: int) -> NDArray[np.float64]:
    scores = np.array(outputs, np.float64)
    if scores.ndim != 2 or len(scores) != inputs or scores.shape[1] < 2:
        raise InvalidRequest("Expected one row of scores for each input", do="Return an array (inputs, classes)")
    scores[np.isnan(scores).any(1)] = np.nan
    return scores


def _probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    if ((scores < -_ROUNDING) | (scores > 1 + _ROUNDING)).any():
        raise InvalidRequest(
            "Expected scores in [0, 1], got some outside",
            do='Apply a softmax to logits and exp to log-probabilities; certify with average="votes" takes any scores',
        )
    clipped: NDArray[np.float64] = np.clip(scores, 0.0, 1.0)
    return clipped


def _largest(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    votes = np.zeros_like(outputs)
    votes[np.arange(len(outputs)), outputs.argmax(1)] = 1.0
    votes[np.isnan(outputs[:, 0])] = np.nan
    return votes


def _predicted(model: Any, x: Floats) -> NDArray[np.float64]:
    labels, classes = np.asarray(model.predict(x.reshape(len(x), -1))), np.asarray(model.classes_)
    if labels.shape != (len(x),) or classes.ndim != 1 or len(classes) < 2:
        raise InvalidRequest("Expected a classifier of one label among two or more", do="Certify one output at a time")
    votes: NDArray[np.float64] = (labels[:, None] == classes).astype(np.float64)
    return votes
