"""Evaluate expressions on a batch. No row can make it fail, and every row takes the same path through the code."""

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

from expost.data.canonical_cell import Kind, canonical_column, decode_column, float_cells, missing_cells
from expost.data.expression import ColumnName, Expression, Literal, Lookup, Operation
from expost.data.value_place import find_places, to_moment

__all__ = [
    "Numbers",
    "Texts",
    "Times",
    "Truths",
    "Values",
    "evaluate",
    "evaluate_cells",
    "evaluate_filter",
    "read_column",
]

Derived = Mapping[str, Expression]

# The spellings that Arrow's float parser is known to accept. Any other text is missing before the parser sees it.
_NUMBER = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Floats in canonical form; NaN is missing."""

    numbers: NDArray[np.float64]

    @classmethod
    def from_computed(cls, numbers: NDArray[np.float64]) -> Numbers:
        """Convert computed numbers to canonical form: NaN and infinities are missing, and zero has no sign."""
        return cls(np.where(np.isfinite(numbers), numbers + 0.0, np.nan))

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.numbers)

    def to_column(self) -> pa.Array:
        return pa.array(self.numbers)

    def to_floats(self) -> NDArray[np.float64]:
        return self.numbers


@dataclass(frozen=True, slots=True)
class Truths:
    """Booleans in three-valued logic: ``true`` counts only where ``known``."""

    true: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @property
    def missing(self) -> NDArray[np.bool_]:
        return ~self.known

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Mask of the values known to be true, which is what a filter keeps."""
        return self.true & self.known

    def to_column(self) -> pa.Array:
        return pa.array(self.true, mask=~self.known)

    def to_floats(self) -> NDArray[np.float64]:
        return np.where(self.known, self.true, np.nan)


@dataclass(frozen=True, slots=True)
class Texts:
    """An Arrow array of text; null is missing."""

    texts: pa.Array

    @property
    def missing(self) -> NDArray[np.bool_]:
        return _to_mask(self.texts.is_null())

    def to_column(self) -> pa.Array:
        return self.texts


@dataclass(frozen=True, slots=True)
class Times:
    """Moments in microseconds since 1970 (UTC); NaT is missing."""

    moments: NDArray[np.datetime64]

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnat(self.moments)

    def to_column(self) -> pa.Array:
        return pa.array(self.moments)


@dataclass(frozen=True, slots=True)
class _Nulls:
    """The bare constant NULL, which has no kind until it is combined with a value that has one."""

    rows: int

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.ones(self.rows, bool)

    def to_column(self) -> pa.Array:
        return pa.nulls(self.rows, pa.float64())

    def to_floats(self) -> NDArray[np.float64]:
        return np.full(self.rows, np.nan)


Values = Numbers | Truths | Texts | Times
_Found = Values | _Nulls


def evaluate(expression: Expression, batch: pa.RecordBatch, derived: Derived | None = None) -> Values:
    """Return the values of an expression on the rows of a batch. ``kind_of`` must have accepted the expression.

    >>> from expost.data.expression import col
    >>> batch = pa.record_batch({"a": [6.0, 1.0, None], "b": [3, 0, 1]})
    >>> evaluate(col("a") / col("b"), batch).numbers.tolist()
    [2.0, nan, nan]
    """
    with np.errstate(all="ignore"):
        found = _evaluate_node(expression, batch, derived or {})
    return Numbers(found.to_floats()) if isinstance(found, _Nulls) else found


def evaluate_cells(expression: Expression, batch: pa.RecordBatch, derived: Derived | None = None) -> pa.Array:
    """Return the values of an expression as a canonical column, which every comparison for equality reads.

    A stored column is returned without conversion, so that integers beyond 2^53, decimals and nanoseconds stay distinct.
    """
    stored = _stored_column(expression, batch, derived or {})
    return evaluate(expression, batch, derived).to_column() if stored is None else stored


def evaluate_filter(where: Expression | None, batch: pa.RecordBatch, derived: Derived) -> NDArray[np.bool_]:
    """Return a mask of the rows for which a filter is known to hold; all rows without a filter."""
    if where is None:
        return np.ones(batch.num_rows, bool)
    condition = evaluate(where, batch, derived)
    # The bare constant NULL is never true. The mask is a copy, because callers narrow it further.
    return condition.certain if isinstance(condition, Truths) else np.zeros(batch.num_rows, bool)


def read_column(column: pa.Array) -> Values:
    """Read a canonical column as values. Infinities stay numbers here, because clamping moves them to a bound."""
    column = decode_column(column)
    kind = Kind.of(column.type)
    if kind is Kind.BOOLEAN:
        return Truths(_to_mask(pc.fill_null(column, False)), _to_mask(column.is_valid()))
    if kind is Kind.TEXT:
        return Texts(column)
    if kind is Kind.TIME:
        return Times(np.asarray(column.to_numpy(zero_copy_only=False)).astype("datetime64[us]"))
    return Numbers(float_cells(column))


def _to_mask(column: Any) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def _stored_column(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> pa.Array | None:
    """Return the column that an expression names, or None if it is computed."""
    if not isinstance(expression, ColumnName) or expression.name in derived:
        return None
    return decode_column(batch.column(expression.name))


def _evaluate_node(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> _Found:
    """Evaluate by recursion; the bare NULL keeps its own type."""
    if isinstance(expression, ColumnName):
        if expression.name in derived:
            return _evaluate_node(derived[expression.name], batch, derived)
        return read_column(batch.column(expression.name))
    if isinstance(expression, Literal):
        return _repeat_constant(expression.value, batch.num_rows)
    if isinstance(expression, Lookup):
        return _look_up(expression, _cells_of(expression.key, batch, derived))
    assert isinstance(expression, Operation)
    name, arguments = expression.name, expression.arguments
    if name == "IN":
        return _is_in(_cells_of(arguments[0], batch, derived), arguments[1:])
    exact = _compare_exactly(expression, batch, derived) if name in _COMPARISONS else None
    if exact is not None:
        return exact
    values = [_evaluate_node(each, batch, derived) for each in arguments]
    if name in ("AND", "OR"):
        return reduce(_OPERATIONS[name], values)
    return _OPERATIONS[name](*values)


def _cells_of(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> pa.Array:
    """Return an argument as a canonical column."""
    stored = _stored_column(expression, batch, derived)
    return _evaluate_node(expression, batch, derived).to_column() if stored is None else stored


def _repeat_constant(value: Any, rows: int) -> _Found:
    """Return a constant as values, one per row."""
    if value is None:
        return _Nulls(rows)
    if isinstance(value, bool):
        return Truths(np.full(rows, value), np.ones(rows, bool))
    if isinstance(value, datetime.date):
        return Times(np.full(rows, to_moment(value)))
    if isinstance(value, str):
        return Texts(pa.repeat(pa.scalar(value, pa.large_string()), rows))
    return Numbers(np.full(rows, float(value)))


def _compare_exactly(expression: Operation, batch: pa.RecordBatch, derived: Derived) -> Truths | None:
    """Compare stored cells that floats or microseconds would round; None if rounding cannot matter.

    Stored integers are compared with whole numbers, and any stored column with a constant for equality.
    """
    sides = [_whole_side(each, batch, derived) for each in expression.arguments]
    if all(side is not None for side in sides) and any(isinstance(each, ColumnName) for each in expression.arguments):
        (left, known), (right, also) = (side for side in sides if side is not None)
        return Truths(_COMPARISONS[expression.name][1](left, right), np.broadcast_to(known & also, batch.num_rows))
    columns = [each for each in expression.arguments if not isinstance(each, Literal)]
    constants = [each.value for each in expression.arguments if isinstance(each, Literal) and each.value is not None]
    if expression.name not in ("=", "<>") or len(columns) != 1 or len(constants) != 1:
        return None
    stored = _stored_column(columns[0], batch, derived)
    if stored is None:
        return None
    found = find_places(stored, constants) >= 0
    return Truths(found if expression.name == "=" else ~found, ~missing_cells(stored))


def _whole_side(expression: Expression, batch: pa.RecordBatch, derived: Derived) -> tuple[Any, Any] | None:
    """Return a stored integer column or a whole constant as exact integers, and which of them are known."""
    if isinstance(expression, Literal):
        value = expression.value
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return (int(value), np.True_) if is_whole else None
    stored = _stored_column(expression, batch, derived)
    if stored is None or not pa.types.is_integer(stored.type):
        return None
    return stored.fill_null(0).to_numpy(), ~missing_cells(stored)


def _is_in(column: pa.Array, constants: tuple[Expression, ...]) -> Truths:
    """Test membership in a list of constants."""
    listed = [each.value for each in constants if isinstance(each, Literal) and each.value is not None]
    found = find_places(column, listed) >= 0
    # As in SQL: a value not found in a list with NULL is unknown, because it might equal the unknown entry.
    return Truths(found, found if len(listed) < len(constants) else ~missing_cells(column))


def _look_up(lookup: Lookup, key: pa.Array) -> _Found:
    """Return the entries of a public table under the keys; missing where a key is not in the table."""
    try:
        entries = canonical_column(pa.array(lookup.values))
    except OverflowError:  # integers beyond int64; a looked-up number is a float like every computed one
        values: tuple[Any, ...] = lookup.values
        floats = [None if value is None else float(value) for value in values]
        entries = canonical_column(pa.array(floats, pa.float64()))
    found = find_places(key, lookup.keys)
    return read_column(entries.take(pa.array(found, mask=found < 0)))


def _to_truths(values: _Found) -> Truths:
    """Return conditions as truths; NULL is unknown."""
    if isinstance(values, Truths):
        return values
    assert isinstance(values, _Nulls)
    return Truths(np.zeros(values.rows, bool), np.zeros(values.rows, bool))


def _to_floats(values: _Found) -> NDArray[np.float64]:
    assert isinstance(values, Numbers | Truths | _Nulls)
    return values.to_floats()


def _make_arithmetic(function: Callable[..., Any]) -> Callable[..., _Found]:
    """Lift a NumPy function; results that are not finite (x / 0, overflow) are missing."""
    return lambda *values: Numbers.from_computed(function(*map(_to_floats, values)))


def _make_comparison(text: Callable[..., Any], number: Callable[..., Any]) -> Callable[[_Found, _Found], Truths]:
    """Lift a comparison of texts and of numbers or times."""

    def compare(left: _Found, right: _Found) -> Truths:
        known = ~(left.missing | right.missing)
        if isinstance(left, Texts) and isinstance(right, Texts):
            found = pc.fill_null(text(left.texts, right.texts), False).to_numpy(zero_copy_only=False)
        elif isinstance(left, Times) and isinstance(right, Times):
            found = number(left.moments, right.moments)
        elif isinstance(left, _Nulls) or isinstance(right, _Nulls):
            found = np.zeros(len(known), bool)
        else:
            found = number(_to_floats(left), _to_floats(right))
        return Truths(np.asarray(found, bool), known)

    return compare


def _make_text_function(function: Callable[..., Any]) -> Callable[..., _Found]:
    """Lift a function of texts; its further arguments are constants."""

    def apply(value: _Found, *constants: _Found) -> _Found:
        if not isinstance(value, Texts):
            return value
        texts = [each.texts for each in constants if isinstance(each, Texts)]
        return read_column(function(value.texts, *(str(each[0].as_py()) if len(each) else "" for each in texts)))

    return apply


def _make_calendar_function(function: Callable[[Any], Any]) -> Callable[[_Found], _Found]:
    """Lift a function of moments."""

    def apply(value: _Found) -> _Found:
        assert isinstance(value, Times)
        return Numbers(np.where(value.missing, np.nan, function(value.moments).astype(np.float64)))

    return apply


def _combine_and(left: _Found, right: _Found) -> Truths:
    a, b = _to_truths(left), _to_truths(right)
    surely_false = (a.known & ~a.true) | (b.known & ~b.true)
    return Truths(a.true & b.true & ~surely_false, (a.known & b.known) | surely_false)


def _combine_or(left: _Found, right: _Found) -> Truths:
    a, b = _to_truths(left), _to_truths(right)
    surely = a.certain | b.certain
    return Truths(surely, (a.known & b.known) | surely)


def _negate_truths(value: _Found) -> Truths:
    truths = _to_truths(value)
    return Truths(~truths.true, truths.known)


def _fill_missing(value: _Found, other: _Found) -> _Found:
    """Fill missing values with those of a second argument."""
    if isinstance(value, _Nulls) or isinstance(other, _Nulls):
        return other if isinstance(value, _Nulls) else value
    missing = value.missing
    if isinstance(value, Texts) and isinstance(other, Texts):
        return Texts(pc.if_else(pa.array(missing), other.texts, value.texts))
    if isinstance(value, Times) and isinstance(other, Times):
        return Times(np.where(missing, other.moments, value.moments))
    if isinstance(value, Truths) and isinstance(other, Truths):
        return Truths(np.where(missing, other.true, value.true), value.known | other.known)
    return Numbers(np.where(missing, _to_floats(other), _to_floats(value)))


def _read_numbers(value: _Found) -> _Found:
    """Read the numbers that texts spell; other spellings are missing."""
    if not isinstance(value, Texts):
        return Numbers.from_computed(_to_floats(value))
    trimmed = pc.ascii_trim_whitespace(value.texts)
    spelled = pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, pa.scalar(None, pa.large_string()))
    return Numbers.from_computed(np.asarray(spelled.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64))


def _count_since(moments: Any, fine: str, coarse: str) -> Any:
    """Count fine units since the start of the coarse unit, such as days since the start of the month."""
    return (moments.astype(f"datetime64[{fine}]") - moments.astype(f"datetime64[{coarse}]")).astype(np.int64)


_COMPARISONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "=": (pc.equal, np.equal),
    "<>": (pc.not_equal, np.not_equal),
    "<": (pc.less, np.less),
    "<=": (pc.less_equal, np.less_equal),
    ">": (pc.greater, np.greater),
    ">=": (pc.greater_equal, np.greater_equal),
}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    **{"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.mod},
    **{"abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint},
}
_OPERATIONS: dict[str, Callable[..., _Found]] = {
    **{name: _make_comparison(*pair) for name, pair in _COMPARISONS.items()},
    **{name: _make_arithmetic(function) for name, function in _ARITHMETIC.items()},
    "AND": _combine_and,
    "OR": _combine_or,
    "NOT": _negate_truths,
    "IS NULL": lambda value: Truths(value.missing, np.ones(len(value.missing), bool)),
    "coalesce": _fill_missing,
    "lower": _make_text_function(pc.ascii_lower),
    "upper": _make_text_function(pc.ascii_upper),
    "length": _make_text_function(pc.binary_length),
    "starts_with": _make_text_function(pc.starts_with),
    "contains": _make_text_function(pc.match_substring),
    "number": _read_numbers,
    "year": _make_calendar_function(lambda t: t.astype("datetime64[Y]").astype(np.int64) + 1970),
    "month": _make_calendar_function(lambda t: _count_since(t, "M", "Y") + 1),
    "day": _make_calendar_function(lambda t: _count_since(t, "D", "M") + 1),
    "hour": _make_calendar_function(lambda t: _count_since(t, "h", "D")),
    # 1970 began on a Thursday, which is day 4.
    "weekday": _make_calendar_function(lambda t: (t.astype("datetime64[D]").astype(np.int64) + 3) % 7 + 1),
}
