"""What a caller allows a session to use: a number of answers, or a privacy budget."""

from __future__ import annotations

from expost.core import BudgetExceeded, Guarantee, InvalidRequest, PureGuarantee
from expost.holdout.plan import HoldoutPlan, Variant, largest, plan_holdout

__all__ = ["Budget", "budgeted_plan"]

Budget = int | Guarantee | None
"""A number of answers from the holdout, a pure privacy budget, or as much as the tolerance allows."""


def budgeted_plan(
    rows: int,
    *,
    tolerance: object,
    failure_probability: object,
    max_queries: int,
    budget: Budget,
    variant: Variant,
) -> HoldoutPlan:
    """The plan with as many answers from the holdout as the budget and the tolerance allow.

    >>> from expost.core import epsilon
    >>> terms = {"tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100, "variant": "improved"}
    >>> budgeted_plan(50_000, budget=epsilon(1), **terms).max_hits, budgeted_plan(50_000, budget=2, **terms).max_hits
    (15, 2)
    """
    hits = budget if isinstance(budget, int) and not isinstance(budget, bool) else None
    if budget is not None and hits is None and not isinstance(budget, PureGuarantee):
        raise InvalidRequest(
            "Expected budget to be a number of answers or a pure privacy budget", do="Pass 10, or expost.epsilon(1)"
        )
    if hits is not None and hits < 1:
        raise InvalidRequest("Expected a budget of at least one answer", got=budget, do="Pass 10, or expost.epsilon(1)")
    plan = plan_holdout(
        rows,
        tolerance=tolerance,
        failure_probability=failure_probability,
        max_queries=max_queries,
        max_hits=hits,
        variant=variant,
    )
    return _within(plan, budget) if isinstance(budget, PureGuarantee) else plan


def _within(plan: HoldoutPlan, budget: PureGuarantee) -> HoldoutPlan:
    """The plan with as many answers as a privacy budget pays for."""

    def smaller(hits: int) -> HoldoutPlan:
        return plan_holdout(
            plan.rows,
            tolerance=plan.tolerance,
            failure_probability=plan.failure_probability,
            max_queries=plan.max_queries,
            max_hits=hits,
            variant=plan.variant,
        )

    hits = largest(lambda count: smaller(count).guarantee.epsilon <= budget.epsilon, 1, plan.max_hits)
    if hits == 0:
        raise BudgetExceeded(
            "Expected a budget that pays for one answer from the holdout",
            got=budget.epsilon,
            do="Raise the budget or the tolerance, or bring more rows",
        )
    return smaller(hits)
