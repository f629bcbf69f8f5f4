"""Turn the rows of a mixed table into a matrix of numbers, by public declarations only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_column, decode_column
from expost.data.row_source import cut_spans
from expost.models.tabular.column_encoding import Cells, ColumnEncoding, Features

__all__ = ["TableEncoder", "list_names"]

_FORMAT = 1
_BLOCK_VALUES, _FEWEST_ROWS = 1 << 20, 256  # features are written column by column into blocks that stay in the cache


@dataclass(frozen=True)
class TableEncoder:
    """The features of a table: declared columns, side by side. Everything in it is public.

    The features of a row depend on that row and on the declarations only. The squared Euclidean length of a row's features
    is at most ``squared_length``, whatever its cells.

    Parameters
    ----------
    columns : tuple of ColumnEncoding
        The declared columns, in the order of their features.

    Examples
    --------
    >>> from expost.models.tabular.column_encoding import CategoryColumn, NumberColumn
    >>> encoder = TableEncoder((NumberColumn("age", 0, 100), CategoryColumn("color", ["red"])))
    >>> encoder.names_out
    ('age', 'age=missing', "color='red'", 'color=other')
    >>> encoder.encode(pa.table({"color": ["red", None], "age": [75, None]})).tolist()
    [[0.5, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
    """

    columns: tuple[ColumnEncoding, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns or not all(isinstance(column, ColumnEncoding) for column in self.columns):
            raise InvalidRequest("Expected at least one declared column", do='Pass columns={"age": (0, 120), ...}')
        seen: set[str] = set()
        for column in self.columns:
            if column.name in seen:
                raise InvalidRequest("Expected each column to be declared once", got=column.name, do="Drop one of them")
            seen.add(column.name)

    @cached_property
    def names_in(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def names_out(self) -> tuple[str, ...]:
        """Names of the features, each one once."""
        names: dict[str, None] = {}
        for name in (name for column in self.columns for name in column.names_out):
            number, unique = 1, name
            while unique in names:  # a column may have the name of another one's feature
                number += 1
                unique = f"{name} ({number})"
            names[unique] = None
        return tuple(names)

    @cached_property
    def width(self) -> int:
        """The number of features."""
        return sum(column.width for column in self.columns)

    @cached_property
    def squared_length(self) -> float:
        """The largest squared Euclidean length of the features of one row."""
        return float(sum(column.squared_length for column in self.columns))

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise if a table with this schema cannot be encoded. Names and types of columns are public.

        Parameters
        ----------
        schema : pyarrow.Schema
            Names and types of the table's columns, in any order; other columns are ignored.
        """
        missing = [name for name in self.names_in if name not in schema.names]
        if missing:
            raise InvalidRequest(f"Expected the columns {list_names(missing)} in the table", do="Add them")
        for column in self.columns:
            places = schema.get_all_field_indices(column.name)
            if len(places) > 1:
                raise InvalidRequest("Expected column names without repeats", got=column.name, do="Rename one of them")
            stored = schema.field(places[0]).type
            if not pa.types.is_null(stored):
                column.check_kind(Kind.of(stored))

    def encode(self, table: pa.RecordBatch | pa.Table) -> Features:
        """Return the features, one line per row. No cell makes it fail.

        Parameters
        ----------
        table : pyarrow.RecordBatch or pyarrow.Table
            A table with the declared columns, in any order; other columns are ignored. A column of nulls without a type
            is missing throughout.

        Returns
        -------
        array of float32, shape (rows, width)
        """
        self.check_schema(table.schema)
        out = np.zeros((table.num_rows, self.width), np.float32)
        start = 0
        chosen = table.select(list(self.names_in))
        for batch in chosen.to_batches() if isinstance(chosen, pa.Table) else [chosen]:
            for first, last in cut_spans(batch.num_rows, self.width):
                part = batch.slice(first, last - first)
                canonical = [canonical_column(column) for column in part.columns]
                stop = start + last - first
                self._write(self._read(canonical), out[start:stop])
                start = stop
        return out

    def read_cells(self, batch: pa.RecordBatch) -> list[Cells]:
        """Read a canonical batch into one array of numbers per declared column, from which the features follow.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows from ``Dataset.batches``, whose cells are canonical, with a schema that ``check_schema`` accepts.
        """
        return self._read([decode_column(batch.column(name)) for name in self.names_in])

    def write_features(self, cells: Sequence[Cells]) -> Features:
        """Return the features of rows that ``read_cells`` has read.

        Parameters
        ----------
        cells : sequence of arrays
            One array per declared column, with one entry per row.

        Returns
        -------
        array of float32, shape (rows, width)
        """
        out = np.zeros((len(cells[0]), self.width), np.float32)
        self._write(cells, out)
        return out

    def _read(self, canonical: Sequence[pa.Array]) -> list[Cells]:
        return [each.read_cells(each.fit_type(cells)) for each, cells in zip(self.columns, canonical, strict=True)]

    def _write(self, cells: Sequence[Cells], out: Features) -> None:
        step = max(_FEWEST_ROWS, _BLOCK_VALUES // self.width)
        for first in range(0, len(out), step):
            place, rows = 0, slice(first, first + step)
            for column, read in zip(self.columns, cells, strict=True):
                column.write_features(read[rows], out[rows, place : place + column.width])
                place += column.width

    def to_json(self) -> dict[str, Any]:
        """Return the declarations as values that JSON can hold."""
        return {"format": _FORMAT, "columns": [column.to_json() for column in self.columns]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder of a document that ``to_json`` made.

        Parameters
        ----------
        document : mapping
            The declarations. Raises ``ValueError``, ``KeyError`` or ``TypeError`` if it is damaged or newer.

        Returns
        -------
        TableEncoder
        """
        if document["format"] != _FORMAT:
            raise ValueError("not a format that this version reads")
        return cls(tuple(map(ColumnEncoding.from_json, document["columns"])))


def list_names(names: Sequence[str], most: int = 20) -> str:
    """Return names of columns as a text, the first ones if there are many.

    >>> list_names(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
