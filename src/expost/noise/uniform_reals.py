"""Uniform real numbers, known to 64 bits and refined when a decision needs more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource
from expost.noise.enclosure import Bounds, Real, is_above, minus_log

__all__ = ["MINUS_LOG_ERROR", "UniformReals"]

MINUS_LOG_ERROR = 2.0**-43
"""Largest distance between a float of ``minus_log`` and the true -ln U.

Words of at least 2^44: -ln U moves by at most 2^-44 within the word, the conversion adds 2^-53, and NumPy's log of a
number in [2^-20, 1] is within 4 units of its last place (its own accuracy tests ask for that), 2^-47. Smaller words
are refined to 128 bits first; their log is below 90 with an error below 2^-44. The unit tests compare with exact bounds.
"""
_SMALL = np.uint64(1 << 44)
_MORE = 64


class UniformReals:
    """Independent uniform reals of [0, 1), as many binary digits of each as anyone needed.

    >>> from expost.noise.bits import SeededBits
    >>> reals = UniformReals(5, SeededBits(1))
    >>> bool((reals.minus_log() > 0).all())
    True
    """

    def __init__(self, count: int, bits: BitSource) -> None:
        self._bits = bits
        self._words = bits.words(count)
        self._refined: dict[int, tuple[int, int]] = {}

    def minus_log(self) -> NDArray[np.float64]:
        """-ln U of each, within ``MINUS_LOG_ERROR``."""
        logs = (self._words | np.uint64(1)).astype(np.float64)  # an odd word is never 0, and is within its own cell
        logs *= 2.0**-64
        np.log(logs, out=logs)
        np.negative(logs, out=logs)
        for index in np.flatnonzero(self._words < _SMALL).tolist():
            logs[index] = self._refined_minus_log(index)
        return logs

    def _refined_minus_log(self, index: int) -> float:
        prefix, length = self.refine(index)
        while prefix < 1 << _MORE:
            prefix, length = self.refine(index)
        return math.log(2) * length - math.log(prefix)

    def exceed(
        self, thresholds: NDArray[np.float64], error: NDArray[np.float64] | float, exact: Callable[[int], Real]
    ) -> NDArray[np.bool_]:
        """Which -ln U exceed their threshold: coins of probability exp(-threshold), decided exactly.

        ``error`` bounds how far the float thresholds are from those that ``exact`` gives.
        """
        gaps = self.minus_log()
        gaps -= thresholds
        above = gaps > 0
        for index in np.flatnonzero(np.abs(gaps) <= error + MINUS_LOG_ERROR).tolist():
            above[index] = is_above(partial(self.minus_log_bounds, (index,)), exact(index), partial(self.refine, index))
        return above

    def digits(self, index: int) -> tuple[int, int]:
        """The binary digits drawn so far of one real, as an integer and their number."""
        return self._refined.get(index) or (int(self._words[index]), 64)

    def refine(self, index: int) -> tuple[int, int]:
        """Draw 64 more binary digits of one real."""
        prefix, length = self.digits(index)
        self._refined[index] = prefix << _MORE | self._bits.integer(_MORE), length + _MORE
        return self._refined[index]

    def minus_log_bounds(self, indices: Iterable[int], length: int) -> Bounds:
        """Bounds on the sum of -ln U over some reals, as tight as the digits drawn so far allow.

        The product of the reals is kept to ``length`` and some more bits, rounded down and up.
        """
        low, low_length, high, high_length = 1, 0, 1, 0
        for index in indices:
            prefix, known = self.digits(index)
            while prefix == 0:
                prefix, known = self.refine(index)
            low, low_length = _shortened(low * prefix, low_length + known, length + _MORE)
            high, high_length = _shortened(high * -(prefix + 1), high_length + known, length + _MORE)
            high = -high
        _, most = minus_log(low, low_length)
        least, _ = minus_log(high, high_length)
        return _scaled(least, high_length, length), -_scaled(-most, low_length, length)


def _shortened(numerator: int, length: int, keep: int) -> tuple[int, int]:
    """The quotient numerator / 2^length, rounded down to ``keep`` significant bits."""
    excess = max(0, numerator.bit_length() - keep)
    return numerator >> excess, length - excess


def _scaled(value: int, length: int, wanted: int) -> int:
    """The number value / 2^length as a multiple of 2^-wanted, rounded down."""
    return value >> (length - wanted) if length > wanted else value << (wanted - length)
