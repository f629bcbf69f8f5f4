"""What is added up: which rows, into which cells, which columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Unit
from expost.data.atoms import Atoms
from expost.data.axis import Axis
from expost.data.clamp import Clamp
from expost.data.evaluate import evaluate
from expost.data.expression import ColumnName, Expression
from expost.data.identity import mix, unit_words
from expost.data.sums import PowerSums
from expost.data.values import Numbers, Truths

__all__ = ["Measured", "Tally", "sources"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of each row, clamped to public bounds."""

    expression: Expression
    clamp: Clamp


@dataclass(frozen=True)
class Tally:
    """A pure function of a batch of rows: filter, place in a cell, clamp, and add up powers of whole steps.

    Rows that fail the filter, belong to no cell or miss a measured number are left out before anything is bounded.

    >>> from expost.data.expression import col
    >>> tally = Tally((Measured(col("age"), Clamp.of((0, 120), whole=True)),), where=col("age") > 1, degree=1)
    >>> sums = tally.sums(tally.atoms(pa.record_batch({"age": [1, 41, None, 500]})))
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
        """The number of places rows can fall into."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that are read."""
        expressions = [*(each.expression for each in self.measured), *(axis.expression for axis in self.axes)]
        named = {name for each in expressions for name in each.columns()}
        named |= self.where.columns() if self.where is not None else set()
        named |= {name for name in (self.unit.column, self.unit.time_column) if name is not None}
        return tuple(sorted(sources(named, self.derived)))

    def atoms(self, batch: pa.RecordBatch) -> Atoms:
        """The rows of a batch as integers."""
        words, cell, columns = self.read(batch)
        steps = np.empty((len(columns), len(cell)))
        for each, column, out in zip(self.measured, columns, steps, strict=True):
            each.clamp.to_steps(column, out)
        return Atoms(words, cell, steps)

    def read(self, batch: pa.RecordBatch) -> tuple[list[NDArray[Any]], NDArray[Any], list[NDArray[np.floating[Any]]]]:
        """Unit, cell and measured numbers of the rows that count."""
        kept = np.ones(batch.num_rows, bool)
        if self.where is not None:
            condition = evaluate(self.where, batch, self.derived)
            kept &= condition.certain if isinstance(condition, Truths) else False
        cell = self._cells(batch, kept)
        columns = [self._numbers(each, batch, kept) for each in self.measured]
        words: list[NDArray[Any]] = []
        if not self.unit.is_row:
            words, known = unit_words(self.unit, batch, self.derived, self.key)
            kept &= known
        if not kept.all():
            words, columns = [word[kept] for word in words], [column[kept] for column in columns]
            cell = cell[kept]
        return words, cell.astype(self._cell_type, copy=False), columns

    @cached_property
    def _cell_type(self) -> type[np.unsignedinteger[Any]]:
        """The narrowest of a few integers that number all cells."""
        return np.uint16 if self.cells <= 1 << 16 else np.uint32 if self.cells <= 1 << 32 else np.uint64

    def _cells(self, batch: pa.RecordBatch, kept: NDArray[np.bool_]) -> NDArray[Any]:
        """The cell of each row; a row outside an axis is not kept, and its cell means nothing."""
        if not self.axes:
            return np.zeros(batch.num_rows, self._cell_type)
        cell: NDArray[Any] | None = None
        for axis in self.axes:
            codes = axis.codes(batch, self.derived)
            kept &= codes >= 0
            cell = codes if cell is None else cell.astype(np.int64, copy=False) * axis.size + codes
        assert cell is not None
        return cell

    def group_words(self, cell: NDArray[Any]) -> NDArray[np.uint64]:
        """One word per row for its group, a function of the group's own labels.

        Contribution bounding ranks groups by it. The number of a cell will not do: among keys that occur it depends on
        the keys of other units.
        """
        group = np.zeros(len(cell), np.uint64)
        if not len(cell):  # no key was found, so that an axis may be empty
            return group
        places = self.cells
        for axis, words in zip(self.axes, self._label_words, strict=True):
            places //= axis.size
            group = mix(group, 0) + words[cell // places % axis.size]
        return group

    @cached_property
    def _label_words(self) -> list[NDArray[np.uint64]]:
        return [axis.words(self.key) for axis in self.axes]

    def _numbers(self, each: Measured, batch: pa.RecordBatch, kept: NDArray[np.bool_]) -> NDArray[np.floating[Any]]:
        expression = each.expression
        if isinstance(expression, ColumnName) and expression.name not in self.derived:
            column = batch.column(expression.name)
            if pa.types.is_floating(column.type) and column.null_count == 0:
                raw: NDArray[np.floating[Any]] = column.to_numpy(zero_copy_only=False)  # widened while it is clamped
                kept &= ~np.isnan(raw)
                return raw
        values = evaluate(expression, batch, self.derived)
        assert isinstance(values, Numbers | Truths)
        kept &= ~values.missing
        return values.true.astype(np.float64) if isinstance(values, Truths) else values.numbers

    def sums(self, atoms: Atoms) -> PowerSums:
        """The power sums of some rows."""
        cell = None if self.cells == 1 else atoms.cell.astype(np.int64, copy=False)
        steps = atoms.steps.astype(np.float64, copy=False)
        if cell is None and not len(steps):
            return PowerSums(np.array([len(atoms)]), np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64))
        return PowerSums.of(cell, steps, cells=self.cells, degree=self.degree)

    def zero(self) -> PowerSums:
        """The sums of no rows."""
        return PowerSums.zero(columns=len(self.measured), cells=self.cells, degree=self.degree)


def sources(names: set[str], derived: Mapping[str, Expression]) -> set[str]:
    """The stored columns behind some names, derived ones resolved."""
    found: set[str] = set()
    for name in names:
        found |= sources(set(derived[name].columns()), derived) if name in derived else {name}
    return found
