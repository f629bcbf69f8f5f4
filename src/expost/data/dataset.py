"""A table and the public facts about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from expost.core import Adjacency, InvalidRequest, Sealed, Sensitivity, Unit
from expost.data.schema import Schema
from expost.data.source import open_source

__all__ = ["Dataset"]


class Dataset:
    """A table with its public description: unit of protection, bounds, categories, neighbours.

    Everything said here is public and must not be read off the rows. The number of rows is private under
    add/remove; under replace-one it is public and given as ``rows``.

    >>> people = Dataset(pa.table({"age": [41, 17, 65]}), name="people", bounds={"age": (0, 120)})
    >>> people
    Dataset('people': age integer; one row, add-remove)
    """

    def __init__(
        self,
        source: Any,
        *,
        name: str | None = None,
        unit: str | Unit = "row",
        max_rows_per_unit: int | None = None,
        max_groups_per_unit: int | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        adjacency: str | Adjacency = "add-remove",
        rows: int | None = None,
    ) -> None:
        self._engine, suggested = open_source(source)
        self.name = name if name is not None else suggested
        self.schema = Schema.of(self._engine.schema)
        self.unit = _unit(unit)
        self.adjacency = Adjacency.parse(adjacency)
        self.max_rows_per_unit = max_rows_per_unit
        self.max_groups_per_unit = max_groups_per_unit
        self.bounds = dict(bounds or {})
        self.categories = {column: tuple(values) for column, values in (categories or {}).items()}
        self.rows = rows
        self._check()

    def _check(self) -> None:
        for column in (*self.bounds, *self.categories):
            self.schema.kind(column)
        if self.adjacency.public_size and self.rows is None and self.unit.is_row:
            raise InvalidRequest(
                "Expected the public number of rows under replace-one adjacency", do="Pass rows=, or use add-remove"
            )

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of some columns; for the rooms of questions, which seal what they add up."""
        return self._engine.batches(columns)

    def row_sensitivity(self) -> Sensitivity:
        """How far one unit can move the number of rows."""
        return Sensitivity(1, adjacency=self.adjacency, unit=self.unit)

    def total_rows(self) -> Sealed:
        """The exact number of rows, sealed."""
        first = next(iter(self.schema))
        exact = sum(batch.num_rows for batch in self.batches([first]))
        return Sealed(exact, self.row_sensitivity())

    def __repr__(self) -> str:
        name = f"{self.name!r}: " if self.name else ""
        return f"Dataset({name}{self.schema}; {self.unit}, {self.adjacency.value})"


def _unit(unit: str | Unit) -> Unit:
    if isinstance(unit, Unit):
        return unit
    return Unit.row() if unit == "row" else Unit.of(unit)
