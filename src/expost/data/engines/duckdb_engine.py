"""The engine of DuckDB relations and of SQL queries that DuckDB runs for the data owner."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import duckdb
import pyarrow as pa

from expost.core import EngineFailed, InvalidRequest
from expost.data.canonical_cell import Kind
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, count_workers, quote_name
from expost.data.expression import Expression
from expost.data.pushed_filter import SqlWriter, push_filter
from expost.data.source_identity import SourceIdentity, identify_query, query_files
from expost.data.source_version import Version, file_version

__all__ = ["DuckEngine"]

_MEMORY = "2GB"
_SPILL = "100GB"


class DuckEngine(Engine):
    """Streams a DuckDB relation. Only the owner's SQL runs here, never an analyst's.

    Rows may come in any order, because no total depends on it: insertion order is not preserved and no ORDER BY is used
    (DuckDB's DB-API reader breaks one at batch borders). The relation is run again for every pass. A connection has one
    open result: a new query on it ends the one that is being read. Passes over a query therefore have a cursor each, and
    passes over a caller's relation, whose connection is the caller's, wait for each other.

    >>> DuckEngine.query("select 41 as age").schema.names
    ['age']
    """

    def __init__(self, relation: Any) -> None:
        self._open_relation: Callable[[], Any] = lambda: relation
        self._turn: AbstractContextManager[Any] = _ThreadTurn()
        self._schema = relation.limit(0).to_arrow_table().schema
        self._sql: str | None = None
        self._where: str | None = None
        self._origin: DuckEngine | None = None

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
            engine._sql = sql
            engine._open_relation, engine._turn = lambda: connection.cursor().sql(sql), contextlib.nullcontext()
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
        with self._turn:
            relation = self._open_relation() if self._where is None else self._open_relation().filter(self._where)
            chosen = relation.project(", ".join(map(quote_name, columns))) if columns else relation
            with chosen.to_arrow_reader(rows_per_batch) as reader:
                for batch in reader:
                    # DuckDB rounds its batches up to whole vectors.
                    for start in range(0, batch.num_rows, rows_per_batch):
                        yield batch.slice(start, rows_per_batch)

    def narrow(self, condition: Expression) -> Engine:
        kinds = {each.name: kind for each in self._schema if (kind := _filtered_kind(each.type)) is not None}
        found = push_filter(condition, kinds, SqlWriter())
        if found is None:
            return self
        narrow = copy.copy(self)
        narrow._origin = self  # spilled rows are deleted with the engine that opened the connection
        narrow._where = found if self._where is None else f"{self._where} AND {found}"
        return narrow

    def identity(self) -> SourceIdentity:
        if self._sql is not None:
            return identify_query(self._schema, self._sql)
        with self._turn:
            return identify_query(self._schema, str(self._open_relation().sql_query()), generated=True)

    def version(self) -> Version:
        """Return the version of the files that the query names and of the databases that it reads.

        Tables in memory have none: a caller who changes them between two questions is not noticed here.
        """
        if self._sql is not None:
            return file_version(query_files(self._sql))
        with self._turn:
            relation = self._open_relation()
            files = query_files(str(relation.sql_query()))
        return file_version(files)


def _filtered_kind(stored: pa.DataType) -> Kind | None:
    """Return the kind of a column that DuckDB compares as this package does, None for another.

    It rounds constants that it compares with narrow floats.
    """
    exact = pa.types.is_integer(stored) or pa.types.is_float64(stored) or pa.types.is_boolean(stored)
    exact |= pa.types.is_timestamp(stored) and stored.unit == "us" and stored.tz is None
    kind = Kind.of(stored)
    return kind if exact or (kind is Kind.TEXT and not pa.types.is_dictionary(stored)) else None


class _ThreadTurn:
    """Lets one thread read at a time. A thread that waits for itself would wait for ever, so it is refused."""

    def __init__(self) -> None:
        self._lock, self._reader = threading.Lock(), 0

    def __enter__(self) -> None:
        if self._reader == threading.get_ident():
            raise EngineFailed(
                "Cannot read a DuckDB relation in two passes at once because its connection has one result",
                do="Pass the query as SQL, or read one pass after the other",
            )
        self._lock.acquire()
        self._reader = threading.get_ident()

    def __exit__(self, *failure: object) -> None:
        self._reader = 0
        self._lock.release()


def _remove_folder(folder: str, process: int) -> None:
    """Delete the folder, but not in a forked child, which inherits the finalizer without owning the folder."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
