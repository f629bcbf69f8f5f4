"""Join two private tables on the id of their unit, so that a unit's joined rows depend on that unit's rows only."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, Unit
from expost.data.canonical_cell import canonical_batch, missing_cells
from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.source_identity import SourceIdentity
from expost.data.source_version import Version
from expost.data.unit_identity import content_words, exact_words, mix_words, unit_words
from expost.data.unit_share import RowsOfUnits, UnitShares, find_sorted, join_words

__all__ = ["UnitJoin", "check_keys", "key_names"]

Indices = NDArray[np.intp]


class UnitJoin(Engine):
    """Reads the rows of one table, each with the matching rows of another table about the same units.

    A unit keeps at most ``most`` rows of the second table, chosen by a secret of this object and by that unit's own rows
    (``UnitShares``). Then every row of the first table is paired with the kept rows that agree in all keys, of which the
    unit's id is one. So the joined rows of a unit are a function of that unit's rows in both tables, as multisets, and each
    row of the first table makes at most ``most`` rows (docs/proofs/unit-join.md).

    The kept rows of the second table stay in memory; the first table is streamed.
    """

    def __init__(
        self,
        left: Engine,
        right_schema: pa.Schema,
        *,
        unit: Unit,
        keys: Sequence[str],
        most: int,
        prefix: str,
        keep_unmatched: bool,
        read_right: Callable[[], Iterator[pa.RecordBatch]],
        right_identity: Callable[[], SourceIdentity],
        right_version: Callable[[], Version],
    ) -> None:
        self._left, self._unit, self._keys, self._most = left, unit, tuple(keys), most
        self._keep_unmatched, self._read_right = keep_unmatched, read_right
        self._right_identity, self._right_version = right_identity, right_version
        self._added = {prefix + name: name for name in right_schema.names if name not in keys}
        fields = [right_schema.field(name).with_name(new) for new, name in self._added.items()]
        self._schema = pa.schema([*left.schema, *fields])
        # Not a secret of one query: every pass must pair the same rows. Privacy holds for each value of it.
        self._secret = os.urandom(32)
        self._right: _KeptTable | None = None
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
            if self._right is None:
                self._right = self._keep_right()
        wanted = [name for name in columns if name not in self._added]
        read = list(dict.fromkeys([*wanted, *self._keys]))
        schema = pa.schema([self._schema.field(name) for name in columns])
        # Every row of the first table may become this many.
        for batch in self._left.batches(read, rows_per_batch=max(1, rows_per_batch // self._most)):
            rows, matches = self._right.match(
                [batch.column(read.index(key)) for key in self._keys], self._secret, keep_unmatched=self._keep_unmatched
            )
            arrays = [
                self._right.table.column(self._added[name]).take(matches).combine_chunks()
                if name in self._added
                else batch.column(read.index(name)).take(rows)
                for name in columns
            ]
            if arrays:  # a missing number that a left join adds is NaN, as everywhere
                yield canonical_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            else:  # without columns, only the number of rows counts
                yield batch.select([0]).take(rows)

    def _keep_right(self) -> _KeptTable:
        """Read the second table and keep at most the allowed number of rows of each unit."""
        names = [*self._keys, *self._added.values()]
        parts = [batch.select(names) for batch in self._read_right()]
        identified = [self._identify_rows(batch) for batch in parts]
        reading = UnitShares(identified, most=self._most, secret=self._secret).start_pass()
        kept = [
            batch.filter(pa.array(reading.next_weights(rows) > 0))
            for batch, rows in zip(parts, identified, strict=True)
        ]
        if not kept:
            fields = [pa.field(name, self._schema.field(name).type) for name in self._keys]
            fields += [pa.field(name, self._schema.field(new).type) for new, name in self._added.items()]
            return _KeptTable(pa.schema(fields).empty_table(), self._keys, self._secret)
        return _KeptTable(pa.Table.from_batches(kept).combine_chunks(), self._keys, self._secret)

    def _identify_rows(self, batch: pa.RecordBatch) -> RowsOfUnits:
        """Return the unit of each row and a word of its content."""
        words, known = unit_words(self._unit, batch, {}, self._secret)
        content = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            content = mix_words(content, 0) ^ content_words(column, self._secret)
            content = mix_words(content, 1) ^ missing_cells(column).astype(np.uint64)  # NULL is not zero
        return RowsOfUnits(words, known, content)


class _KeptTable:
    """The kept rows of the second table, sorted by their keys. SECRET."""

    def __init__(self, table: pa.Table, keys: Sequence[str], secret: bytes) -> None:
        columns = [table.column(key).combine_chunks() for key in keys]
        names, known = key_names(columns, secret)
        rows = np.flatnonzero(known)
        rows = rows[np.argsort(names[rows], kind="stable")]
        self.table = table.take(pa.array(rows))
        self._names, self._first = np.unique(names[rows], return_index=True)
        self._count = np.diff(np.append(self._first, len(rows)))

    def match(self, columns: Sequence[pa.Array], secret: bytes, *, keep_unmatched: bool) -> tuple[pa.Array, pa.Array]:
        """Return pairs of rows: of the batch with these keys, and of the table; None if a row has no match."""
        names, known = key_names(columns, secret)
        place, count = np.zeros(len(names), np.intp), np.zeros(len(names), np.intp)
        if len(self._names):
            place = find_sorted(self._names, names)
            count = np.where(known & (self._names[place] == names), self._count[place], 0)
        made = np.maximum(count, 1) if keep_unmatched else count
        rows = np.repeat(np.arange(len(names)), made)
        ends = np.cumsum(made)
        number = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - made, made)
        first = self._first[place] if len(self._names) else place
        return pa.array(rows), pa.array(first[rows] + number, mask=count[rows] == 0)


def key_names(columns: Sequence[pa.Array], secret: bytes) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return one value per row that is equal exactly for equal keys, and a mask of the rows without a missing key."""
    words, known = [], np.ones(len(columns[0]), bool)
    for column in columns:
        found, present = exact_words(column, secret)
        words += found
        known &= present
    return join_words(words), known


def check_keys(left: pa.Schema, right: pa.Schema, on: str | Sequence[str], unit: Unit) -> tuple[str, ...]:
    """Return the keys of a join after checking them against both schemas; the unit's id must be among them."""
    keys = (on,) if isinstance(on, str) else tuple(on)
    if unit.column not in keys:
        raise InvalidRequest(
            f"Expected the id of the unit among the keys of a join of two private tables, {unit.column}",
            got=", ".join(map(str, keys)),
            do=f'Pass on="{unit.column}", or a list that contains it',
        )
    for key in keys:
        if key not in left.names or key not in right.names or left.field(key).type != right.field(key).type:
            raise InvalidRequest(
                "Expected keys that both tables store with the same type",
                got=key,
                do="Declare the same type of the column in both tables",
            )
    return keys
