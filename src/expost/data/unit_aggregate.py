"""Tables with one row per unit: aggregates of each unit's rows, which depend on that unit's rows only, bit for bit."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, Unit, Window
from expost.data.canonical_cell import Kind, float_cells, missing_cells
from expost.data.clamp import Clamp
from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.expression import Expression
from expost.data.source_identity import SourceIdentity
from expost.data.source_version import Version
from expost.data.sql_expression import parse_sql

__all__ = ["UnitAggregate", "UnitColumn", "UnitEngine", "UnitParts"]

Integers = NDArray[np.int64]

_CALL = re.compile(r"\s*(count|sum|mean|min|max)\s*\((.*)\)\s*", re.DOTALL)
# A step is at most 2^-32 of the width of the bounds, unless that is below 2^-40 of the larger bound.
_FINE, _COARSE = 32, 40
_REACH = 12  # values count up to 2^12 times the larger bound, so that steps stay below 2^53 and floats hold them
_LANE = 26  # bits of the lower part of a value: sums of both parts fit into 64 bits for 2^35 rows of a unit
_FEW = 1 << 16  # rows of parts that are kept as they come
_WINDOW = "window of the unit"
_THURSDAY = 3  # days from Monday to the day on which 1970 began


@dataclass(frozen=True, slots=True)
class UnitAggregate:
    """A number computed from all rows of one unit.

    Parameters
    ----------
    function : {"count", "sum", "mean", "min", "max"}
        How the unit's rows are combined. Rows where the column is missing are left out. Of no rows all but the count are
        missing.
    column : Expression, optional
        The column; ``count`` without one counts rows.

    Examples
    --------
    >>> UnitAggregate.parse("sum(amount * 2)")
    UnitAggregate(function='sum', column=(amount * 2))
    """

    function: str
    column: Expression | None = None

    @classmethod
    def parse(cls, text: str | UnitAggregate) -> UnitAggregate:
        """Parse a text such as ``"sum(amount)"`` or ``"count()"``.

        Parameters
        ----------
        text : str or UnitAggregate
            The text. An aggregate is returned as it is.
        """
        if isinstance(text, UnitAggregate):
            found, sound = text, text.function in ("count", "sum", "mean", "min", "max")
            sound &= isinstance(text.column, Expression) or (text.column is None and text.function == "count")
        else:
            match = _CALL.fullmatch(text) if isinstance(text, str) else None
            inner = "" if match is None else match[2].strip()
            sound = match is not None and (inner not in ("", "*") or match[1] == "count")
            column = parse_sql(inner) if sound and inner not in ("", "*") else None
            found = cls("" if match is None else match[1], column)
        if not sound:
            raise InvalidRequest(
                "Expected an aggregate: count(), or count, sum, mean, min or max of a column",
                got=text,
                do='Pass e.g. total="sum(amount)"',
            )
        return found


@dataclass(frozen=True, slots=True)
class UnitColumn:
    """One aggregate as a column: how it is computed from partial results, and which type it has."""

    name: str
    function: str
    has_column: bool
    whole: bool
    bounds: tuple[float, float] | None

    @classmethod
    def of(cls, name: str, aggregate: UnitAggregate, kind: Kind | None, bounds: Any) -> UnitColumn:
        """Check an aggregate against the kind of its column and the bounds of its result."""
        if aggregate.column is not None and (kind is None or not kind.is_number):
            raise InvalidRequest(
                f"Expected a column of numbers in {name} = {aggregate.function}({aggregate.column!r})",
                do="Aggregate a numeric column",
            )
        if bounds is None and aggregate.function in ("sum", "mean"):
            raise InvalidRequest(
                f"Expected public bounds of {name}", do=f'Pass per_unit(..., bounds={{"{name}": (0, 1000)}})'
            )
        whole = aggregate.function == "count"
        if bounds is None:
            return cls(name, aggregate.function, aggregate.column is not None, whole, None)
        clamp = Clamp.of(bounds)
        ends = float(clamp.low), float(clamp.high)
        whole |= aggregate.function != "mean" and kind in (Kind.INTEGER, Kind.BOOLEAN)
        whole &= all(end == math.floor(end) and abs(end) < 2**31 for end in ends)
        return cls(name, aggregate.function, aggregate.column is not None, whole, ends)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the column."""
        return pa.int64() if self.whole else pa.float64()

    @property
    def _step(self) -> float:
        """The step in which values are added: a power of two, so that no product with it rounds.

        Whole numbers are whole numbers of steps if the bounds are at most 2^32 apart.
        """
        assert self.bounds is not None
        low, high = self.bounds
        finest = max((high - low) / 2**_FINE, max(abs(low), abs(high)) / 2**_COARSE)
        return 2.0 ** math.floor(math.log2(finest))

    def read_parts(self, numbers: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the columns to add up, or to take the smallest or largest of, for the rows of a batch."""
        missing = np.isnan(numbers)
        if self.function in ("min", "max"):
            return {self.function: numbers}
        parts: dict[str, NDArray[Any]] = {"rows": (~missing).astype(np.int64)}
        if self.function != "count":
            reach = max(map(abs, self.bounds or (0.0,))) * 2.0**_REACH
            steps = np.rint(np.where(missing, 0.0, np.clip(numbers, -reach, reach)) / self._step)
            high = np.floor(steps / 2.0**_LANE)
            parts |= {"high": high.astype(np.int64), "low": (steps - high * 2.0**_LANE).astype(np.int64)}
        return parts

    def finish(self, parts: Mapping[str, pa.ChunkedArray]) -> pa.Array:
        """Return the column from the combined parts of all units. Each cell depends on its own parts only."""
        if self.function in ("min", "max"):
            values = np.asarray(parts[self.function].to_numpy(), np.float64)
            missing = np.isnan(values)
        else:
            rows = np.asarray(parts["rows"].to_numpy(), np.int64)
            values, missing = rows.astype(np.float64), np.zeros(len(rows), bool)
            if self.function != "count":
                high, low = (np.asarray(parts[name].to_numpy(), np.float64) for name in ("high", "low"))
                missing = rows == 0
                values = (
                    (high * 2.0**_LANE + low) * self._step / (np.maximum(rows, 1) if self.function == "mean" else 1)
                )
        if self.bounds is not None:
            values = np.clip(values, *self.bounds)
        if self.whole:
            return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
        return pa.array(np.where(missing, np.nan, values + 0.0))


class UnitEngine(Engine):
    """Reads a table with one row per unit, computed from the rows of another table.

    The rows are read once, aggregated where they lie, and the aggregates kept: about 16 bytes per unit and column. A unit's row is a function of the
    multiset of its own rows (docs/proofs/contribution-bounding.md): sums are sums of integers, and nothing depends on the
    order of rows, the batches or other units.
    """

    def __init__(
        self,
        columns: Sequence[UnitColumn],
        unit: Unit,
        key_type: pa.DataType,
        *,
        fold: Callable[[Callable[[pa.RecordBatch], UnitParts], Callable[[UnitParts, UnitParts], UnitParts]], UnitParts],
        identity: Callable[[], SourceIdentity],
        version: Callable[[], Version],
    ) -> None:
        assert unit.column is not None
        self._columns, self._unit = tuple(columns), unit
        keys = [pa.field(unit.column, key_type)]
        keys += [] if unit.time_column is None else [pa.field(unit.time_column, pa.timestamp("us"))]
        self._schema = pa.schema([*keys, *(pa.field(each.name, each.type) for each in columns)])
        self._fold, self._identity, self._version = fold, identity, version
        self._table: pa.Table | None = None
        self._turn = threading.Lock()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        with self._turn:
            if self._table is None:
                self._table = self._aggregate()
        yield from self._table.select(list(columns)).to_batches(max_chunksize=rows_per_batch)

    def identity(self) -> SourceIdentity:
        """Return the identity of the table that the rows are read from: it is the same account."""
        return self._identity()

    def version(self) -> Version:
        return self._version()

    def _aggregate(self) -> pa.Table:
        """Combine the rows of each unit, first within batches and then over them."""
        table = self._fold(_ReadParts(self._columns, self._unit), UnitParts.merged).combined()
        keys = [table.column(0)]
        if self._unit.time_column is not None:
            keys.append(self._window_starts(table.column(_WINDOW)))
        found = []
        for place, each in enumerate(self._columns):
            prefix = f"{place} "
            own = {name[len(prefix) :]: table.column(name) for name in table.column_names if name.startswith(prefix)}
            found.append(each.finish(own))
        return pa.Table.from_arrays([*keys, *found], schema=self._schema)

    def _window_starts(self, windows: pa.ChunkedArray) -> pa.Array:
        """Return the first moment of each window."""
        numbers = np.asarray(windows.to_numpy(), np.int64)
        if self._unit.window is Window.WEEK:
            days = (numbers * 7 - _THURSDAY).astype("datetime64[D]")
        else:
            days = numbers.astype("datetime64[D]" if self._unit.window is Window.DAY else "datetime64[M]")
        return pa.array(days.astype("datetime64[us]"))


class UnitParts:
    """Parts of the aggregates of some units, in tables in which a unit may occur again. SECRET."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self._tables = tables

    def merged(self, other: UnitParts) -> UnitParts:
        """Return the parts of both, combined where that halves them or they are few."""
        both = UnitParts([*self._tables, *other._tables])
        sizes = [len(table) for table in both._tables]
        return both if sum(sizes) <= max(2 * max(sizes), _FEW) else UnitParts([both.combined()])

    def combined(self) -> pa.Table:
        """Return one table in which each unit occurs once."""
        return self._tables[0] if len(self._tables) == 1 else _combine(pa.concat_tables(self._tables))

    def __getstate__(self) -> dict[str, Any]:
        return {"_tables": [self.combined()]}

    def __repr__(self) -> str:
        return "<aggregates of private rows>"


@dataclass(frozen=True)
class _ReadParts:
    """Reduces the rows of a batch that have a unit to parts of their aggregates."""

    columns: tuple[UnitColumn, ...]
    unit: Unit

    def __call__(self, batch: pa.RecordBatch) -> UnitParts:
        key = batch.column(0)
        keys, known = {"unit": key}, ~missing_cells(key)
        if self.unit.time_column is not None:
            times = batch.column(1).cast(pa.timestamp("us"), safe=False)
            known &= np.asarray(times.is_valid())
            keys[_WINDOW] = pa.array(self._number_windows(times))
        place, parts = len(keys), dict(keys)
        for number, each in enumerate(self.columns):
            numbers = np.zeros(batch.num_rows)
            if each.has_column:
                numbers, place = float_cells(batch.column(place)), place + 1
            for name, values in each.read_parts(numbers).items():
                parts[f"{number} {name}"] = pa.array(values, from_pandas=True)  # NaN is missing, and no smallest number
        return UnitParts([_combine(pa.table(parts).filter(pa.array(known)))])

    def _number_windows(self, times: pa.Array) -> Integers:
        """Return the number of each time's window, as ``unit_words`` counts them."""
        moments = times.to_numpy(zero_copy_only=False)
        if self.unit.window is Window.WEEK:
            return np.asarray((moments.astype("datetime64[D]").astype(np.int64) + _THURSDAY) // 7)
        gap = "D" if self.unit.window is Window.DAY else "M"
        return np.asarray(moments.astype(f"datetime64[{gap}]").astype(np.int64))


def _combine(table: pa.Table) -> pa.Table:
    """Combine the parts of each unit: sums, smallest and largest ones."""
    keys = [name for name in table.column_names if name in ("unit", _WINDOW)]
    others = [name for name in table.column_names if name not in keys]
    found = table.group_by(keys, use_threads=False).aggregate([(name, _combining(name)) for name in others])
    return found.select([*keys, *(f"{name}_{_combining(name)}" for name in others)]).rename_columns([*keys, *others])


def _combining(part: str) -> str:
    """Return how Arrow combines a part of an aggregate."""
    name = part.rpartition(" ")[2]
    return name if name in ("min", "max") else "sum"
