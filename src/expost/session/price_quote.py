"""What a query or a fit would cost, before buying."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypedDict

import pyarrow as pa

from expost.core import InvalidRequest, Loss, PureLoss, Receipt, Target
from expost.core.release import draw_picture
from expost.core.table_text import html_table
from expost.data import Expression
from expost.stats.table_query import By

__all__ = [
    "CurveTerms",
    "PriceCurve",
    "PriceQuote",
    "QuotedTerms",
    "describe_margin",
    "guess_bill",
    "guess_fit_bill",
    "public_fit_terms",
]


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
    noise : str, default ""
        Why the noise is Gaussian, if prices decided so.
    margin : str, default ""
        How good a model must be for its test to accept it, for a fit to a score with a known number of rows.
    supposed : str, default ""
        What a guess of one number was taken for, where it could be meant otherwise.
    filter_note : str, default ""
        Which constants of the filter are none of the public categories of their column.

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
    noise: str = field(default="", kw_only=True)
    margin: str = field(default="", kw_only=True)
    supposed: str = field(default="", kw_only=True)
    filter_note: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        guess = "no earlier receipt to guess from" if self.likely is None else f"probably about {self.likely}"
        above = f"; {self.above_cap}" if self.above_cap else ""
        note = "" if self.account_note is None else f"; {self.account_note}"
        noise = f"; {self.noise}" if self.noise else ""
        supposed = f"; {self.supposed}" if self.supposed else ""
        first = f"{self.question}: at most {self.worst_case}, {guess}{supposed}{above}{noise}{note}"
        return "\n".join(each for each in (first, self.filter_note, self.margin) if each)

    def _repr_html_(self) -> str:
        likely = "no earlier receipt to guess from" if self.likely is None else str(self.likely)
        lines = [("at most", str(self.worst_case)), ("probably about", likely)]
        lines += [
            ("note", text)
            for text in (self.supposed, self.above_cap, self.account_note, self.filter_note, self.margin)
            if text
        ]
        return html_table(("price of", self.question), lines)


@dataclass(frozen=True)
class PriceCurve:
    """The prices of one question at several accuracies.

    Parameters
    ----------
    tolerances : tuple
        The errors allowed, as they were asked for.
    quotes : tuple of PriceQuote
        The price of each.

    Examples
    --------
    >>> quotes = tuple(PriceQuote("count of rows", PureLoss(e), PureLoss(e)) for e in (0.5, 0.25))
    >>> print(PriceCurve((10, 20), quotes))
    count of rows
    within 10: at most epsilon 0.5, probably about epsilon 0.5
    within 20: at most epsilon 0.25, probably about epsilon 0.25
    """

    tolerances: tuple[Any, ...]
    quotes: tuple[PriceQuote, ...]

    def __str__(self) -> str:
        question = self.quotes[0].question
        lines = (str(quote).removeprefix(question) for quote in self.quotes)
        return "\n".join(
            [question, *(f"within {within}{line}" for within, line in zip(self.tolerances, lines, strict=True))]
        )

    def to_arrow(self) -> pa.Table:
        """Return one row per accuracy: within, definition, at most, probably (null if there is nothing to guess from)."""
        rows = [
            {
                "within": str(within),
                "definition": quote.worst_case.definition,
                "at most": _first_amount(quote.worst_case),
                "probably": None if quote.likely is None else _first_amount(quote.likely),
            }
            for within, quote in zip(self.tolerances, self.quotes, strict=True)
        ]
        return pa.Table.from_pylist(rows)

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()

    def plot(self, path: str | None = None) -> Any:
        """Draw price against accuracy.

        Parameters
        ----------
        path : str, optional
            A PNG or SVG file to write.
        """
        return draw_picture("prices", self.to_arrow().to_pylist(), title=self.quotes[0].question, path=path)


def _first_amount(loss: Loss) -> float:
    """Return epsilon, rho or the square of mu."""
    return float(next(iter(loss.amounts().values())))


class CurveTerms(TypedDict, total=False):
    """The keyword arguments of ``Session.price_curve`` besides ``within``: those of all statistics."""

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
    edges: Sequence[float] | None
    bins: int | None
    every: str | None
    weight: str | Expression | None
    weight_bounds: Sequence[float] | None
    levels: int
    method: str
    noise: str
    expect: Any


class QuotedTerms(CurveTerms, total=False):
    """The keyword arguments of ``Session.price``: those of all statistics, and of a fit. Each statistic takes some."""

    within: float | str | None
    rank_within: float | None
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


def describe_margin(estimator: Any, plan: Any, rows: Any) -> str:
    """Return how good a model must be for its test to accept it; empty where that is not known before the fit."""
    find = getattr(estimator, "find_plan_margin", None)
    if find is None and rows is not None:
        raise InvalidRequest(
            f"{type(estimator).__name__} takes no expect", do="Leave it out, or price a Classifier or Regressor"
        )
    margin = None if find is None else find(plan, rows=rows)
    return "" if margin is None else str(margin)


def public_fit_terms(estimator: Any, public_validation: Any) -> dict[str, Any]:
    """Return public rows as ``fit_with`` takes them; raise if the estimator cannot use them."""
    if public_validation is None:
        return {}
    if "public_validation" not in inspect.signature(estimator.fit_with).parameters:
        name = type(estimator).__name__
        raise InvalidRequest(f"{name} takes no public_validation", do="Leave it out, or train an SGDClassifier")
    return {"public_validation": public_validation}
