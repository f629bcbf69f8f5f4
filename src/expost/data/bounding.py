"""Contribution bounding: a uniformly random part of what each unit has, chosen by that unit's own rows alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.atoms import Atoms
from expost.data.identity import Words, mix

__all__ = ["Limits", "bound"]

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one unit may contribute: groups, rows in all, and whether a group counts a unit only once.

    >>> Limits(groups=4, rows=8)
    Limits(groups=4, rows=8, once=False)
    """

    groups: int | None = None
    rows: int | None = None
    once: bool = False


def bound(atoms: Atoms, limits: Limits, secret: bytes) -> Atoms:
    """The atoms that each unit keeps: at most ``groups`` groups, then at most ``rows`` rows, both drawn uniformly.

    All rows of a unit must be present. For every secret the choice of a unit depends on its own rows only, as a
    multiset, so adding or removing a unit leaves what the others keep untouched (docs/proofs/contribution-bounding.md);
    and it does not depend on order. Priorities are keyed hashes of a row's content and its number among equal rows.

    >>> atoms = Atoms([np.array([7, 7, 7, 8], np.uint64)], np.array([0, 1, 2, 0]), np.zeros((0, 4), np.int64))
    >>> len(bound(atoms, Limits(rows=2), b"secret").cell)
    3
    """
    order, unit = _by_unit(atoms.words)
    keys = _keys(secret)
    kept = atoms.take(order)
    if limits.once:
        kept, unit = _distinct(kept, unit)
    name = _names(kept.words, keys[0])
    if limits.groups is not None:
        chosen = _choose_groups(unit, _scattered(kept.cell, name, keys[1]), kept.cell, limits.groups)
        kept, unit, name = kept.take(chosen), unit[chosen], name[chosen]
    if limits.rows is not None:
        kept = kept.take(_choose_rows(kept, unit, name, keys[2:], limits.rows))
    return kept


def _keys(secret: bytes) -> list[int]:
    stream = hashlib.shake_256(b"expost contribution bounding" + secret).digest(32)
    return [int.from_bytes(stream[8 * k : 8 * k + 8], "little") for k in range(4)]


def _by_unit(words: list[Words]) -> tuple[Indices, NDArray[np.int64]]:
    """An order in which each unit's rows stand together, and the number of each row's unit in that order."""
    order = np.argsort(words[0]) if len(words) == 1 else np.lexsort(words)
    changes = np.zeros(len(order), bool)
    for word in words:
        ordered = word[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    return order, np.cumsum(changes)


def _names(words: list[Words], key: int) -> Words:
    """A scattered word for each row's unit; only its evenness matters, not that it be unique."""
    name = mix(words[0], key)
    for word in words[1:]:
        name = mix(name ^ word, key)
    return name


def _scattered(part: NDArray[Any], name: Words, key: int) -> Words:
    return mix(mix(part.astype(np.uint64), key) ^ name, key)


def _sorted_within(unit: NDArray[np.int64], priority: Words, *ties: NDArray[Any]) -> Indices:
    """The order by unit, then priority, then ties: one fast sort of packed words unless the packing was too coarse."""
    shift = np.uint64(int(unit[-1]).bit_length()) if len(unit) else np.uint64(0)
    packed = priority >> shift
    packed |= unit.astype(np.uint64) << (np.uint64(64) - shift) if shift else np.uint64(0)
    order = np.argsort(packed)
    ordered = packed[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    coarse = [priority, *ties]
    if any((each[order[equal]] != each[order[equal + 1]]).any() for each in coarse):
        return np.lexsort((*ties, priority, unit))
    return order


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


def _distinct(atoms: Atoms, unit: NDArray[np.int64]) -> tuple[Atoms, NDArray[np.int64]]:
    order = np.lexsort((atoms.cell, unit))
    first = order[_starts(unit[order], atoms.cell[order])]
    return atoms.take(first), unit[first]


def _choose_groups(unit: NDArray[np.int64], priority: Words, cell: NDArray[np.int64], most: int) -> Indices:
    """The rows of the ``most`` groups of lowest priority in each unit."""
    order = _sorted_within(unit, priority, cell)
    unit, cell = unit[order], cell[order]
    new_unit = _starts(unit)
    group = np.cumsum(_starts(unit, cell))
    number: NDArray[np.int64] = group - np.maximum.accumulate(np.where(new_unit, group, 0))
    chosen: Indices = order[number < most]
    return chosen


def _choose_rows(atoms: Atoms, unit: NDArray[np.int64], name: Words, keys: list[int], most: int) -> Indices:
    """The ``most`` rows of lowest priority in each unit; units within the limit keep all and are not sorted."""
    counts = np.bincount(unit)
    full = counts[unit] > most
    over = np.flatnonzero(full)
    if not len(over):
        return np.arange(len(unit))
    unit, content = unit[over], _content(atoms.take(over), name[over], keys[0])
    order = _sorted_within(unit, content)
    over, unit, content = over[order], unit[order], content[order]
    number = _rank_in_run(
        _starts(unit, content)
    )  # equal rows are told apart by their number, or they would go together
    order = _sorted_within(unit, mix(content + number.astype(np.uint64), keys[1]))
    chosen = over[order[_rank_in_run(_starts(unit[order])) < most]]
    return np.concatenate([np.flatnonzero(~full), chosen])


def _content(atoms: Atoms, name: Words, key: int) -> Words:
    content = _scattered(atoms.cell, name, key)
    for column in atoms.steps:
        content = mix(content ^ column.astype(np.uint64), key)
    return content
