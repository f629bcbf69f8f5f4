"""Which way a model of a table is trained, chosen from public facts: Newton steps, moments or objective perturbation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from expost.core import InvalidRequest, PlanContext
from expost.core.rational import probability, rational
from expost.models.tabular.private_levels import LevelsFirst
from expost.models.tabular.pure_training import PureTraining
from expost.models.tabular.table_training import TableTraining

__all__ = ["METHODS", "TrainingChoice", "TrainingWay", "read_delta", "read_method"]

TrainingWay = Literal["newton", "moments", "objective"]
METHODS: dict[bool, tuple[str, ...]] = {
    True: ("auto", "newton", "objective"),
    False: ("auto", "newton", "moments", "objective"),
}
"""The values of ``method``, of a classifier and of a regressor."""
_LARGEST_DELTA, _SMALLEST_DELTA = Fraction(1, 10), Fraction(1, 10**18)
_PURE = "pure"  # the definition of an account that counts epsilon only


def read_delta(delta: Any) -> Fraction:
    """Return a delta, which may be 0.

    >>> read_delta(0), read_delta(1e-6)
    (Fraction(0, 1), Fraction(1, 1000000))
    """
    if isinstance(delta, int | float) and not isinstance(delta, bool) and delta == 0:
        return Fraction(0)
    found = probability(delta, "delta")
    if not _SMALLEST_DELTA <= found <= _LARGEST_DELTA:
        raise InvalidRequest(
            "Expected delta to be 0, or from 1e-18 to 0.1",
            got=delta,
            do="Pass one far below 1 / rows, such as 1e-9, or 0 for pure differential privacy",
        )
    return rational(found, "delta")


def read_method(method: Any, delta: Fraction, *, classifier: bool) -> str:
    """Return a method that exists for the estimator and the delta.

    >>> read_method("auto", Fraction(0), classifier=True)
    'auto'
    """
    known = METHODS[classifier]
    if not isinstance(method, str) or method not in known:
        names = ", ".join(known)
        raise InvalidRequest(f"Expected method to be one of {names}", got=method, do='Pass method="auto"')
    if method == "newton" and delta == 0:
        raise InvalidRequest(
            "Expected a positive delta for Newton steps, whose noise is Gaussian",
            got=0,
            do='Pass delta=1e-6, or method="objective"',
        )
    return method


@dataclass(frozen=True)
class TrainingChoice:
    """A training that was asked for. The way is chosen when it is known which accounts pay.

    ``build`` makes the plan of a way, with the reason for it in the receipt's terms.
    """

    question: str
    method: str
    delta: Fraction
    build: Callable[[TrainingWay, str], TableTraining | LevelsFirst | PureTraining]

    def plan(self, dataset: Any, context: PlanContext) -> TableTraining | LevelsFirst | PureTraining:
        """Return the plan of the way that public facts call for; reads no rows.

        Parameters
        ----------
        dataset : Dataset
            The table; not read.
        context : PlanContext
            The definitions of the accounts that pay.
        """
        way, reason = self.choose(context)
        plan = self.build(way, reason)
        if not isinstance(plan, LevelsFirst):  # it was checked with the largest number of levels
            plan.check()
        return plan.plan(dataset, context)

    def choose(self, context: PlanContext) -> tuple[TrainingWay, str]:
        """Return the way and the reason for it."""
        if self.method == "newton":
            return "newton", "asked for"
        if self.method == "moments":
            return "moments", "asked for"
        if self.method == "objective":
            return "objective", "asked for"
        if self.delta == 0:
            return "objective", "delta is 0"
        if _PURE in context.definitions:
            return "objective", "the budget has no delta"
        return "newton", "delta is above 0, and Gaussian noise is the smallest"
