"""The numbers that a plan is made of, as callers type them: read once and in one way."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from expost.core import InvalidRequest
from expost.core.rational import finite, probability, rational, whole
from expost.stats.hypothesis.price import level_of

__all__ = [
    "chance_of",
    "correlation_of",
    "deviation_of",
    "flag_of",
    "number_of",
    "rows_of",
    "share_of",
    "sizes_of",
    "strength_of",
    "two_of",
]

_MOST_ROWS = 1 << 40
_MOST_GROUPS = 1 << 16
_LARGEST = 1e150  # squares of what is within it are finite
_MOST_WIDTHS = 1e9


def rows_of(value: object, name: str = "rows", *, fewest: int = 1, most: int = _MOST_ROWS) -> int:
    """A number of rows.

    >>> rows_of(2.5)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected rows to be a whole number from 1 to 1099511627776, got 2.5. Pass e.g. 1000.
    """
    return whole(value, name, least=fewest, most=most, do=f"Pass e.g. {min(1000, most)}")


def sizes_of(value: object, *, groups: int | None = None) -> list[int]:
    """The numbers of rows of several groups, two at least.

    >>> sizes_of((20, 30))
    [20, 30]
    """
    given: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else []
    if not 2 <= len(given) <= _MOST_GROUPS or groups not in (None, len(given)):
        number = "of at least two groups" if groups is None else f"of {groups} groups"
        raise InvalidRequest(f"Expected the sizes {number}", do="Pass e.g. sizes=(100, 100)")
    return [rows_of(each, "each size") for each in given]


def strength_of(epsilon: Any, *, endless: float | None = None) -> float:
    """An epsilon that a power is asked for; where ``endless`` is given, larger ones count as it, infinity included.

    >>> strength_of(float("inf"), endless=64.0), strength_of(0.5)
    (64.0, 0.5)
    """
    if endless is None:
        return float(level_of(epsilon))
    if _is_number(epsilon) and epsilon >= endless:
        return endless
    return float(rational(epsilon, "epsilon"))


def chance_of(value: object, name: str = "level") -> float:
    """A probability between 0 and 1.

    >>> chance_of(0.05)
    0.05
    """
    return float(probability(value, name))


def number_of(value: Any, name: str) -> float:
    """A finite number of either sign.

    >>> number_of(-2, "effect")
    -2.0
    """
    found = finite(value, name, do="Pass e.g. 0.5")
    if abs(found) > _LARGEST:
        raise InvalidRequest(f"Expected {name} to be a finite number", got=value, do="Pass e.g. 0.5")
    return found


def correlation_of(value: Any) -> float:
    """A correlation between -1 and 1, both excluded.

    >>> correlation_of(-0.5)
    -0.5
    """
    if not _is_number(value) or not -1 < value < 1:
        raise InvalidRequest("Expected a correlation between -1 and 1", got=value, do="Pass one inside")
    return float(value)


def share_of(value: object, name: str, width: float) -> float:
    """A number in widths of the bounds; beyond a billion of them more says nothing more.

    >>> share_of(2, "deviation", 10.0)
    0.2
    """
    return float(np.clip(number_of(value, name) / width, -_MOST_WIDTHS, _MOST_WIDTHS))


def deviation_of(value: object, width: float) -> float:
    """A standard deviation in widths of the bounds.

    >>> deviation_of(2, 10.0)
    0.2
    """
    return share_of(rational(value, "deviation"), "deviation", width)


def two_of(value: object, name: str) -> tuple[Any, Any]:
    """One thing for each of two columns.

    >>> two_of((1, 2), "deviations")
    (1, 2)
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidRequest(f"Expected {name} of both columns", do="Pass a pair")
    return value[0], value[1]


def flag_of(value: object, name: str) -> bool:
    """Yes or no.

    >>> flag_of(True, "public_sizes")
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidRequest(f"Expected {name} to be True or False", got=value, do="Pass one of them")
    return bool(value)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
