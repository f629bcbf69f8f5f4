"""A table and the public facts about it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Sealed, Sensitivity, Unit
from expost.data.axis import Categories
from expost.data.bounding import Limits
from expost.data.check import check_categories, check_filter, kind_of
from expost.data.clamp import Clamp
from expost.data.evaluate import evaluate
from expost.data.expression import ColumnName, Expression, Lookup, col, is_exact
from expost.data.form import CountForm, Form, sealed_integers
from expost.data.frames import implied_types
from expost.data.keys import FoundKeys, found_keys
from expost.data.places import missing_cells
from expost.data.records import rows_per_cell, single_steps
from expost.data.rows import matrix_batches
from expost.data.schema import Kind, Schema
from expost.data.sensitivity import unit_sensitivity
from expost.data.shards import MEMORY_LIMIT
from expost.data.source import open_source, public_entries, public_table, source_mark
from expost.data.sql import parse_sql
from expost.data.tally import Measured, Tally, sources
from expost.data.totals import exact_sums
from expost.data.values import Truths
from expost.data.window import Period

__all__ = ["Dataset"]


class Dataset:
    """A table with its public description: unit of protection, bounds, categories, neighbours.

    Everything said here is public and must not be read off the rows. The number of rows is private under
    add/remove; under replace-one it is public and given as ``rows``. With an id as the unit, each id contributes at
    most ``max_rows_per_unit`` rows, and to at most ``max_groups_per_unit`` groups of a grouped question: a uniformly
    random part is kept, drawn with a fresh secret for every question. ``types`` declares what columns of a CSV file, a
    pandas or polars frame or Python lists hold (integer, real, boolean, text, time), so that no row decides it; a cell that
    does not fit is missing. ``lines_are_rows`` says that no cell of a CSV file holds a line end.

    >>> people = Dataset(pa.table({"age": [41, 17, 65]}), name="people", bounds={"age": (0, 120)})
    >>> people
    Dataset('people': age integer; one row, add-remove)
    """

    def __init__(
        self,
        source: Any,
        *,
        name: str | None = None,
        unit: str | Unit = "row",
        max_rows_per_unit: int | None = None,
        max_groups_per_unit: int | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        adjacency: str | Adjacency = "add-remove",
        rows: int | None = None,
        types: Mapping[str, str] | None = None,
        lines_are_rows: bool = False,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self.unit = _unit(unit)
        self.bounds = _by_column(bounds, "bounds")
        self.categories = {
            column: _listed(column, values) for column, values in _by_column(categories, "categories").items()
        }
        implied = implied_types(self.bounds, self.categories, self.unit.time_column)
        self._engine, suggested = open_source(source, types=types, implied=implied, lines_are_rows=lines_are_rows)
        self._mark = source_mark(source, types=types, implied=implied, lines_are_rows=lines_are_rows)
        self.name = name if name is not None else suggested
        self.schema = Schema.of(self._engine.schema)
        self.adjacency = Adjacency.parse(adjacency)
        self.max_rows_per_unit = _limit(max_rows_per_unit, "max_rows_per_unit")
        self.max_groups_per_unit = _limit(max_groups_per_unit, "max_groups_per_unit")
        self.rows = _limit(rows, "rows")
        self._memory_limit = memory_limit
        self._derived: dict[str, Expression] = {}
        self._filter: Expression | None = None
        self.window: Period | None = None
        self._check()

    def _check(self) -> None:
        for column in self.bounds:
            self.clamp(col(column))
        for column in self.categories:
            self.axis(col(column))
        for named in (self.unit.column, self.unit.time_column):
            if named is not None:
                kind_of(col(named), self.schema)
        if self.unit.time_column is not None and self.schema.kind(self.unit.time_column) is not Kind.TIME:
            raise InvalidRequest("Expected a column of times", got=self.unit.time_column, do="Name a time column")
        if self.unit.is_row and (self.max_rows_per_unit or self.max_groups_per_unit):
            raise InvalidRequest(
                "Expected limits per unit only beside an id column", do='Pass unit="the id column", or drop the limits'
            )
        if self.adjacency.public_size and self.rows is None and self.unit.is_row:
            raise InvalidRequest(
                "Expected the public number of rows under replace-one adjacency", do="Pass rows=, or use add-remove"
            )

    @property
    def in_memory(self) -> bool:
        """Whether the rows live in this process only, so that no other process can know the table by a name."""
        return self._mark is None

    @property
    def filtered(self) -> bool:
        """Whether ``where`` was asked for: how many rows are left is private then."""
        return self._filter is not None

    @property
    def identity(self) -> str:
        """A public text that tells this table, its unit and its filter from others; for keeping gradual releases.

        A file is known by its name, size and time of change, so that what was kept for an older file is not used.
        """
        source = f"memory {id(self._engine)}" if self._mark is None else self._mark
        limits = (self.max_rows_per_unit, self.max_groups_per_unit)
        return repr((self.name, source, self.unit, self.adjacency.value, limits, self._filter, self._derived))

    def stores(self, column: str) -> bool:
        """Whether a column stands in the source, rather than being derived from others."""
        return column in self.schema.kinds and column not in self._derived

    # Views -------------------------------------------------------------------------------------------------------

    def where(self, condition: Expression | str) -> Self:
        """The same table with fewer rows: those for which a condition is known to hold. Charged to the same account."""
        view = copy.copy(self)
        found = self.condition(condition)
        view._filter = found if self._filter is None else self._filter if found is None else self._filter & found
        view.rows = None  # how many rows are left is private
        return view

    def derive(self, **columns: Expression | str) -> Self:
        """The same table with further columns, each computed from a row.

        >>> people = Dataset(pa.table({"born": [1980, 2001]})).derive(age=2024 - col("born"))
        >>> list(people.schema)
        ['born', 'age']
        """
        view = copy.copy(self)
        view._derived = dict(self._derived)
        kinds = dict(self.schema.kinds)
        for name, formula in columns.items():
            expression = formula if isinstance(formula, Expression) else parse_sql(formula)
            if name in kinds:
                raise InvalidRequest("Expected a new column name", got=name, do="Choose another name")
            kinds[name] = kind_of(expression, self.schema, self._derived) or Kind.REAL
            view._derived[name] = expression
        view.schema = Schema(kinds)
        return view

    def join(self, table: Any, *, on: str, prefix: str = "") -> Self:
        """The same table with the columns of a public table looked up by the key ``on``; no row is added or lost."""
        public = public_table(table)
        if (
            not isinstance(prefix, str)
            or on not in public.column_names
            or Kind.OTHER in Schema.of(public.schema).kinds.values()
        ):
            raise InvalidRequest(
                f"Expected a public table of numbers, texts, truths and times with the key {on}, and a text as prefix",
                do="Drop other columns",
            )
        keyed = ~missing_cells(public.column(on).combine_chunks())
        public = public.filter(pa.array(keyed))  # a row without a key finds nothing
        keys = public_entries(public, on)
        if len(set(keys)) != len(keys) or not all(is_exact(key) for key in keys if isinstance(key, int | float)):
            raise InvalidRequest(
                f"Expected each {on} once in the public table, numbers exact in 64-bit floats",
                do="Drop repeated keys, or use texts as keys",
            )
        looked_up: dict[str, Expression | str] = {
            prefix + name: Lookup(col(on), keys, public_entries(public, name), label=repr(prefix + name))
            for name in public.column_names
            if name != on
        }
        return self.derive(**looked_up)

    def within_window(self, start: str) -> Self:
        """The rows of one time window of a user-time unit, as a dataset with a name and so an account of its own.

        Rows of different windows belong to different units, so what is spent on one window is not spent on another;
        what is spent on the whole table is spent on all of them. ``Session.window`` keeps such accounts together, and
        a session refuses this view, whose account knows nothing of the whole table's.
        """
        period = Period.of(self.unit, start)
        view = self.where(period.condition)
        view.name = f"{self.name or 'table'}@{period.label}"
        view.window = period
        return view

    # What questions are made of ----------------------------------------------------------------------------------

    def expression(self, column: Expression | str) -> Expression:
        """A column by name, or an expression, checked against the schema."""
        expression = col(column) if isinstance(column, str) else column
        if not isinstance(expression, Expression):
            raise InvalidRequest("Expected a column name or an expression", got=column, do='Pass "age" or col("age")')
        kind_of(expression, self.schema, self._derived)
        return expression

    def condition(self, condition: Expression | str | None) -> Expression | None:
        """A filter as an expression, checked."""
        if condition is None:
            return None
        found = parse_sql(condition) if isinstance(condition, str) else self.expression(condition)
        check_filter(found, self.schema, self._derived)
        return found

    def clamp(self, column: Expression, bounds: object = None) -> Clamp:
        """The clamp of a number, from the bounds given here or declared for the column."""
        kind = kind_of(column, self.schema, self._derived)
        if kind is None or not kind.is_number:
            raise InvalidRequest(
                "Expected a column of numbers", got=repr(column), do="Name a numeric column, or declare it with types="
            )
        if kind is Kind.BOOLEAN and bounds is None:
            bounds = (0, 1)
        if bounds is None and isinstance(column, ColumnName):
            bounds = self.bounds.get(column.name)
        if bounds is None:
            raise InvalidRequest(
                f"Expected public bounds for {column!r}", do='Pass bounds=(0, 120), or bounds="private" to pay for some'
            )
        return Clamp.of(bounds, whole=kind in (Kind.INTEGER, Kind.BOOLEAN))

    def axis(self, column: Expression | str, values: Sequence[Any] | None = None) -> Categories:
        """The categories of a column, from those given here or declared for it."""
        expression = self.expression(column)
        if values is None and isinstance(expression, ColumnName):
            values = self.categories.get(expression.name)
        if values is None and kind_of(expression, self.schema, self._derived) is Kind.BOOLEAN:
            values = [False, True]
        if values is None:
            raise InvalidRequest(
                f"Expected public categories for {expression!r}", do='Pass Dataset(categories={"city": ["Rome", ...]})'
            )
        found = Categories.of(expression, values)
        check_categories(found, self.schema, self._derived)
        return found

    def tally(self, **parts: Any) -> Tally:
        """A tally of this table: its filter, derived columns and unit filled in."""
        where = parts.pop("where", None)
        both = where if self._filter is None else self._filter if where is None else self._filter & where
        return Tally(where=both, derived=self._derived, unit=self.unit, **parts)

    def limits(self, tally: Tally, *, once: bool = False) -> Limits | None:
        """What a unit may contribute to a tally; None when a unit is a row."""
        if self.unit.is_row:
            return None
        groups = self.max_groups_per_unit if tally.axes else None
        if once:
            return Limits(groups=groups if tally.axes else 1, once=True)
        if self.max_rows_per_unit is None:
            raise InvalidRequest(
                f"Expected a limit on the rows of one {self.unit.column}", do="Pass Dataset(..., max_rows_per_unit=10)"
            )
        return Limits(groups=groups, rows=self.max_rows_per_unit)

    def sensitivity(self, form: Form, tally: Tally, *, once: bool = False) -> Sensitivity:
        """How far one unit can move the coordinates of a form, in L1."""
        return unit_sensitivity(form, tally, self.limits(tally, once=once), self.adjacency)

    def total(
        self, form: Form, tally: Tally, *, secret: bytes, once: bool = False, under: Sensitivity | None = None
    ) -> Sealed:
        """The exact coordinates of all cells, cell after cell, sealed. ``secret`` decides what each unit keeps.

        ``under`` replaces the L1 sensitivity by another that the caller has computed.
        """
        keyed = replace(tally, key=secret)
        sums = exact_sums(self._engine, keyed, self.limits(tally, once=once), secret, memory_limit=self._memory_limit)
        return Sealed(sealed_integers(form, sums), under or self.sensitivity(form, tally, once=once))

    def totals(self, form: Form, tally: Tally, *, parts: int, secret: bytes, under: Sensitivity) -> list[Sealed]:
        """As ``total``, the cells cut into as many even runs and each run sealed by itself."""
        keyed = replace(tally, key=secret)
        sums = exact_sums(self._engine, keyed, self.limits(tally), secret, memory_limit=self._memory_limit)
        return [Sealed(part, under) for part in np.split(sealed_integers(form, sums), parts)]

    def steps(self, tally: Tally, *, secret: bytes, under: Sensitivity) -> list[Sealed]:
        """The steps of one measured column, one integer a row, sealed cell by cell."""
        keyed, limits = replace(tally, key=secret), self.limits(tally)
        exact = single_steps(self._engine, keyed, limits, secret, memory_limit=self._memory_limit)
        return [Sealed(cell, under) for cell in exact]

    def rows_per_unit(self, limits: Limits | None) -> Sensitivity:
        """The number of single rows that one unit can add, remove or replace."""
        amount = 1 if limits is None or limits.rows is None else limits.rows
        return Sensitivity(amount, adjacency=self.adjacency, unit=self.unit)

    def keys(self, column: Expression, tally: Tally, *, secret: bytes) -> FoundKeys:
        """The values of a column that occur, as an axis. SECRET: they may leave only after thresholding."""
        return found_keys(self._engine, replace(tally, key=secret), column)

    def occupied(
        self, tally: Tally, *, secret: bytes, under: Sensitivity, once: bool = False
    ) -> tuple[Sealed, NDArray[np.intp]]:
        """The exact row counts of the cells that have rows after contribution bounding, sealed, and the cells. SECRET.

        A key whose rows were all left out must not open a group: a unit may have any number of such keys.
        """
        keyed = replace(tally, key=secret)
        limits = self.limits(tally, once=once)
        rows = rows_per_cell(self._engine, keyed, limits, secret, memory_limit=self._memory_limit)
        found = np.flatnonzero(rows)
        return Sealed(rows[found], under), found

    def row_sensitivity(self) -> Sensitivity:
        """How far one unit can move the number of rows."""
        return self.sensitivity(CountForm(), self.tally())

    def total_rows(self) -> Sealed:
        """The exact number of rows, sealed, where a unit is a row."""
        return self.total(CountForm(), self.tally(), secret=b"")

    # Rows, for the rooms that seal what they add up --------------------------------------------------------------

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of some columns that pass the filter; derived columns are computed batch by batch."""
        if self._filter is None and not any(name in self._derived for name in columns):
            return self._engine.batches(columns)
        named = set(columns) | (set() if self._filter is None else set(self._filter.columns()))
        # A constant column needs the rows of some stored one, to be as long.
        stored = sorted(sources(named, self._derived)) or self._engine.schema.names[:1]
        return (self._computed(self._kept(batch), columns) for batch in self._engine.batches(stored))

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the filter is known to hold; without it a part's question would read the whole."""
        if self._filter is None:
            return batch
        condition = evaluate(self._filter, batch, self._derived)
        return batch.filter(pa.array(condition.certain)) if isinstance(condition, Truths) else batch.slice(0, 0)

    def _computed(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        arrays = [
            evaluate(col(name), batch, self._derived).column() if name in self._derived else batch.column(name)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def matrix_batches(
        self, features: Sequence[str], target: str | None = None, *, rows_per_batch: int = 1 << 16, secret: bytes = b""
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64] | None]]:
        """Feature rows and targets as floats, streamed, after filter and contribution bounding.

        Rows that miss a value are left out; values are clamped where bounds are declared. With an id as the unit,
        the same ``secret`` gives the same rows again.
        """
        names = [*features] if target is None else [*features, target]
        clamps = [self.clamp(col(name)) if name in self.bounds else None for name in names]
        tally = self.tally(measured=tuple(Measured(col(name), _ANY) for name in names))
        limits = self.limits(tally)
        rows = matrix_batches(
            self._engine, tally, clamps, limits, secret, rows_per_batch=rows_per_batch, memory_limit=self._memory_limit
        )
        for block in rows:
            yield (block, None) if target is None else (block[:, :-1], block[:, -1])

    def __repr__(self) -> str:
        name = f"{self.name!r}: " if self.name else ""
        return f"Dataset({name}{self.schema}; {self.unit}, {self.adjacency.value})"


_ANY = Clamp.of((0, 1))  # stands where a column is read as it is


def _unit(unit: str | Unit) -> Unit:
    if isinstance(unit, Unit):
        return unit
    return Unit.row() if unit == "row" else Unit.of(unit)


def _by_column(given: Any, name: str) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InvalidRequest(f"Expected {name} by column", got=given, do=f'Pass {name}={{"a column": ...}}')
    return dict(given or {})


def _listed(column: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidRequest(
            f"Expected a list of categories for {column}", do='Pass categories={"city": ["Rome", ...]}'
        )
    return tuple(values)


def _limit(value: int | None, name: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
        raise InvalidRequest(f"Expected {name} to be a whole number >= 1", got=value, do=f"Pass a positive {name}")
    return None if value is None else int(value)
