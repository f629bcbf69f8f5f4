"""Spherical Laplace noise has its lengths and no preferred direction; wrong scales must fail."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats
from tests.distribution.goodness import follows, notices_wrong_scales

from expost.accuracy.noise_norm import spherical_norm_quantile, spherical_variances
from expost.noise import SeededBits, sample_spherical_laplace

SCALE = Fraction(10**6, 7)


def length_cdf(dimension: int):
    variances, chances = spherical_variances(dimension)
    grid = np.linspace(0, 60, 700)  # in scales; between its points the law is as good as straight
    shares = special.gammainc(dimension / 2, grid[:, None] ** 2 / (2 * variances)) @ chances
    return lambda k: np.interp((np.floor(k) + 1) / float(SCALE), grid, shares, left=0.0, right=1.0)


def lengths(dimension: int, scale: Fraction, seed: int) -> np.ndarray:
    drawn = sample_spherical_laplace(scale, dimension, 20_000, bits=SeededBits(seed)).astype(float)
    return np.floor(np.linalg.norm(drawn, axis=1)).astype(np.int64)


@pytest.mark.parametrize("dimension", [2, 5])
def test_lengths_have_their_law(dimension: int) -> None:
    cdf = length_cdf(dimension)

    assert follows(lengths(dimension, SCALE, 1), cdf)
    assert notices_wrong_scales(lambda factor: lengths(dimension, SCALE * Fraction(factor), 2), cdf)


@pytest.mark.parametrize("dimension", [2, 3, 8])
def test_no_direction_is_preferred(dimension: int) -> None:
    drawn = sample_spherical_laplace(SCALE, dimension, 20_000, bits=SeededBits(3)).astype(float)
    along = np.random.default_rng(0).normal(size=dimension)
    cosines = drawn @ (along / np.linalg.norm(along)) / np.linalg.norm(drawn, axis=1)

    # A cosine c of a uniform direction: (1 + c) / 2 has a Beta law.
    half = (dimension - 1) / 2
    assert stats.kstest((1 + cosines) / 2, "beta", args=(half, half)).pvalue > 1e-4
    assert stats.kstest((1 + cosines) / 2, "beta", args=(1.1 * half, half)).pvalue < 1e-4


@pytest.mark.parametrize("dimension", [1, 6])
@pytest.mark.parametrize("failure", [0.3, 0.05])
def test_the_quantile_is_exceeded_as_often_as_it_says(dimension: int, failure: float) -> None:
    runs = 20_000
    drawn = sample_spherical_laplace(SCALE, dimension, runs, bits=SeededBits(4)).astype(float)
    reach = spherical_norm_quantile(dimension, failure) * float(SCALE)

    beyond = np.mean(np.linalg.norm(drawn, axis=1) > reach)

    assert abs(beyond - failure) < 4 * np.sqrt(failure * (1 - failure) / runs)


@pytest.mark.parametrize("dimension", [5, 38])
def test_the_noise_is_within_a_fifth_of_a_percent_of_the_ideal(dimension: int) -> None:
    ideal = stats.gamma.isf(0.1, dimension)

    assert ideal < spherical_norm_quantile(dimension, 0.1) < 1.002 * ideal
