"""Parquet files, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from expost.data.engines.contract import ROWS_PER_BATCH

__all__ = ["ParquetEngine"]


class ParquetEngine:
    """Streams Parquet files; holds a few batches in memory, never the table.

    Use ``Dataset("flights.parquet")``, which picks the engine.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._schema = pq.read_schema(self._paths[0])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for path in self._paths:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=rows_per_batch, columns=list(columns))
