import numpy as np
import pytest
from tests.unit.noise.scripted import ScriptedBits, words

from expost.core import InvalidRequest
from expost.noise import SeededBits, sample_uniform


def test_words_that_would_bias_the_remainder_are_thrown_away() -> None:
    bound = 3
    excess = 2**64 % bound  # 1: the word 0 is one too many for remainder 0
    bits = ScriptedBits(words(excess - 1, excess, excess + 1), words(7))

    assert sample_uniform(bound, 3, bits=bits).tolist() == [7 % 3, excess % 3, (excess + 1) % 3]
    assert bits.drawn == 32


def test_kept_words_are_a_whole_number_of_bounds() -> None:
    for bound in (1, 2, 3, 7, 1000, 2**40 + 1, 2**63):
        assert (2**64 - (-bound % 2**64) % bound) % bound == 0


def test_every_element_has_its_own_bound() -> None:
    values = sample_uniform(np.array([1, 2, 2**62] * 1000), bits=SeededBits(1)).reshape(-1, 3)

    assert (values[:, 0] == 0).all()
    assert set(values[:, 1]) == {0, 1}
    assert values[:, 2].max() > 2**60


def test_bounds_beyond_a_word_give_python_integers() -> None:
    values = sample_uniform(10**30, 50, bits=SeededBits(1))

    assert values.dtype == object
    assert all(0 <= value < 10**30 for value in values)
    assert max(values) > 10**29


def test_a_single_draw_is_an_integer() -> None:
    assert sample_uniform(1) == 0
    assert isinstance(sample_uniform(10), int)


@pytest.mark.parametrize("bound", [0, -1, 1.5, "3", True, [3, 0]])
def test_a_bound_is_a_positive_integer(bound) -> None:
    with pytest.raises(InvalidRequest):
        sample_uniform(bound, None)


def test_a_size_that_contradicts_the_bounds_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        sample_uniform([1, 2], 3)
