"""Tables that queries measure: what a query needs from a dataset, from checked columns to sealed exact answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Sealed, Sensitivity, Unit
from expost.data.axis import Axis, Categories, FoundKeys, Periods
from expost.data.bounding import Atoms, Limits
from expost.data.canonical_cell import Kind, decode_batch
from expost.data.clamp import Clamp
from expost.data.engines.engine import CanonicalEngine, Engine, batch_rows_for
from expost.data.evaluation import evaluate, evaluate_filter
from expost.data.exact_total import exact_sums, find_keys, rows_per_cell, single_steps
from expost.data.expression import ColumnName, Expression, Literal, Operation, col
from expost.data.public_fact import PublicFacts, TimeRange
from expost.data.pushed_filter import expand_columns
from expost.data.sealed_form import CountForm, Form, sealed_integers, unit_length, unit_sensitivity
from expost.data.sql_expression import parse_sql
from expost.data.table_schema import Schema, check_categories, check_filter, kind_of, read_time_constants
from expost.data.tally import Measured, Tally, stored_columns

__all__ = ["MeasuredTable"]

T = TypeVar("T")

_FORMULA_SIGNS = frozenset("()+-*/%<>=|:'")


class MeasuredTable:
    """The part of ``Dataset`` that queries and models use; ``Dataset`` sets the attributes."""

    schema: Schema
    """Names and kinds of the columns, derived ones included."""
    unit: Unit
    """Who is protected."""
    adjacency: Adjacency
    """Which tables count as neighbors."""
    rows: int | None
    """The public number of rows, or None if it is private."""
    bounds: dict[str, Any]
    """Public bounds of numeric columns."""
    categories: dict[str, tuple[Any, ...]]
    """Public values of columns to group by."""
    max_rows_per_unit: int | None
    """The most rows of one id that a query counts."""
    max_groups_per_unit: int | None
    """The most groups of one id that a grouped query counts."""
    time_ranges: dict[str, TimeRange]
    """Public ranges of time columns."""
    max_rows_per_group: int | None
    """The most rows of one id that a grouped query counts in each group."""
    _engine: Engine
    _memory_limit: int
    _derived: dict[str, Expression]
    _filter: Expression | None

    def expression(self, column: Expression | str) -> Expression:
        """Return a column, expression or formula after checking it against the schema."""
        expression = column
        if isinstance(column, str):
            is_formula = column not in self.schema and not _FORMULA_SIGNS.isdisjoint(column)
            expression = parse_sql(column) if is_formula else col(column)
        if not isinstance(expression, Expression):
            raise InvalidRequest("Expected a column name or an expression", got=column, do='Pass "age" or col("age")')
        expression = self._complete(expression)
        kind_of(expression, self.schema, self._derived)
        return expression

    def _complete(self, expression: Expression) -> Expression:
        """Give bins without ends the public bounds of what they divide, and read texts that are compared with times."""
        if not isinstance(expression, Operation):
            return expression
        parts = tuple(map(self._complete, expression.arguments))
        if expression.name == "bin" and len(parts) == 2:
            clamp = self.clamp(parts[0])
            return Operation("bin", (parts[0], Literal(float(clamp.low)), Literal(float(clamp.high)), parts[1]))
        parts = read_time_constants(expression.name, parts, self.schema, self._derived)
        changed = any(new is not old for new, old in zip(parts, expression.arguments, strict=True))
        return Operation(expression.name, parts) if changed else expression

    @property
    def _facts(self) -> PublicFacts:
        """The public facts from which values of expressions follow."""
        return PublicFacts(self._derived, self.categories, self.time_ranges)

    def stored_field(self, column: str) -> pa.Field | None:
        """Return a column's type and metadata as the source stores it, None for a derived column. Both are public."""
        schema = self._engine.stored_schema if isinstance(self._engine, CanonicalEngine) else self._engine.schema
        return None if column in self._derived else schema.field(column)

    def key_type(self, column: Expression) -> pa.DataType:
        """Return the type of the cells by which rows are grouped; stored cells are not converted."""
        if isinstance(column, ColumnName) and column.name not in self._derived:
            return self._engine.schema.field(column.name).type
        kind = kind_of(column, self.schema, self._derived)
        types = {Kind.TEXT: pa.large_string(), Kind.BOOLEAN: pa.bool_(), Kind.TIME: pa.timestamp("us")}
        return types.get(kind or Kind.REAL, pa.float64())

    def condition(self, condition: Expression | str | None) -> Expression | None:
        """Return a filter as an expression after checking it."""
        if condition is None:
            return None
        found = self.expression(parse_sql(condition) if isinstance(condition, str) else condition)
        check_filter(found, self.schema, self._derived)
        return found

    def clamp(self, column: Expression, bounds: object = None) -> Clamp:
        """Return the clamp of a number."""
        kind = kind_of(column, self.schema, self._derived)
        if kind is None or not kind.is_number:
            held = "nothing but NULL" if kind is None else f"{kind.value} values"
            named = column.name if isinstance(column, ColumnName) and kind is Kind.TEXT else None
            declare = (
                "" if named is None else f', or pass Dataset(types={{"{named}": "real"}}) if its cells are numbers'
            )
            raise InvalidRequest(
                f"Expected a column of numbers, but {column!r} holds {held}",
                do=f"Name a numeric column{declare}",
            )
        if kind is Kind.BOOLEAN and bounds is None:
            bounds = (0, 1)
        if bounds is None and isinstance(column, ColumnName):
            bounds = self.bounds.get(column.name)
        if bounds is None and (known := self._facts.values_of(column)):
            numbers = [value for value in known if isinstance(value, int | float)]
            bounds = (min(numbers), max(numbers)) if len(set(numbers)) > 1 else None
        if bounds is None:
            given = isinstance(column, ColumnName) and column.name not in self._derived
            where = "here or to Dataset(...)" if given else "here or to derive(...)"
            raise InvalidRequest(
                f"Expected public bounds for {column!r}",
                do=f'Pass bounds=(0, 120) {where}, or pay for some: bounds="private" of a sum, mean or spread, '
                f'session.bounds("{column!r}", epsilon=0.1) for other statistics',
            )
        return Clamp.of(bounds, whole=kind in (Kind.INTEGER, Kind.BOOLEAN))

    def periods(self, column: Expression, every: str, bounds: object = None) -> Periods:
        """Return the calendar periods of a column of times, between bounds that are given or declared."""
        if not self.is_time(column):
            raise InvalidRequest(
                "Expected a column of times",
                got=repr(column),
                do='Name a time column, or declare types={"when": "time"}',
            )
        if bounds is None and isinstance(column, ColumnName):
            bounds = self.time_ranges.get(column.name)
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise InvalidRequest(
                f"Expected the first and the last day of {column!r}",
                got=bounds,
                do='Pass bounds=("2024-01-01", "2024-12-31") that hold whatever the data',
            )
        return Periods.of(column, (bounds[0], bounds[1]), every)

    def axis(self, column: Expression | str, values: Sequence[Any] | None = None) -> Categories:
        """Return the categories of a column as an axis."""
        expression = self.expression(column)
        kind = kind_of(expression, self.schema, self._derived)
        if values is None and isinstance(expression, ColumnName):
            values = self.categories.get(expression.name)
        if values is None and kind is Kind.BOOLEAN:
            values = [False, True]
        if values is None:
            values = self._facts.values_of(expression) or None
        if values is None:
            raise InvalidRequest(
                f"Expected public categories for {expression!r}", do=self._suggest_categories(expression, kind)
            )
        found = Categories.of(expression, values)
        check_categories(expression, found.values, kind, self._derived)
        return found

    def kind(self, column: Expression) -> Kind | None:
        """Return the kind of an expression's values, None for NULL; raise if its parts do not fit together."""
        return kind_of(column, self.schema, self._derived)

    def known_values(self, column: Expression) -> tuple[Any, ...] | None:
        """Return all values that an expression can have apart from missing, or None if they are not public."""
        return self._facts.values_of(column)

    def _suggest_categories(self, expression: Expression, kind: Kind | None) -> str:
        """Return what to write so that rows can be grouped by an expression whose values are not public."""
        if isinstance(expression, Operation) and expression.name in ("year", "date", "date_trunc"):
            time = next(iter(expression.columns()), "when")
            return f'Pass Dataset(bounds={{"{time}": ("2013-01-01", "2013-12-31")}}), the range of the time, or a longer period'
        if not isinstance(expression, ColumnName):
            return "Name the formula and its values: derive(group=..., categories=[...])"
        name = expression.name
        made = f"derive({name}=..., categories=[...])" if name in self._derived else None
        declare = made or f'Dataset(categories={{"{name}": [...]}})'
        if kind is Kind.TIME:
            return f'Group by "month({name})" or "date_trunc(\'month\', {name})", or pass {declare}'
        if kind is not None and kind.is_number:
            return f'Group by "bin({name}, 10)" between public bounds, or pass {declare}'
        return f'Pass {declare}, or group by expost.PrivateKeys("{name}", epsilon=0.1, delta=1e-7)'

    def is_categorical(self, column: Expression) -> bool:
        """Return whether a column has public categories, or could have nothing else to be divided by."""
        declared = isinstance(column, ColumnName) and column.name in self.categories
        return declared or kind_of(column, self.schema, self._derived) in (Kind.TEXT, Kind.BOOLEAN)

    def is_time(self, column: Expression) -> bool:
        """Return whether a column holds times."""
        return kind_of(column, self.schema, self._derived) is Kind.TIME

    def tally(
        self,
        *,
        measured: tuple[Measured, ...] = (),
        axes: tuple[Axis, ...] = (),
        where: Expression | None = None,
        degree: int = 0,
    ) -> Tally:
        """Build a tally with the filter, derived columns and unit of this dataset."""
        return Tally(measured, axes, self._narrow_filter(where), degree, derived=self._derived, unit=self.unit)

    def _narrow_filter(self, where: Expression | None) -> Expression | None:
        """Combine the filter of this view with a further one."""
        if self._filter is None or where is None:
            return self._filter if where is None else where
        return self._filter & where

    def limits(self, tally: Tally, *, once: bool = False) -> Limits | None:
        """Return the contribution bounds of one unit for a tally."""
        if self.unit.is_row:
            return None
        groups, rows_per_group = self.max_groups_per_unit, self.max_rows_per_group
        if once:
            return Limits(groups=groups if tally.axes else 1, once=True)
        # The number of cells limits nothing here: where keys are private, it is that of a stand-in.
        together = None if groups is None or rows_per_group is None else groups * rows_per_group
        totals = [most for most in (self.max_rows_per_unit, together) if most is not None]
        if not totals:
            raise InvalidRequest(
                f"Expected a limit on the rows of one {self.unit.column}",
                do="Pass Dataset(..., max_rows_per_unit=10), or max_groups_per_unit= with max_rows_per_group=",
            )
        if not tally.axes:
            return Limits(rows=min(totals))
        return Limits(groups=groups, rows=min(totals), rows_per_group=rows_per_group)

    def sensitivity(self, form: Form, tally: Tally, *, once: bool = False) -> Sensitivity:
        """Return how far one unit can move the coordinates of a form, in L1."""
        return unit_sensitivity(form, tally, self.limits(tally, once=once), self.adjacency)

    def length(self, form: Form, tally: Tally, *, once: bool = False) -> Sensitivity:
        """Return how far one unit can move the coordinates of a form, in L2."""
        return unit_length(form, tally, self.limits(tally, once=once), self.adjacency)

    def rows_per_unit(self, limits: Limits | None) -> Sensitivity:
        """Return the number of rows that one unit can add, remove or replace."""
        amount = 1 if limits is None or limits.rows is None else limits.rows
        return Sensitivity(amount, adjacency=self.adjacency, unit=self.unit)

    # Exact answers, sealed ---------------------------------------------------------------------------------------

    def measure_total(
        self, form: Form, tally: Tally, *, secret: bytes, once: bool = False, under: Sensitivity | None = None
    ) -> Sealed:
        """Measure the exact coordinates of all cells, cell after cell, and seal them."""
        limits = self.limits(tally, once=once)
        sums = exact_sums(self._engine, replace(tally, key=secret), limits, memory_limit=self._memory_limit)
        return Sealed(sealed_integers(form, sums), under or unit_sensitivity(form, tally, limits, self.adjacency))

    def measure_parts(self, form: Form, tally: Tally, *, parts: int, secret: bytes, under: Sensitivity) -> list[Sealed]:
        """Measure like ``measure_total``, cut the cells into even runs and seal each run by itself."""
        keyed, limits = replace(tally, key=secret), self.limits(tally)
        sums = exact_sums(self._engine, keyed, limits, memory_limit=self._memory_limit)
        return [Sealed(part, under) for part in np.split(sealed_integers(form, sums), parts)]

    def measure_steps(self, tally: Tally, *, secret: bytes, under: Sensitivity) -> list[Sealed]:
        """Measure the steps of one measured column, one integer per row, and seal them cell by cell."""
        keyed, limits = replace(tally, key=secret), self.limits(tally)
        exact = single_steps(self._engine, keyed, limits, memory_limit=self._memory_limit)
        return [Sealed(cell, under) for cell in exact]

    def measure_occupied(
        self, tally: Tally, *, secret: bytes, under: Sensitivity, once: bool = False
    ) -> tuple[Sealed, NDArray[np.intp]]:
        """Measure the row counts of the cells that have rows after contribution bounding, and seal them.

        A key whose rows were all dropped must not open a group: a unit may have any number of such keys.
        """
        keyed, limits = replace(tally, key=secret), self.limits(tally, once=once)
        rows = rows_per_cell(self._engine, keyed, limits, memory_limit=self._memory_limit)
        found = np.flatnonzero(rows)
        return Sealed(rows[found], under), found

    def measure_rows(self) -> Sealed:
        """Measure the exact number of rows and seal it, if a unit is a row."""
        return self.measure_total(CountForm(), self.tally(), secret=b"")

    # Secret keys and rows, for callers that seal what they compute -------------------------------------------------

    def find_keys(self, column: Expression, tally: Tally, *, secret: bytes) -> FoundKeys:
        """Find the values of a column that occur. SECRET: a key may be released only after thresholding."""
        return find_keys(self._engine, replace(tally, key=secret), column)

    @property
    def distributed(self) -> bool:
        """True if rows lie on other machines, so that functions go there and rows do not come here."""
        return self._engine.distributed

    def reduce(self, function: Callable[[pa.RecordBatch], T], merge: Callable[[T, T], T], columns: Sequence[str]) -> T:
        """Merge the results of a pure function of batches of the rows that pass the filter, where the rows are. SECRET.

        The functions are those of ``Engine.reduce``, but every column is canonical.
        """
        view, stored = self._view(columns)
        return self._narrow_engine().reduce(_OfView(view, function), merge, stored)

    def reduce_units(
        self,
        key: Callable[[pa.RecordBatch], Atoms],
        function: Callable[[Atoms], T],
        columns: Sequence[str],
        **terms: Any,
    ) -> T:
        """Merge the results of a function of parts with all rows of their units, as ``Engine.by_unit`` does. SECRET."""
        view, stored = self._view(columns)
        engine, key = self._narrow_engine(), _OfView(view, key)
        made: T = engine.by_unit(key, function, stored, memory_limit=self._memory_limit, **terms)
        return made

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the rows that pass the filter. SECRET: the caller must seal what it computes from them."""
        view, stored = self._view(columns)
        batches = self._narrow_engine().batches(stored, rows_per_batch=batch_rows_for(len(stored)))
        return batches if view.is_plain else map(view.compute_batch, batches)

    def _narrow_engine(self) -> Engine:
        """Let the engine leave out rows that the filter of this view drops."""
        return (
            self._engine if self._filter is None else self._engine.narrow(expand_columns(self._filter, self._derived))
        )

    def _view(self, columns: Sequence[str]) -> tuple[_View, Sequence[str]]:
        """Return how the columns of this view are computed, and the stored columns from which."""
        derived = {name: self._derived[name] for name in columns if name in self._derived}
        if self._filter is None and not derived:
            return _View(tuple(columns), None, {}), columns
        named = set(columns) | (set() if self._filter is None else set(self._filter.columns()))
        # A constant column must be as long as the table, so at least one stored column is read.
        stored = sorted(stored_columns(named, self._derived)) or self._engine.schema.names[:1]
        return _View(tuple(columns), self._filter, self._derived), stored


@dataclass(frozen=True)
class _View:
    """The filter and the derived columns of a dataset. It can be pickled, so that engines compute where rows are."""

    columns: tuple[str, ...]
    filter: Expression | None
    derived: dict[str, Expression]

    @property
    def is_plain(self) -> bool:
        """Return whether the columns are stored ones, of all rows."""
        return self.filter is None and not self.derived

    def compute_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the filter and compute the derived columns."""
        if self.filter is not None:
            batch = batch.filter(pa.array(evaluate_filter(self.filter, batch, self.derived)))
        arrays = [
            evaluate(col(name), batch, self.derived).to_column() if name in self.derived else batch.column(name)
            for name in self.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))


@dataclass(frozen=True)
class _OfView(Generic[T]):
    """A function of batches of a view, as a function of stored batches."""

    view: _View
    function: Callable[[pa.RecordBatch], T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        batch = decode_batch(batch) if batch.num_columns else batch
        return self.function(batch if self.view.is_plain else self.view.compute_batch(batch))
