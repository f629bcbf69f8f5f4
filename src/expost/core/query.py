"""The three steps of an answer: what was asked, how it will be answered, what is released."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from expost.core.hold_stages import HoldStages
from expost.core.loss import Loss
from expost.core.release import Receipt, Release

__all__ = ["Plan", "PlanContext", "Query", "RefiningPlan", "StagedPlan", "SteppedPlan"]


@dataclass(frozen=True)
class PlanContext:
    """The public facts beyond the dataset that a plan may depend on.

    ``released`` is the cache of gradual releases that earlier answers paid for; a plan may continue them and pay the
    difference. ``definitions`` are those of the accounts that will pay (``"pure"``, ``"approx"``, ``"zcdp"``, ``"gdp"``);
    a query that can be charged in several currencies chooses by them. Empty means unknown. ``budget_use`` returns the part
    of the budget that would be used after a loss (None if the accounts would refuse it); a query that can be answered with
    several kinds of noise chooses the one that leaves more.
    """

    # An argument rather than a field of the query, so that queries stay frozen, comparable values.
    released: Any = None
    definitions: frozenset[str] = field(default_factory=frozenset)
    budget_use: Callable[..., Fraction | None] | None = None


class Plan(Protocol):
    """How one query will be answered on one dataset. A frozen value made from public facts only.

    ``expost.answer.answer`` charges ``worst_case``, then calls ``measure`` and ``climb`` once each, in this order.
    """

    @property
    def question(self) -> str:
        """Return the question in public words, as printed on the receipt."""
        ...

    @property
    def worst_case(self) -> Loss:
        """Return the most that the run can cost."""
        ...

    def measure(self, dataset: Any) -> Any:
        """Compute the exact answer and return it sealed."""
        ...

    def climb(self, sealed: Any, bits: Any) -> Release[Any]:
        """Return the most private answer that reaches the target, or the best one under the cap, marked as not met."""
        ...


@runtime_checkable
class RefiningPlan(Plan, Protocol):
    """A plan that may continue a release which earlier answers paid for."""

    @property
    def refined_from(self) -> Fraction:
        """Return what was paid for the releases that are continued; the worst case is what the run adds to it.

        Sums of epsilons need only the difference. At a Renyi order the refinement is a step of its own, which can lose
        what both levels allow together (docs/proofs/refined-release.md), so the account must know both.
        """
        ...


@runtime_checkable
class StagedPlan(Plan, Protocol):
    """A plan that climbs a public ladder and may reserve its epsilon in stages."""

    @property
    def first_stage(self) -> Fraction | None:
        """Return the epsilon to hold at the start, or None if all of the worst case is needed from the start."""
        ...

    def in_stages(self, stages: HoldStages) -> Plan:
        """Return the plan that asks ``stages`` before it draws anything above what is held."""
        ...


@runtime_checkable
class SteppedPlan(Plan, Protocol):
    """A plan whose run is a sequence of steps that an account may add up one by one, such as a training."""

    @property
    def event(self) -> Any:
        """Return what may run, as an event of ``expost.accounting``."""
        ...

    def event_of(self, receipt: Receipt) -> Any:
        """Return what did run."""
        ...


class Query(Protocol):
    """What was asked. A frozen value that does not depend on the data."""

    @property
    def question(self) -> str:
        """Return the question in public words."""
        ...

    def plan(self, dataset: Any, context: PlanContext) -> Plan:
        """Fit the query to a dataset's public description.

        Reads no rows. Raises ``InvalidRequest`` if the description cannot answer the query, and ``BudgetExceeded`` if
        the price is above the caller's cap.
        """
        ...
