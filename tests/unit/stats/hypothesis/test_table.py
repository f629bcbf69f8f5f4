import numpy as np
import pytest

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.table import Table, fit_statistic, independent_law, noise_variance, table_statistic


def test_the_fit_statistic_is_the_quadratic_form_it_claims_to_be():
    rng = np.random.default_rng(1)
    law, rows, epsilon = np.array([0.5, 0.3, 0.2]), 40, 0.7
    noisy = rng.multinomial(rows, law, size=5) + rng.integers(-5, 6, (5, 3))
    covariance = rows * (np.diag(law) - np.outer(law, law)) + noise_variance(epsilon) * np.eye(3)
    project = np.eye(3) - 1 / 3
    away = (noisy - rows * law) @ project

    expected = np.einsum("ri,ij,rj->r", away, np.linalg.inv(covariance), away)

    np.testing.assert_allclose(fit_statistic(noisy.astype(float), rows, law, epsilon), expected, rtol=1e-9)


@pytest.mark.parametrize("epsilon", ["0.2", "1", "3"])
def test_the_noise_variance_is_that_of_the_noise(epsilon):
    from fractions import Fraction

    noise = discrete_laplace(2 / Fraction(epsilon), 400_000, bits=SeededBits(1))

    assert noise.var() == pytest.approx(noise_variance(float(epsilon)), rel=0.02)


def test_the_fitted_law_is_a_law_whatever_the_noise():
    tables = np.array([[[-50.0, 3.0], [-2.0, -9.0]], [[10.0, 10.0], [10.0, 10.0]]])
    law = independent_law(Table(tables, 40, 0.1))

    np.testing.assert_allclose(law.sum((1, 2)), 1.0)
    assert (law > 0).all()
    np.testing.assert_allclose(law[1], 0.25)
    assert table_statistic(Table(tables, 40, 0.1))[1] == 0
