"""Exact two-sided geometric noise: the discrete Laplace."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import is_below, logistic_minus
from expost.noise.geometric import draw_geometric
from expost.noise.parameter import Parameter, blocks

__all__ = ["discrete_laplace"]

_SIGN_ERROR = 2.0**-31  # a 32-bit word knows U to 2^-32; the float probability and the sums err by less than 2^-48


def discrete_laplace(scale: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Integers with P(k) proportional to exp(-|k| / scale).

    ``scale`` is an exact rational (a float means its shortest decimal), or one per element. The distribution is exact
    (docs/proofs/inversion-filter.md). Values are int64; where one needs more than 62 bits, Python integers.

    >>> from expost.noise.bits import SeededBits
    >>> discrete_laplace(0.5, 6, bits=SeededBits(3)).dtype
    dtype('int64')
    >>> isinstance(discrete_laplace(10), int)
    True
    """
    parameter = Parameter.read(scale, size, "scale")
    return parameter.shaped(draw_laplace(parameter, source_of(bits)))


def draw_laplace(scale: Parameter, bits: BitSource) -> NDArray[Any]:
    """One value per element of ``scale``, flat.

    The sign comes first: the value is negative with probability 1 / (1 + exp(1 / scale)), and then -1 - G for a
    geometric G, else G. Nothing is rejected, -0 does not exist.
    """
    magnitudes = draw_geometric(scale, bits)
    flips = np.empty(scale.count, np.int64)
    for part in blocks(scale.count):
        flips[part] = _draw_signs(scale, part, bits)
    return magnitudes ^ flips  # k ^ -1 == -1 - k


def _draw_signs(scale: Parameter, part: slice, bits: BitSource) -> NDArray[np.int64]:
    """-1 with probability 1 / (1 + exp(1 / scale)), else 0."""
    words = bits.words(part.stop - part.start, np.uint32)
    tail = np.exp(-1 / scale.floats)
    excess = words * 2.0**-32
    excess -= scale.take(tail / (1 + tail), part)
    negative = -(excess < 0).astype(np.int64)
    for place in np.flatnonzero(np.abs(excess) < _SIGN_ERROR).tolist():
        probability = partial(logistic_minus, 1 / scale.exact(part.start + place))
        negative[place] = -int(is_below(int(words[place]), 32, probability, bits))
    return negative
