from fractions import Fraction

import numpy as np
import pytest

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.table import (
    Table,
    fit_statistic,
    independent_law,
    noise_variance,
    shape_statistic,
    table_statistic,
)


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
    noise = discrete_laplace(scale, 400_000, bits=SeededBits(1))

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


def test_the_fitted_law_is_a_law_whatever_the_noise():
    tables = np.array([[[-50.0, 3.0], [-2.0, -9.0]], [[10.0, 10.0], [10.0, 10.0]]])
    law = independent_law(Table(tables, 40, 20.0))

    np.testing.assert_allclose(law.sum((1, 2)), 1.0)
    assert (law > 0).all()
    np.testing.assert_allclose(law[1], 0.25)
    assert table_statistic(Table(tables, 40, 20.0))[1] == 0
    np.testing.assert_allclose(independent_law(Table(tables, None, 20.0)).sum((1, 2)), 1.0)
    assert (Table(tables, None, 20.0).sizes >= 4).all()
