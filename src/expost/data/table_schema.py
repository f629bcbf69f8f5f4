"""The public columns of a table, and type checks of expressions against them, done before any row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, constant_kind
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation, is_exact

__all__ = ["Schema", "check_categories", "check_filter", "kind_of"]

_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "abs", "floor", "ceil", "round"})
_COMPARISON = frozenset({"=", "<>", "<", "<=", ">", ">="})
_LOGIC = frozenset({"AND", "OR", "NOT"})
_TEXT = {
    "lower": Kind.TEXT,
    "upper": Kind.TEXT,
    "length": Kind.REAL,
    "starts_with": Kind.BOOLEAN,
    "contains": Kind.BOOLEAN,
}
_CALENDAR = frozenset({"year", "month", "day", "hour", "weekday"})


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
            raise InvalidRequest("Expected the name of a column", got=column, do="See dataset.schema for the names")
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
        return constant_kind(expression.value)
    if isinstance(expression, Lookup):
        found = {kind_of(expression.key, schema, derived), *map(constant_kind, expression.keys)}
        if len({kind.family for kind in found if kind is not None}) > 1:
            raise InvalidRequest(
                f"Expected keys of one kind in {expression!r}", do="Give both tables a key column of the same kind"
            )
        return next((entry for value in expression.values if (entry := constant_kind(value))), Kind.REAL)
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
    name, known = expression.name, [kind for kind in kinds if kind is not None]
    result: Kind | None = Kind.BOOLEAN
    if name in _ARITHMETIC:
        fits, needs, result = all(kind.is_number for kind in known), "numbers", Kind.REAL
    elif name in _COMPARISON or name in ("IN", "coalesce"):
        fits, needs = len({kind.family for kind in known}) <= 1, "values of one kind"
        if name == "coalesce":  # booleans mixed with numbers are numbers
            result = Kind.REAL if len(set(known)) > 1 else next(iter(known), None)
    elif name in _LOGIC:
        fits, needs = all(kind is Kind.BOOLEAN for kind in known), "conditions"
    elif name == "IS NULL":
        return result
    elif name == "number":
        fits, needs, result = kinds[0] is not None and kinds[0] is not Kind.TIME, "a text or a number", Kind.REAL
    elif name in _TEXT:
        constants = all(isinstance(each, Literal) and isinstance(each.value, str) for each in expression.arguments[1:])
        fits, needs, result = kinds[0] is Kind.TEXT and constants, "a text column and constant texts", _TEXT[name]
    else:
        fits, needs, result = name in _CALENDAR and kinds[0] is Kind.TIME, "a time", Kind.INTEGER
    if not fits:
        written = "TIMESTAMP '2013-01-31' is a time" if Kind.TIME in known else "as_number() reads a number from a text"
        raise InvalidRequest(f"Expected {needs} in {expression!r}", do=f"Compare like with like; {written}")
    return result
