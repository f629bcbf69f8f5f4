"""The contract of an engine, and what engines share: batch sizes, threads, and canonical cells."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

import pyarrow as pa

from expost.data.canonical_cell import canonical_batch, canonical_schema
from expost.data.source_identity import SourceIdentity
from expost.data.source_version import Version

__all__ = [
    "ROWS_PER_BATCH",
    "CanonicalEngine",
    "Engine",
    "batch_rows_for",
    "count_workers",
    "quote_name",
    "run_parallel",
]

S = TypeVar("S")
T = TypeVar("T")

ROWS_PER_BATCH = 1 << 17
"""The most rows of one batch: safe for exact sums of steps in floats."""

_FEWEST_ROWS, _MOST_ROWS, _VALUES = 1 << 14, 1 << 16, 1 << 20


class Engine(Protocol):
    """Reads one table. Order, batches and threads are up to the engine and never change a total.

    Everything that is computed from rows is a sum over batches of a pure function, so these three members suffice. A
    subclass that defines ``schema`` and ``batches`` inherits a ``map`` that runs in a few threads. Refuse a source that
    cannot be read with ``InvalidRequest`` in the constructor, where it costs nothing: an error while rows are read is
    replaced by ``EngineFailed``, and the worst case stays charged.
    """

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
        rows. Passes of several threads may overlap, and a caller may stop before the last batch.
        """
        ...

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        """Yield ``function`` of every batch, each batch once, in any order. The function is pure and may run anywhere.

        Texts may be dictionary encoded, whatever the schema says: functions decode them.
        """
        return run_parallel(function, self.batches(columns, rows_per_batch=batch_rows_for(len(columns))))

    def identity(self) -> SourceIdentity:
        """Return what a ledger recognises the source by: its columns, unless the engine knows more. It is cheap."""
        return SourceIdentity.of_schema(self.schema)

    def version(self) -> Version:
        """Return what differs after the source was changed, read without reading its rows; empty if unknown."""
        return ()


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

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        # Functions read columns by ``decode_column``, and those that group by texts profit from dictionaries.
        return self._engine.map(lambda batch: function(canonical_batch(batch, decode=False)), columns)

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
            return ("unreadable",)


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
    """Yield ``function`` of each item from a pool of threads, in order."""
    pool = ThreadPoolExecutor(count, thread_name_prefix="expost")
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
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
