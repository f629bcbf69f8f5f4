"""Mean and spread of several columns, from one release per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, PlanContext, Receipt, Release
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.data.sealed_form import SquareForm
from expost.data.tally import Measured
from expost.stats.column_statistic import ColumnQuery
from expost.stats.gradual_plan import Design, GradualPlan, release_entries
from expost.stats.gradual_release import ClimbResult
from expost.stats.plans_in_turn import PlansInTurn
from expost.stats.query_terms import Column, statistic
from expost.stats.reader import CellReading, ClippedReader, DeviationReader, SquareMeanReader
from expost.stats.table_query import TableQuery
from expost.stats.table_release import GroupRelease, Groups

__all__ = ["Summary"]

_STATISTICS = ("mean", "standard deviation")


@statistic
class Summary(TableQuery):
    """Mean and standard deviation of several columns, in all or in each group; each column pays once for both.

    The columns' bills add up; each may cost an even part of the cap and what those before it have left over. Sums,
    means and variances asked for later are read off the same releases for free where these are accurate enough.

    Guarantee: pure ex-post DP; the sum of the columns' bills, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: as ``Variance``, for each column.
    Accuracy: intervals cover mean and deviation of a column (in all groups) at once; the failure probability is split
        over columns.
    Numerics: as ``Variance``.
    Reference: DR14, Theorem 3.16 (composition); docs/proofs/shares.md (three shares, intervals).

    Parameters
    ----------
    columns : sequence of str or Expression
        The numeric columns.
    bounds : mapping from str to (float, float), optional
        The limits to which columns are clipped, in their units. Default: those declared for the columns.

    Examples
    --------
    >>> Summary(["age", "income"], within="5%", max_epsilon=1).question
    'summary of age, income'
    """

    columns: Sequence[Column]
    bounds: Mapping[str, Sequence[float]] | None = field(default=None, kw_only=True)
    parts: tuple[ColumnQuery, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence) or not self.columns:
            raise InvalidRequest("Expected a list of columns", got=self.columns, do='Pass ["age", "income"]')
        if self.bounds is not None and not isinstance(self.bounds, Mapping):
            raise InvalidRequest("Expected bounds by column", got=self.bounds, do='Pass {"age": (0, 120)}')
        if self.bounds is not None and any(isinstance(each, str) for each in self.bounds.values()):
            raise InvalidRequest("A summary cannot find bounds privately", do="Ask for bounds first, then pass them")
        super().__post_init__()
        share, bounds = len(self.columns), self.bounds or {}
        parts = [
            _ColumnSummary(
                column,
                within=self.within,
                epsilon=None if self.epsilon is None else rational(self.epsilon, "epsilon") / share,
                confidence=1 - (1 - probability(self.confidence, "confidence")) / share,
                max_epsilon=None if self.max_epsilon is None else rational(self.max_epsilon, "max_epsilon") / share,
                where=self.where,
                by=self.by,
                bounds=bounds.get(str(column)),
            )
            for column in self.columns
        ]
        object.__setattr__(self, "parts", tuple(parts))

    @property
    def subject(self) -> str:
        return f"summary of {', '.join(map(str, self.columns))}"

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> SummaryPlan:
        """Plan every column."""
        plans = (part._plan_public(dataset, context) for part in self.parts)  # of spreads, so gradual ones
        return SummaryPlan(self, tuple(plan for plan in plans if isinstance(plan, GradualPlan)))


class SummaryPlan(PlansInTurn):
    """How the columns of a summary are released, one after the other."""

    def _join_parts(self, parts: Sequence[Release[Groups]], bills: Sequence[Fraction]) -> Release[Groups]:
        rows = tuple(row for part in parts for row in part.value.rows)
        receipt = self._join_receipts([part.receipt for part in parts], bills)
        return GroupRelease(Groups(parts[0].value.columns, rows), receipt)


@statistic
class _ColumnSummary(ColumnQuery):
    """Mean and standard deviation of one column."""

    @property
    def subject(self) -> str:
        return f"summary of {self.column}"

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        clamp = measured.clamp
        return self.fit_design(dataset, SquareForm(clamp), _MeanAndDeviationReader(clamp), measured=[measured])

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        entries = [(str(self.column), name) for name in _STATISTICS]
        return release_entries(design, result, receipt, ("column", "statistic"), entries)


@dataclass(frozen=True)
class _MeanAndDeviationReader(ClippedReader):
    """Reads mean and standard deviation off the same three shares, one after the other."""

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        # Both rest on the event that all three noises are within one radius, so they hold together.
        both = [reader(self.clamp).read(noisy, scale, level) for reader in (SquareMeanReader, DeviationReader)]
        numbers = zip(*((each.value, each.low, each.high) for each in both), strict=True)
        return CellReading(*(np.stack(each, axis=1).ravel() for each in numbers))
