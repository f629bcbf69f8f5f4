"""Columns as tests need them; total functions, so that no row can raise an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.mask import check_unmasked
from expost.data import Dataset, Kind
from expost.data.matrix import plain_numbers, typed_column
from expost.data.places import places
from expost.data.values import decoded, float_cells

__all__ = [
    "GRID",
    "bounded",
    "check_values",
    "checked_rows",
    "codes",
    "floats_of",
    "matches",
    "measured",
    "named",
    "pair_of",
    "private_numbers",
    "public_rows",
    "truths",
]

GRID = 1 << 20
"""Lattice points over the width of a column's bounds: values are clipped and rounded to it."""


def public_rows(dataset: Dataset) -> int:
    """The public number of rows; tests need it, and rows that are independent people."""
    if not dataset.adjacency.public_size or dataset.rows is None:
        raise InvalidRequest(
            "Expected a dataset with a public number of rows",
            got=dataset.adjacency.value,
            do='Declare it with adjacency="replace-one" and rows=',
        )
    if not dataset.unit.is_row:
        raise InvalidRequest(
            "Expected rows of different people, as the test takes them for independent",
            got=str(dataset.unit),
            do="Reduce the table to one row per person first",
        )
    return dataset.rows


def check_values(dataset: Dataset, column: str, values: Iterable[Any]) -> None:
    """Refuse values that a column of this kind cannot hold; reads no rows."""
    kind = dataset.schema.kind(column)
    types = _HELD.get(kind, ())
    for value in values:
        odd = isinstance(value, float) and not math.isfinite(value)  # NaN is a missing cell, not a value
        if odd or not isinstance(value, types) or (isinstance(value, bool) and kind is not Kind.BOOLEAN):
            raise InvalidRequest(
                f"Expected a value of a column that holds {kind.value} values",
                got=value,
                do="Pass a value of that kind",
            )


def matches(batch: pa.RecordBatch, column: str, value: Any) -> int:
    """How many rows of a batch equal the value; nulls do not."""
    return int((codes(batch, column, (value,)) == 0).sum())


def codes(batch: pa.RecordBatch, column: str, categories: Sequence[Any]) -> NDArray[np.int64]:
    """The position of each row's value among public categories; -1 where it is none of them."""
    return places(decoded(batch.column(column)), categories).astype(np.int64)


def measured(batch: pa.RecordBatch, column: str) -> NDArray[np.float64]:
    """A numeric column as floats; nulls become NaN."""
    return float_cells(batch.column(column))


def bounded(values: Any, bounds: tuple[float, float]) -> NDArray[np.int64]:
    """Values clipped to public bounds and rounded to the lattice, centred: from -GRID/2 to GRID/2.

    NaN becomes the middle, which is 0.

    >>> bounded([0.0, 5.0, 99.0, float("nan")], (0, 10))
    array([-524288,       0,  524288,       0])
    """
    low, high = float(bounds[0]), float(bounds[1])
    width = high - low  # of two finite numbers it may still be infinite
    if not low < high or not np.isfinite([low, high, width]).all():
        raise InvalidRequest(
            "Expected bounds (low, high) with low < high and a finite width", do="Pass public finite bounds"
        )
    x = np.nan_to_num(np.asarray(values, np.float64), nan=low + width / 2, posinf=high, neginf=low)
    share = (np.clip(x, low, high) - low) / width
    return np.rint((np.clip(share, 0.0, 1.0) - 0.5) * GRID).astype(np.int64)


def named(*columns: object) -> tuple[str, ...]:
    """Names of columns as a caller typed them.

    >>> named("x", "y")
    ('x', 'y')
    """
    for column in columns:
        if not isinstance(column, str):
            raise InvalidRequest("Expected the name of a column", got=column, do="Pass its name as a text")
    return tuple(str(column) for column in columns)


def floats_of(values: Any) -> NDArray[np.float64]:
    """A list of numbers; what is none becomes an empty table, which every caller refuses.

    >>> floats_of(["a"]).shape
    (0, 0)
    """
    check_unmasked(values)
    try:
        given = np.asarray(values)
        return np.empty((0, 0)) if given.dtype.kind == "c" else given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty((0, 0))


def private_numbers(values: Any) -> NDArray[np.float64]:
    """Return a private sample as floats, cell by cell. A cell that is not a number is missing (NaN).

    One cell must not decide the type of the others, nor raise: both would reveal it. A sample whose declared type is not
    numeric (texts, complex numbers), or that is not one-dimensional, becomes an empty table, which every caller refuses.

    >>> private_numbers([1, None, "a", 10**400]).tolist()
    [1.0, nan, nan, inf]
    >>> private_numbers(np.array(["a"])).shape
    (0, 0)
    """
    check_unmasked(values)
    column = typed_column(values)
    try:
        if column is None:
            column = np.fromiter(values, object, len(values)) if isinstance(values, list | tuple) else values
        return plain_numbers(column)
    except (InvalidRequest, TypeError, ValueError):
        return np.empty((0, 0))


def pair_of(first: Any, second: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two lists of numbers of equal length.

    >>> pair_of([1, 2], [3, 4])[1]
    array([3., 4.])
    """
    x, y = private_numbers(first), private_numbers(second)
    if x.ndim != 1 or x.shape != y.shape:
        raise InvalidRequest("Expected two lists of numbers of equal length", do="Pass one-dimensional arrays")
    return x, y


def checked_rows(rows: int, *, fewest: int, most: int) -> int:
    """A number of rows that a test can take.

    >>> checked_rows(2, fewest=3, most=100)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected between 3 and 100 rows, got 2. Bring more rows, or take a sample.
    """
    if not fewest <= rows <= most:
        raise InvalidRequest(
            f"Expected between {fewest} and {most} rows", got=rows, do="Bring more rows, or take a sample"
        )
    return rows


def truths(values: Any, *, fewest: int = 1) -> NDArray[np.bool_]:
    """Return at least ``fewest`` private true/false values. Zero and what is not a number are false, other numbers true.

    >>> truths([1, 0, True])
    array([ True, False,  True])
    """
    given = private_numbers(values)
    if given.ndim != 1 or given.size < fewest:
        some = "a non-empty list" if fewest else "a list"
        raise InvalidRequest(f"Expected {some} of true/false values", do="Pass booleans, or zeros and ones")
    truth: NDArray[np.bool_] = np.nan_to_num(given) != 0
    return truth


_HELD: dict[Kind, tuple[type, ...]] = {
    Kind.BOOLEAN: (bool,),
    Kind.INTEGER: (int,),
    Kind.REAL: (int, float),
    Kind.TEXT: (str,),
}
