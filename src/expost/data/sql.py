"""Filters as text: a checked subset of SQL that reads into expressions and nothing else."""

from __future__ import annotations

import datetime
import math
import re
from typing import NoReturn

from expost.core import InvalidRequest
from expost.data.expression import RESERVED, ColumnName, Expression, Literal, Operation, lift

__all__ = ["FUNCTIONS", "parse_sql"]

FUNCTIONS = {
    "abs": 1,
    "ceil": 1,
    "coalesce": 2,
    "contains": 2,
    "day": 1,
    "floor": 1,
    "hour": 1,
    "length": 1,
    "lower": 1,
    "month": 1,
    "number": 1,
    "round": 1,
    "starts_with": 2,
    "upper": 1,
    "weekday": 1,
    "year": 1,
}
"""The functions that text may call, each with its number of arguments."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<word>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<sign><=|>=|<>|!=|[-+*/%=<>(),]))""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONSTANTS: dict[str, bool | None] = {"NULL": None, "TRUE": True, "FALSE": False}
_DEEPEST = 100


def parse_sql(text: str) -> Expression:
    """The expression that a filter text means; anything outside the subset is refused.

    >>> parse_sql("age >= 65 and city in ('Rome', 'Oslo')")
    ((age >= 65) AND (city IN ('Rome', 'Oslo')))
    >>> parse_sql("age; drop table people")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a filter of columns, constants and known functions, got ...
    """
    if not isinstance(text, str):
        raise InvalidRequest("Expected an expression or its text", got=text, do='Pass "age >= 65" or col("age") >= 65')
    reader = _Reader(text)
    expression = reader.disjunction()
    reader.end()
    return expression


class _Reader:
    """Reads by recursive descent, loosest operator first."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._place, self._depth = text, [], 0, 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None or text.startswith("--", match.end() - 1):  # a comment in SQL, not two minuses
                self.refuse()
            self._tokens.append((str(match.lastgroup), match.group().strip()))
            position = match.end()

    _tokens: list[tuple[str, str]]

    def refuse(self) -> NoReturn:
        raise InvalidRequest(
            "Expected a filter of columns, constants and known functions",
            got=self._text,
            do="See docs/data.md for the subset of SQL, or build the filter with expost.col",
        )

    def end(self) -> None:
        if self._place != len(self._tokens):
            self.refuse()

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._place += 1
        return token

    def _take(self, *wanted: str) -> str | None:
        """The next token in upper case if it is one of these words or signs."""
        kind, text = self._peek()
        if kind in ("word", "sign") and text.upper() in wanted:
            self._place += 1
            return text.upper()
        return None

    def _need(self, wanted: str) -> None:
        if self._take(wanted) is None:
            self.refuse()

    def disjunction(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse()
        left = self._conjunction()
        while self._take("OR"):
            left = left | self._conjunction()
        self._depth -= 1
        return left

    def _conjunction(self) -> Expression:
        left = self._negation()
        while self._take("AND"):
            left = left & self._negation()
        return left

    def _negation(self) -> Expression:
        negated = False
        while self._take("NOT"):
            negated = not negated
        return ~self._comparison() if negated else self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        if sign := self._take(*_COMPARISONS):
            return Operation(_COMPARISONS[sign], (left, self._sum()))
        if self._take("IS"):
            negated = self._take("NOT")
            self._need("NULL")
            return ~left.is_missing() if negated else left.is_missing()
        negated = self._take("NOT")
        if self._take("IN"):
            found: Expression = Operation("IN", (left, *self._arguments(constants=True)))
        elif self._take("BETWEEN"):
            low = self._sum()
            self._need("AND")
            found = left.between(low, self._sum())
        else:
            if negated:
                self.refuse()
            return left
        return ~found if negated else found

    def _sum(self) -> Expression:
        left = self._product()
        while sign := self._take("+", "-"):
            left = Operation(sign, (left, self._product()))
        return left

    def _product(self) -> Expression:
        left = self._factor()
        while sign := self._take("*", "/", "%"):
            left = Operation(sign, (left, self._factor()))
        return left

    def _factor(self) -> Expression:
        negative = False
        while sign := self._take("-", "+"):
            negative ^= sign == "-"
        value = self._atom()
        if not negative:
            return value
        is_number = isinstance(value, Literal) and isinstance(value.value, int | float)
        return lift(-value.value) if is_number else -value  # type: ignore[attr-defined]

    def _atom(self) -> Expression:
        kind, text = self._next()
        if kind == "number":
            return Literal(_number(text))
        if kind == "text":
            return Literal(text[1:-1].replace("''", "'"))
        if kind == "quoted":
            return ColumnName(text[1:-1].replace('""', '"'))
        if text == "(":
            inside = self.disjunction()
            self._need(")")
            return inside
        if kind == "word":
            return self._word(text)
        self.refuse()

    def _word(self, text: str) -> Expression:
        if text.upper() in _CONSTANTS:
            return Literal(_CONSTANTS[text.upper()])
        if text.upper() in ("TIMESTAMP", "DATE") and self._peek()[0] == "text":
            return self._moment(self._next()[1][1:-1])
        if self._peek() != ("sign", "("):
            if text.upper() in RESERVED:
                self.refuse()
            return ColumnName(text)
        name = text.lower()
        arguments = self._arguments()
        if FUNCTIONS.get(name) != len(arguments):
            self.refuse()
        return Operation(name, arguments)

    def _moment(self, text: str) -> Literal:
        try:
            return Literal(datetime.datetime.fromisoformat(text))
        except ValueError:
            self.refuse()

    def _arguments(self, *, constants: bool = False) -> tuple[Expression, ...]:
        self._need("(")
        found = [self.disjunction()]
        while self._take(","):
            found.append(self.disjunction())
        self._need(")")
        if constants and not all(isinstance(each, Literal) for each in found):
            self.refuse()
        return tuple(found)


def _number(text: str) -> float:
    """A number as it is spelled; a whole one is not rounded."""
    nearest = float(text)
    if math.isinf(nearest):  # refused here, where its spelling is known and not too long for Python to read
        raise InvalidRequest(
            "Expected a number that 64-bit floats hold exactly", got=text, do="Numbers are compared as 64-bit floats"
        )
    return int(text.lstrip("0") or "0") if text.isdigit() else nearest
