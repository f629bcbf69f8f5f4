"""Datasets: a table with its public description, and views of it."""

from __future__ import annotations

import copy
import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from expost.core import Adjacency, InvalidRequest, Unit, explain_arguments
from expost.core.table_text import html_table
from expost.data.canonical_cell import Kind
from expost.data.data_source import mark_source, open_source
from expost.data.dummy_rows import make_dummy_rows
from expost.data.expression import ColumnName, Expression, col
from expost.data.measured_table import MeasuredTable
from expost.data.public_fact import read_range, split_bounds
from expost.data.public_lookup import PublicLookup
from expost.data.source_identity import SourceIdentity, name_place
from expost.data.source_version import MemoryWatch, Version, is_same_version
from expost.data.sql_expression import parse_sql
from expost.data.table_schema import Schema, kind_of
from expost.data.text_format import TextFormat
from expost.data.unit_aggregate import UnitAggregate, UnitColumn, UnitEngine
from expost.data.unit_identity import Period
from expost.data.unit_join import UnitJoin, check_keys
from expost.data.unit_match import UnitMatch
from expost.data.unit_shard import MEMORY_LIMIT
from expost.data.untyped_table import ID, implied_types, loose_columns, read_ids

__all__ = ["Dataset"]

_CATEGORIES_SHOWN = 6  # categories of a column that a notebook shows
_NUMBERS = itertools.count()  # of sources in this process; an address in memory may be used again


class Dataset(MeasuredTable):
    """A table with its public description: unit of protection, bounds, categories, adjacency.

    Everything in the description is public and must not be computed from the rows. The number of rows is private under
    add/remove adjacency; under replace-one it is public and passed as ``rows``.

    Parameters
    ----------
    source : path, URL, query, table, frame, lists or engine
        A Parquet, CSV or Arrow path (or glob), a folder of Parquet, a Delta or an Iceberg table, an address such as
        ``s3://bucket/folder``, a ``postgresql://...?table=...`` URL, an SQL query for DuckDB, an Arrow table or dataset, a pandas or polars frame, Python lists, a DuckDB relation, a Spark frame, or an engine.
    name : str, optional
        Name of the table in ledgers. Default: the file name without its ending.
    unit : str or Unit, default "row"
        Who is protected: ``"row"``, the name of an id column, or ``Unit.of(id, per="week", time=column)``.
    max_rows_per_unit : int, optional
        Contribution bound: the most rows of one id that a query counts. A uniformly random part is kept, drawn with a
        fresh secret for every query. Needed for most queries if the unit is an id.
    max_groups_per_unit : int, optional
        The most groups of one id that a grouped query counts. Default: no limit.
    max_rows_per_group : int, optional
        The most rows of one id that a grouped query counts in each group. Together with ``max_groups_per_unit`` it limits the
        rows of an id to the product of both. Default: no limit.
    bounds : mapping of str to pair of numbers or dates, optional
        Public bounds of numeric columns, in their own units. Values outside are moved to the nearest bound. Two dates are
        the range of a time column, by whose periods rows can be grouped; rows outside are left out of those groups.
    categories : mapping of str to list, optional
        Public values of columns to group by. Rows with other values are left out of grouped queries.
    derive : mapping of str to str or Expression, optional
        Formulas of additional columns, as in the method ``derive``; ``bounds`` and ``categories`` may name them.
    adjacency : {"add-remove", "replace-one"} or Adjacency, default "add-remove"
        Which tables count as neighbors.
    rows : int, optional
        The public number of rows; needed under replace-one adjacency if the unit is a row.
    types : mapping of str to str, optional
        Types (integer, real, boolean, text, time) of columns of a CSV file, a pandas or polars frame or Python lists, so
        that no row decides them. ``"time:%d/%m/%Y"`` is a time in a format of its own. A cell that does not fit its type is
        missing. Other columns of a CSV file have the type that bounds or categories imply, or else hold texts.
    missing : list of str, optional
        Cells of a CSV file that are missing values, as empty cells are. Default: NA, NaN and null. Public categories of a
        column are never missing.
    separator : str, optional
        The character between the cells of a CSV file. Default: the first of comma, tab, semicolon, bar in the header.
    decimal : {".", ","}, default "."
        The decimal separator of numbers in a CSV file.
    encoding : {"utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"}, default "utf-8"
        The encoding of a CSV file.
    widths : mapping of str to int, optional
        Names and widths in characters of the columns of a fixed-width file, in order. It has no header, and every line is a row.
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
    tables: tuple[str, ...]
    """Names of the private tables whose rows are read: more than one after a join."""

    @explain_arguments
    def __init__(
        self,
        source: Any,
        *,
        name: str | None = None,
        unit: str | Unit = "row",
        max_rows_per_unit: int | None = None,
        max_groups_per_unit: int | None = None,
        max_rows_per_group: int | None = None,
        bounds: Mapping[str, tuple[Any, Any]] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        derive: Mapping[str, Expression | str] | None = None,
        adjacency: str | Adjacency = "add-remove",
        rows: int | None = None,
        types: Mapping[str, str] | None = None,
        missing: Sequence[str] | None = None,
        separator: str | None = None,
        decimal: str = ".",
        encoding: str = "utf-8",
        widths: Mapping[str, int] | None = None,
        lines_are_rows: bool = False,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self.unit = unit if isinstance(unit, Unit) else Unit.row() if unit == "row" else Unit.of(unit)
        formulas = _check_mapping(derive, "derive")
        self.bounds, self.time_ranges = split_bounds(_check_mapping(bounds, "bounds"))
        self.categories = {
            column: _check_list(column, values) for column, values in _check_mapping(categories, "categories").items()
        }
        implied = implied_types(self.bounds, self.categories, self.unit.time_column, self.time_ranges)
        implied = {column: kind for column, kind in implied.items() if column not in formulas}
        # A file stores the type of its ids, or has it declared.
        ids = {} if self.unit.column is None or isinstance(source, str | Path) else {self.unit.column: ID}
        text_format = TextFormat(
            missing=missing,
            separator=separator,
            decimal=decimal,
            encoding=encoding,
            widths=widths,
            lines_are_rows=lines_are_rows,
            kept=self.categories,
        )
        self._engine, suggested = open_source(source, types=types, implied=ids | implied, text_format=text_format)
        marked = mark_source(source, types=types, implied=implied, text_format=text_format)
        self._mark = self._engine.mark() if marked is None else marked
        self._number = next(_NUMBERS)
        self._watch = MemoryWatch(source)
        self._opened = self._read_version()
        self._loose = loose_columns(source, types)
        self._place = None if self._mark is None else name_place(source)
        self.name = name if name is not None else suggested
        self.tables = (self.name or "table",)
        self.schema = Schema.of(self._engine.schema)
        self.adjacency = Adjacency.parse(adjacency)
        self.max_rows_per_unit = _check_count(max_rows_per_unit, "max_rows_per_unit")
        self.max_groups_per_unit = _check_count(max_groups_per_unit, "max_groups_per_unit")
        self.max_rows_per_group = _check_count(max_rows_per_group, "max_rows_per_group")
        self.rows = _check_count(rows, "rows")
        self.window = None
        self._memory_limit = memory_limit
        self._derived, self._filter = {}, None
        self._add_columns(formulas)
        self._check_description()

    def _check_description(self) -> None:
        """Raise if the description does not fit the schema or itself."""
        self._check_facts(self.bounds, self.time_ranges, self.categories)
        for named in (self.unit.column, self.unit.time_column):
            if named is not None:
                kind_of(col(named), self.schema)
        if self.unit.time_column is not None and self.schema.kind(self.unit.time_column) is not Kind.TIME:
            raise InvalidRequest("Expected a column of times", got=self.unit.time_column, do="Name a time column")
        if self.unit.is_row and (self.max_rows_per_unit or self.max_groups_per_unit or self.max_rows_per_group):
            raise InvalidRequest(
                "Expected limits per unit only with an id column", do='Pass unit="the id column", or drop the limits'
            )
        if self.adjacency.public_size and self.rows is None and self.unit.is_row:
            raise InvalidRequest(
                "Expected the public number of rows under replace-one adjacency", do="Pass rows=, or use add-remove"
            )

    def _check_facts(self, bounds: Iterable[str], ranges: Iterable[str], categories: Iterable[str]) -> None:
        """Raise if public facts do not fit the columns they are about."""
        for column in bounds:
            self.clamp(col(column))
        for column in ranges:
            if self.schema.kind(column) is not Kind.TIME:
                raise InvalidRequest(
                    "Expected dates as bounds of a column of times only", got=column, do="Pass numbers"
                )
        for column in categories:
            self.axis(col(column))

    def _read_ids_again(self, column: str) -> None:
        """Read a column of objects as ids, which were read as texts before it was known that they are ids."""
        if column in self._loose:
            names = self._engine.schema.names
            table = pa.Table.from_batches(self._engine.batches(names), self._engine.schema)
            self._engine, _ = open_source(table.set_column(names.index(column), column, read_ids(self._loose[column])))

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
        source = f"memory {self._number}" if self._mark is None else self._mark
        limits = (self.max_rows_per_unit, self.max_groups_per_unit, self.max_rows_per_group)
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

    def has_changed(self) -> bool:
        """Return whether the source was changed since this dataset was opened: its files, or the frame that was passed.

        No more than a few blocks of each file or array are read. Sessions refuse to answer once it has changed, because
        an answer about the old rows cannot be refined on new ones: open the source again. A table that changes without
        a trace outside its rows is not noticed here.

        Returns
        -------
        bool

        Examples
        --------
        >>> Dataset(pa.table({"age": [41, 17]})).has_changed()
        False
        """
        return not is_same_version(self._opened, self._read_version())

    def _read_version(self) -> Version:
        return (*self._watch.version(), *self._engine.version())

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
    def derive(self, *, bounds: Any = None, categories: Any = None, **columns: Expression | str) -> Self:
        """Return a view with additional columns, each computed from a row.

        Date parts, bins, periods of a time with a public range, and choices between constants know their categories.

        Parameters
        ----------
        bounds : pair or mapping of str to pair, optional
            Public bounds of new columns, or of the new column if there is only one.
        categories : list or mapping of str to list, optional
            Public values of new columns to group by, or of the new column if there is only one.
        **columns : Expression or str
            Name and formula of each new column. Formulas may use earlier derived columns.

        Examples
        --------
        >>> people = Dataset(pa.table({"born": [1980, 2001]})).derive(age=2024 - col("born"), bounds=(0, 120))
        >>> list(people.schema), people.bounds
        (['born', 'age'], {'age': (0, 120)})
        """
        view = copy.copy(self)
        given_bounds, ranges = split_bounds(_facts_by_column(bounds, columns, "bounds"))
        listed = _facts_by_column(categories, columns, "categories")
        given_lists = {column: _check_list(column, values) for column, values in listed.items()}
        view.bounds = self.bounds | given_bounds
        view.time_ranges = self.time_ranges | ranges
        view.categories = self.categories | given_lists
        view._add_columns(columns)
        view._check_facts(given_bounds, ranges, given_lists)
        return view

    def _with_columns(self, columns: Mapping[str, Expression | str]) -> Self:
        """Return a view with derived columns of any names, those of the arguments of ``derive`` too."""
        view = copy.copy(self)
        view._add_columns(columns)
        return view

    def _add_columns(self, columns: Mapping[str, Expression | str]) -> None:
        """Add derived columns to a new dataset or view, with the categories that follow from their formulas."""
        self._derived = dict(self._derived)
        for name, formula in columns.items():
            if not isinstance(name, str) or name in self.schema:
                raise InvalidRequest("Expected a new column name", got=name, do="Choose another name")
            expression = self.expression(formula if isinstance(formula, Expression) else parse_sql(formula))
            kind = kind_of(expression, self.schema, self._derived) or Kind.REAL
            self._derived[name] = expression
            self.schema = Schema({**self.schema.kinds, name: kind})
            values = None if name in self.categories or name in self.bounds else self._facts.values_of(expression)
            if values:
                self.categories = {**self.categories, name: values}

    @explain_arguments
    def join(
        self,
        table: Any,
        *,
        on: str | Sequence[str],
        prefix: str = "",
        how: str = "left",
        max_rows_per_unit: int | None = None,
    ) -> Self:
        """Return a view with the columns of another table, a public one or a private one about the same ids.

        **A public table** is looked up by a key, and no row is added or lost. The new columns have public categories, and
        numbers also have bounds: those of the table.

        **A private table**, given as a ``Dataset`` with the same unit, is joined on the id of the unit. One id is one person in
        both tables: what is protected are all rows of an id in both. A person keeps at most ``max_rows_per_unit`` rows of
        the second table, as declared there, and of the joined rows as many as declared here. The view belongs to the
        account of this table, which then pays for the rows of both (docs/proofs/unit-join.md).

        Parameters
        ----------
        table : Arrow table, frame, mapping or Dataset
            A public table with each key once; columns other than numbers, texts, booleans and times are left out. Or a
            private ``Dataset`` with the same unit, an id.
        on : str or sequence of str
            Name of the key column, in both tables. The id of the unit for a private table, or a list that contains it.
        prefix : str, default ""
            Put before the names of the new columns.
        how : {"left", "inner", "exists"}, default "left"
            What happens to a row without a match: ``"left"`` keeps it, with missing values in the new columns; ``"inner"``
            drops it. ``"exists"`` keeps all rows, each once, and adds one column of truths, named by ``prefix``: whether the row
            has a match. Private tables only.
        max_rows_per_unit : int, optional
            The most joined rows of one id that a query counts. Default: the product of the limits of both tables. Private
            tables only.

        Raises
        ------
        InvalidRequest
            If the key is not one in both tables, or private tables do not protect the same unit.

        Examples
        --------
        >>> states = pa.table({"origin": ["EWR", "JFK"], "state": ["NJ", "NY"]})
        >>> list(Dataset(pa.table({"origin": ["JFK"]})).join(states, on="origin").schema)
        ['origin', 'state']
        >>> visits = Dataset(pa.table({"id": [1, 1, 2], "paid": [5, 7, 30]}), unit="id", max_rows_per_unit=10)
        >>> people = Dataset(pa.table({"id": [1, 2], "age": [40, 70]}), unit="id", max_rows_per_unit=1)
        >>> visits.join(people, on="id", how="inner").max_rows_per_unit
        10
        """
        if how not in ("left", "inner", "exists") or not isinstance(prefix, str):
            raise InvalidRequest(
                'Expected how="left", "inner" or "exists", and a text as prefix', got=how, do="Name one of them"
            )
        if isinstance(table, Dataset) and how == "exists":
            return self._mark_matches(table, on, mark=prefix, limit=max_rows_per_unit)
        if isinstance(table, Dataset):
            return self._join_private(table, on, prefix=prefix, how=how, limit=max_rows_per_unit)
        if how != "left" or max_rows_per_unit is not None or not isinstance(on, str):
            raise InvalidRequest(
                "Expected one key of a public table, which keeps all rows",
                do="Leave out how= and max_rows_per_unit=, and use where() to drop rows without a match",
            )
        public = PublicLookup.of(table, on, prefix)
        view = self._with_columns(dict(public.columns))
        view.categories, view.bounds, view.time_ranges = (
            dict(self.categories),
            dict(self.bounds),
            dict(self.time_ranges),
        )
        for name, (categories, bounds) in public.facts.items():
            view.categories |= {name: categories} if categories else {}
            view.bounds |= {} if bounds is None else {name: bounds}
            if categories and view.schema.kind(name) is Kind.TIME:
                view.time_ranges[name] = read_range(name, (categories[0], categories[-1]))
        return view

    def _check_same_unit(self, other: Dataset) -> None:
        """Raise unless both tables protect the same ids."""
        if self.unit.is_row or self.unit.window is not None or other.unit != self.unit:
            raise InvalidRequest(
                "Expected two private tables whose unit is the same id column, without a time window",
                got=f"{self.unit} and {other.unit}",
                do='Pass unit="the id column" to both; a public table is passed as a frame, not as a Dataset',
            )
        if other.adjacency is not self.adjacency:
            raise InvalidRequest("Expected two tables with the same adjacency", do="Pass the same adjacency= to both")

    def _mark_matches(self, other: Dataset, on: Any, *, mark: str, limit: int | None) -> Self:
        """Return a view with one more column: whether a row of the other table agrees in all keys."""
        self._check_same_unit(other)
        if not mark or mark in self.schema or limit is not None:
            raise InvalidRequest(
                "Expected prefix= a new name for the column of truths, and no max_rows_per_unit: no row is added",
                got=mark,
                do='Pass how="exists", prefix="has_visit"',
            )
        keys = (on,) if isinstance(on, str) else tuple(on)
        kinds = {name: kind for name, kind in other.schema.kinds.items() if kind is not Kind.OTHER}
        fields = [pa.field(name, other.key_type(col(name))) for name in kinds]
        keys = check_keys(self._engine.schema, pa.schema(fields), keys, self.unit)
        view = copy.copy(self)
        view._engine = UnitMatch(
            self._engine,
            keys=keys,
            mark=mark,
            read_right=lambda: other.batches(list(keys)),
            right_identity=other.source_identity,
            right_version=other._read_version,
        )
        view._opened = view._read_version()
        view._mark, view._number = None, next(_NUMBERS)
        view.schema = Schema({**self.schema.kinds, mark: Kind.BOOLEAN})
        view.rows, view.tables = None, (*self.tables, *other.tables)
        return view

    def _join_private(self, other: Dataset, on: Any, *, prefix: str, how: str, limit: int | None) -> Self:
        """Join a private table about the same ids."""
        self._check_same_unit(other)
        if other.max_rows_per_unit is None:
            raise InvalidRequest(
                f"Expected a limit on the rows of one {self.unit.column} in the table that is joined",
                do="Pass Dataset(..., max_rows_per_unit=1) if it has one row per id",
            )
        kinds = {name: kind for name, kind in other.schema.kinds.items() if kind is not Kind.OTHER}
        fields = [pa.field(name, other.key_type(col(name))) for name in kinds]
        keys = check_keys(self._engine.schema, pa.schema(fields), on, self.unit)
        added = {name: prefix + name for name in kinds if name not in keys}
        taken = next((new for new in added.values() if new in self.schema), None)
        if taken is not None:
            raise InvalidRequest(
                "Expected column names that only one of the tables has", got=taken, do='Pass prefix="people_"'
            )
        view, names = copy.copy(self), list(kinds)
        view._engine = UnitJoin(
            self._engine,
            pa.schema(fields),
            unit=self.unit,
            keys=keys,
            most=other.max_rows_per_unit,
            prefix=prefix,
            keep_unmatched=how == "left",
            read_right=lambda: other.batches(names),
            right_identity=other.source_identity,
            right_version=other._read_version,
        )
        view._opened = view._read_version()
        # Its secret belongs to this process, so releases are not shared with others.
        view._mark, view._number = None, next(_NUMBERS)
        view.schema = Schema({**self.schema.kinds, **{new: kinds[name] for name, new in added.items()}})
        for fact in ("bounds", "categories", "time_ranges"):
            theirs = {added[name]: value for name, value in getattr(other, fact).items() if name in added}
            setattr(view, fact, getattr(self, fact) | theirs)
        view.rows, view.tables = None, (*self.tables, *other.tables)
        own = self.max_rows_per_unit
        view.max_rows_per_unit = _check_count(limit, "max_rows_per_unit") or (
            None if own is None else own * other.max_rows_per_unit
        )
        return view

    @explain_arguments
    def per_unit(self, *, bounds: Any = None, categories: Any = None, **columns: UnitAggregate | str) -> Self:
        """Return a table with one row per unit: aggregates of its rows. It is charged to the same account.

        A unit's row depends on all rows of that unit and on no others, so every statistic of the new table has the sensitivity of
        one row, and ``max_rows_per_unit`` is not needed (docs/proofs/contribution-bounding.md). Filters and derived
        columns of this view apply first; a unit without rows left has no row.

        Parameters
        ----------
        bounds : pair of numbers or mapping of str to pair, optional
            Public bounds of the new columns, or of the new column if there is only one. Needed for sums and means, whose values
            are moved to the nearest bound. The smallest and the largest number of a column have its bounds by default.
        categories : list or mapping of str to list, optional
            Public values of new columns to group units by, or of the new column if there is only one.
        **columns : str or UnitAggregate
            Name and aggregate of each new column: ``"count()"``, or count, sum, mean, min or max of a column or formula.

        Raises
        ------
        InvalidRequest
            If a unit is a row, or an aggregate is not one of a column of numbers.

        Examples
        --------
        >>> visits = Dataset(pa.table({"id": [1, 1, 2], "paid": [5.0, 7.0, 30.0]}), unit="id")
        >>> people = visits.per_unit(total="sum(paid)", visits="count()", bounds={"total": (0, 100)})
        >>> people
        Dataset(id integer, total real, visits integer; all rows of one id, add-remove)
        """
        if self.unit.column is None:
            raise InvalidRequest(
                "Expected a unit that is an id: a unit that is a row has nothing to aggregate",
                do='Pass Dataset(..., unit="the id column")',
            )
        keys = [self.unit.column, *([] if self.unit.time_column is None else [self.unit.time_column])]
        parsed = {name: UnitAggregate.parse(text) for name, text in columns.items()}
        if not parsed or set(keys) & set(parsed):
            raise InvalidRequest(
                "Expected new columns with names of their own",
                got=", ".join(parsed),
                do='Pass e.g. total="sum(amount)", bounds={"total": (0, 1000)}',
            )
        declared = _facts_by_column(bounds, parsed, "bounds")
        listed = _facts_by_column(categories, parsed, "categories")
        measured = {f"{name} of a row": each.column for name, each in parsed.items() if each.column is not None}
        made, read = list[UnitColumn](), self._with_columns(measured)
        for name, each in parsed.items():
            if each.function in ("min", "max") and isinstance(each.column, ColumnName):
                declared.setdefault(name, self.bounds.get(each.column.name))
            kind = None if each.column is None else kind_of(each.column, self.schema, self._derived)
            made.append(UnitColumn.of(name, each, kind, declared.get(name)))
        used = [*keys, *(f"{each.name} of a row" for each in made if each.has_column)]
        key_type = self._engine.schema.field(keys[0]).type
        view, settings = copy.copy(self), repr((parsed, declared, self._filter, self._derived))
        view._engine = UnitEngine(
            made,
            self.unit,
            key_type,
            fold=lambda function, merge: read.reduce(function, merge, used),
            identity=self._engine.identity,
            version=self._engine.version,
        )
        view._mark = None if self._mark is None else f"{self._mark} per unit {settings}"
        view._number = next(_NUMBERS)
        view.schema = Schema.of(view._engine.schema)
        view.bounds = {name: pair for name, pair in declared.items() if pair is not None}
        view.categories = {name: _check_list(name, values) for name, values in listed.items()}
        view.time_ranges, view._derived, view._filter, view.rows = {}, {}, None, None
        view.max_rows_per_unit, view.max_groups_per_unit, view.max_rows_per_group = 1, None, None
        view._check_facts((), (), view.categories)
        return view

    @explain_arguments
    def dummy(self, rows: int = 1000, *, seed: int = 0) -> Self:
        """Return a dataset of made-up rows with the same description, to try questions on for free.

        Columns, types, bounds, categories and unit are those of the description; values are spread evenly. Nothing of the
        real rows is read.

        Parameters
        ----------
        rows : int, default 1000
            How many rows to make up. A public number of rows overrides it.
        seed : int, default 0
            Equal seeds give equal rows.

        Examples
        --------
        >>> people = Dataset(pa.table({"age": [41, 17, 65]}), bounds={"age": (0, 120)})
        >>> people.dummy(5000)
        Dataset('made up': age integer; one row, add-remove)
        """
        view, table = copy.copy(self), self.dummy_table(rows, seed=seed)
        (view._engine, _), view._mark, view._place = open_source(table, types=None, implied={}), None, None
        view._watch, view._opened = MemoryWatch(None), ()
        view.name, view.tables, view._number = "made up", ("made up",), next(_NUMBERS)
        return view

    def dummy_table(self, rows: int = 1000, *, seed: int = 0) -> pa.Table:
        """Return the made-up rows of ``dummy`` as an Arrow table, without derived columns.

        Parameters
        ----------
        rows : int, default 1000
            How many rows to make up. A public number of rows overrides it.
        seed : int, default 0
            Equal seeds give equal rows.
        """
        count = _check_count(rows, "rows") or 1
        return make_dummy_rows(
            self._engine.schema,
            count if self.rows is None else self.rows,
            unit=self.unit,
            rows_per_unit=self.max_rows_per_unit or 1,
            bounds=self.bounds,
            categories=self.categories,
            time_ranges=self.time_ranges,
            seed=seed,
        )

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

    def _repr_html_(self) -> str:
        rows = [(name, kind.value, self._describe_column(name)) for name, kind in self.schema.kinds.items()]
        described = html.escape(f"{self.name or 'table'}: {self.unit}, {self.adjacency.value}")
        return f"<p><b>{described}</b></p>" + html_table(("column", "kind", "public description"), rows)

    def _describe_column(self, name: str) -> str:
        """Return the public description of a column in words."""
        facts = [f"from {self.bounds[name][0]} to {self.bounds[name][1]}"] if name in self.bounds else []
        if name in self.categories:
            values = [str(value) for value in self.categories[name][:_CATEGORIES_SHOWN]]
            more = len(self.categories[name]) - len(values)
            facts.append(", ".join(values) + (f" and {more} more" if more else ""))
        if name in self._derived:
            facts.append(f"computed as {self._derived[name]!r}")
        if name == self.unit.column:
            facts.append("id of the unit")
        return "; ".join(facts)


def _check_mapping(given: Any, name: str) -> dict[str, Any]:
    """Return facts by column; raise if they are not a mapping."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidRequest(f"Expected {name} by column", got=given, do=f'Pass {name}={{"a column": ...}}')
    return dict(given or {})


def _facts_by_column(given: Any, columns: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return facts about new columns by column; facts that are not a mapping are about the only one."""
    if given is not None and not isinstance(given, Mapping) and len(columns) == 1:
        return {next(iter(columns)): given}
    facts = _check_mapping(given, name)
    unknown = next((column for column in facts if column not in columns), None)
    if unknown is not None:
        raise InvalidRequest(f"Expected {name} of the new columns", got=unknown, do="Declare others with Dataset(...)")
    return facts


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
