"""Exact integer answers: how they are read, and how noise is added to them without wrapping around."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.sensitivity import Norm, Sensitivity

__all__ = ["add_exactly", "compact_integers", "distance_in", "integers", "released_sum", "unwrapped"]

_WIDE = 1 << 62
_LARGEST = (1 << 63) - 1  # symmetric, so that an answer and its negative fit


def integers(exact: object) -> NDArray[Any]:
    """An exact answer as integers whose type depends on the type that was given, never on a value.

    NumPy's integers become int64, unsigned ones of 64 bits Python integers. Python integers, single, in lists or in arrays of
    objects, stay Python integers of any length.

    >>> integers(np.array([1, 2])).dtype, integers([1, 2**70]).dtype, integers([1, 2]).dtype
    (dtype('int64'), dtype('O'), dtype('O'))
    >>> integers(0.5)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected exact integers. Put floats on a public grid first ...
    """
    if isinstance(exact, np.ndarray | np.generic):
        values = np.asarray(exact)
        if values.dtype.kind == "i" or values.dtype in (np.uint8, np.uint16, np.uint32):
            narrow: NDArray[Any] = np.maximum(values, -_LARGEST, dtype=np.int64)  # the lowest integer has no negative
            return narrow
        if values.dtype.kind == "u":
            return values.astype(object)
    else:
        values = _objects(exact)
    flat = [_whole(value) for value in values.ravel().tolist()] if values.dtype == object else [None]
    if any(value is None for value in flat):
        raise InvalidRequest("Expected exact integers", do="Put floats on a public grid first (expost.noise.Grid)")
    read = np.empty(len(flat), dtype=object)
    read[:] = flat
    return read.reshape(values.shape)


def compact_integers(exact: object) -> NDArray[Any]:
    """The same integers as int64 where they fit into 62 bits: for answers of which only another type leaves.

    >>> compact_integers([1, 2]).dtype
    dtype('int64')
    """
    values = integers(exact)
    if values.dtype != object or not values.size:
        return values.astype(np.int64)
    return values.astype(np.int64) if max(abs(values.max()), abs(values.min())) < _WIDE else values


def _objects(exact: object) -> NDArray[Any]:
    try:
        return np.array(exact, dtype=object)
    except ValueError:  # rows of several lengths
        return np.array([None])


def _whole(value: object) -> int | None:
    if type(value) is int:
        return value
    return int(value) if isinstance(value, np.integer) else None


def released_sum(values: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """What leaves: exact integers plus noise, in the type of the exact integers (see ``integers``).

    An int64 sum that would leave 64 bits stops at the largest integer. That is post-processing, and never further from the
    exact answer than the sum itself.

    >>> released_sum(np.array([2**63 - 1, 5]), np.array([7, 7])).tolist() == [2**63 - 1, 12]
    True
    """
    if values.dtype == object:
        wide: NDArray[Any] = values + noise.astype(object)
        return wide
    if noise.dtype == object:
        stopped: NDArray[Any] = np.clip(values.astype(object) + noise, -_LARGEST, _LARGEST)
        return stopped.astype(np.int64)
    total: NDArray[np.int64] = np.add(values, noise, dtype=np.int64)
    wrapped = ((values ^ total) & (noise ^ total)) < 0
    if wrapped.any():
        total[wrapped] = np.where(np.broadcast_to(values, total.shape)[wrapped] < 0, -_LARGEST, _LARGEST)
    return total


def add_exactly(values: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """The sum, in Python integers where it could leave 64 bits: for sums of which only another type leaves.

    >>> add_exactly(np.array([1]), np.array([2])).tolist()
    [3]
    """
    wide = any(part.dtype == object or (part.size and int(np.abs(part).max()) >= _WIDE) for part in (values, noise))
    total: NDArray[Any] = values.astype(object) + noise.astype(object) if wide else values + noise
    return total


def unwrapped(values: NDArray[Any]) -> Any:
    """A single number as a Python integer; an array as it is.

    >>> unwrapped(np.array(3)), unwrapped(np.array([3]))
    (3, array([3]))
    """
    return values if isinstance(values, np.ndarray) and values.ndim else int(values)


def distance_in(norm: Norm, sensitivity: Sensitivity, coordinates: int) -> Fraction:
    """The sensitivity in the norm a mechanism needs.

    In one dimension all norms agree; linf <= l2 <= l1 always. The other directions cost a power of the dimension, so
    they are refused rather than paid silently.

    >>> distance_in(Norm.L2, Sensitivity(3), 10)
    Fraction(3, 1)
    """
    smaller = {Norm.LINF: 0, Norm.L2: 1, Norm.L1: 2}
    if coordinates > 1 and smaller[sensitivity.norm] < smaller[norm]:
        raise InvalidRequest(
            f"Expected a sensitivity in {norm.value}", got=sensitivity.norm.value, do=f"Compute it in {norm.value}"
        )
    return Fraction(sensitivity.amount)
