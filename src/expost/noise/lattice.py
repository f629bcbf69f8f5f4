"""Exact integer answers: how they are read, and how noise is added to them without wrapping around."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.sensitivity import Norm, Sensitivity

__all__ = ["add_exactly", "distance_in", "integers", "unwrapped"]

_WIDE = 1 << 62


def integers(exact: object) -> NDArray[Any]:
    """An exact answer as int64, or as Python integers where 62 bits could be too few.

    >>> integers([1, 2]).dtype
    dtype('int64')
    >>> integers(0.5)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected exact integers. Put floats on a public grid first ...
    """
    values = np.asarray(exact)
    if values.dtype.kind not in "iu" and not _all_python_integers(values):
        raise InvalidRequest("Expected exact integers", do="Put floats on a public grid first (expost.noise.Grid)")
    largest = max((abs(int(end)) for end in (values.max(), values.min())), default=0) if values.size else 0
    return values.astype(np.int64 if largest < _WIDE else object)


def _all_python_integers(values: NDArray[Any]) -> bool:
    return values.dtype == object and all(type(value) is int for value in values.ravel().tolist())


def add_exactly(values: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """The sum, in Python integers where it could leave 64 bits: a wrapped sum would tell the exact answer.

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
    return values.item() if values.ndim == 0 else values


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
