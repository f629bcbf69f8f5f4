"""Questions answered by one pick of a mechanism, in all or in each group."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any

from expost.accuracy.interval import shared_level
from expost.core import (
    Adjacency,
    InvalidRequest,
    Loss,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Target,
    Unit,
)
from expost.data import Dataset
from expost.data.axis import Axis
from expost.noise import BitSource
from expost.stats.by import axes_of, columns_of, group_labels
from expost.stats.grouped import GroupedQuestion
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.table_release import AnswerRelease

__all__ = ["PickQuestion"]


class PickQuestion(GroupedQuestion):
    """The base of questions that one pick a group answers; the price is known before the run.

    Groups hold different rows, so picks of all groups together cost what the dearest unit loses in all of them: see
    docs/proofs/parallel-picks.md. Error bounds of groups hold all at once.
    """

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self._axes: tuple[Axis, ...] = ()
        self._neighbours = (Adjacency.ADD_REMOVE, Unit())
        self._level: Fraction | None = self._ask.epsilon

    # What a statistic says about itself -------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, dataset: Dataset) -> None:
        """Refuse what the dataset's public description cannot answer, and remember what is needed of it."""

    @abstractmethod
    def price(self, target: Target, failure_probability: Fraction) -> Fraction:
        """The least epsilon whose error is within the target, except with this probability for each group."""

    @abstractmethod
    def measure(self, dataset: Dataset) -> list[Sealed]:
        """What the mechanism picks from, sealed, one a group."""

    @abstractmethod
    def pick(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """The answer of one group."""

    @abstractmethod
    def error(self, failure_probability: Fraction) -> float | None:
        """The error of one group, except with this probability, where it is known beforehand."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Method, target, terms and citations for the receipt."""

    # core.Request -----------------------------------------------------------------------------------------------

    @property
    def worst_case(self) -> Loss:
        """The price; known after ``check``."""
        level = self._level or self._ask.cap
        if level is None:
            raise InvalidRequest("Expected a dataset to price the question", do="Call check(dataset) first")
        return PureLoss(level)

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset and price it; reads no rows."""
        self._neighbours, self._axes = (dataset.adjacency, dataset.unit), axes_of(self._by, dataset)
        self.prepare(dataset)
        if self._ask.target is not None:
            self._level = self.price(self._ask.target, self.failure_probability)
            self._ask.check_price(self._level)
        self.error(self.failure_probability)  # refuses an epsilon that the mechanism cannot have

    @property
    def level(self) -> Fraction:
        """The epsilon of all groups together."""
        assert self._level is not None
        return self._level

    @property
    def labels(self) -> list[Any]:
        """The label of each group."""
        return group_labels(self._axes)

    @property
    def failure_probability(self) -> Fraction:
        """That of one group, such that all hold at once."""
        return shared_level(self._ask.failure_probability, len(self.labels))

    def climb(self, sealed: list[Sealed], bits: BitSource | None = None) -> Release[Any]:
        """One pick a group."""
        picks = [self.pick(each, bits) for each in sealed]
        if not self._axes:
            return AnswerRelease(picks[0], self._receipt())
        rows = tuple(
            Group(label, value, None, None, self.level, True) for label, value in zip(self.labels, picks, strict=True)
        )
        return GroupRelease(Groups(columns_of(self._axes), rows), self._receipt())

    def _receipt(self) -> Receipt:
        facts = self.facts()
        groups = {"groups": len(self.labels)} if self._axes else {}
        facts["terms"] = {**facts["terms"], **groups, **self._notes}
        return Receipt(
            question=self.question,
            promise=PureGuarantee(self.level),
            bill=PureLoss(self.level),
            adjacency=self._neighbours[0],
            unit=self._neighbours[1],
            outcome=Outcome.FIXED if self._ask.target is None else Outcome.CERTIFIED,
            achieved=self.error(self.failure_probability),
            paid_before=self._paid_before,
            **facts,
        )
