"""Records of a CSV file cut into cells, a column at a time and without a look at single rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.engines.csv_records import UNREADABLE

__all__ = ["CutRecords"]

_QUOTE, _LF, _CR = 34, 10, 13
_NOBODY = np.zeros(1, np.uint8)

Places = NDArray[np.int64]


class CutRecords:
    r"""Records in which quotes enclose whole cells, or that have none; blank ones are no records.

    >>> cut = CutRecords(pa.array(['1,"a\n""b"" c"\r\n', '\n', '2\n']), ",")
    >>> cut.cells(0).to_pylist(), cut.cells(1).to_pylist()
    (['1', '2'], ['a\n"b" c', None])
    """

    def __init__(self, lines: pa.StringArray, delimiter: str) -> None:
        _, offsets, self._buffer = lines.buffers()
        borders = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
        self._bytes = (
            np.frombuffer(self._buffer, np.uint8) if self._buffer is not None and self._buffer.size else _NOBODY
        )
        start, stop = borders[:-1], self._without_line_end(borders[:-1], borders[1:])
        lost = np.asarray(lines.is_null())
        kept = (stop > start) | lost
        self._start, self._stop, self._lost = start[kept], stop[kept], lost[kept]
        first, last = (int(borders[0]), int(borders[-1])) if len(lines) else (0, 0)
        part = self._bytes[first:last]
        quotes = np.flatnonzero(part == _QUOTE) + first
        signs = np.flatnonzero(part == ord(delimiter)) + first
        # Records have pairs of quotes: a sign behind an odd number of them stands inside a cell.
        self._signs = signs[np.searchsorted(quotes, signs) % 2 == 0] if quotes.size else signs
        self._first_sign = np.searchsorted(self._signs, self._start)
        self._number_of_signs = np.searchsorted(self._signs, self._stop) - self._first_sign
        self.has_quotes = bool(quotes.size)
        self._has_marks = UNREADABLE.encode() in part.tobytes()

    def _without_line_end(self, start: Places, stop: Places) -> Places:
        for byte in (_LF, _CR):
            stop = stop - ((stop > start) & (self._bytes[stop - 1] == byte))
        return stop

    def whole(self) -> pa.StringArray:
        """The records themselves, without their line ends."""
        return self._between(self._start, self._stop, self._lost)

    def cells(self, place: int) -> pa.StringArray:
        """The cells of a column; an empty one is missing, an empty text in quotes is not, one that is no UTF-8 is."""
        padded = np.append(self._signs, 0)
        mine = np.minimum(self._first_sign + place, len(self._signs))
        start = self._start if place == 0 else padded[mine - 1] + 1
        stop = np.where(place < self._number_of_signs, padded[mine], self._stop)
        absent = self._lost | (place > self._number_of_signs)
        start, stop = np.where(absent, self._stop, start), np.where(absent, self._stop, stop)
        enclosed = (stop - start > 1) & (self._bytes[np.minimum(start, len(self._bytes) - 1)] == _QUOTE)
        texts = self._between(start + enclosed, stop - enclosed, absent | (stop == start))
        if self.has_quotes:
            texts = pc.replace_substring(texts, '""', '"')
        if self._has_marks:
            texts = pc.if_else(pc.match_substring(texts, UNREADABLE), pa.scalar(None, pa.string()), texts)
        return texts

    def _between(self, start: Places, stop: Places, absent: NDArray[np.bool_]) -> pa.StringArray:
        """The texts between these places: every other one of the texts that all the places together cut."""
        if not len(start):
            return pa.array([], pa.string())
        borders = np.stack([start, stop], axis=1).ravel().astype(np.int32)
        cut = pa.StringArray.from_buffers(len(borders) - 1, pa.py_buffer(borders), self._buffer or pa.py_buffer(b""))
        return cut.take(pa.array(np.arange(0, len(borders), 2), mask=absent))
