"""Feature rows as floats, after contribution bounding, for the rooms that learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data.atoms import Atoms
from expost.data.bounding import Limits, bound
from expost.data.clamp import Clamp
from expost.data.engines import Engine
from expost.data.shards import Shards
from expost.data.tally import Tally

__all__ = ["matrix_batches"]

Floats = NDArray[np.float64]


def matrix_batches(
    engine: Engine,
    tally: Tally,
    clamps: Sequence[Clamp | None],
    limits: Limits | None,
    secret: bytes,
    *,
    rows_per_batch: int,
    memory_limit: int,
) -> Iterator[Floats]:
    """Blocks of at most ``rows_per_batch`` rows, one column a measured expression of the tally."""

    def read(batch: pa.RecordBatch) -> Atoms:
        return _read(tally, clamps, batch)

    if limits is None:
        blocks = engine.map(read, tally.columns)
    else:
        blocks = _bounded(engine, read, tally.columns, limits, secret, memory_limit)
    for atoms in blocks:
        floats = _floats(atoms)
        for start in range(0, len(floats), rows_per_batch):
            yield floats[start : start + rows_per_batch]


def _bounded(
    engine: Engine,
    read: Callable[[pa.RecordBatch], Atoms],
    columns: Sequence[str],
    limits: Limits,
    secret: bytes,
    memory_limit: int,
) -> Iterator[Atoms]:
    with Shards(key=int.from_bytes(secret[:8], "little"), memory_limit=memory_limit) as shards:
        for shard in shards.collect(engine, read, columns):
            yield bound(shard, limits, secret)


def _read(tally: Tally, clamps: Sequence[Clamp | None], batch: pa.RecordBatch) -> Atoms:
    """The rows of a batch with the bits of their floats in the place of steps: what bounding handles is integers."""
    words, cell, numbers = tally.read(batch)
    columns = [np.array(column, dtype=np.float64) for column in numbers]
    for column, clamp in zip(columns, clamps, strict=True):
        if clamp is not None:
            np.clip(column, float(clamp.low), float(clamp.high), out=column)
    bits = np.ascontiguousarray(np.stack(columns)).view(np.uint32)
    return Atoms(words, cell, bits.reshape(len(columns), -1, 2).transpose(0, 2, 1).reshape(2 * len(columns), -1))


def _floats(atoms: Atoms) -> Floats:
    halves = atoms.steps.astype(np.uint32).reshape(-1, 2, len(atoms)).transpose(2, 0, 1)
    return np.ascontiguousarray(halves).view(np.float64)[:, :, 0]
