"""Fitted state as plain values: what pickle, joblib and skops store of an estimator.

skops makes objects without running code from the file, so it cannot make enumerations, frozen records or fractions. They
are therefore written as dictionaries of plain values, and read back as records of this package only.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from expost.core.question_cap import QuestionCap

__all__ = ["read_plain_state", "write_plain_state"]

_KIND = "expost kind"  # no attribute of a record has a blank in its name
_RECORD, _MEMBER, _FRACTION, _DATE = "record", "member", "fraction", "date"
_DATES = {kind.__name__: kind for kind in (datetime.date, datetime.datetime)}


def write_plain_state(value: Any) -> Any:
    """Replace records, enumerations, fractions and dates by dictionaries, at any depth; other values are kept.

    >>> write_plain_state(Fraction(1, 3))
    {'expost kind': 'fraction', 'value': '1/3'}
    """
    if isinstance(value, Fraction):
        exact = {_KIND: _FRACTION, "value": f"{value.numerator}/{value.denominator}"}
        return exact | {"note": value.source} if isinstance(value, QuestionCap) else exact
    if type(value) in _DATES.values() and getattr(value, "tzinfo", None) is None:
        return {_KIND: _DATE, "type": type(value).__name__, "value": value.isoformat()}
    if isinstance(value, enum.Enum) and _is_own(type(value)):
        return {_KIND: _MEMBER, "type": _name(type(value)), "value": value.value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_own(type(value)):
        fields = {each.name: write_plain_state(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {_KIND: _RECORD, "type": _name(type(value)), "fields": fields}
    if type(value) is dict:
        return {key: write_plain_state(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(write_plain_state(each) for each in value)
    return value


def read_plain_state(value: Any) -> Any:
    """Undo ``write_plain_state``. Only records and enumerations of this package are made.

    >>> read_plain_state(write_plain_state({"a": (Fraction(1, 3), 2)}))
    {'a': (Fraction(1, 3), 2)}
    """
    if isinstance(value, Mapping) and _KIND in value:
        if value[_KIND] == _FRACTION:
            exact = Fraction(value["value"])
            return exact if "note" not in value else QuestionCap(exact, value["note"])
        if value[_KIND] == _DATE:
            return _DATES[value["type"]].fromisoformat(value["value"])
        kind: Any = _find_type(value["type"])
        if value[_KIND] == _MEMBER and issubclass(kind, enum.Enum):
            return kind(value["value"])
        if value[_KIND] == _RECORD and hasattr(kind, "__dataclass_fields__"):
            # Not through the constructor, which would check again what was checked when the record was made.
            record: Any = object.__new__(kind)
            for name in (each.name for each in dataclasses.fields(kind)):
                object.__setattr__(record, name, read_plain_state(value["fields"][name]))
            return record
        raise ValueError("Expected a stored record of this package.")
    if type(value) is dict:
        return {key: read_plain_state(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(read_plain_state(each) for each in value)
    return value


def _is_own(kind: type) -> bool:
    """Return whether a class is one that a file may name: of this package, and not inside a function."""
    return kind.__module__.startswith("expost.") and "<locals>" not in kind.__qualname__


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _find_type(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module.startswith("expost."):
        raise ValueError("Expected a stored record of this package.")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = vars(found)[part]
    if not isinstance(found, type) or not _is_own(found):
        raise ValueError("Expected a stored record of this package.")
    return found
