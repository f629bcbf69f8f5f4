"""Which rows are in a random sample, each by its own exact coin."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import is_below, ratio

__all__ = ["poisson_sample"]

_FIRST, _SECOND = 8, 64  # bits of a row's uniform real that are looked at in the first and in the second place
_SPARSE = Fraction(1, 1 << 32), Fraction(1, 32)  # between these rates, distances are drawn instead of coins
_LONGEST = 64  # bits of the denominator of such a rate
_GUIDE = 16  # bits of a distance's uniform real that nearly always tell it
_REACH = 512  # the largest distance that is told at once


def poisson_sample(
    rate: Fraction, rows: int, *, bits: BitSource | None = None, words: NDArray[np.uint64] | None = None
) -> NDArray[np.intp]:
    """The places, in order, of the rows that are in: each of ``rows`` independently, with probability exactly ``rate``.

    Row i is in if its uniform real is below the rate. One byte decides that for all but one row in 256; the others
    get more digits until they differ from the rate's. At small rates the distances between the rows that are in are
    drawn instead, which has the same law (docs/proofs/poisson-distances.md) and takes time for those rows only.
    ``words`` are uniform 64-bit words that rows have of their own; a row is then in by its word, wherever it stands, with
    the rate rounded down to a multiple of 2^-64.

    >>> from expost.noise.bits import SeededBits
    >>> sample = poisson_sample(Fraction(1, 3), 3000, bits=SeededBits(1))
    >>> bool(850 < len(sample) < 1150), bool((np.diff(sample) > 0).all())
    (True, True)
    """
    if not 0 <= rate <= 1:
        raise InvalidRequest("Expected a rate between 0 and 1", got=rate, do="Pass a probability")
    source = source_of(bits)
    if rate == 1:
        return np.arange(rows)
    if words is not None:
        return np.flatnonzero(words < np.uint64((rate.numerator << 64) // rate.denominator))
    if _SPARSE[0] <= rate <= _SPARSE[1] and rate.denominator.bit_length() <= _LONGEST:
        return _distances(rate).sample(rows, source)
    return _by_coins(rate, rows, source)


def _by_coins(rate: Fraction, rows: int, bits: BitSource) -> NDArray[np.intp]:
    """One byte for every row, and more for those that it leaves open."""
    first, left = divmod(rate.numerator << _FIRST, rate.denominator)
    words = bits.words(rows, np.uint8)
    places = np.flatnonzero(words <= first)
    open_cases = words[places] == first
    inside = ~open_cases
    inside[open_cases] = _coins(Fraction(left, rate.denominator), int(np.count_nonzero(open_cases)), bits)
    sample: NDArray[np.intp] = places[inside]
    return sample


def _coins(probability: Fraction, count: int, bits: BitSource) -> NDArray[np.bool_]:
    """Exact coins, few of them."""
    border = (probability.numerator << _SECOND) // probability.denominator
    words = bits.words(count)
    coins: NDArray[np.bool_] = words < np.uint64(border)
    for place in np.flatnonzero(words == np.uint64(border)).tolist():
        coins[place] = is_below(border, _SECOND, partial(ratio, probability), bits)
    return coins


class _Distances:
    """From one row that is in to the next: k rows with probability rate (1 - rate)^(k - 1).

    It is one more than the number of borders F_k = 1 - (1 - rate)^k that are not above a uniform real. There are
    ``reach`` of them. A real above all says that the next ``reach`` rows are out; coins have no memory, so the
    distance from there on is drawn anew.
    """

    def __init__(self, rate: Fraction) -> None:
        self._rate, self._reach = rate, min(math.ceil(4 / rate), _REACH)
        self._step = float((1 - (1 - rate) ** self._reach) / rate)  # the mean
        self._borders = np.array(self._floors(), np.uint64)
        self._guide = self._begins()

    def sample(self, rows: int, bits: BitSource) -> NDArray[np.intp]:
        """The places of the rows that are in."""
        found, done = [np.empty(0, np.intp)], 0
        while done < rows:
            expected = (rows - done) / self._step
            numbers = self._numbers(math.ceil(expected + 4 * math.sqrt(expected)) + 4, bits)
            ends = np.minimum(numbers, self._reach - 1)
            ends += 1
            np.cumsum(ends, out=ends)
            ends += done
            done = int(ends[-1])
            inside = numbers < self._reach
            inside[np.searchsorted(ends, rows, side="right") :] = False
            found.append(ends[inside] - 1)
        return np.concatenate(found)

    def _numbers(self, count: int, bits: BitSource) -> NDArray[np.intp]:
        """How many borders are not above fresh uniform reals."""
        words = bits.words(count, np.uint16)
        numbers: NDArray[np.intp] = self._guide.take(words, mode="wrap")
        unsure = np.flatnonzero(numbers < 0)
        rest = bits.words(len(unsure)) >> np.uint64(_GUIDE)
        reals = words[unsure].astype(np.uint64) << np.uint64(64 - _GUIDE) | rest
        numbers[unsure] = np.searchsorted(self._borders, reals, side="left")
        ties = self._borders.take(numbers[unsure], mode="clip") == reals
        for place, real in zip(unsure[ties].tolist(), reals[ties].tolist(), strict=True):
            border = 1 - (1 - self._rate) ** (int(numbers[place]) + 1)
            numbers[place] += not is_below(real, 64, partial(ratio, border), bits)
        return numbers

    def _floors(self) -> list[int]:
        """floor(F_k 2^64), certain."""
        out = 1 - self._rate
        above, below, floors = 1, 1, []
        for _ in range(self._reach):
            above, below = above * out.numerator, below * out.denominator
            floors.append((1 << 64) + (-above << 64) // below)
        return floors

    def _begins(self) -> NDArray[np.intp]:
        """For the first bits of a uniform real, the number of borders below it; -1 if a border begins so too."""
        shift = np.uint64(64 - _GUIDE)
        numbers = np.searchsorted(self._borders, np.arange(1 << _GUIDE, dtype=np.uint64) << shift, side="left")
        numbers[(self._borders >> shift).astype(np.intp)] = -1
        return numbers


@lru_cache(maxsize=16)
def _distances(rate: Fraction) -> _Distances:
    """Those of one rate, made once (a few milliseconds)."""
    return _Distances(rate)
