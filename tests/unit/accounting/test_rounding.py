"""Rounding goes to the safe side."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from expost.accounting.rounding import add_up, float_down, float_up, sqrt_down, sqrt_up, widen

NUMBERS = st.fractions(min_value=0, max_value=10**9)


@given(NUMBERS)
def test_floats_enclose_an_exact_number(value: Fraction) -> None:
    assert Fraction(float_down(value)) <= value <= Fraction(float_up(value))
    assert float_up(value) <= math.nextafter(float_down(value), math.inf)


@given(NUMBERS)
def test_roots_enclose_the_square_root(value: Fraction) -> None:
    assert sqrt_down(value) ** 2 <= value <= sqrt_up(value) ** 2
    assert sqrt_up(value) - sqrt_down(value) <= Fraction(1, 2**199)


def test_sums_of_floats_are_rounded_up() -> None:
    np = __import__("numpy")
    total, exact = np.zeros(1), Fraction(0)
    for _ in range(1000):
        total, exact = add_up(total, np.array([0.1])), exact + Fraction(0.1)

    assert Fraction(float(total[0])) >= exact
    assert float(total[0]) < 100 * (1 + 1e-12)


def test_widening_beats_a_thousand_ulps() -> None:
    assert widen(1.0) > 1 + 1000 * 2.0**-52
