"""Float noise for predictions. It stabilises a model's output; it does not protect anyone's data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import InvalidRequest
from expost.core.mask import check_unmasked
from expost.core.rational import rational
from expost.noise import BitSource, system_bits

__all__ = ["NoiseKind", "blocks", "deviation_of", "laplace_scale", "noise_kind", "numbers_of", "perturbations"]

NoiseKind = Literal["gaussian", "laplace"]

_ENTRIES = 1 << 23  # floats of one block of noisy inputs


def noise_kind(value: object) -> NoiseKind:
    """The kind of noise a caller named.

    >>> noise_kind("laplace")
    'laplace'
    """
    match value if isinstance(value, str) else None:  # arrays compare by element
        case "gaussian" | "laplace" as found:
            return found
    raise InvalidRequest("Expected noise to be 'gaussian' or 'laplace'", got=value, do="Name one of them")


def laplace_scale(sigma: object) -> float:
    """The scale of Laplace noise of this standard deviation.

    >>> round(laplace_scale(2.0), 4)
    1.4142
    """
    return deviation_of(sigma) / math.sqrt(2)


def deviation_of(sigma: object) -> float:
    """A standard deviation as a caller typed it.

    >>> deviation_of(0.5)
    0.5
    """
    return float(rational(sigma, "sigma"))


def numbers_of(values: Any, name: str) -> NDArray[np.float64]:
    """One number or many.

    >>> numbers_of([1, 2], "distance")
    array([1., 2.])
    """
    check_unmasked(values)
    try:
        array = np.asarray(values)
        found = array.astype(np.float64) if array.dtype.kind in "biuf" else np.full(1, np.nan)
    except (TypeError, ValueError, OverflowError):
        found = np.full(1, np.nan)
    if np.isnan(found).any():
        raise InvalidRequest(f"Expected {name} to be numbers", do="Pass one, or a list of them")
    return found


def perturbations(
    shape: tuple[int, ...], *, noise: NoiseKind, sigma: float, bits: BitSource | None = None
) -> NDArray[np.float32]:
    """Independent noise of standard deviation ``sigma``, by inversion of 32-bit uniform numbers.

    Not for privacy: the values lie on a float grid. A certificate is unaffected, since 2^-32 of a distribution is far
    below its failure probability.

    >>> perturbations((2, 3), noise="gaussian", sigma=0.5).shape
    (2, 3)
    """
    words = (bits or system_bits()).words(int(np.prod(shape)), np.uint32)
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-32
    if noise == "gaussian":
        drawn = special.ndtri(uniform) * sigma
    else:
        centred = uniform - 0.5
        drawn = -np.sign(centred) * np.log1p(-2 * np.abs(centred)) * laplace_scale(sigma)
    return np.asarray(drawn, np.float32).reshape(shape)


def blocks(samples: int, inputs: int, size: int) -> Iterator[int]:
    """How many samples to draw at a time, so that a block of noisy inputs stays small.

    >>> list(blocks(10, 1, 1))
    [10]
    """
    at_once = max(1, min(samples, _ENTRIES // max(inputs * size, 1)))
    for start in range(0, samples, at_once):
        yield min(at_once, samples - start)


def as_floats(x: Any) -> NDArray[np.float32]:
    """Inputs as a float array with one row each."""
    check_unmasked(x)
    try:
        inputs = np.asarray(x, np.float32)
    except (TypeError, ValueError):
        inputs = np.empty(0, np.float32)
    if inputs.ndim < 2 or len(inputs) == 0 or not np.isfinite(inputs).all():
        raise InvalidRequest("Expected finite inputs, one row each", do="Pass an array of shape (inputs, features)")
    return inputs
