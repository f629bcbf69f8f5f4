"""Real numbers known to finitely many digits: rigorous integer bounds, and uniform reals drawn digit by digit.

A ``Real`` maps a length ``n`` to integers ``low <= x * 2**n <= high``. Python's ``decimal`` rounds ``exp`` and ``ln``
correctly, so one unit on either side covers its error. Binary floats only select the cases that need these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource

__all__ = [
    "MINUS_LOG_ERROR",
    "Enclosure",
    "Real",
    "UniformReals",
    "bound_exp_minus",
    "bound_logistic_minus",
    "bound_minus_log",
    "bound_minus_log_complement",
    "bound_ratio",
    "is_above",
    "is_below",
]

Enclosure = tuple[int, int]
Real = Callable[[int], Enclosure]

MINUS_LOG_ERROR = 2.0**-43
"""Largest distance between a float of ``UniformReals.minus_log`` and the true -ln U.

Integers of at least 2^44: -ln U moves by at most 2^-44 within the integer, the conversion adds 2^-53, and NumPy's log of
a number in [2^-20, 1] is within 4 units of its last place (its own accuracy tests require that), 2^-47. Smaller integers
are refined to 128 bits first; their log is below 90 with an error below 2^-44. The unit tests compare with exact bounds.
"""
_SMALL = np.uint64(1 << 44)
_GUARD = 12  # decimal digits beyond the requested length
_FIRST = 96  # bits of the first comparison: enough unless 2^-60 decides
_MORE = 64  # bits drawn at a time while a comparison is undecided


def bound_exp_minus(x: Fraction, length: int) -> Enclosure:
    """Bound exp(-x) for x >= 0.

    >>> bound_exp_minus(Fraction(1), 10)  # 1024 / e = 376.7...
    (375, 378)
    """
    if x > length:  # exp(-length) < 2**-length
        return 0, 1
    context = _decimal_context(length)
    # Relative error: x 10^(1-prec) from the division, 10^(1-prec) from exp; times 2^length that is below 1.
    return _widen_decimal(context.exp(context.divide(Decimal(-x.numerator), Decimal(x.denominator))), length)


def bound_minus_log(numerator: int, length: int) -> Enclosure:
    """Bound -ln(numerator / 2^length) for 0 < numerator <= 2^length.

    >>> bound_minus_log(1, 10)  # 1024 * ln(1024) = 7097.8...
    (7096, 7099)
    """
    context = _decimal_context(length)
    # |ln| <= length, so its last digit weighs below length 10^(1-prec): times 2^length that is below 1.
    return _widen_decimal(context.minus(context.ln(context.divide(Decimal(numerator), Decimal(1 << length)))), length)


def _decimal_context(length: int) -> Context:
    # 302 / 1000 is above log10(2): at least as many decimal digits as ``length`` bits need.
    return Context(prec=length * 302 // 1000 + _GUARD, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _widen_decimal(value: Decimal, length: int) -> Enclosure:
    numerator, denominator = value.as_integer_ratio()
    floor = (numerator << length) // denominator
    # The decimal errs by less than one unit, and the division loses less than another.
    return max(floor - 1, 0), floor + 2


def bound_logistic_minus(x: Fraction, length: int) -> Enclosure:
    """Bound 1 / (1 + exp(x)) for x >= 0.

    >>> bound_logistic_minus(Fraction(1), 10)  # 1024 / (1 + e) = 275.3...
    (274, 277)
    """
    low, high = bound_exp_minus(x, length)
    one = 1 << length
    # p / (1 + p) grows with p, so bounds of exp(-x) bound it; rounded outward.
    return (low << length) // (one + low), -(-(high << length) // (one + high))


def bound_minus_log_complement(x: Fraction, length: int) -> Enclosure:
    """Bound -ln(1 - exp(-x)) for x > 0.

    >>> bound_minus_log_complement(Fraction(1), 10)  # 1024 * 0.45867... = 469.6...
    (469, 470)
    """
    # For small x the complement is about x itself: as many more bits as x has leading zeros.
    work = length + max(0, x.denominator.bit_length() - x.numerator.bit_length()) + 4
    low, high = bound_exp_minus(x, work)
    one = 1 << work
    # -ln(1 - p) grows with p: the lower bound of p gives the lower end.
    least, _ = bound_minus_log(one - low, work)
    _, most = bound_minus_log(one - high, work)
    return least >> (work - length), -(-most >> (work - length))


def bound_ratio(x: Fraction, length: int) -> Enclosure:
    """Bound a rational; both bounds are equal when it has a finite binary expansion.

    >>> bound_ratio(Fraction(1, 3), 4), bound_ratio(Fraction(1, 2), 4)
    ((5, 6), (8, 8))
    """
    scaled = x.numerator << length
    return scaled // x.denominator, -(-scaled // x.denominator)


def is_below(prefix: int, length: int, real: Real, bits: BitSource) -> bool:
    """Decide U < x, for a uniform U of [0, 1) whose first ``length`` bits are ``prefix``.

    More bits of U are drawn until the bounds decide; a tie has probability zero.
    """
    while True:
        low, high = real(length)
        if prefix + 1 <= low:
            return True
        if prefix >= high:
            return False
        prefix, length = prefix << _MORE | bits.integer(_MORE), length + _MORE


def is_above(x: Real, border: Real, refine: Callable[[], object]) -> bool:
    """Decide whether x lies above a border; ``refine`` tightens the bounds of x while the two overlap.

    >>> is_above(lambda length: bound_minus_log(1, length), lambda length: bound_ratio(Fraction(1), length), list)
    True
    """
    length = _FIRST
    while True:
        (low, high), (border_low, border_high) = x(length), border(length)
        if low >= border_high:
            return True
        if high <= border_low:
            return False
        refine()
        length += _MORE


class UniformReals:
    """Independent uniform reals of [0, 1): 64 binary digits of each, and more wherever a decision needs them.

    ``words`` are the first digits, drawn from ``bits``.
    """

    def __init__(self, words: NDArray[np.uint64], bits: BitSource) -> None:
        self._words, self._bits = words, bits
        self._refined: dict[int, tuple[int, int]] = {}

    def minus_log(self) -> NDArray[np.float64]:
        """Compute -ln U of each, within ``MINUS_LOG_ERROR``."""
        logs = (self._words | np.uint64(1)).astype(np.float64)  # an odd integer is never 0, and in the same cell
        logs *= 2.0**-64
        np.log(logs, out=logs)
        np.negative(logs, out=logs)
        for index in np.flatnonzero(self._words < _SMALL).tolist():
            prefix, length = self.refine(index)
            while prefix < 1 << _MORE:
                prefix, length = self.refine(index)
            logs[index] = math.log(2) * length - math.log(prefix)
        return logs

    def exceed(
        self, thresholds: NDArray[np.float64], error: NDArray[np.float64] | float, exact: Callable[[int], Real]
    ) -> NDArray[np.bool_]:
        """Decide exactly which -ln U exceed their threshold: coins of probability exp(-threshold).

        ``error`` bounds the distance between the float thresholds and those that ``exact`` returns.
        """
        gaps = self.minus_log()
        gaps -= thresholds
        above = gaps > 0
        for index in np.flatnonzero(np.abs(gaps) <= error + MINUS_LOG_ERROR).tolist():
            above[index] = self.sum_exceeds((index,), exact(index))
        return above

    def sum_exceeds(self, indices: Iterable[int], border: Real) -> bool:
        """Decide exactly whether the sum of -ln U over some reals exceeds a border."""

        def refine() -> None:
            for index in indices:
                self.refine(index)

        return is_above(partial(self.minus_log_bounds, indices), border, refine)

    def digits(self, index: int) -> tuple[int, int]:
        """Return the binary digits drawn so far of one real, as an integer, and how many they are."""
        return self._refined.get(index) or (int(self._words[index]), 64)

    def refine(self, index: int) -> tuple[int, int]:
        """Draw 64 more binary digits of one real."""
        prefix, length = self.digits(index)
        self._refined[index] = prefix << _MORE | self._bits.integer(_MORE), length + _MORE
        return self._refined[index]

    def minus_log_bounds(self, indices: Iterable[int], length: int) -> Enclosure:
        """Bound the sum of -ln U over some reals, as tightly as the digits drawn so far allow.

        The product of the reals is kept to ``length`` and some more bits, rounded down and up.
        """
        low, low_length, high, high_length = 1, 0, 1, 0
        for index in indices:
            prefix, known = self.digits(index)
            while prefix == 0:
                prefix, known = self.refine(index)
            low, low_length = _shorten_fraction(low * prefix, low_length + known, length + _MORE)
            high, high_length = _shorten_fraction(high * -(prefix + 1), high_length + known, length + _MORE)
            high = -high
        _, most = bound_minus_log(low, low_length)
        least, _ = bound_minus_log(high, high_length)
        return _rescale_fraction(least, high_length, length), -_rescale_fraction(-most, low_length, length)


def _shorten_fraction(numerator: int, length: int, keep: int) -> tuple[int, int]:
    """Round numerator / 2^length down to ``keep`` significant bits."""
    excess = max(0, numerator.bit_length() - keep)
    return numerator >> excess, length - excess


def _rescale_fraction(value: int, length: int, wanted: int) -> int:
    """Express value / 2^length as a multiple of 2^-wanted, rounded down."""
    return value >> (length - wanted) if length > wanted else value << (wanted - length)
