"""Tallies: which rows are added up, into which cells, over which columns; and the exact integer sums they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Unit
from expost.data.axis import Axis, FoundKeys
from expost.data.bounding import Atoms
from expost.data.cell_values import Numbers, Truths
from expost.data.clamp import Clamp
from expost.data.evaluation import evaluate, evaluate_filter
from expost.data.expression import ColumnName, Expression
from expost.data.unit_identity import content_words, label_words, mix_words, unit_words

__all__ = ["Measured", "PowerSums", "Tally", "stored_columns"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_EXACT = 1 << 53  # sums of integers below this are exact in floats
_SAFE = 1 << 62  # totals below this cannot overflow int64
_HALF = 20  # bits of the lower part of a product


@dataclass(frozen=True, slots=True)
class PowerSums:
    """Numbers of rows, sums of steps and sums of products of steps, one column per cell.

    ``first`` has one line per measured column, ``second`` one line per pair (0,0), (0,1), ..., (1,1), ...; each is empty
    below its degree. All entries are integers, so that adding is exact in any order.

    >>> sums = PowerSums.of(np.array([0, 1, 1]), np.array([[3.0, 4.0, 5.0]]), cells=2, degree=2)
    >>> sums.rows.tolist(), sums.first.tolist(), sums.second.tolist()
    ([1, 2], [[3, 9]], [[9, 41]])
    """

    rows: NDArray[Any]
    first: NDArray[Any]
    second: NDArray[Any]

    @classmethod
    def zero(cls, *, columns: int, cells: int, degree: int) -> PowerSums:
        """Return the sums over no rows."""
        pairs = columns * (columns + 1) // 2 if degree >= 2 else 0
        shapes = (cells,), (columns if degree >= 1 else 0, cells), (pairs, cells)
        return cls(*(np.zeros(shape, np.int64) for shape in shapes))

    @classmethod
    def of(cls, cell: Integers | None, steps: Floats, *, cells: int, degree: int) -> PowerSums:
        """Sum over rows. ``cell`` is the cell of each row (None if there is only one), ``steps`` are below 2^21.

        Steps may be up to 2^38 if ``degree`` is at most 1.
        """
        columns, count = steps.shape
        if cell is not None:
            rows = np.bincount(cell, minlength=cells)
            most = int(rows.max(initial=0))
            first = [_sum_by_cell(cell, column, cells, most) for column in steps] if degree >= 1 else []
            pairs = [(i, j) for i in range(columns) for j in range(i, columns)] if degree >= 2 else []
            second = [_sum_by_cell(cell, steps[i] * steps[j], cells, most) for i, j in pairs]
            stacked = (np.array(part, np.int64).reshape(len(part), cells) for part in (first, second))
            return cls(rows, *stacked)
        sums = products = np.zeros((0, 1), np.int64)
        if degree >= 1:
            # Floats add integers exactly as long as no partial sum can round.
            exact = steps.max(initial=0.0) * count < _EXACT
            sums = (steps if exact else steps.astype(np.int64)).sum(axis=1).astype(np.int64)[:, None]
        if degree >= 2:
            products = _sum_products(steps)[np.triu_indices(columns)][:, None]
        return cls(np.array([count]), sums, products)

    def __add__(self, other: PowerSums) -> PowerSums:
        return PowerSums(
            _add_exactly(self.rows, other.rows),
            _add_exactly(self.first, other.first),
            _add_exactly(self.second, other.second),
        )


def _sum_products(steps: Floats) -> Integers:
    """Sum all products of two columns, by float matrix products over chunks short enough to be exact."""
    columns, count = steps.shape
    most = int(steps.max(initial=1.0))
    chunk = max(_EXACT // (most * most), 1)
    # Python integers if int64 might overflow.
    gram = np.zeros((columns, columns), np.int64 if count * most * most < _SAFE else object)
    for start in range(0, count, chunk):
        part = steps[:, start : start + chunk]
        gram += (part @ part.T).astype(np.int64)
    return gram


def _sum_by_cell(cell: Integers, weights: Floats, cells: int, most: int) -> Integers:
    """Sum whole floats from 0 to 2^42 by cell, exactly: in two passes if one might round. No cell has more than ``most`` rows."""
    if weights.max(initial=0.0) * most < _EXACT:
        return np.bincount(cell, weights, cells).astype(np.int64)
    high = np.floor(weights / (1 << _HALF))
    low = weights - high * (1 << _HALF)
    return (np.bincount(cell, high, cells).astype(np.int64) << _HALF) + np.bincount(cell, low, cells).astype(np.int64)


def _add_exactly(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Add, in Python integers as soon as int64 might overflow."""
    narrow = object not in (left.dtype, right.dtype) and int(left.max(initial=0)) + int(right.max(initial=0)) < _SAFE
    total: NDArray[Any] = left + right if narrow else left.astype(object) + right.astype(object)
    return total


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of each row, clamped to public bounds."""

    expression: Expression
    clamp: Clamp


@dataclass(frozen=True)
class Tally:
    """A pure function of a batch of rows: filter, assign a cell, clamp, and add up powers of whole steps.

    Rows that fail the filter, belong to no cell or miss a measured number are dropped before contributions are bounded.
    ``key`` is the secret of one query, from which words of units and labels are made.

    >>> from expost.data.expression import col
    >>> tally = Tally((Measured(col("age"), Clamp.of((0, 120), whole=True)),), where=col("age") > 1, degree=1)
    >>> sums = tally.sum_atoms(tally.read_atoms(pa.record_batch({"age": [1, 41, None, 500]})))
    >>> sums.rows.tolist(), sums.first.tolist()
    ([2], [[161]])
    """

    measured: tuple[Measured, ...] = ()
    axes: tuple[Axis, ...] = ()
    where: Expression | None = None
    degree: int = 0
    derived: Mapping[str, Expression] = field(default_factory=dict)
    unit: Unit = Unit()
    key: bytes = b""

    @cached_property
    def cells(self) -> int:
        """The number of cells, the product of the axes' sizes."""
        cells = 1
        for axis in self.axes:
            cells *= axis.size
        return cells

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source that are read."""
        expressions = [*(each.expression for each in self.measured), *(axis.expression for axis in self.axes)]
        named = {name for each in expressions for name in each.columns()}
        named |= self.where.columns() if self.where is not None else set()
        named |= {name for name in (self.unit.column, self.unit.time_column) if name is not None}
        return tuple(sorted(stored_columns(named, self.derived)))

    @cached_property
    def _cell_type(self) -> type[np.unsignedinteger[Any]]:
        """The narrowest integer type that numbers all cells."""
        return np.uint16 if self.cells <= 1 << 16 else np.uint32 if self.cells <= 1 << 32 else np.uint64

    def read_atoms(self, batch: pa.RecordBatch) -> Atoms:
        """Reduce the rows of a batch that count to integers: unit words, cells and clamped steps."""
        kept = evaluate_filter(self.where, batch, self.derived)
        cell: NDArray[Any] | None = None
        for axis in self.axes:
            codes = axis.codes(batch, self.derived)
            kept &= codes >= 0  # the cell of a row outside an axis has no meaning, and the row is dropped below
            cell = codes if cell is None else cell.astype(np.int64, copy=False) * axis.size + codes
        if cell is None:
            cell = np.zeros(batch.num_rows, self._cell_type)
        columns = [self._read_numbers(each.expression, batch, kept) for each in self.measured]
        words: list[NDArray[Any]] = []
        if not self.unit.is_row:
            words, known = unit_words(self.unit, batch, self.derived, self.key)
            kept &= known
        if not kept.all():
            words, columns = [word[kept] for word in words], [column[kept] for column in columns]
            cell = cell[kept]
        steps = np.empty((len(columns), len(cell)))
        for each, column, out in zip(self.measured, columns, steps, strict=True):
            each.clamp.to_steps(column, out)
        if self.unit.is_row:  # added up at once, by indices of full width
            return Atoms(words, cell.astype(np.int64, copy=False), steps)
        # Rows that are sorted by unit are many and kept narrow. Steps stay below 2^32.
        return Atoms(words, cell.astype(self._cell_type, copy=False), steps.astype(np.uint32))

    def _read_numbers(self, expression: Expression, batch: pa.RecordBatch, kept: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the numbers of an expression and clear ``kept`` where they are missing."""
        if isinstance(expression, ColumnName) and expression.name not in self.derived:
            column = batch.column(expression.name)
            whole = pa.types.is_integer(column.type)
            if (whole or pa.types.is_floating(column.type)) and column.null_count == 0:
                raw: NDArray[Any] = column.to_numpy(zero_copy_only=False)  # widened when it is clamped
                if not whole:
                    kept &= ~np.isnan(raw)
                return raw
        values = evaluate(expression, batch, self.derived)
        assert isinstance(values, Numbers | Truths)
        kept &= ~values.missing
        return values.true.astype(np.float64) if isinstance(values, Truths) else values.numbers

    def group_words(self, cell: NDArray[Any]) -> NDArray[np.uint64]:
        """Hash the group of each row to a word that depends on the group's own labels only.

        Contribution bounding ranks groups by these words. The number of a cell would not do: among keys found in the
        data it depends on the keys of other units.
        """
        group = np.zeros(len(cell), np.uint64)
        if not len(cell):  # no key was found, so an axis may be empty
            return group
        places = self.cells
        for axis, words in zip(self.axes, self._label_words, strict=True):
            places //= axis.size
            group = mix_words(group, 0) + words[cell // places % axis.size]
        return group

    @cached_property
    def _label_words(self) -> list[NDArray[np.uint64]]:
        """Words of the labels of each axis. Keys found in the data are hashed from their stored cells."""
        return [
            content_words(axis.column, self.key) if isinstance(axis, FoundKeys) else label_words(axis.labels, self.key)
            for axis in self.axes
        ]

    def sum_atoms(self, atoms: Atoms) -> PowerSums:
        """Return the power sums of some rows."""
        cell = None if self.cells == 1 else atoms.cell.astype(np.int64, copy=False)
        return PowerSums.of(cell, atoms.steps.astype(np.float64, copy=False), cells=self.cells, degree=self.degree)


def stored_columns(names: set[str], derived: Mapping[str, Expression]) -> set[str]:
    """Return the stored columns that some columns are computed from; a stored column stands for itself."""
    found: set[str] = set()
    for name in names:
        found |= stored_columns(set(derived[name].columns()), derived) if name in derived else {name}
    return found
