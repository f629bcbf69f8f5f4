"""Noise over a whole ladder, kept as the noise of the top rung and the jumps below it.

Walking from the top rung down, coordinate c keeps its noise on the step to rung r with probability w_r. Put the steps
and coordinates next to each other on a line, giving each an interval of length -ln w_r: the intervals that a unit-rate
Poisson process hits are independent of each other, each with probability 1 - w_r. So the jumps of all coordinates are
drawn as the points of one Poisson process (docs/proofs/jump-line.md), about -ln w(bottom, top) per coordinate however
many rungs there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder
from expost.noise.bits import BitSource
from expost.noise.enclosure import (
    MINUS_LOG_ERROR,
    Enclosure,
    Real,
    UniformReals,
    bound_minus_log_complement,
    is_above,
)
from expost.noise.parameter import BLOCK, Parameter, check_level, check_scale

__all__ = ["JumpLine", "JumpNoise", "check_rates", "draw_jumps"]

Sampler = Callable[[Parameter, BitSource], NDArray[Any]]
Places = NDArray[np.int64]

_LINE = 1 << 16  # coordinates per line: a longer line would leave more points to exact arithmetic
_LONGEST = 512  # length of line that one row of gaps covers; short sums keep the float filter sharp
_SAFE = 2.0**62  # sums below this, in magnitude, cannot wrap in 64 bits


class JumpNoise:
    """The noise of every coordinate at every rung; memory grows with the jumps, not with the rungs.

    A jump belongs to its rung and to all more private ones: the noise at rung r is the top rung's plus the jumps of
    rungs r and above. Jumps are stored from the top rung down. Python integers are used where a sum could leave 64 bits.
    """

    def __init__(
        self, top: NDArray[Any], rungs: NDArray[np.intp], coordinates: NDArray[np.intp], sizes: NDArray[Any]
    ) -> None:
        # No rung can be farther from zero than the top and all jumps of its coordinate together.
        reach: NDArray[np.float64] = np.abs(top).astype(float)
        np.add.at(reach, coordinates, np.abs(sizes).astype(float))
        if reach.size and reach.max() >= _SAFE:
            top, sizes = top.astype(object), sizes.astype(object)
        self.top, self.rungs, self.coordinates, self.sizes = top, rungs, coordinates, sizes

    @classmethod
    def draw(
        cls, ladder: Ladder, sensitivity: Fraction, count: int, *, order: int, sampler: Sampler, bits: BitSource
    ) -> JumpNoise:
        """Draw noise of scale sensitivity / epsilon at each rung, with the jumps that ``JumpLine`` describes."""
        check_rates(ladder, sensitivity)
        levels, amount = np.array([rung.numerator / rung.denominator for rung in ladder]), float(sensitivity)
        top = len(ladder) - 1
        parts = []
        for start in range(0, count, _LINE):
            size = min(_LINE, count - start)
            line = JumpLine(levels / amount, lambda rung: ladder[rung] / sensitivity, order=order, coordinates=size)
            steps, coordinates = draw_jumps(line, bits)
            parts.append((steps, start + coordinates))
        steps, coordinates = parts[0] if parts else (np.empty(0, np.int64), np.empty(0, np.int64))
        if len(parts) > 1:
            steps, coordinates = (np.concatenate(column) for column in zip(*parts, strict=True))
            order_of = np.argsort(steps, kind="stable")
            steps, coordinates = steps[order_of], coordinates[order_of]
        rungs = top - 1 - steps
        scale = Parameter(amount / levels, lambda rung: sensitivity / ladder[rung], np.full(count, top), (count,))
        noise = sampler(scale, bits)
        return cls(noise, rungs, coordinates, sampler(scale.with_index(rungs), bits))

    def at(self, rung: int) -> NDArray[Any]:
        """Return the noise of one rung."""
        noise = self.top.astype(np.result_type(self.top, self.sizes))
        below = self._count_jumps(rung)
        np.add.at(noise, self.coordinates[:below], self.sizes[:below])
        return noise

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return the noise of rungs ``start`` to ``stop - 1``, one row per rung."""
        last = self.at(stop - 1)
        rows = np.zeros((stop - start, len(last)), last.dtype)
        rows[-1] = last
        jumped = slice(self._count_jumps(stop - 1), self._count_jumps(start))
        rows[self.rungs[jumped] - start, self.coordinates[jumped]] = self.sizes[jumped]
        # The noise of a rung is that of the rung above plus its own jumps: a running sum from the top down.
        upward = rows[::-1]
        np.cumsum(upward, axis=0, out=upward)
        return rows

    def _count_jumps(self, rung: int) -> int:
        """Count the jumps that belong to this rung or to less private ones."""
        return int(np.searchsorted(-self.rungs, -rung, side="right"))

    def extend(self, top: NDArray[Any], rung: int) -> JumpNoise:
        """Put a new, less private top rung above this noise; ``rung`` is the index of the old one."""
        # The difference is the jump of the old top rung, so rungs that were read before keep their values.
        sizes = self.top - top
        moved = np.flatnonzero(sizes)
        return JumpNoise(
            top,
            np.concatenate([np.full(len(moved), rung), self.rungs]),
            np.concatenate([moved, self.coordinates]),
            np.concatenate([sizes[moved], self.sizes]),
        )


def check_rates(ladder: Ladder, sensitivity: Fraction) -> None:
    """Refuse rungs whose noise is none at all, or wider than exact sampling supports."""
    check_level(ladder.cap, sensitivity)
    check_scale(ladder[0], sensitivity)


class JumpLine:
    """The line of one ladder: ``rates`` are the rungs per unit of sensitivity, increasing.

    -ln w between rates e < f is (f - e) + order * (L(e) - L(f)) with L(x) = -ln(1 - exp(-x)); ``order`` is 2 for
    two-sided noise (docs/proofs/lattice-laplace.md) and 1 for one-sided noise (docs/proofs/geometric-path.md).
    Its cells count coordinates first, then steps down from the top rung.
    """

    def __init__(
        self, rates: NDArray[np.float64], exact: Callable[[int], Fraction], *, order: int, coordinates: int
    ) -> None:
        self._exact, self._order, self.coordinates = exact, order, coordinates
        self.steps = len(rates) - 1
        self.cells = self.steps * coordinates
        falling = rates[::-1]
        heights = (falling[0] - falling) + order * np.log(np.expm1(-falling[0]) / np.expm1(-falling))
        # Float rounding may break the order of very close rungs; borders must not decrease.
        heights = np.maximum.accumulate(heights)
        self.borders = heights * coordinates
        # Rates err by 2^-51, expm1 and log by 4 units in the last place: docs/proofs/jump-line.md.
        height_error = 2.0**-46 + (rates[-1] + heights[-1]) * 2.0**-49
        self.error = float(3 * coordinates * height_error + self.borders[-1] * 2.0**-50)
        # Cells per unit of line. In a step with cells shorter than the error every point is decided exactly.
        self.densities = 1 / np.maximum(np.diff(heights), self.error)

    def border(self, cell: int, start: int, length: int) -> Enclosure:
        """Bound the place where a cell begins, as seen from a whole number ``start``."""
        step, coordinate = divmod(cell, self.coordinates)
        low, high = self._bound_height(step, length)
        rest = self.coordinates - coordinate
        low, high = rest * low - (start << length), rest * high - (start << length)
        if coordinate == 0:
            return low, high
        next_low, next_high = self._bound_height(step + 1, length)
        return low + coordinate * next_low, high + coordinate * next_high

    def _bound_height(self, step: int, length: int) -> Enclosure:
        """Bound -ln w between the top rung and the rung some steps below it."""
        if step == 0:
            return 0, 0
        top, rate = self._exact(self.steps), self._exact(self.steps - step)
        top_low, top_high = bound_minus_log_complement(top, length)
        low, high = bound_minus_log_complement(rate, length)
        gap = (top - rate) * (1 << length)
        return math.floor(gap) + self._order * (low - top_high), math.ceil(gap) + self._order * (high - top_low)


class _PoissonRows:
    """Some rows of a unit-rate Poisson process, ``length`` of line each; sums of -ln U are its points."""

    def __init__(self, first: int, count: int, length: int, bits: BitSource) -> None:
        self._length, self._width = length, _row_width(length)
        self._reals: list[UniformReals] = []
        self._sums = np.empty((count, 0))
        while not self._sums.size or self._sums[:, -1].min() <= length + 1:
            reals = UniformReals(bits.words(count * self._width), bits)
            gaps = reals.minus_log().reshape(count, self._width)
            if self._reals:
                gaps[:, 0] += self._sums[:, -1]
            self._reals.append(reals)
            sums = np.cumsum(gaps, axis=1, out=gaps)
            self._sums = np.hstack([self._sums, sums]) if self._sums.size else sums
        # Per term MINUS_LOG_ERROR and half a unit in the last place of a sum below 2^11.
        self.error = self._sums.shape[1] * (MINUS_LOG_ERROR + 2.0**-43)
        self._starts = np.arange(first, first + count) * length
        # Which points fall within the length of their row.
        self._inside = self._sums < length - self.error
        near = (self._sums <= length + self.error) & ~self._inside
        for row, column in np.argwhere(near).tolist():
            self._inside[row, column] = not self._is_beyond(row, column, lambda n: (length << n, length << n))
        self._sums += self._starts[:, None]
        self.places: NDArray[np.float64] = self._sums[self._inside]

    def cell_of(self, point: int, line: JumpLine, guess: int) -> int:
        """Find the cell of a line that one of ``places`` falls into, exactly; the number of cells if beyond it."""
        row, column = divmod(int(np.flatnonzero(self._inside)[point]), self._sums.shape[1])
        start = int(self._starts[row])

        def passes(cell: int) -> bool:
            return self._is_beyond(row, column, partial(line.border, cell, start))

        low, high, width = guess, guess + 1, 1
        while low > 0 and not passes(low):
            low, high, width = max(0, low - width), low, 2 * width
        while high <= line.cells and passes(high):
            low, high, width = high, min(high + width, line.cells + 1), 2 * width
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if passes(middle) else (low, middle)
        return low

    def _is_beyond(self, row: int, column: int, border: Real) -> bool:
        """Decide whether a point lies beyond a border, both seen from the start of its row."""
        first = row * self._width
        whole, rest = divmod(column + 1, self._width)
        widths = [self._width] * whole + [rest]
        # The uniform reals whose -ln add up to the point.
        batches = [(reals, range(first, first + width)) for reals, width in zip(self._reals, widths, strict=False)]

        def bounds(length: int) -> Enclosure:
            ends = [reals.minus_log_bounds(indices, length) for reals, indices in batches]
            return sum(low for low, _ in ends), sum(high for _, high in ends)

        def refine() -> None:
            for reals, indices in batches:
                for index in indices:
                    reals.refine(index)

        return is_above(bounds, border, refine)


def _row_width(length: int) -> int:
    """Return how many columns cover a row of this length, up to six standard deviations."""
    return length + math.ceil(6 * math.sqrt(length)) + 4


def draw_jumps(line: JumpLine, bits: BitSource) -> tuple[Places, Places]:
    """Draw the steps (counted down from the top rung) and coordinates that jump, in that order, without repeats."""
    if line.cells == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # One more than the line and its error, so that the rows of points surely cover it.
    total = float(line.borders[-1]) + line.error + 1
    length = min(_LONGEST, 1 << math.ceil(math.log2(total)))
    count, at_once = math.ceil(total / length), max(1, BLOCK // _row_width(length))
    parts = []
    for first in range(0, count, at_once):
        parts.append(_jumped_cells(line, _PoissonRows(first, min(at_once, count - first), length, bits)))
    cells = np.concatenate(parts)
    cells = cells[np.append(cells[:1] >= 0, cells[1:] != cells[:-1])]  # the first of each run; none of none
    cells = cells[: np.searchsorted(cells, line.cells)]
    steps = np.repeat(np.arange(line.steps), _run_lengths(cells, np.arange(line.steps + 1) * line.coordinates))
    return steps, cells - steps * line.coordinates


def _jumped_cells(line: JumpLine, rows: _PoissonRows) -> Places:
    """Find the cell of each point, in increasing order; points beyond the line get the number of cells."""
    x = rows.places[: np.searchsorted(rows.places, line.borders[-1] + line.error + rows.error)]
    if not x.size:
        return np.empty(0, np.int64)
    low, high = np.clip(np.searchsorted(line.borders, x[[0, -1]], side="right") - 1, 0, line.steps - 1).tolist()
    here = slice(low, high + 1)
    runs = _run_lengths(x, line.borders[low : high + 2])
    runs[-1] += x.size - runs.sum()  # points beyond the last border, within the error
    density = np.repeat(line.densities[here], runs)
    offset = x - np.repeat(line.borders[here], runs)
    offset *= density
    density *= line.error + rows.error
    offset += 1 - density  # one up, so that truncation rounds down on both sides of a border
    places = offset.astype(np.int64)
    offset += 2 * density
    unsure = offset.astype(np.int64)
    unsure -= places
    cells = np.repeat(np.arange(low, high + 1) * line.coordinates - 1, runs)
    cells += places
    for point in np.flatnonzero((unsure != 0) | (places > line.coordinates)).tolist():
        cells[point] = rows.cell_of(point, line, min(max(int(cells[point]), 0), line.cells - 1))
    return cells


def _run_lengths(sorted_values: NDArray[np.generic], borders: NDArray[np.generic]) -> NDArray[np.intp]:
    """Count the values between each border and the next."""
    return np.diff(np.searchsorted(sorted_values, borders))
