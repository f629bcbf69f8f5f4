from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.bitwise import _Digits, bitwise_geometric, bitwise_laplace, floor_of
from tests.unit.noise.scripted import ScriptedBits, words

from expost.noise import SeededBits


@pytest.mark.parametrize("r", [Fraction(1, 2), Fraction(99, 100), Fraction(3, 7)])
def test_independent_digits_make_a_geometric_variable(r: Fraction) -> None:
    digits = 5
    one = [r ** (2**i) / (1 + r ** (2**i)) for i in range(digits)]

    for g in range(2**digits):
        probability = Fraction(1)
        for i in range(digits):
            probability *= one[i] if g >> i & 1 else 1 - one[i]
        assert probability == (1 - r) * r**g / (1 - r ** (2**digits))  # geometric, given that it is below 2^digits


def test_sixteen_bits_decide_a_digit_unless_they_tie() -> None:
    sampler = _Digits(Fraction(3))
    floors = [floor_of(coin, 16) for coin in sampler._coins]
    below = words(*(floor - 1 for floor in floors if floor), *([0] * (8 - len(floors) % 8)), dtype=np.uint16)
    width = len(sampler._floors)
    row = np.zeros(width, np.uint16)
    row[: len(below)] = below[:width]

    digits = sampler._draw_digits(1, ScriptedBits(row))[0]

    assert digits[: np.count_nonzero(floors)].all()


def test_a_tie_is_broken_by_more_digits() -> None:
    sampler = _Digits(Fraction(10**6))
    width = len(sampler._floors)
    row = np.full(width, 65535, np.uint16)
    row[1] = sampler._floors[1]
    first, rest = divmod(floor_of(sampler._coins[1], 80), 2**64)
    assert first == row[1]

    for offset, expected in ((-9, 1), (9, 0)):
        script = ScriptedBits(row, words(rest + offset), words(2**63))
        assert sampler._draw_block(1, script, False)[0] == expected


def test_padding_digits_stay_zero() -> None:
    sampler = _Digits(Fraction(100))
    digits = sampler._draw_digits(5000, SeededBits(1))

    assert not digits[:, len(sampler._coins) :].any()


def test_values_beyond_the_digits_are_drawn_too() -> None:
    sampler = _Digits(Fraction(1, 60))  # one digit; beyond it lies exp(-120)
    assert sampler._count == 1

    script = ScriptedBits(words(0), words(0), words(0), words(0), words(2**63), words(2**63))
    values = sampler._add_overshoot(np.zeros(1, np.int64), script)

    assert values.dtype == object
    assert values[0] >= 2


@pytest.mark.parametrize("scale", [1, 1000, 2**57])
def test_values_fit_their_type(scale: int) -> None:
    values = bitwise_geometric(scale, 1000, bits=SeededBits(2))

    assert min(values) >= 0
    assert values.dtype == (np.int64 if scale < 2**57 else object)


def test_every_element_takes_its_own_scale() -> None:
    values = bitwise_laplace([1, 10**6] * 2000, bits=SeededBits(3))

    assert np.abs(values[::2]).max() < 40
    assert np.abs(values[1::2]).mean() == pytest.approx(10**6, rel=0.1)


def test_shapes_and_single_values() -> None:
    assert isinstance(bitwise_laplace(3), int)
    assert bitwise_laplace(3, (2, 2)).shape == (2, 2)
    assert bitwise_geometric(3, 0).shape == (0,)
