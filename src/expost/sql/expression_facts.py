"""What is public about an expression of a dataset: its kind, the limits of its values, and a list of them."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa

from expost.core import InvalidRequest
from expost.data import Dataset, Expression, Kind
from expost.data.canonical_cell import canonical_batch
from expost.data.evaluation import evaluate_cells
from expost.data.expression import ColumnName, Literal, Operation, Plain, col

__all__ = ["LARGEST", "ExpressionFacts"]

Ends = tuple[Fraction, Fraction]

LARGEST = Fraction(sys.float_info.max)
"""The largest limit of values: floats hold no larger ones."""
_MOST_VALUES = 1000  # of a bounded whole number that can be grouped by without a list
_BEYOND = Fraction(1, 10**9)  # as a part of a limit: what float arithmetic may be off
_WHOLE = frozenset({"+", "-", "*", "%", "abs", "least", "greatest", "coalesce", "CASE"})
_OF_TEXTS = frozenset({"length", "number", "integer"})
_ROUNDED = frozenset({"floor", "ceil", "integer"})


@dataclass(frozen=True)
class ExpressionFacts:
    """Public facts about expressions of one dataset.

    ``bounds`` are limits of columns that the dataset does not declare, such as those of new columns.

    >>> import pyarrow as pa
    >>> from expost.data import col
    >>> facts = ExpressionFacts(Dataset(pa.table({"age": [41, 17]}), bounds={"age": (0, 120)}))
    >>> facts.limits(100 - 2 * col("age")), facts.is_whole(col("age") * 2), facts.values((col("age") / 50).floor())
    ((Fraction(-140, 1), Fraction(100, 1)), True, (0, 1, 2))
    """

    dataset: Dataset
    bounds: Mapping[str, Any] = field(default_factory=dict)

    def kind(self, expression: Expression) -> Kind | None:
        """Return the kind of an expression, or raise if its parts do not fit together."""
        return self.dataset.kind(expression)

    def is_whole(self, expression: Expression) -> bool:
        """Return whether all values of an expression are whole numbers."""
        if isinstance(expression, Literal):
            return isinstance(expression.value, int) or expression.value is None
        if isinstance(expression, Operation):
            if expression.name in _ROUNDED:
                return True
            if expression.name in _WHOLE:
                values = expression.arguments
                if expression.name == "CASE":
                    values = (*values[1:-1:2], values[-1])
                return all(map(self.is_whole, values))
        return self.kind(expression) in (Kind.INTEGER, Kind.BOOLEAN)

    def limits(self, expression: Expression) -> Ends | None:
        """Return public limits of an expression's values by interval arithmetic, or None if there are none.

        Limits that floats do not hold count as none: arithmetic that passes them is missing.
        """
        found = self._find_limits(expression)
        return None if found is None or max(map(abs, found)) > LARGEST else found

    def _find_limits(self, expression: Expression) -> Ends | None:
        if isinstance(expression, Literal):
            value = expression.value
            return None if not isinstance(value, int | float) else (Fraction(value),) * 2
        if isinstance(expression, ColumnName):
            declared = self.bounds.get(expression.name, self.dataset.bounds.get(expression.name))
            if declared is not None:
                return _ordered(declared)
        kind = self.kind(expression)
        if kind is Kind.BOOLEAN:
            return Fraction(0), Fraction(1)
        if kind is None or not kind.is_number:
            return None
        known = [each for each in self._values_known(expression) or () if isinstance(each, int | float)]
        if known:
            return Fraction(min(known)), Fraction(max(known))
        found = self._operation_limits(expression) if isinstance(expression, Operation) else None
        if found is None and isinstance(expression, Operation) and expression.name in _OF_TEXTS:
            values: Any = self._values_computed(expression)
            found = (Fraction(min(values)), Fraction(max(values))) if values else None
        return found

    def _operation_limits(self, expression: Operation) -> Ends | None:
        name, arguments = expression.name, expression.arguments
        if name == "CASE":
            arguments = (*arguments[1:-1:2], arguments[-1])
        if name in ("CASE", "coalesce"):
            given = [each for each in arguments if not _is_null(each)]
            ends = [self.limits(each) for each in given]
            known = [each for each in ends if each is not None]
            return (min(a for a, _ in known), max(b for _, b in known)) if known and len(known) == len(ends) else None
        found = [self.limits(each) for each in arguments if not (name == "round" and each is not arguments[0])]
        if name in ("least", "greatest"):
            return _limit_choice(name, arguments, found)
        bounded = [each for each in found if each is not None]
        if len(bounded) < len(found):
            return None
        if name in ("+", "-", "*", "/", "%"):
            return _combine(name, bounded[0], bounded[1])
        if name == "abs":
            low, high = bounded[0]
            return max(low, -high, Fraction(0)), max(abs(low), abs(high))
        if name in ("floor", "ceil", "round", "integer"):
            return _round_ends(name, bounded[0]) if len(arguments) == 1 else bounded[0]
        return bounded[0] if name == "number" else None

    def values(self, expression: Expression) -> tuple[Plain, ...] | None:
        """Return the public values by which an expression can be grouped, or None if they are not known."""
        try:
            return tuple(self.dataset.axis(expression).values)
        except InvalidRequest:
            found = self._values_listed(expression)
        return self._values_computed(expression) if found is None else found

    def _values_computed(self, expression: Expression) -> tuple[Plain, ...] | None:
        """Compute an expression of columns with public values on all of these, and on missing ones."""
        names = sorted(expression.columns())
        if isinstance(expression, ColumnName) or not names:
            return None
        domains = [self.values(col(name)) for name in names]
        known = [(*domain, None) for domain in domains if domain is not None]
        if len(known) < len(names) or math.prod(map(len, known)) > _MOST_VALUES:
            return None
        rows = list(itertools.product(*known))
        try:
            columns = {
                name: pa.array([row[place] for row in rows], self.dataset.key_type(col(name)))
                for place, name in enumerate(names)
            }
        except (pa.ArrowException, OverflowError):  # public values that no row can have
            return None
        cells = evaluate_cells(expression, canonical_batch(pa.record_batch(columns))).to_pylist()
        found = {each for each in cells if each is not None and each == each}
        return tuple(sorted(found)) or None

    def _values_known(self, expression: Expression) -> tuple[Plain, ...] | None:
        """Return the values that follow from categories and constants."""
        return self.dataset.known_values(expression)

    def _values_listed(self, expression: Expression) -> tuple[Plain, ...] | None:
        """List the whole numbers between limits, and their multiples."""
        if isinstance(expression, Operation) and expression.name in ("+", "-", "*"):
            first, second = expression.arguments
            constant = next((each for each in (first, second) if isinstance(each, Literal)), None)
            listed = self._values_listed(second if constant is first else first)
            if constant is None or listed is None or not isinstance(constant.value, int | float):
                return None
            other: Any = constant.value
            forms = {"+": lambda value: value + other, "*": lambda value: value * other}
            swapped = constant is first
            forms["-"] = (lambda value: other - value) if swapped else (lambda value: value - other)
            return tuple(sorted({forms[expression.name](value) for value in listed}))
        limits = self.limits(expression)
        if limits is None or not self.is_whole(expression):
            return None
        low, high = math.floor(limits[0]), math.ceil(limits[1])
        return tuple(range(low, high + 1)) if high - low < _MOST_VALUES else None


def _is_null(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is None


def _ordered(pair: Any) -> Ends | None:
    """Return declared bounds as exact numbers."""
    try:
        return Fraction(pair[0]), Fraction(pair[1])
    except (TypeError, ValueError, OverflowError):
        return None


def _limit_choice(name: str, arguments: tuple[Expression, ...], found: list[Ends | None]) -> Ends | None:
    """Return the limits of a least or greatest value.

    A missing value is ignored, so every argument may be the result; but a constant is never missing, and limits one side.
    """
    constants = [ends for each, ends in zip(arguments, found, strict=True) if isinstance(each, Literal) and ends]
    pick, other, side = (min, max, 1) if name == "least" else (max, min, 0)
    if constants:
        limit = pick(ends[side] for ends in constants)
        inner = [each for each in arguments if not isinstance(each, Literal)]
        nested = inner[0] if len(inner) == 1 else None
        if isinstance(nested, Operation) and nested.name == ("greatest" if name == "least" else "least"):
            # least(greatest(x, 0), 10): the other side is that of the inner constant, whatever x is.
            ends = [
                Fraction(each.value)
                for each in nested.arguments
                if isinstance(each, Literal) and isinstance(each.value, int | float)
            ]
            if ends:
                return _sorted_ends(limit, pick(limit, other(ends)))
    if any(each is None for each in found):
        return None
    known = [each for each in found if each is not None]
    beyond = pick(ends[1 - side] for ends in known)
    reached = limit if constants else other(ends[side] for ends in known)
    return _sorted_ends(beyond, reached)


def _round_ends(name: str, ends: Ends) -> Ends:
    """Return the limits of rounded values. Floats may pass a limit that is not whole by their last bits, so it is widened."""
    wide = [
        end if end.denominator == 1 else end + sign * _BEYOND * max(abs(end), Fraction(1))
        for end, sign in zip(ends, (-1, 1), strict=True)
    ]
    down, up = (math.ceil if name == "ceil" else math.floor), (math.floor if name == "floor" else math.ceil)
    return Fraction(down(wide[0])), Fraction(up(wide[1]))


def _sorted_ends(first: Fraction, second: Fraction) -> Ends:
    return min(first, second), max(first, second)


def _combine(name: str, left: Ends, right: Ends) -> Ends | None:
    """Return the limits of a sum, difference, product, quotient or remainder."""
    if name == "+":
        return left[0] + right[0], left[1] + right[1]
    if name == "-":
        return left[0] - right[1], left[1] - right[0]
    if name == "%":
        size = max(abs(right[0]), abs(right[1]))
        return (Fraction(0) if left[0] >= 0 else -size), (Fraction(0) if left[1] <= 0 else size)
    if name == "/":
        if right[0] <= 0 <= right[1]:
            return None
        right = (1 / right[1], 1 / right[0])
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)
