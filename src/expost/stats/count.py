"""Counts: rows, units, histograms, periods, contingency tables and the most common categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Plan, PlanContext, Receipt, Release
from expost.core.rational import probability, rational, whole
from expost.data import Dataset
from expost.data.axis import Axis, Bins, Categories, Periods
from expost.data.sealed_form import CountForm
from expost.stats.gradual_plan import Design, GradualQuery
from expost.stats.gradual_release import ClimbResult
from expost.stats.private_keys import ByPrivateKeys, PrivateKeys
from expost.stats.query_terms import Column, KeyColumns, read_list, statistic
from expost.stats.reader import TotalReader
from expost.stats.table_query import By, GroupKey
from expost.stats.table_release import GroupRelease, Groups, HistogramRelease

__all__ = [
    "BinnedCount",
    "ContingencyTable",
    "Count",
    "CountByPrivateKeys",
    "CountDistinct",
    "CountOverTime",
    "Histogram",
    "TopK",
    "ValueCounts",
]

BINS = 20
"""The bins of a histogram whose asker names neither edges nor a number."""


@statistic
class Count(GradualQuery):
    """The number of rows, in all or in each group.

    Guarantee: pure ex-post DP; the bill is pilot and highest rung of a relative climb, known only after the run and at
        most ``max_epsilon``; with an absolute accuracy or an epsilon the price is known before the run.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all groups together.
    Accuracy: intervals cover the exact counts, of all groups at once, with the asked confidence at the rung where the
        climb stopped.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung);
        docs/proofs/stopped-relative-error.md (intervals at the stopping time).

    Parameters
    ----------
    within : float or str, optional
        The error allowed, in rows, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
    noise : {"auto", "laplace", "gaussian"}, default "auto"
        The noise of an answer within an absolute error. ``"auto"`` compares both prices in the accounts that pay and takes
        the one that leaves more of the budget: Gaussian noise if a unit may be in many groups or many questions were asked.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from expost.noise import SeededBits
    >>> people = Dataset(pa.table({"age": [41, 17, 65] * 1000}))
    >>> plan = Count(within=10, where="age >= 18").plan(people)
    >>> release = plan.climb(plan.measure(people), SeededBits(1))
    >>> abs(release.value - 2000) <= 10, str(plan.worst_case)
    (True, 'epsilon 0.2844')
    """

    noise: str = field(default="auto", kw_only=True)

    @property
    def subject(self) -> str:
        return "count of rows"

    def _inner_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        """Return the axes that split each group further."""
        return ()

    def design(self, dataset: Dataset) -> Design:
        design = self.fit_design(dataset, CountForm(), TotalReader(least=0), inner_axes=self._inner_axes(dataset))
        if dataset.rows is not None and design.tally.where is None and not design.axes and dataset.unit.is_row:
            raise InvalidRequest("The number of rows is public under replace-one adjacency", do="Use dataset.rows")
        return design

    def _show_number(self, number: float) -> Any:
        """Round a number: counts are whole."""
        return round(number)


@statistic
class CountDistinct(Count):
    """The number of different units (ids) that have at least one row, in all or in each group.

    Guarantee: as ``Count``.
    Adjacency: the dataset's.
    Sensitivity: 1 in all; with groups, the groups a unit may be in (L1).
    Accuracy: as ``Count``.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    Parameters
    ----------
    within : float or str, optional
        The error allowed, in units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.

    Examples
    --------
    >>> CountDistinct(epsilon=0.1).question
    'count of distinct units'
    """

    @property
    def subject(self) -> str:
        return "count of distinct units"

    def design(self, dataset: Dataset) -> Design:
        if dataset.unit.is_row:
            return super().design(dataset)
        return self.fit_design(dataset, CountForm(), TotalReader(least=0), once=True)


@statistic
class BinnedCount(Count):
    """Base of the counts along one column: in bins, in calendar periods or by categories.

    Parameters
    ----------
    column : str or Expression
        The column to divide: numbers into bins, times into periods, other columns by their public categories.
    edges : sequence of float, optional
        The public edges of the bins, in the column's units, increasing. Numbers outside are left out.
    bins : int, optional
        The number of equal bins between the public bounds, instead of edges. Default: 20, if the column has no categories.
    every : {"hour", "day", "week", "month", "quarter", "year"}, optional
        The length of the periods of a column of times. Default: "month".
    bounds : pair of numbers or of days, optional
        The public range to divide, in the column's units; for times the first and the last day. Default: the declared
        bounds of the column. Numbers and times outside are left out.
    """

    column: Column
    edges: Sequence[float] | None = field(default=None, kw_only=True)
    bins: int | None = field(default=None, kw_only=True)
    every: str | None = field(default=None, kw_only=True)
    bounds: Sequence[Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {"edges": self.edges, "bins": self.bins, "every": self.every}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise InvalidRequest(
                "Expected one of edges, bins and every", got=" and ".join(named), do="Pass one of them"
            )
        if self.edges is not None and self.bounds is not None:
            raise InvalidRequest(
                "Expected edges or bounds, not both", do="Leave out bounds=: edges have their own ends"
            )
        if self.bins is not None:
            object.__setattr__(self, "bins", whole(self.bins, "bins", least=1, most=1 << 16, do="Pass bins=20"))
        if self.edges is not None:
            object.__setattr__(self, "edges", read_list(self.edges, "edges", do="Pass edges such as [0, 18, 65, 120]"))

    def _divide_column(self, dataset: Dataset) -> Bins | Categories | Periods:
        """Return the axis along which rows are counted."""
        expression = dataset.expression(self.column)
        if self.every is not None or (self.edges is None and self.bins is None and dataset.is_time(expression)):
            return dataset.periods(expression, self.every or "month", self.bounds)
        if self.edges is not None:
            dataset.clamp(expression, (0, 1))  # raises for a column that is not numeric
            return Bins.of(expression, self.edges)
        if self.bins is None and self.bounds is None and dataset.is_categorical(expression):
            return dataset.axis(self.column)
        if dataset.is_time(expression):
            raise InvalidRequest("Expected bins of a column of numbers", got=repr(expression), do='Pass every="month"')
        clamp = dataset.clamp(expression, self.bounds)
        return Bins.of(expression, np.linspace(float(clamp.low), float(clamp.high), (self.bins or BINS) + 1).tolist())


@statistic
class Histogram(BinnedCount):
    """The number of rows in each bin, period or category of a column; a bin includes its lower edge, the last one both.

    Guarantee: as ``Count``; a row is in one bin, so all bins together cost what one count costs.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all bins together (twice that under replace-one).
    Accuracy: intervals cover the counts of all bins at once.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    Examples
    --------
    >>> Histogram("age", edges=[0, 18, 65, 120], epsilon=0.1).question
    'histogram of age'
    >>> Histogram("age", bins=12, within=100).question
    'histogram of age in 12 bins'
    """

    @property
    def subject(self) -> str:
        return f"histogram of {self.column}" + ("" if self.bins is None else f" in {self.bins} bins")

    def _inner_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        return (self._divide_column(dataset),)

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Put the groups into a release with the edges of the bins, if there are any."""
        found, axis = super()._shape_release(design, result, receipt), design.axes[-1]
        return HistogramRelease(found.value, receipt, edges=axis.edges) if isinstance(axis, Bins) else found


@statistic
class CountOverTime(Histogram):
    """The number of rows in each calendar period of a column of times, in all or in each group.

    Guarantee: as ``Count``; a row is in one period, so all periods together cost what one count costs.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all periods together (twice that under replace-one).
    Accuracy: intervals cover the counts of all periods at once.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    Parameters
    ----------
    column : str or Expression
        The column of times.
    every : {"hour", "day", "week", "month", "quarter", "year"}, default "month"
        The length of the periods. Weeks begin on Mondays. Groups are named by the first day, or hour, of a period.
    bounds : pair of str or date, optional
        The first and the last day, such as ``("2024-01-01", "2024-12-31")``. Do not read them off the data. Default: the
        declared bounds of the column. Rows outside are left out.

    Examples
    --------
    >>> CountOverTime("when", every="week", epsilon=1).question
    'count of rows by week of when'
    """

    every: str = field(default="month", kw_only=True)
    edges: None = field(init=False, default=None)
    bins: None = field(init=False, default=None)

    @property
    def subject(self) -> str:
        return f"count of rows by {self.every} of {self.column}"


@statistic
class ContingencyTable(Count):
    """The number of rows for every combination of the categories of several columns.

    Guarantee: as ``Count``; a row is in one cell, so all cells together cost what one count costs.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all cells together (twice that under replace-one).
    Accuracy: intervals cover the counts of all cells at once.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    Parameters
    ----------
    columns : sequence of str or Expression
        The columns of public categories.

    Examples
    --------
    >>> ContingencyTable(["city", "job"], epsilon=0.1).question
    'contingency table by city, job'
    """

    columns: Sequence[Column]
    by: By = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", read_list(self.columns, "columns", do='Pass ["city", "job"]'))

    @property
    def subject(self) -> str:
        return "contingency table"

    @property
    def group_keys(self) -> tuple[GroupKey, ...]:
        """Return the columns of the table."""
        return tuple(self.columns)


@statistic
class ValueCounts(Count):
    """The number of rows of each of a column's public categories, the most common first, in all or in each group.

    Guarantee: as ``Count``; ordering by the noisy counts is post-processing.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all categories together.
    Accuracy: intervals cover the counts of all categories at once; the order is that of the noisy counts.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); DR14, Proposition 2.1 (post-processing).

    Parameters
    ----------
    column : str or Expression
        The column of public categories. For categories that are not public use ``CountByPrivateKeys``.

    Examples
    --------
    >>> ValueCounts("city", epsilon=1).question
    'value counts of city'
    """

    column: Column

    @property
    def subject(self) -> str:
        return f"value counts of {self.column}"

    def _inner_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        return (dataset.axis(self.column),)

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Order the counts of each group, the largest first, and keep as many as are asked for."""
        everything = super()._shape_release(design, result, receipt)
        categories = design.axes[-1].size
        values = np.array([row.value for row in everything.value.rows]).reshape(-1, categories)
        order = (
            np.argsort(-values, axis=1, kind="stable")[:, : self._shown] + categories * np.arange(len(values))[:, None]
        )
        rows = tuple(everything.value.rows[place] for place in order.ravel().tolist())
        return GroupRelease(Groups(everything.value.columns, rows), receipt)

    @property
    def _shown(self) -> int | None:
        """Return how many categories of each group are reported; None for all."""
        return None


@statistic
class TopK(ValueCounts):
    """The ``k`` most common of a column's public categories, with their counts, in all or in each group.

    All counts are released at once, which costs what one count costs, and the largest are reported. ``within=100``
    asks for counts within 100 rows, so no category left out is more common by over 200 than one reported.

    Guarantee: as ``Count``; choosing the largest is post-processing.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all categories together.
    Accuracy: intervals cover the counts of all categories at once, so also of those reported.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); DR14, Proposition 2.1 (post-processing).

    Parameters
    ----------
    column : str or Expression
        The column of public categories.
    k : int
        How many categories to report.

    Examples
    --------
    >>> TopK("city", 3, epsilon=1).question
    'top 3 of city'
    """

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidRequest("Expected k >= 1", got=self.k, do="Pass how many categories you want")
        super().__post_init__()

    @property
    def subject(self) -> str:
        return f"top {self.k} of {self.column}"

    @property
    def _shown(self) -> int | None:
        return self.k


@statistic
class CountByPrivateKeys(Count):
    """The number of rows in each group of a column whose values are not public; rare groups are left out.

    ``keys_share`` of the epsilon or cap finds the keys, the rest is left for the counts. The same as
    ``Count(by=PrivateKeys(...))`` with that split.

    Guarantee: (epsilon, delta)-DP; the keys' part is known before the run, the counts' loss is pure ex-post, known only
        after the run and at most the rest of epsilon or ``max_epsilon``.
    Adjacency: the dataset's, which must be add/remove.
    Sensitivity: that of ``PrivateKeys``, then that of ``Count``.
    Accuracy: intervals cover the counts of all groups shown at once.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: KKMN09, Theorem 1 (thresholding); docs/proofs/private-keys.md (this threshold).

    Parameters
    ----------
    column : str or Expression or sequence of these
        The column of texts or numbers to group by. With several columns a group is a combination of their values.
    delta : float
        The probability that a key of one unit alone is shown.
    keys_share : float, default 0.25
        The part of ``epsilon`` or ``max_epsilon`` that finds the keys.

    Examples
    --------
    >>> CountByPrivateKeys("city", epsilon=1, delta=1e-6).question
    'count of rows by private city'
    """

    column: KeyColumns
    delta: Any = field(kw_only=True)
    keys_share: Any = field(default=0.25, kw_only=True)
    by: By = field(init=False, default=None)
    noise: str = field(init=False, default="laplace")
    count: Count = field(init=False, repr=False)

    def __post_init__(self) -> None:
        total = self.epsilon if self.epsilon is not None else self.max_epsilon
        if total is None:
            raise InvalidRequest("Expected a cap for a question by private keys", do="Pass max_epsilon=, or epsilon=")
        super().__post_init__()
        level = rational(total, "epsilon")
        part = level * probability(self.keys_share, "keys_share")
        count = Count(
            within=self.within,
            epsilon=None if self.epsilon is None else level - part,
            confidence=self.confidence,
            max_epsilon=level - part if self.epsilon is None else self.max_epsilon,
            where=self.where,
            by=PrivateKeys(self.column, epsilon=part, delta=self.delta),
            noise="laplace",
        )
        object.__setattr__(self, "count", count)

    @property
    def question(self) -> str:
        return self.keys_first.question

    @property
    def keys_first(self) -> ByPrivateKeys:
        """Return the two stages: keys, then counts."""
        return ByPrivateKeys(self.count)

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> Plan:
        """Plan both stages."""
        return self.keys_first.plan(dataset)
