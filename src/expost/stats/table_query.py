"""What is asked of a table: the base of all statistics, a frozen value."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from typing import Any

from expost.core import InvalidRequest, Plan, PlanContext, Target
from expost.data import Dataset, Expression
from expost.data.axis import Axis, Categories, KeyTuples
from expost.stats.private_bounds import PrivatelyBounded
from expost.stats.private_keys import ByPrivateKeys, PrivateKeys, private_keys_in
from expost.stats.query_terms import AskedAccuracy, Level, describe_plan, read_list, statistic

__all__ = ["By", "GroupKey", "TableQuery", "axis_names", "group_labels"]

GroupKey = str | Expression | Categories | PrivateKeys
By = GroupKey | Sequence[GroupKey] | None


@statistic
class TableQuery(ABC):
    """Base of the statistics, which are answered for all rows or for each group.

    Parameters
    ----------
    within : float or str, optional
        The error allowed, in the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
    epsilon : float, optional
        A fixed privacy level instead of an accuracy.
    confidence : float, default 0.95
        The probability with which all intervals hold at once.
    max_epsilon : float, optional
        The most that an accuracy may cost. It is needed where the price depends on the data.
    where : str or Expression, optional
        Keep only the rows for which this holds, such as ``"age >= 65"``.
    by : str, Expression, PrivateKeys or a list of these, optional
        Group by these columns: public categories, or private keys, which are found first.
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
            object.__setattr__(
                self,
                "by",
                read_list(self.by, "by", do='Pass "city" or ["city", "job"]', kind="a column or a list of columns"),
            )
        if private_keys_in(self.by) and self.epsilon is None and self.max_epsilon is None:
            raise InvalidRequest("Expected a cap for a question by private keys", do="Pass max_epsilon=, or epsilon=")
        object.__setattr__(self, "accuracy", self._read_accuracy())

    def _read_accuracy(self) -> AskedAccuracy:
        """Read the accuracy or the level asked for."""
        return AskedAccuracy.read(
            within=self.within, epsilon=self.epsilon, confidence=self.confidence, max_epsilon=self.max_epsilon
        )

    @property
    @abstractmethod
    def subject(self) -> str:
        """Return what is asked for, without filter and groups."""

    @abstractmethod
    def _plan_public(self, dataset: Dataset, context: PlanContext) -> Plan:
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
        named = (", ".join(axis_names([key])) if isinstance(key, Categories) else str(key) for key in self.group_keys)
        return self.subject + where + (" by " + ", ".join(named) if self.group_keys else "")

    @property
    def keys_first(self) -> ByPrivateKeys | None:
        """Return the two stages of a query by private keys, or None if all groups are public."""
        return ByPrivateKeys(self) if private_keys_in(self.by) else None

    @property
    def bounded_first(self) -> PrivatelyBounded | None:
        """Return the two stages of a query with private bounds, or None if its bounds are public."""
        return None

    @describe_plan
    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> Plan:
        """Fit the query to a dataset's public description and price it. Reads no rows."""
        stages = self.keys_first or self.bounded_first
        if stages is not None:
            return stages.plan(dataset)
        return self._plan_public(dataset, PlanContext() if context is None else context)

    def _group_axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        """Return the groups' axes: declared categories, or a list that was found."""
        axes: list[Axis] = []
        for key in self.group_keys:
            axes.append(key if isinstance(key, Categories) else dataset.axis(key))  # type: ignore[arg-type]
        return tuple(axes)


def axis_names(axes: Sequence[Axis]) -> tuple[str, ...]:
    """Return the names of the groups' columns; keys of several columns have several."""
    expressions = [
        each
        for axis in axes
        for each in (axis.expression.parts() if isinstance(axis, KeyTuples) else [axis.expression])
    ]
    return tuple(repr(expression).strip('"') for expression in expressions)


def group_labels(axes: Sequence[Axis]) -> list[Any]:
    """Return the label of each group; a tuple if there are several columns, one empty tuple if there are none."""
    labels = [axis.labels if isinstance(axis, KeyTuples) else [(label,) for label in axis.labels] for axis in axes]
    combined = [tuple(itertools.chain(*parts)) for parts in itertools.product(*labels)]
    return [label[0] for label in combined] if len(axis_names(axes)) == 1 else combined
