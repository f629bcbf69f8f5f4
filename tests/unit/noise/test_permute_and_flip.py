import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.law_fit import fits
from tests.unit.noise.missed_best import seldom_missed

from expost.audit.noise_laws import choice_law, geometric_mass, permute_and_flip_law
from expost.core import Norm, PureGuarantee, Sealed, Sensitivity
from expost.noise import PermuteAndFlip, SeededBits

SCORES, GAPS = [7, 3, 6, 7], [0, 4, 1, 0]


def picks(level, *, monotone=False):
    mechanism = PermuteAndFlip(level, monotone=monotone)
    return mechanism.simulate(SCORES, Sensitivity(2, Norm.LINF), runs=100_000, bits=SeededBits(1)).tolist()


@pytest.mark.parametrize(("monotone", "decay"), [(False, math.exp(-1 / 4)), (True, math.exp(-1 / 2))])
def test_picks_follow_the_law_of_the_definition(monotone, decay):
    law = permute_and_flip_law(GAPS, decay)

    assert fits(picks(1, monotone=monotone), law)
    assert not fits(picks(0.9, monotone=monotone), law)
    assert not fits(picks(1.1, monotone=monotone), law)


def test_visiting_in_a_random_order_is_the_same_as_picking_among_all_heads():
    a, law = Fraction(1, 3), dict.fromkeys(range(3), Fraction(0))
    gaps = [0, 1, 2]
    for order in itertools.permutations(range(3)):
        alive = Fraction(1, 6)
        for candidate in order:
            law[candidate] += alive * a ** gaps[candidate]
            alive *= 1 - a ** gaps[candidate]

    assert law == permute_and_flip_law(gaps, a)


def test_noisy_max_with_one_sided_noise_and_fair_ties_has_the_same_law():
    a = Fraction(1, 4)
    scores, law = (2, 1, 0), dict.fromkeys(range(3), Fraction(0))
    for noise in itertools.product(range(12), repeat=3):
        noisy = [score + each for score, each in zip(scores, noise, strict=True)]
        weight = math.prod(geometric_mass(a, each) for each in noise)
        best = [i for i in range(3) if noisy[i] == max(noisy)]
        for index in best:
            law[index] += weight / len(best)

    for index, p in permute_and_flip_law([0, 1, 2], a).items():
        assert abs(law[index] - p) < 3 * a**12


def test_the_exact_law_keeps_the_promise_for_all_moves_of_small_scores():
    a = Fraction(1, 2)
    laws = {
        scores: permute_and_flip_law([max(scores) - score for score in scores], a)
        for scores in itertools.product(range(3), repeat=3)
    }
    for left, right in itertools.product(laws, repeat=2):
        moves = [y - x for x, y in zip(left, right, strict=True)]
        if max(map(abs, moves)) <= 1:
            together = min(moves) >= 0 or max(moves) <= 0
            limit = 1 / a if together else a**-2
            assert all(laws[left][i] <= limit * laws[right][i] for i in range(3))


def test_it_is_never_worse_than_the_exponential_mechanism():
    a = Fraction(1, 2)
    for gaps in itertools.product(range(4), repeat=3):
        if min(gaps) == 0:
            ours, theirs = (
                sum(gap * law[i] for i, gap in enumerate(gaps))
                for law in (permute_and_flip_law(gaps, a), choice_law(gaps, a))
            )
            assert ours <= theirs


def test_the_best_score_is_rarely_missed_by_more_than_the_shortfall():
    assert seldom_missed(PermuteAndFlip(0.5), np.r_[100, np.full(199, 70)], runs=20_000)


def test_one_release_is_an_index_and_costs_epsilon():
    mechanism = PermuteAndFlip(0.25)

    assert mechanism.release(Sealed([0, 999], Sensitivity(1, Norm.LINF)), bits=SeededBits(1)) == 1
    assert mechanism.guarantee == PureGuarantee(Fraction(1, 4))
