"""Keys of several columns, written as one text each so that they are searched, counted and compared like other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SEPARATOR", "escape_key", "read_keys"]

SEPARATOR = "\x1f"
"""The character between the parts of a key."""

_ESCAPES = (("\x1e", "\x1e0"), (SEPARATOR, "\x1e1"))


def escape_key(texts: pa.Array) -> pa.Array:
    """Replace the separator in texts, so that different keys are different texts."""
    for sign, escaped in _ESCAPES:
        texts = pc.replace_substring(texts, sign, escaped)
    return texts


def read_keys(keys: Sequence[str], types: Sequence[pa.DataType]) -> tuple[tuple[Any, ...], ...]:
    r"""Return the parts of keys, each of the type of its column.

    >>> read_keys(["Oslo\x1f3", "a\x1e1b\x1f-1"], [pa.large_string(), pa.int64()])
    (('Oslo', 3), ('a\x1fb', -1))
    """
    parts = pc.split_pattern(pa.array(keys, pa.large_string()), SEPARATOR)
    columns = []
    for place, kind in enumerate(types):
        texts = pc.list_element(parts, place) if len(keys) else pa.array([], pa.large_string())
        for sign, escaped in reversed(_ESCAPES):
            texts = pc.replace_substring(texts, escaped, sign)
        columns.append(texts.cast(kind).to_pylist())
    return tuple(zip(*columns, strict=True))
