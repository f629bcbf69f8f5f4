"""The engine of Spark data frames: functions run on the executors, and only their results come back."""

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

from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for
from expost.data.source_identity import SourceIdentity, identify_addresses

__all__ = ["SparkEngine"]

T = TypeVar("T")

_RESULT = "result binary"


class SparkEngine(Engine):
    """Runs functions over the batches of a Spark data frame, on the executors.

    The frame is computed again for every pass, so it must give the same rows each time: read a table that does not
    change, or persist the frame. This package must be installed on the executors too. Results come back one partition
    at a time.

    Use ``Dataset(spark.read.parquet("flights"))``, which picks the engine.
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._schema = frame.limit(0).toArrow().schema.remove_metadata()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for part in self._run_on_executors(_batch_to_bytes, columns, rows_per_batch):
            with pa.ipc.open_stream(part) as reader:
                yield from reader

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        rows = batch_rows_for(len(columns))
        for part in self._run_on_executors(lambda batch: pickle.dumps(function(batch)), columns, rows):
            yield pickle.loads(part)  # written by our own function, on our own executors

    def identity(self) -> SourceIdentity:
        try:
            files = [str(address) for address in self._frame.inputFiles()]  # from the plan; no row is read
        except Exception:  # a remote session may not know them
            files = []
        return identify_addresses(self._schema, files)

    def _run_on_executors(
        self, function: Callable[[pa.RecordBatch], bytes], columns: Sequence[str], rows: int
    ) -> Iterator[bytes]:
        """Yield ``function`` of every batch of at most ``rows`` rows."""

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for start in range(0, batch.num_rows, rows):
                    result = function(batch.slice(start, rows))
                    yield pa.record_batch({"result": pa.array([result], pa.binary())})

        # A frame without columns has batches without rows: always read at least one column.
        names = columns or self._schema.names[:1]
        chosen = self._frame.select(*("`" + column.replace("`", "``") + "`" for column in names))
        with _silence_logs(self._frame):
            for row in chosen.mapInArrow(run, _RESULT).toLocalIterator(prefetchPartitions=True):
                yield bytes(row["result"])


@contextlib.contextmanager
def _silence_logs(frame: Any) -> Iterator[None]:
    """Turn Spark's loggers off while rows are read: the log of a failed task repeats the cell on which it failed.

    Overlapping reads are counted, and the last one to end restores the levels. A remote session (Spark Connect) logs on
    its server, which cannot be changed from here.
    """
    log4j = _find_log4j(frame)
    with _LOCK:
        if not _QUIET.reads:
            _QUIET.levels = {} if log4j is None else _set_levels(log4j, None)
            _QUIET.enabled = [logger for logger in _find_python_loggers() if not logger.disabled]
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
    """The number of reads in progress, and the levels that loggers had before."""

    def __init__(self) -> None:
        self.reads = 0
        self.levels: dict[str, Any] = {}
        self.enabled: list[logging.Logger] = []


_LOCK, _QUIET = threading.Lock(), _Quiet()


def _find_python_loggers() -> list[logging.Logger]:
    """Return the loggers to which Spark 4 writes every error, including the cell, before it raises it."""
    try:
        kind = importlib.import_module("pyspark.logger").PySparkLogger
    except (ImportError, AttributeError):  # Spark 3 does not have them
        return []
    return [kind.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]


def _find_log4j(frame: Any) -> Any:
    """Return the logging package of the Java process, or None for a remote session."""
    try:
        log4j = frame.sparkSession.sparkContext._jvm.org.apache.logging.log4j
        log4j.LogManager.getContext(False).getConfiguration()
    except Exception:  # the session is remote
        return None
    return log4j


def _set_levels(log4j: Any, levels: dict[str, Any] | None) -> dict[str, Any]:
    """Set the level of every configured logger, or turn all off (None). Return the levels they had."""
    context, before = log4j.LogManager.getContext(False), {}
    for logger in context.getConfiguration().getLoggers().values():
        name = logger.getName()
        before[name] = logger.getLevel()
        # Read Java fields from the class: on an object py4j takes them for methods.
        level = log4j.Level.OFF if levels is None else levels.get(name)
        if level is not None:
            logger.setLevel(level)
    context.updateLoggers()
    return before


def _batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    """Serialize a batch as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
