"""Floats that never fall on the unsafe side.

Formulas below are evaluated in float64 with relative errors of a few units of 2^-52, times a condition number that each
formula bounds where it is written. ``MARGIN`` is larger than any of those products, so a cost that is widened by it is
an upper bound; sums are then rounded upwards one addition at a time.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["MARGIN", "SMALLEST", "Floats", "add_up", "float_down", "float_up", "sqrt_down", "sqrt_up", "widen"]

MARGIN = 2.0**-40
"""Relative slack of a float formula: 4,096 units of 2^-52."""

SMALLEST = 2.0**-1000
"""What a positive probability that underflows is reported as."""

Floats = NDArray[np.float64]
_Number = TypeVar("_Number", float, Floats)

_ROOT_BITS = 200  # bits behind the binary point of an exact square root


def widen(value: _Number) -> _Number:
    """A non-negative result of a float formula, moved up by more than the formula's error.

    >>> widen(1.0) > 1.0
    True
    """
    return value * (1 + MARGIN)


def add_up(total: Floats, cost: Floats) -> Floats:
    """A sum of non-negative floats, rounded upwards."""
    return np.nextafter(total + cost, np.inf)


def float_up(value: Fraction | float) -> float:
    """The smallest float that is not below an exact number.

    >>> Fraction(float_up(Fraction(1, 3))) >= Fraction(1, 3)
    True
    """
    nearest = float(value)
    return nearest if _difference(nearest, value) >= 0 else math.nextafter(nearest, math.inf)


def float_down(value: Fraction | float) -> float:
    """The largest float that is not above an exact number.

    >>> Fraction(float_down(Fraction(1, 3))) <= Fraction(1, 3)
    True
    """
    nearest = float(value)
    return nearest if _difference(nearest, value) <= 0 else math.nextafter(nearest, -math.inf)


def _difference(nearest: float, value: Fraction | float) -> int:
    """The sign of nearest - value, in integers: this runs for every event."""
    numerator, denominator = nearest.as_integer_ratio()
    exact_numerator, exact_denominator = value.as_integer_ratio()
    return numerator * exact_denominator - exact_numerator * denominator


def sqrt_down(value: Fraction) -> Fraction:
    """A rational just below an exact square root, or equal to it.

    >>> sqrt_down(Fraction(9, 4))
    Fraction(3, 2)
    """
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root**2 == value:
        return root
    return Fraction(math.isqrt(math.floor(value * (1 << 2 * _ROOT_BITS))), 1 << _ROOT_BITS)


def sqrt_up(value: Fraction) -> Fraction:
    """A rational just above an exact square root, or equal to it.

    >>> sqrt_up(Fraction(2)) ** 2 >= 2
    True
    """
    root = sqrt_down(value)
    return root if root**2 == value else root + Fraction(1, 1 << _ROOT_BITS)
