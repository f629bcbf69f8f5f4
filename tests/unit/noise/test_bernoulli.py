from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.scripted import ScriptedBits, words

from expost.core import InvalidRequest
from expost.noise import SeededBits, sample_bernoulli, sample_bernoulli_exp


def test_one_word_decides_unless_it_holds_the_digits_of_the_probability() -> None:
    third = 2**32 // 3
    script = words(third - 1, third, third + 1, dtype=np.uint32)
    bits = ScriptedBits(script, words(2**64 // 3 - 5))

    assert sample_bernoulli(Fraction(1, 3), 3, bits=bits).tolist() == [True, True, False]
    assert bits.drawn == 3 * 4 + 8  # only the tie asked for more


def test_a_tie_can_fall_the_other_way() -> None:
    bits = ScriptedBits(words(2**32 // 3, dtype=np.uint32), words(2**64 // 3 + 5))

    assert sample_bernoulli(Fraction(1, 3), 1, bits=bits).tolist() == [False]


def test_dyadic_probabilities_never_tie() -> None:
    bits = ScriptedBits(words(2**31 - 1, 2**31, dtype=np.uint32))

    assert sample_bernoulli(Fraction(1, 2), 2, bits=bits).tolist() == [True, False]
    assert bits.drawn == 8


def test_certain_coins_are_certain() -> None:
    assert sample_bernoulli(1, 1000, bits=SeededBits(1)).all()
    assert not sample_bernoulli(0, 1000, bits=SeededBits(1)).any()
    assert sample_bernoulli_exp(0, 1000, bits=SeededBits(1)).all()
    assert not sample_bernoulli_exp(10**6, 1000, bits=SeededBits(1)).any()


def test_every_element_has_its_own_coin() -> None:
    assert sample_bernoulli([0, 1, 0], bits=SeededBits(1)).tolist() == [False, True, False]
    assert sample_bernoulli_exp([0, 500, 0], bits=SeededBits(1)).tolist() == [True, False, True]


def test_a_single_coin_is_a_boolean() -> None:
    assert isinstance(sample_bernoulli(0.5), bool)
    assert isinstance(sample_bernoulli_exp(1), bool)


@pytest.mark.parametrize("probability", [-0.1, 1.1, [0.5, 2], float("nan"), "half"])
def test_a_probability_lies_between_zero_and_one(probability) -> None:
    with pytest.raises(InvalidRequest):
        sample_bernoulli(probability, None)


def test_a_negative_exponent_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        sample_bernoulli_exp(-1, 1)
