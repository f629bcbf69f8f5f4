"""CSV files through DuckDB, so that a bad cell is a missing value and never an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from expost.core import InvalidRequest
from expost.data.engines.duck import DuckEngine, quoted

__all__ = ["open_csv"]


def open_csv(paths: Sequence[Path]) -> DuckEngine:
    """An engine over CSV files of one layout; types are guessed from the first file's beginning.

    Every cell is read as text and then cast with TRY_CAST: one that does not fit the guessed type, a line that is too
    short or too long, a stray quote end as missing values. The guess itself is made from rows; where even that must
    not depend on them, use Parquet, which stores its types.
    """
    columns = _guess(paths[0])
    casts = ", ".join(f"TRY_CAST({_name(name)} AS {kind}) AS {_name(name)}" for name, kind in columns)
    files = "[" + ", ".join(quoted(str(path)) for path in paths) + "]"
    tolerant = "all_varchar=true, null_padding=true, strict_mode=false, ignore_errors=true, union_by_name=true"
    return DuckEngine.query(f"SELECT {casts} FROM read_csv({files}, {tolerant})")


def _guess(path: Path) -> list[tuple[str, str]]:
    with duckdb.connect() as connection:
        try:
            rows = connection.sql(f"SELECT Columns FROM sniff_csv({quoted(str(path))}, ignore_errors=true)").fetchall()
        except duckdb.Error:
            rows = []
    if not rows:
        raise InvalidRequest("Expected a CSV file with a header", got=str(path), do="Check the file, or use Parquet")
    return [(column["name"], column["type"]) for column in rows[0][0]]


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
