"""Computes expressions on a batch. No row can make it fail, and every row takes the same way through it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.canonical import canonical_column
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation
from expost.data.places import missing_cells, moment, places
from expost.data.values import Numbers, Texts, Times, Truths, Values, decoded, read_column

__all__ = ["cells", "evaluate", "moment"]

# What Arrow's parser of floats is known to accept; everything else is missing before it can complain.
_NUMBER = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$"


@dataclass(frozen=True, slots=True)
class _Nulls:
    """The bare constant NULL: of no kind, until it meets a value that has one."""

    rows: int

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.ones(self.rows, bool)

    def column(self) -> pa.Array:
        return pa.nulls(self.rows, pa.float64())


_Found = Values | _Nulls


def evaluate(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression] | None = None) -> Values:
    """The values of an expression on the rows of a batch, checked before by ``kind_of``.

    >>> from expost.data.expression import col
    >>> batch = pa.record_batch({"a": [6.0, 1.0, None], "b": [3, 0, 1]})
    >>> evaluate(col("a") / col("b"), batch).numbers.tolist()
    [2.0, nan, nan]
    """
    with np.errstate(all="ignore"):
        found = _evaluate(expression, batch, derived or {})
    return Numbers(_numbers(found)) if isinstance(found, _Nulls) else found


def cells(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression] | None = None) -> pa.Array:
    """Return the values of an expression as a canonical column, which is what every comparison for equality reads.

    A stored column comes as it is, so that integers beyond 2^53, decimals and nanoseconds stay apart.
    """
    stored = _stored(expression, batch, derived or {})
    return evaluate(expression, batch, derived).column() if stored is None else stored


def _stored(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> pa.Array | None:
    if not isinstance(expression, ColumnName) or expression.name in derived:
        return None
    return decoded(batch.column(expression.name))


def _evaluate(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> _Found:
    if isinstance(expression, ColumnName):
        if expression.name in derived:
            return _evaluate(derived[expression.name], batch, derived)
        return read_column(batch.column(expression.name))
    if isinstance(expression, Literal):
        return _constant(expression.value, batch.num_rows)
    if isinstance(expression, Lookup):
        return _look_up(expression, _cells(expression.key, batch, derived))
    assert isinstance(expression, Operation)
    if expression.name in ("AND", "OR"):
        return reduce(_APPLY[expression.name], (_evaluate(each, batch, derived) for each in expression.arguments))
    if expression.name == "IN":
        return _is_in(_cells(expression.arguments[0], batch, derived), expression.arguments[1:])
    if expression.name in _COMPARISONS:
        exact = _compare_exactly(expression, batch, derived)
        if exact is not None:
            return exact
    arguments = [_evaluate(argument, batch, derived) for argument in expression.arguments]
    return _APPLY[expression.name](*arguments)


def _cells(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> pa.Array:
    stored = _stored(expression, batch, derived)
    return _evaluate(expression, batch, derived).column() if stored is None else stored


def _compare_exactly(expression: Operation, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> Truths | None:
    """Compare what floats and microseconds would round: stored integers with whole numbers, others with a constant."""
    sides = [_whole(each, batch, derived) for each in expression.arguments]
    if all(side is not None for side in sides) and any(isinstance(each, ColumnName) for each in expression.arguments):
        (left, known), (right, also) = (side for side in sides if side is not None)
        return Truths(_COMPARISONS[expression.name](left, right), np.broadcast_to(known & also, batch.num_rows))
    columns = [each for each in expression.arguments if not isinstance(each, Literal)]
    constants = [each.value for each in expression.arguments if isinstance(each, Literal) and each.value is not None]
    if expression.name not in ("=", "<>") or len(columns) != 1 or len(constants) != 1:
        return None
    stored = _stored(columns[0], batch, derived)
    if stored is None:
        return None
    found = places(stored, constants) >= 0
    return Truths(found if expression.name == "=" else ~found, ~missing_cells(stored))


def _whole(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> tuple[Any, Any] | None:
    """Return a stored integer column or a whole constant as exact integers, and which of them are known."""
    if isinstance(expression, Literal):
        value = expression.value
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return (int(value), np.True_) if is_whole else None
    stored = _stored(expression, batch, derived)
    if stored is None or not pa.types.is_integer(stored.type):
        return None
    return stored.fill_null(0).to_numpy(), ~missing_cells(stored)


def _constant(value: Any, rows: int) -> _Found:
    if value is None:
        return _Nulls(rows)
    if isinstance(value, bool):
        return Truths(np.full(rows, value), np.ones(rows, bool))
    if isinstance(value, datetime.date):
        return Times(np.full(rows, moment(value)))
    if isinstance(value, str):
        return Texts(pa.repeat(pa.scalar(value, pa.large_string()), rows))
    return Numbers(np.full(rows, float(value)))


def _numbers(values: _Found) -> NDArray[np.float64]:
    if isinstance(values, Truths):
        return np.where(values.known, values.true, np.nan)
    if isinstance(values, _Nulls):
        return np.full(values.rows, np.nan)
    assert isinstance(values, Numbers)
    return values.numbers


def _truths(values: _Found) -> Truths:
    if isinstance(values, Truths):
        return values
    assert isinstance(values, _Nulls)
    return Truths(np.zeros(values.rows, bool), np.zeros(values.rows, bool))


def _arithmetic(function: Callable[..., Any]) -> Callable[..., _Found]:
    return lambda *values: Numbers.of(function(*map(_numbers, values)))


def _divide(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(left, right)  # x / 0 is infinite or NaN, hence missing


def _compare(text: Callable[..., Any], number: Callable[..., Any]) -> Callable[[_Found, _Found], Truths]:
    def compared(left: _Found, right: _Found) -> Truths:
        known = ~(left.missing | right.missing)
        if isinstance(left, Texts) and isinstance(right, Texts):
            found = pc.fill_null(text(left.texts, right.texts), False).to_numpy(zero_copy_only=False)
        elif isinstance(left, Times) and isinstance(right, Times):
            found = number(left.moments, right.moments)
        elif isinstance(left, _Nulls) or isinstance(right, _Nulls):
            found = np.zeros(len(known), bool)
        else:
            found = number(_numbers(left), _numbers(right))
        return Truths(np.asarray(found, bool), known)

    return compared


def _and(left: _Found, right: _Found) -> Truths:
    a, b = _truths(left), _truths(right)
    surely_false = (a.known & ~a.true) | (b.known & ~b.true)
    return Truths(a.true & b.true & ~surely_false, (a.known & b.known) | surely_false)


def _or(left: _Found, right: _Found) -> Truths:
    a, b = _truths(left), _truths(right)
    surely = a.certain | b.certain
    return Truths(surely, (a.known & b.known) | surely)


def _not(value: _Found) -> Truths:
    truths = _truths(value)
    return Truths(~truths.true, truths.known)


def _is_null(value: _Found) -> Truths:
    return Truths(value.missing, np.ones(len(value.missing), bool))


def _is_in(column: pa.Array, constants: tuple[Expression, ...]) -> Truths:
    listed = [each.value for each in constants if isinstance(each, Literal) and each.value is not None]
    sure = places(column, listed) >= 0
    # As in SQL: a value that is not found in a list with NULL might be equal to what is unknown there.
    known = sure if len(listed) < len(constants) else ~missing_cells(column)
    return Truths(sure, known)


def _coalesce(value: _Found, other: _Found) -> _Found:
    if isinstance(value, _Nulls) or isinstance(other, _Nulls):
        return other if isinstance(value, _Nulls) else value
    missing = value.missing
    if isinstance(value, Texts) and isinstance(other, Texts):
        return Texts(pc.if_else(pa.array(missing), other.texts, value.texts))
    if isinstance(value, Times) and isinstance(other, Times):
        return Times(np.where(missing, other.moments, value.moments))
    if isinstance(value, Truths) and isinstance(other, Truths):
        return Truths(np.where(missing, other.true, value.true), value.known | other.known)
    return Numbers(np.where(missing, _numbers(other), _numbers(value)))


def _look_up(lookup: Lookup, key: pa.Array) -> _Found:
    found = places(key, lookup.keys)
    return read_column(_entries(lookup.values).take(pa.array(found, mask=found < 0)))


def _entries(values: tuple[Any, ...]) -> pa.Array:
    """Return the entries of a public table as a canonical column."""
    try:
        return canonical_column(pa.array(values))
    except OverflowError:  # integers beyond 64 bits with a sign; a looked-up number is a float like every computed one
        return canonical_column(pa.array([None if value is None else float(value) for value in values], pa.float64()))


def _text(function: Callable[..., Any]) -> Callable[..., _Found]:
    def applied(value: _Found, *constants: _Found) -> _Found:
        if not isinstance(value, Texts):
            return value
        found = function(value.texts, *(_first_text(each) for each in constants))
        return read_column(found)

    return applied


def _first_text(value: _Found) -> str:
    assert isinstance(value, Texts)
    return str(value.texts[0].as_py()) if len(value.texts) else ""


def _to_number(value: _Found) -> _Found:
    if not isinstance(value, Texts):
        return Numbers.of(_numbers(value))
    trimmed = pc.ascii_trim_whitespace(value.texts)
    spelled = pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, pa.scalar(None, pa.large_string()))
    return Numbers.of(np.asarray(spelled.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64))


def _calendar(function: Callable[[Any], Any]) -> Callable[[_Found], _Found]:
    def read(value: _Found) -> _Found:
        assert isinstance(value, Times)
        numbers = function(value.moments).astype(np.float64)
        return Numbers(np.where(value.missing, np.nan, numbers))

    return read


def _since(moments: Any, fine: str, coarse: str) -> Any:
    return (moments.astype(f"datetime64[{fine}]") - moments.astype(f"datetime64[{coarse}]")).astype(np.int64)


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_APPLY: dict[str, Callable[..., _Found]] = {
    "+": _arithmetic(np.add),
    "-": _arithmetic(np.subtract),
    "*": _arithmetic(np.multiply),
    "/": _arithmetic(_divide),
    "%": _arithmetic(np.mod),
    "abs": _arithmetic(np.abs),
    "floor": _arithmetic(np.floor),
    "ceil": _arithmetic(np.ceil),
    "round": _arithmetic(np.rint),
    "=": _compare(pc.equal, np.equal),
    "<>": _compare(pc.not_equal, np.not_equal),
    "<": _compare(pc.less, np.less),
    "<=": _compare(pc.less_equal, np.less_equal),
    ">": _compare(pc.greater, np.greater),
    ">=": _compare(pc.greater_equal, np.greater_equal),
    "AND": _and,
    "OR": _or,
    "NOT": _not,
    "IS NULL": _is_null,
    "coalesce": _coalesce,
    "lower": _text(pc.ascii_lower),
    "upper": _text(pc.ascii_upper),
    "length": _text(pc.binary_length),
    "starts_with": _text(pc.starts_with),
    "contains": _text(pc.match_substring),
    "number": _to_number,
    "year": _calendar(lambda t: t.astype("datetime64[Y]").astype(np.int64) + 1970),
    "month": _calendar(lambda t: _since(t, "M", "Y") + 1),
    "day": _calendar(lambda t: _since(t, "D", "M") + 1),
    "hour": _calendar(lambda t: _since(t, "h", "D")),
    "weekday": _calendar(lambda t: (t.astype("datetime64[D]").astype(np.int64) + 3) % 7 + 1),
}
