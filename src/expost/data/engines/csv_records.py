"""The records of a CSV file: which bytes belong to which row, decided by quotes and line ends alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["UNREADABLE", "Misquoted", "csv_records"]

UNREADABLE = "\U0010ffff"
"""Stands for bytes that are no UTF-8; Unicode keeps this code point free of any meaning, in every text."""

_BLOCK = 1 << 23
_LONGEST = 1 << 26  # memory stays bounded; such a record is one row of missing values
_QUOTE, _LF, _CR = 34, 10, 13
_MARK = b"\xef\xbb\xbf"
_NO_TEXT = re.compile("[\udc80-\udcff]+")


class Misquoted(Exception):
    """The file is not RFC 4180: a quote neither opens nor closes a whole cell, so nobody can tell its records."""


def csv_records(
    path: Path, delimiter: str, *, lines_are_rows: bool, block: int = _BLOCK, longest: int = _LONGEST
) -> Iterator[pa.Array]:
    """The records with their line ends, the header first, in arrays; one that is longer than ``longest`` is None.

    A record ends at a line feed outside quotes (with ``lines_are_rows`` at every one); a carriage return alone ends
    nothing, since not every writer quotes it. Bytes that are no UTF-8 become ``UNREADABLE``.
    """
    cutter = _Cutter(delimiter, lines_are_rows)
    begun, lost = b"", False
    with path.open("rb") as file:
        mark = file.read(len(_MARK))
        part = (b"" if mark == _MARK else mark) + file.read(block)
        while part:
            ends = cutter.ends(part)
            if lost and ends.size:
                yield pa.nulls(1, pa.string())
                part, ends, lost = part[ends[0] :], ends[1:] - ends[0], False
            if ends.size:
                yield _texts(begun + part[: ends[-1]], ends + len(begun), longest)
                begun, part = b"", part[ends[-1] :]
            lost = lost or len(begun) + len(part) > longest
            begun = b"" if lost else begun + part
            part = file.read(block)
    cutter.finish()
    if begun or lost:
        yield pa.nulls(1, pa.string()) if lost else _texts(begun, np.array([len(begun)]), longest)


class _Cutter:
    """Where records end, block by block; between blocks it knows the last byte and whether a quote is open."""

    def __init__(self, delimiter: str, lines_are_rows: bool) -> None:
        self._lines_are_rows = lines_are_rows
        self._before, self._inside, self._closed = _LF, False, False
        self._may_precede, self._may_follow = np.zeros(256, bool), np.zeros(256, bool)
        self._may_precede[[ord(delimiter), _LF, _QUOTE]] = True
        self._may_follow[[ord(delimiter), _LF, _CR, _QUOTE]] = True

    def ends(self, block: bytes) -> NDArray[np.int64]:
        """The places right behind the line feeds that end a record."""
        read = np.frombuffer(block, np.uint8)
        feeds = np.flatnonzero(read == _LF)
        if self._lines_are_rows:
            return feeds + 1
        quotes = np.flatnonzero(read == _QUOTE)
        self._check(read, quotes)
        ends: NDArray[np.int64] = feeds[(np.searchsorted(quotes, feeds) + self._inside) % 2 == 0] + 1
        self._inside = bool((len(quotes) + self._inside) % 2)
        self._before = int(read[-1])
        self._closed = self._before == _QUOTE and not self._inside
        return ends

    def _check(self, read: NDArray[np.uint8], quotes: NDArray[np.int64]) -> None:
        """Every quote that opens stands behind a cell's border, every one that closes before one, or they are a pair."""
        if self._closed and not self._may_follow[read[0]]:
            raise Misquoted
        opening, closing = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        preceding = np.where(opening > 0, read[opening - 1], self._before)
        following = read[closing[closing < len(read) - 1] + 1]
        if not (self._may_precede[preceding].all() and self._may_follow[following].all()):
            raise Misquoted

    def finish(self) -> None:
        if self._inside:
            raise Misquoted


def _texts(whole: bytes, ends: NDArray[np.int64], longest: int) -> pa.Array:
    """The records between these ends; one is too long by its own length alone, wherever blocks begin."""
    too_long = np.diff(ends, prepend=0) > longest
    try:
        whole.decode("utf-8")
    except UnicodeDecodeError:
        whole, ends = _readable(whole, ends)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(whole))
    return pc.if_else(pa.array(too_long), None, texts) if too_long.any() else texts


def _readable(whole: bytes, ends: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """The same with marks for what is no text: no ASCII byte is touched, so the same line feeds end the same records."""
    text = whole.decode("utf-8", "surrogateescape")
    marked = _NO_TEXT.sub(UNREADABLE, text).encode("utf-8")
    last = np.isin(np.flatnonzero(np.frombuffer(whole, np.uint8) == _LF) + 1, ends)
    found = np.flatnonzero(np.frombuffer(marked, np.uint8) == _LF)[last] + 1
    # The last record of a file may have no line end.
    return marked, found if len(found) == len(ends) else np.append(found, len(marked))
