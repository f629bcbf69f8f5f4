import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import Adjacency, Sensitivity
from expost.noise.exponential_quantile import LatticeBounds, SortedRecords
from expost.noise.smooth_sensitivity import smooth_quantile_bound

BOUNDS = LatticeBounds(0, 6)
SHARES = [0.5, 0.25, 0.9]


def bound_and_quantile(records, share, smoothness, sensitivity):
    data = SortedRecords.read(np.array(records, dtype=int), BOUNDS)
    rank = math.ceil(share * len(data))
    return smooth_quantile_bound(data, rank, smoothness, sensitivity), int(data.at(np.array([rank]))[0])


def neighbours(records, adjacency, group):
    if adjacency is Adjacency.REPLACE_ONE:
        for places in itertools.combinations(range(len(records)), min(group, len(records))):
            for values in itertools.product((0, 3, 6), repeat=len(places)):
                changed = list(records)
                for place, value in zip(places, values, strict=True):
                    changed[place] = value
                yield changed
        return
    for count in range(1, group + 1):
        for values in itertools.product((0, 3, 6), repeat=count):
            yield [*records, *values]
        for places in itertools.combinations(range(len(records)), min(count, len(records))):
            yield [value for index, value in enumerate(records) if index not in places]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=0, max_size=7),
    st.sampled_from(list(Adjacency)),
    st.sampled_from([1, 2]),
    st.sampled_from(SHARES),
    st.sampled_from([0.1, 0.5, 2.0]),
)
def test_the_bound_covers_every_neighbour_and_changes_slowly(records, adjacency, group, share, smoothness):
    sensitivity = Sensitivity(group, adjacency=adjacency)
    bound, quantile = bound_and_quantile(records, share, smoothness, sensitivity)
    for other in neighbours(records, adjacency, group):
        other_bound, other_quantile = bound_and_quantile(other, share, smoothness, sensitivity)
        assert abs(quantile - other_quantile) <= bound * (1 + 1e-12)
        assert bound <= math.exp(smoothness) * other_bound * (1 + 1e-12)
        assert other_bound <= math.exp(smoothness) * bound * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.sampled_from([0.05, 0.4]))
def test_halving_the_rows_finds_the_same_maximum_as_looking_at_all_pairs(records, smoothness):
    data = SortedRecords.read(records, LatticeBounds(0, 1000))
    rank, reach = data.rank(0.5), len(data) + 1
    every = max(
        math.exp(-smoothness * (i + j)) * int(data.at(np.array([rank + j]))[0] - data.at(np.array([rank - i]))[0])
        for i in range(reach + 1)
        for j in range(reach + 1)
    )
    found = smooth_quantile_bound(data, rank, smoothness, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))

    assert found == pytest.approx(math.exp(smoothness) * every, rel=1e-12)


def test_for_one_record_a_unit_it_is_the_smooth_sensitivity_of_the_median():
    """Compared with the definition: the largest discounted local sensitivity over all tables of three records."""
    tables = list(itertools.combinations_with_replacement(range(7), 3))

    def median(table):
        return sorted(table)[1]

    def distance(left, right):
        rest = list(right)
        for value in left:
            if value in rest:
                rest.remove(value)
        return len(rest)

    local = {
        table: max(abs(median(table) - median(other)) for other in tables if distance(table, other) <= 1)
        for table in tables
    }
    sensitivity = Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)
    for table in tables[::5]:
        definition = max(math.exp(-0.5 * distance(table, other)) * local[other] for other in tables)
        assert bound_and_quantile(table, 0.5, 0.5, sensitivity)[0] == pytest.approx(definition)


def test_a_million_crowded_records_have_a_tiny_bound():
    records = SortedRecords.read(np.arange(1_000_000) // 3, LatticeBounds(0, 10**6))
    bound = smooth_quantile_bound(records, 500_000, 0.1, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))

    assert 1 <= bound < 20
