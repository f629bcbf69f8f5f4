"""What is asked of a table: the arguments that all statistics share, as frozen values."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar, dataclass_transform

from expost.core import BudgetExceeded, InvalidRequest, Measure, Plan, PlanContext, Target, explain_arguments
from expost.core.rational import rational
from expost.data import Dataset, Expression
from expost.data.axis import Axis, Categories
from expost.stats.private_keys import ByPrivateKeys, PrivateKeys, private_keys_in

__all__ = [
    "AskedAccuracy",
    "By",
    "Column",
    "GroupKey",
    "Level",
    "TableQuery",
    "axis_names",
    "group_labels",
    "read_list",
    "statistic",
]

Column = str | Expression
GroupKey = str | Expression | Categories | PrivateKeys
By = GroupKey | Sequence[GroupKey] | None
Level = float | Fraction | None

Q = TypeVar("Q")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def statistic(cls: type[Q]) -> type[Q]:
    """Make a query class a frozen dataclass whose constructor explains wrong arguments.

    Queries compare by identity: two expressions compared with ``==`` make a third one.
    """
    made = dataclass(frozen=True, eq=False)(cls)
    made.__init__ = explain_arguments(made.__init__)  # type: ignore[method-assign]
    return made


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
        cap = None if max_epsilon is None else rational(max_epsilon, "max_epsilon")
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
            raise BudgetExceeded(
                f"This accuracy costs epsilon {float(price):.4g}, above max_epsilon={float(self.cap):.4g}",
                do="Raise max_epsilon, or ask for less accuracy",
            )


@statistic
class TableQuery(ABC):
    """Base of the statistics, which are answered for all rows or for each group.

    Parameters
    ----------
    within : float or str, optional
        The error allowed, in the units of the value, or a share such as ``"5%"``. Give either this or ``epsilon``.
    epsilon : float or Fraction, optional
        A fixed privacy level.
    confidence : float, default 0.95
        The probability with which all intervals hold at once.
    max_epsilon : float or Fraction, optional
        The most that an accuracy may cost.
    where : str or Expression, optional
        Keep only the rows for which this holds, such as ``"age >= 65"``.
    by : str, Expression, PrivateKeys or a sequence of these, optional
        Group by these columns: public categories, or private keys that are found first.
    """

    within: float | str | None = field(default=None, kw_only=True)
    epsilon: Level = field(default=None, kw_only=True)
    confidence: float | Fraction = field(default=0.95, kw_only=True)
    max_epsilon: Level = field(default=None, kw_only=True)
    where: Expression | str | None = field(default=None, kw_only=True)
    by: By = field(default=None, kw_only=True)
    accuracy: AskedAccuracy = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.by is not None and not isinstance(self.by, str | Expression | Categories | PrivateKeys):
            object.__setattr__(self, "by", read_list(self.by, "by", do='Pass "city" or ["city", "job"]'))
        if private_keys_in(self.by) and self.epsilon is None and self.max_epsilon is None:
            raise InvalidRequest("Expected a cap for a question by private keys", do="Pass max_epsilon=, or epsilon=")
        object.__setattr__(self, "accuracy", self.read_accuracy())

    def read_accuracy(self) -> AskedAccuracy:
        """Read the accuracy or the level asked for."""
        return AskedAccuracy.read(
            within=self.within, epsilon=self.epsilon, confidence=self.confidence, max_epsilon=self.max_epsilon
        )

    @property
    @abstractmethod
    def subject(self) -> str:
        """Return what is asked for, without filter and groups."""

    @abstractmethod
    def plan_public(self, dataset: Dataset, context: PlanContext) -> Plan:
        """Plan the query, whose groups are all public."""

    @property
    def target(self) -> Target | None:
        """Return the accuracy asked for, or None for a fixed epsilon."""
        return self.accuracy.target

    @property
    def group_keys(self) -> tuple[GroupKey, ...]:
        """Return the group columns as a tuple."""
        if self.by is None:
            return ()
        return self.by if isinstance(self.by, tuple) else (self.by,)

    @property
    def question(self) -> str:
        """Return the question in public words, such as ``"mean of age where pay > 3 by city"``."""
        where = "" if self.where is None else f" where {self.where}"
        named = (
            repr(key.expression).strip('"') if isinstance(key, Categories) else str(key) for key in self.group_keys
        )
        return self.subject + where + (" by " + ", ".join(named) if self.group_keys else "")

    @property
    def keys_first(self) -> ByPrivateKeys | None:
        """Return the two stages of a query by private keys, or None if all groups are public."""
        return ByPrivateKeys(self) if private_keys_in(self.by) else None

    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> Plan:
        """Fit the query to a dataset's public description and price it. Reads no rows.

        Parameters
        ----------
        dataset : Dataset
            The table, of which only the description is read.
        context : PlanContext, optional
            The cache of earlier releases, and the definitions of the accounts that will pay.

        Returns
        -------
        Plan
            A frozen plan with ``worst_case``, ``measure`` and ``climb``.

        Raises
        ------
        InvalidRequest
            If the description cannot answer the query.
        BudgetExceeded
            If the price is above ``max_epsilon``.
        """
        stages = self.keys_first
        if stages is not None:
            return stages.plan(dataset)
        return self.plan_public(dataset, PlanContext() if context is None else context)

    def group_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        """Return the groups' axes: declared categories, or a list that was found."""
        keys = self.group_keys
        return tuple(key if isinstance(key, Categories) else dataset.axis(key) for key in keys)  # type: ignore[arg-type]


def read_list(values: Any, name: str, *, do: str) -> tuple[Any, ...]:
    """Return the entries of a list that a caller passed, or raise ``InvalidRequest`` if it is not a list.

    >>> read_list(["age", "pay"], "columns", do='Pass ["age", "pay"]')
    ('age', 'pay')
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidRequest(f"Expected {name} to be a list", got=values, do=do)
    return tuple(values)


def axis_names(axes: Sequence[Axis]) -> tuple[str, ...]:
    """Return the names of the groups' columns."""
    return tuple(repr(axis.expression).strip('"') for axis in axes)


def group_labels(axes: Sequence[Axis]) -> list[Any]:
    """Return the label of each group; a tuple if there are several columns, one empty tuple if there are none."""
    combined = list(itertools.product(*(axis.labels for axis in axes)))
    return [label[0] for label in combined] if len(axes) == 1 else combined
