"""Find the place of each cell among public values: the one comparison behind categories, IN, =, joins and labels."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical import canonical_column, canonical_value
from expost.data.expression import Plain, as_utc, is_exact
from expost.data.schema import Kind

__all__ = ["label_codes", "missing_cells", "moment", "places"]

_EXACT = decimal.Context(prec=200)


def places(column: pa.Array, values: Sequence[Plain]) -> NDArray[np.integer[Any]]:
    """Return the place of each cell of a canonical column among public values, or -1.

    A cell equals a value if they are the same number, text, truth or moment, exactly: nothing is rounded to compare. A
    float that meets a decimal column means the decimal that it prints as. Missing cells and the value None match nothing.

    >>> places(pa.array([2**53, 2**53 + 1, None]), [0, 2**53 + 1]).tolist()
    [-1, 1, -1]
    >>> places(pa.array([decimal.Decimal("0.10"), decimal.Decimal("1.00")]), [1, 0.1]).tolist()
    [1, 0]
    """
    kind = column.type
    listed = tuple(map(canonical_value, values))
    if pa.types.is_integer(kind):
        return _whole_places(column, listed)
    if pa.types.is_boolean(kind):
        return _among(column, [bool(v) if _is_number(v) and v in (0, 1) else None for v in listed], kind)
    if pa.types.is_floating(kind):
        return _among(column, [float(v) if _is_number(v) and _is_float(v) else None for v in listed], kind)
    if pa.types.is_decimal(kind):
        return _among(column, [_decimal(v, kind) if _is_number(v) else None for v in listed], kind)
    if Kind.of(kind) is Kind.TIME:
        return _among(column, [_ticks(v, kind.unit) if isinstance(v, datetime.date) else None for v in listed], kind)
    if Kind.of(kind) is Kind.TEXT:
        return _among(column, [v if isinstance(v, str) and _is_unicode(v) else None for v in listed], kind)
    return np.full(len(column), -1)


def label_codes(labels: Any, classes: Any) -> NDArray[np.intp]:
    """Return the place of each label among the public classes; a label that is none of them, whatever it is, gets -1.

    Arrow columns and arrays of one type are coded as they are stored, so that no label is rounded because another one is
    missing. Objects are compared one by one.

    >>> label_codes(pa.array([2**53 + 1, 2**53, None]), [2**53, 2**53 + 1]).tolist()
    [1, 0, -1]
    >>> label_codes(np.array(["b", [], None], object), ["a", "b"]).tolist()
    [1, -1, -1]
    """
    if isinstance(classes, np.ndarray) and classes.dtype.kind == "M":
        classes = classes.astype("datetime64[us]")  # as finer ones they would come out of the array as integers
    known = [canonical_value(value) for value in (classes.tolist() if isinstance(classes, np.ndarray) else classes)]
    if not isinstance(labels, pa.Array):
        given = np.asarray(labels)
        if given.dtype.kind == "U":  # Arrow would refuse half of a surrogate pair, and so tell of it
            _check_family(Kind.TEXT, known)
        if given.dtype.kind not in "biufM":
            return _looked_up(given.tolist(), {name: place for place, name in enumerate(known)})
        labels = pa.array(given.astype(np.float64) if given.dtype.itemsize > 8 and given.dtype.kind == "f" else given)
    column = canonical_column(labels)
    _check_family(Kind.of(column.type), known)
    return places(column, known).astype(np.intp, copy=False)


def _check_family(kind: Kind, classes: list[Any]) -> None:
    """Refuse classes that no label of this kind can equal; types and classes are public."""
    family = Kind.REAL if kind.is_number else kind
    if kind is Kind.OTHER or any(_family(value) is not family for value in classes):
        raise InvalidRequest("Expected classes of the target's kind", do="Pass numbers for numbers, text for text")


def _family(value: Any) -> Kind:
    """Return the kind of a public class, all numbers being of one kind."""
    if _is_number(value):
        return Kind.REAL
    return Kind.TIME if isinstance(value, datetime.date) else Kind.TEXT if isinstance(value, str) else Kind.OTHER


def _looked_up(labels: list[Any], found: dict[Any, int]) -> NDArray[np.intp]:
    try:
        codes = [found.get(label, -1) for label in labels]
    except TypeError:  # some label is a list or the like
        codes = [found.get(label, -1) if isinstance(label, Hashable) else -1 for label in labels]
    return np.array(codes, np.intp)


def missing_cells(column: pa.Array) -> NDArray[np.bool_]:
    """Return which cells of a canonical column are missing: null, or NaN among floats."""
    if pa.types.is_floating(column.type):
        return np.isnan(np.asarray(column.to_numpy(zero_copy_only=False), np.float64))
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)


def moment(value: datetime.date) -> np.datetime64:
    """Return a public date or moment as columns of times hold it."""
    return np.datetime64(as_utc(value), "us")


def _among(column: pa.Array, listed: list[Any], kind: pa.DataType) -> NDArray[np.int64]:
    found = pc.index_in(column, value_set=pa.array(listed, kind), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal)


def _is_float(value: Any) -> bool:
    """Return whether a float column can hold the number; a decimal stands for the float next to it."""
    return value.is_finite() if isinstance(value, decimal.Decimal) else value in _INFINITE or is_exact(value)


_INFINITE = (float("inf"), float("-inf"))  # keys that were found in a column, never a value that a caller types


def _decimal(value: Any, kind: pa.DataType) -> decimal.Decimal | None:
    """Return the number in the scale of a decimal column, or None if it needs more digits than the column has."""
    number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    if not number.is_finite() or number.adjusted() > kind.precision - kind.scale:
        return None
    scaled = number.scaleb(kind.scale, _EXACT)
    fits = scaled == scaled.to_integral_value() and abs(scaled) < 10**kind.precision
    return number if fits else None


def _ticks(value: datetime.date, unit: str) -> int | None:
    """Return a moment in the unit of a column, or None where that unit does not reach it."""
    ticks = int(moment(value).astype(np.int64)) * (1000 if unit == "ns" else 1)
    return ticks if abs(ticks) < 2**63 else None


def _is_unicode(text: str) -> bool:
    """Return whether UTF-8 can spell the text: half of a surrogate pair is not a character."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == value and value not in _INFINITE and value == int(value)


def _whole_places(column: pa.Array, values: tuple[Any, ...]) -> NDArray[np.integer[Any]]:
    """Return the place of each integer: by a table where the values lie close together, else by hashing."""
    if column.null_count:
        return np.where(column.is_null(), -1, _whole_places(column.fill_null(0), values))
    numbers = column.to_numpy()
    bounds = np.iinfo(numbers.dtype)
    whole = tuple(int(v) if _is_whole(v) else None for v in values)
    table = _table(whole)
    if table is None:
        wide = pa.uint64() if numbers.dtype.kind == "u" else pa.int64()
        inside = [v if v is not None and bounds.min <= v <= bounds.max else None for v in whole]
        return _among(column.cast(wide), inside, wide)
    before, ordered = table
    low, high = max(before, bounds.min), min(before + len(ordered) - 1, bounds.max)
    if low > high:
        return np.full(len(numbers), -1)
    found: NDArray[np.int32] = ordered[np.clip(numbers, low, high).astype(np.intp) - before]
    return found


@lru_cache(maxsize=64)
def _table(values: tuple[int | None, ...]) -> tuple[int, NDArray[np.int32]] | None:
    """Return the place of each integer from just before the lowest value to just behind the highest; None if that is long.

    Both ends are nowhere, so that whatever lies beyond can be moved there.
    """
    if not values or not all(v is not None and abs(v) < 1 << 24 for v in values):
        return None
    whole = np.array(values, np.int64)
    before, behind = int(whole.min()) - 1, int(whole.max()) + 1
    if behind - before > 4 * len(whole) + 64:
        return None
    found = np.full(behind - before + 1, -1, np.int32)
    found[whole - before] = np.arange(len(whole))
    return before, found
