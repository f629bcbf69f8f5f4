"""Spark data frames: batches are worked on where they are, and only what a function makes of them comes back."""

from __future__ import annotations

import io
import pickle
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
        for row in chosen.mapInArrow(run, _RESULT).toLocalIterator(prefetchPartitions=True):
            yield bytes(row["result"])


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
