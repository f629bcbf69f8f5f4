"""The public columns of a table, and type checks of expressions against them, done before any row is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind, constant_kind
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation, is_exact
from expost.data.row_function import CONSTANTS, FUNCTIONS, NEEDS, bin_edges

__all__ = ["Schema", "check_categories", "check_filter", "kind_of"]

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
            raise InvalidRequest("Expected the name of a column", got=column, do=do)
        return self.kinds[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __contains__(self, column: object) -> bool:
        return column in self.kinds

    def __str__(self) -> str:
        return ", ".join(f"{name} {kind.value}" for name, kind in self.kinds.items())


def kind_of(expression: Expression, schema: Schema, derived: Mapping[str, Expression] | None = None) -> Kind | None:
    """Return the kind of an expression's values, or None for the bare constant NULL. Raise if the types do not fit.

    >>> from expost.data.expression import col
    >>> schema = Schema.of(pa.schema({"age": pa.int8(), "city": pa.string()}))
    >>> kind_of(col("age") * 2, schema)
    <Kind.REAL: 'real'>
    >>> kind_of(col("city") * 2, schema)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected numbers in '(city * 2)'. Compare like with like ...
    """
    derived = derived or {}
    if isinstance(expression, ColumnName):
        if expression.name in derived:
            return kind_of(derived[expression.name], schema, derived)
        kind = schema.kind(expression.name)
        if kind is Kind.OTHER:
            raise InvalidRequest(
                "Expected a column of numbers, texts, booleans or times",
                got=repr(expression),
                do="Choose another column",
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
    if kind_of(expression, schema, derived) is not Kind.BOOLEAN:
        raise InvalidRequest("Expected a condition", got=repr(expression), do='Compare something: col("age") >= 65')


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
        known = [kind for kind in kinds if kind is not None]
        written = "TIMESTAMP '2013-01-31' is a time" if Kind.TIME in known else "as_number() reads a number from a text"
        raise InvalidRequest(f"Expected {NEEDS[wrong]} in {expression!r}", do=f"Compare like with like; {written}")
    if function.gives is not None:
        return function.gives
    return Kind.REAL if len(set(shared)) > 1 else next(iter(shared), None)  # booleans mixed with numbers are numbers


def _check_edges(expression: Operation) -> None:
    """Raise if the ends of bins do not rise, or the bins are so narrow that floats merge two."""
    low, high, bins = (each.value for each in expression.arguments[1:] if isinstance(each, Literal))
    if not math.isfinite(high - low) or not (np.diff(bin_edges(low, high, bins)) > 0).all():
        raise InvalidRequest(
            f"Expected a lower end below the upper end in {expression!r}", do="Pass fewer bins or ends"
        )


_SHARED = frozenset({"same", "listed", "constant"})
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
