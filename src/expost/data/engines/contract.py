"""What every engine must do: read batches, and run a pure function over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

__all__ = ["ROWS_PER_BATCH", "Engine"]

T = TypeVar("T")

ROWS_PER_BATCH = 1 << 17
"""Rows of one batch: small enough for the cache, large enough to vectorise, and safe for exact 64-bit sums."""


class Engine(Protocol):
    """Reads one table. Order, chunking and threads are the engine's business and never change a total.

    Everything the house computes from rows is a sum over batches of a pure function, so this is all it needs.
    """

    @property
    def schema(self) -> pa.Schema:
        """Names and types; read without looking at rows where the source allows it."""
        ...

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        """All rows of the named columns, each row once, in batches of at most ``rows_per_batch`` rows."""
        ...

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        """``function`` of every batch, in any order, each batch once; the function may run in parallel."""
        ...
