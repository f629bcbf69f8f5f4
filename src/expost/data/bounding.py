"""Contribution bounding: a uniformly random part of what each unit has, chosen by that unit's own rows alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.atoms import Atoms
from expost.data.identity import Words, mix, widened

__all__ = ["Limits", "bound"]

Indices = NDArray[np.intp]
GroupWords = Callable[[NDArray[Any]], NDArray[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the odd number next to 2^64 over the golden ratio (SLF14, Section 4)
_DIGITS = np.uint64(29)  # of a group's priority in a packed word; the others are of the unit's name
_LOW_DIGITS = (np.uint64(1) << _DIGITS) - np.uint64(1)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one unit may contribute: groups, rows in all, and whether a group counts a unit only once.

    >>> Limits(groups=4, rows=8)
    Limits(groups=4, rows=8, once=False)
    """

    groups: int | None = None
    rows: int | None = None
    once: bool = False


def bound(atoms: Atoms, limits: Limits, secret: bytes, group_words: GroupWords = widened) -> Atoms:
    """The atoms that each unit keeps: at most ``groups`` groups, then at most ``rows`` rows, both drawn uniformly.

    All rows of a unit must be present. For every secret the choice of a unit depends on its own rows only, as a
    multiset, so adding or removing a unit leaves what the others keep untouched (docs/proofs/contribution-bounding.md);
    and it does not depend on order. Priorities are keyed hashes of a row's content and its number among equal rows.
    ``group_words`` gives the content of cells, one word each (``Tally.group_words``). By default it is their number, which
    is right only where cells have the same numbers whatever the rows.

    >>> atoms = Atoms([np.array([7, 7, 7, 8], np.uint64)], np.array([0, 1, 2, 0]), np.zeros((0, 4), np.int64))
    >>> len(bound(atoms, Limits(rows=2), b"secret").cell)
    3
    """
    keys = _keys(secret)
    name = _names(atoms.words, keys[0])
    if limits.once or limits.groups is not None:
        chosen, unit = _choose_groups(atoms, name, group_words, keys[1], limits)
    else:
        chosen, unit = _by_unit(atoms.words)
    if limits.rows is not None:
        chosen = _choose_rows(atoms, chosen, unit, name, group_words, keys[2:], limits.rows)
    return atoms.take(chosen)


def _keys(secret: bytes) -> list[int]:
    stream = hashlib.shake_256(b"expost contribution bounding" + secret).digest(32)
    return [int.from_bytes(stream[8 * k : 8 * k + 8], "little") for k in range(4)]


def _by_unit(words: list[Words]) -> tuple[Indices, NDArray[np.int64]]:
    """An order in which each unit's rows stand together, and the number of each row's unit in that order."""
    order = np.argsort(words[0]) if len(words) == 1 else np.lexsort(words)
    return order, np.cumsum(_starts(*(word[order] for word in words))) - 1


def _names(words: list[Words], key: int) -> NDArray[np.uint64]:
    """A scattered word for each row's unit; only its evenness matters, not that it be unique."""
    name = mix(words[0], key)
    for word in words[1:]:
        name = mix(name ^ widened(word), key)
    return name


def _scattered(part: NDArray[Any], name: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """The scattered word of a unit and a part of it: that entry of the sequence of SplitMix64 that starts at the name."""
    return mix(name + widened(part) * _GOLDEN, key)


def _sorted_within(unit: NDArray[np.int64], priority: NDArray[np.uint64]) -> Indices:
    """An order by unit, then priority: one fast sort of packed words unless these were too coarse."""
    order, packed = _packed_order(unit, priority)
    equal = np.flatnonzero(packed[1:] == packed[:-1])
    if (priority[order[equal]] != priority[order[equal + 1]]).any():
        return np.lexsort((priority, unit))
    return order


def _packed_order(unit: NDArray[np.int64], priority: NDArray[np.uint64]) -> tuple[Indices, NDArray[np.uint64]]:
    shift = np.uint64(int(unit[-1]).bit_length()) if len(unit) else np.uint64(0)
    packed = priority >> shift
    packed |= unit.astype(np.uint64) << (np.uint64(64) - shift) if shift else np.uint64(0)
    order = np.argsort(packed)
    return order, packed[order]


def _starts(*parts: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a run of equal rows begins."""
    first = np.ones(len(parts[0]), bool)
    first[1:] = False
    for part in parts:
        first[1:] |= part[1:] != part[:-1]
    return first


def _rank_in_run(starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    places = np.arange(len(starts))
    return places - np.maximum.accumulate(np.where(starts, places, 0))


def _choose_groups(
    atoms: Atoms, name: NDArray[np.uint64], group_words: GroupWords, key: int, limits: Limits
) -> tuple[Indices, NDArray[np.int64]]:
    """The rows of each unit's groups of lowest priority, in an order by unit, and the number of each row's unit.

    One row a group where a group counts a unit only once.
    """
    order, new_unit, new_group = _by_unit_and_group(atoms, name, group_words, key)
    kept = new_group if limits.once else np.ones(len(order), bool)
    if limits.groups is not None:
        group = np.cumsum(new_group)
        before = np.maximum.accumulate(np.where(new_unit, group, 0))
        kept = kept & (group - before < limits.groups)
    return order[kept], np.cumsum(new_unit)[kept] - 1


def _by_unit_and_group(
    atoms: Atoms, name: NDArray[np.uint64], group_words: GroupWords, key: int
) -> tuple[Indices, NDArray[np.bool_], NDArray[np.bool_]]:
    """The order by unit, then by a group's priority, then by group, and where units and groups begin in it.

    One sort of words that hold the first digits of a unit's name and of the priority. Should two units, or two groups
    of a unit, agree in these digits, the order is found the long way.
    """
    priority = _scattered(group_words(atoms.cell), name, key)
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
    new_unit = _starts(*(word[order] for word in atoms.words))
    return new_unit, new_unit | _starts(atoms.cell[order])


def _choose_rows(
    atoms: Atoms,
    chosen: Indices,
    unit: NDArray[np.int64],
    name: NDArray[np.uint64],
    group_words: GroupWords,
    keys: list[int],
    most: int,
) -> Indices:
    """The ``most`` rows of lowest priority in each unit; units within the limit keep all and are not sorted."""
    full = np.bincount(unit)[unit] > most
    if not full.any():
        return chosen
    over, unit = chosen[full], unit[full]
    content = _content(atoms.take(over), name[over], group_words, keys[0])
    order = _by_content(atoms, over, unit, content)
    over, unit, content = over[order], unit[order], content[order]
    # Equal rows are told apart by their number, or they would go together.
    number = _rank_in_run(_starts(unit, content))
    order = _by_priority(unit, mix(content + number.astype(np.uint64), keys[1]))
    kept = over[order[_rank_in_run(_starts(unit[order])) < most]]
    return np.concatenate([chosen[~full], kept])


def _by_content(atoms: Atoms, rows: Indices, unit: NDArray[np.int64], content: NDArray[np.uint64]) -> Indices:
    """An order by unit and content. Rows of one unit whose contents share a hash are ordered by the contents.

    Without that their order would be the sort's, which may depend on rows of other units.
    """
    order = _sorted_within(unit, content)
    alike = np.flatnonzero(~_starts(unit[order], content[order]))
    here, before = (atoms.take(rows[order[places]]) for places in (alike, alike - 1))
    if (here.cell != before.cell).any() or (here.steps != before.steps).any():
        every = atoms.take(rows)
        return np.lexsort((*every.steps, every.cell, content, unit))
    return order


def _by_priority(unit: NDArray[np.int64], priority: NDArray[np.uint64]) -> Indices:
    """The order by unit, then priority, then as it was."""
    order, packed = _packed_order(unit, priority)
    return np.lexsort((priority, unit)) if (packed[1:] == packed[:-1]).any() else order


def _content(atoms: Atoms, name: NDArray[np.uint64], group_words: GroupWords, key: int) -> NDArray[np.uint64]:
    content = _scattered(group_words(atoms.cell), name, key)
    for column in atoms.steps:
        content = mix(content ^ column.astype(np.uint64), key)
    return content
