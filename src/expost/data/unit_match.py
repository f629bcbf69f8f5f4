"""Mark the rows of one private table that have a matching row of the same unit in another."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.source_identity import SourceIdentity
from expost.data.source_version import Version
from expost.data.unit_join import key_names
from expost.data.unit_share import find_sorted

__all__ = ["UnitMatch"]


class UnitMatch(Engine):
    """Reads the rows of one table with one more column: whether another table has a row that agrees in all keys.

    The unit's id is one of the keys, so the mark of a row depends on that row and on the other table's rows of the same unit
    only. No row is added, so nothing needs to be bounded first (docs/proofs/unit-join.md, Claim 4). A row with a missing key
    has no match.

    The keys of the second table stay in memory; the first table is streamed.
    """

    def __init__(
        self,
        left: Engine,
        *,
        keys: Sequence[str],
        mark: str,
        read_right: Callable[[], Iterator[pa.RecordBatch]],
        right_identity: Callable[[], SourceIdentity],
        right_version: Callable[[], Version],
    ) -> None:
        self._left, self._keys, self._mark, self._read_right = left, tuple(keys), mark, read_right
        self._right_identity, self._right_version = right_identity, right_version
        self._schema = pa.schema([*left.schema, pa.field(mark, pa.bool_())])
        self._secret = os.urandom(32)  # of the words by which texts are compared
        self._known: NDArray[Any] | None = None
        self._turn = threading.Lock()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def identity(self) -> SourceIdentity:
        """Return the identity of both tables: one account pays for the rows of both."""
        return self._left.identity().with_table(self._right_identity())

    def version(self) -> Version:
        return (*self._left.version(), *self._right_version())

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        with self._turn:
            if self._known is None:
                self._known = self._read_keys()
        marked = self._mark in columns
        wanted = [name for name in columns if name != self._mark]
        read = list(dict.fromkeys([*wanted, *(self._keys if marked else ())]))
        schema = pa.schema([self._schema.field(name) for name in columns])
        for batch in self._left.batches(read, rows_per_batch=rows_per_batch):
            if not marked:
                yield batch
                continue
            found = self._find([batch.column(read.index(key)) for key in self._keys])
            arrays = [found if name == self._mark else batch.column(read.index(name)) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_keys(self) -> NDArray[Any]:
        """Return the sorted words of the keys of the second table."""
        parts = []
        for batch in self._read_right():
            names, known = key_names([batch.column(place) for place in range(len(self._keys))], self._secret)
            parts.append(np.unique(names[known]))
        return np.unique(np.concatenate(parts)) if parts else np.empty(0)

    def _find(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return for each row whether its keys are among those of the second table."""
        names, known = key_names(columns, self._secret)
        assert self._known is not None
        if not len(self._known):
            return pa.array(np.zeros(len(names), bool))
        return pa.array(known & (self._known[find_sorted(self._known, names)] == names))
