"""Put every batch of an engine into canonical form before anything reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from expost.data.canonical import canonical_batch, canonical_schema
from expost.data.engines.contract import ROWS_PER_BATCH, Engine

__all__ = ["CanonicalEngine"]

T = TypeVar("T")


class CanonicalEngine:
    """Wrap an engine so that schema and cells are canonical (``expost.data.canonical``).

    ``open_source`` wraps every engine, so a ``Dataset`` never meets a cell in another form.

    >>> from expost.data.engines.arrow import ArrowEngine
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

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for batch in self._engine.batches(columns, rows_per_batch=rows_per_batch):
            yield canonical_batch(batch)

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        return self._engine.map(lambda batch: function(canonical_batch(batch)), columns)
