"""Mean and spread of several columns, from one release per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    HoldStages,
    InvalidRequest,
    Loss,
    Outcome,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
)
from expost.core.rational import probability, rational
from expost.core.release import add_losses
from expost.data import Dataset
from expost.data.sealed_form import SquareForm
from expost.data.tally import Measured
from expost.noise import BitSource
from expost.stats.column_statistic import ColumnQuery
from expost.stats.gradual_plan import Design, GradualPlan, release_entries
from expost.stats.gradual_release import ClimbResult
from expost.stats.query_terms import Column, QueryPlan, statistic
from expost.stats.reader import CellReading, ClippedReader, DeviationReader, SquareMeanReader
from expost.stats.table_query import TableQuery
from expost.stats.table_release import GroupRelease, Groups

__all__ = ["Summary"]

_STATISTICS = ("mean", "standard deviation")


@statistic
class Summary(TableQuery):
    """Mean and standard deviation of several columns, in all or in each group; each column pays once for both.

    The columns' bills add up; each may cost an even part of the cap and what those before it have left over. Sums,
    means and variances asked for later are read off the same releases for free where these are accurate enough.

    Guarantee: pure ex-post DP; the sum of the columns' bills, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: as ``Variance``, for each column.
    Accuracy: intervals cover mean and deviation of a column (in all groups) at once; the failure probability is split
        over columns.
    Numerics: as ``Variance``.
    Reference: DR14, Theorem 3.16 (composition); docs/proofs/shares.md (three shares, intervals).

    Parameters
    ----------
    columns : sequence of str or Expression
        The numeric columns.
    bounds : mapping from str to (float, float), optional
        The limits to which columns are clipped, in their units. Default: those declared for the columns.

    Examples
    --------
    >>> Summary(["age", "income"], within="5%", max_epsilon=1).question
    'summary of age, income'
    """

    columns: Sequence[Column]
    bounds: Mapping[str, Sequence[float]] | None = field(default=None, kw_only=True)
    parts: tuple[ColumnQuery, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence) or not self.columns:
            raise InvalidRequest("Expected a list of columns", got=self.columns, do='Pass ["age", "income"]')
        if self.bounds is not None and not isinstance(self.bounds, Mapping):
            raise InvalidRequest("Expected bounds by column", got=self.bounds, do='Pass {"age": (0, 120)}')
        if self.bounds is not None and any(isinstance(each, str) for each in self.bounds.values()):
            raise InvalidRequest("A summary cannot find bounds privately", do="Ask for bounds first, then pass them")
        super().__post_init__()
        share, bounds = len(self.columns), self.bounds or {}
        parts = [
            _ColumnSummary(
                column,
                within=self.within,
                epsilon=None if self.epsilon is None else rational(self.epsilon, "epsilon") / share,
                confidence=1 - (1 - probability(self.confidence, "confidence")) / share,
                max_epsilon=None if self.max_epsilon is None else rational(self.max_epsilon, "max_epsilon") / share,
                where=self.where,
                by=self.by,
                bounds=bounds.get(str(column)),
            )
            for column in self.columns
        ]
        object.__setattr__(self, "parts", tuple(parts))

    @property
    def subject(self) -> str:
        return f"summary of {', '.join(map(str, self.columns))}"

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> SummaryPlan:
        """Plan every column."""
        plans = (part._plan_public(dataset, context) for part in self.parts)  # of spreads, so gradual ones
        return SummaryPlan(self, tuple(plan for plan in plans if isinstance(plan, GradualPlan)))


@dataclass(frozen=True)
class SummaryPlan(QueryPlan):
    """How the columns of a summary are released, one after the other."""

    query: Summary
    plans: tuple[GradualPlan, ...]
    stages: HoldStages | None = None

    @property
    def worst_case(self) -> Loss:
        """Return the sum of the columns' worst cases."""
        return PureLoss(sum((plan.due for plan in self.plans), Fraction(0)))

    @property
    def refined_from(self) -> Fraction:
        """Return what was paid for the releases that the columns continue, if only with what others may leave over."""
        paid, spare = Fraction(0), Fraction(0)
        for plan in self.plans:  # as in ``climb``, where nothing is spent
            raised = plan.raise_cap(spare)
            paid, spare = paid + raised.refined_from, raised.due
        return paid

    @property
    def first_stage(self) -> Fraction | None:
        """Return what is held at the start: enough for the pilots of all columns, and for levels given beforehand."""
        staged = any(plan.first_stage is not None for plan in self.plans)
        return sum(map(_least_held, self.plans), Fraction(0)) if staged else None

    def in_stages(self, stages: HoldStages) -> SummaryPlan:
        """Return the plan that reserves its rungs as it climbs."""
        return replace(self, stages=stages)

    def measure(self, dataset: Dataset) -> list[Any]:
        """Return one sealed vector per column."""
        return [plan.measure(dataset) for plan in self.plans]

    def climb(self, sealed: list[Any], bits: BitSource | None = None) -> Release[Groups]:
        """Release the columns; each may also spend what those before it have left over."""
        spare, parts = Fraction(0), []
        bills: list[Fraction] = []
        for number, (plan, each) in enumerate(zip(self.plans, sealed, strict=True)):
            raised = plan.raise_cap(spare)
            if self.stages is not None:
                # What the columns after this one need at least stays reserved for them.
                later = sum(map(_least_held, self.plans[number + 1 :]), Fraction(0))
                stages = self.stages.after(sum(bills, Fraction(0)) + later)
                held = stages.held_after(_least_held(raised))
                if held < _least_held(raised):  # only what others left over is missing: its own part is reserved
                    raised = raised.lower_due(held)
                elif raised.first_stage is not None:
                    raised = raised.in_stages(stages)
            part = raised.climb(each, bits)
            bills.append(part.receipt.bill.amounts()["epsilon"])
            spare = raised.due - bills[-1]
            parts.append(part)
        rows = tuple(row for part in parts for row in part.value.rows)
        receipt = self._join_receipts([part.receipt for part in parts], bills)
        return GroupRelease(Groups(parts[0].value.columns, rows), receipt)

    def _join_receipts(self, receipts: Sequence[Receipt], bills: Sequence[Fraction]) -> Receipt:
        first = receipts[0]
        terms: dict[str, Any] = dict(first.terms)
        terms.pop("groups not met", None)
        terms["bounds"] = {name: ends for each in receipts for name, ends in each.terms.get("bounds", {}).items()}
        missed = [each.question for each in receipts if not each.outcome.met]
        if missed:
            terms["not met"] = missed
        groups = {each.question: each.terms["groups not met"] for each in receipts if "groups not met" in each.terms}
        if groups:
            terms["groups not met"] = groups
        before = [each.paid_before for each in receipts if each.paid_before is not None]
        outcome = Outcome.CERTIFIED if len(missed) < len(receipts) else Outcome.NOT_MET
        return replace(
            first,
            question=self.question,
            promise=PureGuarantee(sum((plan.due for plan in self.plans), Fraction(0))),
            bill=PureLoss(sum(bills, Fraction(0))),
            outcome=first.outcome if first.target is None else outcome,
            achieved=None,
            rung=None,
            rungs=None,
            terms=terms,
            breakdown={each.question: bill for each, bill in zip(receipts, bills, strict=True)},
            paid_before=reduce(add_losses, before) if before else None,
        )


def _least_held(plan: GradualPlan) -> Fraction:
    """Return what must be held before a column is begun."""
    return plan.due if plan.first_stage is None else plan.first_stage


@statistic
class _ColumnSummary(ColumnQuery):
    """Mean and standard deviation of one column."""

    @property
    def subject(self) -> str:
        return f"summary of {self.column}"

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        clamp = measured.clamp
        return self.fit_design(dataset, SquareForm(clamp), _MeanAndDeviationReader(clamp), measured=[measured])

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        entries = [(str(self.column), name) for name in _STATISTICS]
        return release_entries(design, result, receipt, ("column", "statistic"), entries)


@dataclass(frozen=True)
class _MeanAndDeviationReader(ClippedReader):
    """Reads mean and standard deviation off the same three shares, one after the other."""

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        # Both rest on the event that all three noises are within one radius, so they hold together.
        both = [reader(self.clamp).read(noisy, scale, level) for reader in (SquareMeanReader, DeviationReader)]
        numbers = zip(*((each.value, each.low, each.high) for each in both), strict=True)
        return CellReading(*(np.stack(each, axis=1).ravel() for each in numbers))
