"""The public columns of a table, and type checks of expressions against them, done before any row is read."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind, constant_kind
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation, is_exact
from expost.data.row_function import CONSTANTS, FUNCTIONS, NEEDS, PERIODS, bin_edges

__all__ = ["Schema", "check_categories", "check_filter", "kind_of", "read_time_constants"]

_NAMES_SHOWN = 12  # columns that an error lists


@dataclass(frozen=True, slots=True)
class Schema:
    """Names and kinds of a table's columns, in the order of the source. Public by declaration.

    Iterating gives the names; ``name in schema`` tests for a column.

    Parameters
    ----------
    kinds : mapping of str to Kind
        The kind of each column.

    Examples
    --------
    >>> schema = Schema.of(pa.schema({"age": pa.int8(), "city": pa.string()}))
    >>> print(schema)
    age integer, city text
    """

    kinds: Mapping[str, Kind]

    @classmethod
    def of(cls, arrow: pa.Schema) -> Schema:
        """Convert an Arrow schema.

        Parameters
        ----------
        arrow : pyarrow.Schema
            Names and types of the columns.
        """
        if len(set(arrow.names)) != len(arrow.names):
            raise InvalidRequest("Expected column names without repeats", do="Rename the repeated columns")
        return cls({field.name: Kind.of(field.type) for field in arrow})

    def kind(self, column: str) -> Kind:
        """Return the kind of a column.

        Parameters
        ----------
        column : str
            Name of the column.
        """
        if column not in self.kinds:
            listed = ", ".join([*self.kinds][:_NAMES_SHOWN]) + (", ..." if len(self.kinds) > _NAMES_SHOWN else "")
            do = suggest_name(column, self.kinds) or f"Name one of: {listed}"
            time = next((name for name, kind in self.kinds.items() if kind is Kind.TIME), None)
            if column in PERIODS and time is not None:  # by="month" asks for the months of a time
                do = f'Write "{_period_of(column, time)}", or ask count_over_time("{time}", every="{column}")'
            raise InvalidRequest("Expected the name of a column", got=column, do=do)
        return self.kinds[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __contains__(self, column: object) -> bool:
        return column in self.kinds

    def __str__(self) -> str:
        return ", ".join(f"{name} {kind.value}" for name, kind in self.kinds.items())


def _period_of(period: str, time: str) -> str:
    """Return the formula of a part of a time, or of the period in which it lies."""
    return f"{period}({time})" if period in FUNCTIONS and period != "week" else f"date_trunc('{period}', {time})"


def kind_of(expression: Expression, schema: Schema, derived: Mapping[str, Expression] | None = None) -> Kind | None:
    """Return the kind of an expression's values, or None for the bare constant NULL. Raise if the types do not fit.

    >>> from expost.data.expression import col
    >>> schema = Schema.of(pa.schema({"age": pa.int8(), "city": pa.string()}))
    >>> kind_of(col("age") * 2, schema)
    <Kind.REAL: 'real'>
    >>> kind_of(col("city") * 2, schema)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected numbers in (city * 2): city is a text, 2 is a number. ...
    """
    derived = derived or {}
    if isinstance(expression, ColumnName):
        if expression.name in derived:
            return kind_of(derived[expression.name], schema, derived)
        if expression.quoted and expression.name not in schema:
            raise InvalidRequest(
                "Expected the name of a column in double quotes",
                got=expression.name,
                do=suggest_name(expression.name, schema.kinds) or f"Write a text in single quotes: '{expression.name}'",
            )
        kind = schema.kind(expression.name)
        if kind is Kind.OTHER:
            raise InvalidRequest(
                f"Expected a column of numbers, texts, booleans or times, but {expression!r} holds values of another type",
                do="Choose another column, or convert this one before",
            )
        return kind
    if isinstance(expression, Literal):
        whole = isinstance(expression.value, int) and not isinstance(expression.value, bool)
        return Kind.INTEGER if whole else constant_kind(expression.value)
    if isinstance(expression, Lookup):
        found = {kind_of(expression.key, schema, derived), *expression.key_kinds}
        if len({kind.family for kind in found if kind is not None}) > 1:
            raise InvalidRequest(
                f"Expected keys of one kind in {expression!r}", do="Give both tables a key column of the same kind"
            )
        return next((entry for entry in expression.value_kinds if entry), Kind.REAL)
    assert isinstance(expression, Operation)
    return _operation_kind(expression, [kind_of(each, schema, derived) for each in expression.arguments])


def check_filter(expression: Expression, schema: Schema, derived: Mapping[str, Expression] | None = None) -> None:
    """Raise if a filter is not a condition."""
    kind = kind_of(expression, schema, derived)
    if kind is not Kind.BOOLEAN:
        do = 'Compare something: col("age") >= 65'
        if kind is Kind.TEXT and isinstance(expression, ColumnName):
            do += f', or pass Dataset(types={{"{expression.name}": "boolean"}}) if its cells are true and false'
        raise InvalidRequest("Expected a condition", got=repr(expression), do=do)


def read_time_constants(
    name: str, arguments: tuple[Expression, ...], schema: Schema, derived: Mapping[str, Expression]
) -> tuple[Expression, ...]:
    """Return the arguments of an operation, with constant texts as times where the others are times, as in SQL.

    >>> schema = Schema.of(pa.schema({"born": pa.timestamp("us")}))
    >>> read_time_constants("<", (ColumnName("born"), Literal("1990-01-31")), schema, {})
    (born, TIMESTAMP '1990-01-31T00:00:00')
    """
    function = FUNCTIONS.get(name)
    if function is None or not function.accepts(len(arguments)):
        return arguments
    together = [
        place
        for place in range(len(arguments))
        if function.argument(place) in _SHARED
        and not (name == "CASE" and place % 2 == 0 and place < len(arguments) - 1)
    ]
    texts = {place for place in together if _is_text(arguments[place])}
    others = [arguments[place] for place in together if place not in texts]
    if not texts or not any(kind_of(each, schema, derived) is Kind.TIME for each in others):
        return arguments
    return tuple(_read_time(each) if place in texts else each for place, each in enumerate(arguments))


def _is_text(expression: Expression) -> bool:
    return isinstance(expression, Literal) and isinstance(expression.value, str)


def _read_time(constant: Expression) -> Literal:
    assert isinstance(constant, Literal)
    try:
        return Literal(datetime.datetime.fromisoformat(constant.value.strip()))
    except ValueError:
        raise InvalidRequest(
            "Expected a date or time to compare a time with",
            got=constant.value,
            do="Write it like '2013-01-31' or '2013-01-31 12:30:00'",
        ) from None


def check_categories(
    expression: Expression,
    values: Sequence[object],
    kind: Kind | None,
    derived: Mapping[str, Expression] | None = None,
) -> None:
    """Raise if a category could never equal a value of an expression of this kind, or if floats would merge two."""
    listed = [value for value in values if value is not None]
    kinds = () if kind is None else map(constant_kind, listed)
    for found in kinds:
        if kind is not None and found is not None and found.family is not kind.family:
            raise InvalidRequest(
                f"Expected categories of {expression!r} of the kind {kind.value}",
                do="List values as the column has them",
            )
    stored = isinstance(expression, ColumnName) and expression.name not in (derived or {})
    if not (stored and kind is Kind.INTEGER) and not all(is_exact(v) for v in listed if isinstance(v, int | float)):
        raise InvalidRequest(
            f"Expected categories of {expression!r} that 64-bit floats hold exactly",
            do="Store large whole numbers in a column of integers, or as texts",
        )


def _operation_kind(expression: Operation, kinds: list[Kind | None]) -> Kind | None:
    """Return the kind of an operation's results from the kinds of its arguments."""
    function, arguments = FUNCTIONS[expression.name], expression.arguments
    even_case = expression.name == "CASE" and len(arguments) % 2 == 0
    if even_case or not function.accepts(len(arguments)):
        raise InvalidRequest(f"Expected {', '.join(function.takes)} as arguments of {expression!r}", do="Check them")
    needs = [function.argument(place) or "" for place in range(len(arguments))]
    if expression.name == "CASE":
        needs[:-1:2] = ["condition"] * (len(needs) // 2)
    for argument, need in zip(arguments, needs, strict=True):
        if need in CONSTANTS:
            words, fits = CONSTANTS[need]
            if not isinstance(argument, Literal) or not fits(argument.value):
                raise InvalidRequest(f"Expected {words} in {expression!r}", do="Write the constant itself")
    if expression.name in ("bin", "width_bucket"):
        _check_edges(expression)
    checked = [(kind, need) for kind, need in zip(kinds, needs, strict=True) if need in NEEDS]
    shared = [kind for kind, need in zip(kinds, needs, strict=True) if need in _SHARED and kind is not None]
    wrong = next((need for kind, need in checked if not _FITS[need](kind)), None)
    if wrong is None and len({kind.family for kind in shared}) > 1:
        wrong = "same"
    if wrong is not None:
        _refuse_kinds(f"Expected {NEEDS[wrong]} in {expression!r}", arguments, kinds, needs)
    if function.gives is not None:
        return function.gives
    return Kind.REAL if len(set(shared)) > 1 else next(iter(shared), None)  # booleans mixed with numbers are numbers


def _refuse_kinds(
    reason: str, arguments: Sequence[Expression], kinds: Sequence[Kind | None], needs: Sequence[str]
) -> NoReturn:
    """Raise for values of different kinds: state what each of them is, and how to write them as one kind."""
    values = [
        (each, kind)
        for each, kind, need in zip(arguments, kinds, needs, strict=True)
        if kind is not None and need not in _WRITTEN_AS_THEY_ARE
    ]
    described = [f"{each!r} is {kind.described}" for each, kind in values[:_NAMES_SHOWN]]
    others = [kind for _, kind in values if kind is not Kind.TEXT]
    is_time = Kind.TIME in others or (not others and "time" in needs)
    column = next((each for each, kind in values if kind is Kind.TEXT and not isinstance(each, Literal)), None)
    # A flag in a CSV file is a text until its type is declared.
    is_flag = "condition" in needs and set(others) <= {Kind.BOOLEAN}
    declared = "time" if is_time else "boolean" if is_flag else "real"
    cast = "number" if declared == "real" else declared
    if column is None:
        do = "Compare like with like: 'a text', 3.5, TIMESTAMP '2013-01-31'"
    elif isinstance(column, ColumnName):
        do = f'Pass Dataset(types={{"{column.name}": "{declared}"}}), or write CAST({column!r} AS {cast})'
    else:
        do = f"Write CAST({column!r} AS {cast})"
    raise InvalidRequest(": ".join([reason, ", ".join(dict.fromkeys(described))]), do=do)


def _check_edges(expression: Operation) -> None:
    """Raise if the ends of bins do not rise, or the bins are so narrow that floats merge two."""
    low, high, bins = (each.value for each in expression.arguments[1:] if isinstance(each, Literal))
    if not math.isfinite(high - low) or not (np.diff(bin_edges(low, high, bins)) > 0).all():
        raise InvalidRequest(
            f"Expected a lower end below the upper end in {expression!r}", do="Pass fewer bins or ends"
        )


_SHARED = frozenset({"same", "listed", "constant"})
_WRITTEN_AS_THEY_ARE = frozenset(CONSTANTS) - _SHARED
_FITS: Mapping[str, Callable[[Kind | None], bool]] = {
    "number": lambda kind: kind is None or kind.is_number,
    "text": lambda kind: kind is Kind.TEXT,
    "time": lambda kind: kind is Kind.TIME,
    "condition": lambda kind: kind is None or kind is Kind.BOOLEAN,
    "same": lambda kind: True,
    "listed": lambda kind: True,
    "readable": lambda kind: kind is Kind.TEXT or (kind is not None and kind.is_number),
    "dated": lambda kind: kind in (Kind.TEXT, Kind.TIME),
    "written": lambda kind: kind is not None,
    "maybe": lambda kind: True,
}
