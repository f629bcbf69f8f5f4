"""The identity of a table's source, by which a ledger recognises the same rows under another name.

An identity has public facts (where the source is, its files, its columns) and samples of its content. Samples never leave
the process: a ledger keeps a keyed code of each. They are a guard against mistakes, not against somebody who rewrites a
file, and they read a few blocks and the first rows only, however large the source is.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from expost.data.canonical_cell import Kind, canonical_batch

__all__ = [
    "SourceIdentity",
    "identify_addresses",
    "identify_files",
    "identify_query",
    "name_place",
    "public_address",
    "query_files",
    "sample_file",
    "sample_rows",
]

_PART = re.compile(r"(?:/[^/=]+=[^/]*)*/part-[^/]*$")
_FILE = re.compile(r"/|\.[A-Za-z]\w{1,8}$")
_GENERATED = re.compile(r"\w*(?:[0-9a-f]{8,}|[0-9]{6,})\w*")
_MOST_FILES = 256  # of a glob: more are found again by its pattern
_MOST_SAMPLED = 64  # files of which the content is sampled
_BLOCKS, _BLOCK = 8, 4096
_MOST_ROWS, _MOST_CELLS, _MOST_COLUMNS = 256, 1 << 15, 256


@dataclass(frozen=True, kw_only=True)
class SourceIdentity:
    """What tells one source from another.

    Parameters
    ----------
    columns : tuple of (str, str)
        Names and kinds of the stored columns.
    places : tuple of str
        Where the rows are: ``file:/path``, ``glob:/pattern`` or ``postgresql:server/database/table``, never a password.
    files : tuple of str
        Device and inode of each file.
    samples : tuple of bytes
        Hashes of samples of the content. They are not keyed, so they must be neither stored nor shown.

    Examples
    --------
    >>> SourceIdentity.of_schema(pa.schema({"age": pa.int64()}))
    SourceIdentity(columns=(('age', 'integer'),), places=(), files=())
    """

    columns: tuple[tuple[str, str], ...]
    places: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    samples: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> SourceIdentity:
        """Return the identity of a source of which only the columns are known.

        Parameters
        ----------
        schema : pyarrow.Schema
            Names and types of the columns.

        Returns
        -------
        SourceIdentity
        """
        return cls(columns=tuple((each.name, Kind.of(each.type).value) for each in schema))

    @classmethod
    def of_batches(cls, schema: pa.Schema, read: Callable[[int], Iterable[pa.RecordBatch]]) -> SourceIdentity:
        """Return the identity of a source that can give its first rows.

        Parameters
        ----------
        schema : pyarrow.Schema
            Names and types of the columns.
        read : callable
            Takes a number of rows, and yields batches that begin with the first rows.

        Returns
        -------
        SourceIdentity
        """
        found = cls.of_schema(schema)
        return replace(found, samples=tuple(_quietly(sample_rows, schema, read)))

    def at(self, place: str | None) -> SourceIdentity:
        """Return the identity with one more place, such as the pattern that found its files.

        Parameters
        ----------
        place : str or None
            The place; None changes nothing.

        Returns
        -------
        SourceIdentity
        """
        return self if place is None or place in self.places else replace(self, places=(place, *self.places))

    def with_table(self, other: SourceIdentity) -> SourceIdentity:
        """Return the identity of two tables that are read together: what either is recognised by.

        Parameters
        ----------
        other : SourceIdentity
            The identity of the second table.

        Returns
        -------
        SourceIdentity

        Examples
        --------
        >>> visits = SourceIdentity.of_schema(pa.schema({"id": pa.int64()}))
        >>> people = SourceIdentity.of_schema(pa.schema({"id": pa.int64(), "age": pa.int64()}))
        >>> visits.with_table(people).columns
        (('id', 'integer'), ('age', 'integer'))
        """
        pairs = ((self.columns, other.columns), (self.places, other.places), (self.files, other.files))
        columns, places, files = (tuple(dict.fromkeys((*ours, *theirs))) for ours, theirs in pairs)
        samples = tuple(dict.fromkeys((*self.samples, *other.samples)))
        return SourceIdentity(columns=columns, places=places, files=files, samples=samples)


def name_place(source: Any) -> str | None:
    """Return the place of a path or glob as its owner wrote it, made absolute; None for other sources.

    A link keeps the name of the link, besides the file it leads to: it may lead to another file tomorrow.

    >>> name_place("/data/2013-*.parquet")
    'glob:/data/2013-*.parquet'
    """
    if not isinstance(source, str | os.PathLike):
        return None
    if isinstance(source, str) and "://" in source:
        return public_address(source)
    path = os.path.abspath(source)
    return _write_path("glob" if glob.has_magic(path) and not os.path.exists(path) else "file", path)


def public_address(text: str) -> str:
    """Return an address without user, password and options, or a local path as a place.

    >>> public_address("s3://key:secret@bucket/flights/?region=eu"), public_address("file:///data/flights")
    ('s3://bucket/flights', 'file:/data/flights')
    """
    if "://" not in text:
        return _write_path("file", os.path.abspath(text))
    parts = urlsplit(text)
    path = parts.path.rstrip("/")
    return (
        f"file:{unquote(path)}"
        if parts.scheme == "file"
        else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
    )


def identify_files(
    schema: pa.Schema, paths: Sequence[Any], read: Callable[[int], Iterable[pa.RecordBatch]] | None = None
) -> SourceIdentity:
    """Return the identity of files: their paths with links resolved, device and inode, and samples of their content.

    Parameters
    ----------
    schema : pyarrow.Schema
        Names and types of the columns.
    paths : sequence of path
        The files, at least one.
    read : callable, optional
        Takes a number of rows, and yields batches that begin with the first rows of all files.

    Returns
    -------
    SourceIdentity
    """
    places: dict[str, None] = {}
    files: dict[str, None] = {}
    for path in paths[:_MOST_FILES]:
        for each in (os.path.abspath(path), os.path.realpath(path)):
            places[_write_path("file", each)] = None
        for found in _quietly(os.stat, path):
            files[f"{found.st_dev}:{found.st_ino}"] = None
    samples = [sample for path in paths[:_MOST_SAMPLED] for sample in _quietly(sample_file, path)]
    first = () if read is None else SourceIdentity.of_batches(schema, read).samples
    return replace(
        SourceIdentity.of_schema(schema), places=tuple(places), files=tuple(files), samples=(*samples, *first)
    )


def identify_query(schema: pa.Schema, sql: str, *, generated: bool = False) -> SourceIdentity:
    """Return the identity of a query: the files that it names, and a sample of its text, which may contain a password.

    Parameters
    ----------
    schema : pyarrow.Schema
        Names and types of the result's columns.
    sql : str
        The query.
    generated : bool, default False
        Whether DuckDB wrote the text, with names and numbers that differ from one run to the next.

    Returns
    -------
    SourceIdentity
    """
    words = _quoted_paths(sql)
    found = replace(identify_files(schema, query_files(sql)), samples=())  # a query may read a small part of a file
    patterns = [name_place(word) for word in sorted(words) if glob.has_magic(word) and glob.glob(word)]
    for pattern in patterns:
        found = found.at(pattern)
    plain = _GENERATED.sub("", sql) if generated else sql
    text = repr(("query", " ".join(plain.split()), found.columns)).encode("utf-8", "surrogatepass")
    return replace(found, samples=(hashlib.sha256(text).digest(),))


def query_files(sql: str) -> list[str]:
    """Return the files that a query names, in order.

    >>> query_files("select * from 'gone.parquet'")
    []
    """
    return sorted({found for word in _quoted_paths(sql) for found in glob.glob(word) if os.path.isfile(found)})


def _quoted_paths(sql: str) -> set[str]:
    """Return the quoted words of a query that look like paths."""
    # Every second piece between quotes is a literal or a quoted name.
    return {word for quote in "'\"" for word in sql.split(quote)[1::2] if _FILE.search(word) and "\x00" not in word}


def identify_addresses(schema: pa.Schema, addresses: Iterable[str]) -> SourceIdentity:
    """Return the identity of files that another system reads, from their addresses.

    Parameters
    ----------
    schema : pyarrow.Schema
        Names and types of the columns.
    addresses : iterable of str
        Addresses such as ``file:///data/part-0.parquet`` or ``s3://bucket/part-0.parquet``.

    Returns
    -------
    SourceIdentity

    Examples
    --------
    >>> identify_addresses(pa.schema([]), ["s3://user:password@bucket/people.parquet"]).places
    ('s3://bucket/people.parquet',)
    """
    parts = [urlsplit(address) for address in sorted(addresses)]
    local = [unquote(part.path) for part in parts if part.scheme in ("", "file")]
    found = replace(identify_files(schema, local), samples=()) if local else SourceIdentity.of_schema(schema)
    far = [part for part in parts if part.scheme not in ("", "file")]
    beyond = [f"{part.scheme}://{part.netloc.rpartition('@')[2]}{part.path}" for part in far]
    # Spark writes a table as a folder of parts, whose names are new each time.
    folders = {_PART.sub("", place) for place in (*(f"file:{path}" for path in local), *beyond) if _PART.search(place)}
    return replace(found, places=(*sorted(folders), *found.places, *beyond[:_MOST_FILES]))


def sample_rows(schema: pa.Schema, read: Callable[[int], Iterable[pa.RecordBatch]]) -> bytes:
    """Return a hash of the first rows that is equal for equal cells, whatever file or frame they are in.

    Parameters
    ----------
    schema : pyarrow.Schema
        Names and types of the columns.
    read : callable
        Takes a number of rows, and yields batches that begin with the first rows.

    Returns
    -------
    bytes

    Examples
    --------
    >>> whole, real = pa.table({"x": [1, 2]}), pa.table({"x": [1.0, 2.0]})
    >>> sample_rows(whole.schema, lambda n: whole.to_batches()) == sample_rows(real.schema, lambda n: real.to_batches())
    True
    """
    names = sorted(each.name for each in schema if Kind.of(each.type) is not Kind.OTHER)[:_MOST_COLUMNS]
    wanted = min(_MOST_ROWS, _MOST_CELLS // max(len(names), 1))
    cells: dict[str, list[str]] = {name: [] for name in names}
    for batch in _first_rows(read(wanted), wanted):
        canonical = canonical_batch(batch)
        for name in names:
            cells[name] += _cell_texts(canonical.column(canonical.schema.get_field_index(name)))
    return hashlib.sha256(repr(("rows", cells)).encode("utf-8", "surrogatepass")).digest()


def _first_rows(batches: Iterable[pa.RecordBatch], wanted: int) -> Iterator[pa.RecordBatch]:
    """Yield the beginning of batches up to a number of rows."""
    for batch in batches:
        yield batch.slice(0, wanted)
        wanted -= min(wanted, batch.num_rows)
        if wanted == 0:
            return


def _cell_texts(column: pa.Array) -> list[str]:
    """Return cells as texts. Numbers of all types have one spelling, and so have missing cells and NaN."""
    if pa.types.is_temporal(column.type) and not pa.types.is_time(column.type):
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return ["" if cell is None or cell != cell else _cell_text(cell) for cell in column.to_pylist()]


def _cell_text(cell: Any) -> str:
    if isinstance(cell, int | float):
        return repr(float(cell)) if abs(cell) < 1 << 53 else repr(cell)
    return "'" + str(cell)


def _write_path(kind: str, path: Any) -> str:
    """Return a place in letters that can be stored; bytes of a name that are not UTF-8 are written as numbers."""
    return f"{kind}:{os.fsencode(path).decode('utf-8', 'backslashreplace')}"


def sample_file(path: Any) -> bytes:
    """Return a hash of the size and of a few blocks of a file, the first and the last among them."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        sample = hashlib.sha256(f"file {size} ".encode())
        last = max(size - _BLOCK, 0)
        for place in sorted({last * block // (_BLOCKS - 1) for block in range(_BLOCKS)}):
            file.seek(place)
            sample.update(file.read(_BLOCK))
    return sample.digest()


def _quietly(step: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return a list with the result, empty if the step failed: the message of a reader may repeat a cell."""
    try:
        return [step(*arguments)]
    except Exception:
        return []
