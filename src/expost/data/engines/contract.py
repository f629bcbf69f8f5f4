"""What every engine must do: read batches, and run a pure function over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

__all__ = ["ROWS_PER_BATCH", "Engine", "rows_for"]

T = TypeVar("T")

ROWS_PER_BATCH = 1 << 17
"""The most rows of one batch: safe for exact sums of steps in floats."""

_FEWEST, _VALUES = 1 << 14, 1 << 20


def rows_for(columns: int) -> int:
    """Rows of a batch of this many columns: about a million values, which stay near the processor.

    >>> rows_for(2), rows_for(50)
    (131072, 20971)
    """
    return max(_FEWEST, min(ROWS_PER_BATCH, _VALUES // max(columns, 1)))


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
