"""Filters and derived columns: a small language that cannot fail on any row."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NoReturn

from expost.core import InvalidRequest
from expost.data.canonical import canonical_value

__all__ = ["ColumnName", "Expression", "Literal", "Lookup", "Operation", "as_utc", "col", "is_exact", "lift"]

Plain = str | int | float | bool | Decimal | datetime.date | None


class Expression:
    """A value computed from one row. Build it from ``col("name")`` with the usual operators.

    Nothing an expression does can fail on a row: a division by zero, an overflow, NaN, infinity, a text that is no
    number and a missing value all become *missing*. A comparison with a missing value is unknown, and a filter keeps
    only rows for which it is known to be true. Numbers are 64-bit floats; upper and lower case concern ASCII letters.

    >>> (col("age") >= 65) & ~col("city").isin(["Rome", "Oslo"])
    ((age >= 65) AND (NOT (city IN ('Rome', 'Oslo'))))
    """

    __slots__ = ()

    depth = 0
    """How many operations lie inside each other."""

    def columns(self) -> frozenset[str]:
        """The names of the columns it reads."""
        return frozenset(name for part in self.parts() for name in part.columns())

    def parts(self) -> Iterator[Expression]:
        """The expressions it is made of."""
        return iter(())

    def _with(self, name: str, *others: Any) -> Operation:
        return Operation(name, (self, *(lift(other) for other in others)))

    def __add__(self, other: Any) -> Operation:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Operation:
        return lift(other)._with("+", self)

    def __sub__(self, other: Any) -> Operation:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Operation:
        return lift(other)._with("-", self)

    def __mul__(self, other: Any) -> Operation:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Operation:
        return lift(other)._with("*", self)

    def __truediv__(self, other: Any) -> Operation:
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> Operation:
        return lift(other)._with("/", self)

    def __mod__(self, other: Any) -> Operation:
        return self._with("%", other)

    def __neg__(self) -> Operation:
        return lift(0)._with("-", self)

    def __eq__(self, other: Any) -> Operation:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: Any) -> Operation:  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: Any) -> Operation:
        return self._with("<", other)

    def __le__(self, other: Any) -> Operation:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> Operation:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Operation:
        return self._with(">=", other)

    def __and__(self, other: Any) -> Operation:
        return self._chained("AND", other)

    def __or__(self, other: Any) -> Operation:
        return self._chained("OR", other)

    def _chained(self, name: str, other: Any) -> Operation:
        """A chain of any length is one operation, not one inside the other."""
        if isinstance(self, Operation) and self.name == name:
            return Operation(name, (*self.arguments, lift(other)))
        return self._with(name, other)

    def __invert__(self) -> Operation:
        return self._with("NOT")

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise InvalidRequest(
            "Expected & | ~ between conditions",
            got="and, or, not or a chained comparison",
            do="Write (a > 1) & (a < 9)",
        )

    def isin(self, values: Iterable[Plain]) -> Operation:
        """Whether the value is one of a public list."""
        return self._with("IN", *values)

    def between(self, low: Any, high: Any) -> Operation:
        """Whether the value lies between two others, both included."""
        return Operation("AND", (self >= low, self <= high))

    def is_missing(self) -> Operation:
        """Whether there is no value."""
        return self._with("IS NULL")

    def fill(self, value: Plain) -> Operation:
        """The value, or a public one where it is missing."""
        return self._with("coalesce", value)

    def abs(self) -> Operation:
        """The size of a number."""
        return self._with("abs")

    def floor(self) -> Operation:
        """The next whole number below."""
        return self._with("floor")

    def ceil(self) -> Operation:
        """The next whole number above."""
        return self._with("ceil")

    def round(self) -> Operation:
        """The nearest whole number, halves to the even one."""
        return self._with("round")

    def lower(self) -> Operation:
        """The text in lower case (ASCII letters)."""
        return self._with("lower")

    def upper(self) -> Operation:
        """The text in upper case (ASCII letters)."""
        return self._with("upper")

    def length(self) -> Operation:
        """The length of a text in bytes."""
        return self._with("length")

    def starts_with(self, prefix: str) -> Operation:
        """Whether a text begins so."""
        return self._with("starts_with", prefix)

    def contains(self, part: str) -> Operation:
        """Whether a text contains this."""
        return self._with("contains", part)

    def as_number(self) -> Operation:
        """The number a text spells, or missing."""
        return self._with("number")

    def year(self) -> Operation:
        """The year of a time (UTC)."""
        return self._with("year")

    def month(self) -> Operation:
        """The month of a time, 1 to 12 (UTC)."""
        return self._with("month")

    def day(self) -> Operation:
        """The day of the month, 1 to 31 (UTC)."""
        return self._with("day")

    def hour(self) -> Operation:
        """The hour of a time, 0 to 23 (UTC)."""
        return self._with("hour")

    def weekday(self) -> Operation:
        """The day of the week, Monday 1 to Sunday 7 (UTC)."""
        return self._with("weekday")


class ColumnName(Expression):
    """A column by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidRequest("Expected the name of a column", got=name, do='Write col("age")')
        self.name = name

    def columns(self) -> frozenset[str]:
        return frozenset([self.name])

    def __repr__(self) -> str:
        plain = self.name.isidentifier() and self.name.isascii() and self.name.upper() not in RESERVED
        return self.name if plain else '"' + self.name.replace('"', '""') + '"'


class Literal(Expression):
    """A public constant."""

    __slots__ = ("value",)

    def __init__(self, value: Plain) -> None:
        if value is not None and not isinstance(value, str | bool | int | float | datetime.date):
            raise InvalidRequest(
                "Expected a number, a text, a date, True, False or None", got=value, do="Pass a plain value"
            )
        if isinstance(value, float | int) and not is_exact(value):
            raise InvalidRequest(
                "Expected a number that 64-bit floats hold exactly",
                got=value,
                do="Numbers are compared as 64-bit floats",
            )
        if isinstance(value, datetime.date):
            as_utc(value)  # refused here rather than on the rows
        if isinstance(value, str) and not _is_plain(value):
            raise InvalidRequest(
                "Expected a text of whole characters without NUL, which ledgers and databases cannot store",
                got=value,
                do="Leave it out: compare with starts_with or contains what is around it",
            )
        self.value = canonical_value(value)

    def __repr__(self) -> str:
        if self.value is None or isinstance(self.value, bool):
            return {None: "NULL", True: "TRUE", False: "FALSE"}[self.value]
        if isinstance(self.value, datetime.date):
            return f"TIMESTAMP '{self.value.isoformat()}'"
        return "'" + self.value.replace("'", "''") + "'" if isinstance(self.value, str) else repr(self.value)


class Operation(Expression):
    """An operator or function with its arguments; the names are those of the SQL it prints."""

    __slots__ = ("arguments", "depth", "name")

    def __init__(self, name: str, arguments: tuple[Expression, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.depth = 1 + max(argument.depth for argument in arguments)
        if self.depth > _DEEPEST:
            raise InvalidRequest(
                f"Expected at most {_DEEPEST} operations inside each other", do="Derive a column for a part of it"
            )

    def parts(self) -> Iterator[Expression]:
        return iter(self.arguments)

    def __repr__(self) -> str:
        first, *rest = map(repr, self.arguments)
        if self.name == "NOT":
            return f"(NOT {first})"
        if self.name == "IS NULL":
            return f"({first} IS NULL)"
        if self.name == "IN":
            return f"({first} IN ({', '.join(rest)}))"
        if self.name in INFIX:
            return "(" + f" {self.name} ".join((first, *rest)) + ")"
        return f"{self.name}({', '.join((first, *rest))})"


class Lookup(Expression):
    """The entry of a public table under the value of an expression; missing where there is none."""

    __slots__ = ("depth", "key", "keys", "label", "values")

    def __init__(self, key: Expression, keys: tuple[Plain, ...], values: tuple[Plain, ...], *, label: str) -> None:
        self.key, self.keys, self.values, self.label = key, keys, values, label
        self.depth = 1 + key.depth

    def parts(self) -> Iterator[Expression]:
        return iter((self.key,))

    def __repr__(self) -> str:
        # The entries are part of what is asked, so they are part of its name.
        entries = hashlib.sha256(repr((self.keys, self.values)).encode()).hexdigest()[:12]
        return f"lookup({self.key!r}, {self.label} {entries})"


_DEEPEST = 100
INFIX = frozenset({"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR"})
RESERVED = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "LIKE", "CASE", "CAST", "TIMESTAMP", "DATE"}
)


def col(name: str) -> ColumnName:
    """A column of the dataset, to build filters and derived columns from.

    >>> col("age") >= 65
    (age >= 65)
    """
    return ColumnName(name)


def is_exact(value: float) -> bool:
    """Whether a number is finite and a 64-bit float holds it exactly.

    >>> is_exact(2**53), is_exact(2**53 + 1), is_exact(10**400), is_exact(float("inf"))
    (True, False, False, False)
    """
    try:
        return math.isfinite(value) and float(value) == value
    except OverflowError:
        return False


def _is_plain(text: str) -> bool:
    """Whether a text can be stored anywhere: half of a surrogate pair is no character, and NUL ends a text."""
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def as_utc(value: datetime.date) -> datetime.date:
    """A date or moment without a time zone, which is how columns of times are compared; years 1 to 9999.

    >>> as_utc(datetime.datetime.fromisoformat("2020-01-01T01:30:00+02:00"))
    datetime.datetime(2019, 12, 31, 23, 30)
    """
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return value
    try:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    except (OverflowError, ValueError):
        raise InvalidRequest(
            "Expected a moment in the years 1 to 9999 (UTC)", got=value.isoformat(), do="Write the moment in UTC"
        ) from None


def lift(value: Any) -> Expression:
    """An expression as it is, a plain value as a constant."""
    return value if isinstance(value, Expression) else Literal(value)
