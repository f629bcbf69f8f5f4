import math
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.law_fit import fits

from expost.noise import SeededBits
from expost.noise import selection_mechanism as choice_module
from expost.noise.selection_mechanism import choose_index

GAPS, WEIGHTS = np.array([3, 0, 1, 8, 0]), np.array([1, 2, 0, 5, 3])


def law(gaps, rate, weights=None):
    masses = np.exp(-rate * gaps) * (1 if weights is None else weights)
    return dict(enumerate(masses / masses.sum()))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_indices_follow_weights_times_exponentials(weights):
    picks = choose_index(GAPS, Fraction(2, 5), 100_000, bits=SeededBits(1), weights=weights).tolist()

    assert fits(picks, law(GAPS, 0.4, weights))
    assert not fits(picks, law(GAPS, 0.44, weights))
    assert not fits(picks, law(GAPS, 0.36, weights))


def test_a_candidate_of_no_weight_is_never_picked():
    picks = choose_index(GAPS, Fraction(1, 100), 50_000, bits=SeededBits(1), weights=WEIGHTS)

    assert 2 not in picks


def test_the_exact_arithmetic_agrees_with_the_floats_wherever_they_are_sure(monkeypatch):
    floats = choose_index(GAPS, Fraction(2, 5), 300, bits=SeededBits(9))
    monkeypatch.setattr(choice_module, "_EXP_ERROR", 1e9)  # doubt everything
    exact = choose_index(GAPS, Fraction(2, 5), 300, bits=SeededBits(9))

    assert floats.tolist() == exact.tolist()


def test_gaps_far_beyond_the_reach_of_floats_are_fine():
    gaps = np.array([10**30, 0, 10**18], dtype=object)

    assert set(choose_index(gaps, Fraction(1), 1000, bits=SeededBits(1)).tolist()) == {1}


def test_many_candidates_are_as_likely_as_they_should_be():
    picks = choose_index(np.zeros(5000, int), Fraction(1), 100_000, bits=SeededBits(4))

    assert abs(picks.mean() - 2499.5) < 6 * 5000 / math.sqrt(12 * 100_000)
