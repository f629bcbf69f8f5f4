from fractions import Fraction

import numpy as np
import pytest

from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis.count_table import (
    NoisyTable,
    fit_statistic,
    independence_statistic,
    project_on_simplex,
    shape_statistic,
)
from expost.stats.hypothesis.reference_law import noise_variance


def test_the_fit_statistic_is_the_quadratic_form_it_claims_to_be():
    rng = np.random.default_rng(1)
    law, rows, scale = np.array([0.5, 0.3, 0.2]), 40, 3.0
    noisy = rng.multinomial(rows, law, size=5) + rng.integers(-5, 6, (5, 3))
    covariance = rows * (np.diag(law) - np.outer(law, law)) + noise_variance(scale) * np.eye(3)
    project = np.eye(3) - 1 / 3
    away = (noisy - rows * law) @ project

    expected = np.einsum("ri,ij,rj->r", away, np.linalg.inv(covariance), away)

    np.testing.assert_allclose(fit_statistic(noisy.astype(float), rows, law, scale), expected, rtol=1e-9)


@pytest.mark.parametrize("scale", [10, 2, Fraction(2, 3)])
def test_the_noise_variance_is_that_of_the_noise(scale):
    noise = sample_laplace(scale, 400_000, bits=SeededBits(1))

    assert noise.var() == pytest.approx(noise_variance(float(scale)), rel=0.02)


def test_a_row_more_moves_the_norm_of_the_shape_by_at_most_its_own():
    rng = np.random.default_rng(2)
    law = np.array([0.6, 0.3, 0.1])
    noisy = rng.multinomial(50, law, size=40) + rng.integers(-9, 10, (40, 3)).astype(float)
    one = shape_statistic(np.eye(3), 50, law, 4.0)
    before = shape_statistic(noisy, 50, law, 4.0)

    for cell in range(3):
        after = shape_statistic(noisy + np.eye(3)[cell], 50, law, 4.0)
        assert (np.abs(after - before) <= one[cell] + 1e-12).all()


def test_the_projection_is_the_nearest_law():
    rng = np.random.default_rng(3)
    points = rng.normal(0.2, 1, (50, 4))
    others = rng.dirichlet(np.full(4, 0.3), 2000)

    nearest = project_on_simplex(points)

    np.testing.assert_allclose(nearest.sum(1), 1)
    assert (nearest >= 0).all()
    away = ((points[:, None] - others) ** 2).sum(-1).min(1)
    assert (((points - nearest) ** 2).sum(-1) <= away).all()


@pytest.mark.parametrize("rows", [40, None])
def test_the_distance_from_independence_is_finite_whatever_the_noise_and_zero_for_independent_counts(rows):
    tables = np.array([[[-50.0, 3.0], [-2.0, -9.0]], [[8.0, 2.0], [24.0, 6.0]], [[0.0, 0.0], [40.0, 0.0]]])

    found = independence_statistic(NoisyTable(tables, rows, 20.0))

    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[1:], 0, atol=1e-20)


def test_the_squared_distances_have_the_variances_they_are_divided_by():
    first, second, rows, scale = np.array([0.7, 0.2, 0.1]), np.array([0.6, 0.4]), 4000, 20
    counts = np.random.default_rng(4).multinomial(rows, np.outer(first, second).ravel(), 3000)
    noisy = counts + sample_laplace(scale, counts.shape, bits=SeededBits(4))

    found = independence_statistic(NoisyTable(noisy.reshape(-1, 3, 2).astype(float), rows, scale))

    assert found.mean() == pytest.approx(6, rel=0.05)  # one for each cell
