"""The grid of sums: so fine that rounding all rows of a table to it is a small part of the noise, and bounded."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from expost.data import Clamp, Dataset

__all__ = ["MOST_ROWS", "finer", "rounding_of_rows"]

MOST_ROWS = 1 << 29
"""The rows for which intervals of sums include the rounding where the number of rows is not public."""

_ROW_BITS = 37  # steps are then below 2^38: block sums stay below 2^62 up to 2^24 rows, and floats are exact
_UNIT_BITS = 31  # rows that are sorted by unit are kept in 32 bits
_FLOATS = Fraction(1, 1 << 11)  # of a step: what float arithmetic adds to half a step (38 bits of 53 are used)


def finer(clamp: Clamp, dataset: Dataset) -> Clamp:
    """The clamp on the grid of sums, its bounds moved to the nearest grid points; whole numbers need none.

    The step is a power of two, so that bounds and steps have a common measure however odd the bounds are.

    >>> import pyarrow as pa
    >>> finer(Clamp.of((0, 1)), Dataset(pa.table({"x": [0.5]}))).steps == 2**37
    True
    """
    if clamp.whole:
        return clamp
    bits = _ROW_BITS if dataset.unit.is_row else _UNIT_BITS
    step = Fraction(2) ** (_floor_log2(clamp.high - clamp.low) - bits)
    if round(clamp.high / step) - round(clamp.low / step) >= 2 << bits:
        step *= 2
    low, high = round(clamp.low / step), round(clamp.high / step)
    return replace(clamp, low=low * step, high=high * step, steps=high - low)


def rounding_of_rows(declared: Clamp, clamp: Clamp, dataset: Dataset) -> Fraction:
    """How far clamping to grid points and rounding every row to its step can move a sum: a public bound.

    A row is moved by half a step, by the error of the float operations, by what its bound was moved, and by the
    distance of that bound from its float.

    >>> import pyarrow as pa
    >>> people, unit = Dataset(pa.table({"x": [0.5]})), Clamp.of((0, 1))
    >>> float(rounding_of_rows(unit, finer(unit, people), people)) < 0.002
    True
    """
    if clamp.whole:
        return Fraction(0)
    ends = ((declared.low, clamp.low), (declared.high, clamp.high))
    moved = max(abs(first - second) for first, second in ends)
    floats = sum((abs(Fraction(float(end)) - end) for _, end in ends), Fraction(0))
    rows = MOST_ROWS if dataset.rows is None else dataset.rows
    return rows * (clamp.step * (Fraction(1, 2) + _FLOATS) + moved + floats)


def _floor_log2(number: Fraction) -> int:
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1
