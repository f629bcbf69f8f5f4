"""Operators and functions of expressions: what each takes, what it gives, and how it is computed. No row can fail.

Every function maps the cells of one row to one cell. What cannot be computed is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.canonical_cell import Kind, missing_cells
from expost.data.cell_values import Found, Nulls, Numbers, Texts, Times, Truths, choose, read_column, to_mask
from expost.data.key_tuple import SEPARATOR, escape_key
from expost.data.time_text import escape_pattern, read_iso_times, read_times, time_pattern, write_times
from expost.data.value_place import find_places

__all__ = [
    "CELLS",
    "COMPARISONS",
    "CONSTANTS",
    "FUNCTIONS",
    "NEEDS",
    "PERIODS",
    "RowFunction",
    "bin_edges",
    "cut_times",
    "to_text",
]

PERIODS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""The periods to which a time can be cut."""

_LONGEST = 1 << 20  # bytes; a longer joined text is missing, so that no row can exhaust the memory
_MOST_BINS = 1 << 16
# The spellings that Arrow's float parser is known to accept. Any other text is missing before the parser sees it.
_NUMBER = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$"
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_WHOLE = float(1 << 53)


@dataclass(frozen=True, slots=True)
class RowFunction:
    """An operator or function.

    ``takes`` names what each argument must be: an entry of ``NEEDS`` for values or of ``CONSTANTS`` for constants. A last
    entry "..." repeats the one before, and "?" after an entry makes it optional. ``gives`` is the kind of the result, None
    for the kind of the arguments. ``apply`` gets constants as Python values, the entries of ``CELLS`` as canonical columns,
    which are not rounded, and other values as ``Found``.
    """

    takes: tuple[str, ...]
    gives: Kind | None
    apply: Callable[..., Found]

    def argument(self, place: int) -> str | None:
        """Return what the argument at a place must be, None if there cannot be one."""
        named = [each.rstrip("?") for each in self.takes if each != "..."]
        if place < len(named):
            return named[place]
        return named[-1] if self.takes[-1] == "..." else None

    def accepts(self, count: int) -> bool:
        """Return whether the function can be called with this many arguments."""
        fewest = sum(1 for each in self.takes if each != "..." and not each.endswith("?"))
        return count >= fewest and (count == 0 or self.argument(count - 1) is not None)


NEEDS = {
    "number": "numbers",
    "text": "texts",
    "time": "times",
    "condition": "conditions",
    "same": "values of one kind",
    "listed": "values of one kind",
    "readable": "a text or a number",
    "dated": "a text or a time",
    "written": "a column or a value with a kind",
    "maybe": "a value",
}
"""What the values of an argument must be, in words."""

CELLS = frozenset({"listed", "written"})
"""The arguments that are read as stored cells."""


def _is_whole(value: Any, low: int, high: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


CONSTANTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "part": ("a constant text", lambda value: isinstance(value, str)),
    "pattern": ("a constant text of up to 1000 signs", lambda value: isinstance(value, str) and len(value) <= 1000),
    "format": (
        "a constant format with a year, such as '%Y-%m-%d %H:%M:%S'",
        lambda value: isinstance(value, str) and time_pattern(value) is not None,
    ),
    "period": (f"one of {', '.join(PERIODS)}", lambda value: isinstance(value, str) and value.lower() in PERIODS),
    "digits": ("a constant number of digits from 0 to 15", lambda value: _is_whole(value, 0, 15)),
    "position": ("a constant position from 1 on", lambda value: _is_whole(value, 1, 1 << 31)),
    "size": ("a constant number of signs", lambda value: _is_whole(value, 0, 1 << 31)),
    "bins": (f"a constant number of bins up to {_MOST_BINS}", lambda value: _is_whole(value, 1, _MOST_BINS)),
    "edge": ("a constant number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "constant": ("a constant", lambda value: True),
}
"""What constants must be, in words, and the test for it."""


def bin_edges(low: float, high: float, bins: int) -> NDArray[np.float64]:
    """Return the edges of bins of equal width; the first and the last are the ends themselves."""
    edges = low + (high - low) * (np.arange(bins + 1) / bins)
    edges[-1] = high
    return edges + 0.0


def to_text(column: pa.Array) -> pa.Array:
    """Write the cells of a canonical column as texts. A whole number has no decimal point.

    >>> to_text(pa.array([2.0, 0.5, None])).to_pylist(), to_text(pa.array([2**63 - 1])).to_pylist()
    (['2', '0.5', None], ['9223372036854775807'])
    """
    kind = Kind.of(column.type)
    if kind is Kind.TEXT:
        return column
    if kind is Kind.TIME:
        values = read_column(column)
        assert isinstance(values, Times)
        return write_times(values.moments)
    if not pa.types.is_floating(column.type):
        return column.cast(pa.large_string())
    numbers = np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    whole = (np.abs(numbers) < _WHOLE) & (np.floor(numbers) == numbers)
    digits = pa.array(np.where(whole, numbers, 0).astype(np.int64)).cast(pa.large_string())
    spelled = pa.array(numbers, from_pandas=True).cast(pa.large_string())
    return pc.if_else(pa.array(whole), digits, spelled)


def _to_truths(values: Found) -> Truths:
    """Return conditions as truths; NULL is unknown."""
    if isinstance(values, Nulls):
        return Truths(np.zeros(values.rows, bool), np.zeros(values.rows, bool))
    assert isinstance(values, Truths)
    return values


def _to_floats(values: Found) -> NDArray[np.float64]:
    assert isinstance(values, Numbers | Truths | Nulls)
    return values.to_floats()


# Numbers and comparisons --------------------------------------------------------------------------------------------


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Found]:
    """Lift a NumPy function; results that are not finite (x / 0, overflow) are missing."""
    return lambda *values: Numbers.from_computed(function(*map(_to_floats, values)))


def _comparison(text: Callable[..., Any], number: Callable[..., Any]) -> Callable[[Found, Found], Truths]:
    """Lift a comparison of texts and of numbers or times."""

    def compare(left: Found, right: Found) -> Truths:
        known = ~(left.missing | right.missing)
        if isinstance(left, Texts) and isinstance(right, Texts):
            found = pc.fill_null(text(left.texts, right.texts), False).to_numpy(zero_copy_only=False)
        elif isinstance(left, Times) and isinstance(right, Times):
            found = number(left.moments, right.moments)
        elif isinstance(left, Nulls) or isinstance(right, Nulls):
            found = np.zeros(len(known), bool)
        else:
            found = number(_to_floats(left), _to_floats(right))
        return Truths(np.asarray(found, bool), known)

    return compare


def _round(value: Found, digits: int = 0) -> Found:
    """Round to some digits, halves to the even one. A number too large to have that digit stays as it is."""
    numbers, power = _to_floats(value), 10.0**digits
    scaled = numbers * power
    return Numbers.from_computed(np.where(np.isfinite(scaled), np.rint(scaled) / power, numbers))


def _bucket(value: Found, low: float, high: float, bins: int) -> NDArray[np.float64]:
    """Return the number of the bin of each value, 0 below the first and ``bins`` + 1 from the upper end on."""
    numbers = _to_floats(value)
    place = np.searchsorted(bin_edges(low, high, bins), numbers, side="right").astype(np.float64)
    return np.where(np.isnan(numbers), np.nan, place)


def _bin(value: Found, low: float, high: float, bins: int) -> Found:
    """Return the lower edge of the bin of each value; values outside belong to the nearest bin."""
    place = np.clip(_bucket(value, low, high, bins) - 1, 0, bins - 1)
    missing = np.isnan(place)
    return Numbers(np.where(missing, np.nan, bin_edges(low, high, bins)[np.where(missing, 0, place).astype(np.intp)]))


def _extreme(number: Callable[..., Any], text: Callable[..., Any]) -> Callable[..., Found]:
    """Lift a least or greatest value, which ignores missing values as DuckDB and PostgreSQL do."""

    def pick(first: Found, second: Found) -> Found:
        if isinstance(first, Nulls) or isinstance(second, Nulls):
            return second if isinstance(first, Nulls) else first
        if isinstance(first, Texts) and isinstance(second, Texts):
            return Texts(text(first.texts, second.texts))
        if isinstance(first, Times) and isinstance(second, Times):
            return Times(number(first.moments, second.moments))
        picked = number(_to_floats(first), _to_floats(second))
        both = isinstance(first, Truths) and isinstance(second, Truths)
        return Truths(picked == 1, ~np.isnan(picked)) if both else Numbers(picked)

    return lambda *values: reduce(pick, values)


# Logic and choices --------------------------------------------------------------------------------------------------


def _combine_and(left: Found, right: Found) -> Truths:
    a, b = _to_truths(left), _to_truths(right)
    surely_false = (a.known & ~a.true) | (b.known & ~b.true)
    return Truths(a.true & b.true & ~surely_false, (a.known & b.known) | surely_false)


def _combine_or(left: Found, right: Found) -> Truths:
    a, b = _to_truths(left), _to_truths(right)
    surely = a.certain | b.certain
    return Truths(surely, (a.known & b.known) | surely)


def _negate(value: Found) -> Truths:
    truths = _to_truths(value)
    return Truths(~truths.true, truths.known)


def _case(*values: Found) -> Found:
    """Return the value after the first condition known to be true, else the last value."""
    found = values[-1]
    for condition, value in reversed(list(zip(values[:-1:2], values[1:-1:2], strict=True))):
        found = choose(_to_truths(condition).certain, value, found)
    return found


def _coalesce(*values: Found) -> Found:
    return reduce(lambda first, second: choose(~first.missing, first, second), values)


def _is_in(column: pa.Array, *constants: Any) -> Truths:
    """Test membership in a list of constants."""
    listed = [each for each in constants if each is not None]
    found = find_places(column, listed) >= 0
    # As in SQL: a value not found in a list with NULL is unknown, because it might equal the unknown entry.
    return Truths(found, found if len(listed) < len(constants) else ~missing_cells(column))


# Texts --------------------------------------------------------------------------------------------------------------


def _text_function(function: Callable[..., Any]) -> Callable[..., Found]:
    """Lift a function of a text column and constants."""

    def apply(value: Found, *constants: Any) -> Found:
        assert isinstance(value, Texts)
        return read_column(function(value.texts, *constants))

    return apply


def _like(texts: pa.Array, pattern: str) -> Any:
    """Match a pattern with % for any text and _ for any sign."""
    parts = (".*" if sign == "%" else "." if sign == "_" else escape_pattern(sign) for sign in pattern)
    return pc.match_substring_regex(texts, pattern=f"^(?s:{''.join(parts)})$")


def _substring(texts: pa.Array, start: int, size: int | None = None) -> Any:
    return pc.utf8_slice_codeunits(texts, start - 1, None if size is None else start - 1 + size)


def _concat(*values: Found) -> Found:
    """Join texts and skip missing ones."""
    return _join(*(Texts(pc.fill_null(each.texts, "")) for each in values if isinstance(each, Texts)))


def write_key(*columns: pa.Array) -> Texts:
    """Write the cells of several columns as one text; missing if one of them is."""
    return _join(*(Texts(escape_key(to_text(column))) for column in columns), separator=SEPARATOR)


def _join(*values: Found, separator: str = "") -> Texts:
    """Join texts; missing if one of them is, or if the result would be too long."""
    columns = [each.texts for each in values if isinstance(each, Texts)]
    size = sum(np.asarray(pc.fill_null(pc.binary_length(each), 0)) for each in columns)
    columns[0] = pc.if_else(pa.array(np.asarray(size) <= _LONGEST), columns[0], pa.scalar(None, pa.large_string()))
    # Not null_handling="skip": Arrow 26 drops rows in which all texts are missing.
    return Texts(pc.binary_join_element_wise(*columns, pa.scalar(separator, pa.large_string())))


# Times and conversions ----------------------------------------------------------------------------------------------


def _calendar(function: Callable[[Any], Any]) -> Callable[[Found], Found]:
    """Lift a function of moments that gives whole numbers."""

    def apply(value: Found) -> Found:
        assert isinstance(value, Times)
        return Numbers(np.where(value.missing, np.nan, function(value.moments).astype(np.float64)))

    return apply


def _count_since(moments: Any, fine: str, coarse: str) -> Any:
    """Count fine units since the start of the coarse unit, such as days since the start of the month."""
    return (moments.astype(f"datetime64[{fine}]") - moments.astype(f"datetime64[{coarse}]")).astype(np.int64)


def _iso_week(moments: Any) -> Any:
    """Return the week of ISO 8601: the year of a week is that of its Thursday, and its first Thursday is in week 1."""
    thursdays = cut_times("week", moments).astype("datetime64[D]") + np.timedelta64(3, "D")
    return _count_since(thursdays, "D", "Y") // 7 + 1


def cut_times(period: str, moments: NDArray[np.datetime64]) -> NDArray[np.datetime64]:
    """Return the start of the period that holds each moment; a week begins on Monday."""
    period = period.lower()
    if period == "quarter":
        months = moments.astype("datetime64[M]")
        cut: Any = months - (months - np.datetime64("1970-01")) % np.timedelta64(3, "M")
    elif period == "week":
        days = moments.astype("datetime64[D]")
        cut = days - (days - np.datetime64("1970-01-05")) % np.timedelta64(7, "D")
    else:
        unit = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m", "second": "s"}[period]
        cut = moments.astype(f"datetime64[{unit}]")
    return np.asarray(cut.astype("datetime64[us]"))


def _cut(period: str, value: Found) -> Found:
    assert isinstance(value, Times)
    return Times(cut_times(period, value.moments))


def _to_number(value: Found) -> Found:
    """Read the numbers that texts spell; other spellings are missing."""
    if not isinstance(value, Texts):
        return Numbers.from_computed(_to_floats(value))
    trimmed = pc.ascii_trim_whitespace(value.texts)
    spelled = pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, pa.scalar(None, pa.large_string()))
    return Numbers.from_computed(np.asarray(spelled.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64))


def _to_integer(value: Found) -> Found:
    """Round to the nearest integer, halves to the even one; missing beyond 64 bits."""
    numbers = np.rint(_to_floats(_to_number(value)))
    return Numbers.from_computed(np.where(np.abs(numbers) < 2.0**63, numbers, np.nan))


def _to_boolean(value: Found) -> Found:
    """Read numbers other than zero as true, and texts such as yes and false."""
    if isinstance(value, Texts):
        lowered = pc.ascii_lower(pc.ascii_trim_whitespace(value.texts))
        yes, no = (
            to_mask(pc.is_in(lowered, value_set=pa.array(words, pa.large_string()))) for words in (_TRUE, _FALSE)
        )
        return Truths(yes, yes | no)
    return value if isinstance(value, Truths) else Truths(_to_floats(value) != 0, ~value.missing)


def _to_time(value: Found) -> Found:
    return Times(read_iso_times(value.texts)) if isinstance(value, Texts) else value


_LOGIC = ("condition", "condition", "...")
COMPARISONS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "=": (pc.equal, np.equal),
    "<>": (pc.not_equal, np.not_equal),
    "<": (pc.less, np.less),
    "<=": (pc.less_equal, np.less_equal),
    ">": (pc.greater, np.greater),
    ">=": (pc.greater_equal, np.greater_equal),
}
"""Comparisons of texts and of numbers."""

_BINARY = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}
_UNARY = {"abs": np.abs, "floor": np.floor, "ceil": np.ceil}
_PARTS: dict[str, Callable[[Any], Any]] = {
    "year": lambda t: t.astype("datetime64[Y]").astype(np.int64) + 1970,
    "quarter": lambda t: _count_since(t, "M", "Y") // 3 + 1,
    "month": lambda t: _count_since(t, "M", "Y") + 1,
    "day": lambda t: _count_since(t, "D", "M") + 1,
    # 1970 began on a Thursday, which is day 4.
    "weekday": lambda t: (t.astype("datetime64[D]").astype(np.int64) + 3) % 7 + 1,
    "week": _iso_week,
    "dayofyear": lambda t: _count_since(t, "D", "Y") + 1,
    "hour": lambda t: _count_since(t, "h", "D"),
    "minute": lambda t: _count_since(t, "m", "h"),
    "second": lambda t: _count_since(t, "s", "m"),
}
FUNCTIONS: Mapping[str, RowFunction] = {
    **{name: RowFunction(("same", "same"), Kind.BOOLEAN, _comparison(*pair)) for name, pair in COMPARISONS.items()},
    **{name: RowFunction(("number", "number"), Kind.REAL, _arithmetic(each)) for name, each in _BINARY.items()},
    **{name: RowFunction(("number",), Kind.REAL, _arithmetic(each)) for name, each in _UNARY.items()},
    **{name: RowFunction(("time",), Kind.INTEGER, _calendar(each)) for name, each in _PARTS.items()},
    "AND": RowFunction(_LOGIC, Kind.BOOLEAN, lambda *values: reduce(_combine_and, values)),
    "OR": RowFunction(_LOGIC, Kind.BOOLEAN, lambda *values: reduce(_combine_or, values)),
    "NOT": RowFunction(("condition",), Kind.BOOLEAN, _negate),
    "IS NULL": RowFunction(
        ("maybe",), Kind.BOOLEAN, lambda value: Truths(value.missing, np.ones(len(value.missing), bool))
    ),
    "IN": RowFunction(("listed", "constant", "..."), Kind.BOOLEAN, _is_in),
    "CASE": RowFunction(("condition", "same", "same", "..."), None, _case),
    "coalesce": RowFunction(("same", "same", "..."), None, _coalesce),
    "least": RowFunction(("same", "same", "..."), None, _extreme(np.fmin, pc.min_element_wise)),
    "greatest": RowFunction(("same", "same", "..."), None, _extreme(np.fmax, pc.max_element_wise)),
    "round": RowFunction(("number", "digits?"), Kind.REAL, _round),
    "width_bucket": RowFunction(
        ("number", "edge", "edge", "bins"), Kind.INTEGER, lambda *given: Numbers(_bucket(*given))
    ),
    "bin": RowFunction(("number", "edge", "edge", "bins"), Kind.REAL, _bin),
    "lower": RowFunction(("text",), Kind.TEXT, _text_function(pc.ascii_lower)),
    "upper": RowFunction(("text",), Kind.TEXT, _text_function(pc.ascii_upper)),
    "trim": RowFunction(("text",), Kind.TEXT, _text_function(lambda texts: pc.ascii_trim(texts, characters=" "))),
    "length": RowFunction(("text",), Kind.INTEGER, _text_function(pc.utf8_length)),
    "substring": RowFunction(("text", "position", "size?"), Kind.TEXT, _text_function(_substring)),
    "starts_with": RowFunction(("text", "part"), Kind.BOOLEAN, _text_function(pc.starts_with)),
    "contains": RowFunction(("text", "part"), Kind.BOOLEAN, _text_function(pc.match_substring)),
    "LIKE": RowFunction(("text", "pattern"), Kind.BOOLEAN, _text_function(_like)),
    "concat": RowFunction(("text", "text", "..."), Kind.TEXT, _concat),
    "||": RowFunction(("text", "text"), Kind.TEXT, _join),
    "TUPLE": RowFunction(("written", "written", "..."), Kind.TEXT, write_key),
    "date_trunc": RowFunction(("period", "time"), Kind.TIME, _cut),
    "strptime": RowFunction(
        ("text", "format"), Kind.TIME, lambda value, layout: Times(read_times(value.texts, layout))
    ),
    "number": RowFunction(("readable",), Kind.REAL, _to_number),
    "integer": RowFunction(("readable",), Kind.INTEGER, _to_integer),
    "boolean": RowFunction(("readable",), Kind.BOOLEAN, _to_boolean),
    "text": RowFunction(("written",), Kind.TEXT, lambda column: Texts(to_text(column))),
    "time": RowFunction(("dated",), Kind.TIME, _to_time),
    "date": RowFunction(("dated",), Kind.TIME, lambda value: _cut("day", _to_time(value))),
}
"""The operators and functions that are computed from values alone, by the name that they print as."""
