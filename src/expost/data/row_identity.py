"""Which row is which: by what stands in it under a secret key, never by where it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

__all__ = ["KEY_BITS", "Mark", "Names", "RowCensus", "RowIdentity", "RowPass", "merged_names", "row_coins"]

Names = NDArray[np.bytes_]
"""128 bits for each row, as texts of 16 bytes: NumPy sorts and searches them exactly (it pads with zeros at the end)."""

KEY_BITS = 128
"""Bits of a key that is kept as an integer."""

_LANES = 4  # hashes of 32 bits a row
_NAME = 16  # bytes
_BLOCK = 1 << 16  # values hashed at a time: the wide copies of them stay small, which is also fastest
_HALF = np.uint64(32)


@dataclass(frozen=True, repr=False)
class Mark:
    """What a reading was made of, whatever the order: how many rows, and the sum of their names modulo 2^128. SECRET.

    >>> Mark(2, 7) == Mark(2, 7), Mark(2, 7)
    (True, <mark of private rows>)
    """

    rows: int = 0
    total: int = 0

    def with_names(self, names: Names) -> Mark:
        """The mark of some more rows."""
        # Quarters of names add up without overflow for 2^32 rows at a time.
        quarters = np.frombuffer(names.tobytes(), np.uint32).reshape(-1, 4).sum(axis=0, dtype=np.uint64).tolist()
        total = sum(int(quarter) << (32 * place) for place, quarter in enumerate(quarters))
        return Mark(self.rows + len(names), (self.total + total) % (1 << 128))

    def to_text(self) -> str:
        """All of it, as a text that is always as long."""
        return f"{self.rows:016x}{self.total:032x}"

    @classmethod
    def from_text(cls, text: str) -> Mark:
        """The mark of a text that ``to_text`` wrote."""
        return cls(int(text[:16], 16), int(text[16:], 16))

    def __repr__(self) -> str:
        return "<mark of private rows>"


class RowIdentity:
    """Names rows by their content and deals them by name and number, under one secret key.

    The name of a row is AES of four multilinear hashes of its numbers. Rows with equal numbers have equal names, and two
    different rows have equal names with probability at most 2^-124 over the key. Equal rows are numbered 0, 1, ...; the coin of a
    row is AES of name and number. So adding or removing a row leaves the coins of all other rows as they are, in every order, batch
    and engine (docs/proofs/row-identity.md).

    >>> identity = RowIdentity(bytes(32))
    >>> names = identity.names([np.array([[0.0], [-0.0], [1.0]])])
    >>> bool(names[0] == names[1]), bool(names[0] == names[2])
    (True, False)
    """

    def __init__(self, key: bytes) -> None:
        stream = hashlib.shake_256(b"expost row identity" + key).digest(64)
        self._key = key
        self._naming, self._dealing = (
            Cipher(algorithms.AES(part), modes.ECB()).encryptor() for part in (stream[:32], stream[32:])
        )
        self._keys: NDArray[np.uint64] = np.empty((_LANES, 0), np.uint64)

    def names(self, blocks: Sequence[Any]) -> Names:
        """The names of rows that are given as tables and columns of numbers side by side.

        Numbers count as 64-bit floats. Zero has one sign, and a missing value one form.
        """
        tables = [block[:, None] if block.ndim == 1 else block for block in blocks]
        rows, width = tables[0].shape[0], sum(table.shape[1] for table in tables)
        step = max(1, _BLOCK // max(width, 1))
        lanes = np.empty((rows, _LANES), np.uint64)
        for start in range(0, rows, step):
            lanes[start : start + step] = self._hashed([table[start : start + step] for table in tables])
        high = (lanes >> _HALF).astype(np.uint32)
        return np.frombuffer(self._naming.update(high.tobytes()), f"S{_NAME}")

    def coins(self, names: Names, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """A uniform 64-bit word for each row, by its name and its number among equal rows."""
        blocks = _halves(names).copy()
        blocks[:, 0] ^= numbers.astype(np.uint64)
        return np.frombuffer(self._dealing.update(blocks.tobytes()), np.uint64)[::2]

    def _hashed(self, tables: list[Any]) -> NDArray[np.uint64]:
        """Multilinear hashes modulo 2^64 of the halves of the numbers; the upper 32 bits of each are universal."""
        numbers = np.concatenate([_canonical(table) for table in tables], axis=1)
        pieces = numbers.view(np.uint32).astype(np.uint64)
        keys = self._lane_keys(pieces.shape[1])
        hashed: NDArray[np.uint64] = np.einsum("ij,kj->ik", pieces, keys[:, 1:]) + keys[:, 0]
        return hashed

    def _lane_keys(self, pieces: int) -> NDArray[np.uint64]:
        """One row of keys a lane: both factors of a sum then lie in a row."""
        if self._keys.shape[1] != pieces + 1:
            stream = hashlib.shake_256(b"expost row hashes" + self._key).digest(8 * _LANES * (pieces + 1))
            self._keys = np.frombuffer(stream, np.uint64).reshape(_LANES, pieces + 1)
        return self._keys

    def __repr__(self) -> str:
        return "<identity of private rows>"

    def __reduce__(self) -> str:
        raise TypeError("Expected the key of private rows to stay in its process.")


class RowCensus:
    """The rows of one complete reading: their mark, and the names that occur more than once. SECRET.

    It takes 16 bytes for each row until it is ``done``, then 24 for each name that occurs more than once.
    """

    def __init__(self) -> None:
        self._names: list[Names] = []
        self._mark = Mark()
        self._repeated: Names = np.empty(0, f"S{_NAME}")

    def add(self, names: Names) -> None:
        """Some more rows."""
        self._names.append(names)
        self._mark = self._mark.with_names(names)

    def done(self) -> RowCensus:
        """The census, once all rows were added."""
        found, counts = np.unique(np.concatenate([self._repeated, *self._names]), return_counts=True)
        self._repeated, self._names = found[counts > 1], []
        return self

    @property
    def mark(self) -> Mark:
        """What the reading was made of."""
        return self._mark

    def another(self, identity: RowIdentity) -> RowPass:
        """Another reading of the same rows."""
        return RowPass(identity, self._repeated)

    def __repr__(self) -> str:
        return "<census of private rows>"


class RowPass:
    """One reading of rows whose census was taken: the coin of each row as it comes by."""

    def __init__(self, identity: RowIdentity, repeated: Names) -> None:
        self._identity, self._repeated = identity, repeated
        self._met = np.zeros(len(repeated), np.int64)
        self.mark = Mark()
        """What was read so far."""

    def coins(self, names: Names) -> NDArray[np.uint64]:
        """The coins of the next rows."""
        self.mark = self.mark.with_names(names)
        return self._identity.coins(names, self._numbers(names))

    def _numbers(self, names: Names) -> NDArray[np.int64]:
        """How many equal rows came before each."""
        numbers = np.zeros(len(names), np.int64)
        if not len(self._repeated):
            return numbers
        place = np.searchsorted(self._repeated, names).clip(max=len(self._repeated) - 1)
        rows = np.flatnonzero(self._repeated[place] == names)
        place = place[rows]
        order = np.argsort(place, kind="stable")
        numbers[rows[order]] = self._met[place[order]] + _rank_in_run(place[order])
        self._met += np.bincount(place, minlength=len(self._met))
        return numbers


def row_coins(contents: Iterable[Sequence[Any]], key: int) -> tuple[NDArray[np.uint64], Mark]:
    """The coins of all rows of a table in memory, in their order, under a key of ``KEY_BITS``; and the table's mark.

    >>> coins, mark = row_coins([[np.array([1.0, 1.0, 2.0])]], 5)
    >>> again, same = row_coins([[np.array([2.0, 1.0])], [np.array([1.0])]], 5)
    >>> sorted(coins) == sorted(again), coins[2] == again[0], mark == same
    (True, np.True_, True)
    """
    identity, census = RowIdentity(key.to_bytes(KEY_BITS // 8, "little")), RowCensus()
    names = np.concatenate([np.empty(0, f"S{_NAME}"), *(identity.names(blocks) for blocks in contents)])
    census.add(names)
    return census.done().another(identity).coins(names), census.mark


def merged_names(rows: int) -> float:
    """A bound on the probability that two different of so many rows have one name, over the key.

    >>> merged_names(10**9) < 2e-19
    True
    """
    # Each lane agrees for two different rows with probability at most 2^-31 (docs/proofs/row-identity.md, Lemma 1).
    return rows * (rows - 1) / 2 * 2.0 ** (-31 * _LANES)


def _canonical(table: Any) -> NDArray[np.float64]:
    """The numbers as 64-bit floats with one zero and one form of what is missing."""
    values = np.array(table.toarray() if hasattr(table, "toarray") else table, np.float64, order="C")
    values[np.isnan(values)] = np.nan  # first: some forms of it warn when they are added to
    values += 0.0
    return values


def _halves(names: Names) -> NDArray[np.uint64]:
    return np.frombuffer(names.tobytes(), np.uint64).reshape(-1, 2)


def _rank_in_run(ordered: NDArray[np.intp]) -> NDArray[np.int64]:
    places = np.arange(len(ordered))
    starts = np.ones(len(ordered), bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    return places - np.maximum.accumulate(np.where(starts, places, 0))
