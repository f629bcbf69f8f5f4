"""Statistics that are one private pick per group: a quantile by rank, or the most common category."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from expost.accuracy.interval import shared_level
from expost.core import (
    Adjacency,
    InvalidRequest,
    Loss,
    Norm,
    Outcome,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    Target,
    Unit,
)
from expost.core.rational import rational, round_up
from expost.data import Dataset
from expost.data.axis import Axis
from expost.data.sealed_form import CountForm
from expost.data.tally import Tally
from expost.noise import BitSource, ExponentialMechanism, PermuteAndFlip
from expost.stats.gradual_release import draw_bounding_secret
from expost.stats.query_terms import Column, QueryPlan, statistic
from expost.stats.table_query import TableQuery, axis_names, group_labels
from expost.stats.table_release import AnswerRelease, Group, GroupRelease, Groups

__all__ = ["MostCommon", "PickPlan"]

_METHODS: dict[str, type[PermuteAndFlip] | type[ExponentialMechanism]] = {
    "permute-and-flip": PermuteAndFlip,
    "exponential": ExponentialMechanism,
}


@dataclass(frozen=True, kw_only=True)
class PickPlan(QueryPlan, ABC):
    """How one pick per group is made; the price is known before the run.

    Groups hold different rows, so picks of all groups together cost what the unit that is in most of them loses in all
    of them (docs/proofs/parallel-picks.md). ``error`` holds for all groups at once; ``failure_probability`` is that of
    one group.
    """

    query: TableQuery
    level: Fraction
    mechanism: Any
    tally: Tally
    axes: tuple[Axis, ...]
    sensitivity: Sensitivity
    adjacency: Adjacency
    unit: Unit
    failure_probability: Fraction
    error: float | None
    method: str
    target: Target | None
    terms: Mapping[str, Any]
    citations: tuple[str, ...]

    @abstractmethod
    def measure(self, dataset: Dataset) -> list[Sealed]:
        """Return what the mechanism picks from, sealed, one entry per group."""

    @abstractmethod
    def pick(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """Return the answer of one group."""

    @property
    def worst_case(self) -> Loss:
        """Return the price."""
        return PureLoss(self.level)

    def climb(self, sealed: list[Sealed], bits: BitSource | None = None) -> Release[Any]:
        """Pick once per group."""
        picks = [self.pick(each, bits) for each in sealed]
        receipt = Receipt(
            question=self.question,
            method=self.method,
            promise=PureGuarantee(self.level),
            bill=PureLoss(self.level),
            adjacency=self.adjacency,
            unit=self.unit,
            outcome=Outcome.FIXED if self.target is None else Outcome.CERTIFIED,
            target=self.target,
            achieved=self.error,
            terms={**self.terms, **({"groups": len(picks)} if self.axes else {})},
            citations=self.citations,
        )
        if not self.axes:
            return AnswerRelease(picks[0], receipt)
        pairs = zip(group_labels(self.axes), picks, strict=True)
        rows = tuple(Group(label, value, low=None, high=None, epsilon=self.level, met=True) for label, value in pairs)
        return GroupRelease(Groups(axis_names(self.axes), rows), receipt)


@statistic
class MostCommon(TableQuery):
    """The most common of a column's public categories, in all or in each group.

    ``within`` is the shortfall: how many rows rarer than the most common category the answer may be. It is priced
    before the run. The default method is never worse than the exponential mechanism.

    Guarantee: pure DP, known before the run; all groups together cost what is billed.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have in one category (Linf), over all groups together.
    Accuracy: the shortfall is bounded beforehand with the asked confidence, in all groups at once.
    Numerics: exact integer counts, an exact choice.
    Reference: MS20, Theorem 1 (permute-and-flip); DR14, Theorem 3.10 (exponential mechanism);
        docs/proofs/parallel-picks.md (groups).

    Parameters
    ----------
    column : str or Expression
        The column of public categories.
    method : {"permute-and-flip", "exponential"}, default "permute-and-flip"
        How the category is picked.
    within : float, optional
        The shortfall allowed, in rows. Give either this or ``epsilon``.

    Examples
    --------
    >>> MostCommon("city", epsilon=1, by="job").question
    'most common city by job'
    """

    column: Column
    method: str = field(default="permute-and-flip", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accuracy.relative:
            raise InvalidRequest("Expected a shortfall in rows", got=self.within, do="Pass within=100, or epsilon=")
        if not isinstance(self.method, str) or self.method not in _METHODS:
            raise InvalidRequest(f"Expected one of {', '.join(_METHODS)}", got=self.method, do="Name one of them")

    @property
    def subject(self) -> str:
        return f"most common {self.column}"

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> MostCommonPlan:
        """Plan the picks and price them."""
        axes, asked = self._group_axes(dataset), self.accuracy
        tally = dataset.tally(axes=(*axes, dataset.axis(self.column)), where=dataset.condition(self.where))
        candidates = tally.axes[-1].size
        # Rows move in one category by at most their number (Linf), up in one and down in another when replaced.
        limits = dataset.limits(tally)
        rows = dataset.rows_per_unit(limits).amount
        if limits is not None and limits.rows_per_group is not None and not axes:
            rows = min(rows, Fraction(limits.rows_per_group))  # in one category
        sensitivity = Sensitivity(rows, Norm.LINF, dataset.adjacency, dataset.unit)
        # Adding a unit moves no count down and removing one none up: monotone. Replacing does both.
        monotone = not dataset.adjacency.public_size
        failure = shared_level(asked.failure_probability, len(group_labels(axes)))
        level = asked.epsilon
        if level is None:
            assert asked.target is not None
            # The shortfall at epsilon 1 is proportional to 1 / epsilon.
            unit_mechanism = _METHODS[self.method](Fraction(1), monotone=monotone)
            at_one = unit_mechanism.shortfall(sensitivity, failure, candidates=candidates)
            level = rational(round_up(Fraction(at_one + 1) / asked.target.tolerance), "epsilon")
            asked.check_price(level)
        mechanism = _METHODS[self.method](level, monotone=monotone)
        return MostCommonPlan(
            query=self,
            level=level,
            mechanism=mechanism,
            tally=tally,
            axes=axes,
            sensitivity=sensitivity,
            adjacency=dataset.adjacency,
            unit=dataset.unit,
            failure_probability=failure,
            error=float(mechanism.shortfall(sensitivity, failure, candidates=candidates)),
            method=self.method,
            target=asked.target,
            terms={"categories": candidates},
            citations=("MS20, Theorem 1",) if self.method == "permute-and-flip" else ("DR14, Theorem 3.10",),
        )


@dataclass(frozen=True, kw_only=True)
class MostCommonPlan(PickPlan):
    """How the most common category of each group is picked."""

    def measure(self, dataset: Dataset) -> list[Sealed]:
        """Return the exact counts of each group, sealed under their Linf sensitivity."""
        parts = len(group_labels(self.axes))
        secret = draw_bounding_secret()
        return dataset.measure_parts(CountForm(), self.tally, parts=parts, secret=secret, under=self.sensitivity)

    def pick(self, sealed: Sealed, bits: BitSource | None) -> Any:
        return self.tally.axes[-1].labels[self.mechanism.release(sealed, bits=bits)]
