import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from expost.stats.hypothesis.reference import noisy_normal_quantile, noisy_normal_tail


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
