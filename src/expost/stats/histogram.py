"""Histograms and contingency tables: counts over public bins and categories."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from expost.core import Release
from expost.core.picture import draw
from expost.data import Dataset, Expression
from expost.data.axis import Axis, Bins
from expost.stats.ascent import Ascent
from expost.stats.count import Count
from expost.stats.groups import GroupRelease
from expost.stats.question import Design

__all__ = ["ContingencyTable", "Histogram"]


@dataclass(frozen=True, repr=False)
class HistogramRelease(GroupRelease):
    """The release of a histogram: groups are told by the lower edge of their bin, tables have the upper one too."""

    edges: tuple[float, ...] = ()

    def to_arrow(self) -> pa.Table:
        """The table of groups, with the upper edge of each bin beside the lower one."""
        table, column = super().to_arrow(), len(self.value.columns) - 1
        upper = dict(itertools.pairwise(self.edges))
        ends = pa.array([upper[low] for low in table.column(column).to_pylist()])
        return table.add_column(column + 1, f"{self.value.columns[-1]} to", ends)

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw bars with error bars; to a PNG or SVG file if ``path`` is given."""
        return draw("groups", self, path=path, edges=self.edges, **options)


class Histogram(Count):
    """The number of rows in each bin of a column; ``edges`` are public, a bin holds its lower edge, the last one both.

    Guarantee: as ``Count``; a row is in one bin, so all bins together cost what one count costs.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all bins together (twice that under replace-one).
    Accuracy: intervals cover the counts of all bins at once.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    >>> Histogram("age", edges=[0, 18, 65, 120], epsilon=0.1).question
    'histogram of age'
    """

    def __init__(self, column: str | Expression, *, edges: Sequence[float], **terms: Any) -> None:
        super().__init__(**terms)
        self._column, self._edges = column, edges

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"histogram of {self._column}"

    def axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        """The bins, inside the groups if there are any."""
        expression = dataset.expression(self._column)
        dataset.clamp(expression, (0, 1))  # refuses what is not a number
        return (*super().axes(dataset), Bins.of(expression, self._edges))

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        found = super()._release(design, ascent, promise)
        edges = tuple(float(edge) for edge in self._edges)
        return HistogramRelease(found.value, found.receipt, found.interval, found.climb, edges=edges)


class ContingencyTable(Count):
    """The number of rows for every combination of the categories of several columns.

    Guarantee: as ``Count``; a row is in one cell, so all cells together cost what one count costs.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all cells together (twice that under replace-one).
    Accuracy: intervals cover the counts of all cells at once.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    >>> ContingencyTable(["city", "job"], epsilon=0.1).question
    'contingency table by city, job'
    """

    def __init__(self, columns: Sequence[str | Expression], **terms: Any) -> None:
        super().__init__(by=tuple(columns), **terms)

    @property
    def subject(self) -> str:
        """What is asked for."""
        return "contingency table"
