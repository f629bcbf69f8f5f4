import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import Adjacency, InvalidRequest, PureLoss, Sealed, Sensitivity
from expost.noise import LatticeBounds, SeededBits, SmoothInterquartileRange, SmoothQuantile, SmoothVariance

REPLACE, ADD = Sensitivity(1, adjacency=Adjacency.REPLACE_ONE), Sensitivity(1)
AGES = np.repeat(np.arange(20, 60), 100)
RANGE = LatticeBounds(0, 120)


@pytest.mark.parametrize("sensitivity", [REPLACE, ADD], ids=["replace", "add"])
def test_a_crowded_median_is_sharp(sensitivity):
    runs = SmoothQuantile(1, RANGE).simulate(AGES, sensitivity, runs=2000, bits=SeededBits(1))

    assert np.median(np.abs(runs - 39)) <= 4


def test_the_probability_picks_the_quantile():
    runs = SmoothQuantile(2, RANGE, probability=0.9).simulate(AGES, REPLACE, runs=2000, bits=SeededBits(1))

    assert abs(np.median(runs) - 55) <= 1


def test_the_interquartile_range_is_near_the_truth():
    runs = SmoothInterquartileRange(2, RANGE).simulate(AGES, REPLACE, runs=2000, bits=SeededBits(1))

    assert abs(np.median(runs) - 20) <= 2
    assert runs.min() >= 0


def test_a_hole_makes_the_noise_large():
    hole = np.repeat([0, 120], 2000)
    crowded, torn = (
        SmoothQuantile(1, RANGE).simulate(data, REPLACE, runs=2000, bits=SeededBits(1)) for data in (AGES, hole)
    )

    assert np.std(torn) > 5 * np.std(crowded)


def variance_of(records):
    records = np.asarray(records)
    return len(records) * int((records**2).sum()) - int(records.sum()) ** 2


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 10), min_size=2, max_size=12),
    st.integers(0, 10),
    st.integers(0, 100),
    st.sampled_from([0.05, 0.3]),
)
def test_the_bound_of_the_variance_covers_a_move_and_changes_slowly(records, value, place, epsilon):
    statistic = SmoothVariance(epsilon, LatticeBounds(0, 10))
    moved = list(records)
    moved[place % len(records)] = value
    left, right = (statistic._smooth_bound(len(side), float(np.mean(side)), 1) for side in (records, moved))

    assert abs(variance_of(records) - variance_of(moved)) <= left * (1 + 1e-9)
    assert abs(math.log(left / right)) <= statistic.noise.smoothness + 1e-9


def test_the_variance_is_near_the_truth_for_many_records():
    records = np.tile([400, 500, 600], 3000)
    runs = SmoothVariance(5, LatticeBounds(0, 1000)).simulate(records, REPLACE, runs=2000, bits=SeededBits(1))

    assert np.median(runs) / 9000**2 == pytest.approx(np.var(records), rel=0.02)


def test_the_variance_wants_a_public_number_of_records():
    for sensitivity, records in ((ADD, [1, 2, 3]), (REPLACE, [1])):
        with pytest.raises(InvalidRequest, match="replace-one"):
            SmoothVariance(1, LatticeBounds(0, 10)).release(Sealed(records, sensitivity))


def test_the_variance_refuses_what_floats_cannot_hold():
    with pytest.raises(InvalidRequest, match="coarser grid"):
        SmoothVariance(1, LatticeBounds(0, 1 << 40)).release(Sealed([1, 2], REPLACE))


@pytest.mark.parametrize("kind", [SmoothQuantile, SmoothInterquartileRange, SmoothVariance])
def test_the_bill_is_the_epsilon_asked_for(kind):
    statistic = kind(0.5, RANGE)

    assert statistic.loss == PureLoss(0.5)
    assert statistic.guarantee == PureLoss(0.5).promise()
    assert isinstance(statistic.release(Sealed(AGES, REPLACE), bits=SeededBits(1)), int)
