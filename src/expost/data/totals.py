"""Exact totals of a tally, with each unit's contribution bounded on the way."""

from __future__ import annotations

from functools import partial, reduce
from operator import add

from expost.data.atoms import Atoms
from expost.data.bounding import Limits, bound
from expost.data.engines import Engine
from expost.data.engines.parallel import in_parallel
from expost.data.progress import with_progress
from expost.data.shards import MEMORY_LIMIT, Shards
from expost.data.sums import PowerSums
from expost.data.tally import Tally

__all__ = ["exact_sums"]


def exact_sums(
    engine: Engine, tally: Tally, limits: Limits | None, secret: bytes, *, memory_limit: int = MEMORY_LIMIT
) -> PowerSums:
    """The power sums of a tally, unsealed: whoever calls this must seal what leaves.

    The same integers whatever the engine, order, chunking and number of threads.
    """
    if limits is None:
        parts = with_progress(engine.map(lambda batch: tally.sums(tally.atoms(batch)), tally.columns))
        return reduce(add, parts, tally.zero())
    key = int.from_bytes(secret[:8], "little")
    with Shards(key=key, memory_limit=memory_limit) as shards:
        shards.collect(engine, tally.atoms, tally.columns)
        bounded = in_parallel(partial(_bounded_sums, tally, limits, secret), shards, threads=shards.threads)
        return reduce(add, bounded, tally.zero())


def _bounded_sums(tally: Tally, limits: Limits, secret: bytes, atoms: Atoms) -> PowerSums:
    return tally.sums(bound(atoms, limits, secret, tally.group_words))
