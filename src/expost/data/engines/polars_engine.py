"""The engine of lazy polars frames, whose query is run again for every pass."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.source_identity import SourceIdentity
from expost.data.source_version import Version, file_version
from expost.data.untyped_table import retype_table

__all__ = ["LazyEngine"]


_SCANS = re.compile(r"SCAN \[([^\]]*)\]")


class LazyEngine(Engine):
    """Streams a lazy polars frame: only a few batches of its result are in memory at a time.

    Rows may come in any order. The query must give the same rows in every pass.

    Parameters
    ----------
    frame : polars.LazyFrame
        The query, in a version of polars that can collect in batches.
    types : mapping of str to str, optional
        Declared types of some columns, which are converted cell by cell.
    """

    def __init__(self, frame: Any, types: Mapping[str, str] | None = None) -> None:
        self._frame, self._types = frame, types
        self._schema = self._read(frame.head(0).collect()).schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        chosen = self._frame.select(list(columns)) if columns else self._frame
        for part in chosen.collect_batches(chunk_size=rows_per_batch, maintain_order=False, engine="streaming"):
            yield from self._read(part).to_batches(max_chunksize=rows_per_batch)

    def identity(self) -> SourceIdentity:
        return SourceIdentity.of_batches(
            self._schema, lambda rows: self._read(self._frame.head(rows).collect()).to_batches()
        )

    def version(self) -> Version:
        """Return the version of the local files that the plan scans. Frames of polars do not change."""
        plan = self._frame.explain(optimized=False)
        words = (word.strip(" '\"") for found in _SCANS.findall(plan) for word in found.split(","))
        return file_version(sorted({word for word in words if os.path.isfile(word)}))

    def _read(self, part: Any) -> pa.Table:
        """Convert a frame in memory."""
        table = pa.table(part)
        declared = {name: kind for name, kind in (self._types or {}).items() if name in table.column_names}
        return retype_table(table, declared or None)
