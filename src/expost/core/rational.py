"""Reads exact numbers from what a caller types: ``0.1`` means one tenth."""

from __future__ import annotations

import math
import numbers
from decimal import Decimal
from fractions import Fraction

from expost.core.errors import InvalidRequest

__all__ = [
    "decimal_text",
    "finite",
    "float_up",
    "floor_decimal",
    "probability",
    "rational",
    "read_amount",
    "round_up",
    "whole",
]

# Far outside any useful privacy or accuracy parameter, close enough to keep exact arithmetic cheap.
_LARGEST = Fraction(10**18)
_SMALLEST = Fraction(1, 10**30)
_MOST_PLACES = 400  # of a decimal, before or after the point: floats end sooner


def rational(value: object, name: str, *, positive: bool = True, do: str | None = None) -> Fraction:
    """Return the exact value of a number that the caller typed. A float is taken by its shortest decimal.

    >>> rational(0.1, "epsilon")
    Fraction(1, 10)
    >>> rational("0.1", "epsilon")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected epsilon to be a number > 0, got '0.1'. Pass a positive finite epsilon.
    """
    bound = "> 0" if positive else ">= 0"
    remedy = do or f"Pass a {'positive' if positive else 'non-negative'} finite {name}"
    # Texts are refused: they come from files and forms, where a comma or a unit would be misread.
    exact = _read_exactly(value)
    if exact is None:
        raise InvalidRequest(f"Expected {name} to be a number {bound}", got=value, do=remedy)
    if exact < 0 or (positive and exact == 0):
        raise InvalidRequest(f"Expected {name} {bound}", got=value, do=remedy)
    if exact > _LARGEST or (exact != 0 and exact < _SMALLEST):
        raise InvalidRequest(f"Expected {name} between 1e-30 and 1e18", got=value, do=remedy)
    return exact


def read_amount(value: object, name: str) -> Fraction:
    """Read an exact number >= 0. A fraction is returned unchanged."""
    # Computed amounts are exact already and may be smaller than anything a caller would type. They are also frequent.
    return value if isinstance(value, Fraction) and value >= 0 else rational(value, name, positive=False)


def float_up(value: Fraction | float) -> float:
    """Return the smallest float that is not below an exact number."""
    nearest = float(value)
    # The comparison is in integers because it runs for every event, and fractions are slow.
    numerator, denominator = nearest.as_integer_ratio()
    exact_numerator, exact_denominator = value.as_integer_ratio()
    below = numerator * exact_denominator < exact_numerator * denominator
    return math.nextafter(nearest, math.inf) if below else nearest


def probability(value: object, name: str) -> Fraction:
    """Return an exact number strictly between 0 and 1."""
    exact = rational(value, name, do=f"Pass a {name} between 0 and 1, both excluded")
    if exact >= 1:
        percent = f"Pass {float(exact) / 100:g} for {float(exact):g} %" if 1 < exact < 100 else f"Pass a smaller {name}"
        raise InvalidRequest(f"Expected {name} between 0 and 1, both excluded", got=value, do=percent)
    return exact


def finite(value: object, name: str, *, do: str | None = None) -> float:
    """Return a finite number of either sign as a float."""
    exact = _read_exactly(value)
    try:
        found = math.nan if exact is None else float(exact)
    except OverflowError:
        found = math.nan
    if math.isnan(found):
        raise InvalidRequest(f"Expected {name} to be a finite number", got=value, do=do or f"Pass a finite {name}")
    return found


def whole(value: object, name: str, *, least: int = 0, most: int, do: str | None = None) -> int:
    """Return a whole number between two limits, both included.

    >>> whole(2.5, "runs", most=10)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected runs to be a whole number from 0 to 10, got 2.5. Pass an int between them.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        expected = f"Expected {name} to be a whole number from {least} to {most}"
        raise InvalidRequest(expected, got=value, do=do or "Pass an int between them")
    return int(value)


def round_up(value: float | Fraction, *, relative: Fraction = Fraction(1, 10**12)) -> Fraction:
    """Return a short rational that is never below ``value`` and at most ``relative`` above it.

    Used where a loss is computed in floats: the error of the computation belongs in ``relative``.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest("Expected a finite privacy parameter", got=value, do="Ask for less accuracy")
    exact = Fraction(value)
    if exact <= 0:
        return Fraction(0)
    # Fifteen digits: short enough to print and to add, finer than ``relative``.
    grid = Fraction(10) ** (math.floor(math.log10(exact)) - 14)
    return math.ceil(exact * (1 + relative) / grid) * grid


def decimal_text(value: Fraction, digits: int = 4, *, down: bool = False) -> str:
    """Return a rational as text for people: a cost is rounded *up*, what is left is rounded ``down``.

    >>> decimal_text(Fraction(1, 3)), decimal_text(Fraction(1, 3), down=True)
    ('0.3334', '0.3333')
    """
    if value <= 0:
        return "0"
    # Logarithms of the parts: the quotient may be too small or too large for a float.
    magnitude = math.floor(math.log10(value.numerator) - math.log10(value.denominator))
    if Fraction(10) ** (magnitude + 1) <= value:
        magnitude += 1  # the logarithms were rounded; a digit too many would be rounded away again, either way
    grid = Fraction(10) ** (magnitude - digits + 1)
    steps = math.floor(value / grid) if down else math.ceil(value / grid)
    return f"{float(steps * grid):.{digits}g}"


def floor_decimal(value: Fraction, places: int) -> Fraction:
    """Round ``value`` down to ``places`` decimals."""
    scale = 10**places
    return Fraction(math.floor(value * scale), scale)


def _read_exactly(value: object) -> Fraction | None:
    """Return the exact value of a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        return None
    if isinstance(value, Fraction):
        return value
    if isinstance(value, numbers.Integral):
        return Fraction(int(value))
    if isinstance(value, Decimal) and (not value.is_finite() or abs(value.adjusted()) > _MOST_PLACES):
        return None
    if not math.isfinite(value):
        return None
    return Fraction(str(value))  # str of a float, NumPy's included, is its shortest decimal
