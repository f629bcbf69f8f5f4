"""Number, mean and spread of several columns, from one path a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Loss, Outcome, PureGuarantee, PureLoss, Receipt, Release
from expost.data import Clamp, Dataset, Expression
from expost.data.form import SquareForm
from expost.noise import BitSource
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.kept import Shelf
from expost.stats.question import Design
from expost.stats.readers import DeviationReader, SquareMeanReader
from expost.stats.reading import Reading
from expost.stats.total import ColumnQuestion

__all__ = ["Summary"]

_STATISTICS = ("mean", "standard deviation")


@dataclass(frozen=True)
class _BothReader:
    """Reads mean and standard deviation off the same three shares, one after the other."""

    clamp: Clamp
    linear = False
    unit = Fraction(1)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        # Both rest on the event that all three noises are within one radius, so they hold together.
        both = [reader(self.clamp).read(noisy, scale, level) for reader in (SquareMeanReader, DeviationReader)]
        return Reading(*(np.concatenate(each) for each in zip(*((r.value, r.low, r.high) for r in both), strict=True)))


class _ColumnSummary(ColumnQuestion):
    """Mean and standard deviation of one column."""

    @property
    def subject(self) -> str:
        return f"summary of {self._column}"

    def design(self, dataset: Dataset) -> Design:
        measured = self.measured(dataset)
        return self.fitted(dataset, SquareForm(measured.clamp), _BothReader(measured.clamp), measured)

    def _release(self, design: Design, ascent: Any, promise: Fraction) -> Release[Any]:
        reading, level = ascent.reading, ascent.ladder[ascent.top]
        rows = tuple(
            Group(
                (str(self._column), statistic),
                float(reading.value[place]),
                float(reading.low[place]),
                float(reading.high[place]),
                level,
                bool(ascent.met[0]),
            )
            for place, statistic in enumerate(_STATISTICS)
        )
        return GroupRelease(Groups(("column", "statistic"), rows), self._receipt(design, ascent, promise))


class Summary:
    """Mean and standard deviation of several columns; each column pays once for both.

    The columns' bills add up; each may cost an even part of the cap. Sums, means and variances asked for later are
    read off the same paths for nothing where these are accurate enough.

    Guarantee: pure ex-post DP; the sum of the columns' bills, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: as ``Variance``, for each column.
    Accuracy: intervals cover mean and deviation of a column at once; the failure probability is split over columns.
    Numerics: as ``Variance``.
    Reference: DR14, Theorem 3.16 (composition); docs/proofs/shares.md (three shares, intervals).

    >>> Summary(["age", "income"], within="5%", max_epsilon=1).question
    'summary of age, income'
    """

    def __init__(
        self,
        columns: Sequence[str | Expression],
        *,
        within: object = None,
        epsilon: Any = None,
        confidence: Any = 0.95,
        max_epsilon: Any = None,
        bounds: Mapping[str, Sequence[float]] | None = None,
        where: Expression | str | None = None,
    ) -> None:
        if isinstance(columns, str) or not columns:
            raise InvalidRequest("Expected a list of columns", got=columns, do='Pass ["age", "income"]')
        share, parts = len(columns), bounds or {}
        each = Fraction(str(1 - (1 - float(confidence)) / share)) if share > 1 else confidence
        self._columns = [
            _ColumnSummary(
                column,
                within=within,
                epsilon=None if epsilon is None else Fraction(str(epsilon)) / share,
                confidence=each,
                max_epsilon=None if max_epsilon is None else Fraction(str(max_epsilon)) / share,
                where=where,
                bounds=parts.get(str(column)),
            )
            for column in columns
        ]
        self._names = ", ".join(map(str, columns))
        self._where = where

    def on(self, shelf: Shelf) -> Self:
        """The same question, with paths kept on a shelf."""
        for column in self._columns:
            column.on(shelf)
        return self

    @property
    def question(self) -> str:
        """The question in public words."""
        return f"summary of {self._names}" + ("" if self._where is None else f" where {self._where}")

    @property
    def worst_case(self) -> Loss:
        """The sum of the columns' worst cases."""
        total: Loss = PureLoss(Fraction(0))
        for column in self._columns:
            total = total + column.worst_case
        return total

    def check(self, dataset: Dataset) -> None:
        """Fit every column to the dataset; reads no rows."""
        for column in self._columns:
            column.check(dataset)

    def measure(self, dataset: Dataset) -> list[Any]:
        """One sealed vector a column."""
        return [column.measure(dataset) for column in self._columns]

    def climb(self, sealed: list[Any], bits: BitSource | None = None) -> Release[Groups]:
        """The columns' releases, joined."""
        promise = self.worst_case
        parts = [column.climb(each, bits) for column, each in zip(self._columns, sealed, strict=True)]
        receipts = [part.receipt for part in parts]
        return GroupRelease(
            Groups(("column", "statistic"), tuple(row for part in parts for row in part.value.rows)),
            _joined(self.question, receipts, promise),
        )


def _joined(question: str, receipts: Sequence[Receipt], promise: Loss) -> Receipt:
    bill = sum((Fraction(receipt.bill.amounts()["epsilon"]) for receipt in receipts), Fraction(0))
    first = receipts[0]
    bounds = {name: ends for receipt in receipts for name, ends in receipt.terms.get("bounds", {}).items()}
    met = any(receipt.outcome.met for receipt in receipts)
    return replace(
        first,
        question=question,
        promise=PureGuarantee(promise.amounts()["epsilon"]),
        bill=PureLoss(bill),
        outcome=first.outcome if first.target is None else Outcome.CERTIFIED if met else Outcome.NOT_MET,
        achieved=None,
        rung=None,
        rungs=None,
        terms={"bounds": bounds},
        breakdown={receipt.question: Fraction(receipt.bill.amounts()["epsilon"]) for receipt in receipts},
    )
