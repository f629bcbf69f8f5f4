"""Parse filters and formulas written as text: a checked subset of SQL that becomes expressions and nothing else."""

from __future__ import annotations

import datetime
import difflib
import math
import re
from typing import NamedTuple, NoReturn

from expost.core import InvalidRequest
from expost.data.expression import CASTS, RESERVED, ColumnName, Expression, Literal, Operation
from expost.data.row_function import FUNCTIONS

__all__ = ["parse_sql"]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=|>=|<>|!=|==|\|\||::|[-+*/%=<>(),]))""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONSTANTS: dict[str, bool | None] = {"NULL": None, "TRUE": True, "FALSE": False}
_TYPES = {name: name for name in CASTS} | {
    **dict.fromkeys(("double", "real", "float", "numeric", "decimal"), "number"),
    **dict.fromkeys(("int", "bigint", "smallint"), "integer"),
    **dict.fromkeys(("varchar", "string"), "text"),
    **dict.fromkeys(("timestamp", "datetime"), "time"),
    "bool": "boolean",
}
_ALIASES = {
    "ceiling": "ceil",
    "dayofmonth": "day",
    "doy": "dayofyear",
    "isodow": "weekday",
    "try_strptime": "strptime",
    "substr": "substring",
    "weekofyear": "week",
}
_SIGNS = {
    "=>": ">=",
    "=<": "<=",
    "&&": "AND",
    "&": "AND",
    "|": "OR",
    "!": "NOT",
}
"""Signs of other languages, and what they are called here."""
_CALLED = frozenset(name for name in FUNCTIONS if name.islower())
_PARTS = {name: name for name in _CALLED if FUNCTIONS[name].takes == ("time",)}
_PARTS |= {alias: name for alias, name in _ALIASES.items() if name in _PARTS}
_REWRITTEN = {"date_part": "date_part('year', t)", "left": "left(s, 3)", "nullif": "nullif(a, 0)"}
"""Functions that others express, and how they are called."""

_DEEPEST = 100
_SHOWN = 60  # characters of a text that an error shows around the place


def parse_sql(text: str) -> Expression:
    """Parse a text. Anything outside the subset raises.

    >>> parse_sql("age >= 65 and city in ('Rome', 'Oslo')")
    ((age >= 65) AND (city IN ('Rome', 'Oslo')))
    >>> parse_sql("monht(born) = 3")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a known function, got 'monht'. Did you mean month? Look at the mark:
    ...
    """
    if not isinstance(text, str):
        raise InvalidRequest("Expected an expression or its text", got=text, do='Pass "age >= 65" or col("age") >= 65')
    parser = _Parser(text)
    expression = parser.parse_or()
    parser.require_end()
    return expression


class _Token(NamedTuple):
    """A piece of the text: a number, text, quoted name, word or sign, or the end."""

    kind: str
    text: str
    place: int


class _Parser:
    """Parses by recursive descent, loosest operator first."""

    _tokens: list[_Token]

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next, self._depth = text, [], 0, 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            start = len(text) - len(text[position:].lstrip()) if match is None else match.start(str(match.lastgroup))
            if match is None or text.startswith(("--", "/*"), start):  # a comment in SQL, not two minuses
                self._refuse("columns, constants, operators and known functions", _Token("", text[start:], start))
            self._tokens.append(_Token(str(match.lastgroup), match.group().strip(), start))
            position = match.end()

    def _refuse(self, expected: str, token: _Token | None = None, hint: str = "") -> NoReturn:
        """Raise for a text outside the subset, and mark the place."""
        token = self._peek() if token is None else token
        before = self._text[: token.place][-_SHOWN:].lstrip()
        shown = "".join(sign if sign.isprintable() else " " for sign in before + self._text[token.place :][:_SHOWN])
        nearby = (self._text[token.place - 1 : token.place + 1], self._text[token.place :][:2], token.text[:1])
        sign = next((each for each in nearby if each in _SIGNS), None)
        hint = hint or (f"Write {_SIGNS[sign]}." if sign else "See docs/data.md for the subset of SQL.")
        got = {} if token.kind == "end" else {"got": token.text}
        ended = " before the end of the text" if token.kind == "end" else ""
        raise InvalidRequest(
            f"Expected {expected}{ended}", **got, do=f"{hint} Look at the mark:\n    {shown}\n    {' ' * len(before)}^"
        )

    def _guess(self, word: str, known: frozenset[str]) -> str:
        """Return a question about the nearest known word, or nothing."""
        near = difflib.get_close_matches(word, known, n=1)
        return f"Did you mean {near[0]}?" if near else ""

    def require_end(self) -> None:
        """Raise if tokens are left."""
        token = self._peek()
        if token.kind == "end":
            return
        known = frozenset({"AND", "OR", "IN", "IS", "NOT", "LIKE", "ILIKE", "BETWEEN"})
        self._refuse("an operator or the end of the text", hint=self._guess(token.text.upper(), known))

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else _Token("end", "", len(self._text))

    def _take(self, *wanted: str) -> str | None:
        """Consume the next token if it is one of these words or signs, and return it in upper case."""
        token = self._peek()
        if token.kind in ("word", "sign") and token.text.upper() in wanted:
            self._next += 1
            return token.text.upper()
        return None

    def _require(self, wanted: str) -> None:
        if self._take(wanted) is None:
            self._refuse(wanted, hint=self._guess(self._peek().text.upper(), frozenset({wanted})))

    def parse_or(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"at most {_DEEPEST} parentheses inside each other")
        left = self._parse_and()
        while self._take("OR"):
            left = left | self._parse_and()
        self._depth -= 1
        return left

    def _parse_and(self) -> Expression:
        left = self._parse_not()
        while self._take("AND"):
            left = left & self._parse_not()
        return left

    def _parse_not(self) -> Expression:
        negated = False
        while self._take("NOT"):
            negated = not negated
        return ~self._parse_comparison() if negated else self._parse_comparison()

    def _parse_comparison(self) -> Expression:
        left = self._parse_joined()
        if sign := self._take(*_COMPARISONS):
            return Operation(_COMPARISONS[sign], (left, self._parse_joined()))
        if self._take("IS"):
            negated = self._take("NOT")
            self._require("NULL")
            return ~left.is_missing() if negated else left.is_missing()
        negated = self._take("NOT")
        if self._take("IN"):
            found: Expression = Operation("IN", (left, *self._parse_arguments(constants=True)))
        elif self._take("BETWEEN"):
            low = self._parse_joined()
            self._require("AND")
            found = left.between(low, self._parse_joined())
        elif match := self._take("LIKE", "ILIKE"):
            token = self._peek()
            pattern = self._parse_joined()
            if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
                self._refuse("a pattern in quotes, such as 'A%'", token)
            found = left.like(pattern.value) if match == "LIKE" else left.ilike(pattern.value)
        else:
            if negated:
                self._refuse("IN, LIKE or BETWEEN after NOT")
            return left
        return ~found if negated else found

    def _parse_joined(self) -> Expression:
        left = self._parse_sum()
        while self._take("||"):
            left = Operation("||", (left, self._parse_sum()))
        return left

    def _parse_sum(self) -> Expression:
        left = self._parse_product()
        while sign := self._take("+", "-"):
            left = Operation(sign, (left, self._parse_product()))
        return left

    def _parse_product(self) -> Expression:
        left = self._parse_factor()
        while sign := self._take("*", "/", "%"):
            left = Operation(sign, (left, self._parse_factor()))
        return left

    def _parse_factor(self) -> Expression:
        negative = False
        while sign := self._take("-", "+"):
            negative ^= sign == "-"
        value = self._parse_atom()
        while self._take("::"):
            value = Operation(self._parse_type(), (value,))
        if not negative:
            return value
        is_number = isinstance(value, Literal) and isinstance(value.value, int | float)
        return Literal(-value.value) if is_number else -value  # type: ignore[attr-defined]

    def _parse_atom(self) -> Expression:
        token = self._peek()
        self._next += 1
        if token.kind == "number":
            nearest = float(token.text)
            if math.isinf(nearest):  # raise here, before Python converts a very long number
                raise InvalidRequest(
                    "Expected a number that 64-bit floats hold exactly",
                    got=token.text,
                    do="Numbers are compared as 64-bit floats",
                )
            # Integers are not rounded.
            return Literal(int(token.text.lstrip("0") or "0") if token.text.isdigit() else nearest)
        if token.kind == "text":
            return Literal(token.text[1:-1].replace("''", "'"))
        if token.kind == "quoted":
            return ColumnName(token.text[1:-1].replace('""', '"'), quoted=True)
        if token.text == "(":
            inside = self.parse_or()
            self._require(")")
            return inside
        if token.kind == "word":
            return self._parse_word(token)
        self._refuse("a column, a constant or a function", token)

    def _parse_word(self, token: _Token) -> Expression:
        word, following = token.text.upper(), self._peek()
        if word in _CONSTANTS:
            return Literal(_CONSTANTS[word])
        if word in ("TIMESTAMP", "DATE") and following.kind == "text":
            self._next += 1
            try:
                return Literal(datetime.datetime.fromisoformat(following.text[1:-1]))
            except ValueError:
                self._refuse("a date such as '2013-01-31' or '2013-01-31 12:30:00'", following)
        if word == "CASE":
            return self._parse_case()
        if following[:2] != ("sign", "("):
            if word in RESERVED:
                self._refuse("a column, a constant or a function", token, 'Put the name of a column into "quotes".')
            return ColumnName(token.text)
        if word in ("CAST", "TRY_CAST", "EXTRACT"):
            return self._parse_converted(word)
        name = _ALIASES.get(token.text.lower(), token.text.lower())
        if name not in _CALLED and name not in _REWRITTEN:
            self._refuse("a known function", token, self._guess(name, _CALLED | _REWRITTEN.keys()))
        arguments = self._parse_arguments()
        if name in _REWRITTEN:
            return self._rewrite(name, arguments, token)
        # The ends of bins may be left to the public bounds of a dataset.
        if not FUNCTIONS[name].accepts(len(arguments)) and (name, len(arguments)) != ("bin", 2):
            self._refuse(f"{name}({', '.join(FUNCTIONS[name].takes)})", token)
        return Operation(name, arguments)

    def _rewrite(self, name: str, arguments: tuple[Expression, ...], token: _Token) -> Expression:
        """Return a function that other functions express."""
        if len(arguments) != 2:
            self._refuse(_REWRITTEN[name], token)
        first, second = arguments
        if name == "nullif":
            return Operation("CASE", (Operation("=", (first, second)), Literal(None), first))
        if name == "left":
            return Operation("substring", (first, Literal(1), second))
        if not isinstance(first, Literal) or str(first.value).lower() not in _PARTS:
            self._refuse(f"date_part with one of {', '.join(sorted(_PARTS))}", token)
        return Operation(_PARTS[str(first.value).lower()], (second,))

    def _parse_case(self) -> Expression:
        """Parse CASE WHEN c THEN v ... ELSE w END, or CASE x WHEN y THEN v ... END."""
        subject = None if self._peek().text.upper() == "WHEN" else self.parse_or()
        parts: list[Expression] = []
        self._require("WHEN")
        while not parts or self._take("WHEN"):
            condition = self.parse_or()
            self._require("THEN")
            parts += [condition if subject is None else Operation("=", (subject, condition)), self.parse_or()]
        parts.append(self.parse_or() if self._take("ELSE") else Literal(None))
        self._require("END")
        return Operation("CASE", tuple(parts))

    def _parse_converted(self, word: str) -> Expression:
        """Parse CAST(x AS type) or EXTRACT(part FROM x)."""
        self._require("(")
        if word == "EXTRACT":
            token = self._peek()
            self._next += 1
            name = _PARTS.get(token.text.lower(), "")
            if not name:
                hint = self._guess(token.text.lower(), frozenset(_PARTS))
                self._refuse(f"one of {', '.join(sorted(_PARTS))}", token, hint)
            self._require("FROM")
            value = self.parse_or()
        else:
            value = self.parse_or()
            self._require("AS")
            name = self._parse_type()
        self._require(")")
        return Operation(name, (value,))

    def _parse_type(self) -> str:
        token = self._peek()
        self._next += 1
        if token.kind != "word" or token.text.lower() not in _TYPES:
            known = frozenset(_TYPES)
            self._refuse(f"one of {', '.join(CASTS)}", token, self._guess(token.text.lower(), known))
        return _TYPES[token.text.lower()]

    def _parse_arguments(self, *, constants: bool = False) -> tuple[Expression, ...]:
        self._require("(")
        found: list[Expression] = []
        while not found or self._take(","):
            token = self._peek()
            found.append(self.parse_or())
            if constants and not isinstance(found[-1], Literal):
                self._refuse("constants in the list", token)
        self._require(")")
        return tuple(found)
