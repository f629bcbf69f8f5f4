"""Exact numbers in, floats out that never fall on the unsafe side.

The formulas of this package are evaluated in float64 with relative errors of a few units of 2^-52, times a condition
number that each formula bounds where it is written. ``MARGIN`` is larger than any of those products, so a cost widened
by it is an upper bound. Sums are then rounded upwards, one addition at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.rational import float_up, rational, read_amount

__all__ = [
    "MARGIN",
    "SMALLEST",
    "Floats",
    "add_up",
    "float_down",
    "float_up",
    "read_amount",
    "read_count",
    "read_curve",
    "read_delta",
    "read_shares",
    "sqrt_down",
    "sqrt_up",
    "widen",
]

MARGIN = 2.0**-40
"""Relative slack of a float formula: 4,096 units of 2^-52."""

SMALLEST = 2.0**-1000
"""What a positive probability that underflows is reported as."""

Floats = NDArray[np.float64]
RenyiCurve = tuple[tuple[Fraction, Fraction], ...]
_Number = TypeVar("_Number", float, Floats)

_ROOT_BITS = 200  # bits behind the binary point of an exact square root


def widen(value: _Number) -> _Number:
    """Move the non-negative result of a float formula up by more than the formula's error.

    >>> widen(1.0) > 1.0
    True
    """
    return value * (1 + MARGIN)


def add_up(total: Floats, cost: Floats) -> Floats:
    """Add non-negative floats and round upwards."""
    # A sum is at most half a unit off, so the next float is above the exact one.
    return np.nextafter(total + cost, np.inf)


def float_down(value: Fraction | float) -> float:
    """Return the largest float that is not above an exact number.

    >>> Fraction(float_down(Fraction(1, 3))) <= Fraction(1, 3)
    True
    """
    nearest = float(value)
    numerator, denominator = nearest.as_integer_ratio()
    exact_numerator, exact_denominator = value.as_integer_ratio()
    above = numerator * exact_denominator > exact_numerator * denominator
    return math.nextafter(nearest, -math.inf) if above else nearest


def sqrt_down(value: Fraction) -> Fraction:
    """Return a rational just below an exact square root, or equal to it.

    >>> sqrt_down(Fraction(9, 4))
    Fraction(3, 2)
    """
    # Squares of rationals stay exact, so that mu of a Gaussian event is its own 1 / noise multiplier.
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root**2 == value:
        return root
    return Fraction(math.isqrt(math.floor(value * (1 << 2 * _ROOT_BITS))), 1 << _ROOT_BITS)


def sqrt_up(value: Fraction) -> Fraction:
    """Return a rational just above an exact square root, or equal to it.

    >>> sqrt_up(Fraction(2)) ** 2 >= 2
    True
    """
    root = sqrt_down(value)
    return root if root**2 == value else root + Fraction(1, 1 << _ROOT_BITS)


def read_count(value: object, name: str, *, least: int = 0) -> int:
    """Read a whole number with a lower limit.

    >>> read_count(3, "steps")
    3
    """
    # bool is a subclass of int: a count of True would pass for 1.
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidRequest(f"Expected {name} to be a whole number >= {least}", got=value, do="Pass an int")
    return int(value)


def read_delta(value: object, name: str = "delta") -> Fraction:
    """Read a delta: at least 0 and below 1, because at 1 everything is private.

    >>> read_delta(2)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected delta below 1, got 2. Pass a small delta such as 1e-6.
    """
    exact = rational(value, name, positive=False)
    if exact >= 1:
        raise InvalidRequest(f"Expected {name} below 1", got=value, do=f"Pass a small {name} such as 1e-6")
    return exact


def read_curve(value: object) -> RenyiCurve:
    """Read pairs of an order and an epsilon.

    >>> read_curve([(2, 0.5)])
    ((Fraction(2, 1), Fraction(1, 2)),)
    """
    pairs: list[Any] = list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InvalidRequest("Expected pairs of an order and an epsilon", do="Pass e.g. [(2, 0.1), (4, 0.3)]")
    return tuple((rational(order, "order"), rational(cost, "epsilon", positive=False)) for order, cost in pairs)


def read_shares(value: object) -> dict[float, float]:
    """Read shares of a probability, one per Renyi order.

    >>> read_shares({2: 0.5, 8: 0.5})
    {2.0: 0.5, 8.0: 0.5}
    """
    given: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
    shares = {float(rational(order, "order")): float(rational(share, "shares")) for order, share in given.items()}
    # 1e-12 for shares typed as decimals; filters and odometers take 2e-12 off each share again.
    if not shares or min(shares) <= 1 or math.fsum(shares.values()) > 1 + 1e-12:
        raise InvalidRequest("Expected orders above 1 with positive shares that sum to 1", do="Divide by their sum")
    return shares
