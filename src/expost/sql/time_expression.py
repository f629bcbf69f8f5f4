"""Times and conversions of a row: parts and periods, constants with intervals, casts."""

from __future__ import annotations

import calendar
import datetime
import re
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from expost.data import Expression, Kind
from expost.data.expression import Literal, Operation
from expost.data.row_function import PERIODS
from expost.sql.refusal import Node, SourceText, check_arguments

if TYPE_CHECKING:
    from expost.sql.row_expression import RowReader

__all__ = ["add_interval", "as_moment", "is_integer_type", "read_cast", "read_time"]

_PARTS = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "DAY": "day",
    "DAYOFMONTH": "day",
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "ISODOW": "weekday",
    "WEEK": "week",
    "WEEKOFYEAR": "week",
    "DOY": "dayofyear",
    "DAYOFYEAR": "dayofyear",
    "DAYOFWEEKISO": "weekday",
    "DAYOFWEEK_ISO": "weekday",
}
_PART_NODES = {
    "Year": "YEAR",
    "Quarter": "QUARTER",
    "Month": "MONTH",
    "Day": "DAY",
    "DayOfMonth": "DAY",
    "Hour": "HOUR",
    "Minute": "MINUTE",
    "Second": "SECOND",
    "DayOfWeekIso": "ISODOW",
    "DayOfYear": "DOY",
    "Week": "WEEK",
    "WeekOfYear": "WEEK",
    "DayOfWeek": "DOW",
}
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(?P<offset>Z|[-+]\d{2}(:?\d{2})?)?)?", re.ASCII
)
_INTERVALS = {
    "YEAR": ("month", 12),
    "QUARTER": ("month", 3),
    "MONTH": ("month", 1),
    "WEEK": ("days", 7),
    "DAY": ("days", 1),
    "HOUR": ("hours", 1),
    "MINUTE": ("minutes", 1),
    "SECOND": ("seconds", 1),
}
_INTEGERS = {"INT", "BIGINT", "SMALLINT", "TINYINT"}
_FLOATS = {"DOUBLE", "FLOAT"}
_CASTS = {"TIMESTAMPTZ": "Times are those of UTC: write TIMESTAMP '2024-01-31 12:30:00'"}
_TEXTS = {"TEXT", "VARCHAR"}
_MOMENTS = {"TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"}


def read_time(rows: RowReader, node: Node) -> Expression | None:
    """Read a part or period of a time; None if an expression is something else."""
    if isinstance(node, exp.Extract):
        part = str(node.this.name if isinstance(node.this, exp.Expression) else node.this).upper()
        return _read_part(rows, node, part, node.expression)
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "DATE_PART" and len(node.expressions) == 2:
        part, time = node.expressions
        return _read_part(rows, node, str(part.this).upper() if isinstance(part, exp.Literal) else "", time)
    part = _PART_NODES.get(type(node).__name__, "")
    if part:
        check_arguments(rows.source, node, "this")
        return _read_part(rows, node, part, node.this)
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        check_arguments(rows.source, node, "this", "unit")
        unit = node.args["unit"]
        period = str(unit.name if hasattr(unit, "name") else unit).lower()
        period = "week" if period.startswith("week") else period
        if period not in PERIODS:
            rows.source.refuse(node, f"one of {', '.join(PERIODS)}", got=period, do="Write DATE_TRUNC('month', t)")
        return rows.checked(node, _time_of(rows, node.this).date_trunc(period))
    if isinstance(node, exp.TsOrDsToDate | exp.Date):
        return rows.checked(node, Operation("date", (_time_of(rows, node.this),)))
    return None


def _time_of(rows: RowReader, node: Node) -> Expression:
    """Return a time; sqlglot wraps what functions of times take into casts."""
    value = rows.read(node)
    moment = as_moment(value, rows.source.dialect)
    return value if moment is None else moment


def _read_part(rows: RowReader, node: Node, part: str, value: Node) -> Expression:
    time = _time_of(rows, value)
    if rows.facts.kind(time) not in (Kind.TIME, None):
        rows.source.refuse(node, "a time", do="Write CAST(x AS TIMESTAMP), or declare the type of the column")
    if part in ("DOW", "DAYOFWEEK", "WEEKDAY"):
        # Sunday is 0 in DuckDB and PostgreSQL, and 1 in Spark.
        sunday = 1 if rows.source.dialect == "spark" else 0
        names = tuple(range(7))
        days = Operation("weekday", (time,))
        pairs = [each for day in names for each in (Operation("=", (days, Literal(day or 7))), Literal(day + sunday))]
        return Operation("CASE", (*pairs, Literal(None)))
    if part == "SECOND" and rows.source.dialect == "postgres":
        rows.source.refuse(node, "a part without fractions", do="Write DATE_TRUNC('second', t)")
    if part not in _PARTS:
        rows.source.refuse(node, f"one of {', '.join(sorted(_PARTS))}", got=part, do="Write EXTRACT(MONTH FROM t)")
    return rows.checked(node, Operation(_PARTS[part], (time,)))


def read_cast(rows: RowReader, node: exp.Cast) -> Expression:
    """Convert; missing where a value cannot be converted, in place of an error of the whole statement."""
    check_arguments(rows.source, node, "this", "to", "safe", "requires_string", "action", "format")
    if node.args.get("format") or node.args.get("action"):
        rows.source.refuse(node, "a cast without a format", do="Write CAST(x AS TIMESTAMP)")
    value, wanted = rows.read(node.this), node.args["to"]
    name = getattr(wanted.this, "name", str(wanted.this))
    if wanted.expressions or wanted.args.get("nested"):
        rows.source.refuse(node, "a type without arguments", do="Write CAST(x AS DOUBLE), or ROUND(x, 2)")
    if name == "DECIMAL" and rows.source.dialect == "postgres":  # as many digits as there are
        name = "DOUBLE"
    if isinstance(value, Literal) and isinstance(value.value, str) and (name in _MOMENTS or name == "DATE"):
        moment = as_moment(value, rows.source.dialect)
        if moment is None:
            rows.source.refuse(node, "a date or time in ISO form", do="Write TIMESTAMP '2024-01-31 12:30:00'")
        return moment if name != "DATE" else _day(moment)
    return _convert(rows, node, value, name)


def is_integer_type(wanted: exp.DataType) -> bool:
    """Return whether a type of SQL holds whole numbers."""
    return not wanted.expressions and getattr(wanted.this, "name", "") in _INTEGERS


def _convert(rows: RowReader, node: exp.Cast, value: Expression, name: str) -> Expression:
    """Return a value as one of another type."""
    kind = rows.facts.kind(value)
    if name in _INTEGERS:
        return rows.checked(node, _to_integer(rows, value, kind))
    if name in _FLOATS:
        return rows.checked(node, Operation("number", (value,)) if kind is not Kind.BOOLEAN else value + 0)
    if name == "BOOLEAN":
        return rows.checked(node, Operation("boolean", (value,)))
    if name in _TEXTS:
        if kind in (Kind.REAL, Kind.TIME):
            rows.source.refuse(node, "a cast to text of whole numbers, truths or texts only", do="Group by the value")
        return rows.checked(node, Operation("text", (value,)))
    if name == "DATE":
        return rows.checked(node, Operation("date", (value,)))
    if name in _MOMENTS:
        return rows.checked(node, Operation("time", (value,)))
    rows.source.refuse(
        node,
        "one of INTEGER, BIGINT, DOUBLE, BOOLEAN, VARCHAR, DATE, TIMESTAMP",
        got=name,
        do=_CASTS.get(name, "Write CAST(x AS DOUBLE)"),
    )


def _to_integer(rows: RowReader, value: Expression, kind: Kind | None) -> Expression:
    if kind is Kind.BOOLEAN:
        return Operation("integer", (value + 0,))
    if rows.source.dialect == "spark" and kind is Kind.REAL:  # Spark cuts fractions
        cut = Operation("CASE", (Operation("<", (value, Literal(0))), value.ceil(), value.floor()))
        return Operation("integer", (Operation("CASE", (value.is_missing(), Literal(None), cut)),))
    return Operation("integer", (value,))


def as_moment(value: Expression, dialect: str = "duckdb") -> Literal | None:
    """Return the time that a text constant spells, or None. Only DuckDB reads an offset from UTC in a time without a zone.

    >>> as_moment(Literal("2024-01-31 12:30:00+02")), as_moment(Literal("31.1.2024"))
    (TIMESTAMP '2024-01-31T10:30:00', None)
    """
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        return None
    found = _ISO.fullmatch(value.value)
    if found is None or (found["offset"] and dialect != "duckdb"):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value.value)
        return Literal(moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None))
    except (ValueError, OverflowError):
        return None


def _day(moment: Literal) -> Literal:
    """Return the start of a moment's day."""
    value: Any = moment.value
    return Literal(datetime.datetime(value.year, value.month, value.day))


def add_interval(source: SourceText, node: Node, start: Expression, interval: Node, sign: int) -> Literal:
    """Return a constant time moved by a constant interval. The day of a month is at most its last, as in SQL."""
    moment: Any = start.value if isinstance(start, Literal) else None
    if not isinstance(moment, datetime.datetime):
        source.refuse(
            node,
            "an interval that is added to a constant time",
            do="Move it to the constant: t > DATE '2024-01-31' - INTERVAL 30 DAY",
        )
    size, unit = interval.this, interval.args.get("unit")
    name = str(getattr(unit, "name", unit or "")).upper().removesuffix("S")
    digits = str(size.this) if isinstance(size, exp.Literal) else ""
    if name not in _INTERVALS or not digits.isascii() or not digits.isdigit() or len(digits) > 6:
        source.refuse(node, "an interval of one whole number and unit", do="Write INTERVAL 3 MONTH")
    count = sign * int(digits) * _INTERVALS[name][1]
    try:
        if _INTERVALS[name][0] != "month":
            return Literal(moment + datetime.timedelta(**{_INTERVALS[name][0]: count}))
        months = moment.year * 12 + moment.month - 1 + count
        year, month = months // 12, months % 12 + 1
        last = calendar.monthrange(year, month)[1]
        return Literal(moment.replace(year=year, month=month, day=min(moment.day, last)))
    except (ValueError, OverflowError, IndexError):
        source.refuse(node, "a time between the years 1 and 9999", do="Write a smaller interval")
