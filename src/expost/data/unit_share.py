"""Share one unit's weight among its rows: a person with many rows counts as much as a person with one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, TableChanged
from expost.data.bounding import Atoms, Limits, bound_contributions, choose_rows, rank_in_run, run_starts
from expost.data.row_identity import Mark
from expost.data.unit_identity import Words, mix_words, widen_words
from expost.data.unit_shard import MEMORY_LIMIT, Shards

__all__ = [
    "MOST_ROWS_PER_UNIT",
    "RowsOfUnits",
    "SharePass",
    "UnitShares",
    "WEIGHT_GRID",
    "content_of",
    "find_sorted",
    "join_words",
    "share_weights",
    "weigh_rows",
]

WEIGHT_GRID = 1 << 24
"""Weights are multiples of one over this: float32 holds all of them up to 1, and adds them without rounding."""
MOST_ROWS_PER_UNIT = 1 << 20
"""The largest limit of rows per unit: a row of such a unit still has a weight of four significant bits."""

_NAME = "S16"  # two words as bytes, which NumPy sorts and searches exactly
_SECOND = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True, repr=False)
class RowsOfUnits:
    """Rows reduced to what bounding needs: words that name the unit, which rows have one, and a word of the content.

    SECRET. Rows of a unit with equal contents must be equal in everything that is computed from them.
    """

    words: list[Words]
    known: NDArray[np.bool_]
    content: NDArray[np.uint64]


class UnitShares:
    """How much each row of a table counts: 1 / k for each of the k rows that its unit keeps, 0 for the others. SECRET.

    A unit with more than ``most`` rows keeps a uniformly random part of them, chosen by ``bound_contributions``. So the
    weights of a unit depend on its own rows only, as a multiset, and not on order or batches, for every secret. They are
    multiples of 2^-24, rounded down: sums of them are exact in float32, and those of one unit are at most 1
    (docs/proofs/unit-weights.md). A row without an id belongs to no unit and has weight 0.

    It takes about 24 bytes per row while the rows are collected (beyond ``memory_limit`` in temporary files), then about
    12 bytes per unit (20 if ids are texts) and 40 per kept row of a unit over the limit.

    >>> rows = RowsOfUnits([np.array([7, 8, 7])], np.ones(3, bool), np.array([1, 1, 2], np.uint64))
    >>> UnitShares([rows], most=2, secret=b"key").start_pass().next_weights(rows).tolist()
    [0.5, 1.0, 0.5]
    """

    def __init__(
        self, rows: Iterable[RowsOfUnits], *, most: int, secret: bytes, memory_limit: int = MEMORY_LIMIT
    ) -> None:
        if not 1 <= most <= MOST_ROWS_PER_UNIT:
            raise InvalidRequest(
                f"Expected max_rows_per_unit from 1 to {MOST_ROWS_PER_UNIT}", got=most, do="Pass a smaller limit"
            )
        self._weights = share_weights(most)
        self._mark = Mark()
        units, kept, owners, contents = [], [], [], []
        with Shards(key=int.from_bytes(secret[:8], "little"), memory_limit=memory_limit) as shards:
            for part in rows:
                self._mark = self._mark.with_names(_name_rows(part))
                chosen = [word[part.known] for word in part.words]
                content = part.content[part.known]
                shards.add(Atoms(chosen, content, np.zeros((0, len(content)), np.int64)))
            for shard in shards:  # each unit's rows are in one shard
                found, counts = np.unique(join_words(shard.words), return_counts=True)
                bounded = bound_contributions(shard, Limits(rows=most), secret)
                owner = join_words(bounded.words)
                full = counts[np.searchsorted(found, owner)] > most
                units.append(found)
                kept.append(np.minimum(counts, most + 1).astype(np.uint32))
                owners.append(owner[full])
                contents.append(bounded.cell[full])
        if not units:
            units, kept, owners, contents = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint32)], [], []
        order = np.argsort(np.concatenate(units))
        self._units, self._counts = np.concatenate(units)[order], np.concatenate(kept)[order]
        self._most = most
        owner = np.searchsorted(self._units, np.concatenate([self._units[:0], *owners]))
        self._kept = _KeptRows(owner, np.concatenate([np.zeros(0, np.uint64), *contents]))

    def start_pass(self) -> SharePass:
        """Start a reading of the same rows, in any order."""
        return SharePass(self)

    def __repr__(self) -> str:
        return "<weights of private rows>"

    def __reduce__(self) -> str:
        raise TypeError("The weights of private rows cannot be pickled: they must not leave their process.")


class _KeptRows:
    """The rows that units over the limit keep: unit and content of each, how often it occurs, and the hash it is found by."""

    def __init__(self, owner: NDArray[np.intp], content: NDArray[np.uint64]) -> None:
        order = np.lexsort((content, owner))
        owner, content = owner[order], content[order]
        first = np.flatnonzero(run_starts(owner, content)) if len(owner) else np.zeros(0, np.intp)
        copies = np.diff(np.append(first, len(owner)))
        owner, content, self._key = owner[first], content[first], 0
        while True:  # until no two of them share a hash, which one key achieves but for a share of n^2 / 2^65
            hashes = self._hash(owner, content)
            order = np.argsort(hashes)
            if not (hashes[order[1:]] == hashes[order[:-1]]).any():
                break
            self._key += 1
        self._hashes, self._owner, self._content = hashes[order], owner[order], content[order]
        self.copies = copies[order]

    def _hash(self, owner: NDArray[np.intp], content: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return mix_words(content ^ mix_words(owner, self._key), self._key)

    def find(self, owner: NDArray[np.intp], content: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which rows are among these, and their places. Unit and content are compared, not the hash alone."""
        place = find_sorted(self._hashes, self._hash(owner, content))
        found = np.flatnonzero((self._owner[place] == owner) & (self._content[place] == content))
        return found, place[found]


class SharePass:
    """One reading of rows whose units were counted; it gives each row its weight."""

    def __init__(self, shares: UnitShares) -> None:
        self._shares = shares
        self._met = np.zeros(len(shares._kept.copies), np.int64)
        self._mark = Mark()

    def next_weights(self, rows: RowsOfUnits) -> NDArray[np.float32]:
        """Return the weights of the next rows: 0 for a row that is not kept."""
        shares = self._shares
        self._mark = self._mark.with_names(_name_rows(rows))
        weights = np.zeros(len(rows.known), np.float32)
        keys = join_words(rows.words)
        if not len(shares._units) or keys.dtype != shares._units.dtype:  # no row had a unit in the first reading
            return weights
        place = find_sorted(shares._units, keys)
        found = rows.known & (shares._units[place] == keys)
        counts = shares._counts[place]
        weights[found] = shares._weights[np.minimum(counts[found], shares._most)]
        full = np.flatnonzero(found & (counts > shares._most))
        weights[full[~self._take_kept(place[full], rows.content[full])]] = 0
        return weights

    def _take_kept(self, owner: NDArray[np.intp], content: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which rows of full units are kept. Of equal rows the first ones are: they are interchangeable."""
        kept = np.zeros(len(owner), bool)
        if not len(self._met):
            return kept
        rows, place = self._shares._kept.find(owner, content)
        order = np.argsort(place, kind="stable")
        ordered = place[order]
        number = self._met[ordered] + rank_in_run(run_starts(ordered))
        kept[rows[order]] = number < self._shares._kept.copies[ordered]
        np.add.at(self._met, place, 1)
        return kept

    def finish(self) -> None:
        """Raise ``TableChanged`` unless exactly the rows of the first reading were read."""
        if self._mark != self._shares._mark:
            raise TableChanged()


def share_weights(most: int) -> NDArray[np.float32]:
    """Return the weight of each of k rows at place k: 1 / k rounded down to a multiple of 2^-24; 0 at place 0.

    >>> share_weights(3)[1:].tolist()
    [1.0, 0.5, 0.3333333134651184]
    """
    rows = np.arange(1, most + 1)
    return np.concatenate([[0], (WEIGHT_GRID // rows) / WEIGHT_GRID]).astype(np.float32)


def weigh_rows(atoms: Atoms, most: int, secret: bytes) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the places of the rows that units keep, and their weights, given all rows of the units.

    These are the rows and weights of ``UnitShares``. ``cell`` is the content of a row.

    >>> rows = Atoms([np.array([7, 8, 7])], np.array([1, 1, 2], np.uint64), np.zeros((0, 3), np.int64))
    >>> weigh_rows(rows, 2, b"key")[1].tolist()
    [0.5, 0.5, 1.0]
    """
    kept = choose_rows(Atoms(atoms.words, atoms.cell, np.zeros((0, len(atoms)))), Limits(rows=most), secret)
    _, unit, counts = np.unique(join_words(atoms.words)[kept], return_inverse=True, return_counts=True)
    return kept, share_weights(most)[counts[unit]].astype(np.float64)


def content_of(columns: Iterable[NDArray[Any]], rows: int, secret: bytes) -> NDArray[np.uint64]:
    """Hash each row to one word, from columns of numbers. Zero has one sign, and a missing number one bit pattern.

    Rows of one unit with equal words are taken for equal, which for rows that differ happens with probability about
    2^-64. It never moves a unit's total weight, and it does not concern other units.
    """
    key = int.from_bytes(secret[-8:].ljust(8, b"\0"), "little")
    content = np.full(rows, key, np.uint64)
    for column in columns:
        content = mix_words(content ^ _number_words(column), key)
    return content


def _number_words(column: NDArray[Any]) -> NDArray[np.uint64]:
    """Return one word per number, equal exactly for equal numbers of the column's type."""
    if column.dtype.kind == "M":
        column = column.view(np.int64)
    if column.dtype.kind == "f":
        with np.errstate(all="ignore"):
            column = np.where(np.isnan(column), column.dtype.type(np.nan), column) + column.dtype.type(0)
        column = column.view(np.uint32 if column.dtype.itemsize == 4 else np.uint64)
    return widen_words(column)


def join_words(words: Sequence[Words]) -> NDArray[Any]:
    """Return the words of each unit as one value that NumPy sorts and searches exactly."""
    if len(words) == 1:
        return widen_words(words[0])
    stacked = np.stack([widen_words(word) for word in words], axis=1)
    return np.ascontiguousarray(stacked).view(f"S{8 * len(words)}")[:, 0]


def find_sorted(values: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.intp]:
    """Return where each wanted value would stand among sorted values. In order they are found several times faster."""
    order = np.argsort(wanted)
    place = np.empty(len(wanted), np.intp)
    place[order] = np.searchsorted(values, wanted[order]).clip(max=len(values) - 1)
    return place


def _pair_words(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Return two words per row as one value."""
    return np.ascontiguousarray(np.stack([first, second], axis=1)).view(_NAME)[:, 0]


def _name_rows(rows: RowsOfUnits) -> NDArray[np.bytes_]:
    """Return 128 bits per row that has a unit, for the checksum of a reading."""
    unit = np.zeros(len(rows.known), np.uint64)
    for word in rows.words:
        unit = mix_words(unit ^ widen_words(word), 0)
    # The second word mixes unit and content, so that two units that swap contents change the sum.
    return _pair_words(unit, mix_words(unit ^ rows.content, _SECOND))[rows.known]
