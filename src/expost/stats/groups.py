"""Answers for many groups at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core.picture import draw
from expost.stats.table_release import TableRelease

__all__ = ["Group", "GroupRelease", "Groups"]


@dataclass(frozen=True, slots=True)
class Group:
    """The answer of one group; ``met`` says whether it reached the target, ``epsilon`` at which level it was read.

    A pick, such as the most common category, has no interval: ``low`` and ``high`` are None.
    """

    label: Any
    value: Any
    low: float | None
    high: float | None
    epsilon: Fraction
    met: bool


@dataclass(frozen=True)
class Groups(Mapping[Any, Any]):
    """Values by group label, in the order of the public categories; a label of several columns is a tuple.

    >>> groups = Groups(("city",), (Group("Rome", 3.0, 1.0, 5.0, Fraction(1), True),))
    >>> groups["Rome"], list(groups)
    (3.0, ['Rome'])
    """

    columns: tuple[str, ...]
    rows: tuple[Group, ...]
    _index: dict[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {row.label: row.value for row in self.rows})

    def __getitem__(self, label: Any) -> Any:
        return self._index[label]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{row.label!r}: {_shown(row.value)}{'' if row.met else ' (not met)'}" for row in self.rows[:6]
        )
        return "{" + shown + (f", ... {len(self)} groups" if len(self) > 6 else "") + "}"


@dataclass(frozen=True, repr=False)
class GroupRelease(TableRelease[Groups]):
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

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the groups with error bars; to a PNG or SVG file if ``path`` is given."""
        return draw("groups", self, path=path, **options)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


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
