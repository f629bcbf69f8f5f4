import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from tests.distribution.goodness import SAMPLES, follows, notices_wrong_scales

from expost.core import InvalidRequest, Norm, PureGuarantee, Sealed, Sensitivity, approx, zcdp
from expost.noise import GaussianMechanism, SeededBits
from expost.noise.mechanism import gaussian_delta

mpmath.mp.dps = 50


def exact_delta(epsilon, variance, shift):
    """The hockey-stick divergence of discrete Gaussians at an integer distance, by summing their masses."""
    variance = mpmath.mpf(variance.numerator) / variance.denominator
    reach = int(12 * mpmath.sqrt(variance)) + abs(shift) + 5
    mass = {k: mpmath.exp(-(k * k) / (2 * variance)) for k in range(-reach - shift, reach + shift + 1)}
    total = mpmath.fsum(mass.values())
    factor = mpmath.exp(mpmath.mpf(epsilon))
    return mpmath.fsum(max(mass[k] - factor * mass[k - shift], 0) for k in range(-reach + shift, reach + 1)) / total


def analytic_delta(epsilon, mu):
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1, 5, 20, 100])
@pytest.mark.parametrize("mu", [0.001, 0.05, 0.5, 2, 12])
def test_the_float_delta_is_never_below_the_true_one_and_hardly_above(epsilon, mu):
    true, ours = analytic_delta(epsilon, mu), gaussian_delta(epsilon, mu)

    assert ours >= true
    assert ours <= true * (1 + mpmath.mpf("1e-5")) + mpmath.mpf("1e-12") * analytic_delta(0, mu) + mpmath.mpf("1e-290")


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1, 1e-6), (1, 0.01), (4, 1e-9), (12, 1e-5)])
@pytest.mark.parametrize("shift", [1, 3, 25])
def test_the_exact_delta_of_the_chosen_variance_is_within_the_promise_and_not_wasteful(epsilon, delta, shift):
    variance = GaussianMechanism(approx(epsilon, delta)).variance(Sensitivity(shift, Norm.L2))

    assert exact_delta(epsilon, variance, shift) <= delta
    if shift == 25:  # a fine grid: two percent less variance would break the promise
        assert exact_delta(epsilon, variance * Fraction(98, 100), shift) > delta


def test_a_vector_on_a_fine_grid_needs_hardly_more_variance_than_a_number():
    mechanism = GaussianMechanism(approx(1, 1e-6))
    one, many = (mechanism.variance(Sensitivity(1000, Norm.L2), coordinates=n) for n in (1, 10_000))

    assert one <= many <= one * Fraction(10001, 10000)


@pytest.mark.parametrize("moved", [(3, 4), (5, 0), (4, -3)])
def test_two_coordinates_together_are_within_the_promise_whatever_the_direction(moved):
    epsilon, delta = 1.0, 1e-3
    variance = float(GaussianMechanism(approx(epsilon, delta)).variance(Sensitivity(5, Norm.L2), coordinates=2))
    axis = np.arange(-150, 151)
    left = np.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * variance))
    right = np.exp(-((axis[:, None] - moved[0]) ** 2 + (axis[None] - moved[1]) ** 2) / (2 * variance))

    assert np.maximum(left / left.sum() - math.exp(epsilon) * right / right.sum(), 0).sum() <= delta


def test_the_smoothing_constants_cover_the_lemma():
    for smoothing, slack in ((1, 2.3e-8), (2, 3.0e-16)):
        r = 2 * mpmath.fsum(mpmath.exp(-2 * mpmath.pi**2 * smoothing * j * j) for j in range(1, 6))
        assert slack >= 2 * (mpmath.log(1 + r) - mpmath.log(1 - r))


def test_rounding_a_continuous_gaussian_gives_nearly_the_discrete_one():
    y, k = np.linspace(-25, 25, 5001), np.arange(-40, 41)
    rounding = stats.norm.pdf(k[:, None] - y)
    rounded = (stats.norm.pdf(y, scale=math.sqrt(3)) * rounding / rounding.sum(axis=0)).sum(axis=1) * (y[1] - y[0])
    discrete = stats.norm.pdf(k, scale=2) / stats.norm.pdf(k, scale=2).sum()
    gap = np.abs(np.log(rounded / discrete)[np.abs(k) < 12])

    assert gap.max() < 2.3e-8 / 2


def test_zcdp_is_exact():
    assert GaussianMechanism(zcdp(0.125)).variance(Sensitivity(3, Norm.L2)) == 36


def gaussian_cdf(variance):
    points = np.arange(-2000, 2001)
    sums = np.cumsum(np.exp(-(points**2) / (2 * variance)))
    return lambda k: np.where(
        k < points[0], 0.0, (sums / sums[-1])[np.clip(np.floor(k).astype(int) + 2000, 0, len(points) - 1)]
    )


def test_the_noise_has_the_variance_that_was_calibrated():
    def draw(factor):
        mechanism = GaussianMechanism(zcdp(Fraction(1, 200) / Fraction(factor).limit_denominator(10) ** 2))
        return mechanism.simulate(3, Sensitivity(1, Norm.L2), runs=SAMPLES, bits=SeededBits(1)) - 3

    assert follows(draw(1.0), gaussian_cdf(100))
    assert notices_wrong_scales(draw, gaussian_cdf(100))


def test_a_variance_beyond_ten_to_the_eighteen_works():
    noise = GaussianMechanism(zcdp(0.5)).simulate(0, Sensitivity(1 << 40, Norm.L2), runs=4000, bits=SeededBits(1))

    assert stats.kstest(noise.astype(float) / 2.0**40, "norm").pvalue > 1e-6


@pytest.mark.parametrize("coordinates", [1, 6])
def test_the_half_width_holds(coordinates):
    mechanism, sensitivity = GaussianMechanism(zcdp(0.01)), Sensitivity(1, Norm.L2)
    noise = mechanism.simulate([0] * coordinates, sensitivity, runs=40_000, bits=SeededBits(2))
    missed = np.mean(np.abs(noise).max(axis=1) > mechanism.half_width(sensitivity, 0.05, coordinates=coordinates))

    assert 0.03 < missed < 0.055


def test_an_answer_keeps_its_shape():
    sealed = Sealed(np.zeros((2, 2), int), Sensitivity(1, Norm.L2))

    assert GaussianMechanism(zcdp(1)).release(sealed, bits=SeededBits(1)).shape == (2, 2)


@pytest.mark.parametrize("promise", [PureGuarantee(1), zcdp(1).__class__(0), 1.0])
def test_a_promise_that_gaussian_noise_cannot_keep_is_refused(promise):
    with pytest.raises(InvalidRequest):
        GaussianMechanism(promise)
