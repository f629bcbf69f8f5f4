"""Uniform integers without modulo bias."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource, source_of
from expost.noise.parameter import as_shape

__all__ = ["uniform_below"]

_NARROW = 1 << 63


def uniform_below(bound: Any, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Uniform integers from 0 to ``bound - 1``; ``bound`` is an integer, or one per element.

    Words below 2^64 mod bound are thrown away; what is left is a whole number of bounds (Lem19, section 4).

    >>> from expost.noise.bits import SeededBits
    >>> sorted(set(uniform_below(3, 100, bits=SeededBits(1)).tolist()))
    [0, 1, 2]
    """
    bounds = np.asarray(bound, dtype=None if isinstance(bound, np.ndarray) else object)
    if bounds.ndim and size is not None and as_shape(size) != bounds.shape:
        raise InvalidRequest("Expected one bound per element", do="Leave size out, or pass a single bound")
    whole = [_whole(each) for each in bounds.ravel().tolist()]
    shape = bounds.shape if bounds.ndim else as_shape(size)
    count = math.prod(shape or ())
    column = np.array(whole, dtype=np.uint64 if all(each <= _NARROW for each in whole) else object)
    flat = draw_uniform(np.broadcast_to(column, count) if column.size == 1 else column, source_of(bits))
    return flat.tolist()[0] if shape is None else flat.reshape(shape)


def draw_uniform(bounds: NDArray[Any], bits: BitSource) -> NDArray[Any]:
    """One integer per bound: int64, or Python integers where a bound needs more than 63 bits."""
    if bounds.dtype == object:
        return np.array([_below(int(bound), bits) for bound in bounds], dtype=object)
    words = bits.words(bounds.size)
    pending = np.flatnonzero(words < (~bounds + np.uint64(1)) % bounds)  # 2^64 - bound, mod bound
    while pending.size:
        words[pending] = bits.words(pending.size)
        pending = pending[words[pending] < (~bounds[pending] + np.uint64(1)) % bounds[pending]]
    below: NDArray[np.int64] = (words % bounds).astype(np.int64)
    return below


def _below(bound: int, bits: BitSource) -> int:
    length = (bound - 1).bit_length()
    while (value := bits.integer(length)) >= bound:
        pass
    return value


def _whole(bound: object) -> int:
    if isinstance(bound, bool) or not isinstance(bound, int | np.integer) or bound < 1:
        raise InvalidRequest("Expected an integer bound of at least 1", got=bound, do="Pass a positive integer")
    return int(bound)
