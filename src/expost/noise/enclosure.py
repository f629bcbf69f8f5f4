"""Real numbers between two integers: rigorous fixed-point bounds to any length.

A ``Real`` maps a length ``n`` to integers ``low <= x * 2**n <= high``. Python's ``decimal`` rounds ``exp`` and ``ln``
correctly, so one unit either way covers its error; nothing here is a binary float.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

from expost.noise.bits import BitSource

__all__ = [
    "Bounds",
    "Real",
    "exp_minus",
    "floor_of",
    "is_above",
    "is_below",
    "logistic_minus",
    "minus_log",
    "minus_log_complement",
    "ratio",
]

Bounds = tuple[int, int]
Real = Callable[[int], Bounds]

_GUARD = 12  # decimal digits beyond the length asked for
_FIRST = 96  # bits of the first comparison: enough unless 2^-60 decides
_MORE = 64  # bits drawn at a time when a comparison is still open


def _context(length: int) -> Context:
    return Context(prec=length * 302 // 1000 + _GUARD, Emin=MIN_EMIN, Emax=MAX_EMAX)


def exp_minus(x: Fraction, length: int) -> Bounds:
    """Bounds on exp(-x) for x >= 0.

    >>> exp_minus(Fraction(1), 10)  # 1024 / e = 376.7...
    (375, 378)
    """
    if x > length:  # exp(-length) < 2**-length
        return 0, 1
    context = _context(length)
    # Relative error: x 10^(1-prec) from the division, 10^(1-prec) from exp; times 2^length that is below 1.
    value = context.exp(context.divide(Decimal(-x.numerator), Decimal(x.denominator)))
    return _widened(value, length)


def minus_log(numerator: int, length: int) -> Bounds:
    """Bounds on -ln(numerator / 2^length) for 0 < numerator <= 2^length.

    >>> minus_log(1, 10)  # 1024 * ln(1024) = 7097.8...
    (7096, 7099)
    """
    context = _context(length)
    # |ln| <= length, so its last digit weighs below length 10^(1-prec): times 2^length that is below 1.
    value = context.minus(context.ln(context.divide(Decimal(numerator), Decimal(1 << length))))
    return _widened(value, length)


def _widened(value: Decimal, length: int) -> Bounds:
    numerator, denominator = value.as_integer_ratio()
    floor = (numerator << length) // denominator
    return max(floor - 1, 0), floor + 2


def logistic_minus(x: Fraction, length: int) -> Bounds:
    """Bounds on 1 / (1 + exp(x)) for x >= 0.

    >>> logistic_minus(Fraction(1), 10)  # 1024 / (1 + e) = 275.3...
    (274, 277)
    """
    low, high = exp_minus(x, length)
    one = 1 << length
    return (low << length) // (one + low), -(-(high << length) // (one + high))


def minus_log_complement(x: Fraction, length: int) -> Bounds:
    """Bounds on -ln(1 - exp(-x)) for x > 0.

    >>> minus_log_complement(Fraction(1), 10)  # 1024 * 0.45867... = 469.6...
    (469, 470)
    """
    # For small x the complement is about x itself: as many more bits as x has leading zeros.
    work = length + max(0, x.denominator.bit_length() - x.numerator.bit_length()) + 4
    low, high = exp_minus(x, work)
    one = 1 << work
    least, _ = minus_log(one - low, work)
    _, most = minus_log(one - high, work)
    return least >> (work - length), -(-most >> (work - length))


def ratio(x: Fraction, length: int) -> Bounds:
    """Bounds on a rational; equal when it has a finite expansion.

    >>> ratio(Fraction(1, 3), 4), ratio(Fraction(1, 2), 4)
    ((5, 6), (8, 8))
    """
    scaled = x.numerator << length
    return scaled // x.denominator, -(-scaled // x.denominator)


def floor_of(real: Real, length: int) -> int:
    """floor(x 2^length), certain; for numbers that are not a whole multiple of any 2^-n.

    >>> floor_of(lambda length: exp_minus(Fraction(1), length), 10)
    376
    """
    extra = 16
    while True:
        low, high = (bound >> extra for bound in real(length + extra))
        if low == high:
            return low
        extra += _MORE


def is_below(prefix: int, length: int, real: Real, bits: BitSource) -> bool:
    """Whether U < x, for a uniform U of [0, 1) whose first ``length`` bits are ``prefix``.

    More bits of U are drawn until the bounds decide; a tie has probability zero.

    >>> from expost.noise.bits import SeededBits
    >>> is_below(0, 1, lambda length: ratio(Fraction(3, 4), length), SeededBits(1))
    True
    """
    while True:
        low, high = real(length)
        if prefix + 1 <= low:
            return True
        if prefix >= high:
            return False
        prefix, length = prefix << _MORE | bits.integer(_MORE), length + _MORE


def is_above(x: Real, border: Real, refine: Callable[[], object]) -> bool:
    """Whether x lies above a border; ``refine`` makes the bounds of x tighter while they overlap.

    >>> is_above(lambda length: minus_log(1, length), lambda length: ratio(Fraction(1), length), lambda: None)
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
