import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis.reference_law import (
    bound_noise_sum,
    bound_table_size,
    noisy_normal_quantile,
    noisy_normal_tail,
    sample_binomials,
    sample_laplaces,
    sample_multinomials,
    sample_normals,
    sample_uniforms,
)


@pytest.mark.parametrize(
    ("draw", "law"), [(sample_uniforms, "uniform"), (sample_normals, "norm"), (sample_laplaces, "laplace")]
)
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_draws_follow_their_law_and_no_other(draw, law, factor):
    drawn = draw((100_000,), SeededBits(1)) * factor

    assert (stats.kstest(drawn, law).pvalue > 1e-6) == (factor == 1.0)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("chance", [0.001, 0.3, 0.97])
def test_binomials_follow_their_law(chance, one_by_one):
    drawn = sample_binomials(np.full(50_000, 20), np.full(50_000, chance) if one_by_one else chance, SeededBits(2))
    expected = stats.binom.pmf(np.arange(21), 20, chance) * 50_000
    seen = np.bincount(drawn.astype(int), minlength=21)
    common = expected > 20

    distance = ((seen - expected)[common] ** 2 / expected[common]).sum()

    assert stats.chi2.sf(distance, common.sum()) > 1e-6


def test_certain_and_impossible_events():
    assert sample_binomials(np.array([0, 5, 5]), np.array([0.5, 0.0, 1.0])).tolist() == [0, 0, 5]


def test_multinomials_have_the_right_means_and_covariances():
    law = np.array([0.5, 0.3, 0.2])
    drawn = sample_multinomials(30, law, 40_000, SeededBits(3))

    np.testing.assert_allclose(drawn.mean(0), 30 * law, atol=0.08)
    np.testing.assert_allclose(np.cov(drawn.T), 30 * (np.diag(law) - np.outer(law, law)), atol=0.2)


def test_looking_binomials_up_gives_what_inverting_them_gives():
    trials = np.tile([0, 1, 7, 300, 4000], 2000)

    for chance in (0.0005, 0.2, 0.5, 0.999):
        np.testing.assert_array_equal(
            sample_binomials(trials, chance, SeededBits(4)),
            sample_binomials(trials, np.full(trials.shape, chance), SeededBits(4)),
        )


@pytest.mark.parametrize("deviation", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("at", [-3.0, 0.0, 0.7, 12.0])
def test_the_tail_with_one_laplace_part_is_the_convolution(at, deviation):
    def integrand(z):
        return stats.laplace.pdf(z, scale=2.0) * stats.norm.sf(at - z, scale=deviation)

    pieces = np.unique([-80.0, min(at, 0.0), 0.0, max(at, 0.0), at - 4 * deviation, at + 4 * deviation, 80.0])
    pieces = pieces[(pieces >= -80) & (pieces <= 80)]
    exact = sum(integrate.quad(integrand, a, b, limit=200)[0] for a, b in itertools.pairwise(pieces))

    assert noisy_normal_tail(at, deviation, [2.0]) == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_two_different_scales_are_the_sum_of_two_laplace_numbers():
    rng = np.random.default_rng(0)
    drawn = rng.normal(0, 1, 2_000_000) + rng.laplace(0, 3, 2_000_000) + rng.laplace(0, 0.5, 2_000_000)

    for at in (0.5, 4.0, 10.0):
        assert noisy_normal_tail(at, 1.0, [3.0, 0.5]) == pytest.approx((drawn > at).mean(), abs=0.0015)


def test_equal_scales_are_widened_a_little_and_never_narrowed():
    # Two Laplace numbers of scale 1 exceed t with probability (2 + t) exp(-t) / 4.
    for at in (0.5, 2.0, 8.0):
        exact = (2 + at) * np.exp(-at) / 4

        assert exact <= noisy_normal_tail(at, 0.0, [1.0, 1.0]) <= 1.03 * exact


def test_without_noise_it_is_the_normal_law():
    assert noisy_normal_tail(1.959964, 1.0, []) == pytest.approx(0.025, abs=1e-7)
    assert noisy_normal_quantile(0.025, 2.0, []) == pytest.approx(2 * 1.959964, abs=1e-5)


def test_the_quantile_is_on_the_safe_side():
    at = noisy_normal_quantile(0.01, 1.0, [2.0, 2.0])

    assert noisy_normal_tail(at, 1.0, [2.0, 2.0]) <= 0.01 < noisy_normal_tail(at * 0.9999, 1.0, [2.0, 2.0])


@pytest.mark.parametrize("cells", [1, 2, 9])
@pytest.mark.parametrize("scale", [1, 30])
def test_a_sum_of_noises_stays_within_its_reach(cells, scale):
    sums = np.abs(sample_laplace(scale, (200_000, cells), bits=SeededBits(1)).sum(1))

    reach = bound_noise_sum(cells, scale, failure_probability=0.01)

    assert (sums > reach).mean() <= 0.01
    assert (sums > reach / 2).mean() > 0.01  # half the reach would not do


def test_possible_sizes_are_never_negative():
    assert bound_table_size(-500.0, 2, 10.0) == (0, 0)
    low, high = bound_table_size(50.0, 4, 10.0)
    assert low == 0 < high
