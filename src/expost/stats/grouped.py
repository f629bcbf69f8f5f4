"""The words that questions about a table share: an accuracy or an epsilon, a filter, groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from expost.core import Loss
from expost.data import Expression
from expost.stats.ask import Ask
from expost.stats.by import By, by_text, read_by
from expost.stats.by_private_keys import ByPrivateKeys, private_keys_in

__all__ = ["GroupedQuestion"]


class GroupedQuestion(ABC):
    """The base of questions in all or in each group.

    Every question takes ``within=`` (an absolute error, or a share such as ``"5%"``) with ``confidence=`` and a cap
    ``max_epsilon=``, or ``epsilon=``; a filter ``where=`` and groups ``by=``.
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
        self._notes: dict[str, Any] = {}
        self._paid_before: Loss | None = None

    def noting(self, facts: Mapping[str, Any], paid_before: Loss | None = None) -> Self:
        """The same question with further public facts for its receipt, and what the answer rests on besides."""
        self._notes, self._paid_before = dict(facts), paid_before
        return self

    @property
    @abstractmethod
    def subject(self) -> str:
        """What is asked for, without filter and groups."""

    @property
    def question(self) -> str:
        """The question in public words."""
        where = "" if self._where is None else f" where {self._where}"
        return self.subject + where + by_text(self._by)
