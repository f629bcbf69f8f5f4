"""Public tables that are looked up by a key, prepared once for each table."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import missing_cells
from expost.data.data_source import describe_entries, public_entries, public_table
from expost.data.expression import Lookup, col, is_exact

__all__ = ["PublicLookup", "remember_table"]

T = TypeVar("T")

_PREPARED: dict[int, tuple[weakref.ref[pa.Table], dict[Any, Any]]] = {}
_TURN = threading.Lock()
_MOST_FORMS = 8  # of one table


def remember_table(table: Any, form: Any, make: Callable[[], T]) -> T:
    """Return what is made of a table, made once for each Arrow table, which cannot change.

    It is forgotten together with the table. Other tables may change, so what is made of them is not kept.
    """
    if not isinstance(table, pa.Table):
        return make()
    name = id(table)
    with _TURN:
        known = _PREPARED.get(name)
        if known is None or known[0]() is not table:
            known = weakref.ref(table, partial(_forget, _PREPARED, name)), {}
            _PREPARED[name] = known
        if form in known[1]:
            found: T = known[1][form]
            return found
    made = make()
    if made is table:  # kept by itself it would never be forgotten
        return made
    with _TURN:
        while len(known[1]) >= _MOST_FORMS:
            known[1].pop(next(iter(known[1])))
        known[1][form] = made
    return made


def _forget(prepared: dict[int, Any], name: int, _: object) -> None:
    """Forget a table. The dictionary is an argument, because globals are gone when the interpreter ends."""
    prepared.pop(name, None)


@dataclass(frozen=True)
class PublicLookup:
    """The columns of a public table as lookups by a key, with their different values and the bounds of numbers."""

    columns: Mapping[str, Lookup]
    facts: Mapping[str, tuple[tuple[Any, ...], tuple[float, float] | None]]

    @classmethod
    def of(cls, table: Any, on: str, prefix: str) -> PublicLookup:
        """Return the lookups of a public table by one of its columns, which must have each key once."""
        return remember_table(table, ("lookup", on, prefix), lambda: cls._read(table, on, prefix))

    @classmethod
    def _read(cls, table: Any, on: str, prefix: str) -> PublicLookup:
        public = public_table(table)
        if on not in public.column_names:
            raise InvalidRequest(
                f"Expected a public table whose key {on} is a number, a text, a boolean or a time",
                do=suggest_name(on, public.column_names) or f"Name one of: {', '.join(public.column_names[:12])}",
            )
        keyed = ~missing_cells(public.column(on).combine_chunks())
        public = public.filter(pa.array(keyed))  # a missing key matches nothing
        keys = public_entries(public, on)
        if len(set(keys)) != len(keys) or not all(is_exact(key) for key in keys if isinstance(key, int | float)):
            raise InvalidRequest(
                f"Expected each {on} once in the public table, numbers exact in 64-bit floats",
                do="Drop repeated keys, or use texts as keys",
            )
        entries = {prefix + name: public_entries(public, name) for name in public.column_names if name != on}
        columns = {name: Lookup(col(on), keys, values, label=repr(name)) for name, values in entries.items()}
        return cls(columns, {name: describe_entries(values) for name, values in entries.items()})
