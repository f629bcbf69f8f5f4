"""Exact coins: uniform integers, Bernoulli coins, and random samples of rows."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import UniformReals, bound_ratio, is_below
from expost.noise.parameter import Parameter, iterate_blocks, read_shape, share_noise_parameters

__all__ = ["draw_uniform", "sample_bernoulli", "sample_bernoulli_exp", "sample_rows", "sample_uniform"]

_NARROW = 1 << 63
_WORD = 32  # bits of a coin compared first
_EXPONENT_ERROR = 2.0**-49  # relative, of a float exponent
_FIRST, _SECOND = 8, 64  # bits of a row's uniform real that are compared first and second
_SPARSE = Fraction(1, 1 << 32), Fraction(1, 32)  # between these rates, distances are drawn instead of coins
_LONGEST = 64  # bits of the denominator of such a rate
_GUIDE = 16  # bits of a distance's uniform real that almost always determine it
_REACH = 512  # the largest distance that one uniform real determines


@share_noise_parameters
def sample_uniform(bound: Any, size: int | tuple[int, ...] | None = None, *, bits: BitSource | None = None) -> Any:
    """Draw uniform integers without modulo bias.

    64-bit integers below 2^64 mod bound are drawn again; the others are a whole number of bounds (Lem19, section 4).

    Parameters
    ----------
    bound : int, or sequence or array of int
        Values run from 0 to bound - 1; one bound for all, or one per element.

    Returns
    -------
    int or numpy.ndarray
        int64, or Python integers where a bound needs more than 63 bits.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sorted(set(sample_uniform(3, 100, bits=SeededBits(1)).tolist()))
    [0, 1, 2]
    """
    bounds = np.asarray(bound, dtype=None if isinstance(bound, np.ndarray) else object)
    if bounds.ndim and size is not None and read_shape(size) != bounds.shape:
        raise InvalidRequest("Expected one bound per element", do="Leave size out, or pass a single bound")
    flat_bounds = bounds.ravel().tolist()
    for each in flat_bounds:
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or each < 1:
            raise InvalidRequest("Expected an integer bound of at least 1", got=each, do="Pass a positive integer")
    shape = bounds.shape if bounds.ndim else read_shape(size)
    count = math.prod(shape or ())
    narrow = all(each <= _NARROW for each in flat_bounds)
    column = np.array([int(each) for each in flat_bounds], dtype=np.uint64 if narrow else object)
    flat = draw_uniform(np.broadcast_to(column, count) if column.size == 1 else column, resolve_bits(bits))
    return flat.tolist()[0] if shape is None else flat.reshape(shape)


def draw_uniform(bounds: NDArray[Any], bits: BitSource) -> NDArray[Any]:
    """Draw one integer per bound: int64, or Python integers where a bound needs more than 63 bits."""
    if bounds.dtype == object:
        values = []
        for bound in bounds.tolist():
            length = (bound - 1).bit_length()
            while (value := bits.integer(length)) >= bound:
                pass
            values.append(value)
        return np.array(values, dtype=object)
    words = bits.words(bounds.size)
    pending = np.flatnonzero(words < (~bounds + np.uint64(1)) % bounds)  # 2^64 - bound, mod bound
    while pending.size:
        words[pending] = bits.words(pending.size)
        pending = pending[words[pending] < (~bounds[pending] + np.uint64(1)) % bounds[pending]]
    below: NDArray[np.int64] = (words % bounds).astype(np.int64)
    return below


@share_noise_parameters
def sample_bernoulli(
    probability: object, size: int | tuple[int, ...] | None = None, *, bits: BitSource | None = None
) -> Any:
    """Draw coins that are true with an exact rational probability.

    A 32-bit integer decides unless it equals the first digits of the probability; then more are drawn.

    Parameters
    ----------
    probability : number, or sequence or array of numbers
        From 0 to 1; a float means its shortest decimal. One for all coins, or one per coin.

    Returns
    -------
    bool or numpy.ndarray of bool

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sample_bernoulli([0, 1, 0, 1], bits=SeededBits(1))
    array([False,  True, False,  True])
    """
    parameter = Parameter.read(probability, size, "probability", positive=False)
    source, distinct = resolve_bits(bits), [parameter.entry(place) for place in range(len(parameter.floats))]
    if max(distinct, default=Fraction(0)) > 1:
        raise InvalidRequest("Expected a probability of at most 1", do="Pass a number from 0 to 1")
    bounds = np.array([bound_ratio(each, _WORD) for each in distinct], dtype=np.int64).reshape(-1, 2)
    coins = np.empty(parameter.count, bool)
    for part in iterate_blocks(parameter.count):
        words = source.words(part.stop - part.start, np.uint32)
        low, high = (parameter.take(column, part) for column in bounds.T)
        coins[part] = words < low
        # Where both bounds agree, 32 digits are the whole probability and an equal word is not below it.
        for place in np.flatnonzero((words == low) & (low < high)).tolist():
            exact = partial(bound_ratio, parameter.exact(part.start + place))
            coins[part.start + place] = is_below(int(words[place]), _WORD, exact, source)
    return parameter.reshape(coins)


@share_noise_parameters
def sample_bernoulli_exp(
    exponent: object, size: int | tuple[int, ...] | None = None, *, bits: BitSource | None = None
) -> Any:
    """Draw coins that are true with probability exp(-exponent).

    The coin is -ln U > exponent for a uniform real U, decided exactly (docs/proofs/inversion-filter.md).

    Parameters
    ----------
    exponent : number, or sequence or array of numbers
        An exact rational >= 0; a float means its shortest decimal. One for all coins, or one per coin.

    Returns
    -------
    bool or numpy.ndarray of bool

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> bool(sample_bernoulli_exp(0, 100, bits=SeededBits(1)).all())
    True
    """
    parameter = Parameter.read(exponent, size, "exponent", positive=False)
    source, coins = resolve_bits(bits), np.empty(parameter.count, bool)
    for part in iterate_blocks(parameter.count):
        floats = parameter.take(parameter.floats, part)
        coins[part] = UniformReals(source.words(part.stop - part.start), source).exceed(
            floats,
            floats * _EXPONENT_ERROR,
            lambda place, start=part.start: partial(bound_ratio, parameter.exact(start + place)),  # type: ignore[misc]
        )
    return parameter.reshape(coins)


def sample_rows(
    rate: Fraction, rows: int, *, bits: BitSource | None = None, words: NDArray[np.uint64] | None = None
) -> NDArray[np.intp]:
    """Draw a Poisson sample: each of ``rows`` rows independently with probability exactly ``rate``.

    Row i is included if its uniform real is below the rate. One byte decides that for all but one row in 256; the
    others get more digits until they differ from those of the rate. At small rates the distances between included rows
    are drawn instead, which has the same law (docs/proofs/poisson-distances.md) and takes time for those rows only.

    ``words`` are uniform 64-bit integers that belong to the rows; each then decides about its row, wherever it stands,
    with the rate rounded down to a multiple of 2^-64. Returns the places of the included rows in order.

    >>> from expost.noise.bits import SeededBits
    >>> sample = sample_rows(Fraction(1, 3), 3000, bits=SeededBits(1))
    >>> bool(850 < len(sample) < 1150), bool((np.diff(sample) > 0).all())
    (True, True)
    """
    if not 0 <= rate <= 1:
        raise InvalidRequest("Expected a rate between 0 and 1", got=rate, do="Pass a probability")
    source = resolve_bits(bits)
    if rate == 1:
        return np.arange(rows)
    if words is not None:
        return np.flatnonzero(words < np.uint64((rate.numerator << 64) // rate.denominator))
    if _SPARSE[0] <= rate <= _SPARSE[1] and rate.denominator.bit_length() <= _LONGEST:
        return _row_distances(rate).sample(rows, source)
    # rate 2^8 = first + left / denominator: a byte below ``first`` is in, an equal one with that remaining probability.
    first, left = divmod(rate.numerator << _FIRST, rate.denominator)
    begins = source.words(rows, np.uint8)
    places = np.flatnonzero(begins <= first)
    undecided = begins[places] == first
    included = ~undecided
    included[undecided] = _flip_coins(Fraction(left, rate.denominator), int(np.count_nonzero(undecided)), source)
    sample: NDArray[np.intp] = places[included]
    return sample


def _flip_coins(probability: Fraction, count: int, bits: BitSource) -> NDArray[np.bool_]:
    """Draw a few exact coins of one probability."""
    border = (probability.numerator << _SECOND) // probability.denominator
    words = bits.words(count)
    coins: NDArray[np.bool_] = words < np.uint64(border)
    for place in np.flatnonzero(words == np.uint64(border)).tolist():
        coins[place] = is_below(border, _SECOND, partial(bound_ratio, probability), bits)
    return coins


class _RowDistances:
    """Distances from one included row to the next: k rows with probability rate (1 - rate)^(k - 1).

    A distance is one more than the number of borders F_k = 1 - (1 - rate)^k that are not above a uniform real. There
    are ``reach`` borders. A real above all of them means that the next ``reach`` rows are not included; coins have no
    memory, so the distance from there on is drawn again.
    """

    def __init__(self, rate: Fraction) -> None:
        self._rate, self._reach = rate, min(math.ceil(4 / rate), _REACH)
        self._step = float((1 - (1 - rate) ** self._reach) / rate)  # the mean
        out, above, below, floors = 1 - rate, 1, 1, []
        for _ in range(self._reach):
            above, below = above * out.numerator, below * out.denominator
            floors.append((1 << 64) + (-above << 64) // below)  # the floor of F_k 2^64, exact
        self._borders = np.array(floors, np.uint64)
        # For the first bits of a uniform real, the number of borders below it; -1 if a border begins with them too.
        shift = np.uint64(64 - _GUIDE)
        self._guide = np.searchsorted(self._borders, np.arange(1 << _GUIDE, dtype=np.uint64) << shift, side="left")
        self._guide[(self._borders >> shift).astype(np.intp)] = -1

    def sample(self, rows: int, bits: BitSource) -> NDArray[np.intp]:
        """Draw the places of the included rows."""
        found, done = [np.empty(0, np.intp)], 0
        while done < rows:
            # Four standard deviations more than the mean: a second round is rare, and only costs time.
            expected = (rows - done) / self._step
            numbers = self.count_borders(math.ceil(expected + 4 * math.sqrt(expected)) + 4, bits)
            ends = np.minimum(numbers, self._reach - 1)
            ends += 1
            np.cumsum(ends, out=ends)
            ends += done
            done = int(ends[-1])
            included = numbers < self._reach
            included[np.searchsorted(ends, rows, side="right") :] = False
            found.append(ends[included] - 1)
        return np.concatenate(found)

    def count_borders(self, count: int, bits: BitSource) -> NDArray[np.intp]:
        """Count the borders that are not above fresh uniform reals."""
        words = bits.words(count, np.uint16)
        numbers: NDArray[np.intp] = self._guide.take(words, mode="wrap")
        unsure = np.flatnonzero(numbers < 0)
        rest = bits.words(len(unsure)) >> np.uint64(_GUIDE)
        reals = words[unsure].astype(np.uint64) << np.uint64(64 - _GUIDE) | rest
        numbers[unsure] = np.searchsorted(self._borders, reals, side="left")
        ties = self._borders.take(numbers[unsure], mode="clip") == reals
        for place, real in zip(unsure[ties].tolist(), reals[ties].tolist(), strict=True):
            border = 1 - (1 - self._rate) ** (int(numbers[place]) + 1)
            numbers[place] += not is_below(real, 64, partial(bound_ratio, border), bits)
        return numbers


_row_distances = lru_cache(maxsize=16)(_RowDistances)  # the borders of a rate take a few milliseconds
