"""Identify rows by their content under a secret key, never by their position."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from expost.data.bounding import rank_in_run, run_starts
from expost.data.unit_identity import mix_words

__all__ = ["KEY_BITS", "Mark", "Names", "RowCensus", "RowIdentity", "RowPass", "row_coins"]

Names = NDArray[np.bytes_]
"""128 bits per row, as byte strings of length 16: NumPy sorts and searches them exactly (it pads with zeros)."""

KEY_BITS = 128
"""Number of bits of a key that is stored as an integer."""

_LANES = 4  # 32-bit hashes per row
_NAME = 16  # bytes
_BLOCK = 1 << 16  # values hashed at a time, so that their wide copies stay in the cache
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_SHIFTS, _PIECE = (0, 22, 44), np.uint64((1 << 22) - 1)  # pieces of a word
_EXACT_COLUMNS = 1 << 11


@dataclass(frozen=True, repr=False)
class Mark:
    """An order-free checksum of one reading: the number of rows and the sum of their names modulo 2^128. SECRET."""

    rows: int = 0
    total: int = 0

    def with_names(self, names: Names) -> Mark:
        """Return the mark after some more rows."""
        # Sums of 32-bit quarters cannot overflow for 2^32 rows at a time.
        quarters = np.frombuffer(names.tobytes(), np.uint32).reshape(-1, 4).sum(axis=0, dtype=np.uint64).tolist()
        total = sum(int(quarter) << (32 * place) for place, quarter in enumerate(quarters))
        return Mark(self.rows + len(names), (self.total + total) % (1 << 128))

    def with_grid_rows(self, tables: Sequence[NDArray[np.float64]], keys: NDArray[np.uint64]) -> Mark:
        """Return the mark after some more rows of whole numbers, given as tables and columns next to each other.

        ``keys`` are two secret words per column. A row's two words are multilinear hashes, scattered so that their sum
        depends on which numbers stand in one row. It is several times faster than names, which coins need.
        """
        words = np.zeros((len(tables[0]), 2), np.uint64)
        place = 0
        for table in tables:
            wide = table if table.ndim == 2 else table[:, None]
            for start in range(0, wide.shape[1], _EXACT_COLUMNS):
                some = wide[:, start : start + _EXACT_COLUMNS]
                words += _multiply_words(some, keys[place + start : place + start + some.shape[1]])
            place += wide.shape[1]
        low, high = (mix_words(words[:, lane], lane) for lane in (0, 1))
        total = sum(
            int((half >> shift & _LOW).sum()) << int(shift + place)
            for half, place in ((low, 0), (high, 64))
            for shift in (np.uint64(0), _HALF)
        )
        return Mark(self.rows + len(words), (self.total + total) % (1 << 128))

    def __add__(self, other: Mark) -> Mark:
        return Mark(self.rows + other.rows, (self.total + other.total) % (1 << 128))

    def to_text(self) -> str:
        """Write the mark as a text of fixed length."""
        return f"{self.rows:016x}{self.total:032x}"

    @classmethod
    def from_text(cls, text: str) -> Mark:
        """Read a mark that ``to_text`` wrote."""
        return cls(int(text[:16], 16), int(text[16:], 16))

    def __repr__(self) -> str:
        return "<mark of private rows>"


def _multiply_words(table: NDArray[np.float64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the product of whole numbers of at most 2^20 and secret words, modulo 2^64, through exact products of floats."""
    pieces = [(keys >> np.uint64(shift) & _PIECE).astype(np.float64) for shift in _SHIFTS]
    # Below 2^53: 2^20 times 2^22 in each product, of which 2^11 are added.
    found = (np.concatenate(pieces, axis=1).T @ table.T).astype(np.int64).view(np.uint64).reshape(len(pieces), 2, -1)
    words = sum((part << np.uint64(shift) for part, shift in zip(found, _SHIFTS, strict=True)), np.zeros(1, np.uint64))
    return np.asarray(words.T, np.uint64)


class RowIdentity:
    """Names rows by their content and draws a coin for each row from its name and number, under one secret key.

    The name of a row is AES of four multilinear hashes of its numbers. Rows with equal numbers have equal names, and two
    different rows have equal names with probability at most 2^-124 over the key. Equal rows are numbered 0, 1, ...; the
    coin of a row is AES of name and number. So adding or removing a row does not change the coins of the others, in any
    order, batch and engine (docs/proofs/row-identity.md).

    >>> identity = RowIdentity(bytes(32))
    >>> names = identity.name_rows([np.array([[0.0], [-0.0], [1.0]])])
    >>> bool(names[0] == names[1]), bool(names[0] == names[2])
    (True, False)
    """

    def __init__(self, key: bytes) -> None:
        stream = hashlib.shake_256(b"expost row identity" + key).digest(64)
        self._key = key
        self._naming, self._drawing = (
            Cipher(algorithms.AES(part), modes.ECB()).encryptor() for part in (stream[:32], stream[32:])
        )
        self._lane_keys: NDArray[np.uint64] = np.empty((_LANES, 0), np.uint64)

    def name_rows(self, blocks: Sequence[Any]) -> Names:
        """Return the names of rows given as tables and columns of numbers that stand next to each other.

        Numbers are compared as 64-bit floats. Zero has one sign, and a missing value one bit pattern.
        """
        tables = [block[:, None] if block.ndim == 1 else block for block in blocks]
        rows, width = tables[0].shape[0], sum(table.shape[1] for table in tables)
        pieces = 2 * width  # halves of floats
        if self._lane_keys.shape[1] != pieces + 1:
            stream = hashlib.shake_256(b"expost row hashes" + self._key).digest(8 * _LANES * (pieces + 1))
            self._lane_keys = np.frombuffer(stream, np.uint64).reshape(_LANES, pieces + 1)
        keys = self._lane_keys
        step = max(1, _BLOCK // max(width, 1))
        lanes = np.empty((rows, _LANES), np.uint64)
        for start in range(0, rows, step):
            numbers = np.concatenate([_canonical_floats(table[start : start + step]) for table in tables], axis=1)
            halves = numbers.view(np.uint32).astype(np.uint64)
            # Multilinear hashes modulo 2^64; the upper 32 bits of each are universal.
            lanes[start : start + step] = np.einsum("ij,kj->ik", halves, keys[:, 1:]) + keys[:, 0]
        high = (lanes >> _HALF).astype(np.uint32)
        return np.frombuffer(self._naming.update(high.tobytes()), f"S{_NAME}")

    def draw_coins(self, names: Names, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return a uniform 64-bit word for each row, from its name and its number among equal rows."""
        blocks = np.frombuffer(names.tobytes(), np.uint64).reshape(-1, 2).copy()
        blocks[:, 0] ^= numbers.astype(np.uint64)
        return np.frombuffer(self._drawing.update(blocks.tobytes()), np.uint64)[::2]

    def __repr__(self) -> str:
        return "<identity of private rows>"

    def __reduce__(self) -> str:
        raise TypeError("The key of private rows cannot be pickled: it must not leave its process.")


class RowCensus:
    """The rows of one complete reading: their mark, and the names that occur more than once. SECRET.

    It takes 16 bytes per row until ``finish``, then 24 bytes per name that occurs more than once.
    """

    def __init__(self) -> None:
        self._names: list[Names] = []
        self._repeated: Names = np.empty(0, f"S{_NAME}")
        self.mark = Mark()
        """The checksum of the reading."""

    def add(self, names: Names) -> None:
        """Add some rows."""
        self._names.append(names)
        self.mark = self.mark.with_names(names)

    def finish(self) -> RowCensus:
        """Count equal rows after all rows were added, and return the census."""
        found, counts = np.unique(np.concatenate([self._repeated, *self._names]), return_counts=True)
        self._repeated, self._names = found[counts > 1], []
        return self

    def start_pass(self, identity: RowIdentity) -> RowPass:
        """Start another reading of the same rows."""
        return RowPass(identity, self._repeated)

    def __repr__(self) -> str:
        return "<census of private rows>"


class RowPass:
    """One reading of rows whose census was taken; it gives each row its coin."""

    def __init__(self, identity: RowIdentity, repeated: Names) -> None:
        self._identity, self._repeated = identity, repeated
        self._met = np.zeros(len(repeated), np.int64)
        self.mark = Mark()
        """The checksum of the rows read so far."""

    def next_coins(self, names: Names) -> NDArray[np.uint64]:
        """Return the coins of the next rows."""
        self.mark = self.mark.with_names(names)
        numbers = np.zeros(len(names), np.int64)  # how many equal rows came before each
        if len(self._repeated):
            place = np.searchsorted(self._repeated, names).clip(max=len(self._repeated) - 1)
            rows = np.flatnonzero(self._repeated[place] == names)
            place = place[rows]
            order = np.argsort(place, kind="stable")
            ordered = place[order]
            numbers[rows[order]] = self._met[ordered] + rank_in_run(run_starts(ordered))
            self._met += np.bincount(place, minlength=len(self._met))
        return self._identity.draw_coins(names, numbers)


def row_coins(contents: Iterable[Sequence[Any]], key: int) -> tuple[NDArray[np.uint64], Mark]:
    """Return the coins of all rows of a table in memory, in their order, under a key of ``KEY_BITS``; and its mark.

    >>> coins, mark = row_coins([[np.array([1.0, 1.0, 2.0])]], 5)
    >>> again, same = row_coins([[np.array([2.0, 1.0])], [np.array([1.0])]], 5)
    >>> sorted(coins) == sorted(again), coins[2] == again[0], mark == same
    (True, np.True_, True)
    """
    identity, census = RowIdentity(key.to_bytes(KEY_BITS // 8, "little")), RowCensus()
    names = np.concatenate([np.empty(0, f"S{_NAME}"), *(identity.name_rows(blocks) for blocks in contents)])
    census.add(names)
    return census.finish().start_pass(identity).next_coins(names), census.mark


def _canonical_floats(table: Any) -> NDArray[np.float64]:
    """Convert to 64-bit floats with one zero and one NaN."""
    values = np.array(table.toarray() if hasattr(table, "toarray") else table, np.float64, order="C")
    values[np.isnan(values)] = np.nan  # first: adding to a signalling NaN warns
    values += 0.0
    return values
