"""What a Spark task does with its batches. A query plan holds these objects only; functions and secrets come separately."""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expost.data.bounding import Atoms
from expost.data.engines.engine import fold_results
from expost.data.unit_identity import mix_words
from expost.data.unit_shard import Shards

__all__ = ["FoldRows", "FoldUnits", "MergeResults", "Result", "SplitUnits", "copy_batches"]

Batches = Iterable[pa.RecordBatch]

_SHARD_BITS = 10  # of the hash by which units are shuffled: several shards per task, so that tasks are about even
_BUFFERED_ROWS = 1 << 20  # rows that a task reduces before it sends them to their shards
_BUFFERED_BYTES = 1 << 26
_SENT_BYTES = 1 << 22  # of a batch of shards: one batch for each would cost more than its rows
_JOINED = 256  # parts of shards that a task joins before it sorts them
_TASK_MEMORY = 1 << 28  # bytes of rows that a task sorts in memory
_OTHER_KEY = 0x9E3779B97F4A7C15  # sorts the rows of a task independently of how they came there
_SCHEMA = pa.schema([("part", pa.int32()), ("tasks", pa.int32()), ("homes", pa.binary()), ("result", pa.binary())])
_NOTHING = object()


@dataclass(frozen=True)
class Result:
    """The merged result of some tasks, and which shards of units they had, one bit each."""

    part: int
    tasks: int
    homes: int
    content: bytes

    @classmethod
    def of(cls, row: dict[str, Any]) -> Result:
        """Read a row of a frame."""
        return cls(row["part"], row["tasks"], int.from_bytes(row["homes"], "little"), bytes(row["result"]))

    def to_batch(self) -> pa.RecordBatch:
        """Write a row of a frame."""
        return _write_rows([self])

    def read(self) -> Any:
        """Return the result. Our own functions wrote it, on our own executors."""
        return pickle.loads(self.content)


def _write_rows(results: list[Result]) -> pa.RecordBatch:
    """Write rows of a frame."""
    rows = [
        (each.part, each.tasks, each.homes.to_bytes((each.homes.bit_length() + 7) // 8, "little"), each.content)
        for each in results
    ]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


@dataclass(frozen=True)
class _Task:
    """Base of tasks: it reads the functions, and hides the messages of errors, which may repeat a cell."""

    address: Any
    """A broadcast variable, or the name of a file of the session."""

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._run(batches, *pickle.loads(self._read_content()))
        except Exception:
            failed = "A function of private rows failed. The message is hidden because it may repeat a cell."
        else:
            return
        raise RuntimeError(failed)  # outside of the handler, so that no log shows what was handled

    def _run(self, batches: Batches, *functions: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows that this task gives."""
        raise NotImplementedError

    def _read_content(self) -> bytes:
        if isinstance(self.address, str):
            return Path(importlib.import_module("pyspark").SparkFiles.get(self.address)).read_bytes()
        content: bytes = self.address.value
        return content


@dataclass(frozen=True)
class FoldRows(_Task):
    """Merges the results of a function of all batches of a task."""

    rows: int
    """The most rows of a batch."""

    def _run(self, batches: Batches, *functions: Any) -> Iterator[pa.RecordBatch]:
        function, merge = functions
        results = map(function, _resize_batches(batches, self.rows))
        merged = fold_results(merge, results, otherwise=lambda: _NOTHING)
        if merged is not _NOTHING:
            yield Result(_task_number(), 1, 0, pickle.dumps(merged, pickle.HIGHEST_PROTOCOL)).to_batch()


@dataclass(frozen=True)
class SplitUnits(_Task):
    """Reduces rows and sorts them by a keyed hash of their unit: one row of the frame for each shard and stretch of rows."""

    rows: int

    def _run(self, batches: Batches, *functions: Any) -> Iterator[pa.RecordBatch]:
        _, _, read, secret = functions
        key, waiting, count, size = int.from_bytes(secret[:8], "little"), [], 0, 0
        for batch in _resize_batches(batches, self.rows):
            atoms = read(batch)
            waiting.append(atoms)
            count, size = count + len(atoms), size + sum(each.nbytes for each in _arrays_of(atoms))
            if count >= _BUFFERED_ROWS or size >= _BUFFERED_BYTES:
                yield from _send_shards(Atoms.join(waiting), key)
                waiting, count, size = [], 0, 0
        if count:
            yield from _send_shards(Atoms.join(waiting), key)


@dataclass(frozen=True)
class FoldUnits(_Task):
    """Merges the results of a function of all shards of a task, which has all rows of their units."""

    memory_limit: int

    def _run(self, batches: Batches, *functions: Any) -> Iterator[pa.RecordBatch]:
        function, merge, _, secret = functions
        key, homes = int.from_bytes(secret[:8], "little") ^ _OTHER_KEY, 0
        with Shards(key=key, memory_limit=min(self.memory_limit, _TASK_MEMORY)) as shards:
            waiting: list[Atoms] = []
            for row in _read_results(batches):
                homes |= 1 << row.part
                waiting.append(Atoms(*row.read()))
                if len(waiting) == _JOINED:  # parts are short, and each that is added costs time
                    shards.add(Atoms.join(waiting))
                    waiting = []
            if waiting:
                shards.add(Atoms.join(waiting))
            merged = fold_results(merge, map(function, shards), otherwise=lambda: _NOTHING)
        if merged is not _NOTHING:
            yield Result(_task_number(), 1, homes, pickle.dumps(merged, pickle.HIGHEST_PROTOCOL)).to_batch()


@dataclass(frozen=True)
class MergeResults(_Task):
    """Merges the results of other tasks."""

    def _run(self, batches: Batches, *functions: Any) -> Iterator[pa.RecordBatch]:
        merge, tasks, homes, merged = functions[1], 0, 0, _NOTHING
        for row in _read_results(batches):
            if homes & row.homes:
                # A unit whose rows were bounded in two tasks would count twice. Optimized Python drops assertions.
                raise RuntimeError("Rows of one unit were bounded in two tasks")
            tasks, homes = tasks + row.tasks, homes | row.homes
            merged = row.read() if merged is _NOTHING else merge(merged, row.read())
        if merged is not _NOTHING:
            yield Result(_task_number(), tasks, homes, pickle.dumps(merged, pickle.HIGHEST_PROTOCOL)).to_batch()


def copy_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield every batch as an Arrow stream in one cell."""
    for batch in batches:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch({"result": pa.array([sink.getvalue()], pa.binary())})


def _read_results(batches: Batches) -> Iterator[Result]:
    for batch in batches:
        yield from map(Result.of, batch.to_pylist())


def _resize_batches(batches: Batches, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of this many rows: Spark's batches are small, and cost time one by one."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            # All but the last are full; that one waits for more rows.
            *full, last = pa.Table.from_batches(waiting).combine_chunks().to_batches(max_chunksize=rows)
            yield from full
            waiting, count = [last], last.num_rows
    if count:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(max_chunksize=rows)


def _arrays_of(atoms: Atoms) -> list[Any]:
    return [*atoms.words, atoms.cell, atoms.steps]


def _send_shards(atoms: Atoms, key: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each shard, by which the frame is partitioned next."""
    shard = (mix_words(atoms.words[0], key) >> np.uint64(64 - _SHARD_BITS)).astype(np.int64)
    atoms = atoms.take(np.argsort(shard, kind="stable"))
    counts = np.bincount(shard, minlength=1 << _SHARD_BITS)
    ends = np.cumsum(counts).tolist()
    waiting, size = list[Result](), 0
    for part in np.flatnonzero(counts).tolist():
        some = atoms.take(slice(ends[part] - int(counts[part]), ends[part]))
        arrays = [np.ascontiguousarray(word) for word in some.words], some.cell, np.ascontiguousarray(some.steps)
        waiting.append(Result(part, 1, 0, pickle.dumps(arrays, pickle.HIGHEST_PROTOCOL)))
        size += len(waiting[-1].content)
        if size >= _SENT_BYTES:
            yield _write_rows(waiting)
            waiting, size = [], 0
    if waiting:
        yield _write_rows(waiting)


def _task_number() -> int:
    """Return the number of this task among those of its stage."""
    context: Any = importlib.import_module("pyspark").TaskContext.get()
    return 0 if context is None else int(context.partitionId())
