"""The engine of text files (CSV and fixed width): a bad cell is missing, never an error.

Three steps, each of which treats every record independently: quotes and line ends decide which bytes are a record, delimiters
or widths cut records into cells (``expost.data.engines.text_record``), and DuckDB casts the cells.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from expost.core import InvalidRequest
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, batch_rows_for, quote_name, run_parallel
from expost.data.engines.text_record import UNREADABLE, CutRecords, Misquoted, begins_with_utf16, csv_records
from expost.data.source_identity import SourceIdentity, identify_files
from expost.data.source_version import Version, file_version
from expost.data.text_format import TextFormat, cast_sql, plain_name, quote_text
from expost.data.untyped_table import check_types

__all__ = ["CsvEngine", "guess_types", "open_csv"]

T = TypeVar("T")

_SAMPLE = 20_480
_DELIMITERS = (",", "\t", ";", "|")
_DECIMAL_COMMAS = (
    "The header is divided by semicolons. If numbers have decimal commas, they are all missing values: pass "
    'decimal=",". If they have points, pass separator=";" to say so.'
)


class CsvEngine(Engine):
    """Reads text files block by block; DuckDB casts the cells of a block.

    A record of an RFC 4180 file is at most one row, and no record changes the row of another. A file that is not RFC 4180
    is refused when it is opened. With ``lines_are_rows`` quotes do not delimit records, and nothing is refused;
    ``docs/decisions/0007-what-a-csv-record-is.md`` explains why it must be declared.

    Use ``Dataset("people.csv")``, which picks the engine.
    """

    def __init__(
        self, paths: Sequence[Path], columns: Mapping[str, str], *, delimiter: str, text_format: TextFormat
    ) -> None:
        self._paths, self._columns, self._delimiter = tuple(paths), dict(columns), delimiter
        self._format = text_format
        self._connection = _connect_in_memory()
        self._schema = self._cast_rows(pa.array([], pa.string()), list(columns)).schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for lines in self._read_lines(rows_per_batch):
            yield self._cast_rows(lines, columns)

    def scan(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        lines = self._read_lines(batch_rows_for(len(columns)))
        return run_parallel(lambda some: function(self._cast_rows(some, columns)), lines)

    def identity(self) -> SourceIdentity:
        declared = identify_files(self._schema, self._paths, self._read_first)
        # A copy of the same rows with stored types is recognised too. The guess leaves this method as a hash only.
        typed = CsvEngine(
            self._paths, self._columns | guess_types(self), delimiter=self._delimiter, text_format=self._format
        )
        guessed = SourceIdentity.of_batches(typed.schema, typed._read_first).samples
        return replace(declared, samples=tuple(dict.fromkeys((*declared.samples, *guessed))))

    def version(self) -> Version:
        return file_version(self._paths)

    def _read_first(self, rows: int) -> Iterator[pa.RecordBatch]:
        return self.batches(self._schema.names, rows_per_batch=rows)

    def check_records(self) -> None:
        """Read the files once, so that a misplaced quote or a broken archive raises before anything is charged."""
        for _ in self._read_lines(ROWS_PER_BATCH):
            pass

    def _read_lines(self, most: int) -> Iterator[pa.Array]:
        """Yield the records of all files without their headers, at most ``most`` at a time."""
        for path in self._paths:
            header = int(self._format.widths is None)
            for records in _read_records(path, self._delimiter, self._format):
                yield from (records.slice(start, most) for start in range(header, len(records), most))
                header = 0

    def _cast_rows(self, lines: pa.Array, columns: Sequence[str]) -> pa.RecordBatch:
        """Cut records into cells and cast them. A blank line is not a row."""
        chosen = list(columns) or list(self._columns)[:1]
        places = {name: place for place, name in enumerate(self._columns)}
        cut, source = CutRecords(lines, self._delimiter), "records"
        if self._format.widths is not None:
            texts, spans = {"record": cut.whole_records()}, _spans_sql(self._format.widths)
            cells = [spans[name] for name in chosen]
        elif self._format.lines_are_rows and cut.has_quotes:
            # Quotes may stand anywhere, so DuckDB cuts each line by itself.
            texts, source = {"record": cut.whole_records()}, _split_records_sql(self._delimiter)
            cells = [_quoted_cell_sql(places[name]) for name in chosen]
        else:
            cells = [f"cell{places[name]}" for name in chosen]
            texts = {cell: cut.column_cells(places[name]) for cell, name in zip(cells, chosen, strict=True)}
        casts = (
            f"{self._cast_sql(cell, name)} AS {quote_name(name)}" for cell, name in zip(cells, chosen, strict=True)
        )
        with self._connection.cursor() as cursor:
            cursor.register("records", pa.table(texts))
            table = cursor.sql(f"SELECT {', '.join(casts)} FROM {source}").to_arrow_table().combine_chunks()
        return pa.RecordBatch.from_arrays(
            [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns],
            schema=table.schema,
        )

    def _cast_sql(self, cell: str, name: str) -> str:
        """Write the SQL of a cell's value, NULL for the texts that are missing values."""
        cast = cast_sql(cell, self._columns[name], self._format.decimal)
        missing = ", ".join(map(quote_text, self._format.missing_texts(name)))
        return f"CASE WHEN trim({cell}) NOT IN ({missing}) THEN {cast} END" if missing else cast


def open_csv(
    paths: Sequence[Path],
    types: Mapping[str, str] | None = None,
    implied: Mapping[str, str] | None = None,
    *,
    text_format: TextFormat | None = None,
) -> CsvEngine:
    """Open text files of one layout.

    The header alone decides delimiter and names, unless they are declared. Every cell is read as text and then cast. A cell
    that does not fit its column's type, is not text in the file's encoding, or is beyond the end of a short line, is
    missing. A column that is neither declared in ``types`` nor implied by the description holds texts: no row decides.
    """
    text_format = text_format or TextFormat()
    text_format.check()
    with suppress(Misquoted):  # raised again below, so that the chain does not lead back to a row
        delimiter = text_format.separator or _find_delimiter(paths[0], text_format)
        names = list(text_format.widths) if text_format.widths else _read_names(paths, delimiter, text_format)
        columns = dict.fromkeys(names, "text")
        columns |= {name: kind for name, kind in (implied or {}).items() if name in names}
        columns |= check_types(types, names)
        if (
            text_format.separator is None
            and delimiter == ";"
            and text_format.decimal == "."
            and "real" in columns.values()
        ):
            warnings.warn(_DECIMAL_COMMAS, UserWarning, stacklevel=2)
        engine = CsvEngine(paths, columns, delimiter=delimiter, text_format=text_format)
        if not text_format.lines_end_records or any(path != plain_name(path) for path in paths):
            engine.check_records()
        return engine
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


def _spans_sql(widths: Mapping[str, int]) -> dict[str, str]:
    """Write the SQL of each cell of a fixed-width record: the characters of its span without spaces around them."""
    starts = accumulate(widths.values(), initial=1)
    return {
        name: f"CASE WHEN NOT contains(record, '{UNREADABLE}') THEN nullif(trim(substring(record, {start}, {width})), '') END"
        for (name, width), start in zip(widths.items(), starts, strict=False)
    }


def guess_types(engine: CsvEngine) -> dict[str, str]:
    """Return for each column of texts the first type that all of the first rows fit. SECRET until the owner checked it."""
    names = [each.name for each in engine.schema if pa.types.is_string(each.type)]
    sample = next(engine.batches(names, rows_per_batch=_SAMPLE), None) if names else None
    if sample is None:
        return dict.fromkeys(names, "text")
    fits = {
        "integer": "regexp_full_match(trim({0}), '[+-]?[0-9]+') AND TRY_CAST(trim({0}) AS BIGINT) IS NOT NULL",
        **{kind: f"{cast_sql('{0}', kind)} IS NOT NULL" for kind in ("real", "boolean", "time")},
    }
    columns = {}
    with _connect_in_memory() as connection:
        connection.register("sample", pa.Table.from_batches([sample]))
        for name in names:
            column = quote_name(name)
            tests = ", ".join(f"bool_and({test.format(column)})" for test in fits.values())
            found = connection.sql(f"SELECT {tests} FROM sample WHERE {column} IS NOT NULL").fetchall()[0]
            columns[name] = next((kind for kind, all_fit in zip(fits, found, strict=True) if all_fit), "text")
    return columns


def _read_records(path: Path, delimiter: str, text_format: TextFormat) -> Iterator[pa.Array]:
    """Yield the records of one file, its header first."""
    rows, encoding = text_format.lines_end_records, text_format.encoding
    return csv_records(path, delimiter, lines_are_rows=rows, encoding=encoding)


def _read_names(paths: Sequence[Path], delimiter: str, text_format: TextFormat) -> list[str]:
    """Return the column names, which must be the same in the headers of all files."""
    if text_format.encoding == "utf-8" and begins_with_utf16(paths[0]):
        raise InvalidRequest(
            "Expected a file in UTF-8, but this one begins with the mark of UTF-16",
            got=paths[0].name,
            do='Pass encoding="utf-16"',
        )
    headers = []
    for path in paths:
        header = _read_header(path, delimiter, text_format)
        cells: list[str] = []
        if not ("\r" in header or "\0" in header):  # lines that end in a carriage return alone are not supported
            with suppress(csv.Error):
                cells = next(csv.reader([header], delimiter=delimiter), [])
        headers.append(cells)
    names = [name or f"column{place}" for place, name in enumerate(headers[0])]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidRequest(
            f"Expected a header of different names, but {repeated!r} is there twice",
            got=paths[0].name,
            do="Rename one of the columns in the file",
        )
    if not names or any(header != headers[0] for header in headers):
        raise InvalidRequest(
            "Expected a CSV file with a header of different names, the same in all files, and lines that end in LF",
            got=paths[0].name,
            do='Check the first lines; pass encoding="utf-16" or "latin-1" if it is not UTF-8, or use Parquet',
        )
    return names


def _read_header(path: Path, delimiter: str, text_format: TextFormat) -> str:
    """Return the first record, or an empty text if it cannot be read."""
    first = next(_read_records(path, delimiter, text_format), None)
    text = None if first is None else first[0].as_py()
    return "" if text is None or UNREADABLE in text else text.rstrip("\r\n")


def _find_delimiter(path: Path, text_format: TextFormat) -> str:
    """Return a tab for a .tsv file, else the first known delimiter in the header, which is public."""
    if plain_name(path).suffix.lower() == ".tsv":
        return "\t"
    lines = replace(text_format, lines_are_rows=True)
    header = _read_header(path, ",", lines).split('"')[:: 1 if text_format.lines_are_rows else 2]
    return next((sign for sign in _DELIMITERS if any(sign in part for part in header)), ",")
