"""Exact discrete Gaussian noise of one variance, by the million: a table of cells, thinned by a coin."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial

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
_TAIL = 8  # a cell of weight below 2^-8 of the last bit has no border of its own in the table: see _exact_cell
_COIN_SHIFT, _SIGN_SHIFT, _LOW_BITS = (
    17,
    16,
    31,
)  # of a 64-bit word: 16 bits cell, 1 sign, 16 coin, 31 place in the cell
_COIN_ERROR = 2.0**-40  # far above the error of the float coin; closer calls are decided exactly


@lru_cache(maxsize=16)
def gaussian_table(variance: Fraction) -> GaussianTable:
    """The table of one variance, made once (about 20 ms)."""
    return GaussianTable(variance)


class GaussianTable:
    """Draws integers with P(k) proportional to exp(-k^2 / (2 variance)): the law of ``discrete_gaussian``, faster.

    A magnitude is a cell of width 2^s and a place in it. The cell is drawn with the weight of its largest member, by
    inversion of a uniform real whose first 16 bits usually decide; the place is uniform, and kept with probability
    exp(-(2 x l + l^2) / (2 variance)) for the cell's first member x and the place l, nearly always 1
    (docs/proofs/gaussian-table.md). What 16 bits do not decide is decided by 64, and what these leave open by exact
    bounds, so that the law has no rounding anywhere.

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
        self._decay = Fraction(1 << 2 * self._shift) / (2 * self.variance)  # of cell h: exp(-decay h^2)
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

    def _floors(self, length: int) -> list[int]:
        """floor(F_k 2^length) for the cumulative probabilities F_1, F_2, ... of the cells, certain."""
        precision = length + _PRECISION
        while True:
            bounds = self._cumulative(precision, length)
            shift = precision - length
            floors = [low >> shift for low, _ in bounds]
            if floors == [high >> shift for _, high in bounds]:
                return floors
            precision *= 2

    def _cumulative(self, precision: int, length: int) -> list[tuple[int, int]]:
        """Bounds on F_k 2^precision, for the cells whose weight matters at ``length`` bits."""
        lows, least = self._weights(precision, upper=False)
        highs, most = self._weights(precision, upper=True)
        bounds, below_low, below_high = [], 0, 0
        for low, high in zip(lows, highs, strict=False):
            if not low >> (precision - length - _TAIL):
                break
            below_low, below_high = below_low + low, below_high + high
            bounds.append(((below_low << precision) // most, -(-(below_high << precision) // least)))
        return bounds

    def _weights(self, precision: int, *, upper: bool) -> tuple[list[int], int]:
        """Bounds on exp(-decay h^2) 2^precision, one a cell while they can be told from zero, and on their sum.

        Each is the one before times exp(-decay (2 h - 1)), which shrinks by exp(-2 decay) from cell to cell.
        """
        step = exp_minus(self._decay, precision)[upper]
        shrink = exp_minus(2 * self._decay, precision)[upper]
        weights, weight = [], 1 << precision
        while weight >> _GUARD:
            weights.append(weight)
            weight, step = _times(weight, step, precision, upper), _times(step, shrink, precision, upper)
        # What is left out is not negative, and below a geometric series of ratio step.
        rest = -(-(weight << precision) // ((1 << precision) - step)) if upper else 0
        return weights, sum(weights) + rest

    def _lookup(self) -> NDArray[np.uint32]:
        """For each 16-bit beginning of U: the cell, and the coins that surely keep its places (none if unsure)."""
        begins = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        cells = np.searchsorted(self._borders, begins, side="left")
        unsure = np.unique(self._borders >> np.uint64(48)).astype(np.intp)
        # exp(-e) >= 1 - e, and e < decay (2 h + 1) anywhere in cell h; 2^-30 covers the floats.
        sure = np.floor((1 - float(self._decay) * (2 * cells + 1) - 2.0**-30) * (1 << 16)).clip(0)
        sure[unsure] = 0
        sure[cells == 0] = 0  # a zero has no second sign: leave it to the careful path
        entries: NDArray[np.uint32] = (cells.astype(np.uint32) << np.uint32(16)) | sure.astype(np.uint32)
        return entries

    # Drawing -----------------------------------------------------------------------------------------------------

    def _fill(
        self, values: NDArray[np.int64], part: slice, bits: BitSource
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Draw a block by the table alone; hand back the places, and their words, that it does not decide."""
        words = bits.words(part.stop - part.start)
        entries = self._entries.take(words.astype(np.uint16))
        coins = (words >> np.uint64(_COIN_SHIFT)).astype(np.uint16)
        doubtful = np.flatnonzero(coins >= entries.astype(np.uint16))
        np.right_shift(entries, np.uint32(16), out=entries)
        values[part] = self._signed(entries.astype(np.uint64), words)
        return doubtful + part.start, words[doubtful]

    def _settle(
        self, values: NDArray[np.int64], pending: NDArray[np.intp], words: NDArray[np.uint64], bits: BitSource
    ) -> None:
        """Decide what the table left open; a place whose value is not kept gets a fresh word."""
        while pending.size:
            found, kept = self._careful(words, bits)
            values[pending[kept]] = found[kept]
            pending = pending[~kept]
            words = bits.words(pending.size)

    def _signed(self, cells: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The member of each cell that the word's low bits and sign name."""
        cells <<= np.uint64(self._shift)
        if self._shift:
            cells += words >> np.uint64(64 - self._shift)
        minus = ((words >> np.uint64(_SIGN_SHIFT)) & np.uint64(1)).view(np.int64)
        np.negative(minus, out=minus)  # all ones, or none: x ^ -1 = -x - 1
        values = cells.view(np.int64)
        values ^= minus
        values -= minus
        return values

    def _careful(self, words: NDArray[np.uint64], bits: BitSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Values of words that 16 bits did not decide, and which of them are kept."""
        cells = self._cells(_longer(words & np.uint64(0xFFFF), bits), bits)
        values = self._signed(cells.copy(), words)
        kept = self._kept(cells, words, bits)
        kept &= (values != 0) | ((words >> np.uint64(_SIGN_SHIFT)) & np.uint64(1) == 0)
        return values, kept

    def _cells(self, uniform: NDArray[np.uint64], bits: BitSource) -> NDArray[np.uint64]:
        """The cells that contain uniform reals beginning with these 64 bits."""
        cells = np.searchsorted(self._borders, uniform, side="left")
        for place in np.flatnonzero(self._borders[cells.clip(max=len(self._borders) - 1)] == uniform).tolist():
            cells[place] = self._exact_cell(int(uniform[place]), 64, bits)
        return cells.astype(np.uint64)

    def _exact_cell(self, prefix: int, length: int, bits: BitSource) -> int:
        """The cell of a uniform real that begins with these bits, on as many more as it takes."""
        while True:
            floors = self._floors(length)
            first = next((cell for cell, floor in enumerate(floors) if prefix <= floor), len(floors))
            if first < len(floors) and prefix < floors[first]:
                return first
            prefix, length = prefix << 64 | bits.integer(64), length + 64

    def _kept(self, cells: NDArray[np.uint64], words: NDArray[np.uint64], bits: BitSource) -> NDArray[np.bool_]:
        """Coins of probability exp(-(2 x l + l^2) / (2 variance)), decided exactly."""
        if not self._shift:
            return np.ones(len(cells), bool)
        coins = _longer((words >> np.uint64(_COIN_SHIFT)) & np.uint64(0xFFFF), bits)
        starts, places = cells << np.uint64(self._shift), words >> np.uint64(64 - self._shift)
        inside = places.astype(float)
        gaps = coins * 2.0**-64 - np.exp(-(2 * starts.astype(float) + inside) * inside * self._inverse)
        kept: NDArray[np.bool_] = gaps < 0
        for index in np.flatnonzero(np.abs(gaps) <= _COIN_ERROR).tolist():
            x, place = int(starts[index]), int(places[index])
            exact = partial(exp_minus, Fraction((2 * x + place) * place) / (2 * self.variance))
            kept[index] = is_below(int(coins[index]), 64, exact, bits)
        return kept


def _times(left: int, right: int, precision: int, upper: bool) -> int:
    """A product of fixed-point numbers, rounded down or up."""
    product = left * right
    return -(-product >> precision) if upper else product >> precision


def _longer(begins: NDArray[np.uint64], bits: BitSource) -> NDArray[np.uint64]:
    """Sixteen bits and 48 fresh ones behind them."""
    return begins << np.uint64(48) | bits.words(len(begins)) >> np.uint64(16)
