"""Whether an expression makes sense on a schema, decided before any row is read."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from expost.core import InvalidRequest
from expost.data.axis import Categories
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation, is_exact
from expost.data.schema import Kind, Schema

__all__ = ["check_categories", "check_filter", "kind_of"]

_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "abs", "floor", "ceil", "round"})
_COMPARISON = frozenset({"=", "<>", "<", "<=", ">", ">="})
_LOGIC = frozenset({"AND", "OR", "NOT"})
_TEXT = {"lower": Kind.TEXT, "upper": Kind.TEXT, "length": Kind.REAL, "starts_with": Kind.BOOLEAN}
_TEXT["contains"] = Kind.BOOLEAN
_CALENDAR = frozenset({"year", "month", "day", "hour", "weekday"})


def kind_of(expression: Expression, schema: Schema, derived: Mapping[str, Expression] | None = None) -> Kind | None:
    """The kind of an expression's values, or None for the bare constant NULL; nonsense is refused.

    >>> import pyarrow as pa
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
        return _usable(schema.kind(expression.name), expression)
    if isinstance(expression, Literal):
        return _constant_kind(expression.value)
    if isinstance(expression, Lookup):
        found = {kind_of(expression.key, schema, derived), *map(_constant_kind, expression.keys)}
        if len({_family(kind) for kind in found if kind is not None}) > 1:
            raise InvalidRequest(
                f"Expected keys of one kind in {expression!r}", do="Give both tables a key column of the same kind"
            )
        return next((kind for value in expression.values if (kind := _constant_kind(value))), Kind.REAL)
    assert isinstance(expression, Operation)
    kinds = [kind_of(argument, schema, derived) for argument in expression.arguments]
    return _operation_kind(expression, kinds)


def check_filter(expression: Expression, schema: Schema, derived: Mapping[str, Expression] | None = None) -> None:
    """Refuse a filter that is not a condition."""
    if kind_of(expression, schema, derived) is not Kind.BOOLEAN:
        raise InvalidRequest("Expected a condition", got=repr(expression), do='Compare something: col("age") >= 65')


def check_categories(axis: Categories, schema: Schema, derived: Mapping[str, Expression] | None = None) -> None:
    """Refuse categories that no value of the column could ever equal, or that floats cannot tell apart."""
    kind = kind_of(axis.expression, schema, derived)
    listed = [value for value in axis.values if value is not None]
    if kind is not None and any(_family(_constant_kind(value) or kind) is not _family(kind) for value in listed):
        raise InvalidRequest(
            f"Expected categories of {axis.expression!r} of the kind {kind.value}",
            do="List values as the column has them",
        )
    stored = isinstance(axis.expression, ColumnName) and axis.expression.name not in (derived or {})
    if not (stored and kind is Kind.INTEGER) and not all(is_exact(v) for v in listed if isinstance(v, int | float)):
        raise InvalidRequest(
            f"Expected categories of {axis.expression!r} that 64-bit floats hold exactly",
            do="Store large whole numbers in a column of integers, or as texts",
        )


def _usable(kind: Kind, expression: Expression) -> Kind:
    if kind is Kind.OTHER:
        raise InvalidRequest(
            "Expected a column of numbers, texts, truths or times", got=repr(expression), do="Choose another column"
        )
    return kind


def _constant_kind(value: object) -> Kind | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, datetime.date):
        return Kind.TIME
    return Kind.TEXT if isinstance(value, str) else Kind.REAL


def _operation_kind(expression: Operation, kinds: list[Kind | None]) -> Kind | None:
    name = expression.name
    if name in _ARITHMETIC:
        _need(expression, all(kind is None or kind.is_number for kind in kinds), "numbers")
        return Kind.REAL
    if name in _COMPARISON or name in ("IN", "coalesce"):
        _need(expression, len({_family(kind) for kind in kinds if kind is not None}) <= 1, "values of one kind")
        return Kind.BOOLEAN if name != "coalesce" else _common_kind(kinds)
    if name in _LOGIC:
        _need(expression, all(kind in (None, Kind.BOOLEAN) for kind in kinds), "conditions")
        return Kind.BOOLEAN
    if name == "IS NULL":
        return Kind.BOOLEAN
    if name == "number":
        _need(expression, kinds[0] is not None and kinds[0] is not Kind.TIME, "a text or a number")
        return Kind.REAL
    if name in _TEXT:
        _need(expression, kinds[0] is Kind.TEXT and _constants(expression), "a text column and constant texts")
        return _TEXT[name]
    _need(expression, name in _CALENDAR and kinds[0] is Kind.TIME, "a time")
    return Kind.INTEGER


def _common_kind(kinds: list[Kind | None]) -> Kind | None:
    """The kind of values of one family, some of which may be the constant NULL: truths among numbers are numbers."""
    found = {kind for kind in kinds if kind is not None}
    return Kind.REAL if len(found) > 1 else next(iter(found), None)


def _constants(expression: Operation) -> bool:
    return all(isinstance(each, Literal) and isinstance(each.value, str) for each in expression.arguments[1:])


def _family(kind: Kind) -> Kind:
    return Kind.REAL if kind.is_number else kind


def _need(expression: Operation, holds: bool, what: str) -> None:
    if not holds:
        raise InvalidRequest(
            f"Expected {what} in {expression!r}", do="Compare like with like; as_number() reads a number from a text"
        )
