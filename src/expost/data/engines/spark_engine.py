"""The engine of Spark data frames: functions run on the executors, and only merged results come back."""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import hashlib
import importlib
import itertools
import logging
import operator
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from expost.data.bounding import Atoms
from expost.data.canonical_cell import Kind
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for
from expost.data.engines.spark_task import FoldRows, FoldUnits, MergeResults, Result, SplitUnits, copy_batches
from expost.data.expression import Expression
from expost.data.pushed_filter import push_filter
from expost.data.source_identity import SourceIdentity, identify_addresses
from expost.data.source_version import Version, file_version
from expost.data.unit_shard import MEMORY_LIMIT

__all__ = ["SparkEngine"]

T = TypeVar("T")

_ROW = "part int, tasks int, homes binary, result binary"
_FEW_TASKS = 32  # results that one task merges
_FAN_IN = 16  # results that one task merges if there are more
_COSTLY = ("Exchange", "EvalPython", "InArrow", "InPandas", "MapPartitions")
_ADVICE = (
    "This Spark frame shuffles rows or runs Python, and it is computed again for every pass over them. "
    "Call frame.persist() before Dataset(frame), or write the frame to Parquet and read that."
)
_MOST_STATUSES = 64  # files whose size and time of change are read
_SIGNS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class SparkEngine(Engine):
    """Runs functions over the batches of a Spark data frame, on the executors.

    Each pass is one query. Every task merges its results into one, and a tree of tasks merges those, so that one result
    comes back whatever the number of rows. To bound contributions, rows are reduced to integers where they lie, and
    shuffled by a keyed hash of their unit. Functions, models and secrets reach the executors by a broadcast variable
    (as a file of the session with Spark Connect), not in the query plan.

    The frame is computed again for every pass, so it must give the same rows each time: read a table that does not
    change, or persist the frame, which also saves the time. This package must be installed on the executors too.

    Use ``Dataset(spark.read.parquet("flights"))``, which picks the engine.
    """

    distributed = True

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._schema = frame.limit(0).toArrow().schema.remove_metadata()
        self._tasks = _FEW_TASKS + 1  # unknown before the first pass
        self._passes = itertools.count(1)  # shared with narrower engines

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        with _silence_logs(self._frame):
            parts = self._select(columns).mapInArrow(copy_batches, "result binary")
            for row in parts.toLocalIterator(prefetchPartitions=True):
                with pa.ipc.open_stream(bytes(row["result"])) as reader:
                    for batch in reader:
                        yield from pa.Table.from_batches([batch]).to_batches(max_chunksize=rows_per_batch)

    def reduce(self, function: Callable[[pa.RecordBatch], T], merge: Callable[[T, T], T], columns: Sequence[str]) -> T:
        with _silence_logs(self._frame), _Program(self._frame, (function, merge)) as program:
            fold = FoldRows(program.address, batch_rows_for(len(columns)))
            found = self._merge(self._select(columns).mapInArrow(fold, _ROW), MergeResults(program.address))
        return function(self._empty_batch(columns)) if found is None else found.read()

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
        with _silence_logs(self._frame), _Program(self._frame, (function, merge, key, secret)) as program:
            split = SplitUnits(program.address, batch_rows_for(len(columns)))
            # Without a number of partitions, adaptive execution may join small ones; it never divides one.
            apart = self._select(columns).mapInArrow(split, _ROW).repartition("part")
            folded = apart.mapInArrow(FoldUnits(program.address, memory_limit), _ROW)
            found = self._merge(folded, MergeResults(program.address))
        return function(key(self._empty_batch(columns))) if found is None else found.read()

    def narrow(self, condition: Expression) -> Engine:
        kinds = {each.name: kind for each in self._schema if (kind := _filtered_kind(each.type)) is not None}
        with _silence_logs(self._frame):
            found = push_filter(condition, kinds, _ColumnWriter(self._frame))
            if found is None:
                return self
            narrow = copy.copy(self)
            narrow._frame = self._frame.filter(found)
        return narrow

    def identity(self) -> SourceIdentity:
        return identify_addresses(self._schema, self._list_files())

    def version(self) -> Version:
        """Return the version of the files that the frame reads; that of other tables is unknown.

        Files here are compared as by engines of this process; of others elsewhere their sizes and times of change.
        """
        files = self._list_files()
        near = [unquote(urlsplit(each).path) for each in files if urlsplit(each).scheme in ("", "file")]
        if not files or (len(near) < len(files) and _find_context(self._frame.sparkSession) is None):
            return (None,)
        facts = "" if len(near) == len(files) else repr((files, self._read_statuses(files)))
        return (*file_version(near), hashlib.sha256(facts.encode()).hexdigest())

    def _list_files(self) -> list[str]:
        """Return the addresses of the files in the frame's plan. No row is read."""
        try:
            return [str(address) for address in self._frame.inputFiles()]
        except Exception:  # a remote session may not know them
            return []

    def _read_statuses(self, files: Sequence[str]) -> list[tuple[int, int]]:
        """Return size and time of change of some files, as the file systems of Spark know them."""
        session = self._frame.sparkSession
        settings, found = session._jsparkSession.sessionState().newHadoopConf(), []
        for address in files[:: 1 + len(files) // _MOST_STATUSES]:
            path = session._jvm.org.apache.hadoop.fs.Path(address)
            status = path.getFileSystem(settings).getFileStatus(path)
            found.append((int(status.getLen()), int(status.getModificationTime())))
        return found

    def _select(self, columns: Sequence[str]) -> Any:
        """Return the frame's columns. One without columns has batches without rows, so at least one is read."""
        if next(self._passes) == 2 and _is_costly(self._frame):
            warnings.warn(_ADVICE, UserWarning, stacklevel=2)
        names = columns or self._schema.names[:1]
        return self._frame.select(*("`" + column.replace("`", "``") + "`" for column in names))

    def _merge(self, results: Any, merge: MergeResults) -> Result | None:
        """Merge the results of all tasks in a tree, and return the only one that is left; None if there were no rows."""
        if self._tasks > _FEW_TASKS:
            # Without a number of partitions, adaptive execution joins those of small results.
            groups = results.selectExpr(f"part div {_FAN_IN} as part", "tasks", "homes", "result")
            results = groups.repartition("part").mapInArrow(merge, _ROW)
        rows = results.repartition(1).mapInArrow(merge, _ROW).collect()
        if not rows:
            return None
        self._tasks = int(rows[0]["tasks"])
        return Result.of(rows[0].asDict())


def _is_costly(frame: Any) -> bool:
    """Return whether a frame that is not kept shuffles rows or runs Python for each of them, as its plan shows."""
    try:
        if frame.storageLevel.useMemory or frame.storageLevel.useDisk:
            return False
        plan = str(frame._jdf.queryExecution().executedPlan())
    except Exception:  # a remote session does not show it
        return False
    return any(word in plan for word in _COSTLY)


class _ColumnWriter:
    """Writes a filter as a column of a frame, so that no text has to be quoted."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def _name(self, column: str) -> Any:
        return self._frame["`" + column.replace("`", "``") + "`"]

    def compare(self, column: str, sign: str, value: Any) -> Any:
        return _SIGNS[sign](self._name(column), _as_spark(value))

    def contain(self, column: str, values: tuple[Any, ...]) -> Any:
        return self._name(column).isin(list(map(_as_spark, values)))

    def be_present(self, column: str) -> Any:
        return self._name(column).isNotNull()

    def combine(self, sign: str, parts: list[Any]) -> Any:
        return functools.reduce(operator.and_ if sign == "AND" else operator.or_, parts)


def _as_spark(value: Any) -> Any:
    """Return a constant as Spark takes it: a time without a zone would mean the zone of the session."""
    return value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value


def _filtered_kind(stored: pa.DataType) -> Kind | None:
    """Return the kind of a column that Spark compares as this package does, None for another."""
    if pa.types.is_timestamp(stored):
        return Kind.TIME if stored.tz is not None else None
    exact = pa.types.is_integer(stored) or pa.types.is_float64(stored) or pa.types.is_boolean(stored)
    kind = Kind.of(stored)
    return kind if exact or kind is Kind.TEXT else None


class _Program:
    """Functions that executors run, with what they know: broadcast while a query runs, and deleted after it."""

    def __init__(self, frame: Any, functions: tuple[Any, ...]) -> None:
        self._session = frame.sparkSession
        # Functions of the caller, such as the classes of a notebook, need not be importable on the executors.
        self._content = importlib.import_module("pyspark.cloudpickle").dumps(functions)
        self._variable: Any = None
        self.address: Any = None

    def __enter__(self) -> _Program:
        context = _find_context(self._session)
        if context is not None:
            self._variable = self.address = context.broadcast(self._content)
            return self
        with tempfile.TemporaryDirectory(prefix="expost-") as folder:
            path = Path(folder) / f"expost-{uuid.uuid4().hex}"
            path.write_bytes(self._content)
            self._session.addArtifact(str(path), file=True)
            self.address = path.name
        return self

    def __exit__(self, *failure: object) -> None:
        if self._variable is not None:
            self._variable.destroy()


def _find_context(session: Any) -> Any:
    """Return the context of a session in this process, None for a remote one."""
    try:
        return session.sparkContext
    except Exception:  # a remote session refuses
        return None


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
