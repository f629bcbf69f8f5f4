"""Private samples: total functions from cells to numbers, codes and groups, so that no row can raise an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest
from expost.core.argument import check_unmasked
from expost.data.canonical_cell import decode_column
from expost.data.row_source import plain_numbers, typed_column
from expost.data.value_place import find_places

__all__ = [
    "GRID",
    "encode_categories",
    "encode_labels",
    "read_labels",
    "read_private_numbers",
    "read_private_pair",
    "read_private_truths",
    "read_samples",
    "round_to_grid",
]

GRID = 1 << 20
"""Lattice points over the width of a column's bounds: values are clipped and rounded to it."""


def round_to_grid(values: Any, bounds: tuple[float, float]) -> NDArray[np.int64]:
    """Clip values to public bounds and round them to the centered lattice, from -GRID/2 to GRID/2.

    NaN becomes the middle, which is 0.

    >>> round_to_grid([0.0, 5.0, 99.0, float("nan")], (0, 10))
    array([-524288,       0,  524288,       0])
    """
    low, high = float(bounds[0]), float(bounds[1])
    width = high - low  # the difference of two finite numbers may still be infinite
    if not low < high or not np.isfinite([low, high, width]).all():
        raise InvalidRequest(
            "Expected bounds (low, high) with low < high and a finite width", do="Pass public finite bounds"
        )
    x = np.nan_to_num(np.asarray(values, np.float64), nan=low + width / 2, posinf=high, neginf=low)
    share = (np.clip(x, low, high) - low) / width
    return np.rint((np.clip(share, 0.0, 1.0) - 0.5) * GRID).astype(np.int64)


def encode_categories(batch: pa.RecordBatch, column: str, categories: Sequence[Any]) -> NDArray[np.int64]:
    """Return the position of each row's value among public categories, or -1 for any other value."""
    return find_places(decode_column(batch.column(column)), categories).astype(np.int64)


def read_private_numbers(values: Any) -> NDArray[np.float64]:
    """Convert a private sample to floats, cell by cell. A cell that is not a number is missing (NaN).

    One cell must not decide the type of the others, nor raise: both would reveal it. A sample whose declared type is not
    numeric (texts, complex numbers), or that is not one-dimensional, becomes an empty table, which every caller rejects.

    >>> read_private_numbers([1, None, "a", 10**400]).tolist()
    [1.0, nan, nan, inf]
    >>> read_private_numbers(np.array(["a"])).shape
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


def read_private_pair(first: Any, second: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read two private samples of equal length."""
    x, y = read_private_numbers(first), read_private_numbers(second)
    if x.ndim != 1 or x.shape != y.shape:
        raise InvalidRequest("Expected two lists of numbers of equal length", do="Pass one-dimensional arrays")
    return x, y


def read_private_truths(values: Any, *, adjacency: str | Adjacency = "replace-one") -> NDArray[np.bool_]:
    """Read private true/false values. Zero and cells that are not numbers are false, other numbers true.

    Where the number of rows is private, an empty sample is accepted: refusing it would reveal that it is empty.
    """
    public = Adjacency.parse(adjacency).public_size
    given = read_private_numbers(values)
    if given.ndim != 1 or given.size < public:
        some = "a non-empty list" if public else "a list"
        raise InvalidRequest(f"Expected {some} of true/false values", do="Pass booleans, or zeros and ones")
    truth: NDArray[np.bool_] = np.nan_to_num(given) != 0
    return truth


def read_samples(groups: Sequence[Any], *, adjacency: str | Adjacency = "replace-one") -> list[NDArray[np.float64]]:
    """Read private samples as one-dimensional float arrays, of at least two values each where sizes are public."""
    fewest = 2 if Adjacency.parse(adjacency).public_size else 0
    samples = [read_private_numbers(group) for group in groups]
    if any(sample.ndim != 1 or sample.size < fewest for sample in samples):
        least = f" of at least {fewest} each" if fewest else ""
        raise InvalidRequest(f"Expected samples of numbers{least}", do="Pass one-dimensional arrays")
    return samples


def read_labels(values: Any) -> NDArray[Any]:
    """Convert labels to an array: whole numbers for columns of one type, else the values themselves.

    A list is read cell by cell: a common type would depend on all cells, and one cell could then make others equal.
    Anything but a list of labels becomes a table, which every caller rejects.

    >>> read_labels(np.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    >>> read_labels([1, "1", None]).tolist()
    [1, '1', None]
    """
    check_unmasked(values)
    try:
        typed = typed_column(values)
        if typed is not None:  # coded as stored: converted to an array, one null would turn whole numbers into floats
            return np.asarray(typed.dictionary_encode("encode").indices, np.int64)
        given = np.fromiter(values, object, len(values)) if isinstance(values, list | tuple) else np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # not chained: the message may repeat a cell
        return np.empty((0, 0))
    if given.ndim != 1 or given.dtype.kind == "O":
        return given
    if given.dtype.kind == "V":
        return np.fromiter(given.tolist(), object, len(given))
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def encode_labels(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number the labels of a few rows 0, 1, ... without gaps; -1 for a row in no group.

    Whole numbers below zero are in no group, nor are values that cannot be hashed or compared.

    >>> encode_labels(np.array([7, -1, 3, 7])).tolist()
    [1, -1, 0, 1]
    >>> encode_labels(np.array(["b", None, ["a"], "b"], object)).tolist()
    [0, 1, -1, 0]
    """
    if labels.dtype.kind != "O":
        different, codes = np.unique(labels, return_inverse=True)
        return (codes - np.count_nonzero(different < 0)).clip(-1).astype(np.int64)
    found: dict[Any, int] = {}

    def encode_label(value: Any) -> int:
        try:
            return found.setdefault(None if value != value else value, len(found))
        except Exception:  # an error raised by a cell would reveal that cell
            return -1

    return np.array([encode_label(value) for value in labels.tolist()], np.int64)
