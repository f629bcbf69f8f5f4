"""The engine of DuckDB relations and of SQL queries that DuckDB runs for the data owner."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from expost.core import InvalidRequest
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, count_workers, quote_name

__all__ = ["DuckEngine"]

_MEMORY = "2GB"
_SPILL = "100GB"


class DuckEngine(Engine):
    """Streams a DuckDB relation. Only the owner's SQL runs here, never an analyst's.

    Rows may come in any order, because no total depends on it: insertion order is not preserved and no ORDER BY is used
    (DuckDB's DB-API reader breaks one at batch borders). The relation is run again for every pass.

    >>> DuckEngine.query("select 41 as age").schema.names
    ['age']
    """

    def __init__(self, relation: Any) -> None:
        self._relation = relation
        self._schema = relation.limit(0).to_arrow_table().schema

    @classmethod
    def query(cls, sql: str) -> DuckEngine:
        """Open the result of the owner's query, on its own connection with bounded memory."""
        # DuckDB spills rows: into a new folder of this connection, readable by this user only.
        folder = tempfile.mkdtemp(prefix="expost-duckdb-")
        connection = duckdb.connect(
            config={
                "threads": str(count_workers()),
                "memory_limit": _MEMORY,
                "temp_directory": folder,
                "max_temp_directory_size": _SPILL,
                "preserve_insertion_order": "false",
                "arrow_large_buffer_size": "true",  # a batch with more than 2 GiB of text would fail and reveal it
            }
        )
        try:
            engine = cls(connection.sql(sql))
        except duckdb.Error:
            _remove_folder(folder, os.getpid())
        else:
            weakref.finalize(engine, _remove_folder, folder, os.getpid())  # at the latest when the process ends
            return engine
        # DuckDB's own message may repeat a row, so it is neither shown nor chained.
        raise InvalidRequest("Expected a query or table that DuckDB can read", do="Try the query in DuckDB first")

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        chosen = self._relation.project(", ".join(map(quote_name, columns))) if columns else self._relation
        with chosen.to_arrow_reader(rows_per_batch) as reader:
            for batch in reader:
                # DuckDB rounds its batches up to whole vectors.
                for start in range(0, batch.num_rows, rows_per_batch):
                    yield batch.slice(start, rows_per_batch)


def _remove_folder(folder: str, process: int) -> None:
    """Delete the folder, but not in a forked child, which inherits the finalizer without owning the folder."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
