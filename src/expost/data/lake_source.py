"""Tables of many files: folders of Parquet with Hive partitions, Delta and Iceberg tables, on disk and in object stores.

Names of folders are read as texts, so no row decides the type of a partition column: an odd value would otherwise turn all
others from numbers into texts. Declared types and public bounds or categories make them numbers, truths or times.
"""

from __future__ import annotations

import datetime
import fnmatch
import glob
import hashlib
import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from expost.core import InvalidRequest, MissingExtra
from expost.data.engines.parquet_engine import FileList, ParquetEngine
from expost.data.source_identity import public_address
from expost.data.source_version import Version
from expost.data.text_format import split_type
from expost.data.untyped_table import TYPES

__all__ = ["LakeFile", "is_lake", "list_lake", "open_delta", "open_fragments", "open_lake"]

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
_PARQUET = (".parquet", ".pq", ".parq")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_PLACES = 256


@dataclass(frozen=True)
class LakeFile:
    """One file of a folder: path, size and time of change, and the names of the partitions that it is in."""

    path: str
    size: int
    changed: int | None
    partition: tuple[tuple[str, str], ...]


def is_lake(source: Any) -> bool:
    """Return whether a source is a folder, or an address of an object store.

    >>> is_lake("s3://bucket/flights"), is_lake("flights.parquet"), is_lake("postgresql://host/db?table=t")
    (True, False, False)
    """
    text = str(source) if isinstance(source, str | os.PathLike) else ""
    if _SCHEME.match(text):
        return not text.startswith(("postgres://", "postgresql://"))
    return bool(text) and "\0" not in text and os.path.isdir(text)


def list_lake(store: Any, pattern: str) -> list[LakeFile]:
    """Return the files of a folder or of a glob, in order, without those that start with ``_`` or a dot.

    Spark, Hive and Delta store markers and checksums in such files.
    """
    root = _fixed_part(pattern)
    alone = store.get_file_info(root)
    if alone.type is pa.fs.FileType.File:  # not every store answers what a file contains
        return [LakeFile(alone.path, alone.size, alone.mtime_ns, ())]
    chosen = pa.fs.FileSelector(root, recursive=True, allow_not_found=True)
    found = []
    for info in store.get_file_info(chosen):
        inside = info.path[len(root) :].strip("/").split("/")
        hidden = any(part.startswith((".", "_")) and "=" not in part for part in inside)
        if info.type is not pa.fs.FileType.File or hidden or not _matches(info.path, pattern):
            continue
        pairs = (part.partition("=") for part in inside[:-1] if "=" in part)
        partition = tuple((unquote(name), unquote(value)) for name, _, value in pairs)
        found.append(LakeFile(info.path, info.size, info.mtime_ns, partition))
    return sorted(found, key=lambda each: each.path)


def open_lake(text: str, types: Mapping[str, str] | None, implied: Mapping[str, str] | None) -> ParquetEngine | Any:
    """Open a folder, a glob or an address as one table."""
    store, path = _open_store(text)
    if not glob.has_magic(path):
        if _exists(store, f"{path}/_delta_log"):
            return open_delta(_import_deltalake().DeltaTable(_plain_address(text)), types)
        if _exists(store, f"{path}/metadata") and not _has_parquet(store, path):
            iceberg = importlib.import_module("expost.data.engines.iceberg_engine")
            return iceberg.IcebergEngine.at(store, path, _plain_address(text))
    files = list_lake(store, path)
    if not files or not all(each.path.lower().endswith(_PARQUET) for each in files):
        raise InvalidRequest(
            "Expected Parquet files, a Delta table or an Iceberg table",
            got=public_address(text),
            do="Check the address, and that the folder holds the files of one table only",
        )
    names = dict.fromkeys(name for each in files for name, _ in each.partition)
    kinds = _partition_types(list(names), types, implied)
    constants = [_read_partition(dict(each.partition), kinds) for each in files] if kinds else []
    local = isinstance(store, pa.fs.LocalFileSystem)
    scheme = "file:" if local else public_address(text).partition("://")[0] + "://"
    marked = _Listing(store, path)
    listing = FileList(
        store=None if local else store,
        constants=constants,
        places=(public_address(text), *(scheme + each.path for each in files[:_MOST_PLACES])),
        read_version=marked.read,
        mark=f"files {marked.read()[0]}",
    )
    return ParquetEngine([each.path for each in files], listing)


def open_delta(table: Any, types: Mapping[str, str] | None = None) -> ParquetEngine:
    """Open a Delta table at the version that it has now. Later versions are noticed, and not read."""
    if types:
        raise InvalidRequest("Expected types only of sources that store none", do="Leave them out")
    _check_delta(table)
    schema = pa.schema(table.schema())
    partitions = list(table.metadata().partition_columns)
    actions = pa.table(table.get_add_actions(flatten=True))
    address = str(table.table_uri)
    store, root = _open_store(address)
    # A shallow clone names files of another table by absolute paths.
    names = [unquote(path) for path in actions.column("path").to_pylist()]
    paths = [name if name.startswith("/") else f"{root.rstrip('/')}/{name}" for name in names]
    order = sorted(range(len(paths)), key=paths.__getitem__)
    cells = {name: actions.column(f"partition.{name}") for name in partitions} if paths else {}
    constants = [
        {name: _partition_cell(cells[name][row], schema.field(name).type) for name in partitions} for row in order
    ]
    local = isinstance(store, pa.fs.LocalFileSystem)
    files = FileList(
        store=None if local else store,
        constants=constants,
        schema=schema,
        places=(public_address(address),),
        read_version=_DeltaLog(store, root).read,
        mark=f"delta {table.metadata().id} version {table.version()}",
    )
    return ParquetEngine([paths[row] for row in order], files)


def open_fragments(dataset: Any) -> ParquetEngine:
    """Open an Arrow dataset of Parquet files, whatever file system it was made with."""
    fragments = sorted(dataset.get_fragments(), key=lambda each: str(getattr(each, "path", "")))
    if not fragments or not all(type(each).__name__ == "ParquetFileFragment" for each in fragments):
        raise InvalidRequest("Expected an Arrow dataset of Parquet files", do="Write the rows as Parquet")
    read_keys: Any = importlib.import_module("pyarrow.dataset").get_partition_keys
    store, schema = fragments[0].filesystem, dataset.schema
    keys = [read_keys(each.partition_expression) for each in fragments]
    named = dict.fromkeys(name for found in keys for name in found)
    constants = [
        {name: _partition_cell(pa.scalar(found.get(name)), schema.field(name).type) for name in named} for found in keys
    ]
    local = isinstance(store, pa.fs.LocalFileSystem)
    files = FileList(store=None if local else store, constants=constants if named else (), schema=schema)
    return ParquetEngine([each.path for each in fragments], files)


@dataclass(frozen=True)
class _Listing:
    """Lists a folder again."""

    store: Any
    pattern: str

    def read(self) -> Version:
        facts = [(each.path, each.size, each.changed) for each in list_lake(self.store, self.pattern)]
        return (hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest(),)


@dataclass(frozen=True)
class _DeltaLog:
    """Finds the newest entry of the log of a Delta table."""

    store: Any
    root: str

    def read(self) -> Version:
        found = self.store.get_file_info(pa.fs.FileSelector(f"{self.root.rstrip('/')}/_delta_log"))
        entries = [(info.base_name, info.size, info.mtime_ns) for info in found if info.path.endswith(".json")]
        return (repr(max(entries)),)


def _check_delta(table: Any) -> None:
    """Refuse features by which the rows of a file are not those of the table."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ()) - {"timestampNtz"}
    mapped = (table.metadata().configuration or {}).get("delta.columnMapping.mode", "none") != "none"
    if features or mapped or (protocol.min_reader_version > 1 and protocol.reader_features is None and mapped):
        raise InvalidRequest(
            "Expected a Delta table without deletion vectors and column mapping",
            got=", ".join(sorted(features)) or "column mapping",
            do="Read it with Spark and pass the frame, or rewrite the table without these features",
        )


def _import_deltalake() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError:
        raise MissingExtra("lake", package="deltalake") from None


def _partition_cell(cell: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value in the type of its column, missing if it does not fit."""
    try:
        return cell.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.scalar(None, kind)


def _partition_types(
    names: Sequence[str], types: Mapping[str, str] | None, implied: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the type of each partition column: declared, implied by the description, or text."""
    for name, kind in (types or {}).items():
        if name not in names:
            raise InvalidRequest(
                "Expected types of partition columns only",
                got=f"{name} = {kind}",
                do="Leave them out: the files store the types of their columns",
            )
        split_type(kind, name)
    return {name: (types or {}).get(name) or (implied or {}).get(name, "text") for name in names}


def _read_partition(found: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, pa.Scalar]:
    """Return the cells of a file's partitions; one that does not fit its type is missing."""
    return {name: _partition_scalar(found.get(name), kind) for name, kind in kinds.items()}


def _partition_scalar(text: str | None, kind: str) -> pa.Scalar:
    name, pattern = split_type(kind)
    value: Any = None
    if text is not None and text != _NULL:
        try:
            if name == "time":
                value = (
                    datetime.datetime.fromisoformat(text)
                    if pattern is None
                    else datetime.datetime.strptime(text, pattern)
                )
                value = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
            elif name == "boolean":
                value = {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
            else:
                value = {"integer": int, "real": float, "text": str}[name](text)
            return pa.scalar(value, TYPES[name])
        except (ValueError, OverflowError, pa.ArrowInvalid):
            value = None
    return pa.scalar(value, TYPES[name])


def _open_store(text: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it."""
    if not _SCHEME.match(text):
        return pa.fs.LocalFileSystem(), os.path.abspath(text)
    if text.startswith("file://"):
        return pa.fs.LocalFileSystem(), unquote(urlsplit(text).path)
    # A glob is not part of an address.
    address, magic = text, ""
    if glob.has_magic(text.partition("?")[0] if "://" in text and "?" in text and "*" not in text else text):
        address = text[: len(_fixed_part(text))]
        magic = text[len(address) :]
    try:
        store, path = pa.fs.FileSystem.from_uri(address.rstrip("/"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        store, path = _open_fsspec(address)
    return store, path + magic


def _open_fsspec(address: str) -> tuple[Any, str]:
    """Open an address of a store that only fsspec knows, such as ``az://``."""
    scheme = address.partition("://")[0]
    try:
        fsspec: Any = importlib.import_module("fsspec")
        store, path = fsspec.core.url_to_fs(address)
    except ImportError:
        raise MissingExtra("lake", package=f"fsspec and its driver of {scheme}") from None
    return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(store)), str(path)


def _plain_address(text: str) -> str:
    return text if _SCHEME.match(text) else os.path.abspath(text)


def _fixed_part(pattern: str) -> str:
    """Return the folders of a pattern before the first one with a wildcard."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if glob.has_magic(part):
            break
        parts.append(part)
    return "/".join(parts)


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path is in the folder that a pattern names, or matches it part by part."""
    if not glob.has_magic(pattern):
        return True
    names, parts = path.strip("/").split("/"), pattern.strip("/").split("/")
    return len(names) >= len(parts) and all(map(fnmatch.fnmatchcase, names, parts))


def _exists(store: Any, path: str) -> bool:
    return bool(store.get_file_info(path).type is pa.fs.FileType.Directory)


def _has_parquet(store: Any, path: str) -> bool:
    return any(_parquet_names(store, path))


def _parquet_names(store: Any, path: str) -> Iterator[str]:
    for info in store.get_file_info(pa.fs.FileSelector(path)):
        if info.path.lower().endswith(_PARQUET):
            yield info.path
