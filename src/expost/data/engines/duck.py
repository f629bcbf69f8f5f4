"""Everything DuckDB can read: CSV files, SQL queries, its own relations."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from expost.core import InvalidRequest
from expost.data.engines.contract import ROWS_PER_BATCH, rows_for
from expost.data.engines.parallel import in_parallel, workers

__all__ = ["DuckEngine"]

T = TypeVar("T")

_MEMORY = "2GB"
_SPILL = "100GB"


class DuckEngine:
    """Streams a DuckDB relation; the owner's SQL runs here, an analyst's never does.

    Rows may come in any order: nothing in the house depends on it, so insertion order is not preserved and no ORDER BY
    is relied on (DuckDB's DB-API reader breaks one at batch borders). The relation is run anew for every pass.

    >>> DuckEngine.query("select 41 as age").schema.names
    ['age']
    """

    def __init__(self, relation: Any) -> None:
        self._relation = relation
        self._schema = relation.limit(0).to_arrow_table().schema

    @classmethod
    def query(cls, sql: str) -> DuckEngine:
        """An engine over the result of the owner's query, on a connection of its own with bounded memory."""
        # What is spilled are rows: into a new folder that only this user may enter, of this connection alone.
        folder = tempfile.mkdtemp(prefix="expost-duckdb-")
        connection = duckdb.connect(
            config={
                "threads": str(workers()),
                "memory_limit": _MEMORY,
                "temp_directory": folder,
                "max_temp_directory_size": _SPILL,
                "preserve_insertion_order": "false",
                "arrow_large_buffer_size": "true",  # texts of a batch beyond 2 GiB would fail, which tells of them
            }
        )
        try:
            engine = cls(connection.sql(sql))
        except duckdb.Error:
            _remove(folder, os.getpid())
        else:
            weakref.finalize(engine, _remove, folder, os.getpid())  # at the latest when the process ends
            return engine
        # DuckDB's own message may repeat a row
        raise InvalidRequest("Expected a query or table that DuckDB can read", do="Try the query in DuckDB first")

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        chosen = self._relation.project(", ".join(_name(column) for column in columns)) if columns else self._relation
        with chosen.to_arrow_reader(rows_per_batch) as reader:
            for batch in reader:
                # DuckDB rounds its batches up to whole vectors.
                for start in range(0, batch.num_rows, rows_per_batch):
                    yield batch.slice(start, rows_per_batch)

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        return in_parallel(function, self.batches(columns, rows_per_batch=rows_for(len(columns))))


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked child inherits what is to be done at the end, but not the folder
        shutil.rmtree(folder, ignore_errors=True)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
