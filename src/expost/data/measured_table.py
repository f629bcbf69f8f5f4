"""Tables that queries measure: what a query needs from a dataset, from checked columns to sealed exact answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Sealed, Sensitivity, Unit
from expost.data.axis import Axis, Categories, FoundKeys
from expost.data.bounding import Limits
from expost.data.canonical_cell import Kind
from expost.data.clamp import Clamp
from expost.data.engines.engine import CanonicalEngine, Engine, batch_rows_for
from expost.data.evaluation import evaluate, evaluate_filter
from expost.data.exact_total import exact_sums, find_keys, rows_per_cell, single_steps
from expost.data.expression import ColumnName, Expression, col
from expost.data.sealed_form import CountForm, Form, sealed_integers, unit_sensitivity
from expost.data.sql_expression import parse_sql
from expost.data.table_schema import Schema, check_categories, check_filter, kind_of
from expost.data.tally import Measured, Tally, stored_columns

__all__ = ["MeasuredTable"]


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
    _engine: Engine
    _memory_limit: int
    _derived: dict[str, Expression]
    _filter: Expression | None

    def expression(self, column: Expression | str) -> Expression:
        """Return a column or expression after checking it against the schema."""
        expression = col(column) if isinstance(column, str) else column
        if not isinstance(expression, Expression):
            raise InvalidRequest("Expected a column name or an expression", got=column, do='Pass "age" or col("age")')
        kind_of(expression, self.schema, self._derived)
        return expression

    def stored_field(self, column: str) -> pa.Field | None:
        """Return a column's type and metadata as the source stores it, None for a derived column. Both are public."""
        schema = self._engine.stored_schema if isinstance(self._engine, CanonicalEngine) else self._engine.schema
        return None if column in self._derived else schema.field(column)

    def condition(self, condition: Expression | str | None) -> Expression | None:
        """Return a filter as an expression after checking it."""
        if condition is None:
            return None
        found = parse_sql(condition) if isinstance(condition, str) else self.expression(condition)
        check_filter(found, self.schema, self._derived)
        return found

    def clamp(self, column: Expression, bounds: object = None) -> Clamp:
        """Return the clamp of a number."""
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
        """Return the categories of a column as an axis."""
        expression = ColumnName(column) if isinstance(column, str) else self.expression(column)
        kind = kind_of(expression, self.schema, self._derived)
        if values is None and isinstance(expression, ColumnName):
            values = self.categories.get(expression.name)
        if values is None and kind is Kind.BOOLEAN:
            values = [False, True]
        if values is None:
            raise InvalidRequest(
                f"Expected public categories for {expression!r}", do='Pass Dataset(categories={"city": ["Rome", ...]})'
            )
        found = Categories.of(expression, values)
        check_categories(expression, found.values, kind, self._derived)
        return found

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
        groups = self.max_groups_per_unit if tally.axes else None
        if once:
            return Limits(groups=groups if tally.axes else 1, once=True)
        if self.max_rows_per_unit is None:
            raise InvalidRequest(
                f"Expected a limit on the rows of one {self.unit.column}", do="Pass Dataset(..., max_rows_per_unit=10)"
            )
        return Limits(groups=groups, rows=self.max_rows_per_unit)

    def sensitivity(self, form: Form, tally: Tally, *, once: bool = False) -> Sensitivity:
        """Return how far one unit can move the coordinates of a form, in L1."""
        return unit_sensitivity(form, tally, self.limits(tally, once=once), self.adjacency)

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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the rows that pass the filter. SECRET: the caller must seal what it computes from them."""
        if self._filter is None and not any(name in self._derived for name in columns):
            return self._engine.batches(columns, rows_per_batch=batch_rows_for(len(columns)))
        named = set(columns) | (set() if self._filter is None else set(self._filter.columns()))
        # A constant column must be as long as the table, so at least one stored column is read.
        stored = sorted(stored_columns(named, self._derived)) or self._engine.schema.names[:1]
        batches = self._engine.batches(stored, rows_per_batch=batch_rows_for(len(stored)))
        return (self._compute_batch(batch, columns) for batch in batches)

    def _compute_batch(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """Apply the filter and compute the derived columns."""
        if self._filter is not None:
            batch = batch.filter(pa.array(evaluate_filter(self._filter, batch, self._derived)))
        arrays = [
            evaluate(col(name), batch, self._derived).to_column() if name in self._derived else batch.column(name)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))
