"""Exact discrete Gaussian noise of one variance, by the million: most of it by looking up a cell and adding a place."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.rational import rational
from expost.noise.bits import BitSource
from expost.noise.enclosure import Bounds, exp_minus, is_below

__all__ = ["NARROW", "GaussianTable", "gaussian_table"]

NARROW = 1 << 30
"""Values that are handed out in 32 bits are below, so that a sum of two of them does not wrap around."""
_CELLS_PER_SIGMA = 64  # at least: with more, less is lost to slopes and more to whole numbers of entries
_LEAST = 16  # the least standard deviation worth a table
_INDEX = 16  # bits of a uniform real that choose an entry of the table
_ENTRIES = 1 << _INDEX
_SHORT_PLACE = 16  # bits of a place in a cell for which half a word is drawn
_GUIDE = 14  # first bits of a uniform real that nearly always tell between which borders it lies
_BLOCK = 1 << 16  # values drawn at a time: what a call costs by itself is then little, and they stay in the cache
_SPARE = 7  # one value in 2^7 more is drawn than is wanted, for those that are refused,
_FEW = 16  # and a few more
_PRECISION = 128  # bits of the cumulative weights beyond those that are asked for
_GUARD = 32  # last bits of a weight that rounding may have spoilt
_TAIL = 8  # a cell of weight below 2^-8 of the last bit has no border of its own in the list: see _exact_number
_SURE = 1 - 2.0**-30  # for the floats that count entries
_COIN_ERROR = 2.0**-40  # far above the error of the float coin; closer calls are decided exactly


@lru_cache(maxsize=16)
def gaussian_table(variance: Fraction) -> GaussianTable:
    """The table of one variance, made once (about 20 ms)."""
    return GaussianTable(variance)


class GaussianTable:
    """Draws integers with P(k) proportional to exp(-k^2 / (2 variance)): the law of ``discrete_gaussian``, faster.

    The integers are cut into cells of width 2^s. Under the law lies a flight of steps, one a cell, each as high as a
    whole number of 2^-16: with probability of nearly 99 % a value is drawn from the steps, by one lookup for the cell and s
    bits for the place in it. What is between the steps and the law is drawn by inversion and an exact coin
    (docs/proofs/gaussian-table.md). Nothing is rounded: what 64 bits leave open is decided by exact bounds.

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
        self._inverse = 1 / (2 * float(self.variance))
        self._counts, self._shares = self._steps()
        self._named = sum(self._counts)
        self._borders = np.array(self._floors(64), np.uint64)
        self._guide = self._begins()
        self._entries = self._lookup()
        # A place is a word of as few bits as hold it: bits cost time.
        self._places = np.dtype(np.uint16 if self._shift <= _SHORT_PLACE else f"u{self._entries.itemsize}")

    def room(self, count: int) -> NDArray[Any]:
        """Memory for ``count`` values, to draw in again and again: fresh memory costs time."""
        return np.empty(count + (count >> _SPARE) + _FEW, self._entries.dtype)

    def draw(self, count: int, bits: BitSource, *, room: NDArray[Any] | None = None) -> NDArray[Any]:
        """``count`` independent integers: int32 if all are below 2^30, which the law's width decides but for freaks.

        They are drawn in the ``room`` for them, if there is one, over what it held.
        """
        values = self.room(count) if room is None else room
        scratch = np.empty(min(_BLOCK, len(values)), np.intp)
        starts = range(0, len(values), _BLOCK)
        left_open = np.concatenate([k + self._fill(values[k : k + _BLOCK], scratch, bits) for k in starts])
        found, kept = self._settle(len(left_open), bits)
        inside = int(np.searchsorted(left_open, count))
        # Values that are kept are alike whichever place they were drawn for, so those behind stand in for the refused.
        behind = _put(values[count:], left_open[inside:] - count, found[inside:])
        stays = np.ones(len(behind), bool)
        stays[left_open[inside:][~kept[inside:]] - count] = False
        holes, spares = (~kept[:inside]).nonzero()[0], behind[stays]
        filled = min(len(holes), len(spares))
        found[holes[:filled]] = spares[:filled]
        if filled < len(holes):
            found[holes[filled:]] = self.draw(len(holes) - filled, bits)
        return _put(values[:count], left_open[:inside], found[:inside])

    # The table ---------------------------------------------------------------------------------------------------
    # Cells are numbered 0, -1, 1, -2, 2, ... from the middle outwards: number j is cell j / 2 or -(j + 1) / 2.

    def _steps(self) -> tuple[list[int], NDArray[np.float64]]:
        """For each number, how many entries of the table its cell has, and their share of the cell's probability."""
        precision = 64 + _PRECISION
        chances = [chance for chance, _ in self._chances(precision, 64)]
        numbers = np.arange(len(chances))
        width = float(1 << self._shift)
        # e of docs/proofs/gaussian-table.md is below this anywhere in the cell.
        steepest = (2 * _largest(numbers, self._shift) + width) * width * self._inverse
        floats = np.array([chance / (1 << precision) for chance in chances])
        sure = floats * np.exp(-steepest) if self._shift else floats
        counts = np.floor(sure * (_ENTRIES * _SURE))
        return counts.astype(int).tolist(), counts / _ENTRIES / floats

    def _lookup(self) -> NDArray[Any]:
        """The first member of the cell of each entry; those behind the named ones leave it open."""
        cells = np.repeat(_cell(np.arange(len(self._counts))), self._counts)
        kind = np.int32 if (len(self._counts) // 2 + 1) << self._shift < NARROW else np.int64  # for all listed cells
        entries = np.zeros(_ENTRIES, kind)
        entries[: self._named] = cells << self._shift
        return entries

    def _begins(self) -> NDArray[np.intp]:
        """For the first bits of a uniform real, the number of its cell above the steps; -1 if a border begins so too."""
        shift = np.uint64(64 - _GUIDE)
        begins = np.arange(1 << _GUIDE, dtype=np.uint64) << shift
        numbers = np.searchsorted(self._borders, begins, side="left")
        numbers[np.unique(self._borders >> shift).astype(np.intp)] = -1
        numbers[numbers == len(self._borders)] = -1  # behind the last border of the list
        return numbers

    def _floors(self, length: int) -> list[int]:
        """floor(F_j 2^length) for the cumulative probabilities F_1, F_2, ... of what is above the steps, certain."""
        precision = length + _PRECISION
        while True:
            bounds = self._above(precision, length)
            shift = precision - length
            floors = [low >> shift for low, _ in bounds]
            if floors == [high >> shift for _, high in bounds]:
                return floors
            precision *= 2

    def _above(self, precision: int, length: int) -> list[Bounds]:
        """Bounds on F_j 2^precision: cumulative probabilities of the cells less their steps, over the sum of all."""
        bounds = self._cumulative(precision, length)
        left = _ENTRIES - self._named
        taken = [*accumulate(self._counts), *[self._named] * len(bounds)]
        return [
            (((low << _INDEX) - (below << precision)) // left, -(-((high << _INDEX) - (below << precision)) // left))
            for (low, high), below in zip(bounds, taken, strict=False)
        ]

    def _chances(self, precision: int, length: int) -> list[Bounds]:
        """Bounds on the cells' own probabilities times 2^precision."""
        bounds = [(0, 0), *self._cumulative(precision, length)]
        return [(high_low[0] - low_high[1], high_low[1] - low_high[0]) for low_high, high_low in pairwise(bounds)]

    def _cumulative(self, precision: int, length: int) -> list[Bounds]:
        """Bounds on the cells' cumulative probabilities times 2^precision, while a cell matters at ``length`` bits."""
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

    # Drawing -----------------------------------------------------------------------------------------------------

    def _fill(self, out: NDArray[Any], scratch: NDArray[np.intp], bits: BitSource) -> NDArray[np.intp]:
        """Draw a block by the table alone; hand back the places that it leaves open."""
        count, kind = out.size, self._places
        halves = bits.words(count * (1 + kind.itemsize // 2), np.uint16)
        chosen, offsets = halves[len(halves) - count :], halves[: len(halves) - count].view(kind)
        index = scratch[:count]
        np.copyto(index, chosen)
        self._entries.take(index, out=out, mode="wrap")  # no index is out of range: the mode saves a copy
        offsets &= kind.type((1 << self._shift) - 1)
        out += offsets if kind.itemsize < out.itemsize else offsets.view(out.dtype)
        return (chosen >= np.uint16(self._named)).nonzero()[0]

    def _settle(self, count: int, bits: BitSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw what lies above the steps, and the coins that keep it or not."""
        words = bits.words(3 * count).reshape(3, -1)
        numbers = self._numbers(words[0], bits)
        offsets = (words[1] & np.uint64((1 << self._shift) - 1)).view(np.int64)
        kept = self._kept(numbers, offsets, words[2], bits)
        offsets += _cell(numbers) << self._shift
        return offsets, kept

    def _numbers(self, uniform: NDArray[np.uint64], bits: BitSource) -> NDArray[np.intp]:
        """The numbers of the cells that contain uniform reals beginning with these 64 bits."""
        numbers = self._guide.take((uniform >> np.uint64(64 - _GUIDE)).view(np.int64), mode="clip")
        unsure = np.flatnonzero(numbers < 0)
        numbers[unsure] = np.searchsorted(self._borders, uniform[unsure], side="left")
        ties = self._borders[numbers[unsure].clip(max=len(self._borders) - 1)] == uniform[unsure]
        for place in unsure[ties].tolist():
            numbers[place] = self._exact_number(int(uniform[place]), 64, bits)
        return numbers

    def _exact_number(self, prefix: int, length: int, bits: BitSource) -> int:
        """The number of the cell of a uniform real that begins with these bits, on as many more as it takes."""
        while True:
            floors = self._floors(length)
            first = next((number for number, floor in enumerate(floors) if prefix <= floor), len(floors))
            if first < len(floors) and prefix < floors[first]:
                return first
            prefix, length = prefix << 64 | bits.integer(64), length + 64

    def _kept(
        self, numbers: NDArray[np.intp], offsets: NDArray[np.int64], coins: NDArray[np.uint64], bits: BitSource
    ) -> NDArray[np.bool_]:
        """Coins of probability (exp(-e) - c) / (1 - c) for members of exponent e in cells with a share c of steps."""
        if not self._shift:
            return np.ones(len(numbers), bool)
        largest = _largest(numbers, self._shift)
        further = offsets ^ (-(numbers & 1) & ((1 << self._shift) - 1))  # from the other end in cells of the left
        exponents = (2.0 * largest + further) * further
        exponents *= -self._inverse
        shares = self._shares.take(numbers, mode="clip")  # beyond the list there are no steps, as at its end
        gaps = _fractions(coins)
        gaps *= 1 - shares
        gaps += shares
        gaps -= np.exp(exponents, out=exponents)
        kept: NDArray[np.bool_] = gaps < 0
        for index in np.flatnonzero(np.abs(gaps) <= _COIN_ERROR).tolist():
            far, a = int(further[index]), int(largest[index])
            exponent = Fraction((2 * a + far) * far) / (2 * self.variance)
            exact = partial(self._acceptance, int(numbers[index]), exponent)
            kept[index] = is_below(int(coins[index]), 64, exact, bits)
        return kept

    def _acceptance(self, number: int, exponent: Fraction, length: int) -> Bounds:
        """Bounds on (exp(-e) - c) / (1 - c) 2^length."""
        precision = length + _PRECISION
        low, high = exp_minus(exponent, precision)
        one, count = 1 << precision, self._counts[number] if number < len(self._counts) else 0
        if not count:
            return low >> _PRECISION, -(-high >> _PRECISION)
        least, most = self._chances(precision, length)[number]
        step = count << precision >> _INDEX
        # The share c = count / 2^16 over the chance; what is kept falls with it.
        share_low, share_high = (step << precision) // most, -(-(step << precision) // least)
        return (
            max(((low - share_high) << length) // (one - share_high), 0),
            -(-((high - share_low) << length) // (one - share_low)),
        )


def _put(values: NDArray[Any], places: NDArray[np.intp], found: NDArray[Any]) -> NDArray[Any]:
    """Put what was found in its places; in 64 bits if 32 could not hold it."""
    if found.dtype != values.dtype and found.size and max(int(found.max()), -int(found.min())) >= NARROW:
        values = values.astype(np.int64)
    values[places] = found
    return values


def _cell(numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Cell 0, -1, 1, -2, ... of number 0, 1, 2, 3, ..."""
    return (numbers >> 1) ^ -(numbers & 1)


def _fractions(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Words over 2^64, cut to 52 bits: they become the digits of floats between 1 and 2."""
    digits = words >> np.uint64(12)
    digits |= np.uint64(0x3FF << 52)
    floats = digits.view(np.float64)
    floats -= 1.0
    return floats


def _largest(numbers: NDArray[np.intp], shift: int) -> NDArray[np.int64]:
    """The magnitude of the member nearest to zero of the cell of each number: k 2^s, or k 2^s + 1 on the left."""
    return (numbers >> 1 << shift) + (numbers & 1)


def _times(left: int, right: int, precision: int, upper: bool) -> int:
    """A product of fixed-point numbers, rounded down or up."""
    product = left * right
    return -(-product >> precision) if upper else product >> precision
