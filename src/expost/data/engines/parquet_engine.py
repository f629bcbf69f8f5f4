"""The engine of Parquet files, read row group by row group: single files, globs, folders, Delta tables and object stores."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_type
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for, run_parallel
from expost.data.expression import Expression
from expost.data.pushed_filter import push_filter
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
    mark: str | None = None


class RowGroup:
    """What is known of the cells of a row group without reading them."""

    def __init__(self, metadata: pq.RowGroupMetaData, constants: Mapping[str, Any]) -> None:
        self._metadata, self._constants = metadata, constants

    def find_range(self, column: str) -> tuple[Any, Any] | None:
        """Return the least and the greatest cell of a column, or values beyond them; None if they are unknown."""
        if column in self._constants:
            value = self._constants[column]
            return None if value is None else (value, value)
        for place in range(self._metadata.num_columns):
            chunk = self._metadata.column(place)
            if chunk.path_in_schema == column:
                try:
                    found = chunk.statistics if chunk.is_stats_set else None
                    ends = None if found is None or not found.has_min_max else (found.min, found.max)
                except (ValueError, OverflowError):  # a text that is not UTF-8, or a far year
                    return None
                return ends if ends is not None and all(end == end for end in ends) else None
        return None


def _hold_anything(group: RowGroup) -> bool:
    return True


class _GroupFilter:
    """Writes a filter as a function that tells whether a row group may hold a row of it."""

    def compare(self, column: str, sign: str, value: Any) -> Callable[[RowGroup], bool]:
        """Return whether the range of a column reaches to where the comparison holds."""
        return lambda group: _may_compare(group.find_range(column), sign, value)

    def contain(self, column: str, values: tuple[Any, ...]) -> Callable[[RowGroup], bool]:
        """Return whether one of the values lies in the range of a column."""
        return lambda group: any(_may_compare(group.find_range(column), "=", value) for value in values)

    def be_present(self, column: str) -> Callable[[RowGroup], bool]:
        """Return true: missing cells are not counted here."""
        return _hold_anything

    def combine(self, sign: str, parts: list[Callable[[RowGroup], bool]]) -> Callable[[RowGroup], bool]:
        """Return whether all, or any, of the parts may hold."""
        test = all if sign == "AND" else any
        return lambda group: test(part(group) for part in parts)


def _may_compare(ends: tuple[Any, Any] | None, sign: str, value: Any) -> bool:
    """Return whether a number, text or time between two ends may compare like this with a value."""
    if ends is None:
        return True
    try:
        low, high = (each.replace(tzinfo=None) if isinstance(each, datetime.datetime) else each for each in ends)
        if sign == "<>":
            return bool(low != value or high != value)
        if sign == "=":
            return bool(low <= value <= high)
        return bool(_REACHES[sign](low, high, value))
    except TypeError:  # statistics of another type than that of the column
        return True


_REACHES: dict[str, Callable[[Any, Any, Any], bool]] = {
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
}


def _compared_kind(stored: pa.DataType) -> Kind | None:
    """Return the kind of a column whose statistics compare as this package does, None for another."""
    exact = pa.types.is_integer(stored) or pa.types.is_floating(stored) or pa.types.is_boolean(stored)
    exact |= pa.types.is_timestamp(stored) and stored.unit in ("ms", "us")
    kind = Kind.of(stored)
    return kind if exact or kind is Kind.TEXT else None


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
        self._may_hold: Callable[[RowGroup], bool] = _hold_anything
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
                groups = self._list_groups(place, file.metadata)
                for batch in file.iter_batches(batch_size=rows_per_batch, columns=stored, row_groups=groups):
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
                yield from ((place, metadata, group) for group in self._list_groups(place, metadata))

        for results in run_parallel(run_group, open_files()):
            yield from results

    def narrow(self, condition: Expression) -> Engine:
        """Return an engine without the row groups that cannot hold a row of the filter: Hive partitions, and by their statistics."""
        kinds = {each.name: kind for each in self._schema if (kind := _compared_kind(each.type)) is not None}
        found = push_filter(condition, kinds, _GroupFilter())
        if found is None:
            return self
        narrow, before = copy.copy(self), self._may_hold
        narrow._may_hold = found if before is _hold_anything else lambda group: before(group) and found(group)
        return narrow

    def _list_groups(self, place: int, metadata: pq.FileMetaData) -> list[int]:
        """Return the row groups of a file that may hold rows of the filter."""
        constants = self._files.constants[place] if self._files.constants else {}
        cells = {name: constants[name].as_py() for name in self._added}
        groups = range(metadata.num_row_groups)
        if self._may_hold is _hold_anything:
            return list(groups)
        return [group for group in groups if self._may_hold(RowGroup(metadata.row_group(group), cells))]

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
