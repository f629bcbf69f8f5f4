"""Opens whatever the caller has: a file, a glob, a data frame, an Arrow object."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from expost.core import InvalidRequest
from expost.data.engines import ArrowEngine, Engine, ParquetEngine

__all__ = ["open_source"]

_DO = "Pass a Parquet or CSV path, an Arrow table, or a pandas or polars frame"


def open_source(source: Any) -> tuple[Engine, str | None]:
    """The engine that reads ``source``, and the name its file suggests."""
    if isinstance(source, str | Path):
        return _open_path(str(source))
    if hasattr(source, "batches") and hasattr(source, "schema"):
        return source, None
    if isinstance(source, pa.Table):
        return ArrowEngine(source), None
    if hasattr(source, "__arrow_c_stream__"):
        return ArrowEngine(pa.table(source)), None
    raise InvalidRequest("Expected a table", got=type(source).__name__, do=_DO)


def _open_path(text: str) -> tuple[Engine, str | None]:
    paths = [Path(found) for found in sorted(glob.glob(text))] if glob.has_magic(text) else [Path(text)]
    if not paths or not all(path.is_file() for path in paths):
        raise InvalidRequest("Expected a file that exists", got=text, do=_DO)
    name = Path(text).stem.rstrip("*_-.") or None
    suffixes = {path.suffix.lower() for path in paths}
    if suffixes <= {".parquet", ".pq"}:
        return ParquetEngine(paths), name
    if suffixes <= {".csv"}:
        tables = [pyarrow.csv.read_csv(path) for path in paths]
        return ArrowEngine(pa.concat_tables(tables)), name
    raise InvalidRequest("Expected a Parquet or CSV file", got=text, do=_DO)
