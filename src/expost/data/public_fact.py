"""What is public about the values of an expression: its categories, and the range of its times."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.core import InvalidRequest
from expost.data.expression import ColumnName, Expression, Literal, Operation, Plain, as_utc
from expost.data.row_function import bin_edges, cut_times
from expost.data.value_place import to_moment

__all__ = ["PublicFacts", "TimeRange", "read_range", "split_bounds"]

TimeRange = tuple[datetime.datetime, datetime.datetime]

_MOST_PERIODS = 1 << 20
_PARTS = {
    "quarter": range(1, 5),
    "month": range(1, 13),
    "day": range(1, 32),
    "dayofyear": range(1, 367),
    "week": range(1, 54),
    "weekday": range(1, 8),
    "hour": range(24),
    "minute": range(60),
    "second": range(60),
}
_STEPS: Mapping[str, tuple[str, int]] = {
    "year": ("Y", 1),
    "quarter": ("M", 3),
    "month": ("M", 1),
    "week": ("D", 7),
    "day": ("D", 1),
    "hour": ("h", 1),
    "minute": ("m", 1),
    "second": ("s", 1),
}


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """The public description of columns, from which more follows about expressions of them.

    >>> facts = PublicFacts({}, {}, {"when": (datetime.datetime(2012, 12, 31), datetime.datetime(2013, 1, 9))})
    >>> facts.values_of(ColumnName("when").year()), facts.values_of(ColumnName("when").quarter())
    ((2012, 2013), (1, 2, 3, 4))
    >>> len(facts.values_of(ColumnName("when").date_trunc("week")))
    2
    """

    derived: Mapping[str, Expression]
    categories: Mapping[str, tuple[Any, ...]]
    ranges: Mapping[str, TimeRange]

    def values_of(self, expression: Expression) -> tuple[Plain, ...] | None:
        """Return all values that an expression can have apart from missing, or None if they are not known."""
        if isinstance(expression, Literal):
            return () if expression.value is None else (expression.value,)
        if isinstance(expression, ColumnName):
            declared = self.categories.get(expression.name)
            if declared is None and expression.name in self.derived:
                return self.values_of(self.derived[expression.name])
            return declared
        if not isinstance(expression, Operation):
            return None
        name, arguments = expression.name, expression.arguments
        if name in _PARTS:
            return tuple(_PARTS[name])
        if name in ("bin", "width_bucket"):
            low, high, bins = (each.value for each in arguments[1:] if isinstance(each, Literal))
            return tuple(range(bins + 2)) if name == "width_bucket" else tuple(bin_edges(low, high, bins)[:-1].tolist())
        if name in ("CASE", "coalesce"):
            return self._union(arguments if name == "coalesce" else (*arguments[1:-1:2], arguments[-1]))
        found = self.range_of(arguments[0]) if name == "year" else self.range_of(expression)
        if found is None or name not in ("year", "date", "date_trunc"):
            return None
        if name == "year":
            return tuple(range(found[0].year, found[1].year + 1))
        return _list_periods(found, _period(expression))

    def _union(self, expressions: tuple[Expression, ...]) -> tuple[Plain, ...] | None:
        """Return the values of several expressions, each once, in order."""
        found: dict[Plain, None] = {}
        for each in expressions:
            values = self.values_of(each)
            if values is None:
                return None
            found.update(dict.fromkeys(values))
        return tuple(found)

    def range_of(self, expression: Expression) -> TimeRange | None:
        """Return the public range of a time, or None. Cutting to periods moves the ends of a range like its times."""
        if isinstance(expression, ColumnName):
            declared = self.ranges.get(expression.name)
            if declared is None and expression.name in self.derived:
                return self.range_of(self.derived[expression.name])
            return declared
        if not isinstance(expression, Operation) or expression.name not in ("date", "date_trunc"):
            return None
        inner = self.range_of(expression.arguments[-1])
        if inner is None:
            return None
        first, last = cut_times(_period(expression), np.array(inner, "datetime64[us]")).tolist()
        return first, last


def _period(expression: Operation) -> str:
    """Return the period to which an operation cuts times."""
    unit = expression.arguments[0]
    return unit.value.lower() if expression.name == "date_trunc" and isinstance(unit, Literal) else "day"


def _list_periods(ends: TimeRange, period: str) -> tuple[Plain, ...] | None:
    """List the starts of the periods from the first to the last, or return None if there are too many to group by."""
    unit, step = _STEPS[period]
    first, last = (to_moment(end).astype(f"datetime64[{unit}]") for end in ends)
    if (last - first).astype(np.int64) // step >= _MOST_PERIODS:
        return None
    listed: list[datetime.datetime] = np.arange(first, last + 1, step).astype("datetime64[us]").tolist()
    return tuple(listed)


def split_bounds(bounds: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, TimeRange]]:
    """Split public bounds into those of numbers and the ranges of times.

    >>> split_bounds({"age": (0, 120), "when": ("2013-01-01", "2013-12-31")})[1]["when"][1]
    datetime.datetime(2013, 12, 31, 23, 59, 59, 999999)
    """
    ranges = {name: read_range(name, pair) for name, pair in bounds.items() if _is_range(pair)}
    return {name: pair for name, pair in bounds.items() if name not in ranges}, ranges


def _is_range(pair: object) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(e, str | datetime.date) for e in pair)


def read_range(column: str, pair: Any) -> TimeRange:
    """Read two dates or moments, as such or in ISO format. A last day counts until its end."""
    ends = []
    for place, given in enumerate(pair):
        try:
            end = datetime.datetime.fromisoformat(given) if isinstance(given, str) else given
        except ValueError:
            raise InvalidRequest(
                f"Expected dates or times as the range of {column}", got=given, do='Pass ("2013-01-01", "2013-12-31")'
            ) from None
        whole_day = len(given) == len("2013-01-01") if isinstance(given, str) else not hasattr(given, "hour")
        moment: Any = to_moment(as_utc(end)).item()
        ends.append(
            moment.replace(hour=23, minute=59, second=59, microsecond=999_999) if place and whole_day else moment
        )
    if ends[0] > ends[1]:
        raise InvalidRequest(f"Expected the first time of {column} before the last", do="Swap them")
    return ends[0], ends[1]
