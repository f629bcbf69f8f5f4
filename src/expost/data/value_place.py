"""Find the place of each cell among public values: the one comparison behind categories, IN, =, joins and labels."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_column, canonical_value
from expost.data.expression import Plain, as_utc, is_exact

__all__ = ["find_places", "label_codes", "to_moment"]

_EXACT = decimal.Context(prec=200)
_SURROGATE = re.compile("[\ud800-\udfff]")
_INFINITE = (float("inf"), float("-inf"))


def find_places(column: pa.Array, values: Sequence[Plain]) -> NDArray[np.integer[Any]]:
    """Return the index of each cell of a canonical column among public values, or -1.

    A cell equals a value if they are the same number, text, boolean or moment, exactly: nothing is rounded to compare. A
    float compared with a decimal column means the decimal that it prints as. Missing cells and None match nothing.

    >>> find_places(pa.array([2**53, 2**53 + 1, None]), [0, 2**53 + 1]).tolist()
    [-1, 1, -1]
    >>> find_places(pa.array([decimal.Decimal("0.10"), decimal.Decimal("1.00")]), [1, 0.1]).tolist()
    [1, 0]
    """
    kind = Kind.of(column.type)
    if kind is Kind.INTEGER:
        return _find_whole_places(column, _whole_values(tuple(values)))
    if kind is Kind.OTHER:
        return np.full(len(column), -1)
    return _index_in(column, _held_values(tuple(values), tuple(map(type, values)), column.type))


@lru_cache(maxsize=64)
def _held_values(values: tuple[Plain, ...], types: tuple[type, ...], stored: pa.DataType) -> pa.Array:
    """Convert public values to a column type; a value that it cannot hold is null.

    ``types`` keep equal values of different types apart in the cache: the float 0.1 stands for a shorter decimal.
    """
    kind, listed = Kind.of(stored), tuple(map(canonical_value, values))
    held: list[Any]
    if kind is Kind.TIME:
        held = [_to_ticks(v, stored.unit) if isinstance(v, datetime.date) else None for v in listed]
    elif kind is Kind.TEXT:
        # Arrow raises on half of a surrogate pair, which is not a character and matches no text.
        held = [v if isinstance(v, str) and not _SURROGATE.search(v) else None for v in listed]
    elif kind is Kind.BOOLEAN:
        held = [bool(v) if _is_number(v) and v in (0, 1) else None for v in listed]
    elif pa.types.is_decimal(stored):
        held = [_to_decimal(v, stored) if _is_number(v) else None for v in listed]
    else:
        held = [float(v) if _is_number(v) and _is_float(v) else None for v in listed]
    return pa.array(held, stored)


def label_codes(labels: Any, classes: Any) -> NDArray[np.intp]:
    """Return the index of each label among the public classes, -1 for a label that is not one of them.

    Arrow columns and typed arrays are compared as stored, so that no label is rounded because another one is missing.
    Objects are compared one by one.

    >>> label_codes(pa.array([2**53 + 1, 2**53, None]), [2**53, 2**53 + 1]).tolist()
    [1, 0, -1]
    >>> label_codes(np.array(["b", [], None], object), ["a", "b"]).tolist()
    [1, -1, -1]
    """
    if isinstance(classes, np.ndarray) and classes.dtype.kind == "M":
        classes = classes.astype("datetime64[us]")  # tolist() turns finer units into integers
    known = [canonical_value(value) for value in (classes.tolist() if isinstance(classes, np.ndarray) else classes)]
    if not isinstance(labels, pa.Array):
        given = np.asarray(labels)
        if given.dtype.kind == "U":  # Arrow would raise on half of a surrogate pair, which reveals it
            _check_family(Kind.TEXT, known)
        if given.dtype.kind not in "biufM":
            places = {name: place for place, name in enumerate(known)}
            return np.array([_look_up_label(label, places) for label in given.tolist()], np.intp)
        labels = pa.array(given.astype(np.float64) if given.dtype.itemsize > 8 and given.dtype.kind == "f" else given)
    column = canonical_column(labels)
    _check_family(Kind.of(column.type), known)
    return find_places(column, known).astype(np.intp, copy=False)


def _look_up_label(label: Any, places: dict[Any, int]) -> int:
    """Return the place of an object, -1 if it is unknown. A list cannot be hashed; raising would reveal that row."""
    try:
        return places.get(label, -1)
    except TypeError:
        return -1


def to_moment(value: datetime.date) -> np.datetime64:
    """Convert a public date or moment to the form that columns of times hold."""
    return np.datetime64(as_utc(value), "us")


def _check_family(kind: Kind, classes: list[Any]) -> None:
    """Raise if a class could not equal any label of this kind. Types and classes are public."""
    fitting: dict[Kind, Any] = {
        Kind.REAL: int | float | decimal.Decimal,
        Kind.TIME: datetime.date,
        Kind.TEXT: str,
    }
    if kind is Kind.OTHER or not all(isinstance(value, fitting[kind.family]) for value in classes):
        raise InvalidRequest("Expected classes of the target's kind", do="Pass numbers for numbers, text for text")


def _index_in(column: pa.Array, held: pa.Array) -> NDArray[np.int64]:
    """Find cells among values of the column's type; null matches nothing."""
    found = pc.index_in(column, value_set=held, skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal)


def _is_float(value: Any) -> bool:
    """Return whether a float column can hold the number. A decimal stands for the float nearest to it."""
    # Infinities are keys found in a column; a caller cannot type them.
    return value.is_finite() if isinstance(value, decimal.Decimal) else value in _INFINITE or is_exact(value)


def _to_decimal(value: Any, stored: pa.DataType) -> decimal.Decimal | None:
    """Return the number in the scale of a decimal column, or None if it needs more digits than the column has."""
    number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    if not number.is_finite() or number.adjusted() > stored.precision - stored.scale:
        return None
    scaled = number.scaleb(stored.scale, _EXACT)
    fits = scaled == scaled.to_integral_value() and abs(scaled) < 10**stored.precision
    return number if fits else None


def _to_ticks(value: datetime.date, unit: str) -> int | None:
    """Return a moment in the unit of a column, or None if that unit cannot represent it."""
    ticks = int(to_moment(value).astype(np.int64)) * (1000 if unit == "ns" else 1)
    return ticks if abs(ticks) < 2**63 else None


@lru_cache(maxsize=64)
def _whole_values(values: tuple[Plain, ...]) -> tuple[int | None, ...]:
    """Return public values as integers, None for those that are not whole numbers."""
    listed: tuple[Any, ...] = tuple(map(canonical_value, values))
    return tuple(int(v) if _is_number(v) and v == v and v not in _INFINITE and v == int(v) else None for v in listed)


def _find_whole_places(column: pa.Array, whole: tuple[int | None, ...]) -> NDArray[np.integer[Any]]:
    """Find integers: by a lookup table if the values lie close together, else by hashing."""
    if column.null_count:
        return np.where(column.is_null(), -1, _find_whole_places(column.fill_null(0), whole))
    numbers = column.to_numpy()
    bounds = np.iinfo(numbers.dtype)
    table = _make_table(whole)
    if table is None:
        wide = pa.uint64() if numbers.dtype.kind == "u" else pa.int64()
        inside = [v if v is not None and bounds.min <= v <= bounds.max else None for v in whole]
        return _index_in(column.cast(wide), pa.array(inside, wide))
    before, ordered = table
    low, high = max(before, bounds.min), min(before + len(ordered) - 1, bounds.max)
    if low > high:
        return np.full(len(numbers), -1)
    index = np.clip(numbers, low, high).astype(np.intp, copy=False)
    index -= before
    return np.asarray(ordered.take(index))


@lru_cache(maxsize=64)
def _make_table(values: tuple[int | None, ...]) -> tuple[int, NDArray[np.int64]] | None:
    """Return a lookup table from just before the lowest value to just after the highest; None if it would be long.

    Both end entries are -1, so that numbers beyond the table can be clipped to its ends.
    """
    if not values or not all(v is not None and abs(v) < 1 << 24 for v in values):
        return None
    whole = np.array(values, np.int64)
    before, behind = int(whole.min()) - 1, int(whole.max()) + 1
    if behind - before > 4 * len(whole) + 64:
        return None
    found = np.full(behind - before + 1, -1, np.int64)
    found[whole - before] = np.arange(len(whole))
    return before, found
