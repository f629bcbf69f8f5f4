"""Questions answered by one pick of a mechanism, in all or in each group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Self

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
from expost.data import Dataset, Expression
from expost.data.axis import Axis
from expost.noise import BitSource
from expost.stats.ask import Ask
from expost.stats.by import By, axes_of, by_text, columns_of, group_labels, read_by
from expost.stats.by_private_keys import ByPrivateKeys, private_keys_in
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.table_release import AnswerRelease

__all__ = ["PickQuestion"]


class PickQuestion(ABC):
    """The base of questions that one pick a group answers; the price is known before the run.

    Groups hold different rows, so picks of all groups together cost what the dearest unit loses in all of them: see
    docs/proofs/parallel-picks.md. Error bounds of groups hold all at once.
    """

    def __new__(cls, *subject: Any, **terms: Any) -> Any:
        """The question; by keys that are not public, a ``ByPrivateKeys`` one."""
        if private_keys_in(terms.get("by")):
            return ByPrivateKeys(cls, subject, terms)
        return super().__new__(cls)

    def __init__(
        self,
        *,
        within: object = None,
        epsilon: object = None,
        confidence: object = 0.95,
        max_epsilon: object = None,
        where: Expression | str | None = None,
        by: By = None,
    ) -> None:
        self._ask = Ask.of(within=within, epsilon=epsilon, confidence=confidence, max_epsilon=max_epsilon)
        self._where, self._by = where, read_by(by)
        self._axes: tuple[Axis, ...] = ()
        self._neighbours = (Adjacency.ADD_REMOVE, Unit())
        self._level: Fraction | None = self._ask.epsilon
        self._notes: dict[str, Any] = {}

    def noting(self, facts: Mapping[str, Any]) -> Self:
        """The same question with further public facts for its receipt."""
        self._notes = dict(facts)
        return self

    # What a statistic says about itself -------------------------------------------------------------------------

    @property
    @abstractmethod
    def subject(self) -> str:
        """What is asked for, without filter and groups."""

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
    def question(self) -> str:
        """The question in public words."""
        where = "" if self._where is None else f" where {self._where}"
        return self.subject + where + by_text(self._by)

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
            **facts,
        )
