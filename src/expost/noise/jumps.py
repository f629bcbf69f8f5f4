"""At which rungs the noise of each coordinate changes, without visiting every rung.

Walking from the top rung down, coordinate c keeps its noise on the step to rung r with probability w_r. Lay the steps
and coordinates side by side on a line, giving each an interval of length -ln w_r: the intervals that a unit-rate
Poisson process hits are independent of each other, each with probability 1 - w_r. So the jumps of all coordinates are
drawn as the points of one Poisson process (docs/proofs/jump-line.md), about -ln w(bottom, top) per coordinate however
many rungs there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource
from expost.noise.enclosure import Bounds, Real, is_above, minus_log_complement
from expost.noise.uniform_reals import MINUS_LOG_ERROR, UniformReals

__all__ = ["JumpLine", "draw_jumps"]

Steps = NDArray[np.intp]

_LONGEST = 512  # length of line that one row of gaps covers; short sums keep the float filter sharp


class JumpLine:
    """The line of one ladder: ``rates`` are the rungs in units of the sensitivity, increasing.

    -ln w between rates e < f is (f - e) + order * (L(e) - L(f)) with L(x) = -ln(1 - exp(-x)); ``order`` is 2 for
    two-sided noise (docs/proofs/lattice-laplace.md) and 1 for one-sided noise.
    """

    def __init__(
        self, rates: NDArray[np.float64], exact: Callable[[int], Fraction], *, order: int, coordinates: int
    ) -> None:
        self._exact, self._order, self.coordinates = exact, order, coordinates
        self.top = len(rates) - 1
        falling = rates[::-1]
        heights = (falling[0] - falling) + order * np.log(np.expm1(-falling[0]) / np.expm1(-falling))
        self._heights = np.maximum.accumulate(heights)
        self.borders = self._heights * coordinates
        self.lengths = np.maximum(np.diff(self._heights), np.finfo(float).tiny)
        # Rates err by 2^-50, expm1 and log by 4 units in the last place: together below this, see the proof.
        height_error = 2.0**-46 + (rates[-1] + heights[-1]) * 2.0**-49
        self.error = float(3 * coordinates * height_error + self.borders[-1] * 2.0**-50)

    def border(self, cell: int, length: int) -> Bounds:
        """Bounds on where a cell begins; cells count coordinates first, then steps down from the top rung."""
        step, coordinate = divmod(cell, self.coordinates)
        low, high = self._height(step, length)
        if coordinate == 0:
            return low * self.coordinates, high * self.coordinates
        next_low, next_high = self._height(step + 1, length)
        rest = self.coordinates - coordinate
        return rest * low + coordinate * next_low, rest * high + coordinate * next_high

    def _height(self, step: int, length: int) -> Bounds:
        if step == 0:
            return 0, 0
        top, rate = self._exact(self.top), self._exact(self.top - step)
        top_low, top_high = minus_log_complement(top, length)
        low, high = minus_log_complement(rate, length)
        gap = (top - rate) * (1 << length)
        return math.floor(gap) + self._order * (low - top_high), math.ceil(gap) + self._order * (high - top_low)


class _Points:
    """A unit-rate Poisson process, in rows of one length each; sums of -ln U are its points."""

    def __init__(self, total: float, bits: BitSource) -> None:
        self.row_length = min(_LONGEST, 1 << max(0, math.ceil(math.log2(total + 1))))
        self._rows = math.ceil((total + 1) / self.row_length)
        self._reals: list[UniformReals] = []
        self._width = self.row_length + math.ceil(6 * math.sqrt(self.row_length)) + 4
        self.sums = np.empty((self._rows, 0))
        while not self.sums.size or self.sums[:, -1].min() <= self.row_length + 1:
            self._draw_columns(bits)
        # Per term MINUS_LOG_ERROR and half a unit in the last place of a sum below 2^11.
        self.error = self.sums.shape[1] * (MINUS_LOG_ERROR + 2.0**-43)

    def _draw_columns(self, bits: BitSource) -> None:
        reals = UniformReals(self._rows * self._width, bits)
        gaps = reals.minus_log().reshape(self._rows, self._width)
        if self._reals:
            gaps[:, 0] += self.sums[:, -1]
        self._reals.append(reals)
        self.sums = np.hstack([self.sums, np.cumsum(gaps, axis=1)])

    def bounds(self, row: int, column: int, length: int) -> Bounds:
        """Bounds on the exact place of a point within its row."""
        places = self._places(row, column)
        ends = [reals.minus_log_bounds(index, length) for reals, index in places]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    def refine(self, row: int, column: int) -> None:
        """Draw more digits of every uniform that a point is made of."""
        for reals, index in self._places(row, column):
            reals.refine(index)

    def _places(self, row: int, column: int) -> list[tuple[UniformReals, int]]:
        return [
            (self._reals[each // self._width], row * self._width + each % self._width) for each in range(column + 1)
        ]

    def passes(self, row: int, column: int, border: Real) -> bool:
        """Whether a point lies beyond a border of its row, decided exactly."""
        return is_above(partial(self.bounds, row, column), border, partial(self.refine, row, column))


def draw_jumps(line: JumpLine, bits: BitSource) -> tuple[Steps, Steps]:
    """The steps (counted down from the top rung) and coordinates that jump, in that order, without repeats."""
    if line.top == 0 or line.coordinates == 0:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    points = _Points(float(line.borders[-1]) + line.error, bits)
    rows, columns = np.nonzero(_inside(points))
    x = points.sums[rows, columns] + rows * float(points.row_length)
    slack = points.error + line.error
    kept = np.searchsorted(x, line.borders[-1] + slack)
    steps, coordinates = _locate(line, points, rows[:kept], columns[:kept], x[:kept], slack)
    first = np.ones(len(steps), bool)
    first[1:] = (np.diff(steps) != 0) | (np.diff(coordinates) != 0)
    return steps[first], coordinates[first]


def _inside(points: _Points) -> NDArray[np.bool_]:
    """Which points fall within the length of their row."""
    inside = points.sums < points.row_length
    for row, column in np.argwhere(np.abs(points.sums - points.row_length) <= points.error).tolist():
        inside[row, column] = not points.passes(row, column, lambda n: (points.row_length << n,) * 2)
    return inside


def _locate(
    line: JumpLine, points: _Points, rows: Steps, columns: Steps, x: NDArray[np.float64], slack: float
) -> tuple[Steps, Steps]:
    """The step and coordinate whose interval each point falls into; points beyond the line are dropped."""
    steps = np.clip(np.searchsorted(line.borders, x, side="right") - 1, 0, line.top - 1)
    lengths = line.lengths[steps]
    places = (x - line.borders[steps]) / lengths
    coordinates = np.clip(places, 0, line.coordinates - 1).astype(np.intp)
    unsure = np.abs(places - np.rint(places)) * lengths <= slack
    unsure |= places >= line.coordinates
    for j in np.flatnonzero(unsure).tolist():
        guess = int(steps[j]) * line.coordinates + int(coordinates[j])
        cell = _exact_cell(line, points, int(rows[j]), int(columns[j]), guess)
        steps[j], coordinates[j] = divmod(cell, line.coordinates)
    on_line = steps < line.top
    return (steps, coordinates) if on_line.all() else (steps[on_line], coordinates[on_line])


def _exact_cell(line: JumpLine, points: _Points, row: int, column: int, guess: int) -> int:
    def passes(cell: int) -> bool:
        start = row * points.row_length

        def border(length: int) -> Bounds:
            low, high = line.border(cell, length)
            return low - (start << length), high - (start << length)

        return points.passes(row, column, border)

    cell, last = guess, line.top * line.coordinates
    while cell > 0 and not passes(cell):
        cell -= 1
    while cell < last and passes(cell + 1):
        cell += 1
    return cell
