"""What a statement would cost: its plan, its sensitivity, the worst and the likely price. Nothing is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expost.core import Loss, PureLoss
from expost.core.table_text import html_table
from expost.data import Dataset
from expost.sql.statement_query import StatementPlan
from expost.stats.gradual_plan import GradualPlan
from expost.stats.pick import PickPlan
from expost.stats.plans_in_turn import FixedPlan
from expost.stats.private_keys import KeysFirstPlan

__all__ = ["PricedPart", "StatementPrice", "describe_unit", "price_parts"]


@dataclass(frozen=True, slots=True)
class PricedPart:
    """One release of a statement.

    Parameters
    ----------
    question : str
        What is released, in public words.
    sensitivity : str
        How far one unit can move it.
    worst_case : Loss
        The most that it can cost.
    climbs : bool
        Whether the price depends on the data, up to the worst case.

    Examples
    --------
    >>> from expost.core import PureLoss
    >>> print(PricedPart("count of rows", "1 (L1)", PureLoss(1), climbs=True))
    count of rows: at most epsilon 1, as little as reaches the accuracy; one unit moves it by at most 1 (L1)
    """

    question: str
    sensitivity: str
    worst_case: Loss
    climbs: bool

    def __str__(self) -> str:
        how = f"at most {self.worst_case}, as little as reaches the accuracy" if self.climbs else f"{self.worst_case}"
        return f"{self.question}: {how}; one unit moves it by at most {self.sensitivity}"


@dataclass(frozen=True)
class StatementPrice:
    """The price of a statement, before buying.

    Parameters
    ----------
    quote : PriceQuote
        Question, worst case and likely price.
    parts : tuple of PricedPart
        The releases of the statement, each paid once.
    unit : str
        Who is protected, and by how many rows of one unit.
    groups : int, default 1
        The number of groups by public values. Private keys count as one: how many there are is not known before they are found.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from expost import Dataset, Session
    >>> session = Session(Dataset(pa.table({"age": [30, 50]}), name="people"), budget=1)
    >>> print(session.sql_price("SELECT COUNT(*) FROM people ERROR WITHIN 10 AT MOST EPSILON 0.5"))
    SELECT COUNT(*) FROM people: at most epsilon 0.2844, probably about epsilon 0.2844
    protected: one row
    - count of rows: epsilon 0.2844; one unit moves it by at most 1 (L1)
    """

    quote: Any
    parts: tuple[PricedPart, ...]
    unit: str
    groups: int = 1

    def __str__(self) -> str:
        return "\n".join([str(self.quote), f"protected: {self.unit}", *(f"- {part}" for part in self.parts)])

    def _repr_html_(self) -> str:
        rows = [(each.question, each.sensitivity, str(each.worst_case)) for each in self.parts]
        parts = html_table(("release", "one unit moves it by at most", "at most"), rows)
        return f"{self.quote._repr_html_()}{parts}"


def price_parts(plan: Any) -> tuple[PricedPart, ...]:
    """Return the parts of a plan of a statement."""
    if isinstance(plan, KeysFirstPlan):
        keys = [
            PricedPart(each.question, f"{each.rows} (L1)", each.worst_case, climbs=False) for each in plan.key_plans
        ]
        rest = plan.stages.query.accuracy
        return (*keys, *_rest_of(plan.stages.query.parts, rest)) if keys else ()  # type: ignore[attr-defined]
    assert isinstance(plan, StatementPlan)
    return tuple(map(_price_part, plan.plans))


def _price_part(plan: Any) -> PricedPart:
    inner = plan.plan if isinstance(plan, FixedPlan) else plan
    sensitivity = "see its receipt"
    if isinstance(inner, GradualPlan):
        exact = inner.design.sensitivity
        unit = inner.design.reader.unit if inner.design.reader.linear else 1
        steps = "" if inner.design.reader.linear else " steps"
        sensitivity = f"{float(exact.amount * unit):.6g}{steps} ({exact.norm.name})"
    elif isinstance(inner, PickPlan):
        sensitivity = f"{float(inner.sensitivity.amount):.6g} ({inner.sensitivity.norm.name})"
    return PricedPart(plan.question, sensitivity, inner.worst_case, climbs=getattr(inner, "climbs", False))


def _rest_of(parts: Sequence[Any], accuracy: Any) -> list[PricedPart]:
    """Return the parts of a statement whose groups are not known yet: they share what the keys leave."""
    total = accuracy.epsilon if accuracy.epsilon is not None else accuracy.cap
    return [
        PricedPart(
            ", ".join(part.names), "its rows per unit", PureLoss(total / len(parts)), climbs=accuracy.epsilon is None
        )
        for part in parts
    ]


def describe_unit(dataset: Dataset) -> str:
    """Return who is protected, in public words."""
    limits = (
        ("rows", dataset.max_rows_per_unit),
        ("groups", dataset.max_groups_per_unit),
        ("rows in each group", dataset.max_rows_per_group),
    )
    said = [f"at most {most} {what}" for what, most in limits if most is not None]
    return str(dataset.unit) + (f", {', '.join(said)}" if said else "")
