import math
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.law_fit import fits
from tests.unit.noise.missed_best import seldom_missed

from expost.audit.noise_laws import choice_law
from expost.core import InvalidRequest, Norm, PureLoss, Sealed, Sensitivity
from expost.noise import ExponentialMechanism, SeededBits

SCORES = [7, 3, 6, 7]


def picks(level, amount=2, *, monotone=False):
    mechanism = ExponentialMechanism(level, monotone=monotone)
    return mechanism.simulate(SCORES, Sensitivity(amount, Norm.LINF), runs=100_000, bits=SeededBits(1)).tolist()


@pytest.mark.parametrize(("monotone", "decay"), [(False, math.exp(-1 / 4)), (True, math.exp(-1 / 2))])
def test_picks_follow_the_law_of_the_definition(monotone, decay):
    law = choice_law([0, 4, 1, 0], decay)

    assert fits(picks(1, monotone=monotone), law)
    assert not fits(picks(0.9, monotone=monotone), law)
    assert not fits(picks(1.1, monotone=monotone), law)


def test_the_exact_law_keeps_the_promise_for_all_moves_of_small_scores():
    a = Fraction(1, 2)
    for moves in np.ndindex(3, 3, 3):
        scores = [2 + move - 1 for move in moves]
        laws = [choice_law([max(side) - score for score in side], a) for side in ([2, 2, 2], scores)]
        assert all(laws[0][i] <= a**-2 * laws[1][i] for i in range(3))


def test_the_best_score_is_rarely_missed_by_more_than_the_shortfall():
    assert seldom_missed(ExponentialMechanism(0.5), np.arange(200), runs=20_000)


def test_one_release_is_an_index_and_costs_epsilon():
    mechanism = ExponentialMechanism(0.25)

    assert mechanism.release(Sealed([0, 999], Sensitivity(1, Norm.LINF)), bits=SeededBits(1)) == 1
    assert mechanism.loss == PureLoss(Fraction(1, 4))


def test_floats_as_scores_are_refused():
    with pytest.raises(InvalidRequest):
        ExponentialMechanism(1).release(Sealed([0.5, 1.0], Sensitivity(1, Norm.LINF)))
