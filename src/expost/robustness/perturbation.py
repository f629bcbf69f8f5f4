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

__all__ = [
    "SAMPLER_ERROR",
    "Floats",
    "NoiseKind",
    "as_floats",
    "blocks",
    "deviation_of",
    "laplace_scale",
    "model_floats",
    "noise_kind",
    "noisy_copies",
    "numbers_of",
    "perturbations",
]

Floats = NDArray[np.float32] | NDArray[np.float64]
"""What models read: the caller's own single precision, or else doubles."""

NoiseKind = Literal["gaussian", "laplace"]

SAMPLER_ERROR = 2.0**-32
"""Total variation between a noisy coordinate as drawn and the ideal one (docs/proofs/certified-radius.md, Theorem 3)."""

_ENTRIES = 1 << 22  # doubles of one block of noisy inputs
_STEPS = 10  # the lattice of noisy inputs has between 2^10 and 2^11 steps a standard deviation
_EXACT = 2.0**52  # lattice points up to here, and whole numbers, are doubles


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
) -> NDArray[np.float64]:
    """Independent noise of standard deviation ``sigma``, by inversion of 52-bit uniform numbers.

    Not for privacy: the values lie on a float grid.

    >>> perturbations((2, 3), noise="gaussian", sigma=0.5).shape
    (2, 3)
    """
    words = (bits or system_bits()).words(int(np.prod(shape)), np.uint64)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # exact, and never 0 or 1
    if noise == "gaussian":
        drawn = special.ndtri(uniform) * sigma
    else:
        centred = uniform - 0.5
        drawn = -np.sign(centred) * np.log1p(-2 * np.abs(centred)) * laplace_scale(sigma)
    return np.asarray(drawn).reshape(shape)


def noisy_copies(
    inputs: Floats, *, noise: NoiseKind, sigma: float, samples: int, bits: BitSource | None = None
) -> Iterator[Floats]:
    """Noisy copies of each input in blocks of shape (inputs, copies, features...), on a lattice finer than sigma/1000.

    A copy is the lattice point nearest to the exact sum of input and noise, so that it is a function of that sum, as
    the theorems want: the input is split into a lattice point and a rest smaller than a step, both exactly, and only
    the rest meets the noise. Numbers of the model's own type come last. docs/proofs/certified-radius.md, Theorem 3.

    >>> (block,) = noisy_copies(np.array([[1e12 + 1]]), noise="gaussian", sigma=1.0, samples=3)
    >>> block.shape, bool((np.abs(block - 1e12) < 20).all())
    ((1, 3, 1), True)
    """
    step = 2.0 ** (math.frexp(sigma)[1] - 1 - _STEPS)  # a power of two: scaling by it is exact
    scaled = inputs.astype(np.float64) / step
    if (np.abs(scaled) >= _EXACT).any():
        raise InvalidRequest(
            "Expected inputs below 2^41 times sigma, which doubles tell apart", do="Subtract an offset, or raise sigma"
        )
    nearest = np.rint(scaled)
    rest = scaled - nearest
    for count in blocks(samples, len(inputs), int(np.prod(inputs.shape[1:]))):
        drawn = perturbations((count, *inputs.shape[1:]), noise=noise, sigma=sigma / step, bits=bits)
        copies = rest[:, None] + drawn[None]
        np.rint(copies, out=copies)
        copies += nearest[:, None]
        copies *= step
        with np.errstate(over="ignore"):  # beyond single precision: infinite, as any model of that type would read it
            read: Floats = copies.astype(np.float32) if inputs.dtype == np.float32 else copies
        yield read


def blocks(samples: int, inputs: int, size: int) -> Iterator[int]:
    """How many samples to draw at a time, so that a block of noisy inputs stays small.

    >>> list(blocks(10, 1, 1))
    [10]
    """
    at_once = max(1, min(samples, _ENTRIES // max(inputs * size, 1)))
    for start in range(0, samples, at_once):
        yield min(at_once, samples - start)


def as_floats(x: Any) -> Floats:
    """Finite inputs with one row each, in the type that the model reads.

    >>> as_floats([[1.7e9]]).dtype, as_floats(np.ones((1, 2), np.float32)).dtype
    (dtype('float64'), dtype('float32'))
    """
    inputs = model_floats(x)
    if inputs.ndim < 2 or len(inputs) == 0 or not np.isfinite(inputs).all():
        raise InvalidRequest("Expected finite inputs, one row each", do="Pass an array of shape (inputs, features)")
    return inputs


def model_floats(x: Any) -> Floats:
    """Numbers as a model reads them: nothing that was told apart becomes equal.

    >>> model_floats([[2**24 + 1]]).tolist()
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
