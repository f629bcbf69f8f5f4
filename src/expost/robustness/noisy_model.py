"""Models under noise: noisy copies of inputs, and any classifier as a function to votes or to scores in [0, 1].

The float noise here stabilises a model's output. It does not protect anyone's data.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import InvalidRequest, MissingExtra
from expost.core.argument import check_unmasked
from expost.core.rational import rational
from expost.noise import BitSource, system_bits

__all__ = [
    "SAMPLER_ERROR",
    "Floats",
    "NoiseKind",
    "ScoreFunction",
    "check_inputs",
    "check_noise",
    "check_numbers",
    "check_sigma",
    "floats_for_model",
    "laplace_scale",
    "noisy_copies",
    "sample_perturbations",
    "scores_of_model",
    "votes_of_model",
]

Floats = NDArray[np.float32] | NDArray[np.float64]
"""What models read: the caller's own single precision, or else doubles."""

ScoreFunction = Callable[[Floats], NDArray[np.float64]]
"""Returns values in [0, 1], one row per input; a row that is NaN throughout counts for no class."""

NoiseKind = Literal["gaussian", "laplace"]

SAMPLER_ERROR = 2.0**-32
"""Total variation between a noisy coordinate as drawn and the ideal one (docs/proofs/certified-radius.md, Theorem 3)."""

_ENTRIES = 1 << 22  # doubles in one block of noisy inputs
_STEPS = 10  # the lattice of noisy inputs has between 2^10 and 2^11 steps per standard deviation
_EXACT = 2.0**52  # lattice points up to here, and whole numbers, are doubles
_ROUNDING = 1e-6  # probabilities computed in single precision may leave [0, 1] by less


# What a caller typed


def check_noise(value: object) -> NoiseKind:
    """Return the kind of noise that a caller named."""
    match value if isinstance(value, str) else None:  # arrays compare by element
        case "gaussian" | "laplace" as found:
            return found
    raise InvalidRequest("Expected noise to be 'gaussian' or 'laplace'", got=value, do="Name one of them")


def check_sigma(sigma: object) -> float:
    """Return a standard deviation as a float."""
    return float(rational(sigma, "sigma"))


def laplace_scale(sigma: object) -> float:
    """Return the scale of Laplace noise of this standard deviation."""
    return check_sigma(sigma) / math.sqrt(2)


def check_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return one number or many as an array."""
    check_unmasked(values)
    try:
        array = np.asarray(values)
        found = array.astype(np.float64) if array.dtype.kind in "biuf" else np.full(1, np.nan)
    except (TypeError, ValueError, OverflowError):
        found = np.full(1, np.nan)
    if np.isnan(found).any():
        raise InvalidRequest(f"Expected {name} to be numbers", do="Pass one, or a list of them")
    return found


def floats_for_model(x: Any) -> Floats:
    """Convert numbers to what a model reads, such that different numbers stay different.

    >>> floats_for_model([[2**24 + 1]]).tolist()
    [[16777217.0]]
    """
    check_unmasked(x)
    try:
        given = np.asarray(x)
        single = given.dtype.kind == "f" and given.dtype.itemsize <= np.dtype(np.float32).itemsize
        found: Floats = given.astype(np.float32) if single else given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest(
            "Expected finite inputs, one row each", do="Pass numbers, in an array of shape (inputs, features)"
        ) from None
    if given.dtype.kind != "f" and (np.abs(found) > _EXACT).any():
        raise InvalidRequest("Expected whole numbers up to 2^52", do="Subtract an offset from larger ones")
    return found


def check_inputs(x: Any) -> Floats:
    """Return finite inputs with one row each, in the type that the model reads.

    >>> check_inputs([[1.7e9]]).dtype, check_inputs(np.ones((1, 2), np.float32)).dtype
    (dtype('float64'), dtype('float32'))
    """
    inputs = floats_for_model(x)
    if inputs.ndim < 2 or len(inputs) == 0 or not np.isfinite(inputs).all():
        raise InvalidRequest("Expected finite inputs, one row each", do="Pass an array of shape (inputs, features)")
    return inputs


# Noise


def sample_perturbations(
    shape: tuple[int, ...], *, noise: NoiseKind, sigma: float, bits: BitSource | None = None
) -> NDArray[np.float64]:
    """Sample independent noise of standard deviation ``sigma``, by inversion of 52-bit uniform numbers.

    Not for privacy: the values lie on a float grid.
    """
    words = (bits or system_bits()).words(int(np.prod(shape)), np.uint64)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # exact, and never 0 or 1
    if noise == "gaussian":
        drawn = special.ndtri(uniform) * sigma
    else:
        centered = uniform - 0.5
        drawn = -np.sign(centered) * np.log1p(-2 * np.abs(centered)) * laplace_scale(sigma)
    return np.asarray(drawn).reshape(shape)


def noisy_copies(
    inputs: Floats, *, noise: NoiseKind, sigma: float, samples: int, bits: BitSource | None = None
) -> Iterator[Floats]:
    """Yield noisy copies of each input in blocks of shape (inputs, copies, features...), on a lattice below sigma/1000.

    A copy is the lattice point nearest to the exact sum of input and noise, so that it is a function of that sum, as
    the theorems require: the input is split into a lattice point and a rest smaller than a step, both exactly, and only
    the rest is added to the noise. Rounding to the model's own type comes last. docs/proofs/certified-radius.md,
    Theorem 3.

    >>> (block,) = noisy_copies(np.array([[1e12 + 1]]), noise="gaussian", sigma=1.0, samples=3)
    >>> block.shape, bool((np.abs(block - 1e12) < 20).all())
    ((1, 3, 1), True)
    """
    step = 2.0 ** (math.frexp(sigma)[1] - 1 - _STEPS)  # a power of two: scaling by it is exact
    scaled = inputs.astype(np.float64) / step
    if (np.abs(scaled) >= _EXACT).any():
        raise InvalidRequest(
            "Expected inputs below 2^41 times sigma, so that doubles can represent the noisy copies",
            do="Subtract an offset, or raise sigma",
        )
    nearest = np.rint(scaled)
    rest = scaled - nearest
    at_once = max(1, _ENTRIES // max(inputs.size, 1))  # so that a block of noisy inputs stays small
    for start in range(0, samples, at_once):
        count = min(at_once, samples - start)
        drawn = sample_perturbations((count, *inputs.shape[1:]), noise=noise, sigma=sigma / step, bits=bits)
        copies = rest[:, None] + drawn[None]
        np.rint(copies, out=copies)
        copies += nearest[:, None]
        copies *= step
        with np.errstate(over="ignore"):  # beyond single precision: infinite, as any model of that type would read it
            read: Floats = copies.astype(np.float32) if inputs.dtype == np.float32 else copies
        yield read


# Models


def scores_of_model(model: Any) -> ScoreFunction:
    """Make a batched function to scores in [0, 1] of a scikit-learn classifier, a torch module, or any callable.

    A torch module is run in evaluation mode, so that dropout and batch statistics do not make its scores depend on
    chance or on other inputs, and its outputs go through a softmax. Other outputs must lie in [0, 1] and are refused
    otherwise: clipping them would change which class is on top. Inputs keep the caller's precision; a torch
    module gets them in its own.

    >>> scores_of_model(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1))(np.array([[0.25]])).tolist()
    [[0.25, 0.75]]
    """
    outputs = _outputs_of_model(model, softmax=True)

    def scores(x: Floats) -> NDArray[np.float64]:
        found = outputs(x)
        if ((found < -_ROUNDING) | (found > 1 + _ROUNDING)).any():
            raise InvalidRequest(
                "Expected scores in [0, 1], got some outside",
                do='Apply a softmax to logits and exp to log-probabilities, or pass average="votes"',
            )
        return np.clip(found, 0.0, 1.0)

    return scores


def votes_of_model(model: Any) -> ScoreFunction:
    """Make a batched function to votes: 1 for the class that the model predicts, 0 for the others.

    A scikit-learn classifier votes for what its ``predict`` returns. Any other model votes for the class of its largest
    output, the first one among equals, whether the outputs are probabilities, log-probabilities or logits. A row of
    outputs with a NaN votes for no class.

    >>> votes_of_model(lambda x: np.stack([x[:, 0], x[:, 0] - 1], axis=1))(np.array([[-7.0], [np.nan]])).tolist()
    [[1.0, 0.0], [nan, nan]]
    """
    if hasattr(model, "predict") and getattr(model, "classes_", None) is not None:

        def predicted(x: Floats) -> NDArray[np.float64]:
            labels, classes = np.asarray(model.predict(x.reshape(len(x), -1))), np.asarray(model.classes_)
            if labels.shape != (len(x),) or classes.ndim != 1 or len(classes) < 2:
                raise InvalidRequest(
                    "Expected a classifier of one label among two or more", do="Certify one output at a time"
                )
            votes: NDArray[np.float64] = (labels[:, None] == classes).astype(np.float64)
            return votes

        return predicted
    outputs = _outputs_of_model(model, softmax=False)

    def largest(x: Floats) -> NDArray[np.float64]:
        found = outputs(x)
        votes = np.zeros_like(found)
        votes[np.arange(len(found)), found.argmax(1)] = 1.0
        votes[np.isnan(found[:, 0])] = np.nan
        return votes

    return largest


def _outputs_of_model(model: Any, *, softmax: bool) -> ScoreFunction:
    """Return the model's raw outputs, checked for their shape alone."""
    if hasattr(model, "predict_proba"):
        return lambda x: _check_outputs(model.predict_proba(x.reshape(len(x), -1)), len(x))
    if hasattr(model, "forward") and hasattr(model, "parameters"):
        return _outputs_of_torch(model, softmax=softmax)
    if callable(model):
        return lambda x: _check_outputs(model(x), len(x))
    raise InvalidRequest(
        "Expected a classifier", got=type(model).__name__, do="Pass a callable, or a model with predict_proba"
    )


def _outputs_of_torch(module: Any, *, softmax: bool) -> ScoreFunction:
    """Run a torch module in evaluation mode and its own precision."""
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
        return _check_outputs(found.cpu().numpy(), len(x))

    return outputs


def _check_outputs(outputs: Any, inputs: int) -> NDArray[np.float64]:
    """Return outputs of shape (inputs, classes). A row with a NaN becomes NaN throughout."""
    scores = np.array(outputs, np.float64)
    if scores.ndim != 2 or len(scores) != inputs or scores.shape[1] < 2:
        raise InvalidRequest("Expected one row of scores for each input", do="Return an array (inputs, classes)")
    scores[np.isnan(scores).any(1)] = np.nan
    return scores
