import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.law_fit import fits
from tests.unit.noise.missed_best import seldom_missed

from expost.audit.noise_laws import laplace_mass, noisy_max_law
from expost.core import Norm, PureLoss, Sealed, Sensitivity
from expost.noise import NoisyMax, SeededBits

SCORES = [7, 3, 6, 7]


def picks(level, *, monotone=False):
    mechanism = NoisyMax(level, monotone=monotone)
    return mechanism.simulate(SCORES, Sensitivity(2, Norm.LINF), runs=100_000, bits=SeededBits(1)).tolist()


@pytest.mark.parametrize(("monotone", "decay"), [(False, math.exp(-1 / 4)), (True, math.exp(-1 / 2))])
def test_picks_follow_the_law_of_the_definition(monotone, decay):
    law = noisy_max_law(SCORES, decay, 150)

    assert fits(picks(1, monotone=monotone), law)
    assert not fits(picks(0.85, monotone=monotone), law)
    assert not fits(picks(1.15, monotone=monotone), law)


def test_the_law_agrees_with_summing_over_all_noises():
    a, reach = Fraction(1, 5), 9
    scores, law = (1, 0, 0), dict.fromkeys(range(3), Fraction(0))
    for noise in itertools.product(range(-reach, reach + 1), repeat=3):
        noisy = [score + each for score, each in zip(scores, noise, strict=True)]
        best = [i for i in range(3) if noisy[i] == max(noisy)]
        for index in best:
            law[index] += math.prod(laplace_mass(a, each) for each in noise) / len(best)

    for index, p in noisy_max_law(scores, a, 40).items():
        assert abs(law[index] - p) < 4 * a**reach


def test_the_exact_law_keeps_the_promise_for_all_moves_of_small_scores():
    a, window = Fraction(1, 2), 50
    laws = {scores: noisy_max_law(scores, a, window) for scores in itertools.product(range(2), repeat=3)}
    for left, right in itertools.product(laws, repeat=2):
        moves = [y - x for x, y in zip(left, right, strict=True)]
        together = min(moves) >= 0 or max(moves) <= 0
        limit = (1 / a if together else a**-2) * (1 + Fraction(1, 10**9))
        assert all(laws[left][i] <= limit * laws[right][i] for i in range(3))


def test_the_best_score_is_rarely_missed_by_more_than_the_shortfall():
    assert seldom_missed(NoisyMax(0.5), np.r_[100, np.full(199, 60)], runs=10_000)


def test_one_release_is_an_index_and_costs_epsilon():
    mechanism = NoisyMax(0.25)

    assert mechanism.release(Sealed([0, 999], Sensitivity(1, Norm.LINF)), bits=SeededBits(1)) == 1
    assert mechanism.loss == PureLoss(Fraction(1, 4))
