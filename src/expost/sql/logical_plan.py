"""The logical plan of a statement: what is asked of which rows, and how the answers become the columns of a table."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa

from expost.core.errors import WrongArguments
from expost.core.estimate import Estimate
from expost.data import Dataset, Expression, Kind
from expost.data.canonical_cell import canonical_batch
from expost.data.evaluation import evaluate_cells

__all__ = [
    "Aggregate",
    "AggregateOf",
    "Call",
    "Constant",
    "Formula",
    "GroupColumn",
    "KeyOf",
    "LogicalPlan",
    "OfKeys",
    "OutputColumn",
    "Shown",
    "aggregates_in",
    "coefficients_of",
    "evaluate_formula",
    "is_true",
]


@dataclass(frozen=True)
class Aggregate:
    """A statistic of the rows that pass a filter.

    ``kind`` is one of rows, count, units, sum, mean, variance, std, sample variance, sample std, covariance, correlation,
    quantile, mode, lower bound, upper bound and ratio; ``columns`` are what it is about, ``bounds`` their limits where the
    dataset does not declare them, ``share`` the probability of a quantile.
    """

    kind: str
    columns: tuple[Expression, ...] = ()
    where: Expression | None = None
    bounds: tuple[tuple[float, float] | None, ...] = ()
    share: Fraction | None = None
    place: int = field(default=0, compare=False)

    @property
    def key(self) -> tuple[str, ...]:
        """Return a name that is equal for equal statistics."""
        return (self.kind, repr(self.columns), repr(self.where), repr(self.bounds), str(self.share))


@dataclass(frozen=True)
class GroupColumn:
    """A column to group by, with its public values; None if they are to be found privately."""

    expression: Expression
    values: tuple[Any, ...] | None


class Formula:
    """What a column of the result is computed from."""

    __slots__ = ()


@dataclass(frozen=True)
class Constant(Formula):
    """A constant."""

    value: Any


@dataclass(frozen=True)
class KeyOf(Formula):
    """The label of a group."""

    index: int


@dataclass(frozen=True)
class OfKeys(Formula):
    """An expression of the labels of a group: column ``k0`` is the first label, ``types`` are their Arrow types.

    ``kind`` is that of its values; None if all are missing.
    """

    expression: Expression
    types: tuple[pa.DataType, ...]
    kind: Kind | None = None


@dataclass(frozen=True)
class AggregateOf(Formula):
    """The released number of an aggregate."""

    index: int


@dataclass(frozen=True)
class Call(Formula):
    """A function of other formulas."""

    name: str
    arguments: tuple[Formula, ...]


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result."""

    name: str
    formula: Formula
    place: int = field(default=0, compare=False)


@dataclass(frozen=True)
class LogicalPlan:
    """A statement without its text: source, filter, groups, statistics, and what is done with the answers."""

    dataset: Dataset
    where: Expression | None
    groups: tuple[GroupColumn, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[OutputColumn, ...]
    having: Formula | None = None
    order: tuple[tuple[Formula, bool, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    distinct: bool = False

    @property
    def public_groups(self) -> int:
        """Return the number of groups by public values. Private keys count as one: how many there are is not known."""
        return math.prod(len(each.values) for each in self.groups if each.values is not None)


@dataclass(frozen=True, slots=True)
class Shown:
    """A value with its interval, where it has one."""

    value: Any
    low: float | None = None
    high: float | None = None

    @property
    def estimate(self) -> Estimate:
        """Return the number for arithmetic; one without an interval may be anything."""
        if self.low is None or self.high is None:
            return Estimate(float(self.value), (-math.inf, math.inf))
        return Estimate(float(self.value), (self.low, self.high))


def aggregates_in(formula: Formula) -> set[int]:
    """Return the places of the aggregates of a formula."""
    if isinstance(formula, AggregateOf):
        return {formula.index}
    return {each for part in formula.arguments for each in aggregates_in(part)} if isinstance(formula, Call) else set()


def coefficients_of(formula: Formula) -> dict[int, Fraction] | None:
    """Return the factors of a linear combination of aggregates, or None if it is not one.

    >>> coefficients_of(Call("-", (Call("*", (Constant(2), AggregateOf(0))), AggregateOf(1))))
    {0: Fraction(2, 1), 1: Fraction(-1, 1)}
    """
    if isinstance(formula, AggregateOf):
        return {formula.index: Fraction(1)}
    if isinstance(formula, Constant):
        return {} if isinstance(formula.value, int | float) else None
    if not isinstance(formula, Call):
        return None
    parts = [coefficients_of(each) for each in formula.arguments]
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    if formula.name == "round":
        return None
    if formula.name in ("+", "-"):
        sign = -1 if formula.name == "-" else 1
        return {i: known[0].get(i, Fraction(0)) + sign * known[1].get(i, Fraction(0)) for i in known[0] | known[1]}
    if formula.name in ("*", "/"):
        constant = formula.arguments[1]
        inner = known[0]
        if formula.name == "*" and isinstance(formula.arguments[0], Constant):
            constant, inner = formula.arguments[0], known[1]
        if isinstance(constant, Constant) and constant.value:
            factor = Fraction(constant.value)
            return {i: each * factor if formula.name == "*" else each / factor for i, each in inner.items()}
    return None


def evaluate_formula(formula: Formula, keys: Sequence[Any], numbers: Mapping[int, Shown]) -> Shown:
    """Compute a formula for one group, with the interval that follows. A missing value makes the result missing.

    >>> evaluate_formula(Call("/", (AggregateOf(0), Constant(2))), (), {0: Shown(10, 8.0, 12.0)})
    Shown(value=5.0, low=4.0, high=6.0)
    """
    if isinstance(formula, Constant):
        number = isinstance(formula.value, int | float) and not isinstance(formula.value, bool)
        ends = (float(formula.value),) * 2 if number else (None, None)
        return Shown(formula.value, *ends)
    if isinstance(formula, KeyOf):
        return Shown(keys[formula.index])
    if isinstance(formula, OfKeys):
        return Shown(_compute_label(formula, keys))
    if isinstance(formula, AggregateOf):
        return numbers[formula.index]
    assert isinstance(formula, Call)
    parts = [evaluate_formula(each, keys, numbers) for each in formula.arguments]
    if formula.name in _LOGIC:
        return Shown(_LOGIC[formula.name]([part.value for part in parts]))
    found = _ignore_missing(formula.name, parts)
    if found is not None:
        return found
    if any(part.value is None for part in parts):
        return Shown(None)
    if formula.name == "nullif":
        return Shown(None) if parts[0].value == parts[1].value else parts[0]
    if formula.name in _COMPARED:
        return Shown(_compare(formula.name, parts[0].value, parts[1].value))
    if formula.name in _RISING:
        return _apply_rising(_RISING[formula.name], parts)
    if formula.name == "abs":
        return _absolute(parts[0])
    return _calculate(formula.name, parts[0], parts[1])


def _ignore_missing(name: str, parts: Sequence[Shown]) -> Shown | None:
    """Return the result of a function that ignores missing values, where there are some or it is COALESCE.

    What is missing in the released numbers need not be missing in the exact ones, so no interval is known then.
    """
    if name not in ("coalesce", "least", "greatest") or (name != "coalesce" and None not in [p.value for p in parts]):
        return None
    if parts[0].value is not None and name == "coalesce":
        return parts[0]
    known = [part.value for part in parts if part.value is not None]
    if not known:
        return Shown(None)
    return Shown(known[0] if name == "coalesce" or len(known) == 1 else _RISING[name](*known))


def _compute_label(formula: OfKeys, keys: Sequence[Any]) -> Any:
    """Compute an expression of the labels of a group."""
    cells = [pa.array([label], kind) for label, kind in zip(keys, formula.types, strict=True)]
    batch = pa.record_batch(cells, [f"k{place}" for place in range(len(cells))])
    (found,) = evaluate_cells(formula.expression, canonical_batch(batch)).to_pylist()
    number = isinstance(found, float) and math.isfinite(found)
    if isinstance(found, float) and not number:
        return None
    return int(found) if number and found.is_integer() else found


def is_true(formula: Formula, keys: Sequence[Any], numbers: Mapping[int, Shown]) -> bool:
    """Return whether a condition on released values is known to hold."""
    return evaluate_formula(formula, keys, numbers).value is True


def _and(values: list[Any]) -> bool | None:
    return False if False in values else None if None in values else True


def _or(values: list[Any]) -> bool | None:
    return True if True in values else None if None in values else False


def _in(values: list[Any]) -> bool | None:
    """Test membership; unknown for a missing value, or if an entry is missing."""
    if values[0] is None:
        return None
    return True if values[0] in [each for each in values[1:] if each is not None] else None if None in values else False


_LOGIC: dict[str, Callable[[list[Any]], bool | None]] = {
    "AND": _and,
    "OR": _or,
    "NOT": lambda values: None if values[0] is None else not values[0],
    "IS NULL": lambda values: values[0] is None,
    "IN": _in,
}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(name: str, left: Any, right: Any) -> bool | None:
    """Compare two values of one kind; values of different kinds are not comparable."""
    try:
        return bool(_COMPARED[name](left, right))
    except TypeError:
        return None


def _round(value: float, digits: float = 0) -> float:
    """Round halves away from zero."""
    power = 10.0 ** int(digits)
    scaled = abs(value) * power
    if not math.isfinite(scaled):
        return value
    down = math.floor(scaled)
    return math.copysign((down + (scaled - down >= 0.5)) / power, value)


def _root(value: float) -> float:
    return math.sqrt(max(value, 0.0))


_RISING: dict[str, Callable[..., float]] = {
    "round": _round,
    "floor": lambda value: value if math.isinf(value) else float(math.floor(value)),
    "ceil": lambda value: value if math.isinf(value) else float(math.ceil(value)),
    "sqrt": _root,
    "least": min,
    "greatest": max,
}
"""Functions that rise with their first argument, and with the others where these are numbers with an interval."""


def _apply_rising(function: Callable[..., float], parts: Sequence[Shown]) -> Shown:
    """Apply a rising function to the value and to both ends."""
    first, *rest = parts
    value = function(first.value, *(each.value for each in rest))
    if any(each.low is None or each.high is None for each in parts):
        return Shown(value)
    return Shown(
        value, function(first.low, *(each.low for each in rest)), function(first.high, *(each.high for each in rest))
    )


def _absolute(part: Shown) -> Shown:
    if part.low is None or part.high is None:
        return Shown(abs(part.value))
    low = 0.0 if part.low <= 0 <= part.high else min(abs(part.low), abs(part.high))
    return Shown(abs(part.value), low, max(abs(part.low), abs(part.high)))


def _calculate(name: str, left: Shown, right: Shown) -> Shown:
    """Add, subtract, multiply or divide; a division by zero is missing."""
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
    }
    try:
        found = functions[name](left.estimate, right.estimate)
    except (WrongArguments, OverflowError):
        return Shown(None)
    if not math.isfinite(found.value):
        return Shown(None)
    whole = name != "/" and all(isinstance(each.value, int) for each in (left, right))
    value = functions[name](left.value, right.value) if whole else found.value
    known = None not in (left.low, left.high, right.low, right.high)
    return Shown(value, *found.interval) if known else Shown(value)
