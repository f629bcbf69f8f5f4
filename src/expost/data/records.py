"""The measured steps of single rows, and the rows of each group: what quantiles and unknown groups need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.data.atoms import Atoms
from expost.data.bounding import Limits, bound
from expost.data.engines import Engine
from expost.data.engines.parallel import in_parallel
from expost.data.shards import Shards
from expost.data.tally import Tally

__all__ = ["rows_per_cell", "single_steps"]

_STEP_BITS = 32  # steps and cells are both below 2^32 (2^31), so a pair fits in 64 bits and sorts as one word


def single_steps(
    engine: Engine, tally: Tally, limits: Limits | None, secret: bytes, *, memory_limit: int
) -> list[NDArray[np.int64]]:
    """The steps of the tally's one measured column, row by row and cell by cell: whoever calls this must seal them."""
    kept = _kept(engine, tally, limits, secret, memory_limit)
    parts = [(each.cell, each.steps[0]) for each in kept]
    cell = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)]).astype(np.int64)
    steps = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)]).astype(np.int64)
    # Sorted, so that neither order nor chunking shows.
    ordered = np.sort((cell << _STEP_BITS) + steps)
    ends = np.cumsum(np.bincount(cell, minlength=tally.cells))[:-1]
    return np.split(ordered & ((1 << _STEP_BITS) - 1), ends)


def rows_per_cell(
    engine: Engine, tally: Tally, limits: Limits | None, secret: bytes, *, memory_limit: int
) -> NDArray[np.int64]:
    """The number of rows in each cell after contribution bounding. There may be many cells: each part has few of them."""
    rows = np.zeros(tally.cells, np.int64)
    for atoms in _kept(engine, tally, limits, secret, memory_limit):
        cells, counts = np.unique(atoms.cell, return_counts=True)
        rows[cells] += counts
    return rows


def _kept(engine: Engine, tally: Tally, limits: Limits | None, secret: bytes, memory_limit: int) -> Iterator[Atoms]:
    """The rows that count after contribution bounding, part by part."""
    if limits is None:
        yield from engine.map(tally.atoms, tally.columns)
        return
    with Shards(key=int.from_bytes(secret[:8], "little"), memory_limit=memory_limit) as shards:
        shards.collect(engine, tally.atoms, tally.columns)
        bounded = partial(bound, limits=limits, secret=secret, group_words=tally.group_words)
        yield from in_parallel(bounded, shards, threads=shards.threads)
