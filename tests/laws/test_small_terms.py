"""Terms that are called small, at the extremes where they are largest (docs/proofs/small-terms.md)."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

from expost.accounting.amplification import poisson_gaussian_renyi
from expost.accuracy.noise_norm import (
    curved_gaussian_bound,
    curved_noise_bound,
    curved_spherical_bound,
    laplace_norm_quantile,
    spherical_norm_quantile,
    spherical_variances,
)
from expost.core import GaussianLoss, InvalidRequest
from expost.core.meaning import loss_bound
from expost.stats.hypothesis.binomial import binomial_p_values, noisy_binomial_tail


@pytest.mark.parametrize(
    ("rate", "deviation", "order"),
    [(1e-12, 1.0, 1.5), (1e-3, 0.2, 1.1), (0.999999, 0.3, 3.3), (1e-6, 100.0, 500.5), (1e-9, 30.0, 1.01)],
)
def test_the_trapezoidal_rule_errs_upwards_and_by_less_than_its_margin(
    rate: float, deviation: float, order: float
) -> None:
    """The error is relative to the excess, which falls with the square of the rate: e^-45 of nothing else."""
    with mp.workdps(40):
        a, q, s = mp.mpf(order), mp.mpf(rate), mp.mpf(deviation)

        def excess(x: mp.mpf) -> mp.mpf:
            y = q * mp.expm1((2 * x - 1) / (2 * s * s))
            return mp.npdf(x, 0, s) * ((1 + y) ** a - 1 - a * y)

        ends = sorted({-30 * s, -8 * s, -3 * s, mp.mpf(0), a, 3 * s, 8 * s, a + 8 * s, a + 30 * s})
        exact = mp.log1p(mp.quad(excess, ends)) / (a - 1)
        found = mp.mpf(float(poisson_gaussian_renyi((order,), rate, deviation)[0]))

        assert 0 <= found / exact - 1 < mp.mpf(10) ** -10


@pytest.mark.parametrize("rows", [1000, 10**6, 10**9])
def test_a_p_value_is_never_below_the_true_one_however_small(rows: int) -> None:
    spread = math.sqrt(rows) / 2
    for deviations in (4.0, 6.0, 9.0, 12.0):
        at = rows / 2 + math.ceil(deviations * spread)
        # With hardly any noise the statistic is the count itself, up to a half.
        least = float(binom.sf(at + 1, rows, 0.5))
        for statistic, alternative in (
            (at, "greater"),
            (rows - at, "less"),
            (at, "two-sided"),
            (rows - at, "two-sided"),
        ):
            (found,) = binomial_p_values(np.array([statistic]), rows, 0.5, epsilon=20.0, alternative=alternative)

            assert found >= least
            assert found > 0


def test_the_masses_of_a_billion_rows_add_up_to_one() -> None:
    for chance in (0.5, 1e-4, 1 - 1e-9):
        both = noisy_binomial_tail(np.array([0.3, 1.3]) * chance * 10**9, 10**9, chance, 1.0)
        (upper,) = binomial_p_values(np.array([chance * 1e9]), 10**9, chance, epsilon=1.0, alternative="greater")
        (lower,) = binomial_p_values(np.array([chance * 1e9]), 10**9, chance, epsilon=1.0, alternative="less")

        assert both[0] == pytest.approx(1, abs=1e-12)
        assert 1 <= upper + lower < 1 + 1e-9


@pytest.mark.parametrize("failure", [1e-12, 1e-14, 1e-16])
def test_bounds_on_curved_noise_refuse_failures_beyond_their_grid(failure: float) -> None:
    for bound in (curved_noise_bound, curved_gaussian_bound, curved_spherical_bound):
        with pytest.raises(InvalidRequest, match="failure probability"):
            bound(3, 20.0, failure)


@pytest.mark.parametrize("failure", [1e-2, 1e-6, 1e-9, 1e-10])
def test_bounds_on_curved_noise_are_above_their_quantiles_however_rare_the_failure(failure: float) -> None:
    quantile = math.log(1 / failure)  # of the size of one unit Laplace variable

    assert curved_noise_bound(1, 0.0, failure) >= quantile**2
    assert curved_noise_bound(3, 20.0, failure) >= 21 * quantile**2
    assert curved_gaussian_bound(1, 0.0, failure) >= 2 * (quantile - math.log(4 * math.sqrt(2 * quantile)))
    assert curved_spherical_bound(1, 0.0, failure) >= quantile**2 * 0.99


def test_lengths_beyond_the_tables_are_refused_not_guessed() -> None:
    for quantile in (laplace_norm_quantile, spherical_norm_quantile):
        with pytest.raises(InvalidRequest, match="failure probability"):
            quantile(3, 1e-12)
    assert spherical_norm_quantile(3, 1.1e-11) > spherical_norm_quantile(3, 1e-9) > spherical_norm_quantile(3, 1e-3)


@pytest.mark.parametrize("dimension", [1, 2, 40, 1000])
def test_variances_beyond_the_table_are_rarer_than_is_counted(dimension: int) -> None:
    variances, _ = spherical_variances(dimension)
    with mp.workdps(30):
        beyond = mp.gammainc(mp.mpf(dimension + 1) / 2, variances[-1] / 2, regularized=True)

        assert beyond < mp.mpf(10) ** -14


def test_a_minimum_beyond_its_reach_is_rarer_than_every_failure_that_is_accepted() -> None:
    """What hides the solver takes a hundredth of the failures and is refused below 1e-11: the reach fails with 1e-9."""
    with pytest.raises(InvalidRequest):
        laplace_norm_quantile(3, float(Fraction(1, 10**9) * Fraction(1, 100)))


def test_a_rounding_of_a_gaussian_stays_within_its_distance() -> None:
    """Draws of phi_2 around a real number are within 32 of it, but for a probability below 1e-100."""
    with mp.workdps(60):
        for shift in (mp.mpf(0), mp.mpf("0.25"), mp.mpf("0.5")):
            weights = {k: mp.exp(-((k - shift) ** 2) / 4) for k in range(-80, 81)}
            far = sum(weight for k, weight in weights.items() if abs(k - shift) > 32)

            assert far / sum(weights.values()) < mp.mpf(10) ** -100


def test_the_lattice_of_gradients_adds_less_than_prices_are_rounded_up_by() -> None:
    """4.4e-34 for each entry and step, against 1e-11 of epsilon: for 2 10^22 epsilon entries times steps."""
    with mp.workdps(60):
        slack = 2 * sum(mp.exp(-2 * mp.pi**2 * 4 * j**2) for j in range(1, 4))

        assert 2 * mp.mpf("2.1") * slack < mp.mpf("4.4e-34")
    for epsilon in (1e-6, 1e-3, 1.0):
        assert 4.4e-34 * (2e22 * epsilon) < 1e-11 * epsilon


@pytest.mark.parametrize("mu", [1e-4, 24.0, 1e3, 1e6])
def test_normal_tails_beyond_all_floats_are_bounded_from_the_safe_side(mu: float) -> None:
    with mp.workdps(50):
        chance = Fraction(1, 10**6)
        z = mp.findroot(lambda x: mp.log(mp.erfc(x / mp.sqrt(2)) / 2) - mp.log(mp.mpf(10) ** -6), 4.75)
        far = z + mp.mpf(mu)
        # Beyond erfc's own reach in long arithmetic: the asymptotic series, five terms.
        if far < 1e3:
            tail = mp.log(mp.erfc(far / mp.sqrt(2)) / 2)
        else:
            series = 1 - far**-2 + 3 * far**-4 - 15 * far**-6 + 105 * far**-8
            tail = -(far**2) / 2 - mp.log(far * mp.sqrt(2 * mp.pi)) + mp.log(series)
        exact = mp.log(mp.mpf(10) ** -6) - tail
        found = loss_bound(GaussianLoss(Fraction(mu) ** 2), chance)

        assert exact <= found <= exact * (1 + mp.mpf(10) ** -9) + mp.mpf(10) ** -11
