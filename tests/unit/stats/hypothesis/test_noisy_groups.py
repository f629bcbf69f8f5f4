from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate
from tests.unit.stats.hypothesis.simulated_groups import simulated

from expost.core import Adjacency
from expost.stats.hypothesis.noisy_groups import UNSEEN, NoisyGroups
from expost.stats.hypothesis.shares import NUISANCE, SPREAD_LOG, Shares

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
    own = groups.squares - groups._centring[0]
    missed = (exact > own + SPREAD_LOG * groups._within_noise).mean(0)
    assert (groups._within >= own).all()

    assert (missed <= NUISANCE + 4 * np.sqrt(NUISANCE / 20_000)).all()
    assert (missed >= NUISANCE / 20).all()  # nor is it far too wide


def test_the_variance_of_means_is_at_most_that_of_values_at_the_bounds():
    shares = Shares.of(Fraction(1, 10), rows=200, public_sizes=(100, 100))
    groups = NoisyGroups.of([0.0, 0.0], [100, 100], [1e6, 1e6], shares)

    np.testing.assert_allclose(groups.mean_variances, 0.25 / 100)


def test_a_group_whose_squares_say_nothing_is_taken_at_its_widest():
    shares = Shares.of(Fraction(1), rows=1010, public_sizes=(1000, 10))
    groups = NoisyGroups.of([0.0, 0.0], [1000, 10], [10.0, -5.0], shares)

    first, second = groups.mean_variances
    assert second == 0.25 / 10
    assert 10 / 1000**2 < first < 0.25 / 1000


def test_squares_under_negative_noise_leave_a_spread():
    shares = Shares.of(Fraction(5), rows=2000, public_sizes=(1000, 1000))
    groups = NoisyGroups.of([0.0, 0.0], [1000, 1000], [-4.0, -4.0], shares)

    least = SPREAD_LOG * shares.square_scale / 1000**2
    assert groups.mean_variances.sum() >= least


def test_at_hardly_any_noise_the_variance_is_welchs_with_students_factor():
    x, y = RNG.normal(0.0, 0.15, 100), RNG.normal(0.0, 0.2, 80)
    shares = Shares(Fraction(10**6), Fraction(10**6), None)
    totals = [[v.sum() for v in (x, y)], [100, 80], [(v**2).sum() for v in (x, y)]]

    found = NoisyGroups.of(*totals, shares).mean_variances.sum()

    welch = x.var(ddof=1) / 100 + y.var(ddof=1) / 80
    assert 1.0 < found / welch < 1.25


def test_rows_that_are_all_alike_are_not_taken_for_certain():
    shares = Shares(Fraction(10**6), Fraction(10**6), None)

    found = NoisyGroups.of([-50.0, 0.0], [100, 10_000], [25.0, 0.0], shares).mean_variances

    assert found[0] >= UNSEEN / 100**2  # the far end of the bounds is one width away
    assert found[1] >= UNSEEN / 4 / 10_000**2
