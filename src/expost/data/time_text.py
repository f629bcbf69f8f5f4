"""Texts and times: read moments from texts by a public format, and write moments as texts. No text can fail."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.cell_values import to_mask

__all__ = ["escape_pattern", "read_iso_times", "read_times", "time_pattern", "write_times"]

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LONG = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_DAYS = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
]
_DIRECTIVES = {
    "Y": r"(?P<year>\d{4})",
    "y": r"(?P<short>\d{2})",
    "m": r"(?P<month>\d{1,2})",
    "b": f"(?P<name>(?i:{'|'.join(_MONTHS)}))",
    "B": f"(?P<name>(?i:{'|'.join(_LONG)}))",
    "d": r"(?P<day>\d{1,2})",
    "H": r"(?P<hour>\d{1,2})",
    "I": r"(?P<half>\d{1,2})",
    "p": r"(?P<noon>(?i:am|pm))",
    "M": r"(?P<minute>\d{1,2})",
    "S": r"(?P<second>\d{1,2})",
    "f": r"(?P<fraction>\d{1,6})",
    "z": r"(?P<zone>Z|[-+]\d{2}:?\d{2})",
    "A": f"(?i:{'|'.join(_DAYS[:7])})",
    "a": f"(?i:{'|'.join(_DAYS[7:])})",
    "%": "%",
}
_SHORTHAND = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S"}
# The date, and optionally a time of day with seconds, a fraction and an offset from UTC.
_ISO = (
    r"^ *(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})"
    r"(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,6}))?)? ?(?P<zone>Z|[-+]\d{2}(?::?\d{2})?)?)? *$"
)
_FIRST, _BEYOND = np.datetime64("0001-01-01", "us"), np.datetime64("10000-01-01", "us")


def escape_pattern(text: str) -> str:
    """Return a regular expression that matches a text only. RE2 refuses some of the escapes that Python's ``re`` writes."""
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def time_pattern(layout: str) -> str | None:
    """Translate a format such as ``%Y-%m-%d`` to a regular expression, or return None if it is not one.

    A format needs a year, names each part at most once, and uses ``%Y %y %m %b %B %d %H %I %p %M %S %f %z %a %A %F %T``.
    """
    layout = re.sub("%.", lambda directive: _SHORTHAND.get(directive[0], directive[0]), layout, flags=re.DOTALL)
    pieces = re.split(r"%(.)", layout, flags=re.DOTALL)  # texts and directives take turns
    if len(layout) > 200 or "%" in "".join(pieces[::2]) or not all(each in _DIRECTIVES for each in pieces[1::2]):
        return None
    pattern = "".join(_DIRECTIVES[each] if place % 2 else escape_pattern(each) for place, each in enumerate(pieces))
    named = re.findall(r"\?P<(\w+)>", pattern)
    one_of_each = all(len(set(named) & pair) < 2 for pair in ({"year", "short"}, {"month", "name"}, {"hour", "half"}))
    dated = {"year", "short"} & set(named) and ("half" in named) == ("noon" in named)
    return f"^(?s:{pattern})$" if dated and one_of_each and len(set(named)) == len(named) else None


def read_times(texts: pa.Array, layout: str) -> NDArray[np.datetime64]:
    """Read the moments that texts spell in a format; NaT where a text does not.

    >>> read_times(pa.array(["3 Feb 2013", "30 Feb 2013", None], pa.large_string()), "%d %b %Y").tolist()
    [datetime.datetime(2013, 2, 3, 0, 0), None, None]
    """
    pattern = time_pattern(layout)
    assert pattern is not None
    return _read_parts(texts, pattern)


def read_iso_times(texts: pa.Array) -> NDArray[np.datetime64]:
    """Read the moments that texts spell as ISO dates or times, in UTC unless they have an offset; NaT elsewhere."""
    return _read_parts(texts, _ISO)


def write_times(moments: NDArray[np.datetime64]) -> pa.Array:
    """Write moments as texts; the fraction of a second has only the digits it needs.

    >>> write_times(np.array(["2013-02-03", "2013-02-03T04:05:06.5", "NaT"], "datetime64[us]")).to_pylist()
    ['2013-02-03 00:00:00', '2013-02-03 04:05:06.5', None]
    """
    texts = pa.array(moments).cast(pa.large_string())
    trimmed = pc.replace_substring_regex(texts, pattern=r"(\.\d*?)0+$", replacement=r"\1")
    return pc.replace_substring_regex(trimmed, pattern=r"\.$", replacement="")


def _read_parts(texts: pa.Array, pattern: str) -> NDArray[np.datetime64]:
    """Read moments from the named groups of a regular expression."""
    found = pc.extract_regex(texts, pattern=pattern)
    parts = dict(zip((field.name for field in found.type), found.flatten(), strict=True))

    def number(name: str, otherwise: int) -> NDArray[np.int64]:
        return _to_integers(parts[name], otherwise) if name in parts else np.full(len(texts), otherwise)

    year = number("year", 1970)
    if "short" in parts:  # as POSIX: 69 to 99 are in the twentieth century
        year = number("short", 0)
        year = year + np.where(year >= 69, 1900, 2000)
    month, day = number("month", 1), number("day", 1)
    if "name" in parts:
        short = pc.utf8_slice_codeunits(pc.ascii_lower(parts["name"]), 0, 3)
        month = _to_integers(pc.index_in(short, value_set=pa.array(_MONTHS, short.type)), -1) + 1
    hour = number("hour", 0)
    fits = to_mask(found.is_valid()) & (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24)
    if "half" in parts:
        half = number("half", 0)
        fits &= (half >= 1) & (half <= 12)
        evening = to_mask(pc.fill_null(pc.equal(pc.ascii_lower(parts["noon"]), "pm"), False))
        hour = half % 12 + np.where(evening, 12, 0)
    minute, second = number("minute", 0), number("second", 0)
    fits &= (minute < 60) & (second < 60)
    micros = _to_integers(pc.ascii_rpad(parts["fraction"], 6, "0"), 0) if "fraction" in parts else 0
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(fits, day - 1, 0)
    fits &= days.astype("datetime64[M]") == months  # 30 February is not a day
    clock = ((hour * 60 + minute - _read_offsets(parts.get("zone"), len(texts))) * 60 + second) * 1_000_000 + micros
    moments = days.astype("datetime64[us]") + np.where(fits, clock, 0)
    return np.where(fits & (moments >= _FIRST) & (moments < _BEYOND), moments, np.datetime64("NaT", "us"))


def _read_offsets(zones: pa.Array | None, rows: int) -> NDArray[np.int64]:
    """Read offsets from UTC such as +02:00 in minutes."""
    if zones is None:
        return np.zeros(rows, np.int64)
    digits = pc.ascii_rpad(pc.replace_substring_regex(zones, pattern="[^0-9]", replacement=""), 4, "0")
    number = _to_integers(digits, 0)
    west = to_mask(pc.fill_null(pc.starts_with(zones, "-"), False))
    minutes = number // 100 * 60 + number % 100
    return np.where(west, -minutes, minutes)


def _to_integers(column: Any, otherwise: int) -> NDArray[np.int64]:
    """Convert a column of digits or integers; what is absent becomes a constant."""
    if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column)
    return np.asarray(pc.fill_null(column.cast(pa.int64()), otherwise).to_numpy(zero_copy_only=False), np.int64)
