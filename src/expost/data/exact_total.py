"""Run a tally over an engine with each unit's contribution bounded. Results are exact: whoever calls this must seal them.

Every result is the same whatever the engine, the order of rows, the batches and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data.axis import FoundKeys, key_column
from expost.data.bounding import Atoms, Limits, bound_contributions
from expost.data.canonical_cell import missing_cells
from expost.data.distinct_values import CountedWords, DistinctKeys
from expost.data.engines.engine import Engine
from expost.data.evaluation import evaluate_filter
from expost.data.expression import Expression
from expost.data.pushed_filter import expand_columns
from expost.data.tally import PowerSums, Tally, stored_columns
from expost.data.unit_identity import unit_words
from expost.data.unit_shard import MEMORY_LIMIT

__all__ = ["exact_sums", "find_keys", "rows_per_cell", "single_steps"]

T = TypeVar("T")

_STEP_BITS = 32  # steps and cells are both below 2^32, so that a pair fits into 64 bits and sorts as one word


def exact_sums(engine: Engine, tally: Tally, limits: Limits | None, *, memory_limit: int = MEMORY_LIMIT) -> PowerSums:
    """Return the exact power sums of a tally, one column per cell."""
    sums: PowerSums = _reduce_atoms(engine, tally, limits, tally.sum_atoms, add, memory_limit)
    return sums


def single_steps(engine: Engine, tally: Tally, limits: Limits | None, *, memory_limit: int) -> list[NDArray[np.int64]]:
    """Return the steps of the tally's one measured column, one integer per row, as one sorted array per cell."""
    found = _reduce_atoms(engine, tally, limits, _count_steps, CountedWords.merged, memory_limit)
    words, counts = found.sorted()
    cell = words >> _STEP_BITS
    # Sorted, so that neither the order of rows nor the batches show.
    ends = np.searchsorted(cell, np.arange(1, tally.cells))
    steps = words & ((1 << _STEP_BITS) - 1)
    return [np.repeat(*part) for part in zip(np.split(steps, ends), np.split(counts, ends), strict=True)]


def rows_per_cell(engine: Engine, tally: Tally, limits: Limits | None, *, memory_limit: int) -> NDArray[np.int64]:
    """Count the rows of each cell after contribution bounding. There may be many cells, of which a part has few."""
    found = _reduce_atoms(engine, tally, limits, _count_cells, CountedWords.merged, memory_limit)
    cells, counts = found.sorted()
    rows = np.zeros(tally.cells, np.int64)
    rows[cells] = counts
    return rows


def find_keys(engine: Engine, tally: Tally, expression: Expression) -> FoundKeys:
    """Return the distinct keys among the rows that count, in order. SECRET."""
    columns = stored_columns(set(expression.columns()), tally.derived) | set(tally.columns)
    narrow = _narrow_engine(engine, tally)
    found = narrow.reduce(_KeysOfBatch(tally, expression), DistinctKeys.merged, sorted(columns))
    return FoundKeys(expression, found.sorted(), tally.key)


def _count_steps(atoms: Atoms) -> CountedWords:
    """Count the pairs of cell and step."""
    return CountedWords.of((atoms.cell.astype(np.int64) << _STEP_BITS) + atoms.steps[0].astype(np.int64))


def _count_cells(atoms: Atoms) -> CountedWords:
    return CountedWords.of(atoms.cell.astype(np.int64))


def _reduce_atoms(
    engine: Engine,
    tally: Tally,
    limits: Limits | None,
    function: Callable[[Atoms], T],
    merge: Callable[[T, T], T],
    memory_limit: int,
) -> T:
    """Merge the results of a function of the rows that count, contributions bounded with the tally's secret."""
    engine = _narrow_engine(engine, tally)
    if limits is None:
        return engine.reduce(_OfRows(tally, function), merge, tally.columns)
    bounded = _OfBoundedRows(tally, limits, function)
    return engine.by_unit(
        tally.read_atoms, bounded, tally.columns, merge=merge, secret=tally.key, memory_limit=memory_limit
    )


def _narrow_engine(engine: Engine, tally: Tally) -> Engine:
    """Let the engine leave out rows that the filter drops."""
    return engine if tally.where is None else engine.narrow(expand_columns(tally.where, tally.derived))


@dataclass(frozen=True)
class _OfRows(Generic[T]):
    """A function of the rows of a batch that count. It can be pickled, as engines need."""

    tally: Tally
    function: Callable[[Atoms], T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        return self.function(self.tally.read_atoms(batch))


@dataclass(frozen=True)
class _OfBoundedRows(Generic[T]):
    """A function of the rows that units keep, for all rows of some units."""

    tally: Tally
    limits: Limits
    function: Callable[[Atoms], T]

    def __call__(self, atoms: Atoms) -> T:
        return self.function(bound_contributions(atoms, self.limits, self.tally.key, self.tally.group_words))


@dataclass(frozen=True)
class _KeysOfBatch:
    """The distinct keys of the rows that the filter keeps and that belong to a unit; others open no group."""

    tally: Tally
    expression: Expression

    def __call__(self, batch: pa.RecordBatch) -> DistinctKeys:
        tally = self.tally
        kept = evaluate_filter(tally.where, batch, tally.derived)
        if not tally.unit.is_row:
            kept &= unit_words(tally.unit, batch, tally.derived, b"")[1]
        column = key_column(self.expression, batch, tally.derived)
        kept &= ~missing_cells(column)
        return DistinctKeys.of(column.filter(pa.array(kept)))
