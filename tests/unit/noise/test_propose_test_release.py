import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.noise.law_fit import fits

from expost.audit.noise_laws import laplace_law, laplace_reach, proposed_law
from expost.core import Adjacency, ApproxLoss, InvalidRequest, Sealed, Sensitivity
from expost.noise import LatticeBounds, ProposedQuantile, SeededBits, StableMode
from expost.noise.exponential_quantile import SortedRecords
from expost.noise.propose_test_release import passing_line

ADD, REPLACE = Sensitivity(1), Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("epsilon", [0.05, 1, 4])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_the_line_is_the_smallest_that_noise_alone_rarely_passes(epsilon, delta):
    line, a = passing_line(Fraction(epsilon).limit_denominator(100), Fraction(delta)), math.exp(-epsilon)

    assert laplace_reach(a, line + 1) <= delta
    assert line == 0 or laplace_reach(a, line) > delta


@pytest.mark.parametrize(("counts", "distance"), [([10, 12], 1), ([10, 18], 7), ([10, 10], 0)])
def test_the_mode_follows_the_law_of_the_definition(counts, distance):
    mode = StableMode(1, 0.05)
    line = passing_line(mode.epsilon, mode.delta)
    seen = mode.simulate(counts, ADD, runs=60_000, bits=SeededBits(1)).tolist()
    law = proposed_law(distance, line, math.exp(-1), {int(np.argmax(counts)): 1.0})

    assert fits([None if answer < 0 else answer for answer in seen], law)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=4), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_the_distance_of_the_mode_is_sound(counts, gain, lose, replace):
    """One unit moves it by at most one, and where it is positive no neighbour has another mode."""
    size = len(counts)
    other = list(counts)
    other[gain % size] += 1
    if replace:
        other[lose % size] -= 1
    sensitivity = Sensitivity(2, adjacency=Adjacency.REPLACE_ONE) if replace else ADD
    mode = StableMode(1, 0.1)
    left, right = (mode._count_units(np.array(side), sensitivity) for side in (counts, other))

    assert abs(left - right) <= 1
    if max(left, right) > 0:
        assert np.argmax(counts) == np.argmax(other)


def test_a_clear_lead_is_named_and_a_tie_is_not():
    mode = StableMode(1, 1e-6)
    lead = mode.needed_lead(ADD, 0.01)
    named = mode.simulate([100, 100 + lead], ADD, runs=20_000, bits=SeededBits(1))

    assert np.mean(named == 1) >= 0.99
    assert mode.release(Sealed([50, 50], ADD), bits=SeededBits(1)) is None


def neighbours(records, replace):
    if replace:
        for place, value in itertools.product(range(len(records)), (0, 4, 8)):
            yield [*records[:place], value, *records[place + 1 :]]
        return
    for value in (0, 4, 8):
        yield [*records, value]
    for place in range(len(records)):
        yield [*records[:place], *records[place + 1 :]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=9), st.booleans(), st.sampled_from([1, 2, 5, 8, 20]))
def test_the_distance_of_the_quantile_is_sound(records, replace, proposal):
    sensitivity = REPLACE if replace else ADD
    quantile = ProposedQuantile(1, 0.1, LatticeBounds(0, 8), proposal=proposal)

    def distance_and_value(side):
        data = SortedRecords.read(np.array(side, dtype=int), LatticeBounds(0, 8))
        rank = data.rank(Fraction(1, 2))
        return quantile._count_units(data, rank, sensitivity), int(data.at(np.array([rank]))[0])

    distance, value = distance_and_value(records)
    for other in neighbours(records, replace):
        other_distance, other_value = distance_and_value(other)
        assert abs(distance - other_distance) <= 1
        assert distance == 0 or abs(value - other_value) <= proposal


def test_the_quantile_follows_the_law_of_the_definition():
    quantile = ProposedQuantile(2, 0.05, LatticeBounds(0, 20), proposal=2)
    records = [10] * 9
    passed, values = quantile.simulate(records, REPLACE, runs=60_000, bits=SeededBits(1))
    line = passing_line(Fraction(1), quantile.delta)
    law = proposed_law(4, line, math.exp(-1), laplace_law(10, math.exp(-1 / 2), (0, 20)))

    assert fits([int(v) if ok else None for ok, v in zip(passed, values, strict=True)], law)


def test_dense_records_are_answered_within_the_half_width():
    quantile = ProposedQuantile(2, 1e-6, LatticeBounds(0, 1000), proposal=3)
    records = np.repeat(np.arange(400, 600), 20)
    passed, values = quantile.simulate(records, ADD, runs=5000, bits=SeededBits(1))

    assert passed.mean() > 0.99
    assert np.mean(np.abs(values - 499) > quantile.half_width(0.05)) <= 0.05


def test_a_hole_is_refused():
    torn = Sealed([0] * 50 + [1000] * 50, ADD)

    assert ProposedQuantile(1, 1e-9, LatticeBounds(0, 1000), proposal=10).release(torn, bits=SeededBits(1)) is None


def test_the_bill_is_what_was_asked_for_and_refusals_cost_the_same():
    assert StableMode(0.5, 1e-6).loss == ApproxLoss(Fraction(1, 2), Fraction(1, 10**6))
    assert ProposedQuantile(1, 1e-6, LatticeBounds(0, 9), proposal=1).loss == ApproxLoss(1, Fraction(1, 10**6))


@pytest.mark.parametrize("delta", [0, 1, -1])
def test_a_senseless_delta_is_refused(delta):
    with pytest.raises(InvalidRequest):
        StableMode(1, delta)


def test_senseless_inputs_are_refused():
    with pytest.raises(InvalidRequest):
        StableMode(1, 0.1).release(Sealed([3], ADD))
    with pytest.raises(InvalidRequest):
        ProposedQuantile(1, 0.1, LatticeBounds(0, 9), proposal=0)
