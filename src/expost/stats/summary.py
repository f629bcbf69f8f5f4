"""Number, mean and spread of several columns, from one path a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Loss, Outcome, PureGuarantee, PureLoss, Receipt, Release
from expost.core.rational import probability, rational
from expost.core.receipt import together
from expost.data import Clamp, Dataset, Expression
from expost.data.form import SquareForm
from expost.noise import BitSource
from expost.stats.ascent import Ascent
from expost.stats.by import By, by_text, columns_of, read_by
from expost.stats.groups import GroupRelease, Groups, group_rows
from expost.stats.kept import Shelf
from expost.stats.question import Design
from expost.stats.readers import DeviationReader, SquareMeanReader
from expost.stats.readers.contract import ClimbedReader
from expost.stats.reading import Reading
from expost.stats.total import ColumnQuestion

__all__ = ["Summary"]

_STATISTICS = ("mean", "standard deviation")


@dataclass(frozen=True)
class _BothReader(ClimbedReader):
    """Reads mean and standard deviation off the same three shares, one after the other."""

    clamp: Clamp

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        # Both rest on the event that all three noises are within one radius, so they hold together.
        both = [reader(self.clamp).read(noisy, scale, level) for reader in (SquareMeanReader, DeviationReader)]
        numbers = zip(*((each.value, each.low, each.high) for each in both), strict=True)
        return Reading(*(np.stack(each, axis=1).ravel() for each in numbers))


class _ColumnSummary(ColumnQuestion):
    """Mean and standard deviation of one column."""

    @property
    def subject(self) -> str:
        return f"summary of {self._column}"

    def design(self, dataset: Dataset) -> Design:
        measured = self.measured(dataset)
        return self.fitted(dataset, SquareForm(measured.clamp), _BothReader(measured.clamp), measured)

    def given(self, spare: Fraction) -> Self:
        """The same question with a cap that is higher by what others have left over."""
        ask = self._ask
        self._ask = ask if ask.target is None or ask.cap is None else replace(ask, cap=ask.cap + spare)
        return self

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        reading = ascent.reading
        groups = [label if isinstance(label, tuple) else (label,) for label in design.labels] if design.axes else [()]
        labels = [(*group, str(self._column), statistic) for group in groups for statistic in _STATISTICS]
        levels = [ascent.ladder[rung] for rung in ascent.rung.tolist() for _ in _STATISTICS]
        numbers = np.stack([reading.value, reading.low, reading.high])
        rows = group_rows(labels, numbers, levels, np.repeat(ascent.met, len(_STATISTICS)))
        columns = (*columns_of(design.axes), "column", "statistic")
        return GroupRelease(Groups(columns, rows), self._receipt(design, ascent, promise))


class Summary:
    """Mean and standard deviation of several columns, in all or in each group; each column pays once for both.

    The columns' bills add up; each may cost an even part of the cap and what those before it have left over. Sums,
    means and variances asked for later are read off the same paths for nothing where these are accurate enough.

    Guarantee: pure ex-post DP; the sum of the columns' bills, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: as ``Variance``, for each column.
    Accuracy: intervals cover mean and deviation of a column (in all groups) at once; the failure probability is split
        over columns.
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
        by: By = None,
    ) -> None:
        if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
            raise InvalidRequest("Expected a list of columns", got=columns, do='Pass ["age", "income"]')
        if bounds is not None and not isinstance(bounds, Mapping):
            raise InvalidRequest("Expected bounds by column", got=bounds, do='Pass {"age": (0, 120)}')
        share, parts = len(columns), bounds or {}
        each = 1 - (1 - probability(confidence, "confidence")) / share
        self._columns = [
            _ColumnSummary(
                column,
                within=within,
                epsilon=None if epsilon is None else rational(epsilon, "epsilon") / share,
                confidence=each,
                max_epsilon=None if max_epsilon is None else rational(max_epsilon, "max_epsilon") / share,
                where=where,
                by=by,
                bounds=parts.get(str(column)),
            )
            for column in columns
        ]
        self._names = ", ".join(map(str, columns))
        self._where, self._by = where, read_by(by)

    def on(self, shelf: Shelf) -> Self:
        """The same question, with paths kept on a shelf."""
        for column in self._columns:
            column.on(shelf)
        return self

    @property
    def question(self) -> str:
        """The question in public words."""
        where = "" if self._where is None else f" where {self._where}"
        return f"summary of {self._names}{where}{by_text(self._by)}"

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
        promise, spare = self.worst_case, Fraction(0)
        parts: list[Release[Any]] = []
        for column, each in zip(self._columns, sealed, strict=True):
            column.given(spare)
            due, part = _level(column.worst_case), column.climb(each, bits)
            column.given(-spare)
            spare = due - _level(part.receipt.bill)
            parts.append(part)
        return GroupRelease(
            Groups(parts[0].value.columns, tuple(row for part in parts for row in part.value.rows)),
            _joined(self.question, [part.receipt for part in parts], promise),
        )


def _level(loss: Loss) -> Fraction:
    return Fraction(loss.amounts()["epsilon"])


def _joined(question: str, receipts: Sequence[Receipt], promise: Loss) -> Receipt:
    bill = sum((_level(receipt.bill) for receipt in receipts), Fraction(0))
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
        terms={**first.terms, "bounds": bounds, **_missed(receipts)},
        breakdown={receipt.question: _level(receipt.bill) for receipt in receipts},
        paid_before=_before(receipts),
    )


def _before(receipts: Sequence[Receipt]) -> Loss | None:
    losses = [receipt.paid_before for receipt in receipts if receipt.paid_before is not None]
    return reduce(together, losses) if losses else None


def _missed(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """The columns out of reach, and the groups of those that are met in some only."""
    columns = [receipt.question for receipt in receipts if not receipt.outcome.met]
    groups = {
        receipt.question: receipt.terms["groups not met"] for receipt in receipts if "groups not met" in receipt.terms
    }
    return ({"not met": columns} if columns else {}) | ({"groups not met": groups} if groups else {})
