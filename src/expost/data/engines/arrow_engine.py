"""The engine of Arrow tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for, run_parallel
from expost.data.source_identity import SourceIdentity, identify_files
from expost.data.source_version import Version, file_version

__all__ = ["ArrowEngine"]

T = TypeVar("T")


class ArrowEngine(Engine):
    """Reads an Arrow table in memory, which may come from ``paths``."""

    def __init__(self, table: pa.Table, paths: Sequence[Path] = ()) -> None:
        self._table, self._paths = table, tuple(paths)

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(columns)).to_batches(max_chunksize=rows_per_batch)

    def scan(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        batches = self.batches(columns, rows_per_batch=batch_rows_for(len(columns)))
        # Threads are not worth starting for a small table.
        return run_parallel(function, batches, threads=1 if self._table.num_rows <= ROWS_PER_BATCH else None)

    def identity(self) -> SourceIdentity:
        def read(rows: int) -> list[pa.RecordBatch]:
            batches: list[pa.RecordBatch] = self._table.slice(0, rows).to_batches()
            return batches

        if self._paths:
            return identify_files(self.schema, self._paths, read)
        return SourceIdentity.of_batches(self.schema, read)

    def version(self) -> Version:
        return file_version(self._paths) if self._paths else ()
