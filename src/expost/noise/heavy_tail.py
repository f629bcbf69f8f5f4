"""Exact integer noise with polynomial tails, for scales that are themselves private."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import is_below, ratio

__all__ = ["LEAST_SCALE", "heavy_tail"]

LEAST_SCALE = 4
"""Below this the envelope of the rejection, and the constants of docs/proofs/smooth-sensitivity.md, would differ."""

_ENVELOPE = {2: Fraction(5, 2), 4: Fraction(151, 50)}  # docs/proofs/smooth-sensitivity.md, the sampler
_CAP = 1 << 62  # a larger magnitude is shown as this one
_WORD = 64
_FLOAT_ERROR = 2.0**-45  # relative: a handful of roundings of 2^-53 each


def heavy_tail(scale: Fraction, runs: int, *, power: int, bits: BitSource | None = None) -> NDArray[np.int64]:
    """Integers with P(k) proportional to 1 / (scale^power + |k|^power), power 2 (Cauchy) or 4; magnitudes stop at 2^62.

    The law is exact for every rational scale of at least 4: a proposal with rational survival scale / (scale + n) is
    drawn by inverting a uniform real, and kept with a rational probability; both use floats only where their error
    cannot change the outcome.

    >>> from expost.noise.bits import SeededBits
    >>> heavy_tail(Fraction(9, 2), 4, power=4, bits=SeededBits(1)).shape
    (4,)
    """
    if power not in _ENVELOPE or scale < LEAST_SCALE:
        raise InvalidRequest(f"Expected power 2 or 4 and a scale of at least {LEAST_SCALE}", do="Use a finer grid")
    source, sampler = source_of(bits), _Sampler(scale, power)
    values = np.empty(runs, dtype=np.int64)
    pending = np.arange(runs)
    while pending.size:
        values[pending], kept = sampler.draw(pending.size, source)
        pending = pending[~kept]
    return values


class _Sampler:
    """Proposals and their coins."""

    def __init__(self, scale: Fraction, power: int) -> None:
        self._scale, self._power = scale, power
        self._float = float(scale)

    def draw(self, count: int, bits: BitSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Signed proposals, and which of them are kept; a negative zero never is."""
        sizes, wide = self.propose(count, bits)
        negative = (bits.words(count, np.uint8) & 1).astype(bool)
        kept = self.coins(sizes, wide, bits) & ~(negative & (sizes == 0))
        return np.where(negative, -sizes, sizes), kept

    def propose(self, count: int, bits: BitSource) -> tuple[NDArray[np.int64], dict[int, int]]:
        """floor(scale (1 - U) / U) for uniform reals U: P(n or more) = scale / (scale + n).

        The dictionary has the exact sizes of those shown as 2^62.
        """
        words = bits.words(count)
        uniform = (words.astype(np.float64) + 0.5) * 2.0**-_WORD
        value = self._float / uniform - self._float
        # The word knows U to half a unit of 2^-64, the rest is rounding; both relative to scale / U.
        error = self._float / uniform * (_FLOAT_ERROR + 2.0**-_WORD / uniform)
        sure = (np.floor(value - error) == np.floor(value + error)) & (value < 2.0**53)
        sizes = np.where(sure, np.floor(value), 0).astype(np.int64)
        exact = {place: self._exact_proposal(int(words[place]), bits) for place in np.flatnonzero(~sure).tolist()}
        for place, size in exact.items():
            sizes[place] = min(size, _CAP)
        return sizes, {place: size for place, size in exact.items() if size > _CAP}

    def _exact_proposal(self, prefix: int, bits: BitSource) -> int:
        above, below = self._scale.numerator, self._scale.denominator
        length = _WORD
        while True:
            low = above * ((1 << length) - prefix - 1) // (below * (prefix + 1))
            if prefix and low == above * ((1 << length) - prefix) // (below * prefix):
                return low
            prefix, length = prefix << _WORD | bits.integer(_WORD), length + _WORD

    def coins(self, sizes: NDArray[np.int64], wide: dict[int, int], bits: BitSource) -> NDArray[np.bool_]:
        """Which proposals are kept: exact coins of probability target over envelope."""
        words = bits.words(len(sizes))
        r = sizes.astype(np.float64)
        r[list(wide)] = list(wide.values())
        r /= self._float
        chance = (1 + r) * (1 + r + 1 / self._float) / (1 + r**self._power) / float(_ENVELOPE[self._power])
        excess = words.astype(np.float64) * 2.0**-_WORD - chance
        coins = excess < 0
        for place in np.flatnonzero(np.abs(excess) <= 2 * _FLOAT_ERROR).tolist():
            exact = partial(ratio, self.chance(wide.get(place, int(sizes[place]))))
            coins[place] = is_below(int(words[place]), _WORD, exact, bits)
        return coins

    def chance(self, size: int) -> Fraction:
        """Target over envelope: (s + n)(s + n + 1) s^(power - 2) / (c (s^power + n^power)), at most 1."""
        s, n, power = self._scale, size, self._power
        return (s + n) * (s + n + 1) * Fraction(s ** (power - 2)) / (_ENVELOPE[power] * Fraction(s**power + n**power))
