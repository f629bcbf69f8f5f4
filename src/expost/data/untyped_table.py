"""Read tables that come without a typed schema: pandas frames and Python lists, cell by cell.

No cell may decide the type of its column, because one person could then change how everybody's cells are read. A type is
declared (``types=``) or follows from the column's dtype. A cell that does not fit its column's type is missing.
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind, canonical_column, canonical_value, constant_kind, float_cells
from expost.data.expression import as_utc
from expost.data.text_format import parse_times, split_type

__all__ = [
    "ID",
    "TYPES",
    "check_types",
    "frame_to_table",
    "implied_types",
    "loose_columns",
    "read_ids",
    "is_frame",
    "lists_to_table",
    "retype_table",
]

TYPES: dict[str, pa.DataType] = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.large_string(),
    "time": pa.timestamp("us"),
}
"""The types that a caller can declare, and the Arrow types that hold them."""

Types = Mapping[str, str]

ID = "id"
"""The type that is implied for a column of ids. It cannot be declared."""

_UNTYPED = "Ocb"  # dtypes into which one cell can turn a column of numbers or booleans
_FLOATS_ARE_WHOLE = 2**53  # from here on floats, and so pandas columns with a missing cell, merge integers


def check_types(types: object, names: Sequence[str]) -> dict[str, str]:
    """Return declared types; raise for unknown columns and unknown types."""
    if types is not None and not isinstance(types, Mapping):
        raise InvalidRequest("Expected types by column", got=types, do='Pass types={"age": "integer"}')
    for name, kind in (types or {}).items():
        if name not in names:
            raise InvalidRequest(
                "Expected types of the table's columns",
                got=f"{name} = {kind}",
                do=suggest_name(name, names) or "Correct the name",
            )
        split_type(kind, name)
    return dict(types or {})


def implied_types(
    bounds: Mapping[str, Any],
    categories: Mapping[str, Sequence[Any]],
    time_column: str | None,
    ranges: Iterable[str] = (),
) -> dict[str, str]:
    """Return the types that a public description implies, for sources that do not store types.

    A column with bounds holds numbers, one with a range times, one with categories values of their type, and the time of a
    unit is a time. So no cell can change how a described column is read.

    >>> implied_types({"age": (0, 120)}, {"city": ["Rome", None]}, None)
    {'age': 'real', 'city': 'text'}
    """
    implied = dict.fromkeys(bounds, "real") | dict.fromkeys(ranges, "time")
    for column, values in categories.items():
        kinds = {constant_kind(canonical_value(value)) for value in values if value is not None}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is not None:
            implied[column] = kind.value
    return implied if time_column is None else {**implied, time_column: "time"}


def is_frame(source: Any) -> bool:
    """Return whether the source is a pandas data frame, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, pandas.DataFrame)


def frame_to_table(frame: Any, types: Types | None = None, implied: Types | None = None) -> pa.Table:
    """Convert a pandas frame. Types depend on the dtypes and on what is declared; the index is left out.

    A NumPy number column is real: with one missing cell pandas would store integers as floats anyway. Extension types
    (``Int64``, ``boolean``, ``string``, Arrow's) are typed and stay. An object column has the type that its public bounds
    or categories imply; without them it holds texts, and its other cells are missing. One of ids keeps numbers and times
    too, each as a text, because one odd id would otherwise make all others missing.

    >>> import pandas as pd
    >>> frame_to_table(pd.DataFrame({"age": [41, 17]})).schema.field("age").type
    DataType(double)
    >>> frame_to_table(pd.DataFrame({"age": [41, 17.0, "?"]}, dtype=object), {"age": "integer"}).column("age").to_pylist()
    [41, 17, None]
    """
    names = [str(name) for name in frame.columns]
    declared, objects = check_types(types, names), []
    for name, dtype in zip(names, frame.dtypes, strict=True):
        if implied and name in implied and getattr(dtype, "kind", "") in _UNTYPED and isinstance(dtype, np.dtype):
            declared.setdefault(name, implied[name])
        if dtype == np.dtype(object) and name not in declared:
            objects.append(name)
    if objects:
        warnings.warn(
            f"Object columns are read as text, and their other cells as missing: {', '.join(objects)}. A frame's dtypes "
            "count as public; declare types={...} to set them yourself.",
            UserWarning,
            stacklevel=2,
        )
    columns = [_read_series(frame.iloc[:, place], declared.get(name)) for place, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)


def lists_to_table(rows: Any, types: Types | None, implied: Types | None = None) -> pa.Table:
    """Convert Python values: columns by name, or rows as mappings from column names to cells.

    A list has no type, so every list needs one that is declared or that public bounds or categories imply; an array or
    series in a mapping has its dtype. The columns of a list of rows are those that have such a type.

    >>> lists_to_table([{"age": 41}, {"age": "?"}, {}], {"age": "integer"}).column("age").to_pylist()
    [41, None, None]
    """
    if isinstance(rows, Mapping):
        names = [name for name in rows if isinstance(name, str)]
        lists = [name for name in names if isinstance(rows[name], list | tuple)]
        declared = {
            name: kind for name, kind in (implied or {}).items() if name in lists or (kind == ID and name in names)
        }
        declared |= check_types(types, names)
        columns = [_read_values(name, rows[name], declared.get(name)) for name in names]
        if len(names) != len(rows) or len({len(column) for column in columns}) > 1:
            raise InvalidRequest("Expected columns of one length, named by texts", do="Check the mapping")
        return pa.Table.from_arrays(columns, names=names)
    declared = dict(implied or {}) | check_types(types, list(types) if isinstance(types, Mapping) else [])
    if not set(declared.values()) - {ID}:
        raise InvalidRequest(
            "Expected declared types for a list of rows", do='Pass types={"age": "integer", ...}, one for each column'
        )
    cells = {name: [row.get(name) if isinstance(row, Mapping) else None for row in rows] for name in declared}
    return pa.table({name: _read_cells(cells[name], kind) for name, kind in declared.items()})


def loose_columns(source: Any, types: Types | None) -> dict[str, Any]:
    """Return the columns of objects of a frame or mapping whose type is not declared, by name.

    They are read as texts. If one of them later turns out to hold ids, ``read_ids`` reads it again.
    """
    if is_frame(source):
        columns = {str(name): source.iloc[:, place] for place, name in enumerate(source.columns)}
    else:
        columns = dict(source) if isinstance(source, Mapping) else {}
    objects = np.dtype(object)
    return {name: each for name, each in columns.items() if _dtype_of(each) == objects and name not in (types or {})}


def read_ids(values: Any) -> pa.Array:
    """Convert a column of objects to ids, each by itself; one odd id leaves the others as they are."""
    return _read_array(np.asarray(values, dtype=object), ID)


def _dtype_of(values: Any) -> Any:
    dtype = getattr(values, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else None


def retype_table(table: pa.Table, types: Types | None) -> pa.Table:
    """Convert the declared columns of a typed table to other types, cell by cell."""
    for name, kind in check_types(types, table.column_names).items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, _convert_column(_combine_chunks(table.column(name)), kind))
    return table


def _combine_chunks(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _read_values(name: str, values: Any, kind: str | None) -> pa.Array:
    """Convert one column of a mapping."""
    kind = None if kind == ID and hasattr(values, "type") else kind  # a typed column of ids stays
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(values, pandas.Series):
        return _read_series(values, kind)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return _read_array(values, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        column = _combine_chunks(values)
        return column if kind is None else _convert_column(column, kind)
    if not isinstance(values, list | tuple):
        raise InvalidRequest("Expected columns that are lists or arrays", got=name, do="Pass one list for each column")
    if kind is None:
        raise InvalidRequest(
            f"Expected a declared type for {name}: a list has none",
            do=f'Pass types={{"{name}": "integer"}} or the like',
        )
    return _read_cells(values, kind)


def _read_series(series: Any, kind: str | None) -> pa.Array:
    """Convert a pandas column by its dtype, and by its declared type if there is one."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return _read_array(series.to_numpy(), kind)
    if hasattr(dtype, "categories") and hasattr(series, "cat"):
        words = _read_series(series.cat.categories.to_series(), kind)
        codes = series.cat.codes.to_numpy()
        return words.take(pa.array(codes, mask=codes < 0))
    if hasattr(dtype, "subtype") and hasattr(dtype, "fill_value"):  # sparse
        return _read_array(np.asarray(series), kind)
    if getattr(dtype, "storage", "") == "python":  # texts on which Arrow might raise
        return _read_cells(series.tolist(), kind or "text")
    column = _combine_chunks(pa.array(series, from_pandas=True))
    return column if kind in (None, ID) else _convert_column(column, kind)


def _read_array(values: NDArray[Any], kind: str | None) -> pa.Array:
    """Convert a NumPy column by its dtype, and by its declared type if there is one."""
    code = values.dtype.kind
    if kind == ID and code not in "OU":
        kind = "real" if code == "c" else None
    if code == "O":
        return _read_cells(values.tolist(), kind or "text", most=_FLOATS_ARE_WHOLE)
    if code == "U":
        return _read_cells(values.tolist(), kind or "text")
    if code == "M":  # pandas chooses the unit by the cells: read microseconds where it is finer
        unit = np.datetime_data(values.dtype)[0]
        unit = {"ns": "us", "ps": "us", "fs": "us", "as": "us"}.get(unit, unit if unit in ("s", "ms", "us") else "s")
        with np.errstate(all="ignore"):
            times = canonical_column(pa.array(values.astype(f"datetime64[{unit}]")))
        return times if kind is None else _convert_column(times, kind)
    if code == "c":
        if kind is None:
            return pa.nulls(len(values))
        values, code = np.where(values.imag == 0, values.real, np.nan), "f"
    if code == "b" and kind in (None, "boolean"):
        return pa.array(values)
    if code in "biuf":  # integers as floats, as pandas stores them when a cell is missing
        return _convert_column(pa.array(values.astype(np.float64)), kind or "real", most=_FLOATS_ARE_WHOLE)
    return pa.nulls(len(values)) if kind is None else pa.nulls(len(values), TYPES[split_type(kind)[0]])


def _convert_column(column: pa.Array, kind: str, *, most: int = 2**63) -> pa.Array:
    """Convert a typed column to another type, cell by cell. Cells that do not fit are missing."""
    name, pattern = split_type(kind)
    found, wanted = Kind.of(column.type), Kind(name)
    if found is Kind.TEXT and wanted is Kind.TIME:
        # As cells of an object column are read, because one odd cell turns texts into objects.
        texts = canonical_column(column)
        return _read_cells(texts.to_pylist(), kind) if pattern is None else parse_times(texts, pattern)
    if found is wanted and not (found is Kind.INTEGER and column.type != pa.int64()):
        return canonical_column(column)
    if not (found.is_number and wanted.is_number):
        return pa.nulls(len(column), TYPES[name])
    if wanted is Kind.REAL:
        return canonical_column(pa.array(float_cells(canonical_column(column))))
    if found is Kind.INTEGER and wanted is Kind.INTEGER:
        numbers = canonical_column(column).fill_null(0).to_numpy()
        return pa.array(numbers.astype(np.int64), mask=np.asarray(column.is_null()) | (numbers >= most))
    if pa.types.is_decimal(column.type):  # floats would merge integers from 2^53 on
        return _read_cells(column.to_pylist(), kind, most=most)
    floats = float_cells(canonical_column(column))
    if wanted is Kind.BOOLEAN:
        return pa.array(floats == 1, mask=~np.isin(floats, (0, 1)))
    fits = (floats == np.floor(floats)) & (np.abs(floats) < most)
    return pa.array(np.where(fits, floats, 0).astype(np.int64), mask=~fits)


def _read_cells(values: Sequence[Any], kind: str, *, most: int = 2**63) -> pa.Array:
    """Convert Python objects one by one to a declared type; null where an object does not fit.

    ``most`` limits integers.
    """
    name, pattern = (kind, None) if kind == ID else split_type(kind)
    if pattern is not None:
        times, texts = (_read_cells(values, each, most=most) for each in ("time", "text"))
        # A text counts in the declared format only; other cells may be times already.
        return pc.if_else(texts.is_null(), times, parse_times(texts, pattern))
    read = _READERS[name]

    def read_cell(value: Any) -> Any:
        try:
            found = read(value)
        except Exception:  # an error of a cell, such as that of a signalling NaN, must not reveal the cell
            return None
        return None if kind == "integer" and found is not None and abs(found) >= most else found

    return pa.array([read_cell(value) for value in values], TYPES["text" if kind == ID else kind])


def _as_number(value: Any) -> Any:
    """Return a Python number, None for any other object; a complex number counts only if it is real."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex):
        value = value.real if value.imag == 0 else None
    return value if isinstance(value, int | float | Decimal) else None


def _as_integer(value: Any) -> int | None:
    number = _as_number(value)
    whole = None if number is None else int(number)
    return whole if whole == number else None


def _as_real(value: Any) -> float | None:
    number = _as_number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:  # an integer beyond floats, which clamping moves to a bound
        return float("inf") if number > 0 else float("-inf")


def _as_boolean(value: Any) -> bool | None:
    number = _as_number(value)
    return bool(number) if number is not None and number in (0, 1) else None


def _as_text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    value.encode()  # raises on half of a surrogate pair, which is not a text
    return str(value)


def _as_declared_time(value: Any) -> datetime.datetime | None:
    """Return a moment; a text counts if it is in ISO format, as in a file."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value.strip())  # any other text raises, and its cell is missing
    return _as_time(value)


def _as_time(value: Any) -> datetime.datetime | None:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if not isinstance(value, datetime.date) or value != value:
        return None
    moment = as_utc(value)
    if isinstance(moment, datetime.datetime):
        # A pandas timestamp has nanoseconds, which are cut off.
        return datetime.datetime(*moment.timetuple()[:6], moment.microsecond)
    return datetime.datetime(moment.year, moment.month, moment.day)


def _as_id(value: Any) -> str | None:
    """Return an id as a text: numbers that are equal as floats, as in a column of numbers, are one id."""
    if isinstance(value, str):
        return _as_text(value)
    number = _as_real(value)
    if number is None:
        time = _as_time(value)
        return None if time is None else f"\0{time.isoformat()}"
    return None if number != number else f"\0{number + 0.0}"  # no text looks like it, and zero has no sign


_READERS: dict[str, Callable[[Any], Any]] = {
    ID: _as_id,
    "integer": _as_integer,
    "real": _as_real,
    "boolean": _as_boolean,
    "text": _as_text,
    "time": _as_declared_time,
}
