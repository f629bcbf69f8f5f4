"""Exact integer power sums per cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PowerSums"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_EXACT = 1 << 53  # sums of whole numbers below this are exact in floats
_ROOM = 1 << 62  # totals below this cannot wrap in 64 bits
_HALF = 20  # bits of the lower part of a product


@dataclass(frozen=True, slots=True)
class PowerSums:
    """Numbers of rows, sums of steps and sums of products of steps, one column a cell.

    ``first`` has one row a measured column, ``second`` one row a pair (0,0), (0,1), ..., (1,1), ...; each is empty
    below its degree. All entries are integers, so that adding is exact whatever the order.

    >>> sums = PowerSums.of(np.array([0, 1, 1]), np.array([[3.0, 4.0, 5.0]]), cells=2, degree=2)
    >>> sums.rows.tolist(), sums.first.tolist(), sums.second.tolist()
    ([1, 2], [[3, 9]], [[9, 41]])
    """

    rows: NDArray[Any]
    first: NDArray[Any]
    second: NDArray[Any]

    @classmethod
    def zero(cls, *, columns: int, cells: int, degree: int) -> PowerSums:
        """No rows at all."""
        pairs = columns * (columns + 1) // 2 if degree >= 2 else 0
        shapes = (cells,), (columns if degree >= 1 else 0, cells), (pairs, cells)
        return cls(*(np.zeros(shape, np.int64) for shape in shapes))

    @classmethod
    def of(cls, cell: Integers | None, steps: Floats, *, cells: int, degree: int) -> PowerSums:
        """The sums over rows; ``cell`` is each row's place (None when there is but one), ``steps`` are below 2^21.

        Steps of sums alone (degree 1) may be up to 2^38.
        """
        columns, count = steps.shape
        if cell is None:
            return _of_one_cell(steps, count, degree)
        rows = np.bincount(cell, minlength=cells)
        first = [_bincount(cell, column, cells) for column in steps] if degree >= 1 else []
        second = []
        if degree >= 2:
            for i in range(columns):
                for j in range(i, columns):
                    second.append(_bincount(cell, steps[i] * steps[j], cells))
        return cls(rows, _stacked(first, cells), _stacked(second, cells))

    def __add__(self, other: PowerSums) -> PowerSums:
        return PowerSums(_plus(self.rows, other.rows), _plus(self.first, other.first), _plus(self.second, other.second))


def _stacked(parts: list[Integers], cells: int) -> Integers:
    return np.array(parts, dtype=np.int64).reshape(len(parts), cells)


def _of_one_cell(steps: Floats, count: int, degree: int) -> PowerSums:
    columns = len(steps)
    first = _row_sums(steps)[:, None] if degree >= 1 else np.zeros((0, 1), np.int64)
    second = _gram(steps)[np.triu_indices(columns)][:, None] if degree >= 2 else np.zeros((0, 1), np.int64)
    return PowerSums(np.array([count]), first, second)


def _row_sums(steps: Floats) -> Integers:
    """Exact sums of whole floats: as they are where no partial sum can round, else as integers."""
    if steps.max(initial=0.0) * steps.shape[1] < _EXACT:
        return np.asarray(steps.sum(axis=1), dtype=np.int64)
    return np.asarray(steps.astype(np.int64).sum(axis=1), dtype=np.int64)


def _gram(steps: Floats) -> Integers:
    """All sums of products, by float matrix products over chunks short enough to be exact."""
    columns, count = steps.shape
    most = int(steps.max(initial=1.0))
    chunk = max(_EXACT // (most * most), 1)
    # Python integers where 64 bits might not do.
    gram = np.zeros((columns, columns), np.int64 if count * most * most < _ROOM else object)
    for start in range(0, count, chunk):
        part = steps[:, start : start + chunk]
        gram += (part @ part.T).astype(np.int64)
    return gram


def _bincount(cell: Integers, weights: Floats, cells: int) -> Integers:
    """Exact grouped sums of whole floats from 0 to 2^42, in two passes where one might round."""
    if weights.max(initial=0.0) * len(weights) < _EXACT:
        return np.bincount(cell, weights, cells).astype(np.int64)
    high = np.floor(weights / (1 << _HALF))
    low = weights - high * (1 << _HALF)
    return (np.bincount(cell, high, cells).astype(np.int64) << _HALF) + np.bincount(cell, low, cells).astype(np.int64)


def _plus(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The sum; in Python integers as soon as 64 bits might not do."""
    if object not in (left.dtype, right.dtype) and _size(left) + _size(right) < _ROOM:
        total: NDArray[Any] = left + right
        return total
    wide: NDArray[Any] = left.astype(object) + right.astype(object)
    return wide


def _size(part: NDArray[Any]) -> int:
    return int(part.max(initial=0))
