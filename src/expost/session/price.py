"""What a question would cost, before buying."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from expost.core import InvalidRequest, Loss, Measure, PureLoss, Receipt, Request, Target

__all__ = ["Price", "last_bill", "likely_cost", "public_terms_of", "quoted"]


@dataclass(frozen=True, slots=True)
class Price:
    """The worst case of a question, and what it will probably cost given what is already public.

    >>> print(Price("count of rows", PureLoss(1), PureLoss(0.01)))
    count of rows: at most epsilon 1, probably about epsilon 0.01
    """

    question: str
    worst_case: Loss
    likely: Loss | None

    def __str__(self) -> str:
        guess = "nothing public to guess from" if self.likely is None else f"probably about {self.likely}"
        return f"{self.question}: at most {self.worst_case}, {guess}"


def likely_cost(
    worst: Loss, target: Target | None, receipts: Iterable[Receipt], *, cap: Fraction, question: str
) -> Loss | None:
    """A guess from receipts of the same question: noise, and so the tolerance, goes with one over epsilon.

    Receipts are public, so the guess is free. A question that is priced before it runs, that is below its cap, costs
    just that; with nothing to go by there is no guess.
    """
    if target is None or (
        isinstance(worst, PureLoss) and target.measure is Measure.ABSOLUTE_ERROR and worst.epsilon < cap
    ):
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
    ]
    return PureLoss(min(Fraction(guesses[-1]), worst.epsilon)) if guesses else None


_IN_THE_QUESTION = object()
"""The target of a request whose question names it, if it has one."""


class _AtTheTill(Exception):
    """A fit has said what it would pay for, and goes no further."""


def public_terms_of(estimator: Any, public_validation: Any) -> dict[str, Any]:
    """Public rows as ``fit_with`` takes them; refused where an estimator has no use for them.

    >>> public_terms_of(object(), None)
    {}
    """
    if public_validation is None:
        return {}
    if "public_validation" not in inspect.signature(estimator.fit_with).parameters:
        name = type(estimator).__name__
        raise InvalidRequest(f"Expected no public_validation for {name}", do="Leave it out, or train an SGDClassifier")
    return {"public_validation": public_validation}


def quoted(estimator: Any, dataset: Any, *, features: Sequence[str], target: str, **public: Any) -> tuple[Request, Any]:
    """Return the request that a fit would pay for and the rows it would read; reads no row."""
    found: list[tuple[Request, Any]] = []

    def till(request: Request, source: Any) -> NoReturn:
        found.append((request, source))
        raise _AtTheTill

    with suppress(_AtTheTill):
        copy.copy(estimator).fit_with(till, dataset, features=features, target=target, **public)
    return found[0]


def last_bill(request: Any, receipts: Iterable[Receipt], *, question: str) -> Loss | None:
    """A guess for a fit: what the same one cost the last time, if it is on record and within the worst case.

    One that has no target to reach and to stop at costs all of its worst case.
    """
    worst: Loss = request.worst_case
    target = getattr(request, "target", _IN_THE_QUESTION)
    if target is None:
        return worst
    bills = [
        receipt.bill
        for receipt in receipts
        if receipt.question == question and receipt.outcome.met and target in (receipt.target, _IN_THE_QUESTION)
    ]
    return bills[-1] if bills and bills[-1].definition == worst.definition and bills[-1].within(worst) else None
