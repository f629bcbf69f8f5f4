"""The public description of a dataset that is with a service."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from expost.core import Adjacency, InvalidRequest, Unit
from expost.core.adjacency import Window
from expost.data import Dataset
from expost.session.wire_format import decode_value

__all__ = ["RemoteDataset"]


class RemoteDataset:
    """Names, types, bounds and categories of the columns, and who is protected; no rows.

    Parameters
    ----------
    facts : mapping
        What the service says about the dataset.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.name: str = facts["name"]
        self.adjacency = Adjacency(facts["adjacency"])
        unit = facts["unit"]
        window = None if unit["per"] is None else Window(unit["per"])
        self.unit = Unit(unit["column"], unit["time_column"], window)
        self.rows: int | None = facts["rows"]
        self.max_rows_per_unit: int | None = facts["max_rows_per_unit"]
        self.max_groups_per_unit: int | None = facts["max_groups_per_unit"]
        columns = facts["columns"]
        self.types: dict[str, str] = {each["name"]: each["type"] for each in columns}
        self.bounds = {each["name"]: tuple(each["bounds"]) for each in columns if each["bounds"] is not None}
        self.time_ranges = {
            each["name"]: tuple(map(datetime.datetime.fromisoformat, each["time_range"]))
            for each in columns
            if each["time_range"] is not None
        }
        self.categories = {
            each["name"]: tuple(decode_value(each["categories"])) for each in columns if each["categories"] is not None
        }

    def describe_rows(self, columns: Mapping[str, Sequence[Any]]) -> Dataset:
        """Return rows under this description, as a dataset on this machine.

        Parameters
        ----------
        columns : mapping of str to sequence
            The values of each column.
        """
        bounds: dict[str, Any] = {**self.bounds, **self.time_ranges}
        return Dataset(
            pa.table(dict(columns)),
            name="made up",
            unit=self.unit,
            adjacency=self.adjacency,
            rows=self.rows,
            max_rows_per_unit=self.max_rows_per_unit,
            max_groups_per_unit=self.max_groups_per_unit,
            bounds={name: ends for name, ends in bounds.items() if name in columns},
            categories={name: listed for name, listed in self.categories.items() if name in columns},
        )

    def values(self, column: str) -> tuple[Any, ...]:
        """Return the public categories of a column.

        Parameters
        ----------
        column : str
            The name of the column.
        """
        if column not in self.categories:
            raise InvalidRequest("Expected a column with public categories", got=column, do="See dataset.categories")
        return self.categories[column]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {kind}" for name, kind in self.types.items())
        return f"RemoteDataset({self.name!r}: {shown}; {self.unit}, {self.adjacency.value})"
