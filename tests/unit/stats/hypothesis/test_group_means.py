from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate
from tests.unit.stats.hypothesis.simulated_groups import simulated

from expost.core import Adjacency, InvalidRequest, SealBroken
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats.hypothesis.group_means import NUISANCE, SPREAD_LOG, UNSEEN, GroupShares, GroupTotals, NoisyGroups
from expost.stats.hypothesis.hypothesis_input import read_bounds, read_column_bounds
from expost.stats.hypothesis.private_sample import read_samples


def test_totals_are_sealed():
    totals = GroupTotals.of_arrays([np.arange(4.0), np.arange(3.0)], (0, 10))

    with pytest.raises(SealBroken):
        float(totals.sums)
    assert "sealed" in repr(totals.sums)


def test_with_hardly_any_noise_the_totals_are_those_of_the_clipped_values():
    groups = [np.array([-5.0, 2.0, 4.0, np.nan]), np.array([10.0, 99.0, 5.0])]

    noisy = GroupTotals.of_arrays(groups, (0, 10)).release_groups(
        GroupShares(Fraction(10**6), Fraction(10**6), Fraction(800)), public_sizes=None, bits=SeededBits(1)
    )

    np.testing.assert_allclose(noisy.sizes, [4, 3])
    np.testing.assert_allclose(noisy.sums, [-0.5 - 0.3 - 0.1 + 0, 0.5 + 0.5 + 0], atol=1e-4)
    np.testing.assert_allclose(noisy.squares, [0.25 + 0.09 + 0.01, 0.25 + 0.25], atol=1e-5)
    np.testing.assert_allclose(noisy.numbers, np.concatenate([noisy.sums, noisy.sizes, noisy.squares]))


def test_groups_that_share_their_spread_release_one_total_of_squares():
    groups = [np.array([0.0, 4.0]), np.array([10.0, 5.0])]

    noisy = GroupTotals.of_arrays(groups, (0, 10)).release_groups(
        GroupShares(Fraction(10**6), Fraction(10**6), None, equal_spread=True), public_sizes=[2, 2], bits=SeededBits(1)
    )

    assert noisy.squares == pytest.approx(0.25 + 0.01 + 0.25, abs=1e-5)
    assert noisy.numbers.shape == (5,)


def test_replacing_a_row_moves_the_totals_by_at_most_the_declared_sensitivity():
    bounds, shares = (0.0, 1.0), GroupShares(Fraction(10**6), Fraction(10**6), Fraction(800))

    def released(groups):
        return GroupTotals.of_arrays(groups, bounds).release_groups(shares, public_sizes=None, bits=SeededBits(1))

    here = released([np.array([0.0, 0.4]), np.array([0.2, 0.9])])
    there = released([np.array([0.4]), np.array([0.2, 0.9, 1.0])])

    # The worst replacement: a value at one bound leaves its group and enters the other at the other bound.
    assert np.abs(here.sums - there.sums).sum() == pytest.approx(1.0, abs=1e-4)
    assert np.abs(here.sizes - there.sizes).sum() == 2
    assert np.abs(here.squares - there.squares).sum() == pytest.approx(0.5, abs=1e-4)


def test_adding_a_row_moves_the_totals_by_at_most_the_declared_sensitivity():
    relation = Adjacency.ADD_REMOVE
    shares = GroupShares(Fraction(10**6), Fraction(10**6), Fraction(800), relation)

    def released(groups):
        return GroupTotals.of_arrays(groups, (0.0, 1.0), relation).release_groups(
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
    shares = GroupShares(Fraction(1), Fraction(1), None if fixed else Fraction(1), adjacency)

    largest = (1 << 38) >> 14
    assert totals.group_squares.sensitivity.amount == moved * largest
    assert totals.squares.sensitivity.amount == largest
    # The reference knows the same noise: squares are released in units of four times the largest.
    assert shares.square_scale == float(totals.group_squares.sensitivity.amount) / (4 * largest)


def test_squares_are_never_less_than_those_of_the_summed_values():
    """A narrow column off centre: rounding squares and sums differently would make its variance negative."""
    for centre in (0.2935, 0.6171, 0.01):
        x = centre + 1e-6 * np.sin(np.arange(1000.0))
        noisy = GroupTotals.of_arrays([x, x], (0, 1)).release_groups(
            GroupShares(Fraction(10**9), Fraction(10**9), None), public_sizes=[1000, 1000], bits=SeededBits(1)
        )

        assert (noisy.squares >= noisy.sums**2 / noisy.sizes).all()


def test_a_dataset_gives_the_same_totals_as_its_arrays():
    table = pa.table({"x": [1.0, 2.0, None, 50.0, 3.0], "g": ["a", "b", "a", "b", "other"]})
    dataset = Dataset(table, adjacency="replace-one", rows=5, bounds={"x": (0, 10)})
    shares = GroupShares(Fraction(10**6), Fraction(10**6), Fraction(800))

    from_dataset = GroupTotals.of_dataset(dataset, "x", "g", ("a", "b"), (0.0, 10.0))
    from_arrays = GroupTotals.of_arrays([np.array([1.0, np.nan]), np.array([2.0, 50.0])], (0, 10))

    first = from_dataset.release_groups(shares, public_sizes=None, bits=SeededBits(2))
    second = from_arrays.release_groups(shares, public_sizes=None, bits=SeededBits(2))
    np.testing.assert_array_equal(first.sums, second.sums)
    np.testing.assert_array_equal(first.sizes, second.sizes)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, float("inf")), "ab c", (1,)])
def test_bounds_must_be_an_interval(bounds):
    with pytest.raises(InvalidRequest):
        read_bounds(bounds)


def test_a_column_needs_public_bounds():
    table = pa.table({"x": [1.0], "g": ["a"]})
    dataset = Dataset(table, adjacency="replace-one", rows=1)

    with pytest.raises(InvalidRequest, match="public bounds"):
        read_column_bounds(dataset, "x")
    with pytest.raises(InvalidRequest, match="numeric"):
        read_column_bounds(dataset, "g")


def test_a_sample_of_one_value_is_refused():
    with pytest.raises(InvalidRequest, match="at least 2 each"):
        read_samples([np.array([1.0]), np.array([1.0, 2.0])])


RNG = np.random.default_rng(21)


def laplace_sum_tail(at, scales):
    """P(sum of Laplace noises > at), from their characteristic function."""

    def integrand(t):
        return np.sinc(t * at / np.pi) * at * np.prod([1 / (1 + (scale * t) ** 2) for scale in scales])

    area = sum(integrate.quad(integrand, start, start + 4, limit=200)[0] for start in range(0, 160, 4))
    return 0.5 - area / np.pi


def test_the_tail_of_one_noise_is_known():
    assert laplace_sum_tail(SPREAD_LOG, [1.0]) == pytest.approx(NUISANCE, abs=2e-5)
    assert laplace_sum_tail(6.0, [1.0, 1.0]) == pytest.approx(8 * np.exp(-6) / 4, abs=2e-5)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_sum_of_noises_stays_below_the_bound_of_one_with_their_squared_scales(count):
    for _ in range(6):
        scales = RNG.random(count) ** 2
        scales /= np.sqrt((scales**2).sum())

        assert laplace_sum_tail(SPREAD_LOG, scales) <= NUISANCE + 2e-5


@pytest.mark.parametrize("shift", [0.0, 0.35])
@pytest.mark.parametrize(
    ("public_sizes", "adjacency"), [(True, "replace-one"), (False, "replace-one"), (False, "add-remove")]
)
def test_the_bound_on_squares_within_a_group_fails_as_seldom_as_said(public_sizes, adjacency, shift):
    groups, values = simulated(
        lambda shape: RNG.normal(0.5, 0.1, shape),
        (100, 200),
        "30",
        public_sizes=public_sizes,
        runs=20_000,
        shifts=(shift, shift),
        adjacency=Adjacency.parse(adjacency),
    )
    exact = np.stack([((value - value.mean(1, keepdims=True)) ** 2).sum(1) for value in values], axis=1)
    own = groups.squares - groups.centering[0]
    missed = (exact > own + SPREAD_LOG * groups.noise_within).mean(0)
    assert (groups.squares_within >= own).all()

    assert (missed <= NUISANCE + 4 * np.sqrt(NUISANCE / 20_000)).all()
    assert (missed >= NUISANCE / 20).all()  # nor is it far too wide


def test_the_variance_of_means_is_at_most_that_of_values_at_the_bounds():
    shares = GroupShares.for_groups(Fraction(1, 10), rows=200, public_sizes=(100, 100))
    groups = NoisyGroups.under_shares([0.0, 0.0], [100, 100], [1e6, 1e6], shares)

    np.testing.assert_allclose(groups.mean_variances, 0.25 / 100)


def test_a_group_whose_squares_say_nothing_is_taken_at_its_widest():
    shares = GroupShares.for_groups(Fraction(1), rows=1010, public_sizes=(1000, 10))
    groups = NoisyGroups.under_shares([0.0, 0.0], [1000, 10], [10.0, -5.0], shares)

    first, second = groups.mean_variances
    assert second == 0.25 / 10
    assert 10 / 1000**2 < first < 0.25 / 1000


def test_squares_under_negative_noise_leave_a_spread():
    shares = GroupShares.for_groups(Fraction(5), rows=2000, public_sizes=(1000, 1000))
    groups = NoisyGroups.under_shares([0.0, 0.0], [1000, 1000], [-4.0, -4.0], shares)

    least = SPREAD_LOG * shares.square_scale / 1000**2
    assert groups.mean_variances.sum() >= least


def test_at_hardly_any_noise_the_variance_is_welchs_with_students_factor():
    x, y = RNG.normal(0.0, 0.15, 100), RNG.normal(0.0, 0.2, 80)
    shares = GroupShares(Fraction(10**6), Fraction(10**6), None)
    totals = [[v.sum() for v in (x, y)], [100, 80], [(v**2).sum() for v in (x, y)]]

    found = NoisyGroups.under_shares(*totals, shares).mean_variances.sum()

    welch = x.var(ddof=1) / 100 + y.var(ddof=1) / 80
    assert 1.0 < found / welch < 1.25


def test_rows_that_are_all_alike_are_not_taken_for_certain():
    shares = GroupShares(Fraction(10**6), Fraction(10**6), None)

    found = NoisyGroups.under_shares([-50.0, 0.0], [100, 10_000], [25.0, 0.0], shares).mean_variances

    assert found[0] >= UNSEEN / 100**2  # the far end of the bounds is one width away
    assert found[1] >= UNSEEN / 4 / 10_000**2


@pytest.mark.parametrize("equal_spread", [True, False])
@pytest.mark.parametrize("sizes", [None, (10, 10)])
@pytest.mark.parametrize(("epsilon", "rows"), [("0.001", 20), ("0.3", 500), ("5", 10_000)])
def test_the_parts_add_up_to_epsilon(epsilon, rows, sizes, equal_spread):
    shares = GroupShares.for_groups(Fraction(epsilon), rows=rows, public_sizes=sizes, equal_spread=equal_spread)

    assert sum(shares.breakdown.values()) == Fraction(epsilon)
    assert (shares.sizes is None) == (sizes is not None)


def test_squares_that_cannot_say_anything_are_not_bought():
    assert GroupShares.for_groups(Fraction(1, 100), rows=100, public_sizes=(50, 50)).squares is None
    assert GroupShares.for_groups(Fraction(1, 100), rows=100, public_sizes=None).squares is None
    assert GroupShares.for_groups(Fraction(1), rows=1000, public_sizes=(500, 500)).squares is not None
    assert (
        GroupShares.for_groups(Fraction(1, 100), rows=None, public_sizes=None, adjacency=Adjacency.ADD_REMOVE).squares
        is not None
    )


def test_many_small_groups_say_something_only_together():
    terms = {"rows": 1000, "public_sizes": (10,) * 100}

    assert GroupShares.for_groups(Fraction(1), **terms).squares is None
    assert GroupShares.for_groups(Fraction(1), **terms, equal_spread=True).squares is not None
