from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Adjacency, InvalidRequest, SealBroken
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats.hypothesis.groups import GroupTotals, column_bounds, group_bounds, samples_of
from expost.stats.hypothesis.shares import Shares


def test_totals_are_sealed():
    totals = GroupTotals.of_arrays([np.arange(4.0), np.arange(3.0)], (0, 10))

    with pytest.raises(SealBroken):
        float(totals.sums)
    assert "sealed" in repr(totals.sums)


def test_with_hardly_any_noise_the_totals_are_those_of_the_clipped_values():
    groups = [np.array([-5.0, 2.0, 4.0, np.nan]), np.array([10.0, 99.0, 5.0])]

    noisy = GroupTotals.of_arrays(groups, (0, 10)).release(
        Shares(Fraction(10**6), Fraction(10**6), Fraction(800)), public_sizes=None, bits=SeededBits(1)
    )

    np.testing.assert_allclose(noisy.sizes, [4, 3])
    np.testing.assert_allclose(noisy.sums, [-0.5 - 0.3 - 0.1 + 0, 0.5 + 0.5 + 0], atol=1e-4)
    np.testing.assert_allclose(noisy.squares, [0.25 + 0.09 + 0.01, 0.25 + 0.25], atol=1e-5)
    np.testing.assert_allclose(noisy.numbers, np.concatenate([noisy.sums, noisy.sizes, noisy.squares]))


def test_groups_that_share_their_spread_release_one_total_of_squares():
    groups = [np.array([0.0, 4.0]), np.array([10.0, 5.0])]

    noisy = GroupTotals.of_arrays(groups, (0, 10)).release(
        Shares(Fraction(10**6), Fraction(10**6), None, equal_spread=True), public_sizes=[2, 2], bits=SeededBits(1)
    )

    assert noisy.squares == pytest.approx(0.25 + 0.01 + 0.25, abs=1e-5)
    assert noisy.numbers.shape == (5,)


def test_replacing_a_row_moves_the_totals_by_at_most_the_declared_sensitivity():
    bounds, shares = (0.0, 1.0), Shares(Fraction(10**6), Fraction(10**6), Fraction(800))

    def released(groups):
        return GroupTotals.of_arrays(groups, bounds).release(shares, public_sizes=None, bits=SeededBits(1))

    here = released([np.array([0.0, 0.4]), np.array([0.2, 0.9])])
    there = released([np.array([0.4]), np.array([0.2, 0.9, 1.0])])

    # The worst replacement: a value at one bound leaves its group and enters the other at the other bound.
    assert np.abs(here.sums - there.sums).sum() == pytest.approx(1.0, abs=1e-4)
    assert np.abs(here.sizes - there.sizes).sum() == 2
    assert np.abs(here.squares - there.squares).sum() == pytest.approx(0.5, abs=1e-4)


def test_adding_a_row_moves_the_totals_by_at_most_the_declared_sensitivity():
    relation = Adjacency.ADD_REMOVE
    shares = Shares(Fraction(10**6), Fraction(10**6), Fraction(800), relation)

    def released(groups):
        return GroupTotals.of_arrays(groups, (0.0, 1.0), relation).release(
            shares, public_sizes=None, bits=SeededBits(1)
        )

    here = released([np.array([0.0, 0.4]), np.array([0.2, 0.9])])
    there = released([np.array([0.0, 0.4]), np.array([0.2, 0.9, 1.0])])

    assert np.abs(here.sums - there.sums).sum() == pytest.approx(0.5, abs=1e-4)
    assert np.abs(here.sizes - there.sizes).sum() == 1
    assert np.abs(here.squares - there.squares).sum() == pytest.approx(0.25, abs=1e-4)
    totals = GroupTotals.of_arrays([np.array([0.0])], (0.0, 1.0), relation)
    assert [float(each.sensitivity.amount) for each in (totals.sums, totals.sizes)] == [(1 << 20) / 2, 1.0]


@pytest.mark.parametrize(
    ("adjacency", "fixed", "moved"),
    [
        (Adjacency.REPLACE_ONE, False, 2),
        (Adjacency.REPLACE_ONE, True, 1),
        (Adjacency.ADD_REMOVE, False, 1),
    ],
)
def test_squares_by_group_move_twice_as_far_where_a_row_can_leave_one_group_for_another(adjacency, fixed, moved):
    totals = GroupTotals(*np.zeros((3, 2), np.int64), adjacency, fixed=fixed)
    shares = Shares(Fraction(1), Fraction(1), None if fixed else Fraction(1), adjacency)

    largest = (1 << 38) >> 14
    assert totals.group_squares.sensitivity.amount == moved * largest
    assert totals.squares.sensitivity.amount == largest
    # The reference knows the same noise: squares are released in units of four times the largest.
    assert shares.square_scale == float(totals.group_squares.sensitivity.amount) / (4 * largest)


def test_squares_are_never_less_than_those_of_the_summed_values():
    """A narrow column off centre: rounding squares and sums differently would make its variance negative."""
    for centre in (0.2935, 0.6171, 0.01):
        x = centre + 1e-6 * np.sin(np.arange(1000.0))
        noisy = GroupTotals.of_arrays([x, x], (0, 1)).release(
            Shares(Fraction(10**9), Fraction(10**9), None), public_sizes=[1000, 1000], bits=SeededBits(1)
        )

        assert (noisy.squares >= noisy.sums**2 / noisy.sizes).all()


def test_a_dataset_gives_the_same_totals_as_its_arrays():
    table = pa.table({"x": [1.0, 2.0, None, 50.0, 3.0], "g": ["a", "b", "a", "b", "other"]})
    dataset = Dataset(table, adjacency="replace-one", rows=5, bounds={"x": (0, 10)})
    shares = Shares(Fraction(10**6), Fraction(10**6), Fraction(800))

    from_dataset = GroupTotals.of_dataset(dataset, "x", "g", ("a", "b"), (0.0, 10.0))
    from_arrays = GroupTotals.of_arrays([np.array([1.0, np.nan]), np.array([2.0, 50.0])], (0, 10))

    first = from_dataset.release(shares, public_sizes=None, bits=SeededBits(2))
    second = from_arrays.release(shares, public_sizes=None, bits=SeededBits(2))
    np.testing.assert_array_equal(first.sums, second.sums)
    np.testing.assert_array_equal(first.sizes, second.sizes)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, float("inf")), "ab c", (1,)])
def test_bounds_must_be_an_interval(bounds):
    with pytest.raises(InvalidRequest):
        group_bounds(bounds)


def test_a_column_needs_public_bounds():
    table = pa.table({"x": [1.0], "g": ["a"]})
    dataset = Dataset(table, adjacency="replace-one", rows=1)

    with pytest.raises(InvalidRequest, match="public bounds"):
        column_bounds(dataset, "x")
    with pytest.raises(InvalidRequest, match="numeric"):
        column_bounds(dataset, "g")


def test_a_sample_of_one_value_is_refused():
    with pytest.raises(InvalidRequest, match="at least 2 each"):
        samples_of([np.array([1.0]), np.array([1.0, 2.0])])
