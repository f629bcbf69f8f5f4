"""Evaluate expressions on a batch. No row can make it fail, and every row takes the same path through the code."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data.canonical_cell import canonical_column, decode_column, missing_cells
from expost.data.cell_values import Found, Nulls, Numbers, Texts, Times, Truths, Values, read_column
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation
from expost.data.row_function import CELLS, COMPARISONS, CONSTANTS, FUNCTIONS
from expost.data.value_place import find_places, to_moment

__all__ = ["evaluate", "evaluate_cells", "evaluate_filter"]

Derived = Mapping[str, Expression]


def evaluate(expression: Expression, batch: pa.RecordBatch, derived: Derived | None = None) -> Values:
    """Return the values of an expression on the rows of a batch. ``kind_of`` must have accepted the expression.

    >>> from expost.data.expression import col
    >>> batch = pa.record_batch({"a": [6.0, 1.0, None], "b": [3, 0, 1]})
    >>> evaluate(col("a") / col("b"), batch).numbers.tolist()
    [2.0, nan, nan]
    """
    with np.errstate(all="ignore"):
        found = _evaluate_node(expression, batch, derived or {})
    return Numbers(found.to_floats()) if isinstance(found, Nulls) else found


def evaluate_cells(expression: Expression, batch: pa.RecordBatch, derived: Derived | None = None) -> pa.Array:
    """Return the values of an expression as a canonical column, which every comparison for equality reads.

    A stored column is returned without conversion, so that integers beyond 2^53, decimals and nanoseconds stay distinct.
    """
    stored = _stored_column(expression, batch, derived or {})
    return evaluate(expression, batch, derived).to_column() if stored is None else stored


def evaluate_filter(where: Expression | None, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.bool_]:
    """Return a mask of the rows for which a filter is known to hold; all rows without a filter."""
    if where is None:
        return np.ones(batch.num_rows, bool)
    condition = evaluate(where, batch, derived)
    # The bare constant NULL is never true. The mask is a copy, because callers narrow it further.
    return condition.certain if isinstance(condition, Truths) else np.zeros(batch.num_rows, bool)


def _stored_column(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> pa.Array | None:
    """Return the column that an expression names, or None if it is computed."""
    if not isinstance(expression, ColumnName) or expression.name in derived:
        return None
    return decode_column(batch.column(expression.name))


def _evaluate_node(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> Found:
    """Evaluate by recursion; the bare NULL keeps its own type."""
    if isinstance(expression, ColumnName):
        if expression.name in derived:
            return _evaluate_node(derived[expression.name], batch, derived)
        return read_column(batch.column(expression.name))
    if isinstance(expression, Literal):
        return _repeat_constant(expression.value, batch.num_rows)
    if isinstance(expression, Lookup):
        return _look_up(expression, _cells_of(expression.key, batch, derived))
    assert isinstance(expression, Operation)
    exact = _compare_exactly(expression, batch, derived) if expression.name in COMPARISONS else None
    if exact is not None:
        return exact
    function = FUNCTIONS[expression.name]
    given: list[Any] = []
    for place, argument in enumerate(expression.arguments):
        needs = function.argument(place)
        if needs in CONSTANTS:
            assert isinstance(argument, Literal)
            given.append(argument.value)
        else:
            read = _cells_of if needs in CELLS else _evaluate_node
            given.append(read(argument, batch, derived))
    return function.apply(*given)


def _cells_of(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> pa.Array:
    """Return an argument as a canonical column."""
    stored = _stored_column(expression, batch, derived)
    return _evaluate_node(expression, batch, derived).to_column() if stored is None else stored


def _repeat_constant(value: Any, rows: int) -> Found:
    """Return a constant as values, one per row."""
    if value is None:
        return Nulls(rows)
    if isinstance(value, bool):
        return Truths(np.full(rows, value), np.ones(rows, bool))
    if isinstance(value, datetime.date):
        return Times(np.full(rows, to_moment(value)))
    if isinstance(value, str):
        return Texts(pa.repeat(pa.scalar(value, pa.large_string()), rows))
    return Numbers(np.full(rows, float(value)))


def _compare_exactly(expression: Operation, batch: pa.RecordBatch, derived: Derived) -> Truths | None:
    """Compare stored cells that floats or microseconds would round; None if rounding cannot matter.

    Stored integers are compared with whole numbers, and any stored column with a constant for equality.
    """
    sides = [_whole_side(each, batch, derived) for each in expression.arguments]
    if all(side is not None for side in sides) and any(isinstance(each, ColumnName) for each in expression.arguments):
        (left, known), (right, also) = (side for side in sides if side is not None)
        return Truths(COMPARISONS[expression.name][1](left, right), np.broadcast_to(known & also, batch.num_rows))
    columns = [each for each in expression.arguments if not isinstance(each, Literal)]
    constants = [each.value for each in expression.arguments if isinstance(each, Literal) and each.value is not None]
    if expression.name not in ("=", "<>") or len(columns) != 1 or len(constants) != 1:
        return None
    stored = _stored_column(columns[0], batch, derived)
    if stored is None:
        return None
    found = find_places(stored, constants) >= 0
    return Truths(found if expression.name == "=" else ~found, ~missing_cells(stored))


def _whole_side(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> tuple[Any, Any] | None:
    """Return a stored integer column or a whole constant as exact integers, and which of them are known."""
    if isinstance(expression, Literal):
        value = expression.value
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return (int(value), np.True_) if is_whole else None
    stored = _stored_column(expression, batch, derived)
    if stored is None or not pa.types.is_integer(stored.type):
        return None
    return stored.fill_null(0).to_numpy(), ~missing_cells(stored)


def _look_up(lookup: Lookup, key: pa.Array) -> Found:
    """Return the entries of a public table under the keys; missing where a key is not in the table."""
    try:
        entries = canonical_column(pa.array(lookup.values))
    except OverflowError:  # integers beyond int64; a looked-up number is a float like every computed one
        values: tuple[Any, ...] = lookup.values
        floats = [None if value is None else float(value) for value in values]
        entries = canonical_column(pa.array(floats, pa.float64()))
    found = find_places(key, lookup.keys)
    return read_column(entries.take(pa.array(found, mask=found < 0)))
