"""Expressions of a row: from the syntax tree of SQL to the expressions of the data layer, which cannot fail on a row.

Only what means the same in both is translated. Whatever would differ is refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sqlglot import exp

from expost.data import Expression, Kind
from expost.data.expression import Literal, Operation
from expost.sql.expression_facts import ExpressionFacts
from expost.sql.refusal import Node, SourceText, check_arguments
from expost.sql.time_expression import add_interval, as_moment, read_cast, read_time

__all__ = ["RowReader"]

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_EXACT: dict[Any, Callable[[Fraction, Fraction], Fraction]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_DECIMAL = re.compile(r"\d{1,18}(\.\d{0,18})?|\.\d{1,18}", re.ASCII)
_UNARY = {
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
    exp.Abs: "abs",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
}
_NEAREST = "See docs/sql.md for the functions of rows"


@dataclass(frozen=True)
class RowReader:
    """Translates expressions of the rows of one relation.

    ``find`` returns the expression that a column of the statement stands for, ``find_aggregate`` that of an aggregate of
    a person's rows, where there can be one. ``matches`` are what the subqueries of EXISTS and IN stand for, by their id().
    """

    source: SourceText
    facts: ExpressionFacts
    find: Callable[[exp.Column], Expression]
    find_aggregate: Callable[[Node], Expression] | None = None
    matches: Mapping[int, Expression] = field(default_factory=dict)

    def read(self, node: Node) -> Expression:
        """Translate one expression, or refuse it."""
        kind = type(node)
        if id(node) in self.matches:
            return self.matches[id(node)]
        with self.source.point_at(node):
            if isinstance(node, exp.Column):
                return self.find(node)
            if isinstance(node, exp.Paren):
                return self.read(node.this)
            if isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.Neg):
                return self._read_constant(node)
            if kind in _COMPARISONS:
                return self._read_comparison(node, _COMPARISONS[kind])
            if kind in _ARITHMETIC or isinstance(node, exp.Div | exp.IntDiv):
                return self._read_arithmetic(node)
            found = self._read_logic(node)
            if found is None:
                found = self._read_function(node)
            if found is not None:
                return found
            if isinstance(node, exp.AggFunc | exp.Filter) and self.find_aggregate is not None:
                return self.find_aggregate(node)
            if isinstance(node, exp.AggFunc | exp.Filter):
                self.source.refuse(node, "no aggregate inside the expression of a row", do="Put it into a subquery")
            if isinstance(node, exp.Subquery | exp.Query | exp.Exists):
                self.source.refuse(
                    node,
                    "no subquery here",
                    do="Put EXISTS (SELECT ... WHERE u.id = t.id) into WHERE, or join: FROM t JOIN u USING (id)",
                )
            self.source.refuse_function(node, "a function or operator of the subset", do=_NEAREST)

    def read_condition(self, node: Node) -> Expression:
        """Translate a condition; a number in its place is refused."""
        found = self.read(node)
        with self.source.point_at(node):
            if self.facts.kind(found) not in (Kind.BOOLEAN, None):
                self.source.refuse(node, "a condition", do="Compare something, such as age >= 18")
        return found

    def checked(self, node: Node, expression: Expression) -> Expression:
        """Return an expression whose parts fit together, or point at it."""
        with self.source.point_at(node):
            self.facts.kind(expression)
        return expression

    # Constants, comparisons, arithmetic --------------------------------------------------------------------------

    def _read_constant(self, node: Node) -> Expression:
        if isinstance(node, exp.Null):
            return Literal(None)
        if isinstance(node, exp.Boolean):
            return Literal(bool(node.this))
        if isinstance(node, exp.Neg):
            inner = self.read(node.this)
            if (
                isinstance(inner, Literal)
                and isinstance(inner.value, int | float)
                and not isinstance(inner.value, bool)
            ):
                return Literal(-inner.value)
            return self.checked(node, -inner)
        if node.is_string:
            return Literal(str(node.this))
        text = str(node.this)
        whole = text.isascii() and text.isdigit() and len(text) <= 400
        try:
            return Literal(int(text) if whole else float(text))
        except ValueError:
            self.source.refuse(node, "a number that 64-bit floats hold", got=text, do="Write 0.5 or 1e6")

    def _read_comparison(self, node: Node, sign: str) -> Expression:
        check_arguments(self.source, node, "this", "expression")
        left, right = self._align(self.read(node.this), self.read(node.expression))
        return self.checked(node, Operation(sign, (left, right)))

    def _read_distinction(self, node: Node) -> Expression:
        """Read IS [NOT] DISTINCT FROM, which is never unknown."""
        left, right = self._align(self.read(node.this), self.read(node.expression))
        equal = Operation("coalesce", (Operation("=", (left, right)), Literal(False)))
        same = equal | (left.is_missing() & right.is_missing())
        return self.checked(node, same if isinstance(node, exp.NullSafeEQ) else ~same)

    def _align(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """Read a text constant that is compared with a time as a time."""
        return self._as_time(left, beside=right), self._as_time(right, beside=left)

    def _as_time(self, value: Expression, *, beside: Expression) -> Expression:
        if (
            not isinstance(value, Literal)
            or not isinstance(value.value, str)
            or self.facts.kind(beside) is not Kind.TIME
        ):
            return value
        moment = as_moment(value, self.source.dialect)
        return value if moment is None else moment

    def _read_arithmetic(self, node: Node) -> Expression:
        check_arguments(self.source, node, "this", "expression", "typed", "safe")
        if isinstance(node, exp.IntDiv):
            self.source.refuse(node, "no whole division, which differs between dialects", do="Write FLOOR(a / b)")
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if isinstance(other, exp.Interval):
                if isinstance(node, exp.Sub | exp.Add) and (other is node.expression or isinstance(node, exp.Add)):
                    sign = -1 if isinstance(node, exp.Sub) else 1
                    return add_interval(self.source, node, self.read(one), other, sign)
                self.source.refuse(node, "an interval after a time", do="Write DATE '2024-01-31' - INTERVAL 30 DAY")
        exact = _decimal_of(node)
        if exact is not None:
            return Literal(int(exact) if exact.denominator == 1 else float(exact))
        left, right = self.read(node.this), self.read(node.expression)
        if isinstance(node, exp.Div | exp.Mod) and self.source.dialect != "spark" and self._may_be_zero(right):
            self.source.refuse(
                node.expression,
                "a divisor that is never 0: what a division by 0 gives differs between dialects",
                do="Write a / NULLIF(b, 0)",
            )
        if isinstance(node, exp.Div):
            if node.args.get("typed") and self.facts.is_whole(left) and self.facts.is_whole(right):
                self.source.refuse(
                    node,
                    "a division of numbers with a fraction: this dialect cuts that of two whole numbers",
                    do="Write CAST(a AS DOUBLE PRECISION) / b, or FLOOR(a / b)",
                )
            return self.checked(node, Operation("/", (left, right)))
        for side in (left, right):
            if self.facts.kind(side) is Kind.TIME:
                self.source.refuse(node, "no arithmetic with times", do="Compare them, or take parts: YEAR(t)")
        return self.checked(node, Operation(_ARITHMETIC[type(node)], (left, right)))

    def _may_be_zero(self, divisor: Expression) -> bool:
        """Return whether a divisor can be zero, as far as public facts tell."""
        if isinstance(divisor, Operation) and divisor.name == "CASE":
            *branches, default = divisor.arguments
            excluded = repr(Operation("=", (default, Literal(0))))
            null_if = len(branches) == 2 and repr(branches[0]) == excluded
            others = [each for each in branches[1::2] if not (isinstance(each, Literal) and each.value is None)]
            return any(map(self._may_be_zero, others)) or (not null_if and self._may_be_zero(default))
        limits = self.facts.limits(divisor)
        return limits is None or limits[0] <= 0 <= limits[1]

    # Logic ---------------------------------------------------------------------------------------------------------

    def _read_logic(self, node: Node) -> Expression | None:
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            return self._read_distinction(node)
        if isinstance(node, exp.And | exp.Or):
            check_arguments(self.source, node, "this", "expression")
            both = self.read_condition(node.this), self.read_condition(node.expression)
            return both[0] & both[1] if isinstance(node, exp.And) else both[0] | both[1]
        if isinstance(node, exp.Not):
            return ~self.read_condition(node.this)
        if isinstance(node, exp.Is):
            check_arguments(self.source, node, "this", "expression")
            value, wanted = self.read(node.this), node.expression
            if isinstance(wanted, exp.Null):
                return value.is_missing()
            if isinstance(wanted, exp.Boolean) and self.facts.kind(value) is Kind.BOOLEAN:
                return Operation("coalesce", (value if wanted.this else ~value, Literal(False)))
            self.source.refuse(node, "IS NULL, IS TRUE or IS FALSE", do="Compare with = instead")
        if isinstance(node, exp.In):
            return self._read_in(node)
        if isinstance(node, exp.Between):
            check_arguments(self.source, node, "this", "low", "high")
            value = self.read(node.this)
            low, high = (self._as_time(self.read(node.args[end]), beside=value) for end in ("low", "high"))
            return self.checked(node, value.between(low, high))
        if isinstance(node, exp.Like | exp.ILike | exp.Escape):
            return self._read_like(node)
        if isinstance(node, exp.Case):
            return self._read_case(node)
        return None

    def _read_in(self, node: exp.In) -> Expression:
        if not node.expressions or node.args.get("query"):
            self.source.refuse(
                node,
                "a list of constants after IN",
                do="Put id IN (SELECT id FROM u) into WHERE, or join: FROM t JOIN u USING (id)",
            )
        check_arguments(self.source, node, "this", "expressions")
        value = self.read(node.this)
        listed = [self._as_time(self.read(each), beside=value) for each in node.expressions]
        for each, written in zip(listed, node.expressions, strict=True):
            if not isinstance(each, Literal):
                self.source.refuse(written, "constants in the list", do="Write a = b OR a = c")
        return self.checked(node, Operation("IN", (value, *listed)))

    def _read_like(self, node: Node) -> Expression:
        escape = ""
        if isinstance(node, exp.Escape):
            escape, inner = str(node.expression.this), node.this
            if not isinstance(inner, exp.Like | exp.ILike) or not node.expression.is_string:
                self.source.refuse(node, "LIKE before ESCAPE and one sign in quotes after it", do="Write ESCAPE '!'")
            node = inner
        elif self.source.dialect != "duckdb":
            escape = "\\"
        check_arguments(self.source, node, "this", "expression", "negate")
        value, pattern = self.read(node.this), self.read(node.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            self.source.refuse(node.expression, "a pattern in quotes", do="Write LIKE 'A%'")
        if escape and escape in pattern.value:
            self.source.refuse(node.expression, "a pattern without escaped signs", do="Use _ for any one sign")
        found = value.like(pattern.value) if isinstance(node, exp.Like) else value.ilike(pattern.value)
        return self.checked(node, ~found if node.args.get("negate") else found)

    def _read_case(self, node: exp.Case) -> Expression:
        check_arguments(self.source, node, "this", "ifs", "default")
        parts: list[Expression] = []
        for branch in node.args["ifs"]:
            if node.this is None:
                condition = self.read_condition(branch.this)
            else:
                left, right = self._align(self.read(node.this), self.read(branch.this))
                condition = self.checked(branch, Operation("=", (left, right)))
            parts += [condition, self.read(branch.args["true"])]
        default = node.args.get("default")
        parts.append(Literal(None) if default is None else self.read(default))
        return self.checked(node, Operation("CASE", tuple(parts)))

    # Functions -----------------------------------------------------------------------------------------------------

    def _read_function(self, node: Node) -> Expression | None:
        kind = type(node)
        if kind in _UNARY:
            check_arguments(self.source, node, "this", "binary")
            return self.checked(node, Operation(_UNARY[kind], (self.read(node.this),)))
        if isinstance(node, exp.Cast):
            return read_cast(self, node)
        if isinstance(node, exp.Coalesce | exp.Least | exp.Greatest):
            check_arguments(self.source, node, "this", "expressions", "ignore_nulls")
            values = tuple(map(self.read, [node.this, *node.expressions]))
            return values[0] if len(values) == 1 else self.checked(node, Operation(node.key, values))
        if isinstance(node, exp.Nullif):
            left, right = self._align(self.read(node.this), self.read(node.expression))
            return self.checked(node, Operation("CASE", (Operation("=", (left, right)), Literal(None), left)))
        if isinstance(node, exp.If):
            check_arguments(self.source, node, "this", "true", "false")
            otherwise = node.args.get("false")
            values = self.read(node.args["true"]), Literal(None) if otherwise is None else self.read(otherwise)
            return self.checked(node, Operation("CASE", (self.read_condition(node.this), *values)))
        if isinstance(node, exp.Round):
            return self._read_round(node)
        found = self._read_text(node)
        return read_time(self, node) if found is None else found

    def _read_text(self, node: Node) -> Expression | None:
        if isinstance(node, exp.Trim):
            check_arguments(self.source, node, "this")
            return self.checked(node, self.read(node.this).trim())
        if isinstance(node, exp.Substring):
            check_arguments(self.source, node, "this", "start", "length")
            given = [node.this, node.args.get("start"), node.args.get("length")]
            return self.checked(
                node, Operation("substring", tuple(self.read(each) for each in given if each is not None))
            )
        if isinstance(node, exp.Left):
            size = self.read(node.expression)
            if not isinstance(size, Literal) or not isinstance(size.value, int) or size.value < 0:
                self.source.refuse(node.expression, "a number of signs", do="Write LEFT(x, 3)")
            return self.checked(node, Operation("substring", (self.read(node.this), Literal(1), size)))
        if isinstance(node, exp.DPipe):
            return self.checked(node, Operation("||", (self.read(node.this), self.read(node.expression))))
        if isinstance(node, exp.Concat):
            check_arguments(self.source, node, "expressions", "safe", "coalesce")
            if not node.args.get("coalesce"):
                self.source.refuse(
                    node, "texts joined by ||, because CONCAT differs between dialects", do="Write a || b"
                )
            return self.checked(node, Operation("concat", tuple(map(self.read, node.expressions))))
        if isinstance(node, exp.StartsWith | exp.Contains):
            name = "starts_with" if isinstance(node, exp.StartsWith) else "contains"
            return self.checked(node, Operation(name, (self.read(node.this), self.read(node.expression))))
        if isinstance(node, exp.WidthBucket):
            given = [node.this, *(node.args[name] for name in ("min_value", "max_value", "num_buckets"))]
            return self.checked(node, Operation("width_bucket", tuple(map(self.read, given))))
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "bin":
            return self._read_bin(node)
        return None

    def _read_bin(self, node: exp.Anonymous) -> Expression:
        """Read bin(x, bins) or bin(x, low, high, bins), a function of our own: the lower edge of a bin."""
        given = tuple(map(self.read, node.expressions))
        if len(given) == 2:
            limits = self.facts.limits(given[0])
            if limits is None:
                self.source.refuse(node, "the ends of the bins", do="Write bin(x, 0, 100, 10), or declare bounds of x")
            given = (given[0], Literal(float(limits[0])), Literal(float(limits[1])), given[1])
        return self.checked(node, Operation("bin", given))

    def _read_round(self, node: exp.Round) -> Expression:
        """Round halves away from zero, as SQL does."""
        check_arguments(self.source, node, "this", "decimals")
        value, power = self.read(node.this), 1
        if node.args.get("decimals") is not None:
            digits = self.read(node.args["decimals"])
            if not isinstance(digits, Literal) or not isinstance(digits.value, int) or not 0 <= digits.value <= 9:
                self.source.refuse(
                    node.args["decimals"],
                    "a number of digits from 0 to 9",
                    do="Write ROUND(x, 2), or FLOOR(x / 10) * 10",
                )
            power = 10**digits.value
        scaled = value * power if power > 1 else value
        size = scaled.abs()
        down = size.floor()
        nearest = Operation("CASE", (Operation(">=", (size - down, Literal(0.5))), down + 1, down))
        signed = Operation("CASE", (Operation("<", (scaled, Literal(0))), -nearest, nearest))
        whole = Operation("CASE", (value.is_missing(), Literal(None), signed))
        return self.checked(node, whole / power if power > 1 else whole)


def _decimal_of(node: Node) -> Fraction | None:
    """Return the exact value of sums and products of decimal constants: 0.06 + 0.01 is 0.07 in SQL, unlike in floats."""
    if isinstance(node, exp.Paren):
        return _decimal_of(node.this)
    if isinstance(node, exp.Literal):
        return Fraction(node.this) if not node.is_string and _DECIMAL.fullmatch(str(node.this)) else None
    if isinstance(node, exp.Neg):
        found = _decimal_of(node.this)
        return None if found is None else -found
    if type(node) not in _EXACT:
        return None
    left, right = _decimal_of(node.this), _decimal_of(node.expression)
    return None if left is None or right is None else _EXACT[type(node)](left, right)
