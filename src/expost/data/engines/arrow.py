"""Tables that already live in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from expost.data.engines.contract import ROWS_PER_BATCH, rows_for
from expost.data.engines.parallel import in_parallel

__all__ = ["ArrowEngine"]

T = TypeVar("T")


class ArrowEngine:
    """Reads an Arrow table in memory.

    >>> engine = ArrowEngine(pa.table({"age": [41, 17]}))
    >>> [batch.num_rows for batch in engine.batches(["age"], rows_per_batch=1)]
    [1, 1]
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(columns)).to_batches(max_chunksize=rows_per_batch)

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        return in_parallel(
            function, self.batches(columns, rows_per_batch=rows_for(len(columns))), threads=1 if self._small else None
        )

    @property
    def _small(self) -> bool:
        return bool(self._table.num_rows <= ROWS_PER_BATCH)
