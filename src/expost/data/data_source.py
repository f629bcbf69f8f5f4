"""Open a source: a file, a glob, a data frame, Python lists, a query, a database table, or an engine."""

from __future__ import annotations

import datetime
import glob
import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from expost.core import ExpostError, InvalidRequest
from expost.data.canonical_cell import Kind, canonical_table
from expost.data.engines import ArrowEngine, Engine, ParquetEngine
from expost.data.engines.engine import CanonicalEngine
from expost.data.expression import is_exact
from expost.data.lake_source import is_lake, open_delta, open_fragments, open_lake
from expost.data.table_schema import Schema
from expost.data.text_format import TextFormat, is_text_file, plain_name
from expost.data.untyped_table import check_types, frame_to_table, is_frame, lists_to_table, retype_table

__all__ = ["as_table", "describe_entries", "mark_source", "open_source", "public_entries", "public_table"]

T = TypeVar("T")
Types = Mapping[str, str] | None

_DO = (
    "Pass a Parquet, CSV or Arrow path, an Arrow table, a pandas or polars frame, Python lists, a DuckDB relation, "
    "or an engine"
)
_QUERY = re.compile(r"\s*(select|with|from|values)\b.*\s", re.IGNORECASE | re.DOTALL)
_DATABASE = re.compile(r"postgres(ql)?://")
_PARQUET, _ARROW = frozenset({".parquet", ".pq"}), frozenset({".arrow", ".feather", ".ipc"})
_BINARY = _PARQUET | _ARROW
_PLAIN = TextFormat()


def open_source(
    source: Any, *, types: Types = None, implied: Types = None, text_format: TextFormat = _PLAIN
) -> tuple[Engine, str | None]:
    """Return an engine with canonical cells that reads ``source``, and the name that its file suggests.

    ``types`` declares the types of columns of a CSV file, a frame or Python lists. ``implied`` are the types that the
    description implies for other columns. ``text_format`` concerns CSV and fixed-width files.
    """
    with suppress(_ForeignError):
        engine, name = _hide_foreign_errors(lambda: _open_engine(source, types, implied, text_format))
        return _hide_foreign_errors(lambda: CanonicalEngine(engine)), name  # reads the schema, which may fail too
    is_file = isinstance(source, str | Path) and not _DATABASE.match(str(source))
    # Only the last part of a path identifies the file without repeating a long path.
    typed = Path(source).name or str(source) if is_file else type(source).__name__
    raise InvalidRequest(
        "Expected a source that can be read", got=typed, do="Check that it is whole and that you may read it"
    )


def mark_source(
    source: Any, *, types: Types = None, implied: Types = None, text_format: TextFormat = _PLAIN
) -> str | None:
    """Return a public mark of a file's current version and of how it is read, or None if it is not a file."""
    if not isinstance(source, str | Path) or _DATABASE.match(str(source)) or _QUERY.match(str(source)):
        return None
    if _is_lake(source):
        return None  # its engine marks it
    found = [(path, os.stat(path)) for path in sorted(glob.glob(str(source)) or [str(source)])]
    mark = ";".join(f"{Path(path).name}:{stat.st_size}:{stat.st_mtime_ns}" for path, stat in found)
    if not _is_text(source, text_format):
        return mark
    read_as = {**(implied or {}), **(types or {})}  # types and format change what a line means
    return mark + (f" {sorted(read_as.items())}" if read_as else "") + text_format.mark


def as_table(source: Any) -> pa.Table:
    """Convert an object to a table in memory."""
    with suppress(_ForeignError):
        return _hide_foreign_errors(lambda: source if isinstance(source, pa.Table) else pa.table(source))
    advice: dict[type, str] = {
        str: 'Read the file first, such as with pandas.read_csv("states.csv")',
        list: "Pass columns by name, or pyarrow.Table.from_pylist(rows)",
    }
    raise InvalidRequest(
        "Expected a table with columns of different names and of one type each",
        got=type(source).__name__,
        do=advice.get(type(source), "Convert its columns to numbers, texts, booleans or times"),
    )


def public_table(source: Any) -> pa.Table:
    """Convert a public table to canonical cells. Times must lie in the years that Python supports.

    Columns of other types than numbers, texts, booleans and times are left out, because no question can use them.
    """
    table = as_table(source.collect() if hasattr(source, "collect") and hasattr(source, "collect_schema") else source)
    table = table.select([name for name, kind in Schema.of(table.schema).kinds.items() if kind is not Kind.OTHER])
    canonical = canonical_table(table)
    for name, before, after in zip(table.column_names, table.columns, canonical.columns, strict=True):
        if Kind.of(after.type) is Kind.TIME and after.null_count > before.null_count:
            raise InvalidRequest(
                "Expected times in the years 1 to 9999 in the public table", got=name, do="Drop its other rows"
            )
    return canonical


def public_entries(table: pa.Table, column: str) -> tuple[Any, ...]:
    """Return the entries of a column of a public table as Python values, with nanoseconds cut off."""
    entries = table.column(column)
    if pa.types.is_timestamp(entries.type):
        entries = entries.cast(pa.timestamp("us"), safe=False)
    return tuple(entries.to_pylist())


def describe_entries(entries: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[float, float] | None]:
    """Return the different entries of a public column, and the bounds of its numbers if there are two different ones.

    Numbers that 64-bit floats do not hold are left out: a joined column is computed in floats.

    >>> describe_entries(["b", None, "a", "b"]), describe_entries([2, Decimal("0.5"), float("nan")])
    ((('a', 'b'), None), ((0.5, 2), (0.5, 2)))
    """
    plain = (float(each) if isinstance(each, Decimal) else each for each in entries if each is not None)
    values = tuple(sorted({each for each in plain if not isinstance(each, int | float) or is_exact(each)}))
    numeric = len(values) > 1 and not any(isinstance(each, bool | str | datetime.date) for each in values)
    return values, (values[0], values[-1]) if numeric else None


class _ForeignError(Exception):
    """Another library failed. Its message may repeat cells or paths, so it is not shown, not even chained."""


def _hide_foreign_errors(step: Callable[[], T]) -> T:
    """Run a step. Our own errors pass; all others are replaced by ``_ForeignError`` without their message."""
    try:
        return step()
    except ExpostError:
        raise
    except Exception:
        pass
    raise _ForeignError


def _is_lake(source: Any) -> bool:
    """Return whether the source is a table of many files: a folder, an address, or a glob with Hive partitions."""
    if not isinstance(source, str | Path) or _QUERY.match(str(source)):
        return False
    magic = glob.has_magic(str(source)) and not Path(source).exists()
    partitions = magic and any("=" in part for part in Path(source).parts)
    return is_lake(source) or (partitions and not is_text_file(source))


def _is_text(source: Any, text_format: TextFormat) -> bool:
    """Return whether the source is a text file: by the ending of its name, or because its widths are declared."""
    if not isinstance(source, str | Path) or _DATABASE.match(str(source)) or _QUERY.match(str(source)):
        return False
    declared = text_format.widths is not None or text_format.separator is not None
    return is_text_file(source) or (declared and Path(source).suffix.lower() not in _BINARY)


def _check_options(source: Any, types: Types, text_format: TextFormat) -> None:
    """Raise for options that do not concern this kind of source."""
    untyped = is_frame(source) or isinstance(source, Mapping | list | tuple) or hasattr(source, "collect_schema")
    text_format.check()
    is_text = _is_text(source, text_format)
    is_path = isinstance(source, str | Path) and not _DATABASE.match(str(source)) and not _QUERY.match(str(source))
    named = is_path and not glob.has_magic(
        str(source)
    )  # the files that a glob finds are looked at when they are opened
    if named and not is_text and not _is_lake(source) and Path(source).suffix.lower() not in _BINARY:
        _refuse_file(str(source))
    if not is_text and text_format.changed:
        raise InvalidRequest(f"Expected {text_format.changed[0]} only with a CSV file", do="Leave it out")
    if types is not None and not (is_text or untyped or _is_lake(source)):
        raise InvalidRequest(
            "Expected types only with a CSV file, a data frame or Python lists",
            do="Leave them out: the source stores its own",
        )


def _open_engine(source: Any, types: Types, implied: Types, text_format: TextFormat) -> tuple[Engine, str | None]:
    """Pick the engine of a source and open it. Engines with optional libraries are imported on first use."""
    _check_options(source, types, text_format)
    if isinstance(source, type):
        raise InvalidRequest("Expected a table or an engine, not a class", got=source.__name__, do="Pass an instance")
    if isinstance(source, str) and _DATABASE.match(source):
        return _open_database(source)
    if isinstance(source, str) and _QUERY.match(source):
        return importlib.import_module("expost.data.engines.duckdb_engine").DuckEngine.query(source), None
    if isinstance(source, str | Path):
        return _open_path(str(source), types, implied, text_format)
    if (found := _open_library_object(source, types)) is not None:
        return found, None
    if hasattr(source, "batches") and hasattr(source, "by_unit"):
        return source, None
    if is_frame(source):
        return ArrowEngine(frame_to_table(source, types, implied)), None
    if isinstance(source, Mapping | list | tuple):
        return ArrowEngine(lists_to_table(source, types, implied)), None
    if hasattr(source, "collect") and hasattr(source, "collect_async"):  # a lazy polars frame
        return _open_lazy(source, types), None
    if isinstance(source, pa.Table) or hasattr(source, "__arrow_c_stream__"):
        return ArrowEngine(retype_table(as_table(source), types)), None
    raise InvalidRequest("Expected a table", got=type(source).__name__, do=_DO)


def _open_library_object(source: Any, types: Types) -> Engine | None:
    """Open a relation, frame or table of DuckDB, Spark, Delta, Iceberg or Arrow; None for other objects."""
    engine: Engine | None = None
    # Asked of the class: a Spark Connect frame takes any attribute for a column.
    if hasattr(type(source), "mapInArrow") and hasattr(type(source), "toLocalIterator"):
        engine = importlib.import_module("expost.data.engines.spark_engine").SparkEngine(source)
    elif hasattr(source, "to_arrow_reader") and hasattr(source, "project"):
        engine = importlib.import_module("expost.data.engines.duckdb_engine").DuckEngine(source)
    elif hasattr(source, "table_uri") and hasattr(source, "get_add_actions"):
        engine = open_delta(source, types)
    elif hasattr(source, "current_snapshot") and hasattr(source, "scan"):
        engine = importlib.import_module("expost.data.engines.iceberg_engine").IcebergEngine.of_table(source)
    elif hasattr(source, "get_fragments") and hasattr(source, "to_batches"):
        engine = open_fragments(source)
    return engine


def _open_lazy(frame: Any, types: Types) -> Engine:
    """Open a lazy polars frame, in batches if this version of polars can collect them."""
    if not hasattr(frame, "collect_batches"):
        return ArrowEngine(retype_table(as_table(frame.collect()), types))
    check_types(types, list(frame.collect_schema()))
    engine: Engine = importlib.import_module("expost.data.engines.polars_engine").LazyEngine(frame, types)
    return engine


def _open_path(text: str, types: Types, implied: Types, text_format: TextFormat) -> tuple[Engine, str | None]:
    """Open one file, all files of a glob, or a table of many files."""
    if _is_lake(text):
        folder = plain_name(text.partition("?")[0].rstrip("/")).stem.rstrip("*_-.")
        return open_lake(text, types, implied), folder or None
    paths = [Path(found) for found in sorted(glob.glob(text))] if glob.has_magic(text) else [Path(text)]
    if not paths or not all(path.is_file() for path in paths):
        raise InvalidRequest("Expected a file that exists", got=Path(text).name or text, do=_DO)
    name = plain_name(text).stem.rstrip("*_-.") or None
    suffixes = {path.suffix.lower() for path in paths}
    if all(_is_text(path, text_format) for path in paths):
        csv_engine = importlib.import_module("expost.data.engines.csv_engine")
        return csv_engine.open_csv(paths, types, implied, text_format=text_format), name
    if suffixes <= _PARQUET:
        return ParquetEngine(paths), name
    if suffixes <= _ARROW:
        tables = []
        for path in paths:
            with pa.memory_map(str(path)) as file:
                tables.append(pa.ipc.open_file(file).read_all())
        return ArrowEngine(pa.concat_tables(tables), paths), name
    _refuse_file(text)


def _refuse_file(text: str) -> NoReturn:
    """Raise for a file whose ending says nothing about its form."""
    raise InvalidRequest(
        "Expected a Parquet, CSV or Arrow file, or a compressed CSV file (.csv.gz, .csv.zst, .csv.bz2)",
        got=Path(text).name or text,
        do="Pass separator= or widths= for a text file with another ending",
    )


def _open_database(url: str) -> tuple[Engine, str]:
    """Open a PostgreSQL table, which is named in the URL: ``...?table=public.flights``."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    table = options.pop("table", "")
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table):
        # The URL may contain a password, so it is not repeated.
        raise InvalidRequest("Expected a table name in the database URL", do="Append ?table=public.flights")
    plain = urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))
    full = table if "." in table else f"public.{table}"
    postgres_engine = importlib.import_module("expost.data.engines.postgres_engine")
    return postgres_engine.PostgresEngine(plain, full), table.rpartition(".")[2]
