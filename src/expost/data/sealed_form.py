"""Which integers are sealed: linear forms of power sums, and how far one unit can move them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, Sensitivity
from expost.data.bounding import Limits
from expost.data.clamp import Clamp
from expost.data.tally import PowerSums, Tally

__all__ = [
    "BRANCHES",
    "CentredForm",
    "CountForm",
    "Form",
    "MomentForm",
    "ShareForm",
    "SquareForm",
    "TotalForm",
    "TreeForm",
    "sealed_integers",
    "unit_sensitivity",
]

Integers = NDArray[Any]

BRANCHES = 8
"""Children of a node of ``TreeForm``: the small power of two with the least noise in a prefix of 512 leaves."""

_MOST_ROWS = 1 << 40
_LARGEST = (1 << 63) - 1


class Form(Protocol):
    """Integer coordinates of a cell, linear in its power sums.

    A cell has ``size`` coordinates, which need powers of steps up to ``degree``. ``row_size`` is the largest L1 norm of one row's contribution, ``row_spread`` the largest L1 distance between the
    contributions of two rows of one cell. Both are exact, rounding included, because they range over whole steps.
    """

    @property
    def size(self) -> int: ...
    @property
    def degree(self) -> int: ...
    @property
    def row_size(self) -> int: ...
    @property
    def row_spread(self) -> int: ...

    def coordinates(self, sums: PowerSums) -> Integers:
        """Return the integers of all cells, one line per coordinate and one column per cell."""
        ...


@dataclass(frozen=True)
class CountForm:
    """The number of rows."""

    size = 1
    degree = 0
    row_size = 1
    row_spread = 0

    def coordinates(self, sums: PowerSums) -> Integers:
        return sums.rows[None, :]


@dataclass(frozen=True)
class TotalForm:
    """The sum of one column, in units of ``unit``: the largest number of which both bound and step are multiples.

    >>> form = TotalForm(Clamp.of((-60, 300), whole=True))
    >>> form.unit, form.row_size, form.row_spread
    (Fraction(1, 1), 300, 360)
    """

    clamp: Clamp
    size = 1
    degree = 1

    @property
    def unit(self) -> Fraction:
        """The value of one lattice unit, in the column's units."""
        low, step = self.clamp.low, self.clamp.step
        bottom = math.lcm(low.denominator, step.denominator)
        return Fraction(math.gcd(int(low * bottom), int(step * bottom)), bottom)

    @property
    def _line(self) -> tuple[int, int]:
        return int(self.clamp.low / self.unit), int(self.clamp.step / self.unit)

    @property
    def row_size(self) -> int:
        low, step = self._line
        return max(abs(low), abs(low + step * self.clamp.steps))

    @property
    def row_spread(self) -> int:
        return self._line[1] * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> Integers:
        low, step = self._line
        total: Integers = low * sums.rows.astype(object) + step * sums.first[0].astype(object)
        return total[None, :]


@dataclass(frozen=True)
class ShareForm:
    """Two shares of each row that add up to it: the way from its lower and to its upper bound.

    A row adds (t, steps - t), both non-negative, so its L1 norm is ``steps`` whatever the value. Count and sum follow
    from the two, each with half the variance that a split of epsilon into halves would leave
    (docs/proofs/shares.md).
    """

    clamp: Clamp
    size = 2
    degree = 1

    @property
    def row_size(self) -> int:
        return self.clamp.steps

    @property
    def row_spread(self) -> int:
        return 2 * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> Integers:
        up = sums.first[0].astype(object)
        return np.stack([up, self.clamp.steps * sums.rows.astype(object) - up])


@dataclass(frozen=True)
class CentredForm:
    """Two coordinates of each row: its deviation from the middle of the bounds, 2 t - steps, and the constant ``steps``.

    Replacing a value by another moves the first by at most 2 steps and the second not at all. Replacing a value by a
    missing one, or by a row that fails the filter, moves each by at most steps. So under replace-one the count is free
    once the sum is paid for (docs/proofs/shares.md).
    """

    clamp: Clamp
    size = 2
    degree = 1

    @property
    def row_size(self) -> int:
        return 2 * self.clamp.steps

    @property
    def row_spread(self) -> int:
        return 2 * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> Integers:
        total = self.clamp.steps * sums.rows.astype(object)
        return np.stack([2 * sums.first[0].astype(object) - total, total])


@dataclass(frozen=True)
class SquareForm:
    """Three shares of each row that add up to it: t^2, 2 t (steps - t) and (steps - t)^2.

    Count, sum and sum of squares follow from the three (Bernstein's basis of degree 2), each with a third or less of
    the variance that a split of epsilon into thirds would leave (docs/proofs/shares.md).
    """

    clamp: Clamp
    size = 3
    degree = 2

    @property
    def row_size(self) -> int:
        return self.clamp.steps**2

    @property
    def row_spread(self) -> int:
        return 2 * self.clamp.steps**2

    def coordinates(self, sums: PowerSums) -> Integers:
        steps = self.clamp.steps
        rows, first, square = (each.astype(object) for each in (sums.rows, sums.first[0], sums.second[0]))
        cross = steps * first - square
        return np.stack([square, 2 * cross, steps * steps * rows - square - 2 * cross])


@dataclass(frozen=True)
class MomentForm:
    """All second moments of several columns: three shares per column, one centred product per pair.

    Every column adds ``share_scale`` to the L1 norm of a row and every pair at most ``scale``, a third of that, whatever
    their own numbers of steps. Variances depend on shares alone and covariances on both. With this weight both errors
    have the same bound, and no other weight improves it (docs/proofs/shares.md).

    >>> columns = (Clamp.of((0, 10), whole=True), Clamp.of((0, 5), whole=True))
    >>> form = MomentForm(columns)
    >>> form.size, form.row_size == 7 * form.scale
    (7, True)
    """

    clamps: tuple[Clamp, ...]
    degree = 2

    @property
    def size(self) -> int:
        return 3 * len(self.clamps) + math.comb(len(self.clamps), 2)

    @property
    def scale(self) -> int:
        """The most that one row adds to the product of a pair."""
        return math.lcm(*(clamp.steps for clamp in self.clamps)) ** 2

    @property
    def share_scale(self) -> int:
        """The sum of the three shares of a column that one row adds."""
        return 3 * self.scale

    @property
    def row_size(self) -> int:
        return self.share_scale * len(self.clamps) + self.scale * math.comb(len(self.clamps), 2)

    @property
    def row_spread(self) -> int:
        return 2 * self.row_size

    def coordinates(self, sums: PowerSums) -> Integers:
        columns, count, first = len(self.clamps), sums.rows.astype(object), sums.first.astype(object)
        pairs = [(i, j) for i in range(columns) for j in range(i, columns)]
        second = {pair: sums.second[k].astype(object) for k, pair in enumerate(pairs)}
        rows: list[Integers] = []
        for i, clamp in enumerate(self.clamps):
            own = PowerSums(sums.rows, sums.first[i : i + 1], second[i, i][None, :])
            rows += list(SquareForm(clamp).coordinates(own) * (self.share_scale // clamp.steps**2))
        for i, j in pairs:
            if i != j:  # the sum of (2 t_i - steps_i) (2 t_j - steps_j), scaled
                m, n = self.clamps[i].steps, self.clamps[j].steps
                centred = 4 * second[i, j] - 2 * n * first[i] - 2 * m * first[j] + m * n * count
                rows.append(centred * (self.scale // (m * n)))
        return np.stack(rows)


@dataclass(frozen=True)
class TreeForm:
    """The counts of all nodes below the root of a tree with ``BRANCHES ** levels`` leaves, level after level.

    A row is in one node of each level, so it adds ``levels`` to the L1 norm. Any prefix of the leaves is a sum of at
    most ``levels * (BRANCHES - 1)`` nodes (HRMS10, Section 4).

    >>> TreeForm(3).leaves, TreeForm(3).size
    (512, 584)
    """

    levels: int
    degree = 0

    @property
    def leaves(self) -> int:
        """The number of leaves of one group."""
        return int(BRANCHES**self.levels)

    @property
    def size(self) -> int:
        return sum(BRANCHES**level for level in range(1, self.levels + 1))

    @property
    def row_size(self) -> int:
        return self.levels

    @property
    def row_spread(self) -> int:
        return 2 * self.levels

    def coordinates(self, sums: PowerSums) -> Integers:
        """Return one line per node and one column per group; the cells of the sums are groups times leaves."""
        leaves = sums.rows.reshape(-1, self.leaves)
        nodes = [leaves.reshape(len(leaves), BRANCHES**level, -1).sum(axis=2) for level in range(1, self.levels + 1)]
        return np.concatenate(nodes, axis=1).T

    @property
    def first_nodes(self) -> list[int]:
        """Return the places of each level's first node."""
        return [sum(BRANCHES**below for below in range(1, level)) for level in range(1, self.levels + 1)]

    def prefixes(self, nodes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the counts of the leaves before each edge, from (noisy) nodes: one line per edge, one column per group."""
        place = np.arange(self.leaves + 1)
        total = np.zeros((self.leaves + 1, nodes.shape[1]))
        start = 0
        for level in range(1, self.levels + 1):
            count, width = BRANCHES**level, BRANCHES ** (self.levels - level)
            ends = np.concatenate([np.zeros((1, nodes.shape[1])), np.cumsum(nodes[start : start + count], axis=0)])
            within = place // width  # nodes of this level that end before the edge
            counted = (place // (width * BRANCHES)) * BRANCHES if level > 1 else 0  # covered by the level above
            total += ends[within] - ends[counted]
            start += count
        return total


def sealed_integers(form: Form, sums: PowerSums) -> Integers:
    """Return the coordinates of all cells, cell after cell, in a type that depends on the form only.

    The type is int64 if 2^40 rows cannot leave 62 bits, else Python integers: a type chosen by the values would reveal
    how large they are. If a table has more rows, sums are clipped to the largest integer, which never increases the
    distance between two of them.

    >>> sums = PowerSums.of(np.array([0, 1]), np.array([[3.0, 4.0]]), cells=2, degree=2)
    >>> [sealed_integers(form, sums).dtype.name for form in (CountForm(), SquareForm(Clamp.of((0, 1))))]
    ['int64', 'object']
    """
    coordinates = form.coordinates(sums).T.ravel()
    if form.row_size * _MOST_ROWS >= 1 << 62:
        return coordinates.astype(object)
    return coordinates.clip(-_LARGEST, _LARGEST).astype(np.int64)


def unit_sensitivity(form: Form, tally: Tally, limits: Limits | None, adjacency: Adjacency) -> Sensitivity:
    """Return the L1 sensitivity of the coordinates of all cells together, in lattice units.

    A row falls into one cell at most, so cells do not add up: the sensitivity is one row's contribution to its cell,
    times the rows that a unit keeps. Replacing a unit is removing one and adding another, at most twice that. A single
    row that is always counted, in the only cell there is, moves the coordinates by its spread only.

    >>> unit_sensitivity(CountForm(), Tally(), Limits(rows=5), Adjacency.ADD_REMOVE).amount
    Fraction(5, 1)
    """
    rows = 1  # the most rows of one unit that are added up
    if limits is not None:
        counts = [] if limits.rows is None else [limits.rows]
        if limits.once:
            counts.append(tally.cells if limits.groups is None else min(limits.groups, tally.cells))
        rows = min(counts)
    amount = rows * form.row_size
    if adjacency is Adjacency.REPLACE_ONE:
        # Measured numbers may be missing and categories unlisted, so only a bare count counts every row.
        always = limits is None and tally.where is None and not tally.axes and not tally.measured
        apart = form.row_spread if tally.cells == 1 else 2 * form.row_size
        amount = form.row_spread if always else max(apart, form.row_size) if limits is None else 2 * amount
        if form.size == 1 and tally.cells == 1 and limits is not None:
            # One coordinate: a unit's part lies between -amount and amount, and replacing moves it within that.
            amount = rows * max(form.row_size, form.row_spread)
    return Sensitivity(max(amount, 1), adjacency=adjacency, unit=tally.unit)
