"""Quantiles of noise are upper bounds, close, and refused where floats cannot tell."""

import itertools
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, special, stats

from expost.accuracy.noise_envelope import GaussianEnvelope, NoiseEnvelope
from expost.accuracy.noise_norm import (
    _laplace_survival,
    curved_gaussian_bound,
    curved_noise_bound,
    curved_spherical_bound,
    laplace_norm_quantile,
    spherical_norm_quantile,
)
from expost.accuracy.ridge_certificate import CELLS, acceptance, largest_scale, log_chance
from expost.core import InvalidRequest
from expost.holdout.holdout_plan import analysed_level, improved_level
from expost.models.linear.tilted_risk import GaussianTilt, LaplaceTilt, SphericalTilt

DRAWS = 200_000


@pytest.mark.parametrize("dimension", [1, 2, 7, 40])
@pytest.mark.parametrize("failure", [0.5, 0.1, 0.01])
def test_the_quantile_is_exceeded_as_often_as_it_says(dimension: int, failure: float) -> None:
    lengths = np.linalg.norm(np.random.default_rng(dimension).laplace(size=(DRAWS, dimension)), axis=1)
    spread = 5 * math.sqrt(failure / DRAWS)

    quantile = laplace_norm_quantile(dimension, failure)

    assert (lengths > quantile).mean() <= failure + spread
    assert (lengths > 0.97 * quantile).mean() > failure + spread  # a bound 3 % too small would be noticed
    assert (lengths > 1.03 * quantile).mean() < failure - spread  # and one 3 % too large


def laplace_norm_tail(dimension: int, length: float) -> float:
    """Return the probability that the quantiles are read from, at one length."""
    grid, survival = _laplace_survival(dimension)
    return float(survival[min(math.floor(length**2 / grid), len(survival) - 1)])


def test_one_dimension_has_the_exponential_tail() -> None:
    assert laplace_norm_quantile(1, 1e-6) == pytest.approx(-math.log(1e-6))
    assert laplace_norm_tail(1, 3.0) == pytest.approx(math.exp(-3), rel=0.01)


def test_tail_and_quantile_are_inverse_to_each_other() -> None:
    quantile = laplace_norm_quantile(20, 0.05)

    assert laplace_norm_tail(20, quantile * 1.0001) <= 0.05 <= laplace_norm_tail(20, quantile * 0.99)


def test_deep_tails_follow_one_large_coordinate() -> None:
    # P(norm > t) is at least P(one coordinate > t) = exp(-t) and, deep in the tail, not much above p exp(-t).
    quantile = laplace_norm_quantile(5, 1e-8)

    assert -math.log(1e-8) < quantile < -math.log(1e-8 / 5) + 2


@pytest.mark.parametrize("failure", [0.0, 1.0, 1e-30])
def test_an_impossible_failure_probability_is_refused(failure: float) -> None:
    with pytest.raises(InvalidRequest):
        laplace_norm_quantile(3, failure)


long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")

# Just above 1e-11 is where a grid may have no cell left.
FAILURES = [1e-15, 1e-12, 1.00001e-11, 1.05e-11, 1.2e-11, 1e-9, 1e-7, 1e-3, 0.1, 0.5]
DIMENSIONS = [1, 2, 10, 60, 400]
CURVATURES = [0.0, 10.0, 1e5]
ONE = Fraction(1)


def envelope(kind, dimension, failure):
    found = kind.of(dimension, failure)
    return float(found.reach(np.array([2.0]))[0]) + found.matrix


QUANTILES = {
    "laplace norm": laplace_norm_quantile,
    "spherical norm": spherical_norm_quantile,
    "gaussian envelope": lambda d, f: envelope(GaussianEnvelope, d, f),
    "laplace tilt": lambda d, f: LaplaceTilt(d, 1.0, 1.0).length_quantile(ONE, f),
    "spherical tilt": lambda d, f: SphericalTilt(d, 1.0).length_quantile(ONE, f),
    "gaussian tilt": lambda d, f: GaussianTilt(d, 1.0, Fraction(1, 10**6), one_sided=True).length_quantile(ONE, f),
    **{f"curved laplace {c:g}": lambda d, f, c=c: curved_noise_bound(d, c, f) for c in CURVATURES},
    **{f"curved gaussian {c:g}": lambda d, f, c=c: curved_gaussian_bound(d, c, f) for c in CURVATURES},
    **{f"curved spherical {c:g}": lambda d, f, c=c: curved_spherical_bound(d, c, f) for c in CURVATURES},
}


def found(quantile, dimension, failure):
    try:
        return quantile(dimension, failure)
    except InvalidRequest:
        return math.nan


def table(name, dimensions, failures):
    return np.array([[found(QUANTILES[name], d, f) for f in failures] for d in dimensions])


def check_table(values):
    """Refusals are those of the rarest failures; numbers are positive and rise with rarity and dimension.

    Below 1e-8 what is added for rounding decides, which may be more on the coarser grid of fewer dimensions.
    """
    refused = np.isnan(values)
    assert (values[~refused] > 0).all()
    assert np.isfinite(values[~refused]).all()
    assert (refused[:, :-1] | ~refused[:, 1:]).all()  # whoever is refused is refused for rarer failures too
    assert not refused[:, -4:].any()
    with np.errstate(invalid="ignore"):
        assert not (np.diff(values, axis=1) > 0).any()
        # A grid rounds upwards by up to 0.3 %, more on a coarser one.
        usual = values[:, np.array(FAILURES) > 1e-8]
        assert not (usual[1:] < usual[:-1] * (1 - 3e-3)).any()


@pytest.mark.parametrize("name", QUANTILES)
def test_a_quantile_is_refused_or_positive_and_monotone(name):
    check_table(table(name, DIMENSIONS, FAILURES))


@long_profile
@pytest.mark.parametrize("name", QUANTILES)
def test_a_quantile_is_refused_or_positive_and_monotone_in_every_dimension(name):
    check_table(table(name, range(1, 401), FAILURES))


@pytest.mark.parametrize("dimension", [1, 3, 6, 7, 40, 41, 100, 256])
def test_the_simulated_envelope_is_refused_or_positive_and_monotone_in_the_failure(dimension):
    """It comes from simulations of each dimension for itself, which need not be monotone among each other."""
    values = np.array([found(lambda d, f: envelope(NoiseEnvelope, d, f), dimension, f) for f in FAILURES])
    refused = np.isnan(values)

    assert not refused[-2:].any()
    assert (values[~refused] > 0).all()
    assert (np.diff(values[~refused]) <= 0).all()
    assert (np.array(FAILURES)[refused] < NoiseEnvelope.least_failure(dimension)).all()
    # The largest entry of the diagonal alone is a Laplace variable.
    for failure, value in zip(np.array(FAILURES)[~refused], values[~refused], strict=True):
        assert value > -math.log(-math.expm1(math.log1p(-failure) / dimension))


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_length_of_laplace_noise_is_at_least_what_one_coordinate_needs(dimension):
    """P(norm > q) >= P(some coordinate > q), exactly."""
    for failure in FAILURES:
        quantile = found(laplace_norm_quantile, dimension, failure)
        if not math.isnan(quantile):
            assert -math.expm1(dimension * math.log1p(-math.exp(-quantile))) <= failure * (1 + 1e-9)


def two_coordinates(length):
    """P(norm of two unit Laplace variables > length), by integrating over the first one."""
    inner, _ = integrate.quad(
        lambda x: math.exp(-x - math.sqrt(length**2 - x**2) + length), 0, length, epsabs=0, epsrel=1e-10, limit=200
    )
    return math.exp(-length) * (1 + inner)


@pytest.mark.parametrize("failure", [f for f in FAILURES if f > 1e-11])
def test_the_length_of_two_laplace_variables_is_above_the_exact_one(failure):
    quantile = found(laplace_norm_quantile, 2, failure)
    if math.isnan(quantile):
        assert failure < 1.2e-11
        return
    assert two_coordinates(quantile) <= failure
    assert two_coordinates(0.99 * quantile) > failure - 1.1e-11  # and not by more than rounding
    assert laplace_norm_tail(2, quantile) >= two_coordinates(quantile)


def test_the_tail_of_laplace_noise_is_never_below_the_exact_one():
    for length in (0.0, 1.0, 5.0, 12.0, 25.0, 31.0, 100.0, 1e3):
        assert two_coordinates(length) <= laplace_norm_tail(2, length) <= 1


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_spherical_noise_is_bounded_from_above_the_ideal_law(dimension):
    """The norm of the ideal noise has a Gamma law; what is drawn is stretched a little, never shortened."""
    for failure in (f for f in FAILURES if f > 1.1e-11):
        ideal = special.gammainccinv(dimension, failure)
        assert spherical_norm_quantile(dimension, failure) >= ideal * (1 - 1e-9)
        assert spherical_norm_quantile(dimension, failure) <= ideal * 1.05
        assert curved_spherical_bound(dimension, 0.0, failure) >= ideal**2 * (1 - 1e-9)


@pytest.mark.parametrize(("dimension", "curvature"), list(itertools.product(DIMENSIONS, CURVATURES)))
def test_curved_bounds_hold_for_weights_on_one_and_on_all_coordinates(dimension, curvature):
    heavy, even = 1 + curvature, 1 + curvature / dimension
    for failure in (f for f in FAILURES if f > 1.1e-11):
        gaussian = curved_gaussian_bound(dimension, curvature, failure)
        assert stats.chi2.sf(gaussian / even, dimension) <= failure
        assert _one_heavy(gaussian, dimension, heavy) <= failure
        laplace = found(lambda d, f: curved_noise_bound(d, curvature, f), dimension, failure)
        if math.isnan(laplace):
            continue
        assert math.exp(-math.sqrt(laplace / heavy)) <= failure
        assert laplace / even >= found(laplace_norm_quantile, dimension, failure * 1.5) ** 2 * (1 - 2e-2)


def _one_heavy(level, dimension, heavy):
    """P(heavy g_1^2 + the other squares > level), to relative 1e-6, for standard normal g."""
    if dimension == 1:
        return stats.chi2.sf(level / heavy, 1)
    end = math.sqrt(level / heavy)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    points = end * (nodes + 1) / 2
    rest = stats.chi2.sf(level - heavy * points**2, dimension - 1)
    return 2 * float(weights @ (rest * stats.norm.pdf(points))) * end / 2 + 2 * stats.norm.sf(end)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_gaussian_envelope_is_above_the_exact_length_of_the_vector(dimension):
    for failure in FAILURES:
        envelope = GaussianEnvelope.of(dimension, failure)
        assert stats.chi2.sf(envelope.vector**2, dimension) <= failure / 3
        assert dimension * 2 * stats.norm.sf(envelope.matrix) <= failure  # its diagonal is standard normal


def test_the_chance_of_a_short_vector_is_never_below_the_exact_one():
    """One Laplace variable around a centre is at most z in magnitude."""
    for centre, noisy in itertools.product([0.0, 0.5, 3.0, 30.0, 300.0], [0.0, 0.1, 1.0, 10.0, 100.0]):
        exact = stats.laplace.cdf(noisy - centre) - stats.laplace.cdf(-noisy - centre)
        bound = log_chance(noisy, centre, 1)
        assert -math.inf < bound <= 0
        assert math.exp(bound) >= exact


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_chance_of_a_short_vector_falls_with_its_length_and_rises_with_what_is_seen(dimension):
    bounds = np.array([[log_chance(z, c, dimension) for c in (0.0, 1.0, 10.0, 1e3)] for z in (0.0, 1.0, 10.0, 1e3)])

    assert (np.diff(bounds, axis=0) >= 0).all()
    assert (np.diff(bounds, axis=1) <= 0).all()


def test_the_noise_of_a_remainder_is_none_or_positive_and_shrinks_with_the_failure():
    rooms = np.linspace(0.1, 5.0, len(CELLS)) * 100
    scales = [largest_scale(rooms, Fraction(f), grid=2.0**-20) for f in FAILURES]
    given = [scale for scale in scales if scale is not None]

    assert scales[: len(scales) - len(given)] == [None] * (len(scales) - len(given))
    assert given
    assert min(given) > 0
    assert given == sorted(given)
    assert largest_scale(-rooms, Fraction(1, 10), grid=2.0**-20) is None
    remainders = acceptance(np.linspace(-1, 40, 400))
    assert ((remainders >= 0) & (remainders <= 1)).all()


@pytest.mark.parametrize("failure", FAILURES)
def test_noise_levels_of_a_holdout_are_positive_and_their_errors_rise_with_rarity(failure):
    for level in (
        analysed_level(tolerance=Fraction(1, 10), failure_probability=failure, max_queries=100),
        improved_level(
            tolerance=Fraction(1, 10),
            failure_probability=failure,
            max_queries=100,
            max_hits=5,
            noise_share=Fraction(1, 4),
        ),
    ):
        errors = [
            max(level.sample_errors(max_queries=100, max_hits=5, failure_probability=f)) for f in (failure, failure / 2)
        ]
        assert min(level.threshold, level.threshold_scale, level.query_scale) > 0
        assert 0 < errors[0] < errors[1]
