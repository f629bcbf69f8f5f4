from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from tests.unit.noise.bitwise import floor_of
from tests.unit.noise.scripted import ScriptedBits, words

from expost.noise import SeededBits
from expost.noise.enclosure import (
    bound_exp_minus,
    bound_logistic_minus,
    bound_minus_log,
    bound_minus_log_complement,
    bound_ratio,
    is_above,
    is_below,
)

FUNCTIONS = {
    bound_exp_minus: lambda x: mpmath.exp(-x),
    bound_logistic_minus: lambda x: 1 / (1 + mpmath.exp(x)),
    bound_minus_log_complement: lambda x: -mpmath.log(-mpmath.expm1(-x)),
    bound_ratio: lambda x: x,
}
LENGTHS = [1, 10, 64, 200, 1000]
ARGUMENTS = [Fraction(1, 3), Fraction(1), Fraction(22, 7), Fraction(40), Fraction(1, 2**60), Fraction(1, 10**30)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("x", ARGUMENTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_bounds_enclose_the_number_and_are_tight(function, x: Fraction, length: int) -> None:
    low, high = function(x, length)

    with mpmath.workprec(length + 400):
        scaled = FUNCTIONS[function](mpmath.mpf(x.numerator) / x.denominator) * mpmath.mpf(2) ** length
        assert low <= scaled <= high
    assert 0 <= high - low <= 4


@pytest.mark.parametrize(("numerator", "length"), [(1, 1), (1, 64), (2**64 - 1, 64), (12345, 64), (1, 1000), (7, 3)])
def test_logarithms_are_enclosed(numerator: int, length: int) -> None:
    low, high = bound_minus_log(numerator, length)

    with mpmath.workprec(length + 400):
        assert low <= -mpmath.log(mpmath.mpf(numerator) / 2**length) * 2**length <= high
    assert high - low <= 3


def test_exponentials_far_below_the_last_bit_stay_cheap() -> None:
    assert bound_exp_minus(Fraction(10**36), 64) == (0, 1)
    assert bound_logistic_minus(Fraction(10**36), 64) == (0, 1)


def test_a_floor_is_certain() -> None:
    x = Fraction(1, 7)
    with mpmath.workprec(300):
        expected = int(mpmath.floor(mpmath.exp(-mpmath.mpf(1) / 7) * 2**80))

    assert floor_of(partial(bound_exp_minus, x), 80) == expected


def test_a_prefix_below_or_above_decides_at_once() -> None:
    bits = ScriptedBits()

    assert is_below(0, 8, partial(bound_exp_minus, Fraction(1)), bits)
    assert not is_below(255, 8, partial(bound_exp_minus, Fraction(1)), bits)
    assert bits.drawn == 0


@pytest.mark.parametrize(("offset", "below"), [(-3, True), (3, False)])
def test_a_tie_is_broken_by_the_next_digits(offset: int, below: bool) -> None:
    real = partial(bound_exp_minus, Fraction(1))
    first, second = divmod(floor_of(real, 128), 1 << 64)
    bits = ScriptedBits(words(second + offset))

    assert is_below(first, 64, real, bits) is below
    assert bits.drawn == 8


def test_coins_of_a_rational_have_its_probability() -> None:
    bits = SeededBits(1)
    heads = sum(is_below(bits.integer(2), 2, partial(bound_ratio, Fraction(1, 3)), bits) for _ in range(20_000))

    assert abs(heads - 20_000 / 3) < 6 * (20_000 * 2 / 9) ** 0.5


def test_overlapping_bounds_ask_for_more() -> None:
    asked: list[int] = []

    def x(length: int) -> tuple[int, int]:
        half_width = 1 << max(0, length - 10 * len(asked))
        return (1 << length) - half_width, (1 << length) + half_width

    above = is_above(x, partial(bound_ratio, Fraction(99, 100)), lambda: asked.append(1))

    assert above
    assert asked


def test_bounds_of_many_random_numbers_hold() -> None:
    rng = np.random.default_rng(1)
    for numerator, denominator in rng.integers(1, 10**9, (200, 2)).tolist():
        x = Fraction(numerator, denominator)
        low, high = bound_exp_minus(x, 100)
        with mpmath.workprec(300):
            assert low <= mpmath.exp(-mpmath.mpf(numerator) / denominator) * 2**100 <= high
