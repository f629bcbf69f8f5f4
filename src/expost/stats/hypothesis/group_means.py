"""Bounded values by group: exact totals, their release under noise, and bounds on the variance of the group means."""

from __future__ import annotations

import math
import operator
from abc import ABC
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Adjacency, Norm, Sealed, Sensitivity
from expost.data import Dataset
from expost.data.canonical_cell import float_cells
from expost.noise import BitSource
from expost.stats.hypothesis.hypothesis_input import TableSize
from expost.stats.hypothesis.hypothesis_plan import HypothesisPlan, add_laplace_noise
from expost.stats.hypothesis.private_sample import GRID, encode_categories, round_to_grid
from expost.stats.hypothesis.reference_law import student_factor

__all__ = ["NUISANCE", "SPREAD_LOG", "UNSEEN", "GroupMeansPlan", "GroupShares", "GroupTotals", "NoisyGroups"]

Floats = NDArray[np.float64]

NUISANCE = 0.005
"""The probability spent on bounding the unknown spread; it is added to every p-value (BB94, Lemma 1)."""

SPREAD_LOG = math.log(1 / (2 * NUISANCE))
"""Laplace noise of scale b exceeds b times this number with probability ``NUISANCE``."""

UNSEEN = -math.log(NUISANCE)
"""Values expected in this many rows of a group are in none of them with probability at most ``NUISANCE``."""

_SHARES = [Fraction(percent, 100) for percent in range(5, 55, 5)]
_DIGITS = 14  # last digits of a square, rounded up: spreads are over-estimated, never under-estimated
_SQUARE = (GRID // 2) ** 2 >> _DIGITS  # the largest square


@dataclass(frozen=True)
class GroupShares:
    """The split of epsilon between sums, squares and group sizes.

    Squares measure the spread: of each group, or of all together if groups are taken to have equal spread. When their
    noise alone would exceed the widest spread the bounds allow, they are useless, and their share goes to the sums.

    Examples
    --------
    >>> GroupShares.for_groups(Fraction(1), rows=1000, public_sizes=(500, 500)).sums
    Fraction(7, 10)
    >>> GroupShares.for_groups(Fraction(1, 100), rows=100, public_sizes=(50, 50)).sums
    Fraction(1, 100)
    """

    sums: Fraction
    squares: Fraction | None
    sizes: Fraction | None
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    equal_spread: bool = False

    @classmethod
    def for_groups(
        cls,
        epsilon: Fraction,
        *,
        rows: int | None,
        public_sizes: Sequence[int] | None,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
        equal_spread: bool = False,
    ) -> GroupShares:
        """Choose the split for a table of this size, or of these groups; of unknown size squares are always released.

        The share f of the squares minimises what noise adds to the variance of a group's mean, in units of one over its
        squared size: their own bound, width log / (f epsilon), half as much where two groups share it, and
        2 (width / ((1 - f) epsilon))^2 from the sums, each ``width`` being the sensitivity.
        """
        level, moved = float(epsilon), _sum_width(adjacency)
        moved_squares = _square_width(adjacency, public_sizes is not None)
        bound = SPREAD_LOG * (0.125 if equal_spread else moved_squares)
        share = min(_SHARES, key=lambda f: bound / (float(f) * level) + 2 * (moved / ((1 - float(f)) * level)) ** 2)
        most = rows if equal_spread or public_sizes is None else max(public_sizes)
        noise = SPREAD_LOG * (0.25 if equal_spread else moved_squares) / (float(share) * level)
        useless = most is not None and most / 4 <= noise
        squares = None if useless else share * epsilon
        rest = epsilon - (squares or 0)
        sizes = None if public_sizes is not None else rest / 4
        return cls(rest - (sizes or 0), squares, sizes, adjacency, equal_spread)

    @property
    def sum_scale(self) -> float:
        """Return the noise scale of a sum, in widths of the bounds."""
        return _sum_width(self.adjacency) / float(self.sums)

    @property
    def size_scale(self) -> float:
        """Return the noise scale of a group's size; 0 where sizes are public."""
        moved = 2 if self.adjacency.public_size else 1
        return 0.0 if self.sizes is None else moved / float(self.sizes)

    @property
    def square_scale(self) -> float:
        """Return the noise scale of a total of squares, in squared widths; 0 where it is not released."""
        if self.squares is None:
            return 0.0
        return (0.25 if self.equal_spread else _square_width(self.adjacency, self.sizes is None)) / float(self.squares)

    @property
    def breakdown(self) -> dict[str, Fraction]:
        """Return the parts by name, as printed on a receipt."""
        parts = {"sums": self.sums, "squares": self.squares, "group sizes": self.sizes}
        return {name: part for name, part in parts.items() if part is not None}


def _sum_width(adjacency: Adjacency) -> float:
    """Return how far one row moves the sums, in widths of the bounds."""
    return 1.0 if adjacency.public_size else 0.5


def _square_width(adjacency: Adjacency, public_sizes: bool) -> float:
    """Return how far one row moves the squares by group: twice as far if it can change its group."""
    return 0.5 if adjacency.public_size and not public_sizes else 0.25


class GroupTotals:
    """Exact sums, sizes and squares of groups, sealed.

    Values are clipped to public bounds, rounded to a lattice and centered, so that a value lies in [-1/2, 1/2] of the
    width of the bounds. Replacing one row changes one value, or moves it to another group: the sums change by at most
    the whole width (L1), the sizes by 2, the total of all squares by a quarter of the squared width, the totals by group
    by a half, or by a quarter where rows cannot change their group. Adding or removing one changes the sums by half the
    width, the sizes by 1, the squares by a quarter.
    """

    def __init__(
        self,
        sums: NDArray[Any],
        sizes: NDArray[Any],
        squares: NDArray[Any],
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
        *,
        fixed: bool = False,
    ) -> None:
        def seal(exact: NDArray[Any], amount: int) -> Sealed:
            return Sealed(exact, Sensitivity(amount, Norm.L1, adjacency))

        replaced = adjacency.public_size
        self.sums = seal(sums, GRID if replaced else GRID // 2)
        self.sizes = seal(sizes, 2 if replaced else 1)
        self.squares = seal(squares.sum(keepdims=True), _SQUARE)
        self.group_squares = seal(squares, 2 * _SQUARE if replaced and not fixed else _SQUARE)

    @classmethod
    def of_arrays(
        cls, groups: Sequence[Any], bounds: tuple[float, float], adjacency: Adjacency = Adjacency.REPLACE_ONE
    ) -> GroupTotals:
        """Total samples given as arrays; where their sizes are public, no row can change its group."""
        values = [round_to_grid(group, bounds) for group in groups]
        sums, sizes = np.array([v.sum() for v in values]), np.array([len(v) for v in values])
        squares = np.array([_round_squares_up(v).sum() for v in values])
        return cls(sums, sizes, squares, adjacency, fixed=adjacency.public_size)

    @classmethod
    def of_dataset(
        cls, dataset: Dataset, value: str, by: str, categories: Sequence[Any], bounds: tuple[float, float]
    ) -> GroupTotals:
        """Total a column by the public categories of another; rows of other categories are left out."""
        total = partial(_total_groups, value, by, tuple(categories), bounds)
        sums, sizes, squares = dataset.reduce(total, operator.add, list(dict.fromkeys([value, by])))
        return cls(sums, sizes, squares, dataset.adjacency)

    def release_groups(
        self, shares: GroupShares, *, public_sizes: Iterable[int] | None, bits: BitSource | None
    ) -> NoisyGroups:
        """Release the totals under discrete Laplace noise."""
        sums = np.asarray(add_laplace_noise(self.sums, shares.sums, bits), np.float64) / GRID
        sizes: Any = list(public_sizes or ())
        if shares.sizes is not None:
            sizes = add_laplace_noise(self.sizes, shares.sizes, bits)
        squares: Any = None
        if shares.squares is not None:
            sealed = self.squares if shares.equal_spread else self.group_squares
            noisy = np.asarray(add_laplace_noise(sealed, shares.squares, bits), np.float64)
            squares = (noisy[0] if shares.equal_spread else noisy) / (4 * _SQUARE)
        return NoisyGroups.under_shares(sums, sizes, squares, shares)


def _round_squares_up(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Square lattice values, their last digits rounded up."""
    squares: NDArray[np.int64] = -(-(values * values) >> _DIGITS)
    return squares


@dataclass(frozen=True)
class NoisyGroups:
    """Released totals in widths of the bounds, with the scales of their noise.

    The last axis of ``sums`` and ``sizes`` runs over groups; any axes before it over repetitions. ``squares`` has the
    same axes, or lacks the last one if groups share their spread.
    """

    sums: Floats
    sizes: Floats
    squares: Floats | None
    sum_scale: float
    size_scale: float
    square_scale: float

    @classmethod
    def under_shares(cls, sums: Any, sizes: Any, squares: Any, shares: GroupShares) -> NoisyGroups:
        """Combine released numbers with the noise scales of the split they were released under."""
        return cls(
            np.asarray(sums, np.float64),
            np.asarray(sizes, np.float64),
            None if squares is None else np.asarray(squares, np.float64),
            shares.sum_scale,
            shares.size_scale,
            shares.square_scale,
        )

    @classmethod
    def expected(cls, means: Floats, sizes: Floats, deviation: float, shares: GroupShares) -> NoisyGroups:
        """Predict the totals for values of this mean in each group; squares a little above their mean.

        Groups of separate spread get more: each is taken to be at least as wide as all together, which adds half of the
        mean distance of its squares from theirs, by noise and by sampling.
        """
        squares = None
        if shares.squares is not None:
            squares = sizes * (means**2 + deviation**2)
            apart = shares.square_scale / 2 + 0.5 * deviation**2 * np.sqrt(sizes)
            squares = (squares.sum(-1) if shares.equal_spread else squares + apart) + shares.square_scale
        return cls.under_shares(means * sizes, sizes, squares, shares)

    @property
    def numbers(self) -> Floats:
        """Return everything that was released, in one row."""
        squares = [] if self.squares is None else [np.ravel(self.squares)]
        return np.concatenate([self.sums, self.sizes, *squares])

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Return whether every group is clearly larger than the noise of its size."""
        return np.asarray((self.sizes > 3 * self.size_scale).all(-1) & (self.sizes >= 2).all(-1))

    @cached_property
    def safe_sizes(self) -> Floats:
        """Return sizes to divide by, at least 2."""
        return np.maximum(self.sizes, 2.0)

    @property
    def means(self) -> Floats:
        """Return the noisy group means."""
        return self.sums / self.safe_sizes

    @cached_property
    def mean_scales(self) -> list[Floats]:
        """Return the scales of the Laplace parts of each group mean: from the sum, and from the size.

        Noise e in the size of a group of mean m moves the sum about that mean by m e.
        """
        parts = [self.sum_scale / self.safe_sizes]
        if self.size_scale > 0:
            total = self.safe_sizes.sum(-1)
            center = (np.abs(self.sums.sum(-1)) + 2 * (self.sum_scale + self.size_scale / 2)) / total
            parts.append(np.minimum(center, 0.5)[..., None] * self.size_scale / self.safe_sizes)
        return parts

    @property
    def noise_variances(self) -> Floats:
        """Return what the noise adds to the variance of each group mean."""
        return np.asarray(sum(2 * scale**2 for scale in self.mean_scales))

    @cached_property
    def mean_variances(self) -> Floats:
        """Return an upper bound on what sampling adds to the variance of each group mean."""
        # The variance of each mean if that of a value is 1; the size is taken to be larger by its noise.
        sampled = (self.safe_sizes + self.size_scale) / self.safe_sizes**2
        widest: Floats = sampled / 4  # the variance of a value between the bounds is at most 1/4 (Popoviciu)
        if self.squares is None:
            return widest
        if self.squares.ndim < self.sums.ndim:
            return np.minimum(self._bound_shared_variance()[..., None] * sampled, widest)
        return self._bound_separate_variances(widest)

    @property
    def _freedom(self) -> Floats:
        """Return the degrees of freedom of each group's spread."""
        return np.maximum(self.safe_sizes - self.size_scale, 2.0) - 1

    @cached_property
    def centering(self) -> tuple[Floats, Floats]:
        """Return what centering takes off the squares of each group, and the squared scale of its noise.

        For any number c the squares within a group are at most Q - 2 c S + c^2 n. With c the noisy mean and released
        numbers for Q, S and n, what noise adds is linear in it: e - 2 c f + c^2 g.
        """
        center = np.clip(self.means, -0.5, 0.5)
        noise = (2 * center * self.sum_scale) ** 2 + (center**2 * self.size_scale) ** 2
        return 2 * center * self.sums - center**2 * self.sizes, noise

    @cached_property
    def squares_within(self) -> Floats:
        """Return the squares within each group, at least as large as those of all together or of unseen rows.

        A few rows may all be alike by chance where others are not: their own squares would then be too small. Values
        of chance q are in none of n rows with probability (1 - q)^n, so those of a chance of ``UNSEEN`` / n may be, and
        they may lie at the farther bound.
        """
        assert self.squares is not None
        farthest = 0.5 + np.abs(np.clip(self.means, -0.5, 0.5))
        own = np.maximum(self.squares - self.centering[0], UNSEEN * farthest**2)
        common = own.sum(-1, keepdims=True) / self._freedom.sum(-1, keepdims=True)
        return np.asarray(np.maximum(own, self._freedom * common))

    @property
    def noise_within(self) -> Floats:
        """Return the noise scale of the squares within each group.

        A quantile of a sum of Laplace noises is at most that of one whose squared scale is the sum of theirs.
        """
        return np.sqrt(self.square_scale**2 + self.centering[1])

    def _bound_separate_variances(self, widest: Floats) -> Floats:
        """Bound the variances of the means of groups that differ in spread.

        Their weighted sum is bounded, with the weights that the spread of the means gives them: each variance has
        w (1 - w / W), w being one over the variance of a mean and W their sum.
        """
        # Where the noise of the squares is wider than the bounds allow, the widest variance is used.
        useless = self.square_scale * SPREAD_LOG >= self.safe_sizes / 4
        # Squares within a group of n rows times n / (n - 1), over the squared size: the variance of its mean.
        per_square = (1 + 1 / self._freedom) / self.safe_sizes**2
        known = np.where(useless, widest, per_square * self.squares_within)
        noise = np.where(useless, 0.0, per_square * self.noise_within)
        likely = np.minimum(known + noise, widest)
        precise = 1 / (likely + self.noise_variances)
        weights = precise * (1 - precise / precise.sum(-1, keepdims=True))
        bound = (weights * known).sum(-1) + SPREAD_LOG * np.sqrt(((weights * noise) ** 2).sum(-1))
        # Satterthwaite (Sat46): the degrees of freedom of a weighted sum of estimated variances.
        total = (weights * likely).sum(-1)
        uncertain = np.where(useless, 0.0, (weights * likely) ** 2 / self._freedom).sum(-1)
        student = student_factor(total**2 / np.maximum(uncertain, 1e-300)) ** 2
        bounds: Floats = np.minimum(likely * (bound * student / total)[..., None], widest)
        return bounds

    def _bound_shared_variance(self) -> Floats:
        """Bound the variance of a value, equal in all groups."""
        assert self.squares is not None
        less, noise = (part.sum(-1) for part in self.centering)
        bound = np.maximum(self.squares - less, 0.0) + SPREAD_LOG * np.sqrt(self.square_scale**2 + noise)
        freedom = np.maximum(self.safe_sizes.sum(-1) - self.sums.shape[-1], 1.0)
        return np.asarray(bound / freedom * student_factor(freedom) ** 2)


@dataclass(frozen=True, kw_only=True)
class GroupMeansPlan(HypothesisPlan, ABC):
    """A priced test of group means: what the tests of two and of several means share."""

    value: str
    by: str
    groups: tuple[Any, ...]
    bounds: tuple[float, float]
    size: TableSize
    public_sizes: tuple[int, ...] | None
    supposed_sizes: tuple[int, ...] | None
    equal_spread: bool

    @property
    def shares(self) -> GroupShares:
        """Return the split of epsilon."""
        return GroupShares.for_groups(
            self.price.epsilon,
            rows=self.size.rows,
            public_sizes=self.public_sizes,
            adjacency=self.size.adjacency,
            equal_spread=self.equal_spread,
        )

    @property
    def group_terms(self) -> dict[str, object]:
        """Return the description of the groups as printed on a receipt."""
        supposed = {} if self.supposed_sizes is None else {"sizes supposed for the power": list(self.supposed_sizes)}
        return {
            "bounds": list(self.bounds),
            "sizes": list(self.public_sizes) if self.public_sizes else "private",
            **supposed,
            "spread": "taken for equal" if self.equal_spread else "of each group",
        }

    def measure(self, dataset: Dataset) -> GroupTotals:
        """Total the values by group."""
        return GroupTotals.of_dataset(dataset, self.value, self.by, self.groups, self.bounds)

    def release_groups(self, sealed: GroupTotals, bits: BitSource | None) -> NoisyGroups:
        """Release the totals under noise."""
        return sealed.release_groups(self.shares, public_sizes=self.public_sizes, bits=bits)

    def release_numbers(self, sealed: GroupTotals, bits: BitSource | None) -> Floats:
        return self.release_groups(sealed, bits).numbers


def _total_groups(
    value: str, by: str, categories: tuple[Any, ...], bounds: tuple[float, float], batch: pa.RecordBatch
) -> NDArray[np.int64]:
    """Total the sums, sizes and squares of each group over a batch."""
    totals = np.zeros((3, len(categories)), np.int64)
    group = encode_categories(batch, by, categories)
    values = round_to_grid(float_cells(batch.column(value)), bounds)
    inside = group >= 0
    group, values = group[inside], values[inside]
    np.add.at(totals[0], group, values)
    np.add.at(totals[2], group, _round_squares_up(values))
    totals[1] += np.bincount(group, minlength=len(categories))
    return totals
