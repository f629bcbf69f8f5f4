"""Variances, standard deviations and covariances."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Release
from expost.data import Dataset, Expression
from expost.data.form import MomentForm, SquareForm
from expost.data.tally import Measured
from expost.stats.ascent import Ascent
from expost.stats.question import Design, Question
from expost.stats.readers import DeviationReader, VarianceReader
from expost.stats.readers.covariance import CovarianceReader
from expost.stats.total import ColumnQuestion

__all__ = ["Covariance", "StandardDeviation", "Variance"]


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


class Covariance(Question):
    """The covariance matrix of several columns' clamped values; rows that miss one of them are left out.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else scout and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: one share for each column and each pair, times the rows a unit may have (L1).
    Accuracy: intervals cover all entries at once, and a target holds for all of them.
    Numerics: values become whole steps before they are multiplied and added; sums are exact integers.
    Reference: docs/proofs/shares.md (shares and products, intervals).

    >>> Covariance(["age", "income"], epsilon=1).question
    'covariance of age, income'
    """

    def __init__(
        self,
        columns: Sequence[str | Expression],
        *,
        bounds: Sequence[Sequence[float] | None] | None = None,
        **terms: Any,
    ) -> None:
        if terms.get("by") is not None:
            raise InvalidRequest("Expected no groups beside a covariance", do="Drop by=")
        super().__init__(**terms)
        self._columns = tuple(columns)
        self._bounds = tuple(bounds) if bounds is not None else (None,) * len(self._columns)
        if len(self._columns) < 2 or len(self._bounds) != len(self._columns):
            raise InvalidRequest("Expected two columns or more, and bounds for each or none", do="Name the columns")

    @property
    def subject(self) -> str:
        """What is asked for."""
        return "covariance of " + ", ".join(map(str, self._columns))

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        expressions = [dataset.expression(column) for column in self._columns]
        pairs = zip(expressions, self._bounds, strict=True)
        measured = tuple(Measured(each, dataset.clamp(each, bounds)) for each, bounds in pairs)
        form = MomentForm(tuple(each.clamp for each in measured))
        tally = dataset.tally(measured=measured, where=dataset.condition(self._where), degree=2)
        return Design(tally, form, CovarianceReader(form), dataset.sensitivity(form, tally))

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        size = len(self._columns)
        upper = np.triu_indices(size)
        matrices = []
        for entries in (ascent.reading.value, ascent.reading.low, ascent.reading.high):
            matrix = np.zeros((size, size))
            matrix[upper] = entries
            matrices.append(np.triu(matrix) + np.triu(matrix, 1).T)
        value, low, high = matrices
        return Release(value, self._receipt(design, ascent, promise), (low, high))
