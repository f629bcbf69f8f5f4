"""Which rows are in a random sample, each by its own exact coin."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import is_below, ratio

__all__ = ["poisson_sample"]

_FIRST, _SECOND = 8, 64  # bits of a row's uniform real that are looked at in the first and in the second place


def poisson_sample(rate: Fraction, rows: int, *, bits: BitSource | None = None) -> NDArray[np.intp]:
    """The places, in order, of the rows that are in: each of ``rows`` independently, with probability exactly ``rate``.

    Row i is in if its uniform real is below the rate. One byte decides that for all but one row in 256; the others
    get more digits until they differ from the rate's.

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
    first, left = divmod(rate.numerator << _FIRST, rate.denominator)
    words = source.words(rows, np.uint8)
    places = np.flatnonzero(words <= first)
    open_cases = words[places] == first
    inside = ~open_cases
    inside[open_cases] = _coins(Fraction(left, rate.denominator), int(np.count_nonzero(open_cases)), source)
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
