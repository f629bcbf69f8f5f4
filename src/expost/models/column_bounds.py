"""Public bounds of a table's columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from expost.core import InvalidRequest

__all__ = ["column_bounds"]

Ends = tuple[float, ...]
_LARGEST = 1e150  # squares of what is within it are finite


def column_bounds(bounds: Any, width: int, names: tuple[str, ...] | None) -> tuple[Ends, Ends] | tuple[None, None]:
    """Lower and upper ends, column by column, of bounds given in order or by name; none if none were given.

    >>> column_bounds({"b": (0, 1), "a": (2, 3)}, 2, ("a", "b"))
    ((2.0, 0.0), (3.0, 1.0))
    """
    if bounds is None:
        return None, None
    if isinstance(bounds, Mapping):
        if names is None or set(bounds) != set(names):
            raise InvalidRequest("Expected bounds for every column by name", do="Pass a table with column names")
        pairs = [bounds[name] for name in names]
    else:
        pairs = list(bounds) if isinstance(bounds, Iterable) else []
    if len(pairs) != width or not all(is_interval(pair) for pair in pairs):
        raise InvalidRequest("Expected one (low, high) for each column, low below high", do="Pass public bounds")
    return tuple(float(low) for low, _ in pairs), tuple(float(high) for _, high in pairs)


def is_interval(pair: Any) -> bool:
    """Whether these are two finite numbers, the lower one first.

    >>> is_interval((0, 1)), is_interval((1, 0)), is_interval("01")
    (True, False, False)
    """
    if not isinstance(pair, Iterable):
        return False
    ends = list(pair)
    if len(ends) != 2 or not all(isinstance(end, Real) and abs(float(end)) <= _LARGEST for end in ends):
        return False
    # Far apart enough to divide by, which two floats that differ may not be.
    return bool(ends[0] < ends[1]) and math.isfinite(2 / (float(ends[1]) - float(ends[0])))
