"""What a query or a fit would cost, before buying."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypedDict

from expost.core import InvalidRequest, Loss, PureLoss, Receipt, Target
from expost.data import Expression
from expost.stats.table_query import By

__all__ = ["PriceQuote", "QuotedTerms", "guess_bill", "guess_fit_bill", "public_fit_terms"]


@dataclass(frozen=True, slots=True)
class PriceQuote:
    """The worst case of a query, and what it will probably cost given what is already public.

    Parameters
    ----------
    question : str
        The question in public words.
    worst_case : Loss
        The most that the answer can cost.
    likely : Loss or None
        A guess from earlier receipts; None if there is nothing to guess from.
    above_cap : str, default ""
        The question cap that the price is above of, in public words; empty if it is within.
    account_note : str, optional
        What the account would do, if it counts another adjacency than the query.

    Examples
    --------
    >>> print(PriceQuote("count of rows", PureLoss(1), PureLoss(0.01)))
    count of rows: at most epsilon 1, probably about epsilon 0.01
    """

    question: str
    worst_case: Loss
    likely: Loss | None
    above_cap: str = field(default="", kw_only=True)
    account_note: str | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        guess = "no earlier receipt to guess from" if self.likely is None else f"probably about {self.likely}"
        above = f"; {self.above_cap}" if self.above_cap else ""
        note = "" if self.account_note is None else f"; {self.account_note}"
        return f"{self.question}: at most {self.worst_case}, {guess}{above}{note}"


class QuotedTerms(TypedDict, total=False):
    """The keyword arguments of ``Session.price``: those of all statistics, and of a fit. Each statistic takes some."""

    within: float | str | None
    rank_within: float | None
    epsilon: float | Fraction | None
    max_epsilon: float | Fraction | None
    confidence: float | Fraction
    delta: float | Fraction
    by: By
    where: str | Expression | None
    bounds: Any
    bounds_share: float | Fraction
    keys_share: float | Fraction
    smallest: float
    largest: float
    edges: Sequence[float]
    levels: int
    method: str
    features: Sequence[str]
    target: str
    public_validation: Any


def guess_bill(
    worst: Loss, target: Target | None, receipts: Iterable[Receipt], *, climbs: bool, question: str
) -> Loss | None:
    """Guess the bill from receipts of the same question: noise, and so the tolerance, goes with one over epsilon.

    Receipts are public, so the guess is free. A query that does not climb costs exactly its worst case. Without a
    receipt that was paid for, return None.
    """
    if target is None or not climbs or worst == PureLoss(Fraction(0)):
        return worst
    if not isinstance(worst, PureLoss):
        return None
    guesses = [
        receipt.bill.epsilon * receipt.target.tolerance / target.tolerance
        for receipt in receipts
        if receipt.question == question
        and receipt.target is not None
        and receipt.target.measure is target.measure
        and receipt.outcome.met
        and isinstance(receipt.bill, PureLoss)
        and receipt.bill.epsilon > 0
    ]
    return PureLoss(min(Fraction(guesses[-1]), worst.epsilon)) if guesses else None


_NAMED_IN_QUESTION = object()
"""Stands for the target of a fit whose question names it, if it has one."""


def guess_fit_bill(plan: Any, receipts: Iterable[Receipt], *, question: str) -> Loss | None:
    """Guess the bill of a fit: what the same fit cost last time, if it is on record and within the worst case.

    A fit without a target to stop at costs all of its worst case.
    """
    worst: Loss = plan.worst_case
    target = getattr(plan, "target", _NAMED_IN_QUESTION)
    if target is None:
        return worst
    bills = [
        receipt.bill
        for receipt in receipts
        if receipt.question == question and receipt.outcome.met and target in (receipt.target, _NAMED_IN_QUESTION)
    ]
    return bills[-1] if bills and bills[-1].definition == worst.definition and bills[-1].within(worst) else None


def public_fit_terms(estimator: Any, public_validation: Any) -> dict[str, Any]:
    """Return public rows as ``fit_with`` takes them; raise if the estimator cannot use them."""
    if public_validation is None:
        return {}
    if "public_validation" not in inspect.signature(estimator.fit_with).parameters:
        name = type(estimator).__name__
        raise InvalidRequest(f"{name} takes no public_validation", do="Leave it out, or train an SGDClassifier")
    return {"public_validation": public_validation}
