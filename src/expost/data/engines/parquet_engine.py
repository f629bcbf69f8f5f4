"""The engine of Parquet files, read row group by row group: single files, globs, folders, Delta tables and object stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_type
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for, run_parallel
from expost.data.source_identity import SourceIdentity, identify_files
from expost.data.source_version import Version, file_version

__all__ = ["FileList", "ParquetEngine"]

T = TypeVar("T")

_BUFFER = 1 << 16  # bytes of a column chunk that are read at a time
_DICTIONARY_BYTES = 3  # a row: up to 2^16 entries take two bytes, and texts of their own more than three


@dataclass(frozen=True)
class FileList:
    """Where the files of a table are, besides their paths.

    Parameters
    ----------
    store : pyarrow.fs.FileSystem, optional
        The file system. Default: the local one.
    constants : sequence of mapping, optional
        For each file the cells of the columns that it does not store, such as Hive partitions.
    schema : pyarrow.Schema, optional
        The schema of the table, if it is stored apart from the files. A column that a file lacks is missing in it.
    places : tuple of str
        Public names of the files and of the folder that they are in.
    read_version : callable, optional
        Returns the version of the list, which differs once files were added, removed or rewritten.
    mark : str, optional
        A public text of the version, equal in all processes.
    """

    store: Any = None
    constants: Sequence[Mapping[str, pa.Scalar]] = ()
    schema: pa.Schema | None = None
    places: tuple[str, ...] = ()
    read_version: Callable[[], Version] = tuple
    mark: str | None = field(default=None)


class ParquetEngine(Engine):
    """Streams Parquet files, with a few batches in memory at a time.

    Local files are read through a small buffer per column and without ``pre_buffer``, so that memory does not grow with row
    groups. One of 10^6 rows and 50 columns takes 20 MB, and 200 MB without the buffer, for half of the processor time.
    From an object store the columns of one row group are fetched in a few large requests.

    Use ``Dataset("flights.parquet")``, which picks the engine.
    """

    def __init__(self, paths: Sequence[Path | str], files: FileList = FileList()) -> None:
        self._paths, self._files = tuple(paths), files
        schemas = list(run_parallel(self._read_schema, self._paths))
        constants = files.constants[0] if files.constants else {}
        if files.schema is None:
            stored = [each for each in schemas[0]]
            added = [pa.field(name, cell.type) for name, cell in constants.items() if name not in schemas[0].names]
            self._schema = pa.schema([*stored, *added])
        else:
            self._schema = files.schema.remove_metadata()
        self._added = frozenset(self._schema.names) & frozenset(constants)
        if not all(self._fits(each) for each in schemas):
            raise InvalidRequest("Expected files of one schema", do="Convert the files to one schema")

    def _read_schema(self, path: Path | str) -> pa.Schema:
        return pq.read_schema(path, filesystem=self._files.store).remove_metadata()

    def _fits(self, found: pa.Schema) -> bool:
        """Return whether a file has the columns of the table. A type that differs would have to be cast, cell by cell."""
        names = [name for name in self._schema.names if name not in self._added]
        if len(set(found.names)) < len(found.names):
            return False
        if self._files.schema is None and set(found.names) != set(self._schema.names) - self._added:
            return False
        return all(
            canonical_type(found.field(name).type) == canonical_type(self._schema.field(name).type)
            for name in names
            if name in found.names
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for place in range(len(self._paths)):
            with self._open(place) as file:
                stored = self._stored_columns(file.schema_arrow, columns)
                for batch in file.iter_batches(batch_size=rows_per_batch, columns=stored):
                    yield self._complete(batch, place, columns)

    def scan(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        def run_group(part: tuple[int, pq.FileMetaData, int]) -> list[T]:
            # One thread and one file handle per row group: speed grows with the threads, memory with a group.
            place, metadata, group = part
            words = [name for name in self._short_texts(metadata.row_group(group)) if name in columns]
            with self._open(place, metadata=metadata, read_dictionary=words) as file:
                batches = file.iter_batches(
                    batch_size=batch_rows_for(len(columns)),
                    row_groups=[group],
                    columns=self._stored_columns(file.schema_arrow, columns),
                    use_threads=False,
                )
                return [function(self._complete(batch, place, columns)) for batch in batches]

        def open_files() -> Iterator[tuple[int, pq.FileMetaData, int]]:
            for place, path in enumerate(self._paths):
                metadata = pq.read_metadata(path, filesystem=self._files.store)
                yield from ((place, metadata, group) for group in range(metadata.num_row_groups))

        for results in run_parallel(run_group, open_files()):
            yield from results

    def _open(self, place: int, **options: Any) -> pq.ParquetFile:
        store = self._files.store
        near: dict[str, Any] = {"buffer_size": _BUFFER} if store is None else {"filesystem": store}
        return pq.ParquetFile(self._paths[place], pre_buffer=store is not None, **near, **options)

    def _stored_columns(self, found: pa.Schema, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name not in self._added and name in found.names]

    def _complete(self, batch: pa.RecordBatch, place: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Add the columns that the file does not store."""
        if batch.schema.names == list(columns):
            return batch
        cells = self._files.constants[place] if self._files.constants else {}
        arrays = [
            batch.column(name)
            if name in batch.schema.names
            else pa.repeat(cells[name], batch.num_rows)
            if name in self._added
            else pa.nulls(batch.num_rows, self._schema.field(name).type)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _short_texts(self, group: pq.RowGroupMetaData) -> Iterator[str]:
        """Yield the texts that a row group stores as short numbers of dictionary entries: faster to read as such."""
        for place in range(group.num_columns):
            chunk = group.column(place)
            short = chunk.total_uncompressed_size <= _DICTIONARY_BYTES * chunk.num_values
            name = chunk.path_in_schema
            if short and name in self._schema.names and Kind.of(self._schema.field(name).type) is Kind.TEXT:
                yield name

    def identity(self) -> SourceIdentity:
        names = self._schema.names

        def read(rows: int) -> Iterator[pa.RecordBatch]:
            for place, path in enumerate(self._paths):
                # With a buffer only the first pages of each column are read, however long the row group is.
                local: dict[str, Any] = {"memory_map": True} if self._files.store is None else {}
                with pq.ParquetFile(path, filesystem=self._files.store, buffer_size=_BUFFER, **local) as file:
                    stored = self._stored_columns(file.schema_arrow, names)
                    for batch in file.iter_batches(batch_size=rows, columns=stored, use_threads=False):
                        yield self._complete(batch, place, names)

        if self._files.store is None:
            found = identify_files(self._schema, self._paths, read)
        else:
            found = SourceIdentity.of_batches(self._schema, read)
        return replace(found, places=tuple(dict.fromkeys((*self._files.places, *found.places))))

    def version(self) -> Version:
        files = file_version(self._paths) if self._files.store is None else (None,)
        return (*files, *self._files.read_version())

    def mark(self) -> str | None:
        return self._files.mark
