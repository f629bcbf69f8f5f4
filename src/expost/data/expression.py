"""Filters and derived columns: expressions over one row that cannot fail, whatever the row holds."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import canonical_value, constant_kind

__all__ = [
    "ColumnName",
    "Expression",
    "Literal",
    "Lookup",
    "Operation",
    "as_expression",
    "as_utc",
    "col",
    "is_exact",
]

Plain = str | int | float | bool | Decimal | datetime.date | None


def _operator(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Operation]:
    """Return the method of an operator; a reflected one has the expression on its right."""

    def build(self: Any, other: Any) -> Operation:
        left, right = (other, self) if reflected else (self, other)
        return Operation(name, (as_expression(left), as_expression(right)))

    return build


def _function(name: str, description: str) -> Callable[[Any], Operation]:
    """Return the method of a function of one value."""

    def build(self: Any) -> Operation:
        return Operation(name, (self,))

    build.__doc__ = description
    return build


class Expression:
    """A value computed from one row. Build it from ``col("name")`` with the usual operators.

    An expression cannot fail on a row. A division by zero, an overflow, NaN, infinity, a text that does not spell a
    number and a missing value all become *missing*. A comparison with a missing value is unknown, and a filter keeps
    only rows for which it is known to be true. Numbers are 64-bit floats; upper and lower case concern ASCII letters.

    Operators: ``+ - * / %``, ``== != < <= > >=``, and ``& | ~`` between conditions. As in SQL, the remainder ``%`` has the
    sign of the first number.

    Examples
    --------
    >>> (col("age") >= 65) & ~col("city").is_in(["Rome", "Oslo"])
    ((age >= 65) AND (NOT (city IN ('Rome', 'Oslo'))))
    >>> col("name").lower().starts_with("r"), col("when").year().between(2020, 2024)
    (starts_with(lower(name), 'r'), ((year(when) >= 2020) AND (year(when) <= 2024)))
    """

    __slots__ = ()

    depth = 0
    """Number of nested operations."""

    size = 0
    """Number of operations, each counted as often as it occurs."""

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that the expression reads, without resolving derived ones."""
        return frozenset(name for part in self.parts() for name in part.columns())

    def parts(self) -> Iterator[Expression]:
        """Iterate over the direct arguments; a column and a constant have none."""
        return iter(())

    def _build_operation(self, name: str, *others: Expression | Plain) -> Operation:
        """Build an operation with this expression as its first argument."""
        return Operation(name, (self, *(as_expression(other) for other in others)))

    __add__, __radd__ = _operator("+"), _operator("+", reflected=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", reflected=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", reflected=True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", reflected=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", reflected=True)
    __eq__ = _operator("=")  # type: ignore[assignment]
    __ne__ = _operator("<>")  # type: ignore[assignment]
    __lt__, __le__ = _operator("<"), _operator("<=")
    __gt__, __ge__ = _operator(">"), _operator(">=")
    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Operation:
        return self._extend_chain("AND", other)

    def __or__(self, other: Any) -> Operation:
        return self._extend_chain("OR", other)

    def _extend_chain(self, name: str, other: Any) -> Operation:
        """Append to a chain of AND or OR, which is one operation of any length instead of a deep nest."""
        if isinstance(self, Operation) and self.name == name:
            return Operation(name, (*self.arguments, as_expression(other)))
        return self._build_operation(name, other)

    def __invert__(self) -> Operation:
        return self._build_operation("NOT")

    def __neg__(self) -> Operation:
        return Literal(0)._build_operation("-", self)

    if not TYPE_CHECKING:  # type checkers know the methods

        def __getattr__(self, name: str) -> NoReturn:
            meant = _ELSEWHERE.get(name)
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            hint = f"Write {meant}" if meant else suggest_name(name, known) or "docs/data.md lists what there is"
            raise AttributeError(f"An expression has no method {name!r}. {hint}")

    def __bool__(self) -> NoReturn:
        raise InvalidRequest(
            "Expected & | ~ between conditions",
            got="and, or, not or a chained comparison",
            do="Write (a > 1) & (a < 9)",
        )

    def is_in(self, values: Iterable[Plain]) -> Operation:
        """Return a condition: the value is one of a public list.

        Parameters
        ----------
        values : iterable
            Constants to compare with: numbers, texts, dates, booleans or None.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidRequest("Expected a list of constants", got=values, do='Write is_in(["Rome", "Oslo"])')
        return self._build_operation("IN", *values)

    isin = is_in

    def between(self, low: Any, high: Any) -> Operation:
        """Return a condition: the value lies between two others, both included.

        Parameters
        ----------
        low, high : expression or constant
            The ends.
        """
        return Operation("AND", (self >= low, self <= high))

    is_missing = _function("IS NULL", "Return a condition: the value is missing. It is never unknown.")

    def fill(self, *values: Expression | Plain) -> Operation:
        """Replace missing values: by the first of some values that is not missing.

        Parameters
        ----------
        *values : expression or constant
            The replacements, of the same kind.
        """
        return self._build_operation("coalesce", *values)

    def least(self, *others: Expression | Plain) -> Operation:
        """Return the least of this value and others that are not missing.

        Parameters
        ----------
        *others : expression or constant
            Values of the same kind.
        """
        return self._build_operation("least", *others)

    def greatest(self, *others: Expression | Plain) -> Operation:
        """Return the greatest of this value and others that are not missing.

        Parameters
        ----------
        *others : expression or constant
            Values of the same kind.
        """
        return self._build_operation("greatest", *others)

    abs = _function("abs", "Compute the absolute value of a number.")
    floor = _function("floor", "Round a number down to an integer.")
    ceil = _function("ceil", "Round a number up to an integer.")

    def round(self, digits: int = 0) -> Operation:
        """Round a number to some decimal digits, halves to the even digit.

        Parameters
        ----------
        digits : int, default 0
            Digits after the decimal point, at most 15.
        """
        return self._build_operation("round", *((digits,) if digits else ()))

    def bin(self, bins: int, low: float | None = None, high: float | None = None) -> Operation:
        """Return the lower edge of the bin of equal width in which a number lies; numbers outside lie in the nearest bin.

        Parameters
        ----------
        bins : int
            The number of bins.
        low, high : float, optional
            The ends. Default: the public bounds of the column.
        """
        return self._build_operation("bin", *(() if low is None and high is None else (low, high)), bins)

    lower = _function("lower", "Convert a text to lower case (ASCII letters only).")
    upper = _function("upper", "Convert a text to upper case (ASCII letters only).")
    trim = _function("trim", "Remove the spaces around a text.")
    length = _function("length", "Count the characters of a text.")

    def substring(self, start: int, length: int | None = None) -> Operation:
        """Return a part of a text.

        Parameters
        ----------
        start : int
            Position of the first character, counted from 1 as in SQL.
        length : int, optional
            The most characters to take. Default: all.
        """
        return self._build_operation("substring", start, *(() if length is None else (length,)))

    def concat(self, *others: Expression | Plain) -> Operation:
        """Join texts; missing ones are skipped. A result of more than 1 MiB is missing.

        Parameters
        ----------
        *others : expression or str
            Further texts.
        """
        return self._build_operation("concat", *others)

    def starts_with(self, prefix: str) -> Operation:
        """Return a condition: a text begins with a constant.

        Parameters
        ----------
        prefix : str
            The beginning to test for.
        """
        return self._build_operation("starts_with", prefix)

    def contains(self, part: str) -> Operation:
        """Return a condition: a text contains a constant.

        Parameters
        ----------
        part : str
            The text to search for.
        """
        return self._build_operation("contains", part)

    def like(self, pattern: str) -> Operation:
        """Return a condition: a text matches a pattern.

        Parameters
        ----------
        pattern : str
            A text in which ``%`` stands for any text and ``_`` for any character.
        """
        return self._build_operation("LIKE", pattern)

    def ilike(self, pattern: str) -> Operation:
        """Return a condition: a text matches a pattern, whatever the case of ASCII letters.

        Parameters
        ----------
        pattern : str
            A text in which ``%`` stands for any text and ``_`` for any character.
        """
        if not isinstance(pattern, str):
            raise InvalidRequest("Expected a pattern", got=pattern, do='Write ilike("a%")')
        return self.lower().like("".join(sign.lower() if sign.isascii() else sign for sign in pattern))

    def cast(self, kind: str) -> Operation:
        """Convert to another kind; missing where a value cannot be converted.

        Parameters
        ----------
        kind : {"number", "integer", "boolean", "text", "time", "date"}
            The kind to convert to. A number is rounded to the nearest integer, and a date is the start of its day.
        """
        if kind not in CASTS:
            raise InvalidRequest(f"Expected one of {', '.join(CASTS)}", got=kind, do='Write cast("integer")')
        return self._build_operation(kind)

    as_number = _function("number", "Read the number that a text spells; missing where it does not spell one.")

    def strptime(self, format: str) -> Operation:
        """Read the time that a text spells in a format; missing where it does not.

        Parameters
        ----------
        format : str
            A format with a year, such as ``"%d.%m.%Y %H:%M"``.
        """
        return self._build_operation("strptime", format)

    def date_trunc(self, period: str) -> Operation:
        """Return the start of the period in which a time lies (UTC).

        Parameters
        ----------
        period : {"year", "quarter", "month", "week", "day", "hour", "minute", "second"}
            The period; a week begins on Monday.
        """
        return Operation("date_trunc", (Literal(period), self))

    year = _function("year", "Extract the year of a time (UTC).")
    week = _function(
        "week", "Extract the week of a time, 1 to 53 (ISO 8601, UTC): week 1 has the first Thursday of its year."
    )
    dayofyear = _function("dayofyear", "Extract the day of the year, 1 to 366 (UTC).")
    quarter = _function("quarter", "Extract the quarter of a time, 1 to 4 (UTC).")
    month = _function("month", "Extract the month of a time, 1 to 12 (UTC).")
    day = _function("day", "Extract the day of the month, 1 to 31 (UTC).")
    weekday = _function("weekday", "Extract the day of the week, Monday 1 to Sunday 7 (UTC).")
    hour = _function("hour", "Extract the hour of a time, 0 to 23 (UTC).")
    minute = _function("minute", "Extract the minute of a time, 0 to 59 (UTC).")
    second = _function("second", "Extract the second of a time, 0 to 59 (UTC).")


class ColumnName(Expression):
    """A column by its name."""

    __slots__ = ("name", "quoted")

    def __init__(self, name: str, *, quoted: bool = False) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidRequest("Expected the name of a column", got=name, do='Write col("age")')
        self.name, self.quoted = name, quoted

    def columns(self) -> frozenset[str]:
        return frozenset([self.name])

    def __repr__(self) -> str:
        plain = self.name.isidentifier() and self.name.isascii() and self.name.upper() not in RESERVED
        return self.name if plain else '"' + self.name.replace('"', '""') + '"'


class Literal(Expression):
    """A public constant."""

    __slots__ = ("value",)

    def __init__(self, constant: Plain) -> None:
        is_missing = isinstance(constant, datetime.date) and constant != constant  # pandas has a missing time
        value = None if is_missing else canonical_value(constant)  # one of NumPy becomes one of Python
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
            as_utc(value)  # raises here instead of on the rows
        # NUL ends a text in C and half of a surrogate pair is not a character: neither can be stored everywhere.
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value)):
            raise InvalidRequest(
                "Expected a text of whole characters without NUL, which ledgers and databases cannot store",
                got=value,
                do="Leave it out: compare with starts_with or contains what is around it",
            )
        self.value: Any = value

    def __repr__(self) -> str:
        if self.value is None or isinstance(self.value, bool):
            return {None: "NULL", True: "TRUE", False: "FALSE"}[self.value]
        if isinstance(self.value, datetime.date):
            return f"TIMESTAMP '{self.value.isoformat()}'"
        return "'" + self.value.replace("'", "''") + "'" if isinstance(self.value, str) else repr(self.value)


class Operation(Expression):
    """An operator or function with its arguments; the names are those of the SQL it prints."""

    __slots__ = ("arguments", "depth", "name", "size")

    def __init__(self, name: str, arguments: tuple[Expression, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.depth = 1 + max(argument.depth for argument in arguments)
        if self.depth > _DEEPEST:
            raise InvalidRequest(
                f"Expected at most {_DEEPEST} operations inside each other", do="Derive a column for a part of it"
            )
        # Views that name a column twice double its expression, so the time to read a short text would have no limit.
        self.size = 1 + sum(argument.size for argument in arguments)
        if self.size > _LARGEST:
            raise InvalidRequest(
                f"Expected at most {_LARGEST} operations in one expression",
                do="Add the column to the table before it is described",
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
        if self.name == "CASE":
            pairs = zip((first, *rest[1:-1:2]), rest[:-1:2], strict=True)
            return " ".join(["CASE", *(f"WHEN {each} THEN {value}" for each, value in pairs), f"ELSE {rest[-1]} END"])
        if self.name in INFIX:
            return "(" + f" {self.name} ".join((first, *rest)) + ")"
        return f"{self.name}({', '.join((first, *rest))})"


class Lookup(Expression):
    """The entry of a public table under a key computed from the row; missing if the key is not in the table."""

    __slots__ = ("_entries", "depth", "key", "key_kinds", "keys", "label", "size", "value_kinds", "values")

    def __init__(self, key: Expression, keys: tuple[Plain, ...], values: tuple[Plain, ...], *, label: str) -> None:
        self.key, self.keys, self.values, self.label = key, keys, values, label
        self.depth, self.size = 1 + key.depth, 1 + key.size
        self._entries = ""
        # Found once: a public table may be long, and a statement asks for the kind of its columns many times.
        self.key_kinds = frozenset(map(constant_kind, keys))
        self.value_kinds = tuple(dict.fromkeys(map(constant_kind, values)))

    def parts(self) -> Iterator[Expression]:
        return iter((self.key,))

    def __repr__(self) -> str:
        # The entries change the meaning of the expression, so they are part of its printed form.
        if not self._entries:
            self._entries = hashlib.sha256(repr((self.keys, self.values)).encode()).hexdigest()[:12]
        return f"lookup({self.key!r}, {self.label} {self._entries})"


_DEEPEST = 100
_LARGEST = 5000
_ELSEWHERE = {
    **dict.fromkeys(("isna", "isnull", "is_null", "isnan"), "is_missing()"),
    **dict.fromkeys(("notna", "notnull", "is_not_null"), "~x.is_missing()"),
    **dict.fromkeys(("fillna", "fill_null", "coalesce"), "fill(0)"),
    **dict.fromkeys(("astype",), 'cast("integer")'),
    **dict.fromkeys(("startswith",), 'starts_with("A")'),
    **dict.fromkeys(("dayofweek", "isodow"), "weekday()"),
    **dict.fromkeys(("str", "dt"), 'the method itself, such as col("city").lower() or col("when").year()'),
    **dict.fromkeys(("sum", "mean", "count", "min", "max"), 'dataset.per_unit(total="sum(amount)")'),
}
"""What other libraries call a method, and how to write it here."""

CASTS = ("number", "integer", "boolean", "text", "time", "date")
INFIX = frozenset({"+", "-", "*", "/", "%", "||", "LIKE", "=", "<>", "<", "<=", ">", ">=", "AND", "OR"})
RESERVED = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "LIKE", "CASE", "CAST", "TIMESTAMP", "DATE"}
)


def col(name: str) -> ColumnName:
    """Refer to a column of the dataset, to build filters and derived columns from it.

    Parameters
    ----------
    name : str
        Name of a stored or derived column. Whether it exists is checked when the expression meets a dataset.

    Returns
    -------
    Expression
        The column.

    Examples
    --------
    >>> col("age") >= 65
    (age >= 65)
    """
    return ColumnName(name)


def is_exact(value: float) -> bool:
    """Return whether a number is finite and a 64-bit float holds it exactly."""
    try:
        return math.isfinite(value) and float(value) == value
    except OverflowError:
        return False


def as_utc(value: datetime.date) -> datetime.date:
    """Convert a date or moment to UTC without a zone, the form in which columns of times are compared.

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


def as_expression(value: Any) -> Expression:
    """Return an expression as it is and any other value as a constant."""
    return value if isinstance(value, Expression) else Literal(value)
