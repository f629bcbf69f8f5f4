"""Parse filters and formulas written as text: a checked subset of SQL that becomes expressions and nothing else."""

from __future__ import annotations

import datetime
import math
import re
from typing import NoReturn

from expost.core import InvalidRequest
from expost.data.expression import RESERVED, ColumnName, Expression, Literal, Operation

__all__ = ["FUNCTIONS", "parse_sql"]

_NUMBERS, _TEXTS = ("abs", "ceil", "floor", "number", "round"), ("length", "lower", "upper")
_CALENDAR = ("day", "hour", "month", "weekday", "year")
FUNCTIONS = {name: 1 for name in (*_NUMBERS, *_TEXTS, *_CALENDAR)} | {"coalesce": 2, "contains": 2, "starts_with": 2}
"""The functions that a text may call, each with its number of arguments."""

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
    """Parse a text. Anything outside the subset raises.

    >>> parse_sql("age >= 65 and city in ('Rome', 'Oslo')")
    ((age >= 65) AND (city IN ('Rome', 'Oslo')))
    >>> parse_sql("age; drop table people")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a filter of columns, constants and known functions, got ...
    """
    if not isinstance(text, str):
        raise InvalidRequest("Expected an expression or its text", got=text, do='Pass "age >= 65" or col("age") >= 65')
    parser = _Parser(text)
    expression = parser.parse_or()
    if parser.has_rest():
        parser.refuse_text()
    return expression


class _Parser:
    """Parses by recursive descent, loosest operator first."""

    _tokens: list[tuple[str, str]]

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._place, self._depth = text, [], 0, 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None or text.startswith("--", match.end() - 1):  # a comment in SQL, not two minuses
                self.refuse_text()
            self._tokens.append((str(match.lastgroup), match.group().strip()))
            position = match.end()

    def refuse_text(self) -> NoReturn:
        """Raise for a text outside the subset."""
        hint = "Write = instead of ==. " if "==" in self._text else ""
        raise InvalidRequest(
            "Expected a filter of columns, constants and known functions",
            got=self._text,
            do=f"{hint}See docs/data.md for the subset of SQL, or build the filter with expost.col",
        )

    def has_rest(self) -> bool:
        """Return whether tokens are left."""
        return self._place != len(self._tokens)

    def _peek_token(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _next_token(self) -> tuple[str, str]:
        token = self._peek_token()
        self._place += 1
        return token

    def _take_token(self, *wanted: str) -> str | None:
        """Consume the next token if it is one of these words or signs, and return it in upper case."""
        kind, text = self._peek_token()
        if kind in ("word", "sign") and text.upper() in wanted:
            self._place += 1
            return text.upper()
        return None

    def _require_token(self, wanted: str) -> None:
        if self._take_token(wanted) is None:
            self.refuse_text()

    def parse_or(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse_text()
        left = self._parse_and()
        while self._take_token("OR"):
            left = left | self._parse_and()
        self._depth -= 1
        return left

    def _parse_and(self) -> Expression:
        left = self._parse_not()
        while self._take_token("AND"):
            left = left & self._parse_not()
        return left

    def _parse_not(self) -> Expression:
        negated = False
        while self._take_token("NOT"):
            negated = not negated
        return ~self._parse_comparison() if negated else self._parse_comparison()

    def _parse_comparison(self) -> Expression:
        left = self._parse_sum()
        if sign := self._take_token(*_COMPARISONS):
            return Operation(_COMPARISONS[sign], (left, self._parse_sum()))
        if self._take_token("IS"):
            negated = self._take_token("NOT")
            self._require_token("NULL")
            return ~left.is_missing() if negated else left.is_missing()
        negated = self._take_token("NOT")
        if self._take_token("IN"):
            found: Expression = Operation("IN", (left, *self._parse_arguments(constants=True)))
        elif self._take_token("BETWEEN"):
            low = self._parse_sum()
            self._require_token("AND")
            found = left.between(low, self._parse_sum())
        else:
            if negated:
                self.refuse_text()
            return left
        return ~found if negated else found

    def _parse_sum(self) -> Expression:
        left = self._parse_product()
        while sign := self._take_token("+", "-"):
            left = Operation(sign, (left, self._parse_product()))
        return left

    def _parse_product(self) -> Expression:
        left = self._parse_factor()
        while sign := self._take_token("*", "/", "%"):
            left = Operation(sign, (left, self._parse_factor()))
        return left

    def _parse_factor(self) -> Expression:
        negative = False
        while sign := self._take_token("-", "+"):
            negative ^= sign == "-"
        value = self._parse_atom()
        if not negative:
            return value
        is_number = isinstance(value, Literal) and isinstance(value.value, int | float)
        return Literal(-value.value) if is_number else -value  # type: ignore[attr-defined]

    def _parse_atom(self) -> Expression:
        kind, text = self._next_token()
        if kind == "number":
            nearest = float(text)
            if math.isinf(nearest):  # raise here, before Python converts a very long number
                raise InvalidRequest(
                    "Expected a number that 64-bit floats hold exactly",
                    got=text,
                    do="Numbers are compared as 64-bit floats",
                )
            return Literal(int(text.lstrip("0") or "0") if text.isdigit() else nearest)  # integers are not rounded
        if kind == "text":
            return Literal(text[1:-1].replace("''", "'"))
        if kind == "quoted":
            return ColumnName(text[1:-1].replace('""', '"'))
        if text == "(":
            inside = self.parse_or()
            self._require_token(")")
            return inside
        if kind == "word":
            return self._parse_word(text)
        self.refuse_text()

    def _parse_word(self, text: str) -> Expression:
        if text.upper() in _CONSTANTS:
            return Literal(_CONSTANTS[text.upper()])
        if text.upper() in ("TIMESTAMP", "DATE") and self._peek_token()[0] == "text":
            try:
                return Literal(datetime.datetime.fromisoformat(self._next_token()[1][1:-1]))
            except ValueError:
                self.refuse_text()
        if self._peek_token() != ("sign", "("):
            if text.upper() in RESERVED:
                self.refuse_text()
            return ColumnName(text)
        name = text.lower()
        arguments = self._parse_arguments()
        if FUNCTIONS.get(name) != len(arguments):
            self.refuse_text()
        return Operation(name, arguments)

    def _parse_arguments(self, *, constants: bool = False) -> tuple[Expression, ...]:
        self._require_token("(")
        found = [self.parse_or()]
        while self._take_token(","):
            found.append(self.parse_or())
        self._require_token(")")
        if constants and not all(isinstance(each, Literal) for each in found):
            self.refuse_text()
        return tuple(found)
