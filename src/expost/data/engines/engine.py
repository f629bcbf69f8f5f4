"""The contract of an engine, and what engines share: batch sizes, threads, and canonical cells."""

from __future__ import annotations

import itertools
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from expost.data.bounding import Atoms
from expost.data.canonical_cell import canonical_batch, canonical_schema
from expost.data.expression import Expression
from expost.data.source_identity import SourceIdentity
from expost.data.source_version import Version
from expost.data.unit_shard import MEMORY_LIMIT, Shards, show_progress

__all__ = [
    "ROWS_PER_BATCH",
    "CanonicalEngine",
    "Engine",
    "batch_rows_for",
    "count_workers",
    "fold_results",
    "quote_name",
    "run_parallel",
]

S = TypeVar("S")
T = TypeVar("T")

ROWS_PER_BATCH = 1 << 17
"""The most rows of one batch: safe for exact sums of steps in floats."""

_FEWEST_ROWS, _MOST_ROWS, _VALUES = 1 << 14, 1 << 16, 1 << 20


class Engine(Protocol):
    """Reads one table. Order, batches and threads are up to the engine and never change a result.

    Everything that is computed from rows is one of two operations. ``reduce`` merges the results of a pure function of
    batches. ``by_unit`` brings the rows of each unit together first. A subclass that defines ``schema`` and ``batches``
    inherits both, in a few threads of this process. Refuse a source that cannot be read with ``InvalidRequest`` in the
    constructor, where it costs nothing: an error while rows are read is replaced by ``EngineFailed``, and the worst case
    stays charged.
    """

    distributed: bool = False
    """Whether rows lie elsewhere: results should come here, and not the rows."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Names and types of the columns, read without reading rows if the source allows it. No cell decides a type."""
        ...

    @abstractmethod
    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the named columns, each row once, in batches of at most ``rows_per_batch`` rows.

        A batch has the named columns in this order, with the types of ``schema``; cells that do not fit are null. Without
        columns, batches may have any columns, but must still have the right numbers of rows. Every pass reads the same
        rows. Passes of several threads may overlap, and a caller may stop before the last batch. All rows come to this
        process, so queries and models call ``reduce`` and ``by_unit`` instead.
        """
        ...

    def reduce(self, function: Callable[[pa.RecordBatch], T], merge: Callable[[T, T], T], columns: Sequence[str]) -> T:
        """Return the merged results of ``function`` of all batches; of one batch without rows if there are none.

        Both functions are pure and may be pickled and run anywhere, several times. ``merge`` is associative and
        commutative in every bit, and the result must not depend on where batches end. Texts may be dictionary encoded and
        floats narrow, whatever the schema says: functions decode them.
        """
        with show_progress() as tick:
            return fold_results(
                merge, self.scan(function, columns), otherwise=lambda: function(self._empty_batch(columns)), tick=tick
            )

    def by_unit(
        self,
        key: Callable[[pa.RecordBatch], Atoms],
        function: Callable[[Atoms], T],
        columns: Sequence[str],
        *,
        merge: Callable[[T, T], T],
        secret: bytes,
        memory_limit: int = MEMORY_LIMIT,
    ) -> T:
        """Return the merged results of ``function`` of parts of the rows. Each part has all rows of its units.

        ``key`` reduces a batch to the words that name each row's unit, and what else the function needs. ``secret``
        decides which units are in one part, so that nobody can choose ids that make one part long. Beyond
        ``memory_limit`` bytes, rows wait in temporary files. The functions are as for ``reduce``.
        """
        with Shards(key=int.from_bytes(secret[:8], "little"), memory_limit=memory_limit) as shards:
            with show_progress() as tick:
                for part in self.scan(_Chained(key, shards.prepare), columns):
                    shards.store(part)
                    tick()
            results = run_parallel(function, shards, threads=shards.threads)
            return fold_results(merge, results, otherwise=lambda: function(key(self._empty_batch(columns))))

    def narrow(self, condition: Expression) -> Engine:
        """Return an engine of the same rows, or without some of those for which a filter of stored columns does not hold.

        The caller filters what is left, so an engine pushes down what it can, and none of it by default.
        """
        return self

    def scan(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        """Yield ``function`` of every batch, each batch once, in any order, in threads of this process.

        Engines in this process override it where they can read in parallel; nothing else calls it.
        """
        return run_parallel(function, self.batches(columns, rows_per_batch=batch_rows_for(len(columns))))

    def identity(self) -> SourceIdentity:
        """Return what a ledger recognises the source by: its columns, unless the engine knows more. It is cheap."""
        return SourceIdentity.of_schema(self.schema)

    def version(self) -> Version:
        """Return what differs after the source was changed, read without reading its rows; empty if unknown."""
        return ()

    def mark(self) -> str | None:
        """Return a public text of the version that was opened, equal in all processes; None if only this one has it."""
        return None

    def _empty_batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return a batch of the named columns without rows."""
        return pa.RecordBatch.from_pylist([], schema=pa.schema([self.schema.field(name) for name in columns]))


@dataclass(frozen=True)
class _Chained(Generic[S, T]):
    """Two functions one after the other. Unlike a lambda it can be pickled."""

    first: Callable[[pa.RecordBatch], S]
    then: Callable[[S], T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        return self.then(self.first(batch))


class CanonicalEngine(Engine):
    """Wraps an engine so that schema and cells are canonical (``expost.data.canonical_cell``).

    ``open_source`` wraps every engine, so a ``Dataset`` never reads a cell in another form.

    >>> from expost.data.engines.arrow_engine import ArrowEngine
    >>> engine = CanonicalEngine(ArrowEngine(pa.table({"x": pa.array([-0.0, 1.0], pa.float32())})))
    >>> engine.schema.field("x").type, [batch.column(0).to_pylist() for batch in engine.batches(["x"])]
    (DataType(double), [[0.0, 1.0]])
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._schema = canonical_schema(engine.schema)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def stored_schema(self) -> pa.Schema:
        """Names, types and metadata of the columns as the source stores them."""
        return self._engine.schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for batch in self._engine.batches(columns, rows_per_batch=rows_per_batch):
            yield canonical_batch(batch)

    @property
    def distributed(self) -> bool:  # type: ignore[override]
        """Whether rows lie elsewhere."""
        return self._engine.distributed

    def reduce(self, function: Callable[[pa.RecordBatch], T], merge: Callable[[T, T], T], columns: Sequence[str]) -> T:
        return self._engine.reduce(_Chained(_make_canonical, function), merge, columns)

    def by_unit(
        self,
        key: Callable[[pa.RecordBatch], Atoms],
        function: Callable[[Atoms], T],
        columns: Sequence[str],
        *,
        merge: Callable[[T, T], T],
        secret: bytes,
        memory_limit: int = MEMORY_LIMIT,
    ) -> T:
        canonical = _Chained(_make_canonical, key)
        return self._engine.by_unit(canonical, function, columns, merge=merge, secret=secret, memory_limit=memory_limit)

    def narrow(self, condition: Expression) -> Engine:
        found = self._engine.narrow(condition) if hasattr(self._engine, "narrow") else self._engine
        return self if found is self._engine else CanonicalEngine(found)

    def scan(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        return self._engine.scan(_Chained(_make_canonical, function), columns)

    def identity(self) -> SourceIdentity:
        plain = SourceIdentity.of_schema(self._schema)
        try:
            # An engine of the caller need not have the method.
            return (
                replace(self._engine.identity(), columns=plain.columns) if hasattr(self._engine, "identity") else plain
            )
        except Exception:  # the message of another library may repeat a cell
            return plain

    def version(self) -> Version:
        try:
            return self._engine.version() if hasattr(self._engine, "version") else ()
        except Exception:  # the message of another library may repeat a cell
            return (f"unreadable {time.monotonic_ns()}",)  # differs from every other version

    def mark(self) -> str | None:
        return self._engine.mark() if hasattr(self._engine, "mark") else None


def _make_canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Make cells canonical. Functions decode dictionaries and narrow floats themselves, where that is not needed at all."""
    return canonical_batch(batch, decode=False)


def fold_results(
    merge: Callable[[T, T], T],
    results: Iterable[T],
    *,
    otherwise: Callable[[], T],
    tick: Callable[[], None] = lambda: None,
) -> T:
    """Merge results as they come and call ``tick`` after each; return ``otherwise()`` if there are none.

    >>> fold_results(max, [2, 3, 1], otherwise=int)
    3
    """
    merged: list[T] = []
    for result in results:
        merged = [merge(merged[0], result)] if merged else [result]
        tick()
    return merged[0] if merged else otherwise()


def batch_rows_for(columns: int) -> int:
    """Return the rows of a batch with this many columns: at most a million values, which stay in the processor's cache.

    Columns of more than 2^16 numbers are slower: the memory of each array is then mapped and cleared again.
    """
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _VALUES // max(columns, 1)))


def count_workers() -> int:
    """Return the number of threads to use: the processors available to this process, at most eight."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def run_parallel(function: Callable[[S], T], items: Iterable[S], *, threads: int | None = None) -> Iterator[T]:
    """Return ``function`` of each item, in order and lazily. At most two items per thread are pending, so memory stays bounded.

    If the caller stops early or is interrupted, items that were not started are cancelled.

    >>> list(run_parallel(abs, [-1, -2, 3], threads=2))
    [1, 2, 3]
    """
    count = count_workers() if threads is None else threads
    return map(function, items) if count == 1 else _run_threads(function, items, count)


def _run_threads(function: Callable[[S], T], items: Iterable[S], count: int) -> Iterator[T]:
    """Yield ``function`` of each item from a pool of threads, in order. One item alone needs no thread."""
    rest = iter(items)
    first = list(itertools.islice(rest, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    pool = ThreadPoolExecutor(count, thread_name_prefix="expost")
    waiting: deque[Future[T]] = deque()
    try:
        for item in itertools.chain(first, rest):
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def quote_name(column: str) -> str:
    """Return a column name as an SQL identifier."""
    return '"' + column.replace('"', '""') + '"'
