"""Which integers are sealed: linear forms of power sums, and how far one unit can move them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, Norm, Sensitivity
from expost.data.bounding import Limits
from expost.data.clamp import Clamp
from expost.data.tally import PowerSums, Tally

__all__ = [
    "CentredForm",
    "CountForm",
    "Form",
    "MomentForm",
    "RatioForm",
    "RunForm",
    "ShareForm",
    "SquareForm",
    "TotalForm",
    "TreeForm",
    "WeightedForm",
    "sealed_integers",
    "unit_length",
    "unit_sensitivity",
]

Integers = NDArray[Any]

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
    def line(self) -> tuple[int, int]:
        """The lower bound and a step, in lattice units."""
        return int(self.clamp.low / self.unit), int(self.clamp.step / self.unit)

    @property
    def row_size(self) -> int:
        low, step = self.line
        return max(abs(low), abs(low + step * self.clamp.steps))

    @property
    def row_spread(self) -> int:
        return self.line[1] * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> Integers:
        low, step = self.line
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
class WeightedForm:
    """Two shares of each row's weight: its value's distance from the lower bound and to the upper one, times the weight.

    With a weight of u units, 0 <= u <= w, a row adds (u t, u (steps - t)): both are non-negative and add up to u steps, so
    its L1 norm is at most w steps. Measured columns: the value, then the weight (docs/proofs/ratios.md).
    """

    clamp: Clamp
    weight: Clamp
    size = 2
    degree = 2

    @property
    def row_size(self) -> int:
        return TotalForm(self.weight).row_size * self.clamp.steps

    @property
    def row_spread(self) -> int:
        return 2 * self.row_size

    def coordinates(self, sums: PowerSums) -> Integers:
        low, step = TotalForm(self.weight).line
        first, (_, cross, _) = sums.first.astype(object), sums.second.astype(object)
        up = low * first[0] + step * cross
        return np.stack([up, self.clamp.steps * (low * sums.rows.astype(object) + step * first[1]) - up])


@dataclass(frozen=True)
class RatioForm:
    """The sums of two columns, each in multiples of its own unit so that both have about the same sensitivity.

    >>> form = RatioForm(Clamp.of((0, 10), whole=True), Clamp.of((0, 1000), whole=True))
    >>> form.multiples, form.row_size
    ((100, 1), 2000)
    """

    numerator: Clamp
    denominator: Clamp
    size = 2
    degree = 1

    @property
    def totals(self) -> tuple[TotalForm, TotalForm]:
        """The forms of the two sums."""
        return TotalForm(self.numerator), TotalForm(self.denominator)

    @property
    def multiples(self) -> tuple[int, int]:
        """How many lattice units a unit of each sum is."""
        first, second = (form.row_size for form in self.totals)
        return max(second // first, 1), max(first // second, 1)

    @property
    def row_size(self) -> int:
        return sum(times * form.row_size for times, form in zip(self.multiples, self.totals, strict=True))

    @property
    def row_spread(self) -> int:
        return sum(times * form.row_spread for times, form in zip(self.multiples, self.totals, strict=True))

    def coordinates(self, sums: PowerSums) -> Integers:
        parts = zip(self.multiples, self.totals, sums.first, strict=True)
        alone = [(times, form, PowerSums(sums.rows, each[None, :], sums.second)) for times, form, each in parts]
        return np.concatenate([times * form.coordinates(each) for times, form, each in alone])


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
    """The counts of all nodes below the root of a tree, level after level.

    ``branches`` says into how many nodes those of each level are divided. A row is in one node of each level, so it adds the
    number of levels to the L1 norm. Any prefix of the leaves is a sum of few nodes (HRMS10, Section 4).

    >>> TreeForm((8, 8, 8)).leaves, TreeForm((8, 8, 8)).size
    (512, 584)
    """

    branches: tuple[int, ...]
    degree = 0

    @property
    def levels(self) -> int:
        """The number of levels below the root."""
        return len(self.branches)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of nodes of each level."""
        return tuple(math.prod(self.branches[: level + 1]) for level in range(self.levels))

    @property
    def leaves(self) -> int:
        """The number of leaves of one group."""
        return self.counts[-1]

    @property
    def size(self) -> int:
        return sum(self.counts)

    @property
    def row_size(self) -> int:
        return self.levels

    @property
    def row_spread(self) -> int:
        return 2 * self.levels

    def coordinates(self, sums: PowerSums) -> Integers:
        """Return one line per node and one column per group; the cells of the sums are groups times leaves."""
        leaves = sums.rows.reshape(-1, self.leaves)
        return np.concatenate([leaves.reshape(len(leaves), count, -1).sum(axis=2) for count in self.counts], axis=1).T

    @property
    def first_nodes(self) -> list[int]:
        """Return the places of each level's first node."""
        return [sum(self.counts[:level]) for level in range(self.levels)]

    def digits(self) -> Integers:
        """Return, one line per level and one column per edge, how many nodes in the same parent end before the edge.

        The last edge has all nodes of the first level before it.
        """
        place = np.arange(self.leaves + 1)
        ended = np.stack([place // (self.leaves // count) for count in self.counts])
        ended[1:] %= np.array(self.branches[1:], dtype=np.int64)[:, None]
        return ended

    def prefixes(self, nodes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the counts of the leaves before each edge, from (noisy) nodes: one line per edge, one column per group.

        Nodes of one parent add up to it. What they add up to beyond their noisy parent is taken off those before the edge,
        as much as makes the noise least (docs/proofs/tree-quantiles.md).
        """
        total, digits, place = np.zeros((self.leaves + 1, nodes.shape[1])), self.digits(), np.arange(self.leaves + 1)
        for level, (start, count) in enumerate(zip(self.first_nodes, self.counts, strict=True)):
            values, branches = nodes[start : start + count], self.branches[level]
            ends = np.concatenate([np.zeros((1, nodes.shape[1])), np.cumsum(values, axis=0)])
            ended, before = place // (self.leaves // count), digits[level]
            total += ends[ended] - ends[ended - before]
            if level:
                excess = (
                    values.reshape(-1, branches, nodes.shape[1]).sum(axis=1) - nodes[start - count // branches : start]
                )
                parent = np.minimum(ended // branches, len(excess) - 1)
                total -= (before / (branches + 1))[:, None] * excess[parent]
        return total

    def edge_weights(self, share: float) -> NDArray[np.float64]:
        """Return the sizes of the noises' weights in (rows before an edge) - share * (all rows), one column per edge.

        Nodes whose weight is zero may be left out.
        """
        digits = self.digits()
        taken = digits[1:] / (np.array(self.branches[1:])[:, None] + 1)  # of the excess over the parent
        taken = np.concatenate([taken, np.zeros((1, digits.shape[1]))])
        rows = []
        for level, branches in enumerate(self.branches):
            off = np.full(digits.shape[1], share) if level == 0 else taken[level - 1]
            for node in range(branches):
                on_path = np.where(digits[level] == node, taken[level], 0.0)  # the parent of the next level
                rows.append(np.abs((digits[level] > node) - off + on_path))
        return np.stack(rows)


@dataclass(frozen=True)
class RunForm:
    """Counts of runs of ``branches ** k`` leaves in order, for each k below ``levels``: single leaves, then longer runs.

    A row is in one run of each length, so it adds ``levels`` to the L1 norm. ``cut_runs`` splits any interval of leaves into
    few disjoint runs (docs/proofs/windows.md). The last run of a length may be shorter.

    >>> form = RunForm(12, 4)
    >>> form.levels, form.size, form.count_runs(np.array([0, 1]), np.array([12, 9])).tolist()
    (2, 15, [3, 5])
    """

    leaves: int
    branches: int
    degree = 0

    @property
    def widths(self) -> list[int]:
        """The lengths of the runs, shortest first; no run is as long as everything."""
        widths = [1]
        while widths[-1] * self.branches < self.leaves:
            widths.append(widths[-1] * self.branches)
        return widths

    @property
    def levels(self) -> int:
        """The number of lengths."""
        return len(self.widths)

    @property
    def size(self) -> int:
        return sum(-(-self.leaves // width) for width in self.widths)

    @property
    def row_size(self) -> int:
        return self.levels

    @property
    def row_spread(self) -> int:
        return 2 * self.levels

    def coordinates(self, sums: PowerSums) -> Integers:
        """Return one line per run and one column per group; the cells of the sums are groups times leaves."""
        leaves = sums.rows.reshape(-1, self.leaves)
        runs = [np.add.reduceat(leaves, np.arange(0, self.leaves, width), axis=1) for width in self.widths]
        return np.concatenate(runs, axis=1).T

    def cut_runs(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Cut intervals of leaves into runs: for each length two pairs of (first run, run after the last).

        At each length the ends that do not fill a longer run are taken, and the rest is left to the longer ones.
        """
        pairs, b = [], self.branches
        for place, width in enumerate(self.widths):
            count = -(-self.leaves // width)
            up, down = -(-starts // b), np.where(ends == count, -(-ends // b), ends // b)
            inner = (up < down) & (place + 1 < self.levels)
            pairs.append((starts, np.where(inner, np.minimum(up * b, count), ends)))
            pairs.append((np.where(inner, np.minimum(down * b, count), ends), ends))
            starts, ends = np.where(inner, up, 0), np.where(inner, down, 0)
        return pairs

    def count_runs(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of runs that each interval of leaves is cut into."""
        return np.asarray(sum(last - first for first, last in self.cut_runs(starts, ends)), np.int64)

    def sum_runs(self, runs: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the (noisy) counts of intervals of leaves: one line per interval, one column per group."""
        total, place = np.zeros((len(starts), runs.shape[1])), 0
        cut = self.cut_runs(starts, ends)
        for level, width in enumerate(self.widths):
            count = -(-self.leaves // width)
            sums = np.cumsum(runs[place : place + count].astype(np.float64), axis=0)
            before = np.concatenate([np.zeros((1, runs.shape[1])), sums])
            total += sum(before[last] - before[first] for first, last in cut[2 * level : 2 * level + 2])
            place += count
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


def unit_length(form: Form, tally: Tally, limits: Limits | None, adjacency: Adjacency) -> Sensitivity:
    """Return the L2 sensitivity of the coordinates of all cells together, in lattice units.

    A row moves one cell, by at most its size. A unit with c_i rows in cell i moves them by at most its size times the root
    of the sum of c_i^2, which is largest if its rows fill as few cells as its limits allow. Of a replaced unit the lengths
    add up squared if no row has the other sign, and plainly if one may (docs/proofs/gaussian-statistics.md).

    >>> from expost.data import col
    >>> from expost.data.axis import Categories
    >>> once = Limits(groups=4, once=True)
    >>> groups = Tally(axes=(Categories.of(col("city"), list("abcdef")),))
    >>> float(unit_length(CountForm(), groups, once, Adjacency.ADD_REMOVE).amount)
    2.000...
    """
    most = unit_sensitivity(form, tally, limits, adjacency)
    square = Fraction(form.row_size**2 * _squared_rows(limits, tally.cells))
    if adjacency is Adjacency.REPLACE_ONE:
        apart = 2 if form.size == 1 and form.row_spread <= form.row_size else 4
        # One row instead of another: the two are in one cell, or in two cells that each move by one row.
        square = max(2 * square, Fraction(form.row_spread) ** 2) if limits is None else apart * square
    found = Sensitivity.from_square(square, adjacency=adjacency, unit=tally.unit)
    return found if found.amount < most.amount else Sensitivity(most.amount, Norm.L2, adjacency, tally.unit)


def _squared_rows(limits: Limits | None, cells: int) -> int:
    """Return the largest sum of squares of the numbers of rows that one unit has in each cell."""
    if limits is None:
        return 1
    groups = cells if limits.groups is None else min(limits.groups, cells)
    most = [each for each in (limits.rows_per_group, limits.rows) if each is not None]
    # Without any limit on rows a unit counts once in each of its groups; unit_sensitivity refuses everything else.
    per_group = 1 if limits.once or not most else min(most)
    if limits.rows is None:
        return groups * per_group**2
    full, left = divmod(limits.rows, per_group)
    return groups * per_group**2 if full >= groups else full * per_group**2 + left**2
