"""Replace texts that are not UTF-8 by null: Arrow and Parquet store any bytes, and no row may make a question fail.

Such a text becomes missing rather than repaired: two ids that were repaired to one text would be bounded as one unit.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from expost.data.schema import Kind

__all__ = ["readable", "readable_column"]


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with null in place of texts that are no UTF-8."""
    stored = batch.columns
    columns = [readable_column(column) for column in stored]
    changed = any(new is not old for new, old in zip(columns, stored, strict=True))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if changed else batch


def readable_column(column: pa.Array) -> pa.Array:
    """The column with null in place of texts that are no UTF-8."""
    if Kind.of(column.type) is not Kind.TEXT:
        return column
    if isinstance(column, pa.DictionaryArray):
        return _readable_dictionary(column)
    if _is_utf8(column):
        return column
    wide = column.cast(pa.large_string())  # not every kind of text can be chosen from
    return pc.if_else(_broken(column), pa.scalar(None, wide.type), wide).cast(column.type)


def _readable_dictionary(column: pa.DictionaryArray) -> pa.DictionaryArray:
    words = column.dictionary
    if _is_utf8(words):
        return column
    broken = _broken(words)
    indices = pc.if_else(broken.take(column.indices), pa.scalar(None, column.indices.type), column.indices)
    return pa.DictionaryArray.from_arrays(indices, readable_column(words).fill_null(""), ordered=column.type.ordered)


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _broken(texts: pa.Array) -> pa.Array:
    """Which texts are no UTF-8, each different one decoded once; null stays null."""
    encoded = texts.cast(pa.large_binary()).dictionary_encode()
    return pa.array([_fails(word) for word in encoded.dictionary.to_pylist()], pa.bool_()).take(encoded.indices)


def _fails(word: bytes) -> bool:
    try:
        word.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
