"""Several plans under one hold, released one after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, Protocol, Self

from expost.core import HoldStages, Loss, Outcome, Plan, PureGuarantee, PureLoss, Receipt, Release
from expost.core.release import add_losses
from expost.data import Dataset
from expost.noise import BitSource
from expost.stats.query_terms import QueryPlan

__all__ = ["FixedPlan", "PlanInTurn", "PlansInTurn"]


class PlanInTurn(Protocol):
    """One of several plans. ``GradualPlan`` is one, and ``FixedPlan`` makes one of any plan with a pure price."""

    @property
    def due(self) -> Fraction: ...
    @property
    def question(self) -> str: ...
    @property
    def refined_from(self) -> Fraction: ...
    @property
    def first_stage(self) -> Fraction | None: ...
    def raise_cap(self, spare: Fraction) -> PlanInTurn: ...
    def lower_due(self, most: Fraction) -> PlanInTurn: ...
    def in_stages(self, stages: HoldStages) -> PlanInTurn: ...
    def measure(self, dataset: Dataset) -> Any: ...
    def climb(self, sealed: Any, bits: BitSource | None = None) -> Release[Any]: ...


@dataclass(frozen=True)
class FixedPlan:
    """A plan whose pure price is known before the run, as one of several."""

    plan: Plan
    refined_from = Fraction(0)
    first_stage = None

    @property
    def due(self) -> Fraction:
        """Return the price."""
        return self.plan.worst_case.amounts()["epsilon"]

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return self.plan.question

    def raise_cap(self, spare: Fraction) -> FixedPlan:
        """Return the plan: it has no use for what others have left over."""
        return self

    def lower_due(self, most: Fraction) -> FixedPlan:
        """Return the plan: all of its price is reserved before it is begun."""
        return self

    def in_stages(self, stages: HoldStages) -> FixedPlan:
        """Return the plan, which has no stages."""
        return self

    def measure(self, dataset: Dataset) -> Any:
        """Measure what the plan needs."""
        return self.plan.measure(dataset)

    def climb(self, sealed: Any, bits: BitSource | None = None) -> Release[Any]:
        """Answer."""
        return self.plan.climb(sealed, bits)


@dataclass(frozen=True)
class PlansInTurn(QueryPlan):
    """Plans that are released one after the other; each may also spend what those before it have left over.

    Their bills add up (DR14, Theorem 3.16), and one hold covers all of them.
    """

    query: Any
    plans: tuple[PlanInTurn, ...]
    stages: HoldStages | None = None

    @abstractmethod
    def _join_parts(self, parts: Sequence[Release[Any]], bills: Sequence[Fraction]) -> Release[Any]:
        """Return one release of all parts."""

    @property
    def worst_case(self) -> Loss:
        """Return the sum of the worst cases."""
        return PureLoss(self._due)

    @property
    def _due(self) -> Fraction:
        return sum((plan.due for plan in self.plans), Fraction(0))

    @property
    def refined_from(self) -> Fraction:
        """Return what was paid for the releases that are continued, if only with what others may leave over."""
        paid, spare = Fraction(0), Fraction(0)
        for plan in self.plans:  # as in ``climb``, where nothing is spent
            raised = plan.raise_cap(spare)
            paid, spare = paid + raised.refined_from, raised.due
        return paid

    @property
    def first_stage(self) -> Fraction | None:
        """Return what is held at the start: enough for the pilots of all plans, and for levels given beforehand."""
        staged = any(plan.first_stage is not None for plan in self.plans)
        return sum(map(_least_held, self.plans), Fraction(0)) if staged else None

    def in_stages(self, stages: HoldStages) -> Self:
        """Return the plan that reserves its rungs as it climbs."""
        return replace(self, stages=stages)

    def measure(self, dataset: Dataset) -> list[Any]:
        """Return what each plan measures, sealed."""
        return [plan.measure(dataset) for plan in self.plans]

    def climb(self, sealed: list[Any], bits: BitSource | None = None) -> Release[Any]:
        """Release the parts; each may also spend what those before it have left over."""
        spare, parts = Fraction(0), []
        bills: list[Fraction] = []
        for number, (plan, each) in enumerate(zip(self.plans, sealed, strict=True)):
            raised = plan.raise_cap(spare)
            if self.stages is not None:
                # What the plans after this one need at least stays reserved for them.
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
        return self._join_parts(parts, bills)

    def _join_receipts(self, receipts: Sequence[Receipt], bills: Sequence[Fraction]) -> Receipt:
        """Return one receipt of all parts. Parts that missed the target are named; the rest is what was asked for."""
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
            promise=PureGuarantee(self._due),
            bill=PureLoss(sum(bills, Fraction(0))),
            outcome=first.outcome if first.target is None else outcome,
            achieved=None,
            rung=None,
            rungs=None,
            terms=terms,
            breakdown={each.question: bill for each, bill in zip(receipts, bills, strict=True)},
            paid_before=reduce(add_losses, before) if before else None,
        )


def _least_held(plan: PlanInTurn) -> Fraction:
    """Return what must be held before a plan is begun."""
    return plan.due if plan.first_stage is None else plan.first_stage
