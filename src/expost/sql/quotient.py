"""Quotients of two sums or counts as one statistic: a mean or a ratio, whose interval is narrower than one of two parts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from expost.core import InvalidRequest
from expost.data import Dataset, Expression, Kind
from expost.data.expression import ColumnName, Literal, Operation
from expost.data.sealed_form import RatioForm
from expost.sql.expression_facts import ExpressionFacts
from expost.sql.logical_plan import Aggregate, AggregateOf, Call, Constant, Formula, LogicalPlan, aggregates_in
from expost.stats import Ratio

__all__ = ["replace_quotients"]

_MOST_UNEVEN = Fraction(11, 10)  # of the sensitivities of a ratio's two sums
_ASK_WHETHER_MISSING = ("coalesce", "IS NULL")


@dataclass(frozen=True)
class _Quotient:
    """One aggregate by another, times a constant."""

    numerator: int
    denominator: int
    factor: Fraction

    @property
    def key(self) -> tuple[int, int]:
        return self.numerator, self.denominator


def replace_quotients(plan: LogicalPlan) -> LogicalPlan:
    """Return the plan with quotients as statistics of their own, where no other column needs their parts.

    A sum by a number of rows is a mean. A sum by a sum of numbers that are not negative is a ratio (docs/proofs/ratios.md).
    """
    formulas = [each.formula for each in plan.outputs] + [each[0] for each in plan.order]
    formulas += [] if plan.having is None else [plan.having]
    users: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    found: dict[tuple[int, int], Aggregate] = {}
    for part in (part for formula in formulas for part in _divide(formula)):
        if isinstance(part, AggregateOf):
            users[part.index].add((part.index,))
            continue
        users[part.numerator].add(part.key)
        users[part.denominator].add(part.key)
        made = _make_statistic(plan, *(plan.aggregates[place] for place in part.key))
        if made is not None:
            found[part.key] = made
    alone = {place for place, keys in users.items() if len(keys) == 1}
    kept = {
        key: each
        for key, each in found.items()
        if key[0] in alone and (key[1] in alone or plan.aggregates[key[1]].kind == "rows")
    }
    if not kept:
        return plan
    needed = sorted({place for place, keys in users.items() if keys - set(kept)})
    aggregates = [plan.aggregates[place] for place in needed]
    places: dict[tuple[int, ...], int] = {(place,): index for index, place in enumerate(needed)}
    for key, each in kept.items():
        same = next((index for index, known in enumerate(aggregates) if known.key == each.key), len(aggregates))
        aggregates += [each] if same == len(aggregates) else []
        places[key] = same
    return replace(
        plan,
        aggregates=tuple(aggregates),
        outputs=tuple(replace(each, formula=_rewrite(each.formula, places)) for each in plan.outputs),
        having=None if plan.having is None else _rewrite(plan.having, places),
        order=tuple((_rewrite(formula, places), falls, first) for formula, falls, first in plan.order),
    )


def _divide(formula: Formula) -> Iterator[AggregateOf | _Quotient]:
    """List the quotients of a formula, and the aggregates outside of them."""
    quotient = _read_quotient(formula)
    if isinstance(formula, Call) and formula.name in _ASK_WHETHER_MISSING:
        # A mean is never missing, but a quotient by a count that may be 0 is.
        yield from map(AggregateOf, sorted(aggregates_in(formula)))
    elif quotient is not None:
        yield quotient
    elif isinstance(formula, AggregateOf):
        yield formula
    elif isinstance(formula, Call):
        for each in formula.arguments:
            yield from _divide(each)


def _rewrite(formula: Formula, places: dict[tuple[int, ...], int]) -> Formula:
    """Return a formula with the new statistics."""
    quotient = _read_quotient(formula)
    if quotient is not None and quotient.key in places:
        statistic = AggregateOf(places[quotient.key])
        factor = Constant(float(quotient.factor))
        return statistic if quotient.factor == 1 else Call("*", (factor, statistic))
    if isinstance(formula, AggregateOf):
        return AggregateOf(places[(formula.index,)])
    if isinstance(formula, Call):
        return Call(formula.name, tuple(_rewrite(each, places) for each in formula.arguments))
    return formula


def _read_quotient(formula: Formula) -> _Quotient | None:
    """Return what a formula divides by what, or None. ``NULLIF(b, 0)`` in place of b changes nothing: b is noisy."""
    if not isinstance(formula, Call) or formula.name != "/":
        return None
    up, down = formula.arguments
    if isinstance(down, Call) and down.name == "nullif" and down.arguments[1] in (Constant(0), Constant(0.0)):
        down = down.arguments[0]
    first, second = _read_multiple(up), _read_multiple(down)
    if first is None or second is None:
        return None
    return _Quotient(first[0], second[0], first[1] / second[1])


def _read_multiple(formula: Formula) -> tuple[int, Fraction] | None:
    """Return an aggregate and its factor, or None if a formula is something else."""
    if isinstance(formula, AggregateOf):
        return formula.index, Fraction(1)
    if not isinstance(formula, Call) or formula.name not in ("*", "/"):
        return None
    first, second = formula.arguments
    if formula.name == "*" and isinstance(first, Constant):
        first, second = second, first
    value = second.value if isinstance(second, Constant) else None
    inner = _read_multiple(first)
    number = isinstance(value, int | float) and math.isfinite(value)
    if inner is None or not number or not value or isinstance(value, bool):
        return None
    return inner[0], inner[1] * Fraction(value) if formula.name == "*" else inner[1] / Fraction(value)


def _make_statistic(plan: LogicalPlan, up: Aggregate, down: Aggregate) -> Aggregate | None:
    """Return the mean or the ratio that a quotient is, or None."""
    if (up.kind, down.kind) == ("sum", "count") and up.key[1:] == down.key[1:]:
        return replace(up, kind="mean")
    # A condition of the numerator alone is inside it.
    same = repr(up.where) == repr(down.where)
    if not same and (up.where is None or down.where is not None):
        return None
    numerator = _fill(plan.dataset, up, None if same else up.where)
    if numerator is None:
        return None
    column, bounds = numerator
    if down.kind == "rows":
        return Aggregate("mean", (column,), down.where, (bounds,), place=up.place)
    denominator = _fill(plan.dataset, down, None) if (up.kind, down.kind) == ("sum", "sum") else None
    if denominator is None or not _is_even(plan.dataset, numerator, denominator):
        return None
    return Aggregate("ratio", (column, denominator[0]), down.where, (bounds, denominator[1]), place=up.place)


_Filled = tuple[Expression, tuple[float, float]]


def _fill(dataset: Dataset, aggregate: Aggregate, condition: Expression | None) -> _Filled | None:
    """Return what each row adds to a sum or a count, 0 where it adds nothing, and its limits; None if they leave out 0."""
    bounds: tuple[float, float] | None
    if aggregate.kind == "sum":
        value, bounds = aggregate.columns[0], aggregate.bounds[0]
        if bounds is None and isinstance(value, ColumnName):
            bounds = dataset.bounds.get(value.name)
        value = value.fill(0)
    elif aggregate.kind == "rows" and condition is not None:
        value, bounds = Literal(1), (0, 1)
    elif aggregate.kind == "count":
        value, bounds = Operation("CASE", (aggregate.columns[0].is_missing(), Literal(0), Literal(1))), (0, 1)
    else:
        return None
    if condition is not None:
        value = Operation("CASE", (condition, value, Literal(0)))
    try:
        kind = dataset.kind(value)
    except InvalidRequest:  # such as a sum of truths
        return None
    if bounds is None or not bounds[0] <= 0 <= bounds[1]:
        return None
    if kind is Kind.REAL and ExpressionFacts(dataset).is_whole(value):
        value = Operation("integer", (value,))
    return value, (bounds[0], bounds[1])


def _is_even(dataset: Dataset, first: _Filled, second: _Filled) -> bool:
    """Return whether a ratio gives each of its sums about as much noise as two releases with half of epsilon would.

    Then its interval is the narrower one: one radius for both noises is smaller than the sum of two, each of which fails
    with half of the probability.
    """
    try:
        query = Ratio(first[0], second[0], bounds=[first[1], second[1]], epsilon=1)
        form = query.design(dataset).form
    except InvalidRequest:
        return False
    assert isinstance(form, RatioForm)
    sizes = [times * total.row_size for times, total in zip(form.multiples, form.totals, strict=True)]
    return max(sizes) <= _MOST_UNEVEN * min(sizes)
