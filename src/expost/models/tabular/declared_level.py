"""Read the public values that callers type: levels of categories, and the ends of windows."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from expost.core import InvalidRequest
from expost.data.canonical_cell import canonical_value, constant_kind
from expost.data.expression import as_utc, is_exact

__all__ = ["is_moment", "level_from_json", "level_to_json", "read_levels", "read_moment", "show_level"]

_MOST_LEVELS = 1 << 16


def is_moment(value: object) -> bool:
    """Return whether a value is a date or a moment. A text is not, even if it spells one."""
    return isinstance(value, datetime.date | np.datetime64)


def read_moment(value: Any) -> datetime.datetime | None:
    """Convert a date, a moment or an ISO text to a moment in UTC, or None if it is missing or not a moment.

    >>> read_moment("2024-02-29"), read_moment(np.datetime64("NaT"))
    (datetime.datetime(2024, 2, 29, 0, 0), None)
    """
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
    value = canonical_value(value) if isinstance(value, np.datetime64) else value
    if not isinstance(value, datetime.date) or value != value:  # pandas' missing moment differs from itself
        return None
    moment = as_utc(value)
    if isinstance(moment, datetime.datetime):
        return datetime.datetime(*moment.timetuple()[:6], moment.microsecond)
    return datetime.datetime(moment.year, moment.month, moment.day)


def read_levels(name: str, given: Any) -> tuple[Any, ...]:
    """Return public levels in canonical form; raise if they are not a list of different values of one kind."""
    do = f"Pass columns={{{json.dumps(name, ensure_ascii=False)}: [...]}} with the public values"
    if isinstance(given, str | bytes | Mapping | set | frozenset) or not isinstance(given, Iterable):
        raise InvalidRequest(f"Expected a list of levels for {name!r}", got=given, do=do)
    if isinstance(given, np.ndarray) and given.dtype.kind == "M":
        given = given.astype("datetime64[us]")  # finer units would become integers
    levels = tuple(map(_read_level, given))
    if not levels:
        raise InvalidRequest(f"Expected at least one level for {name!r}", do=do)
    if len(levels) > _MOST_LEVELS:
        raise InvalidRequest(f"Expected at most {_MOST_LEVELS} levels for {name!r}", got=len(levels), do="Merge some")
    for typed, level in zip(given, levels, strict=True):
        if level is None:
            raise InvalidRequest(
                f"Expected levels of {name!r} that are texts, finite numbers, booleans or dates",
                got=typed,
                do='Leave it out of the list: missing and unknown values are the level "other" already',
            )
    kinds = {kind.family for level in levels if (kind := constant_kind(level)) is not None}
    if len(kinds) > 1:
        raise InvalidRequest(
            f"Expected levels of {name!r} of one kind", do="Pass texts, numbers or dates, not a mixture"
        )
    seen: set[Any] = set()
    for typed, level in zip(given, levels, strict=True):
        # Columns of floats hold a decimal as the nearest float, so two such levels would be one.
        compared = float(level) if isinstance(level, Decimal) else level
        if compared in seen:
            raise InvalidRequest(f"Expected each level of {name!r} once", got=typed, do="Drop the repeated level")
        seen.add(compared)
    return levels


def _read_level(value: Any) -> Any:
    """Return a level in canonical form, or None if it is missing or cannot be one."""
    if is_moment(value):
        return read_moment(value)
    value = canonical_value(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if is_exact(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is not a text
        return None
    return str(value)


def show_level(level: Any) -> str:
    """Return a level as it appears in the name of a feature."""
    if isinstance(level, datetime.datetime):
        return level.isoformat()
    return repr(level) if isinstance(level, str) else str(level)


def level_to_json(level: Any) -> Any:
    """Return a level as JSON holds it; moments and decimals are marked."""
    if isinstance(level, datetime.datetime):
        return {"moment": level.isoformat()}
    return {"decimal": str(level)} if isinstance(level, Decimal) else level


def level_from_json(level: Any) -> Any:
    """Return the level of what ``level_to_json`` returned."""
    if not isinstance(level, dict):
        return level
    if "moment" in level:
        return datetime.datetime.fromisoformat(level["moment"])
    return Decimal(level["decimal"]) if isinstance(level["decimal"], str) else None
