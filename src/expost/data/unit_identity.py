"""The unit that a row belongs to: 64-bit words that are equal exactly for equal ids, and time windows of units."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, Unit, Window
from expost.data.canonical_cell import decode_column
from expost.data.cell_values import Texts, Times, Truths, read_column
from expost.data.evaluation import evaluate
from expost.data.expression import ColumnName, Expression, col

__all__ = [
    "Period",
    "Words",
    "content_words",
    "exact_words",
    "label_words",
    "mix_words",
    "text_words",
    "unit_words",
    "widen_words",
]

Words = NDArray[Any]  # integers of any width; only the value counts

_LANES = 4  # 32-bit hashes per text
_COLUMNS = 16  # four-byte pieces that are processed text by text; the rest of longer texts is processed as one run
_LONG = 1 << 12  # bytes from which a text is hashed on its own
_RUN = 1 << 20  # pieces of long texts that are processed at a time
_GAPS = {Window.DAY: "D", Window.MONTH: "M"}


@dataclass(frozen=True)
class Period:
    """One time window of a user-time unit: the days from ``start`` up to, not including, ``end``."""

    column: str
    start: datetime.date
    end: datetime.date

    @classmethod
    def of(cls, unit: Unit, day: str) -> Period:
        """Return the window of a unit that contains a day, given as ``YYYY-MM-DD``."""
        if unit.window is None or unit.time_column is None:
            raise InvalidRequest(
                "Expected a unit with a time window", do='Pass unit=Unit.of("id", per="week", time="when")'
            )
        try:
            date = datetime.date.fromisoformat(day)
            if unit.window is Window.DAY:
                start, end = date, date + datetime.timedelta(days=1)
            elif unit.window is Window.WEEK:
                start = date - datetime.timedelta(days=date.weekday())
                end = start + datetime.timedelta(days=7)
            else:
                start = date.replace(day=1)
                end = (start + datetime.timedelta(days=32)).replace(day=1)
        except (TypeError, ValueError, OverflowError):  # the last window of the calendar has no end
            raise InvalidRequest("Expected a day", got=day, do='Pass a day such as "2013-01-07"') from None
        return cls(unit.time_column, start, end)

    @property
    def label(self) -> str:
        """The first day as text."""
        return self.start.isoformat()

    @property
    def condition(self) -> Expression:
        """The filter that keeps the window's rows."""
        return (col(self.column) >= self.start) & (col(self.column) < self.end)


def unit_words(
    unit: Unit, batch: pa.RecordBatch, derived: Mapping[str, Expression], key: bytes
) -> tuple[list[Words], NDArray[np.bool_]]:
    """Return words that are equal exactly for rows of the same unit, and a mask of the rows that have a unit.

    A number is its own word (zero and minus zero share one). A text becomes 128 bits under a fresh secret key (see
    ``text_words``). NULL and NaN are not ids, so their rows belong to no unit; an infinite number is an id.
    """
    assert unit.column is not None
    words, known = exact_words(batch.column(unit.column), key)
    if unit.time_column is not None and unit.window is not None:
        times = evaluate(ColumnName(unit.time_column), batch, derived)
        assert isinstance(times, Times)
        if unit.window is Window.WEEK:  # weeks begin on Monday; 1970 began on a Thursday
            window = (times.moments.astype("datetime64[D]").astype(np.int64) + 3) // 7
        else:
            window = times.moments.astype(f"datetime64[{_GAPS[unit.window]}]").astype(np.int64)
        words.append(window.view(np.uint64))
        known = known & ~times.missing
    return words, known


def exact_words(column: pa.Array, key: bytes) -> tuple[list[Words], NDArray[np.bool_]]:
    """Return exact words of stored ids, and a mask of the rows that have one.

    Two ids merged into one would be bounded as one unit, so nothing is rounded: not an integer beyond 2^53, not a
    decimal, not a nanosecond.
    """
    column = decode_column(column)
    stored = column.type
    if pa.types.is_integer(stored) or pa.types.is_timestamp(stored) or pa.types.is_date64(stored):
        whole = column if pa.types.is_integer(stored) else column.cast(pa.int64())
        if not column.null_count:
            return [np.asarray(whole.to_numpy(zero_copy_only=False))], np.ones(len(column), bool)
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        return [np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False))], present
    if pa.types.is_decimal(stored):
        column = column.cast(pa.string())  # one column has one scale, so equal numbers are equal texts
    values = read_column(column)
    if isinstance(values, Texts):
        return text_words(values.texts, key), ~values.missing
    if isinstance(values, Times):
        return [values.moments.astype(np.int64)], ~values.missing
    if isinstance(values, Truths):
        return [values.true.astype(np.uint8)], ~values.missing
    # Adding zero turns minus zero into zero.
    return [np.where(values.missing, 0.0, values.numbers + 0.0).view(np.uint64)], ~values.missing


def content_words(column: pa.Array, key: bytes) -> NDArray[np.uint64]:
    """Hash each cell to one 64-bit word that depends on its content and the secret key only."""
    words, _ = exact_words(column, key)
    content = widen_words(words[0]).copy()
    for word in words[1:]:
        content = mix_words(content, 0) ^ widen_words(word)
    return content


def label_words(labels: Sequence[Any], key: bytes) -> NDArray[np.uint64]:
    """Hash each public label to one 64-bit word. Labels of mixed types and wide integers are hashed as text."""
    kinds = {type(label) for label in labels}
    if kinds == {int} and all(-(1 << 63) <= label < 1 << 63 for label in labels):
        return content_words(pa.array(labels, pa.int64()), key)
    if kinds in ({str}, {float}, {bool}):
        return content_words(pa.array(labels), key)
    return content_words(pa.array([f"{type(label).__name__} {label!r}" for label in labels]), key)


def text_words(texts: pa.LargeStringArray, key: bytes) -> list[Words]:
    """Hash each text to two words (128 bits) under a secret key, in time linear in the bytes of all texts.

    A text of up to 4096 bytes gets four multilinear hashes of 32 bits. Two different texts agree on one hash with
    probability at most 2^-31 over the key, whatever they are (LK14, Theorem 3.1; docs/proofs/contribution-bounding.md),
    hence on all four with at most 2^-124. A longer text is hashed by BLAKE2b with the key, so that one long text does
    not slow down all others.
    """
    offsets, data = _text_bytes(texts)
    starts, lengths = offsets[:-1], np.diff(offsets)
    long = lengths >= _LONG
    if not long.any():
        return _hash_multilinear(starts, lengths, data, key)
    words = [np.empty(len(lengths), np.uint64) for _ in range(2)]
    for word, short in zip(words, _hash_multilinear(starts[~long], lengths[~long], data, key), strict=True):
        word[~long] = short
    long_key = hashlib.sha256(b"expost long text" + key).digest()
    for place in np.flatnonzero(long).tolist():  # each hashes 4096 bytes or more, so the loop itself costs little
        text = data[starts[place] : starts[place] + lengths[place]].data
        digest = hashlib.blake2b(text, digest_size=16, key=long_key).digest()
        words[0][place], words[1][place] = np.frombuffer(digest, np.uint64)
    return words


def _hash_multilinear(starts: Words, lengths: Words, data: NDArray[np.uint8], key: bytes) -> list[Words]:
    """Compute four multilinear hashes per text and pack them into two words."""
    pieces = int(-(-lengths.max(initial=0) // 4))
    stream = hashlib.shake_256(b"expost unit words" + key).digest(8 * _LANES * (pieces + 2))
    keys = np.frombuffer(stream, np.uint64).reshape(pieces + 2, _LANES)
    # The length is hashed too: a text and the same text followed by zero bytes must differ.
    lanes = keys[0][:, None] + keys[1][:, None] * lengths.astype(np.uint64)
    for piece in range(min(pieces, _COLUMNS)):
        left = lengths > 4 * piece
        if 2 * np.count_nonzero(left) > len(left):
            lanes += keys[piece + 2][:, None] * _piece(data, starts, lengths, piece)
        else:  # only a few texts are this long: process those alone
            rows = np.flatnonzero(left)
            lanes[:, rows] += keys[piece + 2][:, None] * _piece(data, starts[rows], lengths[rows], piece)
    if pieces > _COLUMNS:
        _add_tails(lanes, starts, lengths, data, keys)
    high = lanes >> np.uint64(32)
    return [(high[0] << np.uint64(32)) | high[1], (high[2] << np.uint64(32)) | high[3]]


def _add_tails(
    lanes: NDArray[np.uint64], starts: Words, lengths: Words, data: NDArray[np.uint8], keys: NDArray[np.uint64]
) -> None:
    """Add the pieces after the first ``_COLUMNS`` of each text, in runs over many texts."""
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


def _text_bytes(texts: pa.LargeStringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets of all texts and their bytes, padded by four zero bytes."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    start, stop = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return ends - start, np.concatenate([text[start:stop], np.zeros(4, np.uint8)])


def _piece(data: NDArray[np.uint8], starts: Words, lengths: Words, piece: int | Words) -> NDArray[np.uint64]:
    """Return the four bytes of each text at one piece (or at one piece per text), zero after its end."""
    overlapping = np.ndarray((len(data) - 3,), np.uint32, data, strides=(1,))
    left = np.clip(lengths - 4 * piece, 0, 4)
    place = np.where(left > 0, starts + 4 * piece, 0)
    mask = (np.uint64(1) << (8 * left).astype(np.uint64)) - np.uint64(1)
    bytes_there: NDArray[np.uint64] = overlapping[place].astype(np.uint64) & mask
    return bytes_there


def widen_words(words: Words) -> NDArray[np.uint64]:
    """Convert integers to 64-bit words, so that the word of an id does not depend on the width of its column."""
    if words.dtype.kind == "i":
        return words.astype(np.int64, copy=False).view(np.uint64)
    return words.astype(np.uint64, copy=False)


def mix_words(words: Words, key: int) -> NDArray[np.uint64]:
    """Scatter words by a keyed permutation of 64-bit words (the finaliser of SplitMix64, SLF14, Figure 16)."""
    mixed = widen_words(words) ^ np.uint64(key)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
