"""Public axes along which rows are told apart: categories and bins."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical import canonical_value
from expost.data.evaluate import cells, evaluate
from expost.data.expression import Expression, Plain
from expost.data.identity import label_words
from expost.data.places import missing_cells, moment, places
from expost.data.values import Numbers, Truths

__all__ = ["Axis", "Bins", "Categories", "LogBins"]

_MOST_PLACES = 1 << 24
_PLAIN = (str, int, float, Decimal, datetime.date)


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
        listed = tuple(map(canonical_value, given))
        finite = all(value.is_finite() for value in listed if isinstance(value, Decimal))
        if not finite or not all(value is None or isinstance(value, _PLAIN) for value in listed):
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

    def words(self, key: bytes) -> NDArray[np.uint64]:
        """One word per place, a function of its label alone."""
        return label_words(self.labels, key)

    def codes(self, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> NDArray[np.integer[Any]]:
        """The place of each row, or -1."""
        column = cells(self.expression, batch, derived)
        found = places(column, self.values)
        return np.where(missing_cells(column), self.values.index(None), found) if None in self.values else found


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
            found = tuple(canonical_value(float(edge)) for edge in edges)
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

    def words(self, key: bytes) -> NDArray[np.uint64]:
        """One word per place, a function of its label alone."""
        return label_words(self.labels, key)

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

    def words(self, key: bytes) -> NDArray[np.uint64]:
        """One word per place, a function of its label alone."""
        return label_words(self.labels, key)

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


class Axis(Protocol):
    """Tells rows apart: ``codes`` gives each row one of ``size`` places, or -1; ``words`` are hashes of the labels."""

    @property
    def expression(self) -> Expression: ...
    @property
    def size(self) -> int: ...
    @property
    def labels(self) -> tuple[Any, ...]: ...
    def words(self, key: bytes) -> NDArray[np.uint64]: ...
    def codes(self, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> NDArray[np.integer[Any]]: ...
