"""Public axes along which rows are told apart: categories and bins."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.evaluate import evaluate, moment
from expost.data.expression import ColumnName, Expression, Plain
from expost.data.values import Numbers, Texts, Times, Truths, decoded

__all__ = ["Axis", "Bins", "Categories", "LogBins", "stored_integers"]

_MOST_PLACES = 1 << 24


@dataclass(frozen=True, slots=True)
class Categories:
    """A public list of values; rows with any other value belong nowhere on this axis.

    >>> from expost.data.expression import col
    >>> axis = Categories.of(col("origin"), ["EWR", "JFK"])
    >>> axis.codes(pa.record_batch({"origin": ["JFK", "XXX", None]}), {}).tolist()
    [1, -1, -1]
    """

    expression: Expression
    values: tuple[Plain, ...]

    @classmethod
    def of(cls, expression: Expression, values: Sequence[Plain]) -> Categories:
        """The axis of a public list without repeats."""
        do = 'Pass categories={"city": ["Rome", ...]}'
        given = values if isinstance(values, Iterable) else ()
        listed = tuple(value.item() if isinstance(value, np.generic) else value for value in given)
        if not all(value is None or isinstance(value, str | int | float | datetime.date) for value in listed):
            raise InvalidRequest(f"Expected texts, numbers, truths or dates as categories of {expression!r}", do=do)
        told_apart = {moment(value) if isinstance(value, datetime.date) else value for value in listed}
        if not listed or len(told_apart) != len(listed) or len(listed) > _MOST_PLACES:
            raise InvalidRequest(f"Expected different public categories for {expression!r}", do=do)
        return cls(expression, listed)

    @property
    def size(self) -> int:
        """The number of places."""
        return len(self.values)

    @property
    def labels(self) -> tuple[Plain, ...]:
        """What each place stands for."""
        return self.values

    def codes(self, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> NDArray[np.integer[Any]]:
        """The place of each row, or -1."""
        whole = stored_integers(self.expression, batch, derived)
        absent = self.values.index(None) if None in self.values else -1
        if whole is not None:
            places = _whole_places(whole, self.values)
            return np.where(whole.is_null(), absent, places) if whole.null_count else places
        values = evaluate(self.expression, batch, derived)
        missing = values.missing
        if isinstance(values, Texts):
            places = _places(values.texts, [v if isinstance(v, str) else None for v in self.values], pa.large_string())
        elif isinstance(values, Times):
            moments = [moment(v) if isinstance(v, datetime.date) else None for v in self.values]
            places = _places(pa.array(values.moments), moments, pa.timestamp("us"))
        else:
            numbers = values.true.astype(np.float64) if isinstance(values, Truths) else values.numbers
            floats = [float(v) if isinstance(v, int | float) else None for v in self.values]
            places = _places(pa.array(numbers), floats, pa.float64())
        return np.where(missing, absent, places)


def stored_integers(
    expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression]
) -> pa.Array | None:
    """A column of integers as it is stored: floats would merge what lies beyond 2^53."""
    if not isinstance(expression, ColumnName) or expression.name in derived:
        return None
    column = decoded(batch.column(expression.name))
    return column if pa.types.is_integer(column.type) else None


def _whole_places(column: pa.Array, values: tuple[Plain, ...]) -> NDArray[np.integer[Any]]:
    """The place of each integer: by a table where the categories lie close together, else by hashing."""
    numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    range_ = np.iinfo(numbers.dtype)
    table = _table(values)
    if table is None:
        wide = pa.uint64() if numbers.dtype.kind == "u" else pa.int64()
        listed = [int(v) if _is_whole(v) and range_.min <= v <= range_.max else None for v in values]  # type: ignore[operator,arg-type]
        return _places(pa.array(numbers).cast(wide), listed, wide)
    before, places = table
    low, high = max(before, range_.min), min(before + len(places) - 1, range_.max)
    if low > high:
        return np.full(len(numbers), -1)
    found: NDArray[np.int32] = places[np.clip(numbers, low, high).astype(np.intp) - before]
    return found


def _is_whole(value: Plain) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


@lru_cache(maxsize=64)
def _table(values: tuple[Plain, ...]) -> tuple[int, NDArray[np.int32]] | None:
    """The place of each integer from just before the lowest category to just behind the highest; none if that is long.

    Both ends are nowhere, so that whatever lies beyond can be moved there.
    """
    if not all(isinstance(v, int) and abs(v) < _MOST_PLACES for v in values):
        return None
    whole = np.array([int(v) for v in values if isinstance(v, int)])
    before, behind = int(whole.min()) - 1, int(whole.max()) + 1
    if behind - before > 4 * len(whole) + 64:
        return None
    places = np.full(behind - before + 1, -1, np.int32)
    places[whole - before] = np.arange(len(whole))
    return before, places


def _places(column: pa.Array, values: list[Any], kind: pa.DataType) -> NDArray[np.int64]:
    found = pc.index_in(column, value_set=pa.array(values, kind), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Bins:
    """Public edges of a histogram; a bin holds its lower edge, the last one both. Other values belong nowhere.

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
        """The axis of increasing finite edges; ``clamped`` puts values beyond the ends into the end bins."""
        try:
            found = tuple(float(edge) for edge in edges)
        except (TypeError, ValueError):
            found = ()
        rising = all(low < high for low, high in itertools.pairwise(found))
        if not 2 <= len(found) <= _MOST_PLACES or not rising or not all(map(math.isfinite, found)):
            raise InvalidRequest("Expected increasing public edges", do="Pass edges such as [0, 18, 65, 120]")
        return cls(expression, found, clamped)

    @property
    def size(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[Plain, ...]:
        """The lower edge of each bin."""
        return self.edges[:-1]

    def codes(self, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> NDArray[np.int64]:
        """The bin of each row, or -1."""
        values = evaluate(self.expression, batch, derived)
        assert isinstance(values, Numbers | Truths)
        numbers = values.true.astype(np.float64) if isinstance(values, Truths) else values.numbers
        edges = np.array(self.edges)
        place = np.searchsorted(edges, numbers, side="right") - 1
        place = np.where(numbers == edges[-1], self.size - 1, place)
        if self.clamped:
            place = np.clip(place, 0, self.size - 1)
        return np.where(values.missing | (place >= self.size), -1, place)


@dataclass(frozen=True, slots=True)
class LogBins:
    """Bins that double: (scale 2^(i-1), scale 2^i] for i = 0 to ``count`` - 1, the same below zero, the first with zero.

    Places go from the most negative bin to the most positive one. Values beyond the last bin belong into it.

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
        """The number of bins on both sides together."""
        return 2 * self.count

    @property
    def labels(self) -> tuple[Plain, ...]:
        """The end of each bin that is away from zero."""
        ends = [self.scale * 2.0**i for i in range(self.count)]
        return (*(-end for end in reversed(ends)), *ends)

    def codes(self, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> NDArray[np.int64]:
        """The bin of each row, or -1."""
        values = evaluate(self.expression, batch, derived)
        assert isinstance(values, Numbers | Truths)
        numbers = values.true.astype(np.float64) if isinstance(values, Truths) else values.numbers
        with np.errstate(over="ignore"):  # a huge value becomes infinite, which is the last bin; no warning tells
            size = np.abs(np.where(values.missing, 0.0, numbers)) / self.scale
        mantissa, exponent = np.frexp(size)
        power = np.where(mantissa == 0.5, exponent - 1, exponent)  # the upper end belongs to the bin
        place = np.where(np.isinf(size), self.count - 1, np.clip(power, 0, self.count - 1))
        return np.where(values.missing, -1, np.where(numbers < 0, self.count - 1 - place, self.count + place))


Axis = Categories | Bins | LogBins
