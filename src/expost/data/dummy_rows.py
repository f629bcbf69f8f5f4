"""Made-up rows that fit a description: its columns, types, bounds, categories and unit, and nothing of the real rows."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Unit
from expost.data.canonical_cell import Kind
from expost.data.unit_identity import mix_words

__all__ = ["make_dummy_rows"]

_ONE_YEAR = (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 12, 31))  # of times without a public range
_MICROSECOND = datetime.timedelta(microseconds=1)
_LETTERS = "abcdefghij"
_UNBOUNDED = (0.0, 100.0)  # of numbers without public bounds


def make_dummy_rows(
    schema: pa.Schema,
    rows: int,
    *,
    unit: Unit,
    rows_per_unit: int,
    bounds: Mapping[str, Sequence[float]],
    categories: Mapping[str, Sequence[Any]],
    time_ranges: Mapping[str, tuple[datetime.datetime, datetime.datetime]] | None = None,
    seed: int,
) -> pa.Table:
    """Return a table with these columns: categories and values between bounds are evenly spread, ids have equal rows.

    >>> schema = pa.schema({"age": pa.int8(), "city": pa.string()})
    >>> terms = {"bounds": {"age": (18, 20)}, "categories": {"city": ["Rome"]}, "seed": 1}
    >>> table = make_dummy_rows(schema, 5, unit=Unit.row(), rows_per_unit=1, **terms)
    >>> table.num_rows, set(table["city"].to_pylist()), set(table["age"].to_pylist()) <= {18, 19, 20}
    (5, {'Rome'}, True)
    """
    columns = []
    for field in schema:
        values: Any
        spread = _spread_evenly(f"{seed} {field.name}", rows)
        kind, listed = Kind.of(field.type), [each for each in categories.get(field.name, ()) if each is not None]
        if field.name == unit.column:
            numbers = np.arange(rows) // rows_per_unit
            values = [f"id {number}" for number in numbers.tolist()] if kind is Kind.TEXT else numbers.tolist()
        elif listed:
            values = [listed[place] for place in (spread * len(listed)).astype(int).tolist()]
        elif kind is Kind.BOOLEAN:
            values = spread < 0.5
        elif kind is Kind.TEXT:
            values = [_LETTERS[place] for place in (spread * len(_LETTERS)).astype(int).tolist()]
        elif kind is Kind.TIME:
            first, last = (time_ranges or {}).get(field.name, _ONE_YEAR)
            values = np.datetime64(first, "us") + ((last - first) // _MICROSECOND * spread).astype("timedelta64[us]")
        elif kind.is_number:
            low, high = (float(end) for end in bounds.get(field.name, _UNBOUNDED))
            values = low + (high - low) * spread
            values = np.clip(np.rint(values), math.ceil(low), math.floor(high)) if kind is Kind.INTEGER else values
        else:
            values = None
        columns.append(_fit_type(values, field.type, rows))
    return pa.Table.from_arrays(columns, schema=pa.schema([pa.field(each.name, each.type) for each in schema]))


def _spread_evenly(name: str, rows: int) -> NDArray[np.float64]:
    """Return numbers from 0 to 1 that look uniform: hashes of the rows' places. Nothing here protects anybody."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    words = mix_words(np.arange(rows, dtype=np.uint64), key)
    return (words >> np.uint64(11)).astype(np.float64) / 2.0**53


def _fit_type(values: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Return values in a column's type; a type that cannot hold them gets missing ones."""
    try:
        return pa.nulls(rows, kind) if values is None else pa.array(values).cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(rows, kind)
