"""The measured steps of single rows, and the keys that occur: what quantiles and unknown groups need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.axis import stored_integers
from expost.data.bounding import Limits, bound
from expost.data.engines import Engine
from expost.data.evaluate import evaluate
from expost.data.identity import unit_words
from expost.data.shards import Shards
from expost.data.tally import Tally
from expost.data.values import Numbers, Texts, Times, Truths

__all__ = ["found_keys", "single_steps"]

_FIRST_DAY, _LAST_DAY = np.datetime64("0001-01-01", "us"), np.datetime64("9999-12-31", "us")
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
    whole = stored_integers(expression, batch, tally.derived)
    if whole is not None:
        return set(pc.unique(whole.filter(pa.array(kept)).drop_null()).to_pylist())
    values = evaluate(expression, batch, tally.derived)
    kept &= ~values.missing
    if isinstance(values, Texts):
        return set(pc.unique(values.texts.filter(pa.array(kept))).to_pylist())
    if isinstance(values, Times):
        inside = (values.moments >= _FIRST_DAY) & (values.moments < _LAST_DAY)  # other years have no Python value
        return set(np.unique(values.moments[kept & inside]).tolist())
    column = values.numbers if isinstance(values, Numbers) else values.true
    return set(np.unique(column[kept]).tolist())
