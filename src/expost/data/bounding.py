"""Contribution bounding: keep a uniformly random part of each unit's rows, chosen by that unit's own rows only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.unit_identity import mix_words, widen_words

__all__ = ["Atoms", "Limits", "bound_contributions", "choose_rows", "rank_in_run", "run_starts"]

Indices = NDArray[np.intp]
GroupWords = Callable[[NDArray[Any]], NDArray[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the odd number next to 2^64 over the golden ratio (SLF14, Section 4)
_DIGITS = np.uint64(29)  # bits of a group's priority in a packed word; the other bits come from the unit's name
_LOW_DIGITS = (np.uint64(1) << _DIGITS) - np.uint64(1)


@dataclass(frozen=True, slots=True)
class Atoms:
    """Rows reduced to integers.

    ``words`` name the unit (an empty list if a unit is a row), ``cell`` is the row's cell, ``steps`` has one line of
    clamped values per measured column.
    """

    words: list[NDArray[Any]]
    cell: NDArray[Any]
    steps: NDArray[Any]

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, rows: NDArray[Any] | slice) -> Atoms:
        """Select rows by index, mask or slice (a slice copies nothing)."""
        return Atoms([word[rows] for word in self.words], self.cell[rows], self.steps[:, rows])

    @staticmethod
    def join(parts: Sequence[Atoms]) -> Atoms:
        """Concatenate the rows of several parts."""
        words = [np.concatenate(each) for each in zip(*(part.words for part in parts), strict=True)]
        cell = np.concatenate([part.cell for part in parts])
        return Atoms(words, cell, np.concatenate([part.steps for part in parts], axis=1))


@dataclass(frozen=True, slots=True)
class Limits:
    """The contribution bounds of one unit.

    ``groups``, ``rows_per_group`` and ``rows`` limit its groups, its rows in each group and its rows in total (None for no
    limit); with ``once`` a group counts the unit only once.
    """

    groups: int | None = None
    rows: int | None = None
    once: bool = False
    rows_per_group: int | None = None


def bound_contributions(atoms: Atoms, limits: Limits, secret: bytes, group_words: GroupWords = widen_words) -> Atoms:
    """Return the rows that each unit keeps: at most ``groups`` groups, then ``rows_per_group`` rows of each, then ``rows`` rows.

    Each of these choices is uniformly random.

    All rows of a unit must be present. For every secret the choice of a unit depends on its own rows only, as a
    multiset, so adding or removing a unit does not change what the others keep (docs/proofs/contribution-bounding.md),
    and it does not depend on order. Priorities are keyed hashes of a row's content and its number among equal rows.
    ``group_words`` hashes the content of cells to one word each (``Tally.group_words``). The default uses the number of
    a cell, which is right only if cells have the same numbers whatever the rows are.

    >>> atoms = Atoms([np.array([7, 7, 7, 8], np.uint64)], np.array([0, 1, 2, 0]), np.zeros((0, 4), np.int64))
    >>> len(bound_contributions(atoms, Limits(rows=2), b"secret").cell)
    3
    """
    return atoms.take(choose_rows(atoms, limits, secret, group_words))


def choose_rows(atoms: Atoms, limits: Limits, secret: bytes, group_words: GroupWords = widen_words) -> Indices:
    """Return the places of the rows that ``bound_contributions`` keeps."""
    stream = hashlib.shake_256(b"expost contribution bounding" + secret).digest(48)
    keys = [int.from_bytes(stream[8 * k : 8 * k + 8], "little") for k in range(6)]
    # A scattered word for each row's unit; it must be even over the words, not unique.
    name = mix_words(atoms.words[0], keys[0])
    for word in atoms.words[1:]:
        name = mix_words(name ^ widen_words(word), keys[0])
    if limits.once or limits.groups is not None or limits.rows_per_group is not None:
        chosen, unit, group = _choose_groups(atoms, name, group_words, keys[1], limits)
        if limits.rows_per_group is not None:
            unit_of_row = np.zeros(len(atoms), np.int64)
            unit_of_row[chosen] = unit
            chosen = _choose_rows(atoms, chosen, group, name, group_words, keys[4:], limits.rows_per_group)
            unit = unit_of_row[chosen]
    else:
        chosen = np.argsort(atoms.words[0]) if len(atoms.words) == 1 else np.lexsort(atoms.words)
        unit = np.cumsum(run_starts(*(word[chosen] for word in atoms.words))) - 1
    if limits.rows is not None:
        chosen = _choose_rows(atoms, chosen, unit, name, group_words, keys[2:4], limits.rows)
    return chosen


def _choose_groups(
    atoms: Atoms, name: NDArray[np.uint64], group_words: GroupWords, key: int, limits: Limits
) -> tuple[Indices, NDArray[np.int64], NDArray[np.int64]]:
    """Choose each unit's groups of lowest priority: the rows by unit and group, and the numbers of each row's unit and group.

    Groups of different units have different numbers. If a group counts a unit only once, one row per group is chosen.
    """
    order, new_unit, new_group = _sort_by_unit_and_group(atoms, name, group_words, key)
    kept, group = new_group if limits.once else np.ones(len(order), bool), np.cumsum(new_group)
    if limits.groups is not None:
        before = np.maximum.accumulate(np.where(new_unit, group, 0))
        kept = kept & (group - before < limits.groups)
    return order[kept], np.cumsum(new_unit)[kept] - 1, group[kept] - 1


def _sort_by_unit_and_group(
    atoms: Atoms, name: NDArray[np.uint64], group_words: GroupWords, key: int
) -> tuple[Indices, NDArray[np.bool_], NDArray[np.bool_]]:
    """Sort by unit, then by a group's priority, then by group; return the order and where units and groups begin.

    It sorts words that pack the first bits of the unit's name and of the priority. If two units, or two groups of a
    unit, agree in these bits, it sorts by all of them instead.
    """
    priority = _hash_part(group_words(atoms.cell), name, key)
    packed = (name & ~_LOW_DIGITS) | (priority >> (np.uint64(64) - _DIGITS))
    order = np.argsort(packed)
    packed = packed[order]
    new_unit, new_group = _unit_and_group_starts(atoms, order)
    apart = packed[1:] ^ packed[:-1]
    if (new_unit[1:] & (apart <= _LOW_DIGITS)).any() or (new_group[1:] & (apart == 0)).any():
        order = np.lexsort((atoms.cell, priority, *atoms.words))
        new_unit, new_group = _unit_and_group_starts(atoms, order)
    return order, new_unit, new_group


def _unit_and_group_starts(atoms: Atoms, order: Indices) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where a new unit, and where a new group of a unit, begins in an order."""
    new_unit = run_starts(*(word[order] for word in atoms.words))
    return new_unit, new_unit | run_starts(atoms.cell[order])


def _choose_rows(
    atoms: Atoms,
    chosen: Indices,
    part: NDArray[np.int64],
    name: NDArray[np.uint64],
    group_words: GroupWords,
    keys: list[int],
    most: int,
) -> Indices:
    """Choose the ``most`` rows of lowest priority in each part, a unit or a group of one. Parts within the limit keep all."""
    full = np.bincount(part)[part] > most
    if not full.any():
        return chosen
    over, part = chosen[full], part[full]
    rows = atoms.take(over)
    content = _hash_part(group_words(rows.cell), name[over], keys[0])
    for column in rows.steps:
        content = mix_words(content ^ column.astype(np.uint64), keys[0])
    order = _sort_by_content(rows, part, content)
    over, part, content = over[order], part[order], content[order]
    # Equal rows get different priorities by their number; with one priority they would be kept or dropped together.
    number = rank_in_run(run_starts(part, content))
    priority = mix_words(content + number.astype(np.uint64), keys[1])
    order, packed = _packed_order(part, priority)
    if (packed[1:] == packed[:-1]).any():
        order = np.lexsort((priority, part))
    kept = over[order[rank_in_run(run_starts(part[order])) < most]]
    return np.concatenate([chosen[~full], kept])


def _sort_by_content(rows: Atoms, part: NDArray[np.int64], content: NDArray[np.uint64]) -> Indices:
    """Sort by part and content hash. Rows of one part whose hashes collide are sorted by the contents themselves.

    Otherwise their order would be that of the sort, which may depend on rows of other units.
    """
    order, packed = _packed_order(part, content)
    equal = np.flatnonzero(packed[1:] == packed[:-1])
    if (content[order[equal]] != content[order[equal + 1]]).any():
        order = np.lexsort((content, part))
    alike = np.flatnonzero(~run_starts(part[order], content[order]))
    here, before = (rows.take(order[places]) for places in (alike, alike - 1))
    if (here.cell != before.cell).any() or (here.steps != before.steps).any():
        return np.lexsort((*rows.steps, rows.cell, content, part))
    return order


def _packed_order(part: NDArray[np.int64], priority: NDArray[np.uint64]) -> tuple[Indices, NDArray[np.uint64]]:
    """Sort by part and by as many leading bits of the priority as fit with it into one word."""
    shift = np.uint64(int(part.max(initial=0)).bit_length())
    packed = priority >> shift
    packed |= part.astype(np.uint64) << (np.uint64(64) - shift) if shift else np.uint64(0)
    order = np.argsort(packed)
    return order, packed[order]


def _hash_part(part: NDArray[Any], name: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Hash a unit and a part of it: the part's entry of the SplitMix64 sequence that starts at the unit's name."""
    return mix_words(name + widen_words(part) * _GOLDEN, key)


def run_starts(*parts: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the positions where a run of equal rows begins."""
    first = np.ones(len(parts[0]), bool)
    first[1:] = False
    for part in parts:
        first[1:] |= part[1:] != part[:-1]
    return first


def rank_in_run(starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number the positions within each run, from 0."""
    places = np.arange(len(starts))
    return places - np.maximum.accumulate(np.where(starts, places, 0))
