"""Opens whatever the caller has: a file, a glob, a data frame, a query, a database table."""

from __future__ import annotations

import glob
import importlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from expost.core import ExpostError, InvalidRequest
from expost.data.canonical import canonical_table
from expost.data.engines import ArrowEngine, Engine, ParquetEngine
from expost.data.engines.canonical_engine import CanonicalEngine
from expost.data.frames import frame_table, is_frame, list_table, retyped
from expost.data.schema import Kind

__all__ = ["as_table", "open_source", "public_entries", "public_table", "source_mark"]

T = TypeVar("T")

_DO = "Pass a Parquet, CSV or Arrow path, an Arrow table, a pandas or polars frame, Python lists, or a DuckDB relation"
_QUERY = re.compile(r"\s*(select|with|from|values)\b.*\s", re.IGNORECASE | re.DOTALL)
_MICROSECONDS = pa.timestamp("us")
_DATABASE = re.compile(r"postgres(ql)?://")


def open_source(
    source: Any,
    *,
    types: Mapping[str, str] | None = None,
    implied: Mapping[str, str] | None = None,
    lines_are_rows: bool = False,
) -> tuple[Engine, str | None]:
    """Return the engine that reads ``source``, its cells canonical, and the name its file suggests.

    ``types`` declares what columns of a CSV file, a frame or Python lists hold, and ``implied`` what the description
    implies of those that are not declared; ``lines_are_rows`` is about CSV files.
    """
    with suppress(_NotOurs):
        engine, name = _ours(lambda: _opened(source, types, implied, lines_are_rows))
        return CanonicalEngine(engine), name
    file = isinstance(source, str | Path) and not _DATABASE.match(str(source))
    # The end of a long path says which file it is.
    typed = Path(source).name or str(source) if file else type(source).__name__
    raise InvalidRequest(
        "Expected a source that can be read", got=typed, do="Check that it is whole and that you may read it"
    )


def as_table(source: Any) -> pa.Table:
    """A table in memory of whatever can be one.

    >>> as_table({"age": [41, 17]}).num_rows
    2
    """
    with suppress(_NotOurs):
        return _ours(lambda: source if isinstance(source, pa.Table) else pa.table(source))
    raise InvalidRequest(
        "Expected a table with columns of different names and of one type each",
        got=type(source).__name__,
        do="Convert its columns to numbers, texts, truths or times",
    )


def public_table(source: Any) -> pa.Table:
    """Return a public table in memory, its cells in canonical form; times must be in years that Python knows."""
    table = as_table(source)
    canonical = canonical_table(table)
    for name, before, after in zip(table.column_names, table.columns, canonical.columns, strict=True):
        if Kind.of(after.type) is Kind.TIME and after.null_count > before.null_count:
            raise InvalidRequest(
                "Expected times in the years 1 to 9999 in the public table", got=name, do="Drop its other rows"
            )
    return canonical


def public_entries(table: pa.Table, column: str) -> tuple[Any, ...]:
    """Return the entries of a column of a public table as plain values; nanoseconds are cut off.

    >>> public_entries(public_table({"age": [41, 17]}), "age")
    (41, 17)
    """
    entries = table.column(column)
    return tuple(
        (entries.cast(_MICROSECONDS, safe=False) if pa.types.is_timestamp(entries.type) else entries).to_pylist()
    )


class _NotOurs(Exception):
    """Another library failed; its own message may repeat cells or paths, so it goes no further, not even chained."""


def _ours(step: Callable[[], T]) -> T:
    """What a step gives; the house's errors as they are, all others without their words."""
    try:
        return step()
    except ExpostError:
        raise
    except Exception:
        pass
    raise _NotOurs


def _opened(
    source: Any, types: Mapping[str, str] | None, implied: Mapping[str, str] | None, lines_are_rows: bool
) -> tuple[Engine, str | None]:
    if lines_are_rows and not _is_csv(source):
        raise InvalidRequest("Expected lines_are_rows only with a CSV file", do="Leave it out")
    if types is not None and not (_is_csv(source) or _takes_types(source)):
        raise InvalidRequest(
            "Expected types only with a CSV file, a data frame or Python lists",
            do="Leave them out: the source stores its own",
        )
    if not isinstance(lines_are_rows, bool):
        raise InvalidRequest("Expected lines_are_rows to be true or false", got=lines_are_rows, do="Pass one of them")
    if isinstance(source, str) and _DATABASE.match(source):
        return _open_database(source)
    if isinstance(source, str) and _QUERY.match(source):
        return _duck().DuckEngine.query(source), None
    if isinstance(source, str | Path):
        return _open_path(str(source), types, implied, lines_are_rows)
    if hasattr(source, "to_arrow_reader") and hasattr(source, "project"):
        return _duck().DuckEngine(source), None
    if hasattr(source, "mapInArrow") and hasattr(source, "toLocalIterator"):
        return importlib.import_module("expost.data.engines.spark").SparkEngine(source), None
    if hasattr(source, "batches") and hasattr(source, "map"):
        return source, None
    return ArrowEngine(_in_memory(source, types, implied)), None


def _in_memory(source: Any, types: Mapping[str, str] | None, implied: Mapping[str, str] | None) -> pa.Table:
    if is_frame(source):
        return frame_table(source, types, implied)
    if isinstance(source, Mapping | list | tuple):
        return list_table(source, types, implied)
    if hasattr(source, "collect") and hasattr(source, "collect_async"):  # a lazy polars frame
        source = source.collect()
    if isinstance(source, pa.Table) or hasattr(source, "__arrow_c_stream__"):
        return retyped(as_table(source), types)
    raise InvalidRequest("Expected a table", got=type(source).__name__, do=_DO)


def _is_csv(source: Any) -> bool:
    return isinstance(source, str | Path) and str(source).lower().endswith((".csv", ".tsv"))


def _takes_types(source: Any) -> bool:
    """Return whether types can be declared for a source: pandas and polars frames, and Python lists."""
    return is_frame(source) or isinstance(source, Mapping | list | tuple) or hasattr(source, "collect_schema")


def source_mark(
    source: Any,
    *,
    types: Mapping[str, str] | None = None,
    implied: Mapping[str, str] | None = None,
    lines_are_rows: bool = False,
) -> str | None:
    """A public mark of a file's present content and of how it is read, or None for what is not a file."""
    if not isinstance(source, str | Path) or _DATABASE.match(str(source)) or _QUERY.match(str(source)):
        return None
    found = [(path, os.stat(path)) for path in sorted(glob.glob(str(source)) or [str(source)])]
    mark = ";".join(f"{Path(path).name}:{stat.st_size}:{stat.st_mtime_ns}" for path, stat in found)
    read_as = {**(implied or {} if _is_csv(source) else {}), **(types or {})}  # decides what a line means
    declared = f" {sorted(read_as.items())}" if read_as else ""
    return mark + declared + (" lines" if lines_are_rows else "")


def _duck() -> Any:
    """DuckDB's engine, loaded when it is first needed."""
    return importlib.import_module("expost.data.engines.duck")


def _open_path(
    text: str, types: Mapping[str, str] | None, implied: Mapping[str, str] | None, lines_are_rows: bool
) -> tuple[Engine, str | None]:
    paths = [Path(found) for found in sorted(glob.glob(text))] if glob.has_magic(text) else [Path(text)]
    if not paths or not all(path.is_file() for path in paths):
        raise InvalidRequest("Expected a file that exists", got=Path(text).name or text, do=_DO)
    name = Path(text).stem.rstrip("*_-.") or None
    suffixes = {path.suffix.lower() for path in paths}
    if suffixes <= {".parquet", ".pq"}:
        return ParquetEngine(paths), name
    if suffixes <= {".csv", ".tsv"}:
        csv = importlib.import_module("expost.data.engines.csv")
        return csv.open_csv(paths, types, implied, lines_are_rows=lines_are_rows), name
    if suffixes <= {".arrow", ".feather", ".ipc"}:
        return ArrowEngine(pa.concat_tables([_mapped(path) for path in paths])), name
    raise InvalidRequest("Expected a Parquet, CSV or Arrow file", got=Path(text).name, do=_DO)


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _open_database(url: str) -> tuple[Engine, str]:
    """A PostgreSQL table; it is named in the URL, ``...?table=public.flights``."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    table = options.pop("table", "")
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table):
        # The URL may hold a password: it is not repeated.
        raise InvalidRequest("Expected a table name in the database URL", do="Append ?table=public.flights")
    plain = urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))
    full = table if "." in table else f"public.{table}"
    postgres = importlib.import_module("expost.data.engines.postgres")
    return postgres.PostgresEngine(plain, full), table.rpartition(".")[2]
