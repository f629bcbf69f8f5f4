"""Axes along which rows are grouped: public categories and bins, and secret keys found in the data."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind, canonical_column, canonical_value, missing_cells
from expost.data.cell_values import Numbers, Times, Truths
from expost.data.evaluation import evaluate, evaluate_cells
from expost.data.expression import ColumnName, Expression, Operation, Plain
from expost.data.public_fact import read_range
from expost.data.row_function import write_key
from expost.data.unit_identity import exact_words, widen_words
from expost.data.value_place import find_places, to_moment

__all__ = ["PERIODS", "Axis", "Bins", "Categories", "FoundKeys", "KeyTuples", "LogBins", "Periods", "key_column"]

Derived = Mapping[str, Expression]

_MOST_PLACES = 1 << 24
_PLAIN = (str, int, float, Decimal, datetime.date)
PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "M", "quarter": "3M", "year": "Y"}
"""The lengths of calendar periods, with NumPy's codes."""
_FEW = 1 << 16  # up to this many keys Arrow's lookup is faster than a binary search of hashes


class Axis(Protocol):
    """Assigns each row one of ``size`` places. A later axis of a tally varies fastest."""

    @property
    def expression(self) -> Expression:
        """The value by which rows are grouped."""
        ...

    @property
    def size(self) -> int:
        """The number of places."""
        ...

    @property
    def labels(self) -> tuple[Any, ...]:
        """The meaning of each place."""
        ...

    def codes(self, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.integer[Any]]:
        """Return the place of each row, or -1 for a row outside the axis."""
        ...


@dataclass(frozen=True, slots=True)
class Categories:
    """A public list of values. Rows with any other value lie outside the axis.

    >>> from expost.data.expression import col
    >>> axis = Categories.of(col("origin"), ["EWR", "JFK"])
    >>> axis.codes(pa.record_batch({"origin": ["JFK", "XXX", None]}), {}).tolist()
    [1, -1, -1]
    """

    expression: Expression
    values: tuple[Plain, ...]

    @classmethod
    def of(cls, expression: Expression, values: Sequence[Plain]) -> Categories:
        """Build the axis of a public list without repeats."""
        do = 'Pass categories={"city": ["Rome", ...]}'
        listed = tuple(map(canonical_value, values if isinstance(values, Iterable) else ()))
        finite = all(value.is_finite() for value in listed if isinstance(value, Decimal))
        if not finite or not all(value is None or isinstance(value, _PLAIN) for value in listed):
            raise InvalidRequest(f"Expected texts, numbers, booleans or dates as categories of {expression!r}", do=do)
        distinct = {to_moment(value) if isinstance(value, datetime.date) else value for value in listed}
        if not listed or len(distinct) != len(listed) or len(listed) > _MOST_PLACES:
            raise InvalidRequest(f"Expected different public categories for {expression!r}", do=do)
        return cls(expression, listed)

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def labels(self) -> tuple[Plain, ...]:
        return self.values

    def codes(self, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.integer[Any]]:
        words = _encoded_texts(self.expression, batch, derived)
        # Of texts in a dictionary each different one is looked up once.
        cells = evaluate_cells(self.expression, batch, derived) if words is None else canonical_column(words.dictionary)
        found, absent = find_places(cells, self.values), -1
        if None in self.values:
            absent = self.values.index(None)
            found = np.where(missing_cells(cells), absent, found)
        if words is None:
            return found
        indices = words.indices.cast(pa.int32()).fill_null(len(found)).to_numpy()
        return np.asarray(np.append(found, absent)[indices])


@dataclass(frozen=True, slots=True)
class KeyTuples(Categories):
    """A public list of keys of several columns. ``values`` are the keys as texts.

    >>> from expost.data.expression import col
    >>> axis = KeyTuples.of_keys((col("city"), col("size")), (pa.large_string(), pa.int64()), [("Oslo", 3)])
    >>> axis.codes(pa.record_batch({"city": ["Oslo", "Oslo", None], "size": [3, 4, 3]}), {}).tolist(), axis.labels
    ([0, -1, -1], (('Oslo', 3),))
    """

    keys: tuple[tuple[Plain, ...], ...] = ()

    @classmethod
    def of_keys(
        cls, expressions: Sequence[Expression], types: Sequence[pa.DataType], keys: Sequence[tuple[Any, ...]]
    ) -> KeyTuples:
        """Build the axis of keys whose parts have the types of their columns."""
        columns = [pa.array(part, kind) for part, kind in zip(zip(*keys, strict=True), types, strict=True)]
        expression = Operation("TUPLE", tuple(expressions))
        return cls(expression, tuple(write_key(*columns).texts.to_pylist()), tuple(keys))

    @property
    def labels(self) -> tuple[Any, ...]:
        return self.keys


@dataclass(frozen=True, slots=True)
class Bins:
    """Public edges of a histogram. A bin includes its lower edge, the last one both; other values lie outside.

    >>> from expost.data.expression import col
    >>> axis = Bins.of(col("age"), [0, 18, 65])
    >>> axis.codes(pa.record_batch({"age": [0.0, 18.0, 65.0, 70.0, None]}), {}).tolist()
    [0, 1, 1, -1, -1]
    """

    expression: Expression
    edges: tuple[float, ...]
    clamped: bool = False

    @classmethod
    def of(cls, expression: Expression, edges: Sequence[float], *, clamped: bool = False) -> Bins:
        """Build the axis of increasing finite edges; ``clamped`` puts values beyond the ends into the end bins."""
        try:
            found = tuple(canonical_value(float(edge)) for edge in edges)
        except (TypeError, ValueError):
            found = ()
        rising = all(low < high for low, high in itertools.pairwise(found))
        if not 2 <= len(found) <= _MOST_PLACES or not rising or not all(map(math.isfinite, found)):
            raise InvalidRequest("Expected increasing public edges", do="Pass edges such as [0, 18, 65, 120]")
        return cls(expression, found, clamped)

    @property
    def size(self) -> int:
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[Plain, ...]:
        """The lower edge of each bin."""
        return self.edges[:-1]

    def codes(self, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.int64]:
        numbers = _evaluate_numbers(self.expression, batch, derived)
        edges = np.array(self.edges)
        place = np.searchsorted(edges, numbers, side="right") - 1
        place = np.where(numbers == edges[-1], self.size - 1, place)
        if self.clamped:
            place = np.clip(place, 0, self.size - 1)
        return np.where(np.isnan(numbers) | (place >= self.size), -1, place)


@dataclass(frozen=True, slots=True)
class Periods:
    """Calendar periods of a public range of time. A period includes its first moment; moments outside the range lie outside.

    Weeks begin on Mondays. The first and the last period are cut off at the ends of the range.

    >>> from expost.data.expression import col
    >>> axis = Periods.of(col("at"), ("2024-01-31", "2024-03-01"), "month")
    >>> [str(label) for label in axis.labels]
    ['2024-01-01', '2024-02-01', '2024-03-01']
    >>> moments = pa.array(["2024-01-31", "2024-02-29", "2024-03-02", None]).cast(pa.timestamp("us"))
    >>> axis.codes(pa.record_batch({"at": moments}), {}).tolist()
    [0, 1, -1, -1]
    """

    expression: Expression
    starts: tuple[datetime.date, ...]
    first: datetime.datetime
    last: datetime.datetime

    @classmethod
    def of(cls, expression: Expression, bounds: tuple[Any, Any], every: str) -> Periods:
        """Build the axis of the periods from the first to the last day (or moment) of a public range."""
        if not isinstance(every, str) or every not in PERIODS:
            raise InvalidRequest(
                "Expected a calendar period",
                got=every,
                do=suggest_name(every, PERIODS) or f"Use one of: {', '.join(PERIODS)}",
            )
        first, last = read_range(repr(expression), bounds)
        unit = PERIODS[every]
        if unit == "W":  # NumPy's weeks begin on Thursdays, as 1970 did
            days = np.array([first, last], "datetime64[D]")
            days -= (days.astype(np.int64) + 3) % 7
            starts = np.arange(days[0], days[1] + 1, 7)
        else:
            ends = np.array([first, last], f"datetime64[{unit[-1]}]")
            if unit == "3M":
                ends -= ends.astype(np.int64) % 3
            starts = np.arange(ends[0], ends[1] + 1, 3 if unit == "3M" else 1)
        if len(starts) > _MOST_PLACES:
            raise InvalidRequest("Expected fewer periods", got=len(starts), do="Pass a longer period as every=")
        return cls(
            expression, tuple(starts.astype("datetime64[s]" if unit == "h" else "datetime64[D]").tolist()), first, last
        )

    @property
    def size(self) -> int:
        return len(self.starts)

    @property
    def labels(self) -> tuple[Plain, ...]:
        """The first day, or hour, of each period."""
        return self.starts

    def codes(self, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.int64]:
        values = evaluate(self.expression, batch, derived)
        assert isinstance(values, Times)
        moments = np.where(values.missing, to_moment(self.first), values.moments)
        place = np.searchsorted(np.array(self.starts, "datetime64[us]"), moments, side="right") - 1
        inside = ~values.missing & (moments >= to_moment(self.first)) & (moments <= to_moment(self.last))
        return np.where(inside, place, -1)


@dataclass(frozen=True, slots=True)
class LogBins:
    """Bins of doubling width: (scale 2^(i-1), scale 2^i] for i = 0 to ``count`` - 1, mirrored below zero.

    Places go from the most negative bin to the most positive one. Zero lies in the first positive bin, and values
    beyond the last bin belong to it.

    >>> from expost.data.expression import col
    >>> axis = LogBins(col("x"), scale=1.0, count=4)
    >>> axis.codes(pa.record_batch({"x": [0.0, 1.0, 1.5, 8.0, 99.0, -3.0, None]}), {}).tolist()
    [4, 4, 5, 7, 7, 1, -1]
    """

    expression: Expression
    scale: float
    count: int

    @property
    def size(self) -> int:
        return 2 * self.count

    @property
    def labels(self) -> tuple[Plain, ...]:
        """The edge of each bin that is farther from zero."""
        ends = [self.scale * 2.0**i for i in range(self.count)]
        return (*(-end for end in reversed(ends)), *ends)

    def codes(self, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.int64]:
        numbers = _evaluate_numbers(self.expression, batch, derived)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):  # a huge value becomes infinite (the last bin); a warning would reveal it
            size = np.abs(np.where(missing, 0.0, numbers)) / self.scale
        mantissa, exponent = np.frexp(size)
        power = np.where(mantissa == 0.5, exponent - 1, exponent)  # the upper edge belongs to the bin
        place = np.where(np.isinf(size), self.count - 1, np.clip(power, 0, self.count - 1))
        return np.where(missing, -1, np.where(numbers < 0, self.count - 1 - place, self.count + place))


@dataclass(frozen=True, eq=False, repr=False)
class FoundKeys:
    """The keys that occur in the data, in order. SECRET: a key may be released only after thresholding.

    The keys stay in Arrow, and their number is not limited: an error would reveal how many there are.

    >>> from expost.data.expression import col
    >>> axis = FoundKeys(col("city"), pa.array(["Oslo", "Rome"], pa.large_string()))
    >>> axis.codes(pa.record_batch({"city": ["Rome", None, "Oslo"]}), {}).tolist()
    [1, -1, 0]
    """

    expression: Expression
    column: pa.Array
    key: bytes = b""  # secret key of the hashes by which texts are found

    @property
    def size(self) -> int:
        return len(self.column)

    @property
    def labels(self) -> tuple[Any, ...]:
        return tuple(self.column.to_pylist())

    def codes(self, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.integer[Any]]:
        column = key_column(self.expression, batch, derived)
        if self._sorted_words is None:
            found = pc.index_in(column, value_set=self.column, skip_nulls=True)
            return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
        words, present = exact_words(column, self.key)
        ordered, order = self._sorted_words
        near = np.minimum(np.searchsorted(ordered[0], widen_words(words[0])), self.size - 1)
        for mine, theirs in zip(words, ordered, strict=True):
            present = present & (widen_words(mine) == theirs[near])
        return np.where(present, order[near], -1)

    @cached_property
    def _sorted_words(self) -> tuple[list[NDArray[np.uint64]], NDArray[np.intp]] | None:
        """The words of many keys in order, with their places. Arrow would hash all keys again for every batch.

        None for few keys, and if two keys share a first word, so that a collision cannot mix up two keys.
        """
        if self.size <= _FEW:
            return None
        words = [widen_words(word) for word in exact_words(self.column, self.key)[0]]
        order = np.argsort(words[0])
        ordered = [word[order] for word in words]
        return None if (ordered[0][1:] == ordered[0][:-1]).any() else (ordered, order)


def _encoded_texts(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> pa.DictionaryArray | None:
    """Return a stored column of texts that is dictionary encoded, None for any other expression."""
    column = (
        batch.column(expression.name) if isinstance(expression, ColumnName) and expression.name not in derived else None
    )
    return column if isinstance(column, pa.DictionaryArray) and Kind.of(column.type) is Kind.TEXT else None


def key_column(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> pa.Array:
    """Return the key of each row as a canonical column whose type depends on the expression only.

    Times are in microseconds, because a key is released as a Python value.
    """
    column = evaluate_cells(expression, batch, derived)
    return evaluate(expression, batch, derived).to_column() if pa.types.is_temporal(column.type) else column


def _evaluate_numbers(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.float64]:
    """Return the numbers of an expression, NaN where missing."""
    values = evaluate(expression, batch, derived)
    assert isinstance(values, Numbers | Truths)
    return values.to_floats()
