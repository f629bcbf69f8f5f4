import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.law_fit import fits

from expost.core import Adjacency, PureLoss, Sealed, Sensitivity
from expost.noise import ExponentialQuantile, LatticeBounds, SeededBits

ADD, REPLACE = Sensitivity(1), Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)
BOUNDS = LatticeBounds(-3, 6)


def distances(records, share):
    """From the definition, point by point, in units of 1 / denominator."""
    a, b, n = share.numerator, share.denominator, len(records)
    return {
        y: max(0, b * sum(x < y for x in records) - a * n, a * n - b * sum(x <= y for x in records))
        for y in range(BOUNDS.low, BOUNDS.high + 1)
    }


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(1, 4)])
@pytest.mark.parametrize("records", [[], [0], [2, 2, 2], [-3, 6, 5, 5], [-9, 40, 1]])
def test_answers_follow_the_law_of_the_definition(records, share):
    mechanism = ExponentialQuantile(1, BOUNDS, share)
    clamped = [min(max(x, -3), 6) for x in records]
    answers = mechanism.simulate(np.array(records, dtype=int), ADD, runs=60_000, bits=SeededBits(1)).tolist()
    weights = {y: math.exp(-float(mechanism.rate(ADD)) * d) for y, d in distances(clamped, share).items()}

    assert fits(answers, {y: w / sum(weights.values()) for y, w in weights.items()})


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(1, 3), Fraction(9, 10)])
def test_one_record_moves_a_distance_by_at_most_the_sensitivity_in_the_rate(share):
    mechanism = ExponentialQuantile(1, BOUNDS, share)
    for records in itertools.combinations_with_replacement(range(-3, 7, 3), 3):
        ours = distances(records, share)
        for value in (-3, 1, 6):
            for other, sensitivity in (([*records, value], ADD), ([*records[1:], value], REPLACE)):
                theirs = distances(other, share)
                moved = max(abs(ours[y] - theirs[y]) for y in ours)
                assert moved <= mechanism.epsilon / (2 * mechanism.rate(sensitivity))


def test_a_wide_range_costs_only_a_logarithm():
    wide = ExponentialQuantile(1, LatticeBounds(0, 1 << 40))
    records = np.arange(10_000) * 1000
    answers = wide.simulate(records, ADD, runs=2000, bits=SeededBits(1))
    ranks = np.abs(np.searchsorted(records, answers) - 5000)

    assert np.mean(ranks > wide.rank_error(ADD, 0.05)) <= 0.05


def test_units_with_several_records_divide_the_rate():
    mechanism = ExponentialQuantile(1, BOUNDS)

    assert mechanism.rate(Sensitivity(4)) == mechanism.rate(ADD) / 4
    assert mechanism.rate(REPLACE) == mechanism.rate(ADD) / 2


def test_one_release_is_an_integer_within_the_bounds():
    mechanism = ExponentialQuantile(1, BOUNDS)

    assert -3 <= mechanism.release(Sealed([1, 2, 3], ADD), bits=SeededBits(1)) <= 6
    assert mechanism.loss == PureLoss(1)
