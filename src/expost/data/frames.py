"""Read tables that come without a typed schema: pandas frames and Python lists, cell by cell.

No cell may decide the type of its column, because one person could then change how everybody's cells are read. A type is
declared (``types=``) or follows from the column's dtype. A cell that does not fit its column's type is missing.
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical import canonical_column, canonical_value
from expost.data.expression import as_utc
from expost.data.schema import Kind
from expost.data.values import float_cells

__all__ = ["check_types", "frame_table", "implied_types", "is_frame", "list_table", "retyped"]

TYPES: dict[str, pa.DataType] = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.large_string(),
    "time": pa.timestamp("us"),
}
"""The types that a caller can declare, and the Arrow types that hold them."""

Types = Mapping[str, str]

_UNTYPED = "Ocb"  # dtypes into which one cell can turn a column of numbers or truths
_FLOATS_ARE_WHOLE = 2**53  # from here on floats, and so pandas columns with a missing cell, merge whole numbers


def check_types(types: object, names: Sequence[str]) -> dict[str, str]:
    """Return declared types; refuse other columns and other words.

    >>> check_types({"age": "integer"}, ["age", "city"])
    {'age': 'integer'}
    """
    if types is not None and not isinstance(types, Mapping):
        raise InvalidRequest("Expected types by column", got=types, do='Pass types={"age": "integer"}')
    for name, kind in (types or {}).items():
        if name not in names or not isinstance(kind, str) or kind not in TYPES:
            raise InvalidRequest(
                f"Expected types of the table's columns, each one of {', '.join(TYPES)}",
                got=f"{name} = {kind}",
                do="Correct it",
            )
    return dict(types or {})


def implied_types(
    bounds: Mapping[str, Any], categories: Mapping[str, Sequence[Any]], time_column: str | None
) -> dict[str, str]:
    """Return the types that a public description implies, for sources that store none.

    A column with bounds holds numbers, one with categories what these are, and the time of a unit is a time. So no cell
    can change how a described column is read.

    >>> implied_types({"age": (0, 120)}, {"city": ["Rome", None]}, None)
    {'age': 'real', 'city': 'text'}
    """
    found = {column: kind for column, values in categories.items() if (kind := _type_of(values)) is not None}
    return {**dict.fromkeys(bounds, "real"), **found, **({} if time_column is None else {time_column: "time"})}


def _type_of(values: Sequence[Any]) -> str | None:
    """Return the type of public categories, or None if they are of no one type."""
    kinds = {_value_type(canonical_value(value)) for value in values if value is not None}
    return kinds.pop() if len(kinds) == 1 else None


def _value_type(value: Any) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "real"
    return "text" if isinstance(value, str) else "time" if isinstance(value, datetime.date) else None


def is_frame(source: Any) -> bool:
    """Return whether the source is a pandas data frame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, pandas.DataFrame)


def frame_table(frame: Any, types: Types | None = None, implied: Types | None = None) -> pa.Table:
    """Return a pandas frame as a table whose types depend on the dtypes and on what is declared; the index is left out.

    A number column of NumPy's is real: with one missing cell pandas would store integers as floats anyway. Extension types
    (``Int64``, ``boolean``, ``string``, Arrow's) are typed and stay. An object column has the type that its public bounds
    or categories imply; without them it holds texts, and its other cells are missing.

    >>> import pandas as pd
    >>> frame_table(pd.DataFrame({"age": [41, 17]})).schema.field("age").type
    DataType(double)
    >>> frame_table(pd.DataFrame({"age": [41, 17.0, "?"]}, dtype=object), {"age": "integer"}).column("age").to_pylist()
    [41, 17, None]
    """
    names = [str(name) for name in frame.columns]
    declared = check_types(types, names)
    for name, dtype in zip(names, frame.dtypes, strict=True):
        if implied and name in implied and getattr(dtype, "kind", "") in _UNTYPED and isinstance(dtype, np.dtype):
            declared.setdefault(name, implied[name])
    objects = [
        n for n, dtype in zip(names, frame.dtypes, strict=True) if dtype == np.dtype(object) and n not in declared
    ]
    if objects:
        warnings.warn(
            f"Columns without a type of their own are read as text, and their other cells as missing: "
            f"{', '.join(objects)}. A frame's dtypes count as public; declare types={{...}} to say them yourself.",
            UserWarning,
            stacklevel=2,
        )
    columns = [_series(frame.iloc[:, place], declared.get(name)) for place, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)


def list_table(rows: Any, types: Types | None, implied: Types | None = None) -> pa.Table:
    """Return a table of Python values: columns by name, or rows as mappings from column names to cells.

    A list has no type, so every list needs one that is declared or that public bounds or categories imply; an array or
    series in a mapping has its dtype. The columns of a list of rows are those that have such a type.

    >>> list_table([{"age": 41}, {"age": "?"}, {}], {"age": "integer"}).column("age").to_pylist()
    [41, None, None]
    """
    if isinstance(rows, Mapping):
        names = [name for name in rows if isinstance(name, str)]
        declared = {name: kind for name, kind in (implied or {}).items() if name in names and _is_list(rows[name])}
        declared |= check_types(types, names)
        columns = [_column(name, rows[name], declared.get(name)) for name in names]
        if len(names) != len(rows) or len({len(column) for column in columns}) > 1:
            raise InvalidRequest("Expected columns of one length, named by texts", do="Check the mapping")
        return pa.Table.from_arrays(columns, names=names)
    declared = dict(implied or {}) | check_types(types, list(types) if isinstance(types, Mapping) else [])
    if not declared:
        raise InvalidRequest(
            "Expected declared types for a list of rows", do='Pass types={"age": "integer", ...}, one for each column'
        )
    return pa.table({name: pa.array(_cells(_picked(rows, name), kind), TYPES[kind]) for name, kind in declared.items()})


def retyped(table: pa.Table, types: Types | None) -> pa.Table:
    """Return a typed table with some columns read as another type, cell by cell."""
    declared = check_types(types, table.column_names)
    for name, kind in declared.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, _converted(_whole_column(table.column(name)), kind))
    return table


def _picked(rows: Any, name: str) -> list[Any]:
    return [row.get(name) if isinstance(row, Mapping) else None for row in rows]


def _is_list(values: Any) -> bool:
    return isinstance(values, list | tuple)


def _column(name: str, values: Any, kind: str | None) -> pa.Array:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(values, pandas.Series):
        return _series(values, kind)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return _array(values, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        column = _whole_column(values)
        return column if kind is None else _converted(column, kind)
    if not _is_list(values):
        raise InvalidRequest("Expected columns that are lists or arrays", got=name, do="Pass one list for each column")
    if kind is None:
        raise InvalidRequest(
            f"Expected a declared type for {name}: a list has none",
            do=f'Pass types={{"{name}": "integer"}} or the like',
        )
    return pa.array(_cells(values, kind), TYPES[kind])


def _series(series: Any, kind: str | None) -> pa.Array:
    """Return a pandas column by its dtype, and by its declared type if there is one."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return _array(series.to_numpy(), kind)
    if hasattr(dtype, "categories") and hasattr(series, "cat"):
        words = _series(series.cat.categories.to_series(), kind)
        codes = series.cat.codes.to_numpy()
        return words.take(pa.array(codes, mask=codes < 0))
    if hasattr(dtype, "subtype") and hasattr(dtype, "fill_value"):  # sparse
        return _array(np.asarray(series), kind)
    if getattr(dtype, "storage", "") == "python":  # texts that Arrow might refuse
        return pa.array(_cells(series.tolist(), kind or "text"), TYPES[kind or "text"])
    column = _whole_column(pa.array(series, from_pandas=True))
    return column if kind is None else _converted(column, kind)


def _array(values: NDArray[Any], kind: str | None) -> pa.Array:
    """Return a NumPy column by its dtype, and by its declared type if there is one."""
    code = values.dtype.kind
    if code == "O":
        return pa.array(_cells(values.tolist(), kind or "text", most=_FLOATS_ARE_WHOLE), TYPES[kind or "text"])
    if code == "M":  # the unit is pandas's choice, by the cells
        with np.errstate(all="ignore"):
            moments = pa.array(values.astype(f"datetime64[{_coarse(values.dtype)}]"))
        times = canonical_column(moments)
        return times if kind is None else _converted(times, kind)
    if code == "U":
        return pa.array(_cells(values.tolist(), kind or "text"), TYPES[kind or "text"])
    if code == "c":
        if kind is None:
            return pa.nulls(len(values))
        values, code = np.where(values.imag == 0, values.real, np.nan), "f"
    if code == "b" and kind in (None, "boolean"):
        return pa.array(values)
    if code in "biuf":  # integers as floats: with a missing cell they would have come so
        return _converted(pa.array(values.astype(np.float64)), kind or "real", most=_FLOATS_ARE_WHOLE)
    return pa.nulls(len(values)) if kind is None else pa.nulls(len(values), TYPES[kind])


def _coarse(dtype: np.dtype[Any]) -> str:
    """Return the unit in which an array of moments is read: microseconds where it is finer, else its own."""
    unit = np.datetime_data(dtype)[0]
    return {"ns": "us", "ps": "us", "fs": "us", "as": "us"}.get(unit, unit if unit in ("s", "ms", "us") else "s")


def _whole_column(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _converted(column: pa.Array, kind: str, *, most: int = 2**63) -> pa.Array:
    """Return a typed column as another type, cell by cell: what does not fit is missing.

    >>> _converted(pa.array([1.0, 1.5, float("nan"), 2.0**63]), "integer").to_pylist()
    [1, None, None, None]
    """
    found, wanted = Kind.of(column.type), Kind(kind)
    if found is wanted and not (found is Kind.INTEGER and column.type != pa.int64()):
        return canonical_column(column)
    if not (found.is_number and wanted.is_number):
        return pa.nulls(len(column), TYPES[kind])
    if wanted is Kind.REAL:
        return canonical_column(pa.array(float_cells(canonical_column(column))))
    if found is Kind.INTEGER and wanted is Kind.INTEGER:
        numbers = canonical_column(column).fill_null(0).to_numpy()
        return pa.array(numbers.astype(np.int64), mask=np.asarray(column.is_null()) | (numbers >= most))
    if pa.types.is_decimal(column.type):  # floats would merge whole numbers from 2^53 on
        return pa.array(_cells(column.to_pylist(), kind, most=most), TYPES[kind])
    floats = float_cells(canonical_column(column))
    if wanted is Kind.BOOLEAN:
        return pa.array(floats == 1, mask=~np.isin(floats, (0, 1)))
    fits = (floats == np.floor(floats)) & (np.abs(floats) < most)
    return pa.array(np.where(fits, floats, 0).astype(np.int64), mask=~fits)


# Cells of Python ------------------------------------------------------------------------------------------------------


def _cells(values: Sequence[Any], kind: str, *, most: int = 2**63) -> list[Any]:
    """Return each cell as its declared type, None where it does not fit. Objects can only be read one by one."""
    read = _READ[kind]
    return [_fitting(read, value, most) for value in values]


def _fitting(read: Callable[[Any, int], Any], value: Any, most: int) -> Any:
    try:
        return read(value, most)
    except Exception:  # a cell's own error, such as that of a signalling NaN, must not show that it is there
        return None


def _as_integer(value: Any, most: int) -> int | None:
    number = _number(value)
    whole = None if number is None else int(number)
    return whole if whole is not None and whole == number and abs(whole) < most else None


def _as_real(value: Any, most: int) -> float | None:
    number = _number(value)
    if number is None:
        return None
    try:
        return float(number)
    except OverflowError:  # an integer beyond floats, which clamping moves to a bound
        return float("inf") if number > 0 else float("-inf")


def _as_boolean(value: Any, most: int) -> bool | None:
    number = _number(value)
    return bool(number) if number is not None and number in (0, 1) else None


def _as_text(value: Any, most: int) -> str | None:
    if not isinstance(value, str):
        return None
    value.encode()  # half of a surrogate pair is not a text
    return str(value)


def _as_time(value: Any, most: int) -> datetime.datetime | None:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if not isinstance(value, datetime.date) or value != value:
        return None
    moment = as_utc(value)
    if isinstance(moment, datetime.datetime):
        # A pandas timestamp has nanoseconds, which are cut off.
        return datetime.datetime(*moment.timetuple()[:6], moment.microsecond)
    return datetime.datetime(moment.year, moment.month, moment.day)


def _number(value: Any) -> Any:
    """Return a number of Python's or NumPy's, a complex one only if it is real."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex):
        value = value.real if value.imag == 0 else None
    return value if isinstance(value, int | float | Decimal) else None


_READ: dict[str, Callable[[Any, int], Any]] = {
    "integer": _as_integer,
    "real": _as_real,
    "boolean": _as_boolean,
    "text": _as_text,
    "time": _as_time,
}
