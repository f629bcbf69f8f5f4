"""Who a row belongs to: exact words that are equal for equal ids, and only then."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Unit, Window
from expost.data.evaluate import evaluate
from expost.data.expression import ColumnName, Expression
from expost.data.values import Texts, Times, Truths, decoded, read_column

__all__ = ["Words", "content_words", "exact_words", "label_words", "mix", "text_words", "unit_words", "widened"]

Words = NDArray[Any]  # integers of any width: a word is its value

_LANES = 4  # hashes of 32 bits per text
_COLUMNS = 16  # pieces of four bytes that are read text by text; what longer texts have beyond is read as one run
_LONG = 1 << 12  # bytes from which a text is hashed by itself
_RUN = 1 << 20  # pieces of long texts that are worked on at a time
_GAPS = {Window.DAY: "D", Window.MONTH: "M"}


def unit_words(
    unit: Unit, batch: pa.RecordBatch, derived: Mapping[str, Expression], key: bytes
) -> tuple[list[Words], NDArray[np.bool_]]:
    """Words whose equality means the same unit, and which rows have one: a row without an id belongs to nobody.

    A number is its own word, zero and minus zero the same one. A text becomes 128 bits under a fresh secret key (see
    ``text_words``). NULL and NaN are no id; an infinite number is one.
    """
    assert unit.column is not None
    words, known = exact_words(batch.column(unit.column), key)
    if unit.time_column is not None and unit.window is not None:
        moments = evaluate(ColumnName(unit.time_column), batch, derived)
        assert isinstance(moments, Times)
        words.append(_window(moments, unit.window))
        known = known & ~moments.missing
    return words, known


def exact_words(column: pa.Array, key: bytes) -> tuple[list[Words], NDArray[np.bool_]]:
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


def content_words(column: pa.Array, key: bytes) -> NDArray[np.uint64]:
    """One 64-bit word per cell, a function of its content and the secret key alone.

    >>> one, two = (content_words(pa.array(texts), b"s") for texts in (["b", "c"], ["a", "b", "c"]))
    >>> one.tolist() == two[1:].tolist()
    True
    """
    words, _ = exact_words(column, key)
    content = widened(words[0]).copy()
    for word in words[1:]:
        content = mix(content, 0) ^ widened(word)
    return content


def label_words(labels: Sequence[Any], key: bytes) -> NDArray[np.uint64]:
    """One 64-bit word per public label. A list of mixed types, or of wide integers, is hashed by its text."""
    kinds = {type(label) for label in labels}
    if kinds == {int} and all(-(1 << 63) <= label < 1 << 63 for label in labels):
        return content_words(pa.array(labels, pa.int64()), key)
    if kinds in ({str}, {float}, {bool}):
        return content_words(pa.array(labels), key)
    return content_words(pa.array([f"{type(label).__name__} {label!r}" for label in labels]), key)


def text_words(texts: pa.LargeStringArray, key: bytes) -> list[Words]:
    """Two words (128 bits) per text, under a secret key, in time linear in the bytes of all texts.

    A text of up to 4096 bytes gets four multilinear hashes of 32 bits. Two different texts agree on one hash with
    probability at most 2^-31 over the key, whatever they are (LK14, Theorem 3.1; docs/proofs/contribution-bounding.md),
    hence on all four with at most 2^-124. A longer text is hashed by BLAKE2b with the key. The split keeps one long text
    from setting the time of all others.
    """
    offsets, data = _bytes(texts)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if len(lengths) and (lengths >= _LONG).any():
        return _with_long(starts, lengths, data, key)
    return _multilinear(starts, lengths, data, key)


def _with_long(starts: Words, lengths: Words, data: NDArray[np.uint8], key: bytes) -> list[Words]:
    long = lengths >= _LONG
    words = [np.empty(len(lengths), np.uint64) for _ in range(2)]
    for word, short in zip(words, _multilinear(starts[~long], lengths[~long], data, key), strict=True):
        word[~long] = short
    for place in np.flatnonzero(long).tolist():  # each call hashes 4096 bytes or more, so the bytes set the time
        text = data[starts[place] : starts[place] + lengths[place]].data
        digest = hashlib.blake2b(text, digest_size=16, key=hashlib.sha256(b"expost long text" + key).digest()).digest()
        words[0][place], words[1][place] = np.frombuffer(digest, np.uint64)
    return words


def _multilinear(starts: Words, lengths: Words, data: NDArray[np.uint8], key: bytes) -> list[Words]:
    pieces = int(-(-lengths.max(initial=0) // 4))
    keys = _keys(key, pieces + 2)
    # The length is a piece too: a text and the same text with zero bytes behind it must differ.
    lanes = keys[0][:, None] + keys[1][:, None] * lengths.astype(np.uint64)
    for piece in range(min(pieces, _COLUMNS)):
        left = lengths > 4 * piece
        if 2 * np.count_nonzero(left) > len(left):
            lanes += keys[piece + 2][:, None] * _piece(data, starts, lengths, piece)
        else:  # few texts are so long: the others must not wait for them
            rows = np.flatnonzero(left)
            lanes[:, rows] += keys[piece + 2][:, None] * _piece(data, starts[rows], lengths[rows], piece)
    if pieces > _COLUMNS:
        _add_tails(lanes, starts, lengths, data, keys)
    high = lanes >> np.uint64(32)
    return [(high[0] << np.uint64(32)) | high[1], (high[2] << np.uint64(32)) | high[3]]


def _add_tails(
    lanes: NDArray[np.uint64], starts: Words, lengths: Words, data: NDArray[np.uint8], keys: NDArray[np.uint64]
) -> None:
    """Add the pieces behind the first ``_COLUMNS`` of each text, all texts in one run of pieces."""
    rows = np.flatnonzero(lengths > 4 * _COLUMNS)
    counts = -(-lengths[rows] // 4) - _COLUMNS
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(0, int(ends[-1]) + _RUN, _RUN))  # runs of whole texts, of about equal length
    for first, last in pairwise(np.unique(np.append(cuts, len(rows))).tolist()):
        some, count = rows[first:last], counts[first:last]
        begins = np.cumsum(count) - count
        piece = np.arange(int(count.sum())) - np.repeat(begins, count) + _COLUMNS
        value = _piece(data, np.repeat(starts[some], count), np.repeat(lengths[some], count), piece)
        for lane, of_lane in zip(lanes, keys.T, strict=True):
            lane[some] += np.add.reduceat(of_lane[piece + 2] * value, begins)


def _bytes(texts: pa.LargeStringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    start, stop = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return ends - start, np.concatenate([text[start:stop], np.zeros(4, np.uint8)])


def _piece(data: NDArray[np.uint8], starts: Words, lengths: Words, piece: int | Words) -> NDArray[np.uint64]:
    """The four bytes of each text at one place, or at a place each, zero behind its end."""
    overlapping = np.ndarray((len(data) - 3,), np.uint32, data, strides=(1,))
    left = np.clip(lengths - 4 * piece, 0, 4)
    place = np.where(left > 0, starts + 4 * piece, 0)
    mask = (np.uint64(1) << (8 * left).astype(np.uint64)) - np.uint64(1)
    bytes_there: NDArray[np.uint64] = overlapping[place].astype(np.uint64) & mask
    return bytes_there


def _keys(key: bytes, count: int) -> NDArray[np.uint64]:
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
