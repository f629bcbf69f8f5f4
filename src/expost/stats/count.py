"""How many rows, and how many units."""

from __future__ import annotations

from typing import Any

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.data.form import CountForm
from expost.stats.question import Design, Question
from expost.stats.readers import TotalReader

__all__ = ["Count", "CountDistinct"]


class Count(Question):
    """The number of rows, in all or in each group.

    Guarantee: pure ex-post DP; the bill is scout and highest rung of a relative climb, known only after the run and at
        most ``max_epsilon``; with an absolute accuracy or an epsilon the price is known before the run.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all groups together.
    Accuracy: intervals cover the exact counts, of all groups at once, with the asked confidence at the rung where the
        climb stopped.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung);
        docs/proofs/stopped-relative-error.md (intervals at the stopping time).

    >>> import pyarrow as pa
    >>> from expost.noise import SeededBits
    >>> people = Dataset(pa.table({"age": [41, 17, 65] * 1000}))
    >>> count = Count(within=10, where="age >= 18")
    >>> count.check(people)
    >>> release = count.climb(count.measure(people), SeededBits(1))
    >>> abs(release.value - 2000) <= 10, str(count.worst_case)
    (True, 'epsilon 0.2844')
    """

    @property
    def subject(self) -> str:
        """What is asked for."""
        return "count of rows"

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        tally = dataset.tally(axes=self.axes(dataset), where=dataset.condition(self._where))
        if dataset.rows is not None and tally.where is None and not tally.axes and dataset.unit.is_row:
            raise InvalidRequest("Expected a question whose answer is not public", do="Read dataset.rows")
        form = CountForm()
        return Design(tally, form, TotalReader(least=0), dataset.sensitivity(form, tally))

    def shown(self, number: float) -> Any:
        """Counts are whole numbers."""
        return round(number)


class CountDistinct(Count):
    """The number of different units (ids) that have at least one row, in all or in each group.

    Guarantee: as ``Count``.
    Adjacency: the dataset's.
    Sensitivity: 1 in all; with groups, the groups a unit may be in (L1).
    Accuracy: as ``Count``.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    >>> CountDistinct(epsilon=0.1).question
    'count of distinct units'
    """

    @property
    def subject(self) -> str:
        """What is asked for."""
        return "count of distinct units"

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        if dataset.unit.is_row:
            return super().design(dataset)
        tally = dataset.tally(axes=self.axes(dataset), where=dataset.condition(self._where))
        form = CountForm()
        return Design(tally, form, TotalReader(least=0), dataset.sensitivity(form, tally, once=True), once=True)
