"""Run a tally over an engine with each unit's contribution bounded. Results are exact: whoever calls this must seal them.

Every result is the same whatever the engine, the order of rows, the batches and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.axis import FoundKeys, key_column
from expost.data.bounding import Atoms, Limits, bound_contributions
from expost.data.canonical_cell import missing_cells
from expost.data.engines.engine import Engine, run_parallel
from expost.data.evaluation import evaluate_filter
from expost.data.expression import Expression
from expost.data.tally import PowerSums, Tally, stored_columns
from expost.data.unit_identity import unit_words
from expost.data.unit_shard import MEMORY_LIMIT, Shards, show_progress

__all__ = ["exact_sums", "find_keys", "rows_per_cell", "single_steps"]

T = TypeVar("T")

_STEP_BITS = 32  # steps and cells are both below 2^32, so that a pair fits into 64 bits and sorts as one word


def exact_sums(engine: Engine, tally: Tally, limits: Limits | None, *, memory_limit: int = MEMORY_LIMIT) -> PowerSums:
    """Return the exact power sums of a tally, one column per cell."""
    total = tally.zero_sums()
    if limits is not None:
        return reduce(add, _map_bounded(tally.sum_atoms, engine, tally, limits, memory_limit), total)
    with show_progress() as tick:
        for part in engine.map(tally.sum_batch, tally.columns):
            total += part
            tick()
    return total


def single_steps(engine: Engine, tally: Tally, limits: Limits | None, *, memory_limit: int) -> list[NDArray[np.int64]]:
    """Return the steps of the tally's one measured column, one integer per row, as one sorted array per cell."""
    parts = list(_kept_atoms(engine, tally, limits, memory_limit))
    cell = np.concatenate([np.zeros(0, np.int64), *(part.cell for part in parts)]).astype(np.int64)
    steps = np.concatenate([np.zeros(0, np.int64), *(part.steps[0] for part in parts)]).astype(np.int64)
    # Sorted, so that neither the order of rows nor the batches show.
    ordered = np.sort((cell << _STEP_BITS) + steps)
    ends = np.cumsum(np.bincount(cell, minlength=tally.cells))[:-1]
    return np.split(ordered & ((1 << _STEP_BITS) - 1), ends)


def rows_per_cell(engine: Engine, tally: Tally, limits: Limits | None, *, memory_limit: int) -> NDArray[np.int64]:
    """Count the rows of each cell after contribution bounding. There may be many cells, of which a part has few."""
    rows = np.zeros(tally.cells, np.int64)
    for atoms in _kept_atoms(engine, tally, limits, memory_limit):
        cells, counts = np.unique(atoms.cell, return_counts=True)
        rows[cells] += counts
    return rows


def find_keys(engine: Engine, tally: Tally, expression: Expression) -> FoundKeys:
    """Return the distinct keys among the rows that count, in order. SECRET."""

    def read_keys(batch: pa.RecordBatch) -> pa.Array:
        # Rows that the filter drops or that belong to no unit open no group.
        kept = evaluate_filter(tally.where, batch, tally.derived)
        if not tally.unit.is_row:
            kept &= unit_words(tally.unit, batch, tally.derived, b"")[1]
        column = key_column(expression, batch, tally.derived)
        kept &= ~missing_cells(column)
        return pc.unique(column.filter(pa.array(kept)))

    columns = stored_columns(set(expression.columns()), tally.derived) | set(tally.columns)
    parts = list(engine.map(read_keys, sorted(columns)))
    if not parts:
        return FoundKeys(expression, pa.array([], pa.large_string()))
    column = pc.unique(pa.chunked_array(parts))
    return FoundKeys(expression, column.take(pc.sort_indices(column)), tally.key)


def _kept_atoms(engine: Engine, tally: Tally, limits: Limits | None, memory_limit: int) -> Iterator[Atoms]:
    """Yield the rows that count after contribution bounding, part by part."""
    if limits is None:
        return engine.map(tally.read_atoms, tally.columns)
    return _map_bounded(lambda atoms: atoms, engine, tally, limits, memory_limit)


def _map_bounded(
    function: Callable[[Atoms], T], engine: Engine, tally: Tally, limits: Limits, memory_limit: int
) -> Iterator[T]:
    """Collect each unit's rows, bound them with the tally's secret, and yield ``function`` of every shard."""

    def run_shard(atoms: Atoms) -> T:
        return function(bound_contributions(atoms, limits, tally.key, tally.group_words))

    with Shards(key=int.from_bytes(tally.key[:8], "little"), memory_limit=memory_limit) as shards:
        shards.collect(engine, tally.read_atoms, tally.columns)
        yield from run_parallel(run_shard, shards, threads=shards.threads)
