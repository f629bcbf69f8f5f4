"""Records of text files: quotes and line ends decide which bytes are a record, delimiters cut records into cells.

Every record is treated independently of the others, whatever its bytes are.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.text_format import COMPRESSIONS

__all__ = ["UNREADABLE", "CutRecords", "Misquoted", "begins_with_utf16", "csv_records"]

Places = NDArray[np.int64]

UNREADABLE = "\U0010ffff"
"""Replaces bytes that are not text in the file's encoding. Unicode reserves this code point, so it means nothing in any text."""

_BLOCK = 1 << 23
_LONGEST = 1 << 26  # bounds the memory; a longer record is one row of missing values
_QUOTE, _LF, _CR = 34, 10, 13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_TEXT = re.compile("[\udc80-\udcff]+")
_NO_BYTES = np.zeros(1, np.uint8)
_MARKER = "expost.unreadable"

codecs.register_error(_MARKER, lambda error: (UNREADABLE, getattr(error, "end", 0)))


class Misquoted(Exception):
    """The file is not RFC 4180: a quote neither opens nor closes a whole cell, so its records are ambiguous."""


def csv_records(
    path: Path,
    delimiter: str,
    *,
    lines_are_rows: bool,
    encoding: str = "utf-8",
    block: int = _BLOCK,
    longest: int = _LONGEST,
) -> Iterator[pa.Array]:
    """Yield arrays of records with their line ends, the header first. A record longer than ``longest`` is null.

    A record ends at a line feed outside quotes (with ``lines_are_rows`` at every line feed). A carriage return alone does
    not end a record, since not every writer quotes it. Bytes that are not text become ``UNREADABLE``.
    """
    cutter = _RecordCutter(delimiter, lines_are_rows)
    begun, lost = b"", False
    for part in _read_blocks(path, encoding, block):
        ends = cutter.find_ends(part)
        if lost and ends.size:
            yield pa.nulls(1, pa.string())
            part, ends, lost = part[ends[0] :], ends[1:] - ends[0], False
        if ends.size:
            yield _records_to_texts(begun + part[: ends[-1]], ends + len(begun), longest)
            begun, part = b"", part[ends[-1] :]
        lost = lost or len(begun) + len(part) > longest
        begun = b"" if lost else begun + part
    cutter.check_closed()
    if begun or lost:
        yield pa.nulls(1, pa.string()) if lost else _records_to_texts(begun, np.array([len(begun)]), longest)


def begins_with_utf16(path: Path) -> bool:
    """Return whether a file begins with the byte order mark of UTF-16."""
    return next(_read_blocks(path, "latin-1", 2), b"").startswith(("\xff\xfe".encode(), "\xfe\xff".encode()))


def _read_blocks(path: Path, encoding: str, block: int) -> Iterator[bytes]:
    """Yield the bytes of a file in UTF-8, decompressed and without a byte order mark. No block is empty."""
    codec = COMPRESSIONS.get(path.suffix.lower())
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)(_MARKER)
    opened: Any = path.open("rb") if codec is None else pa.CompressedInputStream(pa.OSFile(str(path)), codec)
    with opened as file:
        part, before = file.read(len(_BYTE_ORDER_MARK) + block), _BYTE_ORDER_MARK
        while part:
            whole = (part if decoder is None else decoder.decode(part).encode()).removeprefix(before)
            if whole:
                yield whole
            part, before = file.read(block), b""
    rest = b"" if decoder is None else decoder.decode(b"", True).encode()
    if rest:
        yield rest


class _RecordCutter:
    """Finds the ends of records block by block. Between blocks it keeps the last byte and whether a quote is open."""

    def __init__(self, delimiter: str, lines_are_rows: bool) -> None:
        self._lines_are_rows = lines_are_rows
        self._before, self._inside, self._closed = _LF, False, False
        self._may_precede, self._may_follow = np.zeros(256, bool), np.zeros(256, bool)
        self._may_precede[[ord(delimiter), _LF, _QUOTE]] = True
        self._may_follow[[ord(delimiter), _LF, _CR, _QUOTE]] = True

    def find_ends(self, block: bytes) -> Places:
        """Return the positions after the line feeds that end a record; raise ``Misquoted`` for a stray quote."""
        read = np.frombuffer(block, np.uint8)
        feeds = np.flatnonzero(read == _LF)
        if self._lines_are_rows:
            return feeds + 1
        quotes = np.flatnonzero(read == _QUOTE)
        # An opening quote must follow a cell's border, a closing one must precede one, or two quotes form a pair.
        if self._closed and not self._may_follow[read[0]]:
            raise Misquoted
        opening, closing = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        preceding = np.where(opening > 0, read[opening - 1], self._before)
        following = read[closing[closing < len(read) - 1] + 1]
        if not (self._may_precede[preceding].all() and self._may_follow[following].all()):
            raise Misquoted
        ends: Places = feeds[(np.searchsorted(quotes, feeds) + self._inside) % 2 == 0] + 1
        self._inside = bool((len(quotes) + self._inside) % 2)
        self._before = int(read[-1])
        self._closed = self._before == _QUOTE and not self._inside
        return ends

    def check_closed(self) -> None:
        """Raise if the file ended inside quotes."""
        if self._inside:
            raise Misquoted


def _records_to_texts(whole: bytes, ends: Places, longest: int) -> pa.Array:
    """Cut bytes into texts at the ends. A record is too long by its own length only, wherever blocks begin."""
    too_long = np.diff(ends, prepend=0) > longest
    try:
        whole.decode("utf-8")
    except UnicodeDecodeError:
        # Replace invalid UTF-8 by a marker. ASCII bytes are unchanged, so the same line feeds end the same records.
        marked = _NOT_TEXT.sub(UNREADABLE, whole.decode("utf-8", "surrogateescape")).encode("utf-8")
        is_end = np.isin(np.flatnonzero(np.frombuffer(whole, np.uint8) == _LF) + 1, ends)
        found = np.flatnonzero(np.frombuffer(marked, np.uint8) == _LF)[is_end] + 1
        # The last record of a file may have no line end.
        whole, ends = marked, found if len(found) == len(ends) else np.append(found, len(marked))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(whole))
    return pc.if_else(pa.array(too_long), None, texts) if too_long.any() else texts


class CutRecords:
    r"""Records cut into cells, a column at a time. Quotes must enclose whole cells; blank records are dropped.

    >>> cut = CutRecords(pa.array(['1,"a\n""b"" c"\r\n', '\n', '2\n']), ",")
    >>> cut.column_cells(0).to_pylist(), cut.column_cells(1).to_pylist()
    (['1', '2'], ['a\n"b" c', None])
    """

    def __init__(self, lines: pa.StringArray, delimiter: str) -> None:
        _, offsets, self._buffer = lines.buffers()
        borders = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
        has_bytes = self._buffer is not None and self._buffer.size
        self._bytes = np.frombuffer(self._buffer, np.uint8) if has_bytes else _NO_BYTES
        start, stop = borders[:-1], borders[1:]
        for byte in (_LF, _CR):  # leave the line end out
            stop = stop - ((stop > start) & (self._bytes[stop - 1] == byte))
        lost = np.asarray(lines.is_null())
        kept = (stop > start) | lost
        self._start, self._stop, self._lost = start[kept], stop[kept], lost[kept]
        first, last = (int(borders[0]), int(borders[-1])) if len(lines) else (0, 0)
        part = self._bytes[first:last]
        quotes = np.flatnonzero(part == _QUOTE) + first
        signs = np.flatnonzero(part == ord(delimiter)) + first
        # Quotes of a record come in pairs: a delimiter after an odd number of them is inside a cell.
        self._signs = signs[np.searchsorted(quotes, signs) % 2 == 0] if quotes.size else signs
        self._first_sign = np.searchsorted(self._signs, self._start)
        self._sign_count = np.searchsorted(self._signs, self._stop) - self._first_sign
        self.has_quotes = bool(quotes.size)
        self._has_marks = UNREADABLE.encode() in part.tobytes()

    def whole_records(self) -> pa.StringArray:
        """Return the records without their line ends."""
        return self._cut_texts(self._start, self._stop, self._lost)

    def column_cells(self, place: int) -> pa.StringArray:
        """Return the cells of a column. Empty and invalid cells are missing; an empty text in quotes is not."""
        padded = np.append(self._signs, 0)
        mine = np.minimum(self._first_sign + place, len(self._signs))
        start = self._start if place == 0 else padded[mine - 1] + 1
        stop = np.where(place < self._sign_count, padded[mine], self._stop)
        absent = self._lost | (place > self._sign_count)
        start, stop = np.where(absent, self._stop, start), np.where(absent, self._stop, stop)
        enclosed = (stop - start > 1) & (self._bytes[np.minimum(start, len(self._bytes) - 1)] == _QUOTE)
        texts = self._cut_texts(start + enclosed, stop - enclosed, absent | (stop == start))
        if self.has_quotes:
            texts = pc.replace_substring(texts, '""', '"')
        if self._has_marks:
            texts = pc.if_else(pc.match_substring(texts, UNREADABLE), pa.scalar(None, pa.string()), texts)
        return texts

    def _cut_texts(self, start: Places, stop: Places, absent: NDArray[np.bool_]) -> pa.StringArray:
        """Return the texts between starts and stops: every other text that all the borders together cut."""
        if not len(start):
            return pa.array([], pa.string())
        borders = np.stack([start, stop], axis=1).ravel().astype(np.int32)
        cut = pa.StringArray.from_buffers(len(borders) - 1, pa.py_buffer(borders), self._buffer or pa.py_buffer(b""))
        return cut.take(pa.array(np.arange(0, len(borders), 2), mask=absent))
