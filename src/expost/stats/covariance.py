"""Covariance matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Release
from expost.data import Clamp, Dataset, Expression
from expost.data.clamp import MOST_STEPS
from expost.data.form import MomentForm
from expost.data.tally import Measured
from expost.stats.ascent import Ascent
from expost.stats.by import columns_of
from expost.stats.groups import Group, GroupRelease, Groups, group_rows
from expost.stats.question import Design, Question
from expost.stats.readers.covariance import CovarianceReader
from expost.stats.table_release import MatrixRelease

__all__ = ["Covariance"]


class Covariance(Question):
    """The covariance matrix of several columns' clamped values; rows that miss one of them are left out.

    In all, the answer is a matrix. With groups it is a long table: one line for each group and pair of columns.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else scout and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: one share for each column and each pair, times the rows a unit may have (L1, all groups together).
    Accuracy: intervals cover all entries (of all groups) at once, and a target holds for all of a group.
    Numerics: values become whole steps before they are multiplied and added; sums are exact integers.
    Reference: docs/proofs/shares.md (shares and products, intervals).

    >>> Covariance(["age", "income"], epsilon=1, by="city").question
    'covariance of age, income by city'
    """

    def __init__(
        self,
        columns: Sequence[str | Expression],
        *,
        bounds: Sequence[Sequence[float] | None] | None = None,
        **terms: Any,
    ) -> None:
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
        clamps = _on_one_grid([dataset.clamp(each, bounds) for each, bounds in pairs])
        measured = tuple(Measured(each, clamp) for each, clamp in zip(expressions, clamps, strict=True))
        form = MomentForm(clamps)
        where = dataset.condition(self._where)
        tally = dataset.tally(measured=measured, axes=self.axes(dataset), where=where, degree=2)
        return Design(tally, form, CovarianceReader(form), dataset.sensitivity(form, tally))

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        receipt = self._receipt(design, ascent, promise)
        entries = np.stack([ascent.reading.value, ascent.reading.low, ascent.reading.high])
        if design.axes:
            rows = self._rows(design, ascent, entries)
            return GroupRelease(Groups((*columns_of(design.axes), "first", "second"), rows), receipt)
        value, low, high = (_symmetric(each, len(self._columns)) for each in entries)
        return MatrixRelease(value, receipt, (low, high), columns=tuple(map(str, self._columns)))

    def _rows(self, design: Design, ascent: Ascent, entries: np.ndarray[Any, Any]) -> tuple[Group, ...]:
        """One row a group and pair of columns."""
        pairs = [(str(self._columns[i]), str(self._columns[j])) for i, j in _upper(len(self._columns))]
        labels = [
            (*(label if isinstance(label, tuple) else (label,)), *pair) for label in design.labels for pair in pairs
        ]
        levels = [ascent.ladder[rung] for rung in ascent.rung.tolist() for _ in pairs]
        return group_rows(labels, entries, levels, np.repeat(ascent.met, len(pairs)))


def _on_one_grid(clamps: Sequence[Clamp]) -> tuple[Clamp, ...]:
    """The clamps, cut into the same number of steps where a common multiple of their own would be too long."""
    if math.lcm(*(clamp.steps for clamp in clamps)) <= MOST_STEPS:
        return tuple(clamps)
    return tuple(Clamp(clamp.low, clamp.high, MOST_STEPS) for clamp in clamps)


def _upper(size: int) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in zip(*np.triu_indices(size), strict=True)]


def _symmetric(entries: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = entries
    return np.triu(matrix) + np.triu(matrix, 1).T
