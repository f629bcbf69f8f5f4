"""The engine of CSV files: one record is one row whatever its cells hold, and a bad cell is missing, never an error.

Three steps, each of which treats every record independently: quotes and line ends decide which bytes are a record
(``csv_records``), delimiters cut records into cells (``CutRecords``), and DuckDB casts the cells.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for, quote_name, run_parallel
from expost.data.source_identity import SourceIdentity, identify_files

__all__ = ["UNREADABLE", "CsvEngine", "CutRecords", "Misquoted", "csv_records", "open_csv"]

T = TypeVar("T")
Places = NDArray[np.int64]

UNREADABLE = "\U0010ffff"
"""Replaces bytes that are not UTF-8. Unicode reserves this code point, so it means nothing in any text."""

_BLOCK = 1 << 23
_LONGEST = 1 << 26  # bounds the memory; a longer record is one row of missing values
_QUOTE, _LF, _CR = 34, 10, 13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_TEXT = re.compile("[\udc80-\udcff]+")
_NO_BYTES = np.zeros(1, np.uint8)
_SQL = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR", "time": "TIMESTAMP"}
_WHOLE = r"[+-]?[0-9]+(\.0*)?"
_SAMPLE = 20_480
_DELIMITERS = (",", "\t", ";", "|")


class Misquoted(Exception):
    """The file is not RFC 4180: a quote neither opens nor closes a whole cell, so its records are ambiguous."""


def csv_records(
    path: Path, delimiter: str, *, lines_are_rows: bool, block: int = _BLOCK, longest: int = _LONGEST
) -> Iterator[pa.Array]:
    """Yield arrays of records with their line ends, the header first. A record longer than ``longest`` is null.

    A record ends at a line feed outside quotes (with ``lines_are_rows`` at every line feed). A carriage return alone does
    not end a record, since not every writer quotes it. Bytes that are not UTF-8 become ``UNREADABLE``.
    """
    cutter = _RecordCutter(delimiter, lines_are_rows)
    begun, lost = b"", False
    with path.open("rb") as file:
        mark = file.read(len(_BYTE_ORDER_MARK))
        part = (b"" if mark == _BYTE_ORDER_MARK else mark) + file.read(block)
        while part:
            ends = cutter.find_ends(part)
            if lost and ends.size:
                yield pa.nulls(1, pa.string())
                part, ends, lost = part[ends[0] :], ends[1:] - ends[0], False
            if ends.size:
                yield _records_to_texts(begun + part[: ends[-1]], ends + len(begun), longest)
                begun, part = b"", part[ends[-1] :]
            lost = lost or len(begun) + len(part) > longest
            begun = b"" if lost else begun + part
            part = file.read(block)
    cutter.check_closed()
    if begun or lost:
        yield pa.nulls(1, pa.string()) if lost else _records_to_texts(begun, np.array([len(begun)]), longest)


class _RecordCutter:
    """Finds the ends of records block by block. Between blocks it keeps the last byte and whether a quote is open."""

    def __init__(self, delimiter: str, lines_are_rows: bool) -> None:
        self._lines_are_rows = lines_are_rows
        self._before, self._inside, self._closed = _LF, False, False
        self._may_precede, self._may_follow = np.zeros(256, bool), np.zeros(256, bool)
        self._may_precede[[ord(delimiter), _LF, _QUOTE]] = True
        self._may_follow[[ord(delimiter), _LF, _CR, _QUOTE]] = True

    def find_ends(self, block: bytes) -> Places:
        """Return the positions after the line feeds that end a record; raise ``Misquoted`` for a stray quote."""
        read = np.frombuffer(block, np.uint8)
        feeds = np.flatnonzero(read == _LF)
        if self._lines_are_rows:
            return feeds + 1
        quotes = np.flatnonzero(read == _QUOTE)
        # An opening quote must follow a cell's border, a closing one must precede one, or two quotes form a pair.
        if self._closed and not self._may_follow[read[0]]:
            raise Misquoted
        opening, closing = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        preceding = np.where(opening > 0, read[opening - 1], self._before)
        following = read[closing[closing < len(read) - 1] + 1]
        if not (self._may_precede[preceding].all() and self._may_follow[following].all()):
            raise Misquoted
        ends: Places = feeds[(np.searchsorted(quotes, feeds) + self._inside) % 2 == 0] + 1
        self._inside = bool((len(quotes) + self._inside) % 2)
        self._before = int(read[-1])
        self._closed = self._before == _QUOTE and not self._inside
        return ends

    def check_closed(self) -> None:
        """Raise if the file ended inside quotes."""
        if self._inside:
            raise Misquoted


def _records_to_texts(whole: bytes, ends: Places, longest: int) -> pa.Array:
    """Cut bytes into texts at the ends. A record is too long by its own length only, wherever blocks begin."""
    too_long = np.diff(ends, prepend=0) > longest
    try:
        whole.decode("utf-8")
    except UnicodeDecodeError:
        # Replace invalid UTF-8 by a marker. ASCII bytes are unchanged, so the same line feeds end the same records.
        marked = _NOT_TEXT.sub(UNREADABLE, whole.decode("utf-8", "surrogateescape")).encode("utf-8")
        is_end = np.isin(np.flatnonzero(np.frombuffer(whole, np.uint8) == _LF) + 1, ends)
        found = np.flatnonzero(np.frombuffer(marked, np.uint8) == _LF)[is_end] + 1
        # The last record of a file may have no line end.
        whole, ends = marked, found if len(found) == len(ends) else np.append(found, len(marked))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(whole))
    return pc.if_else(pa.array(too_long), None, texts) if too_long.any() else texts


class CutRecords:
    r"""Records cut into cells, a column at a time. Quotes must enclose whole cells; blank records are dropped.

    >>> cut = CutRecords(pa.array(['1,"a\n""b"" c"\r\n', '\n', '2\n']), ",")
    >>> cut.column_cells(0).to_pylist(), cut.column_cells(1).to_pylist()
    (['1', '2'], ['a\n"b" c', None])
    """

    def __init__(self, lines: pa.StringArray, delimiter: str) -> None:
        _, offsets, self._buffer = lines.buffers()
        borders = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
        has_bytes = self._buffer is not None and self._buffer.size
        self._bytes = np.frombuffer(self._buffer, np.uint8) if has_bytes else _NO_BYTES
        start, stop = borders[:-1], borders[1:]
        for byte in (_LF, _CR):  # leave the line end out
            stop = stop - ((stop > start) & (self._bytes[stop - 1] == byte))
        lost = np.asarray(lines.is_null())
        kept = (stop > start) | lost
        self._start, self._stop, self._lost = start[kept], stop[kept], lost[kept]
        first, last = (int(borders[0]), int(borders[-1])) if len(lines) else (0, 0)
        part = self._bytes[first:last]
        quotes = np.flatnonzero(part == _QUOTE) + first
        signs = np.flatnonzero(part == ord(delimiter)) + first
        # Quotes of a record come in pairs: a delimiter after an odd number of them is inside a cell.
        self._signs = signs[np.searchsorted(quotes, signs) % 2 == 0] if quotes.size else signs
        self._first_sign = np.searchsorted(self._signs, self._start)
        self._sign_count = np.searchsorted(self._signs, self._stop) - self._first_sign
        self.has_quotes = bool(quotes.size)
        self._has_marks = UNREADABLE.encode() in part.tobytes()

    def whole_records(self) -> pa.StringArray:
        """Return the records without their line ends."""
        return self._cut_texts(self._start, self._stop, self._lost)

    def column_cells(self, place: int) -> pa.StringArray:
        """Return the cells of a column. Empty and invalid cells are missing; an empty text in quotes is not."""
        padded = np.append(self._signs, 0)
        mine = np.minimum(self._first_sign + place, len(self._signs))
        start = self._start if place == 0 else padded[mine - 1] + 1
        stop = np.where(place < self._sign_count, padded[mine], self._stop)
        absent = self._lost | (place > self._sign_count)
        start, stop = np.where(absent, self._stop, start), np.where(absent, self._stop, stop)
        enclosed = (stop - start > 1) & (self._bytes[np.minimum(start, len(self._bytes) - 1)] == _QUOTE)
        texts = self._cut_texts(start + enclosed, stop - enclosed, absent | (stop == start))
        if self.has_quotes:
            texts = pc.replace_substring(texts, '""', '"')
        if self._has_marks:
            texts = pc.if_else(pc.match_substring(texts, UNREADABLE), pa.scalar(None, pa.string()), texts)
        return texts

    def _cut_texts(self, start: Places, stop: Places, absent: NDArray[np.bool_]) -> pa.StringArray:
        """Return the texts between starts and stops: every other text that all the borders together cut."""
        if not len(start):
            return pa.array([], pa.string())
        borders = np.stack([start, stop], axis=1).ravel().astype(np.int32)
        cut = pa.StringArray.from_buffers(len(borders) - 1, pa.py_buffer(borders), self._buffer or pa.py_buffer(b""))
        return cut.take(pa.array(np.arange(0, len(borders), 2), mask=absent))


class CsvEngine(Engine):
    """Reads CSV files block by block; DuckDB casts the cells of a block.

    A record of an RFC 4180 file is at most one row, and no record changes the row of another. A file that is not RFC 4180
    is refused when it is opened. With ``lines_are_rows`` quotes do not delimit records, and nothing is refused;
    ``docs/decisions/0007-what-a-csv-record-is.md`` explains why it must be declared.

    Use ``Dataset("people.csv")``, which picks the engine.
    """

    def __init__(
        self, paths: Sequence[Path], columns: Mapping[str, str], *, delimiter: str, lines_are_rows: bool
    ) -> None:
        self._paths, self._columns, self._delimiter = tuple(paths), dict(columns), delimiter
        self._lines_are_rows = lines_are_rows
        self._connection = _connect_in_memory()
        self._schema = self._cast_rows(pa.array([], pa.string()), list(columns)).schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for lines in self._read_lines(rows_per_batch):
            yield self._cast_rows(lines, columns)

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        lines = self._read_lines(batch_rows_for(len(columns)))
        return run_parallel(lambda some: function(self._cast_rows(some, columns)), lines)

    def identity(self) -> SourceIdentity:
        def read(rows: int) -> Iterator[pa.RecordBatch]:
            return self.batches(self._schema.names, rows_per_batch=rows)

        return identify_files(self._schema, self._paths, read)

    def check_quotes(self) -> None:
        """Read the files once, so that a misplaced quote raises before anything is charged."""
        for _ in self._read_lines(ROWS_PER_BATCH):
            pass

    def _read_lines(self, most: int) -> Iterator[pa.Array]:
        """Yield the records of all files without their headers, at most ``most`` at a time."""
        for path in self._paths:
            header = 1
            for records in csv_records(path, self._delimiter, lines_are_rows=self._lines_are_rows):
                yield from (records.slice(start, most) for start in range(header, len(records), most))
                header = 0

    def _cast_rows(self, lines: pa.Array, columns: Sequence[str]) -> pa.RecordBatch:
        """Cut records into cells and cast them. A blank line is not a row."""
        chosen = list(columns) or list(self._columns)[:1]
        places = {name: place for place, name in enumerate(self._columns)}
        cut = CutRecords(lines, self._delimiter)
        if self._lines_are_rows and cut.has_quotes:  # quotes may stand anywhere, so DuckDB cuts each line by itself
            texts, source = {"record": cut.whole_records()}, _split_records_sql(self._delimiter)
            cells = [_quoted_cell_sql(places[name]) for name in chosen]
        else:
            cells, source = [f"cell{places[name]}" for name in chosen], "records"
            texts = {cell: cut.column_cells(places[name]) for cell, name in zip(cells, chosen, strict=True)}
        casts = [_cast_sql(cell, self._columns[name]) for cell, name in zip(cells, chosen, strict=True)]
        named = ", ".join(f"{cast} AS {quote_name(name)}" for cast, name in zip(casts, chosen, strict=True))
        with self._connection.cursor() as cursor:
            cursor.register("records", pa.table(texts))
            table = cursor.sql(f"SELECT {named} FROM {source}").to_arrow_table().combine_chunks()
        return pa.RecordBatch.from_arrays(
            [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns],
            schema=table.schema,
        )


def open_csv(
    paths: Sequence[Path],
    types: Mapping[str, str] | None = None,
    implied: Mapping[str, str] | None = None,
    *,
    lines_are_rows: bool = False,
) -> CsvEngine:
    """Open CSV files of one layout.

    The header alone decides layout and names. Every cell is read as text and then cast. A cell that does not fit its
    column's type, is not UTF-8, or is beyond the end of a short line, is missing. The type of a column that is neither
    declared in ``types`` nor implied by the description is guessed from the first rows.
    """
    with suppress(Misquoted):  # raised again below, so that the chain does not lead back to a row
        delimiter = _find_delimiter(paths[0], lines_are_rows)
        names = _read_names(paths, delimiter, lines_are_rows)
        texts = CsvEngine(paths, dict.fromkeys(names, "VARCHAR"), delimiter=delimiter, lines_are_rows=lines_are_rows)
        if not lines_are_rows:
            texts.check_quotes()
        declared = {name: _SQL[kind] for name, kind in (implied or {}).items() if name in names}
        for name, kind in (types or {}).items():
            if name not in names or kind not in _SQL:
                raise InvalidRequest(
                    f"Expected types of columns in the header, each one of {', '.join(_SQL)}",
                    got=f"{name} = {kind}",
                    do="Correct it",
                )
            declared[name] = _SQL[kind]
        guessed = {} if len(declared) == len(names) else _guess_types(texts)  # with all declared, no row decides
        columns = {name: declared.get(name) or guessed[name] for name in names}
        return CsvEngine(paths, columns, delimiter=delimiter, lines_are_rows=lines_are_rows)
    raise InvalidRequest(
        "Expected a CSV file whose quotes enclose whole cells (RFC 4180)",
        got=paths[0].name,
        do="Write it with a CSV writer or as Parquet, or, if no cell can hold a line end, pass lines_are_rows=True",
    )


def _connect_in_memory() -> duckdb.DuckDBPyConnection:
    """Connect to a DuckDB that writes nothing to disk, with one thread, since blocks are read in parallel already."""
    return duckdb.connect(config={"threads": "1", "temp_directory": ""})


def _split_records_sql(delimiter: str) -> str:
    """Write the query that cuts each record into cells, whatever quotes it has."""
    border = re.escape(delimiter)
    pattern, sign = (
        "'" + text.replace("'", "''") + "'" for text in (f'("(?:[^"]|"")*"|[^{border}]*)(?:{border}|$)', delimiter)
    )
    cells = (
        f"CASE WHEN contains(record, '\"') THEN regexp_extract_all(record, {pattern}, 1) "
        f"ELSE string_split(record, {sign}) END"
    )
    return f"(SELECT {cells} AS cells FROM records)"


def _quoted_cell_sql(place: int) -> str:
    """Write the SQL of one cell of a split record, with the same meaning as ``CutRecords.column_cells``."""
    cell = f"cells[{place + 1}]"
    enclosed = f"starts_with({cell}, '\"') AND ends_with({cell}, '\"') AND length({cell}) > 1"
    text = f"CASE WHEN {enclosed} THEN replace({cell}[2:-2], '\"\"', '\"') ELSE nullif({cell}, '') END"
    return f"CASE WHEN NOT contains({cell}, '{UNREADABLE}') THEN {text} END"


def _cast_sql(text: str, kind: str) -> str:
    """Write the SQL that casts a text, NULL if it does not fit."""
    if kind == "VARCHAR":
        return text
    cast = f"TRY_CAST(trim({text}) AS {kind})"
    # DuckDB would round 1.5 to an integer and so merge two ids.
    return f"CASE WHEN regexp_full_match(trim({text}), '{_WHOLE}') THEN {cast} END" if kind == "BIGINT" else cast


def _guess_types(texts: CsvEngine) -> dict[str, str]:
    """Return for each column the first type that all of the first rows fit."""
    sample = next(texts.batches(texts.schema.names, rows_per_batch=_SAMPLE), None)
    if sample is None:
        return dict.fromkeys(texts.schema.names, "VARCHAR")
    fits = {
        "BIGINT": "regexp_full_match(trim({0}), '[+-]?[0-9]+') AND TRY_CAST(trim({0}) AS BIGINT) IS NOT NULL",
        **{kind: f"TRY_CAST(trim({{0}}) AS {kind}) IS NOT NULL" for kind in ("DOUBLE", "BOOLEAN", "TIMESTAMP")},
    }
    columns = {}
    with _connect_in_memory() as connection:
        connection.register("sample", pa.Table.from_batches([sample]))
        for name in texts.schema.names:
            column = quote_name(name)
            tests = ", ".join(f"bool_and({test.format(column)})" for test in fits.values())
            found = connection.sql(f"SELECT {tests} FROM sample WHERE {column} IS NOT NULL").fetchall()[0]
            columns[name] = next((kind for kind, all_fit in zip(fits, found, strict=True) if all_fit), "VARCHAR")
    return columns


def _read_names(paths: Sequence[Path], delimiter: str, lines_are_rows: bool) -> list[str]:
    """Return the column names, which must be the same in the headers of all files."""
    headers = []
    for path in paths:
        header = _read_header(path, delimiter, lines_are_rows)
        cells: list[str] = []
        if not ("\r" in header or "\0" in header):  # lines that end in a carriage return alone are not supported
            with suppress(csv.Error):
                cells = next(csv.reader([header], delimiter=delimiter), [])
        headers.append(cells)
    names = [name or f"column{place}" for place, name in enumerate(headers[0])]
    if not names or any(header != headers[0] for header in headers) or len(set(names)) != len(names):
        raise InvalidRequest(
            "Expected a CSV file with a header of different names, the same in all files, and lines that end in LF",
            got=paths[0].name,
            do="Check the first lines, or use Parquet",
        )
    return names


def _read_header(path: Path, delimiter: str, lines_are_rows: bool) -> str:
    """Return the first record, or an empty text if it cannot be read."""
    first = next(csv_records(path, delimiter, lines_are_rows=lines_are_rows), None)
    text = None if first is None else first[0].as_py()
    return "" if text is None or UNREADABLE in text else text.rstrip("\r\n")


def _find_delimiter(path: Path, lines_are_rows: bool) -> str:
    """Return a tab for a .tsv file, else the first known delimiter in the header, which is public."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    header = _read_header(path, ",", lines_are_rows=True).split('"')[:: 1 if lines_are_rows else 2]
    return next((sign for sign in _DELIMITERS if any(sign in part for part in header)), ",")
