"""Counts: rows, units, histograms, contingency tables and the most common categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Plan, PlanContext, Receipt, Release
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.data.axis import Axis, Bins
from expost.data.sealed_form import CountForm
from expost.stats.gradual_plan import Design, GradualQuery
from expost.stats.gradual_release import ClimbResult
from expost.stats.private_keys import ByPrivateKeys, PrivateKeys
from expost.stats.query_terms import Column, read_list, statistic
from expost.stats.reader import TotalReader
from expost.stats.table_query import By, GroupKey
from expost.stats.table_release import GroupRelease, Groups, HistogramRelease

__all__ = ["ContingencyTable", "Count", "CountByPrivateKeys", "CountDistinct", "Histogram", "TopK"]


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
class Histogram(Count):
    """The number of rows in each bin of a column; a bin includes its lower edge, the last one both.

    Guarantee: as ``Count``; a row is in one bin, so all bins together cost what one count costs.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all bins together (twice that under replace-one).
    Accuracy: intervals cover the counts of all bins at once.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    Parameters
    ----------
    column : str or Expression
        The numeric column to bin.
    edges : sequence of float
        The public edges of the bins, in the column's units, increasing.

    Examples
    --------
    >>> Histogram("age", edges=[0, 18, 65, 120], epsilon=0.1).question
    'histogram of age'
    """

    column: Column
    edges: Sequence[float] = field(kw_only=True)

    @property
    def subject(self) -> str:
        return f"histogram of {self.column}"

    def _inner_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        expression = dataset.expression(self.column)
        dataset.clamp(expression, (0, 1))  # raises for a column that is not numeric
        return (Bins.of(expression, self.edges),)

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Put the groups into a release with the edges of the bins."""
        found = super()._shape_release(design, result, receipt)
        return HistogramRelease(found.value, receipt, edges=tuple(float(edge) for edge in self.edges))


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
class TopK(Count):
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

    column: Column
    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidRequest("Expected k >= 1", got=self.k, do="Pass how many categories you want")
        super().__post_init__()

    @property
    def subject(self) -> str:
        return f"top {self.k} of {self.column}"

    def _inner_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        return (dataset.axis(self.column),)

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Choose the largest counts of each group."""
        everything = super()._shape_release(design, result, receipt)
        categories = design.axes[-1].size
        values = np.array([row.value for row in everything.value.rows]).reshape(-1, categories)
        order = np.argsort(-values, axis=1, kind="stable")[:, : self.k] + categories * np.arange(len(values))[:, None]
        rows = tuple(everything.value.rows[place] for place in order.ravel().tolist())
        return GroupRelease(Groups(everything.value.columns, rows), receipt)


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
    column : str or Expression
        The column of texts or numbers to group by.
    delta : float
        The probability that a key of one unit alone is shown.
    keys_share : float, default 0.25
        The part of ``epsilon`` or ``max_epsilon`` that finds the keys.

    Examples
    --------
    >>> CountByPrivateKeys("city", epsilon=1, delta=1e-6).question
    'count of rows by private city'
    """

    column: Column
    delta: Any = field(kw_only=True)
    keys_share: Any = field(default=0.25, kw_only=True)
    by: By = field(init=False, default=None)
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
        )
        object.__setattr__(self, "count", count)

    @property
    def question(self) -> str:
        return self.keys_first.question

    @property
    def keys_first(self) -> ByPrivateKeys:
        """Return the two stages: keys, then counts."""
        return ByPrivateKeys(self.count)

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> Plan:  # type: ignore[override]
        """Plan both stages."""
        return self.keys_first.plan(dataset)
