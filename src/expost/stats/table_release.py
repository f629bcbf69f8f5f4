"""Releases that can be turned into tables: one answer, groups, histograms, matrices."""

from __future__ import annotations

import importlib
import itertools
import math
import numbers
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, MissingExtra, Release
from expost.core.argument import suggest_name
from expost.core.estimate import Arithmetic, Estimate
from expost.core.release import draw_picture
from expost.core.table_text import csv_text
from expost.core.whole_file import write_text

__all__ = ["AnswerRelease", "Group", "GroupRelease", "Groups", "HistogramRelease", "MatrixRelease", "TableRelease"]

T = TypeVar("T")

_GROUPS_SHOWN = 6  # groups that a repr spells out
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True, repr=False)
class TableRelease(Release[T]):
    """A release that converts to Arrow, pandas and polars. All of its columns are public."""

    def to_arrow(self) -> pa.Table:
        """Return the release as an Arrow table."""
        raise NotImplementedError

    def table_cells(self) -> tuple[list[str], list[list[Any]]]:
        """Return the names and the rows of the table."""
        table = self.to_arrow()
        return table.column_names, [list(row.values()) for row in table.to_pylist()]

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the table as CSV text, and write it to a file if one is named.

        A text that a spreadsheet would take for a formula, such as a category ``=1+1``, gets an apostrophe in front.

        Parameters
        ----------
        path : str or path, optional
            The file to write.

        Returns
        -------
        str
        """
        text = csv_text(*self.table_cells())
        if path is not None:
            write_text(Path(path), text)
        return text

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return the table as a polars frame."""
        try:
            polars = importlib.import_module("polars")
        except ModuleNotFoundError:
            raise MissingExtra("polars", package="polars") from None
        return polars.from_arrow(self.to_arrow())


@dataclass(frozen=True, repr=False)
class AnswerRelease(TableRelease[T]):
    """The release of one answer: a table of one row."""

    def __repr__(self) -> str:
        return Release.__repr__(self).replace("AnswerRelease(", "Release(", 1)

    def to_arrow(self) -> pa.Table:
        """Return one row: question, value, low, high, epsilon (what was paid), met."""
        low, high = (None, None) if self.interval is None else self.interval
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        paid = float(self.receipt.bill.amounts().get("epsilon", Fraction(0)))
        row = {"question": self.receipt.question, "value": value, "low": low, "high": high}
        return pa.Table.from_pylist([row | {"epsilon": paid, "met": self.receipt.outcome.met}])

    def plot(self, path: str | None = None) -> Any:
        """Draw the climb (rung, interval, target), or the value with its error bar if there was no climb."""
        return draw_picture("climb" if self.climb else "groups", self, path=path)


@dataclass(frozen=True, repr=False)
class MatrixRelease(TableRelease[Any]):
    """The release of a matrix over named columns; ``interval`` holds the matrices of lower and upper ends."""

    columns: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """Return one row per entry: first, second, value, low, high."""
        size = range(len(self.columns))
        low, high = (np.full_like(self.value, np.nan),) * 2 if self.interval is None else self.interval
        table: dict[str, Any] = {
            "first": [self.columns[i] for i in size for _ in size],
            "second": [self.columns[j] for _ in size for j in size],
        }
        return pa.table(table | {name: m.ravel() for name, m in (("value", self.value), ("low", low), ("high", high))})

    def plot(self, path: str | None = None) -> Any:
        """Draw the entries with their error bars; to a PNG or SVG file if ``path`` is given."""
        return draw_picture("groups", self, path=path)


@dataclass(frozen=True, slots=True)
class Group:
    """The answer of one group.

    Parameters
    ----------
    label : object
        The group's category; a tuple if there are several columns.
    value : object
        The released value, in the statistic's own units.
    low, high : float or None
        The ends of the interval, in the value's units. None if the statistic has no interval.
    epsilon : Fraction or None
        The privacy level at which the group was read. None for Gaussian noise, which has no pure epsilon.
    met : bool
        Whether the group reached the target.

    Examples
    --------
    >>> Group("Rome", 3.0, low=1.0, high=5.0, epsilon=Fraction(1), met=True).met
    True
    """

    label: Any
    value: Any
    _: KW_ONLY
    low: float | None
    high: float | None
    epsilon: Fraction | None
    met: bool


@dataclass(frozen=True)
class Groups(Mapping[Any, Any]):
    """Values by group label, in the order of the public categories.

    Parameters
    ----------
    columns : tuple of str
        The names of the group columns.
    rows : tuple of Group
        One entry per group.

    Examples
    --------
    >>> groups = Groups(("city",), (Group("Rome", 3.0, low=1.0, high=5.0, epsilon=Fraction(1), met=True),))
    >>> groups["Rome"], list(groups)
    (3.0, ['Rome'])
    >>> groups == {"Rome": 3.0}
    True
    """

    columns: tuple[str, ...]
    rows: tuple[Group, ...]
    _index: dict[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {row.label: row.value for row in self.rows})

    def __eq__(self, other: object) -> bool:
        """Groups are equal with their intervals; a plain mapping is compared by labels and values."""
        if isinstance(other, Groups):
            return (self.columns, self.rows) == (other.columns, other.rows)
        return super().__eq__(other)

    @classmethod
    def from_arrays(
        cls,
        columns: tuple[str, ...],
        labels: list[Any],
        numbers: NDArray[np.float64],
        *,
        levels: Sequence[Fraction | None],
        met: NDArray[np.bool_],
    ) -> Groups:
        """Build groups from arrays.

        Parameters
        ----------
        columns : tuple of str
            The names of the group columns.
        labels : list
            One label per group.
        numbers : array of shape (3, groups)
            Values, lower ends and upper ends.
        levels : sequence of Fraction or None
            The privacy level at which each group was read.
        met : array of bool
            Whether each group reached the target.
        """
        value, low, high = numbers.tolist()
        rows = zip(labels, value, low, high, levels, met.tolist(), strict=True)
        return cls(columns, tuple(Group(t, v, low=a, high=b, epsilon=e, met=m) for t, v, a, b, e, m in rows))

    def __getitem__(self, label: Any) -> Any:
        try:
            return self._index[label]
        except KeyError:
            close = suggest_name(label, [str(row.label) for row in self.rows])
            raise KeyError(f"{label!r} is not a group. {close or 'list(release.value) has all.'}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        shown = []
        for row in self.rows[:_GROUPS_SHOWN]:
            value = f"{row.value:.6g}" if isinstance(row.value, float) else repr(row.value)
            shown.append(f"{row.label!r}: {value}{'' if row.met else ' (not met)'}")
        more = [f"... {len(self)} groups"] if len(self) > _GROUPS_SHOWN else []
        return "{" + ", ".join(shown + more) + "}"


def _combine_pair(first: Any, second: Any, sign: str) -> Estimate:
    """Combine the numbers of one group; where the divisor of one is 0, nothing is known of the quotient."""
    if sign == "/" and float(second) == 0:
        known = _OPERATORS["*"](first, second)
        return Estimate(math.nan, (-math.inf, math.inf), known.sources, known.formula)
    found: Estimate = _OPERATORS[sign](first, second)
    return found


@dataclass(frozen=True, repr=False)
class GroupRelease(TableRelease[Groups]):
    """The release of a grouped statistic, as a mapping (``.value``) or as a table.

    Arithmetic is done group by group and gives a dictionary of estimates: ``sums / counts``.

    Parameters
    ----------
    value : Groups
        The groups, a mapping from label to value.
    receipt : Receipt
        What was run and what it cost.
    interval : None
        Not used: every group has its own interval.
    climb : tuple of Step
        Empty: the climbs of groups are not drawn.
    confidence : Fraction, optional
        The probability with which the intervals of all groups hold at once.

    Examples
    --------
    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="count by city", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> rome = Group("Rome", 3.0, low=1.0, high=5.0, epsilon=Fraction(1), met=True)
    >>> GroupRelease(Groups(("city",), (rome,)), receipt).to_arrow().column_names
    ['city', 'value', 'low', 'high', 'epsilon', 'met']
    """

    def __repr__(self) -> str:
        warning = ", SIMULATION" if self.receipt.simulation else ""
        return f"GroupRelease({self.value!r}, {self.receipt.bill}{warning})"

    def __getitem__(self, label: Any) -> Estimate:
        """Return the number of one group with its interval, to compute with.

        Parameters
        ----------
        label : object
            The group's category; a tuple if there are several columns.
        """
        found = next((row for row in self.value.rows if row.label == label), None)
        if found is None:
            close = suggest_name(label, [str(row.label) for row in self.value.rows])
            raise InvalidRequest(
                "Expected the label of a group", got=label, do=close or "List them: list(release.value)"
            )
        ends = None if found.low is None or found.high is None else (found.low, found.high)
        return self._make_estimate(found.value, ends, f"{self.receipt.question}: {label}")

    _by_group = True

    def _combine(self, other: Any, sign: str, *, swapped: bool = False) -> Any:
        """Return the estimate of each group: with the same group of another release, or with one number."""
        labels = [row.label for row in self.value.rows]
        if isinstance(other, GroupRelease):
            if set(other.value) != set(labels):
                raise InvalidRequest("Expected releases of the same groups", do="Combine groups one by one")
            others: Mapping[Any, Any] = {label: other[label] for label in labels}
        elif isinstance(other, Arithmetic | numbers.Real):
            others = dict.fromkeys(labels, other)
        else:
            return NotImplemented
        if swapped:
            return {label: _combine_pair(others[label], self[label], sign) for label in labels}
        return {label: _combine_pair(self[label], others[label], sign) for label in labels}

    def to_arrow(self) -> pa.Table:
        """Return a table with the group columns, value, low, high, epsilon and met."""
        groups = self.value
        labels = [row.label if len(groups.columns) > 1 else (row.label,) for row in groups.rows]
        table: dict[str, Any] = {name: [label[place] for label in labels] for place, name in enumerate(groups.columns)}
        for name in ("value", "low", "high", "epsilon", "met"):
            cells = [getattr(row, name) for row in groups.rows]
            table[name] = [float(cell) if isinstance(cell, Fraction | np.floating) else cell for cell in cells]
        return pa.table(table)

    def plot(self, path: str | None = None) -> Any:
        """Draw the groups with error bars; to a PNG or SVG file if ``path`` is given.

        Parameters
        ----------
        path : str, optional
            A PNG or SVG file to write.
        """
        return draw_picture("groups", self, path=path)


@dataclass(frozen=True, repr=False)
class HistogramRelease(GroupRelease):
    """The release of a histogram: groups are labelled by the lower edge of their bin, tables have the upper one too."""

    edges: tuple[float, ...] = ()

    def to_arrow(self) -> pa.Table:
        """Return the table of groups, with the upper edge of each bin after the lower one."""
        table, column = super().to_arrow(), len(self.value.columns) - 1
        upper = dict(itertools.pairwise(self.edges))
        ends = pa.array([upper[low] for low in table.column(column).to_pylist()])
        return table.add_column(column + 1, f"{self.value.columns[-1]} to", ends)

    def plot(self, path: str | None = None) -> Any:
        """Draw bars with error bars; to a PNG or SVG file if ``path`` is given."""
        return draw_picture("groups", self, path=path, edges=self.edges)
