"""Private rows that fill a public number of places in a ranking, and the plan that the tests of ranks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity, Unit
from expost.data import Dataset
from expost.data.bounding import rank_in_run, run_starts
from expost.data.canonical_cell import float_cells
from expost.data.row_identity import RowIdentity
from expost.data.unit_identity import unit_words, widen_words
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.hypothesis_input import check_values, read_group_sizes
from expost.stats.hypothesis.hypothesis_plan import HypothesisPlan, add_laplace_noise
from expost.stats.hypothesis.private_sample import encode_categories

__all__ = ["MOST_PLACES", "RankPlan", "RankedRows", "TableProtection", "check_places", "rank_labels", "read_places"]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Words = NDArray[np.uint64]

MOST_PLACES = 1 << 24
"""The most rows that are ranked: scores stay below 2^48, and their sensitivity below 2^27."""

_MOST_RELEASED = 1 << 20  # places per group where the size is released: tiny epsilons must not fill the memory
_SIZE_SHARE = Fraction(3, 20)  # of epsilon, for the sizes of the groups where nothing about them is public


@dataclass(frozen=True)
class TableProtection:
    """What a rank test protects in a table: the adjacency and the unit."""

    adjacency: Adjacency
    unit: Unit = Unit()

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> TableProtection:
        """Return what a dataset protects. Of several rows of one id a single one is used, so ids are independent."""
        if dataset.unit.time_column is not None:
            raise InvalidRequest(
                "Expected rows or ids as units, because windows of one id are not independent",
                got=str(dataset.unit),
                do="Ask about one window, or name the id alone",
            )
        return cls(dataset.adjacency, dataset.unit)


class RankedRows:
    """Private numbers by group, ready to be ranked. SECRET: no method returns a row.

    Rows of no group, and rows whose number is missing (NaN), have the group -1. ``labels`` is what is counted of a
    ranked row: its group, or the sign of its difference.
    """

    def __init__(self, values: Floats, groups: Codes, *, count: int, words: list[Words] | None = None) -> None:
        missing = np.isnan(values)
        self._values, self._count = np.where(missing, 0.0, values), count
        self._groups = np.where(missing, -1, groups).astype(np.int64)
        self._words = words

    @classmethod
    def of_samples(cls, samples: Sequence[Floats]) -> RankedRows:
        """Read one array per group."""
        groups = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
        return cls(np.concatenate(samples), groups, count=len(samples))

    @classmethod
    def of_dataset(
        cls, dataset: Dataset, columns: Sequence[str], by: str | None, categories: Sequence[Any]
    ) -> RankedRows:
        """Read a column, or the difference of two, by the public categories of another one, or as one group."""
        unit, values, groups, words = dataset.unit, [np.empty(0)], [np.empty(0, np.int64)], []
        secret = system_bits().words(2).tobytes()
        named = [*columns, *(name for name in (by, unit.column) if name is not None)]
        for batch in dataset.batches(list(dict.fromkeys(named))):
            first, *others = (float_cells(batch.column(column)) for column in columns)
            values.append(subtract_numbers(first, others[0]) if others else first)
            group = np.zeros(len(first), np.int64) if by is None else encode_categories(batch, by, categories)
            if not unit.is_row:
                ids, known = unit_words(unit, batch, {}, secret)
                group = np.where(known, group, -1)
                words.append(np.stack(ids))
            groups.append(group)
        return cls(
            np.concatenate(values),
            np.concatenate(groups),
            count=max(len(categories), 1),
            words=None if not words else list(np.concatenate(words, axis=1)),
        )

    def count_rows(self, protection: TableProtection, bits: BitSource) -> Sealed:
        """Count the rows of each group that can be ranked, one per id chosen at random, and seal the counts."""
        kept, _ = self._choose(*self._draw_words(bits, 1))
        counts = np.bincount(kept[kept >= 0], minlength=self._count)
        # Replacing a unit takes it out of one group and puts it into another.
        moved = 2 if protection.adjacency.public_size and self._count > 1 else 1
        return Sealed(counts, Sensitivity(moved, Norm.L1, protection.adjacency, protection.unit))

    def rank_groups(self, places: Sequence[int], bits: BitSource) -> Codes:
        """Return the group at each rank, lowest first, for exactly this many rows of each group."""
        priority, ties = self._draw_words(bits, 2)
        added = np.repeat(np.arange(len(places)), places)
        return rank_labels(self._values, *self._choose(priority), ties, self._groups, added, places, bits)

    def rank_signs(self, places: int, bits: BitSource) -> Codes:
        """Return 1 or 0 for a positive or negative difference at each rank of its size; the sign of zero is random."""
        priority, ties, coins = self._draw_words(bits, 3)
        signs = np.where(self._values == 0, (coins & np.uint64(1)).astype(np.int64), self._values > 0)
        added = (bits.words(places) & np.uint64(1)).astype(np.int64)
        return rank_labels(np.abs(self._values), *self._choose(priority), ties, signs, added, [places], bits)

    def _draw_words(self, bits: BitSource, count: int) -> list[Words]:
        """Draw ``count`` random words for each row, from its content under a fresh key (docs/proofs/row-identity.md).

        So neither the order of the rows nor their number changes what is drawn for a row, or how many bits are drawn.
        """
        identity = RowIdentity(bits.words(4).tobytes())
        words = map(widen_words, self._words or ())
        halves = [half for word in words for half in (word >> np.uint64(32), word & np.uint64(2**32 - 1))]
        names = identity.name_rows([self._values, self._groups, *halves])
        order, numbers = np.argsort(names, kind="stable"), np.empty(len(names), np.int64)
        numbers[order] = rank_in_run(run_starts(names[order]))
        return [identity.draw_coins(names, numbers + (stream << 40)) for stream in range(count)]

    def _choose(self, priority: Words) -> tuple[Codes, Words]:
        """Return the groups by an order of preference: -1 for all rows of an id but the first; and that order."""
        if self._words is None:
            return self._groups, priority
        groups = np.full(len(self._groups), -1, np.int64)
        kept = self._pick_one_per_id(priority)
        groups[kept] = self._groups[kept]
        return groups, priority

    def _pick_one_per_id(self, priority: NDArray[Any]) -> NDArray[np.intp]:
        """Return the usable row of each id that comes first in an order of preference."""
        assert self._words is not None
        usable = np.flatnonzero(self._groups >= 0)
        ids = [word[usable] for word in self._words]
        order = np.lexsort((priority[usable], *ids))
        first = np.ones(len(order), bool)
        if len(order):
            first[1:] = np.any([word[order[1:]] != word[order[:-1]] for word in ids], axis=0)
        return usable[order[first]]

    def __repr__(self) -> str:
        return "<private rows to be ranked>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private rows cannot be pickled: they must not leave their process.")


def rank_labels(
    values: Floats,
    groups: Codes,
    priority: Words,
    ties: Words,
    labels: Codes,
    added: Codes,
    places: Sequence[int],
    bits: BitSource,
) -> Codes:
    """Return the labels in the order of the values, for exactly ``places`` rows of each group.

    A group of more rows keeps those of the lowest priority. A group of fewer gets rows at random ranks, whose labels are
    taken from ``added`` (one per place, group after group). Equal values are in the order of ``ties``. If the order of all
    values is uniform, so is the one returned, and one row changes one place in it (docs/proofs/rank-tests.md).

    >>> from expost.noise import SeededBits
    >>> values, groups, priority = np.array([3.0, 1.0, 2.0]), np.array([0, 1, 1]), np.array([0, 1, 2], np.uint64)
    >>> rank_labels(values, groups, priority, priority, groups, np.array([0, 1, 1]), [1, 2], SeededBits(1)).tolist()
    [1, 1, 0]
    """
    wanted = np.asarray(places, np.int64)
    shuffled = np.argsort(bits.words(int(wanted.sum())))
    used = np.flatnonzero(groups >= 0)
    order = used[np.lexsort((priority[used], groups[used]))]
    number = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    kept = order[number < wanted[groups[order]]]
    kept = kept[np.lexsort((ties[kept], values[kept]))]
    filled = np.bincount(groups[kept], minlength=len(wanted))
    # The rows of a group fill its first places; the others keep the labels of added rows.
    ends = np.cumsum(wanted)
    empty = np.arange(len(added)) >= np.repeat(ends - wanted + filled, wanted)
    at_random, in_order = np.split(shuffled, [len(shuffled) - len(kept)])
    ranked = np.empty(len(shuffled), np.int64)
    ranked[at_random] = added[empty]
    ranked[np.sort(in_order)] = labels[kept]
    return ranked


def subtract_numbers(first: Floats, second: Floats) -> Floats:
    """Return the differences of pairs; infinities of one sign differ by 0, and a missing number leaves none."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(first == second, 0.0, first - second)


def read_places(dataset: Dataset, by: str, groups: Sequence[Any], expected_sizes: object) -> tuple[int, ...] | None:
    """Check the groups of a column, and read the numbers of rows that are compared."""
    check_values(dataset, by, groups)
    return None if expected_sizes is None else check_places(read_group_sizes(expected_sizes, groups=len(groups)))


def check_places(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return sizes of groups that can be ranked together."""
    if sum(sizes) > MOST_PLACES:
        raise InvalidRequest(f"Expected at most {MOST_PLACES} rows", got=sum(sizes), do="Take a sample")
    return tuple(sizes)


@dataclass(frozen=True, kw_only=True)
class RankPlan(HypothesisPlan, ABC):
    """A priced test of ranks: one score of ranked rows is released.

    ``places`` are the public numbers of rows that are ranked; None: sizes are released first, with a part of epsilon.
    ``fixed`` means that rows cannot change their group.
    """

    protection: TableProtection
    places: tuple[int, ...] | None
    fixed: bool = False

    @property
    def score_epsilon(self) -> Fraction:
        """Return the part of epsilon that is spent on the score."""
        return self.price.epsilon * (1 if self.places is not None else 1 - _SIZE_SHARE)

    @property
    def one_place(self) -> bool:
        """Return whether one unit changes one place only: a replaced one may leave a group and enter another."""
        return self.fixed or not self.protection.adjacency.public_size

    @property
    def rank_terms(self) -> dict[str, object]:
        """Return what is public about the sizes, as printed on a receipt."""
        return {"sizes": "private" if self.places is None else list(self.places)}

    @property
    def breakdown(self) -> dict[str, Fraction]:
        """Return the parts of epsilon by name."""
        if self.places is not None:
            return {}
        return {"ranks": self.score_epsilon, "group sizes": self.price.epsilon * _SIZE_SHARE}

    @abstractmethod
    def score(self, sealed: RankedRows, places: tuple[int, ...], bits: BitSource) -> int:
        """Compute the exact score of the ranked rows. SECRET: the caller must seal it."""

    @abstractmethod
    def sensitivity(self, places: tuple[int, ...]) -> int:
        """Return how far one unit moves the score."""

    def release_score(self, sealed: RankedRows, bits: BitSource) -> tuple[tuple[int, ...], int]:
        """Return (rows ranked in each group, noisy score)."""
        places = self.places
        if places is None:
            noisy = add_laplace_noise(sealed.count_rows(self.protection, bits), self.price.epsilon * _SIZE_SHARE, bits)
            most = max(min(_MOST_RELEASED, MOST_PLACES // len(noisy)), 1)
            places = tuple(np.clip(np.asarray(noisy, np.float64), 1, most).astype(int).tolist())
        within = Sensitivity(self.sensitivity(places), Norm.L1, self.protection.adjacency, self.protection.unit)
        exact = Sealed(np.array([self.score(sealed, places, bits)]), within)
        return places, int(add_laplace_noise(exact, self.score_epsilon, bits)[0])

    def release_numbers(self, sealed: RankedRows, bits: BitSource | None) -> Any:
        places, score = self.release_score(sealed, bits or system_bits())
        return np.array([score] if self.places is not None else [*places, score])
