"""The measured steps of single rows, and the keys that occur: what quantiles and unknown groups need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.bounding import Limits, bound
from expost.data.engines import Engine
from expost.data.evaluate import cells, evaluate
from expost.data.identity import unit_words
from expost.data.places import missing_cells
from expost.data.shards import Shards
from expost.data.tally import Tally
from expost.data.values import Truths

__all__ = ["found_keys", "single_steps"]

_STEP_BITS = 32  # steps and cells are both below 2^32 (2^31), so a pair fits in 64 bits and sorts as one word


def single_steps(
    engine: Engine, tally: Tally, limits: Limits | None, secret: bytes, *, memory_limit: int
) -> list[NDArray[np.int64]]:
    """The steps of the tally's one measured column, row by row and cell by cell: whoever calls this must seal them."""
    if limits is None:
        kept = list(engine.map(tally.atoms, tally.columns))
    else:
        with Shards(key=int.from_bytes(secret[:8], "little"), memory_limit=memory_limit) as shards:
            kept = [bound(shard, limits, secret) for shard in shards.collect(engine, tally.atoms, tally.columns)]
    parts = [(each.cell, each.steps[0]) for each in kept]
    cell = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)]).astype(np.int64)
    steps = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)]).astype(np.int64)
    # Sorted, so that neither order nor chunking shows.
    ordered = np.sort((cell << _STEP_BITS) + steps)
    ends = np.cumsum(np.bincount(cell, minlength=tally.cells))[:-1]
    return np.split(ordered & ((1 << _STEP_BITS) - 1), ends)


def found_keys(engine: Engine, tally: Tally, expression: Any) -> list[Any]:
    """The different values of an expression among the rows that count, in order; secret."""
    found: set[Any] = set()
    for keys in engine.map(lambda batch: _keys(tally, expression, batch), tally.columns):
        found |= keys
    return sorted(found)


def _keys(tally: Tally, expression: Any, batch: pa.RecordBatch) -> set[Any]:
    kept = np.ones(batch.num_rows, bool)
    if tally.where is not None:
        condition = evaluate(tally.where, batch, tally.derived)
        kept &= condition.certain if isinstance(condition, Truths) else False
    if not tally.unit.is_row:
        kept &= unit_words(tally.unit, batch, tally.derived, b"")[1]  # nobody's rows open no group
    # One equality for finding a key and for counting its rows: that of canonical cells.
    column = cells(expression, batch, tally.derived)
    kept &= ~missing_cells(column)
    return set(pc.unique(column.filter(pa.array(kept))).to_pylist())
