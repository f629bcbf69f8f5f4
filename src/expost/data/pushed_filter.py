"""Parts of a filter that a source can apply itself, so that other rows are not read at all.

A pushed filter keeps at least the rows for which the whole filter is known to hold; the rows that it keeps are filtered again.
So it needs no exact translation. A comparison that a source could fail on, or decide otherwise, is left out.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeVar

from expost.data.canonical_cell import Kind
from expost.data.expression import ColumnName, Expression, Literal, Operation

__all__ = ["FilterWriter", "SqlWriter", "expand_columns", "push_filter"]

T = TypeVar("T")

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LARGEST = 2**63


class FilterWriter(Protocol[T]):
    """Writes the parts of a pushed filter in the language of a source."""

    def compare(self, column: str, sign: str, value: Any) -> T:
        """Return the comparison of a column with a constant."""
        ...

    def contain(self, column: str, values: tuple[Any, ...]) -> T:
        """Return whether a column is one of some constants."""
        ...

    def be_present(self, column: str) -> T:
        """Return whether a column is not missing."""
        ...

    def combine(self, sign: str, parts: list[T]) -> T:
        """Return the parts combined by AND or OR."""
        ...


def push_filter(condition: Expression, kinds: Mapping[str, Kind], writer: FilterWriter[T]) -> T | None:
    """Return what a source can filter by; None if nothing.

    Parameters
    ----------
    condition : Expression
        A filter over stored columns.
    kinds : mapping of str to Kind
        The columns that the source compares as this package does: integers, floats, texts by their bytes, truth values, and
        times. Missing numbers may be kept by any comparison.
    writer : FilterWriter
        How a part is written.

    Examples
    --------
    >>> from expost.data.expression import col
    >>> condition = (col("age") >= 40) & (col("age") / 2 < 30) & ((col("city") == "Rome") | (col("age") == 50))
    >>> print(push_filter(condition, {"age": Kind.INTEGER, "city": Kind.TEXT}, SqlWriter()))
    ("age" >= 40 AND ("city" = 'Rome' OR "age" = 50))
    """
    return _push(condition, kinds, writer, negated=False)


def expand_columns(condition: Expression, derived: Mapping[str, Expression]) -> Expression:
    """Return an expression over stored columns."""
    if isinstance(condition, ColumnName):
        return expand_columns(derived[condition.name], derived) if condition.name in derived else condition
    if isinstance(condition, Operation):
        return Operation(condition.name, tuple(expand_columns(each, derived) for each in condition.arguments))
    return condition


def _push(condition: Expression, kinds: Mapping[str, Kind], writer: FilterWriter[T], *, negated: bool) -> T | None:
    if isinstance(condition, ColumnName):
        return writer.compare(condition.name, "=", not negated) if kinds.get(condition.name) is Kind.BOOLEAN else None
    if not isinstance(condition, Operation):
        return None
    name, given = condition.name, condition.arguments
    if name == "NOT":
        return _push(given[0], kinds, writer, negated=not negated)
    if name in ("AND", "OR"):
        parts = [_push(each, kinds, writer, negated=negated) for each in given]
        known = [part for part in parts if part is not None]
        together = (name == "AND") != negated
        if not known or (len(known) < len(parts) and not together):
            return None
        return known[0] if len(known) == 1 else writer.combine("AND" if together else "OR", known)
    if name == "IS NULL" and negated and isinstance(given[0], ColumnName) and given[0].name in kinds:
        return writer.be_present(given[0].name)
    if name == "IN" and not negated:
        return _push_list(given, kinds, writer)
    return _push_comparison(name, given, kinds, writer, negated=negated) if name in _OPPOSITE else None


def _push_comparison(
    sign: str, given: tuple[Expression, ...], kinds: Mapping[str, Kind], writer: FilterWriter[T], *, negated: bool
) -> T | None:
    left, right = given
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED[sign]
    if not isinstance(left, ColumnName) or not isinstance(right, Literal):
        return None
    sign, kind = _OPPOSITE[sign] if negated else sign, kinds.get(left.name)
    # Texts have another order, and perhaps another equality, than that of their bytes.
    if not _is_sound(right.value, kind) or (kind in (Kind.TEXT, Kind.BOOLEAN) and sign != "="):
        return None
    return writer.compare(left.name, sign, _as_kind(right.value, kind))


def _push_list(given: tuple[Expression, ...], kinds: Mapping[str, Kind], writer: FilterWriter[T]) -> T | None:
    column, *constants = given
    values = [each.value for each in constants if isinstance(each, Literal) and each.value is not None]
    if not isinstance(column, ColumnName) or not values or not all(isinstance(each, Literal) for each in constants):
        return None
    kind = kinds.get(column.name)
    if not all(_is_sound(value, kind) for value in values):
        return None
    return writer.contain(column.name, tuple(_as_kind(value, kind) for value in values))


def _as_kind(value: Any, kind: Kind | None) -> Any:
    """Return a sound constant in the type of the column, so that nothing is rounded to compare."""
    if kind is Kind.TIME:
        moment = (
            value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
        )
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return int(value) if kind is Kind.INTEGER else float(value) if kind is Kind.REAL else value


def _is_sound(value: Any, kind: Kind | None) -> bool:
    """Return whether a source compares a constant with a column of this kind without failing or rounding."""
    if isinstance(value, bool):
        return kind is Kind.BOOLEAN
    if isinstance(value, int):
        return kind in (Kind.INTEGER, Kind.REAL) and abs(value) < (_LARGEST if kind is Kind.INTEGER else 2**53)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < _LARGEST
        return (kind is Kind.REAL and abs(value) < float("inf")) or (kind is Kind.INTEGER and whole)
    if isinstance(value, str):
        return kind is Kind.TEXT and value.isascii() and value.isprintable()
    return isinstance(value, datetime.date) and kind is Kind.TIME


class SqlWriter:
    """Writes a filter in the SQL that PostgreSQL and DuckDB share."""

    def compare(self, column: str, sign: str, value: Any) -> str:
        """Return a comparison."""
        return f"{_quote(column)} {sign} {_write_constant(value)}"

    def contain(self, column: str, values: Collection[Any]) -> str:
        """Return a test of membership."""
        return f"{_quote(column)} IN ({', '.join(map(_write_constant, values))})"

    def be_present(self, column: str) -> str:
        """Return a test that a cell is not null."""
        return f"{_quote(column)} IS NOT NULL"

    def combine(self, sign: str, parts: list[str]) -> str:
        """Return a combination."""
        return f"({f' {sign} '.join(parts)})"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _write_constant(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"CAST('{value!r}' AS double precision)"
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
