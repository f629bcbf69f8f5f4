"""Datasets: a table with its public description, and views of it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from expost.core import Adjacency, InvalidRequest, Unit, explain_arguments
from expost.data.canonical_cell import Kind, missing_cells
from expost.data.data_source import mark_source, open_source, public_entries, public_table
from expost.data.expression import Expression, Lookup, col, is_exact
from expost.data.measured_table import MeasuredTable
from expost.data.source_identity import SourceIdentity, name_place
from expost.data.sql_expression import parse_sql
from expost.data.table_schema import Schema, kind_of
from expost.data.unit_identity import Period
from expost.data.unit_shard import MEMORY_LIMIT
from expost.data.untyped_table import ID, implied_types

__all__ = ["Dataset"]


class Dataset(MeasuredTable):
    """A table with its public description: unit of protection, bounds, categories, adjacency.

    Everything in the description is public and must not be computed from the rows. The number of rows is private under
    add/remove adjacency; under replace-one it is public and passed as ``rows``.

    Parameters
    ----------
    source : path, URL, query, table, frame, lists or engine
        A Parquet, CSV or Arrow path (or glob), a ``postgresql://...?table=...`` URL, an SQL query for DuckDB, an Arrow
        table, a pandas or polars frame, Python lists, a DuckDB relation, a Spark frame, or an engine.
    name : str, optional
        Name of the table in ledgers. Default: the file name without its ending.
    unit : str or Unit, default "row"
        Who is protected: ``"row"``, the name of an id column, or ``Unit.of(id, per="week", time=column)``.
    max_rows_per_unit : int, optional
        Contribution bound: the most rows of one id that a query counts. A uniformly random part is kept, drawn with a
        fresh secret for every query. Needed for most queries if the unit is an id.
    max_groups_per_unit : int, optional
        The most groups of one id that a grouped query counts. Default: no limit.
    bounds : mapping of str to pair of numbers, optional
        Public bounds of numeric columns, in their own units. Values outside are moved to the nearest bound.
    categories : mapping of str to list, optional
        Public values of columns to group by. Rows with other values are left out of grouped queries.
    adjacency : {"add-remove", "replace-one"} or Adjacency, default "add-remove"
        Which tables count as neighbors.
    rows : int, optional
        The public number of rows; needed under replace-one adjacency if the unit is a row.
    types : mapping of str to str, optional
        Types (integer, real, boolean, text, time) of columns of a CSV file, a pandas or polars frame or Python lists, so
        that no row decides them. A cell that does not fit its type is missing.
    lines_are_rows : bool, default False
        True if no cell of a CSV file contains a line end, so that every line is a row whatever its quotes.
    memory_limit : int, default 1_500_000_000
        Bytes of rows kept in memory while contributions are bounded; more are written to temporary files.

    Raises
    ------
    InvalidRequest
        If the source cannot be read or the description does not fit it.

    Examples
    --------
    >>> people = Dataset(pa.table({"age": [41, 17, 65]}), name="people", bounds={"age": (0, 120)})
    >>> people
    Dataset('people': age integer; one row, add-remove)
    """

    name: str | None
    """Name of the table, or None."""
    window: Period | None
    """The time window of a view made by ``within_window``, else None."""

    @explain_arguments
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
        self.unit = unit if isinstance(unit, Unit) else Unit.row() if unit == "row" else Unit.of(unit)
        self.bounds = _check_mapping(bounds, "bounds")
        self.categories = {
            column: _check_list(column, values) for column, values in _check_mapping(categories, "categories").items()
        }
        implied = implied_types(self.bounds, self.categories, self.unit.time_column)
        # A file stores the type of its ids, or has it declared.
        ids = {} if self.unit.column is None or isinstance(source, str | Path) else {self.unit.column: ID}
        self._engine, suggested = open_source(source, types=types, implied=ids | implied, lines_are_rows=lines_are_rows)
        self._mark = mark_source(source, types=types, implied=implied, lines_are_rows=lines_are_rows)
        self._place = None if self._mark is None else name_place(source)
        self.name = name if name is not None else suggested
        self.schema = Schema.of(self._engine.schema)
        self.adjacency = Adjacency.parse(adjacency)
        self.max_rows_per_unit = _check_count(max_rows_per_unit, "max_rows_per_unit")
        self.max_groups_per_unit = _check_count(max_groups_per_unit, "max_groups_per_unit")
        self.rows = _check_count(rows, "rows")
        self.window = None
        self._memory_limit = memory_limit
        self._derived, self._filter = {}, None
        self._check_description()

    def _check_description(self) -> None:
        """Raise if the description does not fit the schema or itself."""
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
                "Expected limits per unit only with an id column", do='Pass unit="the id column", or drop the limits'
            )
        if self.adjacency.public_size and self.rows is None and self.unit.is_row:
            raise InvalidRequest(
                "Expected the public number of rows under replace-one adjacency", do="Pass rows=, or use add-remove"
            )

    @property
    def in_memory(self) -> bool:
        """True if the rows are not in a file, so that no other process can refer to the table by name."""
        return self._mark is None

    @property
    def filtered(self) -> bool:
        """True if ``where`` was applied; the number of rows left is private then."""
        return self._filter is not None

    @property
    def identity(self) -> str:
        """A public text that distinguishes this table, unit and filter from others, to store gradual releases under.

        A file is identified by name, size and time of change, so that releases of an older file are not reused.
        """
        source = f"memory {id(self._engine)}" if self._mark is None else self._mark
        limits = (self.max_rows_per_unit, self.max_groups_per_unit)
        return repr((self.name, source, self.unit, self.adjacency.value, limits, self._filter, self._derived))

    def source_identity(self) -> SourceIdentity:
        """Return what a ledger recognises the source by, whatever its name: places, files, columns and samples.

        A few blocks and the first rows are read, never all rows. The samples must not be shown.

        Returns
        -------
        SourceIdentity

        Examples
        --------
        >>> Dataset(pa.table({"age": [41, 17]})).source_identity().columns
        (('age', 'integer'),)
        """
        return self._engine.identity().at(self._place)

    def stores(self, column: str) -> bool:
        """Return whether a column is in the source instead of being derived.

        Parameters
        ----------
        column : str
            Name of a column.

        Examples
        --------
        >>> Dataset(pa.table({"born": [1980]})).derive(age="2024 - born").stores("age")
        False
        """
        return column in self.schema.kinds and column not in self._derived

    # Views -------------------------------------------------------------------------------------------------------

    @explain_arguments
    def where(self, condition: Expression | str | None) -> Self:
        """Return a view of the rows for which a condition is known to hold. It is charged to the same account.

        Parameters
        ----------
        condition : Expression or str or None
            For example ``col("age") >= 65`` or ``"age >= 65"``. None keeps all rows.

        Examples
        --------
        >>> Dataset(pa.table({"age": [41, 17]})).where("age >= 18").filtered
        True
        """
        view = copy.copy(self)
        view._filter = self._narrow_filter(self.condition(condition))
        view.rows = None
        return view

    @explain_arguments
    def derive(self, **columns: Expression | str) -> Self:
        """Return a view with additional columns, each computed from a row.

        Parameters
        ----------
        **columns : Expression or str
            Name and formula of each new column. Formulas may use earlier derived columns.

        Examples
        --------
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

    @explain_arguments
    def join(self, table: Any, *, on: str, prefix: str = "") -> Self:
        """Return a view with the columns of a public table, looked up by a key. No row is added or lost.

        Parameters
        ----------
        table : Arrow table, frame or mapping
            A public table with each key once.
        on : str
            Name of the key column, in both tables.
        prefix : str, default ""
            Put before the names of the new columns.

        Examples
        --------
        >>> states = pa.table({"origin": ["EWR", "JFK"], "state": ["NJ", "NY"]})
        >>> list(Dataset(pa.table({"origin": ["JFK"]})).join(states, on="origin").schema)
        ['origin', 'state']
        """
        public = public_table(table)
        usable = on in public.column_names and Kind.OTHER not in Schema.of(public.schema).kinds.values()
        if not isinstance(prefix, str) or not usable:
            raise InvalidRequest(
                f"Expected a public table of numbers, texts, booleans and times with the key {on}, and a text as prefix",
                do="Drop other columns",
            )
        keyed = ~missing_cells(public.column(on).combine_chunks())
        public = public.filter(pa.array(keyed))  # a missing key matches nothing
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

    @explain_arguments
    def within_window(self, start: str) -> Self:
        """Return a view of one time window of a user-time unit, with its own name and so its own account.

        Rows of different windows belong to different units, so a cost paid for one window is not paid for another, while
        a cost paid for the whole table is paid for all windows. ``Session.window`` keeps these accounts together. A
        session refuses this view, because its account is not linked to that of the whole table.

        Parameters
        ----------
        start : str
            A day in the window, as ``YYYY-MM-DD``.

        Examples
        --------
        >>> import datetime
        >>> table = pa.table({"id": [1], "when": [datetime.datetime(2013, 1, 9)]})
        >>> visits = Dataset(table, name="visits", unit=Unit.of("id", per="week", time="when"))
        >>> visits.within_window("2013-01-09").name
        'visits@2013-01-07'
        """
        period = Period.of(self.unit, start)
        view = self.where(period.condition)
        view.name = f"{self.name or 'table'}@{period.label}"
        view.window = period
        return view

    def __repr__(self) -> str:
        name = f"{self.name!r}: " if self.name else ""
        return f"Dataset({name}{self.schema}; {self.unit}, {self.adjacency.value})"


def _check_mapping(given: Any, name: str) -> dict[str, Any]:
    """Return facts by column; raise if they are not a mapping."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidRequest(f"Expected {name} by column", got=given, do=f'Pass {name}={{"a column": ...}}')
    return dict(given or {})


def _check_list(column: str, values: Any) -> tuple[Any, ...]:
    """Return categories; raise if they are not a list."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidRequest(
            f"Expected a list of categories for {column}", do='Pass categories={"city": ["Rome", ...]}'
        )
    return tuple(values)


def _check_count(value: int | None, name: str) -> int | None:
    """Return a public number; raise if it is not a positive integer."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
        raise InvalidRequest(f"Expected {name} to be a whole number >= 1", got=value, do=f"Pass a positive {name}")
    return None if value is None else int(value)
