"""CSV files through DuckDB, so that a bad cell is a missing value and never an error."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from expost.core import InvalidRequest
from expost.data.engines.duck import DuckEngine, quoted

__all__ = ["open_csv"]

_FORGIVING = "strict_mode=false, ignore_errors=true"
_LINES = "delim='\x01', quote='', escape='', new_line='\\n'"
_SQL = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR", "time": "TIMESTAMP"}


def open_csv(paths: Sequence[Path], types: Mapping[str, str] | None = None) -> DuckEngine:
    """An engine over CSV files of one layout.

    Every cell is read as text and then cast with TRY_CAST: one that does not fit its column's type, a line that is too
    short or too long end as missing values. With declared ``types`` nothing but the header is read to decide what the
    columns are, and a row is a line, so that a stray quote reaches no other row. Without them layout and types are guessed
    from the beginning of the first file, and quoted cells may go over several lines.
    """
    files = "[" + ", ".join(quoted(str(path)) for path in paths) + "]"
    if types is not None:
        return DuckEngine.query(_by_line(files, _declared(paths, types), _delimiter(paths[0])))
    tolerant = "null_padding=true, parallel=false"  # DuckDB refuses quoted line ends when padding in several threads
    casts = ", ".join(_cast(_name(name), kind, name) for name, kind in _guess(paths[0]))
    return DuckEngine.query(
        f"SELECT {casts} FROM read_csv({files}, all_varchar=true, union_by_name=true, {tolerant}, {_FORGIVING})"
    )


def _by_line(files: str, columns: list[tuple[str, str]], delimiter: str) -> str:
    """A query that cuts each line into cells by itself."""
    lines = f"read_csv({files}, auto_detect=false, header=true, columns={{'line': 'VARCHAR'}}, {_LINES}, {_FORGIVING})"
    cell = f"^{delimiter}" if delimiter != "\t" else r"^\t"
    pattern = f'("(?:[^"]|"")*"|[{cell}]*)(?:{cell[1:]}|$)'
    cells = (
        f"CASE WHEN contains(line, '\"') THEN regexp_extract_all(line, {quoted(pattern)}, 1) "
        f"ELSE string_split(line, {quoted(delimiter)}) END"
    )
    casts = ", ".join(_cast(_unquoted(place), kind, name) for place, (name, kind) in enumerate(columns, 1))
    whole = f"SELECT rtrim(line, chr(13)) AS line FROM {lines} WHERE rtrim(line, chr(13)) <> ''"
    return f"SELECT {casts} FROM (SELECT {cells} AS cells FROM ({whole}))"


def _unquoted(place: int) -> str:
    """The text of one cell; an empty cell is missing, an empty text in quotes is not."""
    cell = f"cells[{place}]"
    inside = f"replace({cell}[2:-2], '\"\"', '\"')"
    return f"CASE WHEN {cell} LIKE '\"%\"' AND length({cell}) > 1 THEN {inside} ELSE nullif({cell}, '') END"


def _cast(text: str, kind: str, name: str) -> str:
    # A bare TRY_CAST would be handed down to the reader, which drops the whole line where a cell does not fit.
    return f"{text if kind == 'VARCHAR' else f'TRY_CAST(trim({text}) AS {kind})'} AS {_name(name)}"


def _declared(paths: Sequence[Path], types: Mapping[str, str]) -> list[tuple[str, str]]:
    """The columns of the header; those without a type are texts."""
    headers = [_header(path) for path in paths]
    names = headers[0]
    if not names or any(header != names for header in headers) or len(set(names)) != len(names):
        raise InvalidRequest("Expected one header of different names in all files", do="Check the first lines")
    for name, kind in types.items():
        if name not in names or kind not in _SQL:
            raise InvalidRequest(
                f"Expected types of columns in the header, each one of {', '.join(_SQL)}",
                got=f"{name} = {kind}",
                do="Correct it",
            )
    return [(name, _SQL[types.get(name, "text")]) for name in names]


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file, delimiter=_delimiter(path)), [])
    except (csv.Error, UnicodeError):
        return []


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _guess(path: Path) -> list[tuple[str, str]]:
    with duckdb.connect() as connection:
        try:
            rows = connection.sql(f"SELECT Columns FROM sniff_csv({quoted(str(path))}, ignore_errors=true)").fetchall()
        except duckdb.Error:
            rows = []
    if not rows:
        raise InvalidRequest("Expected a CSV file with a header", got=path.name, do="Check the file, or use Parquet")
    return [(column["name"], column["type"]) for column in rows[0][0]]


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
