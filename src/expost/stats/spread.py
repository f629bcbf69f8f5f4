"""Variances and standard deviations."""

from __future__ import annotations

from expost.data import Dataset
from expost.data.form import SquareForm
from expost.stats.question import Design
from expost.stats.readers import DeviationReader, VarianceReader
from expost.stats.total import ColumnQuestion

__all__ = ["StandardDeviation", "Variance"]


class Variance(ColumnQuestion):
    """The variance of a column's clamped values (divided by their number), in all or in each group.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else scout and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the squared number of steps between the bounds, times the rows a unit may have (L1): three shares of a
        row that add up to a constant.
    Accuracy: intervals cover the variances of the clamped values, of all groups at once.
    Numerics: values become whole steps before they are squared and added; sums are exact integers.
    Reference: WZLDSG20, Section 4 (variance from bounded sums); docs/proofs/shares.md (three shares, intervals).

    >>> Variance("age", epsilon=1).question
    'variance of age'
    """

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"variance of {self._column}"

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        measured = self.measured(dataset)
        return self.fitted(dataset, SquareForm(measured.clamp), VarianceReader(measured.clamp), measured)


class StandardDeviation(Variance):
    """The standard deviation of a column's clamped values, in all or in each group.

    Guarantee: as ``Variance``.
    Adjacency: the dataset's.
    Sensitivity: as ``Variance``.
    Accuracy: intervals cover the deviations of the clamped values, of all groups at once.
    Numerics: as ``Variance``; the root is taken after the noise.
    Reference: docs/proofs/shares.md (three shares, intervals).

    >>> StandardDeviation("age", epsilon=1).question
    'standard deviation of age'
    """

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"standard deviation of {self._column}"

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        measured = self.measured(dataset)
        return self.fitted(dataset, SquareForm(measured.clamp), DeviationReader(measured.clamp), measured)
