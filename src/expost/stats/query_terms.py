"""The arguments that all statistics share: an accuracy or a privacy level, columns, lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar, dataclass_transform

from expost.core import (
    BudgetExceeded,
    InvalidRequest,
    Measure,
    PureLoss,
    QuestionCap,
    Target,
    explain_arguments,
    share_parameters,
)
from expost.core.rational import rational
from expost.data import Expression

__all__ = ["AskedAccuracy", "Column", "KeyColumns", "Level", "QueryPlan", "describe_plan", "read_list", "statistic"]

Column = str | Expression
KeyColumns = Column | Sequence[Column]
Level = float | Fraction | None

Q = TypeVar("Q")

_RAISES = """
InvalidRequest
    If the arguments do not fit together; nothing is spent.
"""

describe_plan = share_parameters(
    {
        "dataset": "Dataset\nThe table, of which only the description is read.",
        "context": "PlanContext, optional\n"
        "The cache of earlier releases, which only gradual statistics continue, and the definitions of the accounts.",
    },
    raises="""
    InvalidRequest
        If the description cannot answer the query.
    BudgetExceeded
        If the price is above ``max_epsilon``.
    """,
)
"""Documents the method ``plan`` of a query."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def statistic(cls: type[Q]) -> type[Q]:
    """Make a query class a frozen dataclass whose constructor explains wrong arguments.

    Queries compare by identity: two expressions compared with ``==`` make a third one. A docstring need not describe
    parameters that a base class describes.
    """
    made = dataclass(frozen=True, eq=False)(cls)
    made.__init__ = explain_arguments(made.__init__)  # type: ignore[method-assign]
    return share_parameters(*cls.__mro__[1:], raises=_RAISES)(made)


class QueryPlan:
    """Base of plans that have the question of their query."""

    query: Any

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return str(self.query.question)


@dataclass(frozen=True)
class AskedAccuracy:
    """Either a target with a cap, or a fixed epsilon with the confidence of its interval.

    >>> AskedAccuracy.read(within="5%", epsilon=None, confidence=0.95, max_epsilon=1).relative
    True
    >>> AskedAccuracy.read(within=10, epsilon=0.1, confidence=0.95, max_epsilon=None)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected either within or epsilon. Pass within= for an accuracy ...
    """

    target: Target | None
    epsilon: Fraction | None
    failure_probability: Fraction
    cap: Fraction | None

    @classmethod
    def read(cls, *, within: object, epsilon: object, confidence: object, max_epsilon: object) -> AskedAccuracy:
        """Read the four usual arguments; a relative accuracy needs a cap."""
        if (within is None) == (epsilon is None):
            raise InvalidRequest(
                "Expected either within or epsilon", do="Pass within= for an accuracy, or epsilon= for a privacy level"
            )
        cap: Fraction | None = None
        if max_epsilon is not None:
            cap = max_epsilon if isinstance(max_epsilon, QuestionCap) else rational(max_epsilon, "max_epsilon")
        failure = Target.within(1, confidence=confidence).failure_probability
        if within is None:
            return cls(None, rational(epsilon, "epsilon"), failure, cap)
        asked = cls(Target.within(within, confidence=confidence), None, failure, cap)
        if asked.relative and cap is None:
            raise InvalidRequest("Expected a cap for a relative accuracy", do="Pass max_epsilon=")
        return asked

    @property
    def relative(self) -> bool:
        """Return whether the accuracy depends on the answer, so that the level is found by climbing."""
        return self.target is not None and self.target.measure is Measure.RELATIVE_ERROR

    def check_price(self, price: Fraction) -> None:
        """Raise ``BudgetExceeded`` if a price is above the cap; nothing is spent."""
        if self.cap is not None and price > self.cap:
            limit, remedy = f"max_epsilon={float(self.cap):.4g}", "Raise max_epsilon"
            if isinstance(self.cap, QuestionCap):
                limit = f"the {PureLoss(self.cap).text(down=True)} that one question may cost ({self.cap.source})"
                remedy = "Allow it with max_epsilon="
            raise BudgetExceeded(
                f"This accuracy costs {PureLoss(price)}, above {limit}",
                do=f"{remedy}, or ask for less accuracy",
            )


def read_list(values: Any, name: str, *, do: str, kind: str = "a list") -> tuple[Any, ...]:
    """Return the entries of a list that a caller passed, or raise ``InvalidRequest`` if it is not a list."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidRequest(f"Expected {name} to be {kind}", got=values, do=do)
    return tuple(values)
