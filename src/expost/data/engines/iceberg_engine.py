"""The engine of Iceberg tables, read file by file at one snapshot."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs

from expost.core import InvalidRequest, MissingExtra
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for, run_parallel
from expost.data.source_identity import SourceIdentity, public_address
from expost.data.source_version import Version

__all__ = ["IcebergEngine"]

T = TypeVar("T")

_METADATA = re.compile(r"v?(\d+).*\.metadata\.json$")


class IcebergEngine(Engine):
    """Reads an Iceberg table with pyiceberg, which applies deletes, renamed columns and widened types.

    The snapshot is the one that the table had when it was opened. Later snapshots are noticed, and not read. A data file
    is in memory while a thread reads it.

    Use ``Dataset`` with the folder of the table or a ``pyiceberg`` table, which picks the engine.
    """

    def __init__(self, table: Any, read_newest: Callable[[], Any]) -> None:
        self._reader: Any = importlib.import_module("pyiceberg.io.pyarrow")
        self._table, self._read_newest = table, read_newest
        self._metadata, self._io = table.metadata, table.io
        self._tasks = sorted(table.scan().plan_files(), key=lambda task: str(task.file.file_path))
        self._schema = self._reader.schema_to_pyarrow(table.schema(), include_field_ids=False).remove_metadata()

    @classmethod
    def of_table(cls, table: Any) -> IcebergEngine:
        """Open a table of a catalog, or a static one."""
        catalog: Any = getattr(table, "catalog", None)
        name = table.name()
        if type(table).__name__ == "StaticTable":
            return cls(table, lambda: table)
        return cls(catalog.load_table(name), lambda: catalog.load_table(name))

    @classmethod
    def at(cls, store: Any, path: str, address: str) -> IcebergEngine:
        """Open the table in a folder at its newest metadata."""
        try:
            static: Any = importlib.import_module("pyiceberg.table").StaticTable
        except ImportError:
            raise MissingExtra("lake", package="pyiceberg") from None

        def read_newest() -> Any:
            return static.from_metadata(f"{address.rstrip('/')}/metadata/{_newest_metadata(store, path)}")

        return cls(read_newest(), read_newest)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for task in self._tasks:
            yield from self._read_file(task, columns, rows_per_batch)

    def scan(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        def run_file(task: Any) -> list[T]:
            return [function(batch) for batch in self._read_file(task, columns, batch_rows_for(len(columns)))]

        for results in run_parallel(run_file, self._tasks):
            yield from results

    def _read_file(self, task: Any, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        names = list(columns) or self._schema.names[:1]
        chosen = self._table.schema().select(*names)
        always: Any = importlib.import_module("pyiceberg.expressions").AlwaysTrue()
        for batch in self._reader.ArrowScan(self._metadata, self._io, chosen, always).to_record_batches([task]):
            ordered = batch.select(names)
            yield from (ordered.slice(start, most) for start in range(0, ordered.num_rows, most))

    def identity(self) -> SourceIdentity:
        found = SourceIdentity.of_batches(self._schema, lambda rows: self.batches(self._schema.names))
        location = public_address(str(self._metadata.location))
        return replace(found, places=(location, f"iceberg:{self._metadata.table_uuid}"))

    def version(self) -> Version:
        newest = self._read_newest().metadata
        return (f"{newest.table_uuid} {newest.current_snapshot_id}",)

    def mark(self) -> str | None:
        return f"iceberg {self._metadata.table_uuid} snapshot {self._metadata.current_snapshot_id}"


def _newest_metadata(store: Any, path: str) -> str:
    """Return the name of the newest metadata file of a folder."""
    names = [info.base_name for info in store.get_file_info(pa.fs.FileSelector(f"{path}/metadata"))]
    numbered: list[tuple[int, str]] = [(int(found[1]), name) for name in names if (found := _METADATA.match(name))]
    if not numbered:
        raise InvalidRequest("Expected an Iceberg table", got=path, do="Check that its metadata folder is whole")
    return max(numbered)[1]
