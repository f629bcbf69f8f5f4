"""Exact discrete Gaussian noise of one variance in large amounts: a table, and streams of noisy vectors.

Most values of the table take one array access for the cell and some bits for the place in it.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, Sealed, Sensitivity, SingleOwner, unseal
from expost.core.rational import rational
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import Enclosure, bound_exp_minus, is_below
from expost.noise.lattice import add_noise, read_integers

__all__ = [
    "LARGEST_VARIANCE",
    "LONG",
    "SHORT",
    "SMOOTHING",
    "GaussianStream",
    "GaussianTable",
    "gaussian_table",
    "stream_variance",
]

SMOOTHING = 4
"""Lattice units squared by which the noise exceeds a continuous Gaussian it is a rounding of.

The lemma of docs/proofs/discrete-gaussian-calibration.md with t^2 = 4: its slack, 2.1 r per coordinate, is below 2.2e-34.
"""
SHORT = 1 << 30
"""Bound on the entries of a vector of 32-bit integers, whatever the data.

Noise in 32 bits stays below it too, so that the sum of the two does not wrap around.
"""
LONG = 1 << 62
"""The same for a vector of 64-bit integers: the table's noise is far below, so the sums do not wrap around."""
LARGEST_VARIANCE = 1 << 80
"""Of a table: values of it stay below 2^50, and their products with cells within 64 bits."""
LARGEST_MULTIPLIER = 1 << 24
"""The largest noise multiplier: far above that of any useful epsilon."""
_NARROWEST = 4  # bytes of the shortest integers that are added as they are
_AHEAD = 1 << 19  # integers drawn at a time: the fixed cost of a call is then small
_CELLS_PER_SIGMA = 64  # at least: with more, less is lost to slopes and more to whole numbers of entries
_LEAST = 16  # the least standard deviation worth a table
_INDEX = 16  # bits of a uniform real that choose an entry of the table
_ENTRIES = 1 << _INDEX
_SHORT_PLACE = 16  # bits of a place in a cell for which 16 bits are drawn
_GUIDE = 14  # first bits of a uniform real that almost always determine between which borders it lies
_BLOCK = 1 << 16  # values drawn at a time: the fixed cost of a call is then small, and they stay in the cache
_SPARE = 7  # one value in 2^7 more is drawn than requested, to replace rejected ones,
_FEW = 16  # and a few more
_PRECISION = 128  # bits of the cumulative weights beyond the requested ones
_GUARD = 32  # last bits of a weight that rounding may have spoilt
_TAIL = 8  # a cell of weight below 2^-8 of the last bit has no border of its own in the list: see _exact_number
_SURE = 1 - 2.0**-30  # for the floats that count entries
_COIN_ERROR = 2.0**-40  # far above the error of the float coin; closer calls are decided exactly


@lru_cache(maxsize=16)
def gaussian_table(variance: Fraction) -> GaussianTable:
    """Return the table of one variance, computed once (about 20 ms)."""
    return GaussianTable(variance)


class GaussianTable:
    """Draws integers with P(k) proportional to exp(-k^2 / (2 variance)): the law of ``sample_gaussian``, faster.

    The integers are cut into cells of width 2^s. Under the law lies a staircase, one step per cell, each as high as a
    whole number of 2^-16: with probability of nearly 99 % a value is drawn from the steps, by one array access for the
    cell and s bits for the place in it. The rest between the steps and the law is drawn by inversion and an exact coin
    (docs/proofs/gaussian-table.md). Nothing is rounded: exact bounds decide what 64 bits leave undecided.

    Cells are numbered 0, -1, 1, -2, 2, ... from the middle outwards: number j is cell j / 2 or -(j + 1) / 2.

    >>> from expost.noise.bits import SeededBits
    >>> table = GaussianTable(10**6)
    >>> sample = table.draw(1000, SeededBits(1))
    >>> bool(900 < sample.std() < 1100)
    True
    """

    def __init__(self, variance: int | Fraction) -> None:
        exact = Fraction(variance) if isinstance(variance, int | Fraction) else rational(variance, "variance")
        if exact > LARGEST_VARIANCE:
            raise InvalidRequest("Expected a variance of at most 2^80", do="Choose a coarser lattice")
        self.variance = exact
        if self.variance < _LEAST**2:
            raise InvalidRequest(f"Expected a variance of at least {_LEAST**2}", do="Use sample_gaussian")
        self._shift = max(math.isqrt(math.floor(self.variance)).bit_length() - _CELLS_PER_SIGMA.bit_length(), 0)
        self._inverse = 1 / (2 * float(self.variance))
        # How many entries of the table each cell has, and their share of the cell's probability.
        precision = 64 + _PRECISION
        chances = np.array([chance / (1 << precision) for chance, _ in self._bound_chances(precision, 64)])
        width = float(1 << self._shift)
        # e of docs/proofs/gaussian-table.md is below this anywhere in the cell.
        steepest = (2 * _nearest_member(np.arange(len(chances)), self._shift) + width) * width * self._inverse
        sure = chances * np.exp(-steepest) if self._shift else chances
        counts = np.floor(sure * (_ENTRIES * _SURE))
        self._counts, self._shares = counts.astype(int).tolist(), counts / _ENTRIES / chances
        self._named = sum(self._counts)
        # The first member of the cell of each entry; the entries after the named ones leave it undecided.
        kind = np.int32 if (len(self._counts) // 2 + 1) << self._shift < SHORT else np.int64  # for all listed cells
        self._entries = np.zeros(_ENTRIES, kind)
        self._entries[: self._named] = np.repeat(_cell_of(np.arange(len(self._counts))), self._counts) << self._shift
        # A place takes an integer of as few bits as hold it: bits cost time.
        self._places = np.dtype(np.uint16 if self._shift <= _SHORT_PLACE else f"u{self._entries.itemsize}")
        # For the first bits of a uniform real, its cell's number above the steps; -1 if a border begins with them too.
        self._borders = np.array(self._compute_floors(64), np.uint64)
        shift = np.uint64(64 - _GUIDE)
        begins = np.arange(1 << _GUIDE, dtype=np.uint64) << shift
        self._guide = np.searchsorted(self._borders, begins, side="left")
        self._guide[np.unique(self._borders >> shift).astype(np.intp)] = -1
        self._guide[self._guide == len(self._borders)] = -1  # beyond the last border of the list

    def make_buffer(self, count: int) -> NDArray[Any]:
        """Allocate memory for ``count`` values, to draw in repeatedly: fresh memory costs time."""
        return np.empty(count + (count >> _SPARE) + _FEW, self._entries.dtype)

    def draw(self, count: int, bits: BitSource, *, buffer: NDArray[Any] | None = None) -> NDArray[Any]:
        """Draw ``count`` independent integers: int32 if all are below 2^30, which the width of the law almost decides.

        They overwrite the ``buffer`` made for them, if there is one.
        """
        values = self.make_buffer(count) if buffer is None else buffer
        scratch = np.empty(min(_BLOCK, len(values)), np.intp)
        starts = range(0, len(values), _BLOCK)
        undecided = np.concatenate([k + self._fill(values[k : k + _BLOCK], scratch, bits) for k in starts])
        found, kept = self._draw_above_steps(len(undecided), bits)
        inside = int(np.searchsorted(undecided, count))
        # Kept values are alike whichever place they were drawn for, so the spare ones replace the rejected ones.
        behind = _write_values(values[count:], undecided[inside:] - count, found[inside:])
        stays = np.ones(len(behind), bool)
        stays[undecided[inside:][~kept[inside:]] - count] = False
        holes, spares = (~kept[:inside]).nonzero()[0], behind[stays]
        filled = min(len(holes), len(spares))
        found[holes[:filled]] = spares[:filled]
        if filled < len(holes):
            found[holes[filled:]] = self.draw(len(holes) - filled, bits)
        return _write_values(values[:count], undecided[:inside], found[:inside])

    def _compute_floors(self, length: int) -> list[int]:
        """Compute floor(F_j 2^length), certain, for the cumulative probabilities F_1, F_2, ... above the steps."""
        precision, left = length + _PRECISION, _ENTRIES - self._named
        while True:
            cells = self._bound_cumulative(precision, length)
            taken = [*accumulate(self._counts), *[self._named] * len(cells)]
            # Bounds on F_j 2^precision: the cells less their steps, over the sum of all.
            bounds = [
                (
                    ((low << _INDEX) - (below << precision)) // left,
                    -(-((high << _INDEX) - (below << precision)) // left),
                )
                for (low, high), below in zip(cells, taken, strict=False)
            ]
            shift = precision - length
            floors = [low >> shift for low, _ in bounds]
            if floors == [high >> shift for _, high in bounds]:
                return floors
            precision *= 2

    def _bound_chances(self, precision: int, length: int) -> list[Enclosure]:
        """Bound the cells' own probabilities times 2^precision."""
        bounds = [(0, 0), *self._bound_cumulative(precision, length)]
        return [(high_low[0] - low_high[1], high_low[1] - low_high[0]) for low_high, high_low in pairwise(bounds)]

    def _bound_cumulative(self, precision: int, length: int) -> list[Enclosure]:
        """Bound the cells' cumulative probabilities times 2^precision, while a cell matters at ``length`` bits."""
        sides = {
            (upper, first): self._bound_weights(first, precision, upper=upper) for upper in (0, 1) for first in (0, 1)
        }
        least, most = (sides[upper, 0][1] + sides[upper, 1][1] for upper in (0, 1))
        columns = zip(*(sides[upper, first][0] for first in (0, 1) for upper in (0, 1)), strict=False)
        bounds, below_low, below_high = [], 0, 0
        for low, high in (pair for row in columns for pair in (row[:2], row[2:])):
            if not low >> (precision - length - _TAIL):
                break
            below_low, below_high = below_low + low, below_high + high
            bounds.append(((below_low << precision) // most, -(-(below_high << precision) // least)))
        return bounds

    def _bound_weights(self, first: int, precision: int, *, upper: int) -> tuple[list[int], int]:
        """Bound exp(-a^2 / (2 variance)) 2^precision at a = first + k 2^s while it differs from zero, and the sum of all.

        Each weight is the one before times a step, which shrinks by the same factor every time.
        """
        width, twice = 1 << self._shift, 2 * self.variance

        def multiply(left: int, right: int) -> int:
            return -(-(left * right) >> precision) if upper else left * right >> precision

        weight = bound_exp_minus(first**2 / twice, precision)[upper]
        step = bound_exp_minus((2 * first * width + width**2) / twice, precision)[upper]
        shrink = bound_exp_minus(2 * width**2 / twice, precision)[upper]
        weights = []
        while weight >> _GUARD:
            weights.append(weight)
            weight, step = multiply(weight, step), multiply(step, shrink)
        # The part left out is not negative, and below a geometric series of ratio step.
        rest = -(-(weight << precision) // ((1 << precision) - step)) if upper else 0
        return weights, sum(weights) + rest

    def _fill(self, out: NDArray[Any], scratch: NDArray[np.intp], bits: BitSource) -> NDArray[np.intp]:
        """Draw a block by the table alone; return the places that it leaves undecided."""
        count, kind = out.size, self._places
        halves = bits.words(count * (1 + kind.itemsize // 2), np.uint16)
        chosen, offsets = halves[len(halves) - count :], halves[: len(halves) - count].view(kind)
        index = scratch[:count]
        np.copyto(index, chosen)
        self._entries.take(index, out=out, mode="wrap")  # no index is out of range: the mode saves a copy
        offsets &= kind.type((1 << self._shift) - 1)
        out += offsets if kind.itemsize < out.itemsize else offsets.view(out.dtype)
        return (chosen >= np.uint16(self._named)).nonzero()[0]

    def _draw_above_steps(self, count: int, bits: BitSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw values above the steps, and the coins that keep or reject them."""
        words = bits.words(3 * count).reshape(3, -1)
        numbers = self._find_numbers(words[0], bits)
        offsets = (words[1] & np.uint64((1 << self._shift) - 1)).view(np.int64)
        kept = self._flip_coins(numbers, offsets, words[2], bits)
        offsets += _cell_of(numbers) << self._shift
        return offsets, kept

    def _find_numbers(self, uniform: NDArray[np.uint64], bits: BitSource) -> NDArray[np.intp]:
        """Find the numbers of the cells that contain uniform reals beginning with these 64 bits."""
        numbers = self._guide.take((uniform >> np.uint64(64 - _GUIDE)).view(np.int64), mode="clip")
        unsure = np.flatnonzero(numbers < 0)
        numbers[unsure] = np.searchsorted(self._borders, uniform[unsure], side="left")
        ties = self._borders[numbers[unsure].clip(max=len(self._borders) - 1)] == uniform[unsure]
        for place in unsure[ties].tolist():
            numbers[place] = self._exact_number(int(uniform[place]), 64, bits)
        return numbers

    def _exact_number(self, prefix: int, length: int, bits: BitSource) -> int:
        """Find the number of the cell of a uniform real that begins with these bits, drawing as many more as needed."""
        while True:
            floors = self._compute_floors(length)
            first = next((number for number, floor in enumerate(floors) if prefix <= floor), len(floors))
            if first < len(floors) and prefix < floors[first]:
                return first
            prefix, length = prefix << 64 | bits.integer(64), length + 64

    def _flip_coins(
        self, numbers: NDArray[np.intp], offsets: NDArray[np.int64], coins: NDArray[np.uint64], bits: BitSource
    ) -> NDArray[np.bool_]:
        """Flip coins of probability (exp(-e) - c) / (1 - c) for members of exponent e in cells with a share c of steps."""
        if not self._shift:
            return np.ones(len(numbers), bool)
        nearest = _nearest_member(numbers, self._shift)
        further = offsets ^ (-(numbers & 1) & ((1 << self._shift) - 1))  # from the other end in cells of the left
        exponents = (2.0 * nearest + further) * further
        exponents *= -self._inverse
        shares = self._shares.take(numbers, mode="clip")  # beyond the list there are no steps, as at its end
        # The coins over 2^64, cut to 52 bits: they become the digits of floats between 1 and 2.
        gaps = (coins >> np.uint64(12) | np.uint64(0x3FF << 52)).view(np.float64)
        gaps -= 1.0
        gaps *= 1 - shares
        gaps += shares
        gaps -= np.exp(exponents, out=exponents)
        kept: NDArray[np.bool_] = gaps < 0
        for index in np.flatnonzero(np.abs(gaps) <= _COIN_ERROR).tolist():
            far, a = int(further[index]), int(nearest[index])
            exponent = Fraction((2 * a + far) * far) / (2 * self.variance)
            exact = partial(self._bound_acceptance, int(numbers[index]), exponent)
            kept[index] = is_below(int(coins[index]), 64, exact, bits)
        return kept

    def _bound_acceptance(self, number: int, exponent: Fraction, length: int) -> Enclosure:
        """Bound (exp(-e) - c) / (1 - c) 2^length."""
        precision = length + _PRECISION
        low, high = bound_exp_minus(exponent, precision)
        one, count = 1 << precision, self._counts[number] if number < len(self._counts) else 0
        if not count:
            return low >> _PRECISION, -(-high >> _PRECISION)
        least, most = self._bound_chances(precision, length)[number]
        step = count << precision >> _INDEX
        # The share c = count / 2^16 over the chance; the kept part falls with it.
        share_low, share_high = (step << precision) // most, -(-(step << precision) // least)
        return (
            max(((low - share_high) << length) // (one - share_high), 0),
            -(-((high - share_low) << length) // (one - share_low)),
        )


def _write_values(values: NDArray[Any], places: NDArray[np.intp], found: NDArray[Any]) -> NDArray[Any]:
    """Write values into their places, in 64 bits if 32 could not hold them."""
    if found.dtype != values.dtype and found.size and max(int(found.max()), -int(found.min())) >= SHORT:
        values = values.astype(np.int64)
    values[places] = found
    return values


def _cell_of(numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Convert numbers 0, 1, 2, 3, ... to cells 0, -1, 1, -2, ..."""
    return (numbers >> 1) ^ -(numbers & 1)


def _nearest_member(numbers: NDArray[np.intp], shift: int) -> NDArray[np.int64]:
    """Return the magnitude of the member nearest to zero of each cell: k 2^s, or k 2^s + 1 on the left."""
    return (numbers >> 1 << shift) + (numbers & 1)


def stream_variance(noise_multiplier: Fraction, sensitivity: Sensitivity) -> Fraction:
    """Compute the variance whose rounding-free part is (noise_multiplier * sensitivity)^2."""
    return noise_multiplier**2 * sensitivity.square + SMOOTHING


class GaussianStream(SingleOwner):
    """Adds fresh integers of law P(k) proportional to exp(-k^2 / (2 variance)) to every vector it releases.

    The noise of several releases is drawn at once, which is several times faster and separates its timing from that of
    the release; no more than the expected number of ``releases`` at a time.

    Guarantee: each release is (within a factor exp(2.2e-34) per coordinate) a rounding of a continuous Gaussian release
        of standard deviation noise_multiplier * sensitivity, so every bound for those holds: zCDP, Renyi, Gaussian DP,
        loss distributions, with or without sampling, adaptively composed.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units; declared once, a vector with a larger one is refused.
    Accuracy: sub-Gaussian errors of proxy ``variance`` in each coordinate (CKS20, Corollary 9).
    Numerics: exact; integer noise, integer addition.
    Reference: docs/proofs/discrete-gaussian-calibration.md (lemma), docs/proofs/gaussian-table.md (sampler).

    >>> from expost.noise.bits import SeededBits
    >>> step = Sensitivity(1000, Norm.L2)
    >>> stream = GaussianStream(2, step, size=3, bits=SeededBits(1))
    >>> stream.release(Sealed(np.array([0, 10**6, 0]), step)).shape
    (3,)
    """

    _owned_noun = "noise stream"

    def __init__(
        self,
        noise_multiplier: float | Fraction,
        sensitivity: Sensitivity,
        *,
        size: int,
        releases: int | None = None,
        bits: BitSource | None = None,
    ) -> None:
        super().__init__()
        if sensitivity.norm is not Norm.L2:
            raise InvalidRequest("Expected an L2 sensitivity", got=sensitivity.norm.value, do="Declare one")
        self.noise_multiplier = rational(noise_multiplier, "noise_multiplier")
        if self.noise_multiplier > LARGEST_MULTIPLIER:
            raise InvalidRequest(
                "Expected a noise multiplier of at most 2^24", got=float(self.noise_multiplier), do="Lower it"
            )
        self.sensitivity, self.size = sensitivity, size
        self.variance = stream_variance(self.noise_multiplier, sensitivity)
        self._table, self._bits = gaussian_table(self.variance), resolve_bits(bits)
        self._ahead = max(1, min(math.ceil(_AHEAD / max(size, 1)), releases or _AHEAD))
        self._buffer: NDArray[Any] | None = None
        self._drawn: NDArray[Any] = np.empty((0, size), np.int64)
        self._used = 0

    @property
    def private(self) -> bool:
        """Whether the bits come from a private source; false means simulation."""
        return self._bits.private

    def release(self, sealed: Sealed) -> NDArray[Any]:
        """Return the sealed vector plus noise that was never used before.

        How many bits the sum has depends on the type of the vector and on the noise, not on the vector. Reducing a
        noisy sum is free, so wrapping around could cost accuracy only, and it cannot happen: vectors of 32-bit and
        64-bit integers are below ``SHORT`` and ``LONG`` by their owner's proof, and so is the noise.
        """
        given, declared = sealed.sensitivity, self.sensitivity
        if given is not declared:
            alike = (given.norm, given.adjacency, given.unit) == (declared.norm, declared.adjacency, declared.unit)
            if not alike or given.amount > declared.amount:
                raise InvalidRequest("Expected a vector within the declared sensitivity", do="Declare the largest one")
        exact = unseal(sealed)
        if not (isinstance(exact, np.ndarray) and exact.dtype.kind == "i" and exact.itemsize >= _NARROWEST):
            exact = read_integers(exact)
        if exact.shape != (self.size,):
            raise InvalidRequest(f"Expected a vector of {self.size} integers", do="Open a stream of its size")
        with self._owner_lock:  # until the sum is made: the next noise is drawn into the same memory
            noise = self._next_noise()
            return add_noise(exact, noise) if exact.dtype == object else np.asarray(exact + noise)

    def _next_noise(self) -> NDArray[Any]:
        """Return the next unused row of noise, drawing more when there is none."""
        if self._used == len(self._drawn) or self._owner_process != os.getpid():
            # A forked child must not use the noise that its parent will use.
            count = self._ahead * self.size
            self._buffer = self._table.make_buffer(count) if self._buffer is None else self._buffer
            drawn = self._table.draw(count, self._bits, buffer=self._buffer)
            self._drawn, self._used = drawn.reshape(self._ahead, self.size), 0
            self._owner_process = os.getpid()
        self._used += 1
        fresh: NDArray[Any] = self._drawn[self._used - 1]
        return fresh

    def __repr__(self) -> str:
        return f"<Gaussian noise of variance {float(self.variance):.4g} for vectors of {self.size}>"
