"""Define the one canonical form of a cell, so that every comparison agrees on when two cells are equal.

Keys, categories, joins, filters, parts, units and labels all compare canonical cells. A column of any source is put into
this form once, where its batches enter (``CanonicalEngine``). Results of expressions (``Numbers.of``) and the values that a
caller types (``canonical_value``) get the same form.

| stored type | canonical type | cells that change |
| --- | --- | --- |
| dictionary, run-end encoded | the type that is encoded | none |
| float16, float32, float64 | float64 without nulls | -0.0 becomes 0.0; null and every NaN become one NaN, which is missing |
| integers, booleans | as stored | none |
| decimals | as stored, 128 bits or wider | none: one column has one scale, so 1.0 and 1.00 are one value |
| string, string_view, large_string | large_string | a text that is not UTF-8 becomes null; Unicode is not normalised |
| date, timestamp of any unit and zone | timestamp[us] in UTC, without a zone | times outside the years 1 to 9999 become null |
| timestamp[ns] | timestamp[ns] in UTC, without a zone | none |
| binary_view | large_binary | none |
| anything else | as stored | not used in any comparison |

The form of a cell depends on that cell and on the type of its column only.
"""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expost.data.engines.readable import readable_column
from expost.data.schema import Kind

__all__ = [
    "canonical_batch",
    "canonical_column",
    "canonical_schema",
    "canonical_table",
    "canonical_type",
    "canonical_value",
]

_FIRST, _BEYOND = np.datetime64("0001-01-01"), np.datetime64("10000-01-01")
_DAY = "D"
_FACTORS = {"s": 1_000_000, "ms": 1_000, "us": 1, _DAY: 86_400_000_000}


def canonical_column(column: pa.Array) -> pa.Array:
    """Return the column in canonical form. It is a fixed point: a canonical column comes back with equal cells.

    >>> canonical_column(pa.array([-0.0, None, 1.5], pa.float32())).to_pylist()
    [0.0, nan, 1.5]
    >>> canonical_column(pa.array(["a", "b", "a"]).dictionary_encode()).type
    DataType(large_string)
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return canonical_column(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(kind):
        return canonical_column(pc.run_end_decode(column))
    if pa.types.is_floating(kind):
        return _floats(column)
    if Kind.of(kind) is Kind.TEXT:
        return readable_column(column).cast(pa.large_string())
    if Kind.of(kind) is Kind.TIME:
        return _moments(column)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """Return the canonical type of a stored type.

    >>> canonical_type(pa.float16()), canonical_type(pa.timestamp("s", "Europe/Rome"))
    (DataType(double), TimestampType(timestamp[us]))
    """
    return canonical_column(pa.nulls(0, kind)).type


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with canonical types."""
    return pa.schema([pa.field(field.name, canonical_type(field.type)) for field in schema])


def canonical_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with canonical columns."""
    columns = [canonical_column(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def canonical_table(table: pa.Table) -> pa.Table:
    """Return a table in memory with canonical columns."""
    batches = [canonical_batch(batch) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, canonical_schema(table.schema))


def canonical_value(value: Any) -> Any:
    """Return a value that a caller typed in the form that cells have.

    >>> canonical_value(-0.0), canonical_value(np.int8(3)), canonical_value("a")
    (0.0, 3, 'a')
    """
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype("datetime64[us]").item()
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float | decimal.Decimal):
        return type(value)(0) if value == 0 else value
    return value


def _floats(column: pa.Array) -> pa.Array:
    numbers = np.asarray(column.to_numpy(zero_copy_only=False), np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    missing = np.isnan(numbers)
    if missing.any():
        numbers[missing] = np.nan  # one payload
    return pa.array(numbers)


def _moments(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # all of them lie in the years 1677 to 2262
        return column.cast(pa.int64()).cast(pa.timestamp("ns"))
    unit = kind.unit if pa.types.is_timestamp(kind) else _DAY if pa.types.is_date32(kind) else "ms"
    counts = (column.cast(pa.int32()) if unit == _DAY else column).cast(pa.int64())
    # Out of range first: a far year would overflow when it is counted in microseconds.
    first, beyond = (edge.astype(f"datetime64[{unit}]").astype(np.int64) for edge in (_FIRST, _BEYOND))
    numbers = counts.fill_null(int(first)).to_numpy()
    inside = (numbers >= first) & (numbers < beyond)
    if inside.all() and unit == "us":
        return counts.cast(pa.timestamp("us"))
    missing = ~inside | np.asarray(column.is_null())
    return pa.array(np.where(inside, numbers, 0) * _FACTORS[unit], mask=missing).cast(pa.timestamp("us"))
