"""Exact discrete Gaussian noise of one variance, by the million: a table of cells, thinned by a coin."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.rational import rational
from expost.noise.bits import BitSource
from expost.noise.enclosure import exp_minus, is_below
from expost.noise.parameter import blocks

__all__ = ["GaussianTable", "gaussian_table"]

_CELLS_PER_SIGMA = 64  # at least: fine cells are seldom thinned, few cells fit the cache
_LEAST = 16  # the least standard deviation worth a table
_PRECISION = 128  # bits of the cumulative weights beyond those that are asked for
_GUARD = 32  # last bits of a weight that rounding may have spoilt
_TAIL = 8  # a cell of weight below 2^-8 of the last bit has no border of its own in the table: see _exact_number
_COIN_SHIFT = 16  # of a 64-bit word: 16 bits for the cell, 16 for the coin, the last 32 for the place in the cell
_COIN_ERROR = 2.0**-40  # far above the error of the float coin; closer calls are decided exactly


@lru_cache(maxsize=16)
def gaussian_table(variance: Fraction) -> GaussianTable:
    """The table of one variance, made once (about 20 ms)."""
    return GaussianTable(variance)


class GaussianTable:
    """Draws integers with P(k) proportional to exp(-k^2 / (2 variance)): the law of ``discrete_gaussian``, faster.

    The integers are cut into cells of width 2^s. A cell is drawn with the weight of its largest member, by inversion of a
    uniform real whose first 16 bits usually decide; the place in it is uniform, and kept with a probability that is
    nearly always 1 (docs/proofs/gaussian-table.md). What 16 bits do not decide is decided by 64, and what these leave
    open by exact bounds, so that the law has no rounding anywhere.

    >>> from expost.noise.bits import SeededBits
    >>> table = GaussianTable(10**6)
    >>> sample = table.draw(1000, SeededBits(1))
    >>> bool(900 < sample.std() < 1100)
    True
    """

    def __init__(self, variance: int | Fraction) -> None:
        self.variance = rational(variance, "variance")
        if self.variance < _LEAST**2:
            raise InvalidRequest(f"Expected a variance of at least {_LEAST**2}", do="Use discrete_gaussian")
        self._shift = max(math.isqrt(math.floor(self.variance)).bit_length() - _CELLS_PER_SIGMA.bit_length(), 0)
        self._borders = np.array(self._floors(64), np.uint64)
        self._inverse = 1 / (2 * float(self.variance))
        self._entries = self._lookup()

    def draw(self, count: int, bits: BitSource) -> NDArray[np.int64]:
        """``count`` independent integers."""
        values = np.empty(count, np.int64)
        doubts = [self._fill(values, part, bits) for part in blocks(count)]
        if doubts:
            pending, words = (np.concatenate(column) for column in zip(*doubts, strict=True))
            self._settle(values, pending, words, bits)
        return values

    # The table ---------------------------------------------------------------------------------------------------
    # Cells are numbered 0, -1, 1, -2, 2, ... from the middle outwards: number j is cell j / 2 or -(j + 1) / 2.

    def _floors(self, length: int) -> list[int]:
        """floor(F_j 2^length) for the cumulative probabilities F_1, F_2, ... of the cells, certain."""
        precision = length + _PRECISION
        while True:
            bounds = self._cumulative(precision, length)
            shift = precision - length
            floors = [low >> shift for low, _ in bounds]
            if floors == [high >> shift for _, high in bounds]:
                return floors
            precision *= 2

    def _cumulative(self, precision: int, length: int) -> list[tuple[int, int]]:
        """Bounds on F_j 2^precision, for the cells whose weight matters at ``length`` bits."""
        lows, least = self._both_sides(precision, upper=False)
        highs, most = self._both_sides(precision, upper=True)
        bounds, below_low, below_high = [], 0, 0
        for low, high in zip(lows, highs, strict=False):
            if not low >> (precision - length - _TAIL):
                break
            below_low, below_high = below_low + low, below_high + high
            bounds.append(((below_low << precision) // most, -(-(below_high << precision) // least)))
        return bounds

    def _both_sides(self, precision: int, *, upper: bool) -> tuple[list[int], int]:
        """Bounds on the weights of the cells, from the middle outwards, and on the sum of all."""
        right, right_sum = self._weights(0, precision, upper=upper)
        left, left_sum = self._weights(1, precision, upper=upper)
        return [weight for pair in zip(right, left, strict=False) for weight in pair], right_sum + left_sum

    def _weights(self, first: int, precision: int, *, upper: bool) -> tuple[list[int], int]:
        """Bounds on exp(-a^2 / (2 variance)) 2^precision at a = first + k 2^s, while they can be told from zero.

        And on the sum of all. Each weight is the one before times a step, which shrinks by the same factor every time.
        """
        width, twice = 1 << self._shift, 2 * self.variance
        weight = exp_minus(first**2 / twice, precision)[upper]
        step = exp_minus((2 * first * width + width**2) / twice, precision)[upper]
        shrink = exp_minus(2 * width**2 / twice, precision)[upper]
        weights = []
        while weight >> _GUARD:
            weights.append(weight)
            weight, step = _times(weight, step, precision, upper), _times(step, shrink, precision, upper)
        # What is left out is not negative, and below a geometric series of ratio step.
        rest = -(-(weight << precision) // ((1 << precision) - step)) if upper else 0
        return weights, sum(weights) + rest

    def _lookup(self) -> NDArray[np.int32]:
        """For each 16-bit beginning of U: the cell, and the coins that surely keep its places (none if unsure)."""
        begins = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        numbers = np.searchsorted(self._borders, begins, side="left")
        unsure = np.unique(self._borders >> np.uint64(48)).astype(np.intp)
        # exp(-e) >= 1 - e, and e < (2 a + width) width / (2 variance) anywhere in a cell whose largest member is at a.
        width = float(1 << self._shift)
        largest = np.ceil(numbers / 2) * width
        sure = np.floor((1 - (2 * largest + 2 + width) * width * self._inverse - 2.0**-30) * (1 << 16)).clip(0)
        if not self._shift:
            sure[:] = (1 << 16) - 1  # a cell of one member is always kept; the last coin takes the careful way
        sure[unsure] = 0
        return (_cell(numbers).astype(np.int32) << np.int32(16)) | sure.astype(np.int32)

    # Drawing -----------------------------------------------------------------------------------------------------

    def _fill(
        self, values: NDArray[np.int64], part: slice, bits: BitSource
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Draw a block by the table alone; hand back the places, and their words, that it does not decide."""
        words = bits.words(part.stop - part.start)
        entries = self._entries.take(words.astype(np.uint16))
        coins = (words >> np.uint64(_COIN_SHIFT)).astype(np.uint16)
        doubtful = np.flatnonzero(coins >= entries.astype(np.uint16))
        np.right_shift(entries, np.int32(16), out=entries)
        self._place(entries, words, values[part])
        return doubtful + part.start, words[doubtful]

    def _settle(
        self, values: NDArray[np.int64], pending: NDArray[np.intp], words: NDArray[np.uint64], bits: BitSource
    ) -> None:
        """Decide what the table left open; a place whose value is not kept gets a fresh word."""
        while pending.size:
            cells = self._cells(_longer(words & np.uint64(0xFFFF), bits), bits)
            kept = self._kept(cells, words, bits)
            found = np.empty(len(words), np.int64)
            self._place(cells, words, found)
            values[pending[kept]] = found[kept]
            pending = pending[~kept]
            words = bits.words(pending.size)

    def _place(self, cells: NDArray[Any], words: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        """The member of each cell that the word's last bits name."""
        np.left_shift(cells, np.int64(self._shift), out=out, dtype=np.int64)
        if self._shift:
            out += (words >> np.uint64(64 - self._shift)).view(np.int64)

    def _cells(self, uniform: NDArray[np.uint64], bits: BitSource) -> NDArray[np.int64]:
        """The cells that contain uniform reals beginning with these 64 bits."""
        numbers = np.searchsorted(self._borders, uniform, side="left")
        for place in np.flatnonzero(self._borders[numbers.clip(max=len(self._borders) - 1)] == uniform).tolist():
            numbers[place] = self._exact_number(int(uniform[place]), 64, bits)
        return _cell(numbers).astype(np.int64)

    def _exact_number(self, prefix: int, length: int, bits: BitSource) -> int:
        """The number of the cell of a uniform real that begins with these bits, on as many more as it takes."""
        while True:
            floors = self._floors(length)
            first = next((number for number, floor in enumerate(floors) if prefix <= floor), len(floors))
            if first < len(floors) and prefix < floors[first]:
                return first
            prefix, length = prefix << 64 | bits.integer(64), length + 64

    def _kept(self, cells: NDArray[np.int64], words: NDArray[np.uint64], bits: BitSource) -> NDArray[np.bool_]:
        """Coins of probability exp(-(2 a l + l^2) / (2 variance)), l places from the largest member a; exact."""
        if not self._shift:
            return np.ones(len(cells), bool)
        coins = _longer((words >> np.uint64(_COIN_SHIFT)) & np.uint64(0xFFFF), bits)
        places = (words >> np.uint64(64 - self._shift)).astype(np.int64)
        left = cells < 0
        inside = np.where(left, (1 << self._shift) - 1 - places, places)
        largest = (np.where(left, -cells - 1, cells) << self._shift) + left
        exponents = (2.0 * largest + inside) * inside * self._inverse
        gaps = coins * 2.0**-64 - np.exp(-exponents)
        kept: NDArray[np.bool_] = gaps < 0
        for index in np.flatnonzero(np.abs(gaps) <= _COIN_ERROR).tolist():
            a, place = int(largest[index]), int(inside[index])
            exact = partial(exp_minus, Fraction((2 * a + place) * place) / (2 * self.variance))
            kept[index] = is_below(int(coins[index]), 64, exact, bits)
        return kept


def _cell(numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Cell 0, -1, 1, -2, ... of number 0, 1, 2, 3, ..."""
    half = (numbers + 1) >> 1
    return np.where(numbers & 1, -half, half)


def _times(left: int, right: int, precision: int, upper: bool) -> int:
    """A product of fixed-point numbers, rounded down or up."""
    product = left * right
    return -(-product >> precision) if upper else product >> precision


def _longer(begins: NDArray[np.uint64], bits: BitSource) -> NDArray[np.uint64]:
    """Sixteen bits and 48 fresh ones behind them."""
    return begins << np.uint64(48) | bits.words(len(begins)) >> np.uint64(16)
