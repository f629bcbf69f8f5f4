"""CSV files: one record is one row whatever its cells hold, and a bad cell is a missing value, never an error."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from expost.core import InvalidRequest
from expost.data.engines.contract import ROWS_PER_BATCH, rows_for
from expost.data.engines.csv_cells import CutRecords
from expost.data.engines.csv_records import UNREADABLE, Misquoted, csv_records
from expost.data.engines.parallel import in_parallel

__all__ = ["CsvEngine", "open_csv"]

T = TypeVar("T")

_SQL = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR", "time": "TIMESTAMP"}
_WHOLE = r"[+-]?[0-9]+(\.0*)?"
_SAMPLE = 20_480
_DELIMITERS = (",", "\t", ";", "|")


def open_csv(
    paths: Sequence[Path],
    types: Mapping[str, str] | None = None,
    implied: Mapping[str, str] | None = None,
    *,
    lines_are_rows: bool = False,
) -> CsvEngine:
    """An engine over CSV files of one layout.

    The header alone decides layout and names. Every cell is read as text and then cast: one that does not fit its
    column's type, that is no UTF-8, that a line is too short for end as missing values. The type of a column that is
    neither declared in ``types`` nor implied by the description is guessed from the first rows.
    """
    with suppress(Misquoted):  # raised again outside, so that no chain leads back to a row
        return _opened(paths, types, implied, lines_are_rows)
    raise InvalidRequest(
        "Expected a CSV file whose quotes enclose whole cells (RFC 4180)",
        got=paths[0].name,
        do="Write it with a CSV writer or as Parquet, or, if no cell can hold a line end, pass lines_are_rows=True",
    )


def _opened(
    paths: Sequence[Path],
    types: Mapping[str, str] | None,
    implied: Mapping[str, str] | None,
    lines_are_rows: bool,
) -> CsvEngine:
    delimiter = _delimiter(paths[0], lines_are_rows)
    names = _names(paths, delimiter, lines_are_rows)
    texts = CsvEngine(paths, dict.fromkeys(names, "VARCHAR"), delimiter=delimiter, lines_are_rows=lines_are_rows)
    if not lines_are_rows:
        texts.check()
    described = {name: _SQL[kind] for name, kind in (implied or {}).items() if name in names}
    declared = described | _declared(names, types or {})
    guessed = {} if len(declared) == len(names) else _guess(texts)  # whoever declares all lets no row decide
    columns = {name: declared.get(name) or guessed[name] for name in names}
    return CsvEngine(paths, columns, delimiter=delimiter, lines_are_rows=lines_are_rows)


class CsvEngine:
    """Reads CSV files block by block; the cells of a block are cut and cast by DuckDB.

    One record of a file that is RFC 4180 is at most one row, and no record changes another's row. What is not
    RFC 4180 is refused when it is opened; with ``lines_are_rows`` quotes have no say in what a record is, and nothing is
    refused. ``docs/decisions/0007-what-a-csv-record-is.md`` says why it must be declared.

    Use ``Dataset("people.csv")``, which picks the engine.
    """

    def __init__(
        self, paths: Sequence[Path], columns: Mapping[str, str], *, delimiter: str, lines_are_rows: bool
    ) -> None:
        self._paths, self._columns, self._delimiter = tuple(paths), dict(columns), delimiter
        self._lines_are_rows = lines_are_rows
        self._connection = _in_memory()
        self._schema = self._rows(pa.array([], pa.string()), list(columns)).schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def check(self) -> None:
        """Read all quotes once: who meets one that is out of place meets it before anything is asked."""
        for _ in self._lines(ROWS_PER_BATCH):
            pass

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for lines in self._lines(rows_per_batch):
            yield self._rows(lines, columns)

    def map(self, function: Callable[[pa.RecordBatch], T], columns: Sequence[str]) -> Iterator[T]:
        return in_parallel(lambda lines: function(self._rows(lines, columns)), self._lines(rows_for(len(columns))))

    def _lines(self, most: int) -> Iterator[pa.Array]:
        for path in self._paths:
            header = 1
            for records in csv_records(path, self._delimiter, lines_are_rows=self._lines_are_rows):
                yield from (records.slice(start, most) for start in range(header, len(records), most))
                header = 0

    def _rows(self, lines: pa.Array, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows of some records; a blank line is none."""
        chosen = list(columns) or list(self._columns)[:1]
        places = {name: place for place, name in enumerate(self._columns)}
        cut = CutRecords(lines, self._delimiter)
        # Quotes that may stand anywhere are weighed one by one, within their own line.
        odd = self._lines_are_rows and cut.has_quotes
        texts = {"record": cut.whole()} if odd else {f"cell{places[name]}": cut.cells(places[name]) for name in chosen}
        casts = [
            _cast(_own_cell(places[name]) if odd else f"cell{places[name]}", self._columns[name]) for name in chosen
        ]
        named = ", ".join(f"{cast} AS {_name(name)}" for cast, name in zip(casts, chosen, strict=True))
        with self._connection.cursor() as cursor:
            cursor.register("records", pa.table(texts))
            source = _split(self._delimiter) if odd else "records"
            table = cursor.sql(f"SELECT {named} FROM {source}").to_arrow_table().combine_chunks()
        return pa.RecordBatch.from_arrays(
            [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns],
            schema=table.schema,
        )


def _in_memory() -> duckdb.DuckDBPyConnection:
    """A connection that writes nothing to disk; one thread a query, since blocks are read in parallel already."""
    return duckdb.connect(config={"threads": "1", "temp_directory": ""})


def _split(delimiter: str) -> str:
    """A query that cuts each record into cells by itself, whatever quotes it has."""
    border = re.escape(delimiter)
    pattern = f'("(?:[^"]|"")*"|[^{border}]*)(?:{border}|$)'
    cells = (
        f"CASE WHEN contains(record, '\"') THEN regexp_extract_all(record, {_literal(pattern)}, 1) "
        f"ELSE string_split(record, {_literal(delimiter)}) END"
    )
    return f"(SELECT {cells} AS cells FROM records)"


def _own_cell(place: int) -> str:
    """One cell of a record that was cut by itself, as ``CutRecords`` reads it."""
    cell = f"cells[{place + 1}]"
    enclosed = f"starts_with({cell}, '\"') AND ends_with({cell}, '\"') AND length({cell}) > 1"
    text = f"CASE WHEN {enclosed} THEN replace({cell}[2:-2], '\"\"', '\"') ELSE nullif({cell}, '') END"
    return f"CASE WHEN NOT contains({cell}, '{UNREADABLE}') THEN {text} END"


def _cast(text: str, kind: str) -> str:
    if kind == "VARCHAR":
        return text
    cast = f"TRY_CAST(trim({text}) AS {kind})"
    # DuckDB would round 1.5 to a whole number and so make one id of two.
    return f"CASE WHEN regexp_full_match(trim({text}), '{_WHOLE}') THEN {cast} END" if kind == "BIGINT" else cast


def _declared(names: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL types of the declared columns."""
    for name, kind in types.items():
        if name not in names or kind not in _SQL:
            raise InvalidRequest(
                f"Expected types of columns in the header, each one of {', '.join(_SQL)}",
                got=f"{name} = {kind}",
                do="Correct it",
            )
    return {name: _SQL[kind] for name, kind in types.items()}


def _guess(texts: CsvEngine) -> dict[str, str]:
    """For each column the first type that all of the first rows fit."""
    sample = next(texts.batches(texts.schema.names, rows_per_batch=_SAMPLE), None)
    if sample is None:
        return dict.fromkeys(texts.schema.names, "VARCHAR")
    fits = {
        "BIGINT": "regexp_full_match(trim({0}), '[+-]?[0-9]+') AND TRY_CAST(trim({0}) AS BIGINT) IS NOT NULL",
        **{kind: f"TRY_CAST(trim({{0}}) AS {kind}) IS NOT NULL" for kind in ("DOUBLE", "BOOLEAN", "TIMESTAMP")},
    }
    columns = {}
    with _in_memory() as connection:
        connection.register("sample", pa.Table.from_batches([sample]))
        for name in texts.schema.names:
            tests = ", ".join(f"bool_and({test.format(_name(name))})" for test in fits.values())
            found = connection.sql(f"SELECT {tests} FROM sample WHERE {_name(name)} IS NOT NULL").fetchall()[0]
            columns[name] = next((kind for kind, all_fit in zip(fits, found, strict=True) if all_fit), "VARCHAR")
    return columns


def _names(paths: Sequence[Path], delimiter: str, lines_are_rows: bool) -> list[str]:
    headers = [_cells(_header(path, delimiter, lines_are_rows), delimiter) for path in paths]
    names = [name or f"column{place}" for place, name in enumerate(headers[0])]
    if not names or any(header != headers[0] for header in headers) or len(set(names)) != len(names):
        raise InvalidRequest(
            "Expected a CSV file with a header of different names, the same in all files, and lines that end in LF",
            got=paths[0].name,
            do="Check the first lines, or use Parquet",
        )
    return names


def _header(path: Path, delimiter: str, lines_are_rows: bool) -> str:
    """The first record, or nothing where there is none that can be read."""
    first = next(csv_records(path, delimiter, lines_are_rows=lines_are_rows), None)
    text = None if first is None else first[0].as_py()
    return "" if text is None or UNREADABLE in text else text.rstrip("\r\n")


def _cells(header: str, delimiter: str) -> list[str]:
    if "\r" in header or "\0" in header:  # a carriage return there: the file's lines do not end in line feeds
        return []
    try:
        return next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        return []


def _delimiter(path: Path, lines_are_rows: bool) -> str:
    """A tab in a .tsv; else the first sign of a list that the header has, the header being public."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    header = _header(path, ",", lines_are_rows=True).split('"')[:: 1 if lines_are_rows else 2]
    return next((sign for sign in _DELIMITERS if any(sign in part for part in header)), ",")


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
