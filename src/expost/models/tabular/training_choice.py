"""Which way a model of a table is trained, chosen from public facts: Newton steps, moments or objective perturbation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from expost.core import InvalidRequest, PlanContext, Target
from expost.core.rational import probability, rational
from expost.models.tabular.column_encoding import FlagColumn
from expost.models.tabular.column_selection import SelectFirst
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.private_levels import LevelsFirst
from expost.models.tabular.promise_margin import check_margin
from expost.models.tabular.pure_schedule import plan_pure_score
from expost.models.tabular.pure_training import PureTraining
from expost.models.tabular.rung_schedule import plan_score
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_training import TableTraining

__all__ = [
    "METHODS",
    "TrainingChoice",
    "TrainingPlan",
    "TrainingTerms",
    "TrainingWay",
    "plan_blank",
    "read_delta",
    "read_method",
]

TrainingWay = Literal["newton", "moments", "objective"]
TrainingPlan = TableTraining | PureTraining | LevelsFirst | SelectFirst
"""The plan of a training, with what comes before it."""
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
class TrainingTerms:
    """What a training is to reach and may spend.

    With an ``epsilon`` it has one rung, whose score is tested if there is a ``target`` too, as in an attempt of a search.
    Without one it climbs to the target, at most to ``cap``.
    """

    target: Target | None
    epsilon: Fraction | None
    cap: Fraction
    delta: Fraction
    failure_probability: Fraction

    @property
    def level(self) -> Fraction:
        """Return the most that the training may cost."""
        return self.cap if self.epsilon is None else self.epsilon


@dataclass(frozen=True)
class TrainingChoice:
    """A training that was asked for. The way is chosen when it is known which accounts pay.

    ``build`` makes the plan of a way, with the reason for it in the receipt's terms.
    """

    question: str
    method: str
    delta: Fraction
    build: Callable[[TrainingWay, str], TrainingPlan]
    climbs: bool = False
    """Whether it stops at a score, so that it is known beforehand if no test could show that."""

    def plan(self, dataset: Any, context: PlanContext) -> TrainingPlan:
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
        plan.check()
        planned = plan.plan(dataset, context)
        if self.climbs:
            check_margin(planned)
        return planned

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


def plan_blank(
    given: TrainingTerms, method: str, *, classifier: bool, target_bounds: tuple[float, float], rows_per_unit: int = 1
) -> TableTraining | PureTraining:
    """Return the training to a score of a table with one flag, for what does not depend on the columns."""
    common: dict[str, Any] = {
        "question": "a training",
        "read": tuple,
        "classes": 2 if classifier else None,
        "target": given.target,
        "target_bounds": target_bounds,
        "rows_per_unit": rows_per_unit,
        "failure_probability": given.failure_probability,
    }

    def build(way: TrainingWay, reason: str) -> TrainingPlan:
        if way == "newton":
            schedule = plan_score(given.cap, given.delta, numeric=not classifier)
            return TableTraining(schedule=schedule, width=1, squared_length=1.0, **common)
        moments, shape = way == "moments", EncodedShape.of(TableEncoder((FlagColumn("flag"),)))
        pure = plan_pure_score(given.cap, classes=classifier, refines=moments)
        return PureTraining(schedule=pure, shape=shape, moments=moments, **common)

    choice = TrainingChoice("a training", method, given.delta, build)
    plan = choice.build(*choice.choose(PlanContext()))
    assert isinstance(plan, TableTraining | PureTraining)
    return plan
