"""Spark data frames: batches are worked on where they are, and only what a function makes of them comes back."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from expost.data.engines.contract import ROWS_PER_BATCH, rows_for

__all__ = ["SparkEngine"]

T = TypeVar("T")

_RESULT = "result binary"


class SparkEngine:
    """Runs functions over the batches of a Spark data frame, on the executors.

    The frame is computed anew for every pass, so it must give the same rows each time: read a table that does not change,
    or persist the frame. The package must be installed on the executors too. Results come back one partition at a time.

    Use ``Dataset(spark.read.parquet("flights"))``, which picks the engine.
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._schema = frame.limit(0).toArrow().schema.remove_metadata()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for part in self._results(_to_bytes, columns, rows_per_batch):
            with pa.ipc.open_stream(part) as reader:
                yield from reader

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        for part in self._results(lambda batch: pickle.dumps(function(batch)), columns, rows_for(len(columns))):
            yield pickle.loads(part)  # made by our own function, on our own executors

    def _results(
        self, function: Callable[[pa.RecordBatch], bytes], columns: Sequence[str], rows: int
    ) -> Iterator[bytes]:
        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for start in range(0, batch.num_rows, rows):
                    result = function(batch.slice(start, rows))
                    yield pa.record_batch({"result": pa.array([result], pa.binary())})

        # A frame without columns has batches without rows: one column is always read.
        chosen = self._frame.select(*(_name(column) for column in columns or self._schema.names[:1]))
        with _silent(self._frame):
            for row in chosen.mapInArrow(run, _RESULT).toLocalIterator(prefetchPartitions=True):
                yield bytes(row["result"])


@contextlib.contextmanager
def _silent(frame: Any) -> Iterator[None]:
    """Keep Spark's loggers quiet while rows are read: the log of a task that fails repeats the cell on which it failed.

    Reads that overlap are counted; the last one to end puts the levels back. A remote session (Spark Connect) logs on its
    server, out of reach from here.
    """
    log4j = _log4j(frame)
    with _LOCK:
        if not _QUIET.reads:
            _QUIET.levels = {} if log4j is None else _set_levels(log4j, None)
            _QUIET.enabled = [logger for logger in _python_loggers() if not logger.disabled]
            for logger in _QUIET.enabled:
                logger.disabled = True
        _QUIET.reads += 1
    try:
        yield
    finally:
        with _LOCK:
            _QUIET.reads -= 1
            if not _QUIET.reads:
                for logger in _QUIET.enabled:
                    logger.disabled = False
                if log4j is not None:
                    _set_levels(log4j, _QUIET.levels)


class _Quiet:
    """How many reads are under way, and the levels that loggers had before."""

    def __init__(self) -> None:
        self.reads = 0
        self.levels: dict[str, Any] = {}
        self.enabled: list[logging.Logger] = []


_LOCK, _QUIET = threading.Lock(), _Quiet()


def _python_loggers() -> list[logging.Logger]:
    """The loggers to which Spark 4 writes the text of every error, which repeats the cell, before it raises it."""
    try:
        kind = importlib.import_module("pyspark.logger").PySparkLogger
    except (ImportError, AttributeError):  # Spark 3 has none
        return []
    return [kind.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]


def _log4j(frame: Any) -> Any:
    """The logging package of the Java process, or None where there is none."""
    try:
        log4j = frame.sparkSession.sparkContext._jvm.org.apache.logging.log4j
        log4j.LogManager.getContext(False).getConfiguration()
    except Exception:  # a remote session
        return None
    return log4j


def _set_levels(log4j: Any, levels: dict[str, Any] | None) -> dict[str, Any]:
    """Set the level of every configured logger, or turn all off, and return the levels they had."""
    context, before = log4j.LogManager.getContext(False), {}
    for logger in context.getConfiguration().getLoggers().values():
        name = logger.getName()
        before[name] = logger.getLevel()
        # Fields of Java objects are read from their class: on an object they would be taken for methods.
        level = log4j.Level.OFF if levels is None else levels.get(name)
        if level is not None:
            logger.setLevel(level)
    context.updateLoggers()
    return before


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
