"""What a question would cost, before buying."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from expost.core import Loss, Measure, PureLoss, Receipt, Target

__all__ = ["Price", "likely_cost"]


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
