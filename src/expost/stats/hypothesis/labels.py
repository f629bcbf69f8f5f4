"""Labels of rows: which rows are of one kind, told from those rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.mask import check_unmasked
from expost.data.matrix import typed_column

__all__ = ["coded", "labels_of"]


def labels_of(values: Any) -> NDArray[Any]:
    """Labels as an array: whole numbers for columns of one type, else the values themselves.

    A list is taken cell by cell: a common type would depend on all of them, and one cell could then make others equal.
    What is no list of labels becomes a table, which every caller refuses.

    >>> labels_of(np.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    >>> labels_of([1, "1", None]).tolist()
    [1, '1', None]
    """
    check_unmasked(values)
    try:
        typed = typed_column(values)
        if typed is not None:  # coded as stored: as an array, one null would make floats of whole numbers
            return np.asarray(typed.dictionary_encode("encode").indices, np.int64)
        given = np.fromiter(values, object, len(values)) if isinstance(values, list | tuple) else np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # the words may repeat a cell
        return np.empty((0, 0))
    if given.ndim != 1 or given.dtype.kind == "O":
        return given
    if given.dtype.kind == "V":
        return np.fromiter(given.tolist(), object, len(given))
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def coded(labels: NDArray[Any]) -> NDArray[np.int64]:
    """The labels of a few rows as 0, 1, ... without gaps; -1 for a row in no group.

    Whole numbers below zero are in no group, nor is a value that equals nothing that can be kept.

    >>> coded(np.array([7, -1, 3, 7])).tolist()
    [1, -1, 0, 1]
    >>> coded(np.array(["b", None, ["a"], "b"], object)).tolist()
    [0, 1, -1, 0]
    """
    if labels.dtype.kind == "O":
        found: dict[Any, int] = {}
        return np.array([_code(value, found) for value in labels.tolist()], np.int64)
    different, codes = np.unique(labels, return_inverse=True)
    return (codes - np.count_nonzero(different < 0)).clip(-1).astype(np.int64)


def _code(value: Any, found: dict[Any, int]) -> int:
    try:
        return found.setdefault(None if value != value else value, len(found))
    except Exception:  # no error of a cell's own may tell of it
        return -1
