"""Who a row belongs to: exact words that are equal for equal ids, and only then."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Unit, Window
from expost.data.evaluate import evaluate
from expost.data.expression import ColumnName, Expression
from expost.data.values import Texts, Times, Truths, decoded, read_column

__all__ = ["Words", "mix", "text_words", "unit_words", "widened"]

Words = NDArray[Any]  # integers of any width: a word is its value

_LANES = 4  # hashes of 32 bits a text
_GAPS = {Window.DAY: "D", Window.MONTH: "M"}


def unit_words(
    unit: Unit, batch: pa.RecordBatch, derived: Mapping[str, Expression], key: bytes
) -> tuple[list[Words], NDArray[np.bool_]]:
    """Words whose equality means the same unit, and which rows have one: a row without an id belongs to nobody.

    A number is its own word, zero and minus zero the same one. A text becomes 128 bits under a fresh secret key (see
    ``text_words``). NULL and NaN are no id; an infinite number is one.
    """
    assert unit.column is not None
    words, known = _words(batch.column(unit.column), key)
    if unit.time_column is not None and unit.window is not None:
        moments = evaluate(ColumnName(unit.time_column), batch, derived)
        assert isinstance(moments, Times)
        words.append(_window(moments, unit.window))
        known = known & ~moments.missing
    return words, known


def _words(column: pa.Array, key: bytes) -> tuple[list[Words], NDArray[np.bool_]]:
    """Exact words of the stored ids, and which rows have one. Merged ids would be bounded as one unit, so nothing is
    rounded on the way: not a whole number beyond 2^53, not a decimal, not a nanosecond.
    """
    column = decoded(column)
    if pa.types.is_integer(column.type):
        return [_whole(column)], _present(column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # one column has one scale, so equal numbers are equal texts
    elif pa.types.is_timestamp(column.type) or pa.types.is_date64(column.type):
        return [_whole(column.cast(pa.int64()))], _present(column)
    values = read_column(column)
    if isinstance(values, Texts):
        return text_words(values.texts, key), ~values.missing
    if isinstance(values, Times):
        return [values.moments.astype(np.int64)], ~values.missing
    if isinstance(values, Truths):
        return [values.true.astype(np.uint8)], ~values.missing
    # Zero has two spellings; adding zero leaves one.
    return [np.where(values.missing, 0.0, values.numbers + 0.0).view(np.uint64)], ~values.missing


def _present(column: pa.Array) -> NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _whole(column: pa.Array) -> Words:
    """Integers as they are stored: floats would merge ids beyond 2^53, wider words would be moved for nothing."""
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def _window(times: Times, window: Window) -> Words:
    if window is Window.WEEK:  # weeks begin on Monday; 1970 began on a Thursday
        return ((times.moments.astype("datetime64[D]").astype(np.int64) + 3) // 7).view(np.uint64)
    return times.moments.astype(f"datetime64[{_GAPS[window]}]").astype(np.int64).view(np.uint64)


def text_words(texts: pa.LargeStringArray, key: bytes) -> list[Words]:
    """Two words (128 bits) a text, by four multilinear hashes of 32 bits under a secret key.

    Two different texts agree on one hash with probability at most 2^-31 over the key, whatever they are (LK14,
    Theorem 3.1; docs/proofs/contribution-bounding.md), hence on all four with at most 2^-124.
    """
    offsets, data = _bytes(texts)
    lengths = np.diff(offsets)
    pieces = int(-(-lengths.max(initial=0) // 4))
    keys = _keys(key, pieces + 2)
    # The length is a piece too: a text and the same text with zero bytes behind it must differ.
    lanes = keys[0][:, None] + keys[1][:, None] * lengths.astype(np.uint64)
    for piece in range(pieces):
        lanes += keys[piece + 2][:, None] * _piece(data, offsets[:-1], lengths, piece)
    high = lanes >> np.uint64(32)
    return [(high[0] << np.uint64(32)) | high[1], (high[2] << np.uint64(32)) | high[3]]


def _bytes(texts: pa.LargeStringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    start, stop = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return ends - start, np.concatenate([text[start:stop], np.zeros(4, np.uint8)])


def _piece(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], piece: int) -> Words:
    """The four bytes of each text at one place, zero behind its end."""
    overlapping = np.ndarray((len(data) - 3,), np.uint32, data, strides=(1,))
    left = np.clip(lengths - 4 * piece, 0, 4)
    place = np.where(left > 0, starts + 4 * piece, 0)
    mask = (np.uint64(1) << (8 * left).astype(np.uint64)) - np.uint64(1)
    return overlapping[place].astype(np.uint64) & mask


def _keys(key: bytes, count: int) -> Words:
    stream = hashlib.shake_256(b"expost unit words" + key).digest(8 * _LANES * count)
    return np.frombuffer(stream, np.uint64).reshape(count, _LANES)


def widened(words: Words) -> NDArray[np.uint64]:
    """The same integers as 64-bit words, so that an id has one word however wide its column is."""
    if words.dtype.kind == "i":
        return words.astype(np.int64, copy=False).view(np.uint64)
    return words.astype(np.uint64, copy=False)


def mix(words: Words, key: int) -> NDArray[np.uint64]:
    """A keyed permutation of 64-bit words that scatters them (the finaliser of SplitMix64, SLF14, Figure 16)."""
    mixed = widened(words) ^ np.uint64(key)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
