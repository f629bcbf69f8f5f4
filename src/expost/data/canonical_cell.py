"""Define the one canonical form of a cell, so that every comparison agrees on when two cells are equal.

Keys, categories, joins, filters, parts, units and labels all compare canonical cells. A column of any source is converted
once, where its batches enter (``CanonicalEngine``); dictionaries may stay encoded until ``decode_column`` reads them.
Results of expressions (``Numbers.from_computed``) and values typed by a caller (``canonical_value``) get the same form.

| stored type | canonical type | cells that change |
| --- | --- | --- |
| dictionary, run-end encoded | the type that is encoded | none |
| float16, float32, float64 | float64 without nulls | -0.0 becomes 0.0; null and every NaN become one NaN, which is missing |
| integers, booleans | as stored | none |
| decimals | as stored, 128 bits or wider | none: one column has one scale, so 1.0 and 1.00 are one value |
| string, string_view, large_string | large_string | invalid UTF-8 becomes null; Unicode is not normalised |
| date, timestamp of any unit and zone | timestamp[us] in UTC, without a zone | times outside the years 1 to 9999 become null |
| timestamp[ns] | timestamp[ns] in UTC, without a zone | none |
| binary_view | large_binary | none |
| anything else | as stored | not used in any comparison |

The form of a cell depends on that cell and on the type of its column only.
"""

from __future__ import annotations

import datetime
import decimal
import enum
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "Kind",
    "canonical_batch",
    "canonical_column",
    "canonical_schema",
    "canonical_table",
    "canonical_type",
    "canonical_value",
    "constant_kind",
    "decode_batch",
    "decode_column",
    "drop_invalid_text",
    "float_cells",
    "missing_cells",
]

_FIRST, _BEYOND = np.datetime64("0001-01-01"), np.datetime64("10000-01-01")
_DAY = "D"
_EXACT_DIGITS, _EXACT_POWER = 15, 22  # integers of 15 digits and powers of ten up to 10^22 are exact floats
_MICROSECONDS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1, _DAY: 86_400_000_000}


class Kind(enum.Enum):
    """The kind of values in a column: what the library needs to know about its type.

    Members are ``INTEGER``, ``REAL``, ``BOOLEAN``, ``TEXT``, ``TIME`` and ``OTHER``; the values are the lower-case
    names, as used in ``types=`` and in description files.

    Examples
    --------
    >>> Kind.of(pa.int16())
    <Kind.INTEGER: 'integer'>
    """

    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIME = "time"
    OTHER = "other"

    @property
    def is_number(self) -> bool:
        """True if values can be clamped and summed (integers, reals and booleans)."""
        return self in (Kind.INTEGER, Kind.REAL, Kind.BOOLEAN)

    @property
    def described(self) -> str:
        """The kind in words, such as "a text"."""
        return _WORDS.get(self, "a number")

    @property
    def family(self) -> Kind:
        """The kind with which values can be compared: ``REAL`` for every number, else the kind itself."""
        return Kind.REAL if self in (Kind.INTEGER, Kind.BOOLEAN) else self

    @classmethod
    def of(cls, arrow: pa.DataType) -> Kind:
        """Return the kind of an Arrow type.

        Parameters
        ----------
        arrow : pyarrow.DataType
            Type of a column. An encoded (dictionary, run-end) type has the kind of its values.

        Examples
        --------
        >>> Kind.of(pa.dictionary(pa.int8(), pa.string()))
        <Kind.TEXT: 'text'>
        """
        if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
            return cls.of(arrow.value_type)
        for kind, tests in _TESTS.items():
            for test in tests:
                if test(arrow):
                    return kind
        return cls.OTHER


_WORDS = {
    Kind.TEXT: "a text",
    Kind.TIME: "a time",
    Kind.BOOLEAN: "a truth value",
    Kind.OTHER: "a value of another type",
}
_TESTS = {
    Kind.BOOLEAN: (pa.types.is_boolean,),
    Kind.INTEGER: (pa.types.is_integer,),
    Kind.REAL: (pa.types.is_floating, pa.types.is_decimal),
    Kind.TEXT: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    Kind.TIME: (pa.types.is_date, pa.types.is_timestamp),
}


def canonical_column(column: pa.Array) -> pa.Array:
    """Convert a column to canonical form. Converting a canonical column again changes no cell.

    >>> canonical_column(pa.array([-0.0, None, 1.5], pa.float32())).to_pylist()
    [0.0, nan, 1.5]
    >>> canonical_column(pa.array(["a", "b", "a"]).dictionary_encode()).type
    DataType(large_string)
    """
    stored = column.type
    if pa.types.is_dictionary(stored):
        return canonical_column(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(stored):
        return canonical_column(pc.run_end_decode(column))
    if pa.types.is_floating(stored):
        stored_numbers = column.to_numpy(zero_copy_only=False)
        numbers = np.add(stored_numbers, 0.0, dtype=np.float64)  # -0.0 + 0.0 is 0.0
        if len(numbers) and np.isnan(numbers.min()):  # the smallest is NaN if any is
            numbers[np.isnan(numbers)] = np.nan  # one bit pattern for all missing numbers
        return pa.array(numbers)
    kind = Kind.of(stored)
    if kind is Kind.TEXT:
        return drop_invalid_text(column).cast(pa.large_string())
    if kind is Kind.TIME:
        return _canonical_times(column)
    if pa.types.is_decimal(stored) and stored.bit_width < 128:
        return column.cast(pa.decimal128(stored.precision, stored.scale))
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(stored) else column


def _canonical_times(column: pa.Array) -> pa.Array:
    """Convert dates and timestamps to moments in UTC without a zone."""
    stored = column.type
    if pa.types.is_timestamp(stored) and stored.unit == "ns":  # all of them lie in the years 1677 to 2262
        return column.cast(pa.int64()).cast(pa.timestamp("ns"))
    unit = stored.unit if pa.types.is_timestamp(stored) else _DAY if pa.types.is_date32(stored) else "ms"
    counts = (column.cast(pa.int32()) if unit == _DAY else column).cast(pa.int64())
    # Check the range first: a far year would overflow when converted to microseconds.
    first, beyond = (edge.astype(f"datetime64[{unit}]").astype(np.int64) for edge in (_FIRST, _BEYOND))
    numbers = counts.fill_null(int(first)).to_numpy()
    inside = (numbers >= first) & (numbers < beyond)
    if inside.all() and unit == "us":
        return counts.cast(pa.timestamp("us"))
    missing = ~inside | np.asarray(column.is_null())
    return pa.array(np.where(inside, numbers, 0) * _MICROSECONDS_PER[unit], mask=missing).cast(pa.timestamp("us"))


@lru_cache(maxsize=256)
def canonical_type(stored: pa.DataType) -> pa.DataType:
    """Return the type that ``canonical_column`` gives a column of a stored type."""
    return canonical_column(pa.nulls(0, stored)).type


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with canonical types."""
    return pa.schema([pa.field(field.name, canonical_type(field.type)) for field in schema])


def canonical_batch(batch: pa.RecordBatch, *, decode: bool = True) -> pa.RecordBatch:
    """Convert every column of a batch to canonical form.

    Without ``decode``, dictionaries and narrow floats are left for ``decode_column``, which knows them by their types.
    """
    columns = [
        column if not decode and _is_compact(column.type) else canonical_column(column) for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the columns that ``canonical_batch`` left as they were stored."""
    return pa.RecordBatch.from_arrays(list(map(decode_column, batch.columns)), names=batch.schema.names)


def _is_compact(stored: pa.DataType) -> bool:
    """Return whether a column takes less memory as it is stored, and ``decode_column`` sees that it is not canonical."""
    return bool(pa.types.is_dictionary(stored) or pa.types.is_float32(stored) or pa.types.is_float16(stored))


def canonical_table(table: pa.Table) -> pa.Table:
    """Convert every column of a table in memory to canonical form."""
    batches = [canonical_batch(batch) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, canonical_schema(table.schema))


def canonical_value(value: Any) -> Any:
    """Convert a value typed by a caller to the form that cells have."""
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype("datetime64[us]").item()
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float | decimal.Decimal):
        return type(value)(0) if value == 0 else value
    return value


def constant_kind(value: object) -> Kind | None:
    """Return the kind of columns that a public constant can be compared with, None for a missing or unusable one."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int | float | decimal.Decimal):
        return Kind.REAL
    return Kind.TEXT if isinstance(value, str) else Kind.TIME if isinstance(value, datetime.date) else None


def decode_column(column: pa.Array) -> pa.Array:
    """Convert a column only if its type is not canonical. Most columns of engines are, and come back as they are."""
    return column if column.type == canonical_type(column.type) else canonical_column(column)


def float_cells(column: pa.Array) -> NDArray[np.float64]:
    """Convert a column of numbers or booleans to floats, NaN where a cell is missing.

    Integers beyond 2^53 and decimals are rounded, each cell independently of the others.

    >>> float_cells(pa.array([2**53 + 1, None])).tolist()
    [9007199254740992.0, nan]
    """
    column = decode_column(column)
    if pa.types.is_decimal(column.type):
        column = _round_decimals(column)
    wide = column if pa.types.is_floating(column.type) else column.cast(pa.float64(), safe=False)
    return np.asarray(wide.to_numpy(zero_copy_only=False), dtype=np.float64)


def _round_decimals(column: pa.Array) -> pa.Array:
    """Convert decimals to the nearest floats, as Python does. Arrow's own conversion is off by a bit for every third one."""
    precision, scale = column.type.precision, column.type.scale
    if precision > _EXACT_DIGITS or not 0 <= scale <= _EXACT_POWER or column.type.bit_width != 128:
        return column.cast(pa.string()).cast(pa.float64())
    # Both are exact floats, so their quotient is the nearest float. The low words hold numbers of so few digits.
    words = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.zeros(0, np.int64)
    whole = words[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    return pa.array(whole / 10.0**scale, mask=np.asarray(column.is_null()))


def missing_cells(column: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the missing cells of a canonical column: null, or NaN among floats."""
    if pa.types.is_floating(column.type):
        return np.isnan(np.asarray(column.to_numpy(zero_copy_only=False), np.float64))
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)


def drop_invalid_text(column: pa.Array) -> pa.Array:
    """Replace invalid UTF-8 by null, because Arrow and Parquet store any bytes and no row may make a query fail.

    Such a text becomes missing instead of being repaired: two ids repaired to one text would be bounded as one unit.
    Columns of other kinds are returned as they are.
    """
    if Kind.of(column.type) is not Kind.TEXT:
        return column
    encoded = isinstance(column, pa.DictionaryArray)
    texts = column.dictionary if encoded else column
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        invalid = _find_invalid(texts)
    else:
        return column
    if encoded:
        indices = pc.if_else(invalid.take(column.indices), pa.scalar(None, column.indices.type), column.indices)
        words = drop_invalid_text(texts).fill_null("")
        return pa.DictionaryArray.from_arrays(indices, words, ordered=column.type.ordered)
    wide = texts.cast(pa.large_string())  # if_else does not support every text type
    return pc.if_else(invalid, pa.scalar(None, wide.type), wide).cast(column.type)


def _find_invalid(texts: pa.Array) -> pa.Array:
    """Return which texts are invalid UTF-8, decoding each distinct text once; null stays null."""
    encoded = texts.cast(pa.large_binary()).dictionary_encode()
    invalid = []
    for word in encoded.dictionary.to_pylist():
        try:
            word.decode("utf-8")
        except UnicodeDecodeError:
            invalid.append(True)
        else:
            invalid.append(False)
    return pa.array(invalid, pa.bool_()).take(encoded.indices)
