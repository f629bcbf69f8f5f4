"""Answers for many groups at once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import MissingExtra, Release
from expost.core.picture import draw

__all__ = ["Group", "GroupRelease", "Groups"]


@dataclass(frozen=True, slots=True)
class Group:
    """The answer of one group; ``met`` says whether it reached the target, ``epsilon`` at which level it was read."""

    label: Any
    value: float
    low: float
    high: float
    epsilon: Fraction
    met: bool


@dataclass(frozen=True)
class Groups(Mapping[Any, float]):
    """Values by group label, in the order of the public categories; a label of several columns is a tuple.

    >>> groups = Groups(("city",), (Group("Rome", 3.0, 1.0, 5.0, Fraction(1), True),))
    >>> groups["Rome"], list(groups)
    (3.0, ['Rome'])
    """

    columns: tuple[str, ...]
    rows: tuple[Group, ...]
    _index: dict[Any, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {row.label: row.value for row in self.rows})

    def __getitem__(self, label: Any) -> float:
        return self._index[label]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        shown = ", ".join(f"{row.label!r}: {row.value:.6g}{'' if row.met else ' (not met)'}" for row in self.rows[:6])
        return "{" + shown + (f", ... {len(self)} groups" if len(self) > 6 else "") + "}"


@dataclass(frozen=True)
class GroupRelease(Release[Groups]):
    """The release of a grouped question, as a mapping or as a table."""

    def __repr__(self) -> str:
        warning = ", SIMULATION" if self.receipt.simulation else ""
        return f"GroupRelease({self.value!r}, {self.receipt.bill}{warning})"

    def to_arrow(self) -> pa.Table:
        """A table with the group columns, value, low, high, epsilon and met."""
        groups = self.value
        labels = [row.label if len(groups.columns) > 1 else (row.label,) for row in groups.rows]
        keys = {name: [label[place] for label in labels] for place, name in enumerate(groups.columns)}
        names = ("value", "low", "high", "epsilon", "met")
        found = {name: [_plain(getattr(row, name)) for row in groups.rows] for name in names}
        return pa.table(keys | found)

    def to_pandas(self) -> Any:
        """The table as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table as a polars frame."""
        try:
            polars = importlib.import_module("polars")
        except ModuleNotFoundError:
            raise MissingExtra("polars", package="polars") from None
        return polars.from_arrow(self.to_arrow())

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the groups with error bars; to a PNG or SVG file if ``path`` is given."""
        return draw("groups", self, path=path, **options)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction | np.floating) else value


def group_rows(
    labels: list[Any], numbers: NDArray[np.float64], levels: list[Fraction], met: NDArray[np.bool_]
) -> tuple[Group, ...]:
    """Groups from arrays of value, low and high."""
    value, low, high = numbers.tolist()
    return tuple(
        Group(label, value[place], low[place], high[place], levels[place], bool(met[place]))
        for place, label in enumerate(labels)
    )
