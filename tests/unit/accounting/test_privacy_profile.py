"""Privacy profiles of single mechanisms against their laws."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
)
from expost.accounting.privacy_profile import PrivacyProfile, profile_of


def known(event: object) -> PrivacyProfile:
    profile = profile_of(event)  # type: ignore[arg-type]
    assert profile is not None
    return profile


def test_laplace_is_its_integral() -> None:
    profile = known(LaplaceEvent(Fraction(1, 2)))
    with mp.workdps(30):
        for epsilon in (0.0, 0.7, 1.9):
            exact = mp.quad(
                lambda z, e=epsilon: max(mp.exp(-2 * abs(z)) - mp.exp(e) * mp.exp(-2 * abs(z - 1)), 0),
                [-40, 0, 0.5 - epsilon / 4, 1, 40],
            )
            assert float(profile.forward(np.array([epsilon]))[0]) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


def test_a_scalar_discrete_gaussian_is_its_sum() -> None:
    sigma, shift = 2.5, 2
    profile = known(DiscreteGaussianEvent(Fraction(sigma), shift))
    points = np.arange(-60, 61)
    p, q = np.exp(-(points**2) / (2 * sigma**2)), np.exp(-((points - shift) ** 2) / (2 * sigma**2))
    for epsilon in np.linspace(0, 4, 17):
        exact = np.maximum(p - math.exp(epsilon) * q, 0).sum() / p.sum()
        assert float(profile.forward(np.array([epsilon]))[0]) == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_vectors_and_unknown_laws_have_no_profile() -> None:
    assert profile_of(DiscreteGaussianEvent(10, 1, dimension=2)) is None
    assert profile_of(DiscreteGaussianEvent(10, Fraction(3, 2))) is None
    assert profile_of(ConcentratedEvent(1)) is None
    assert profile_of(PoissonSampled(0.1, Repeat(LaplaceEvent(1), 2))) is None


def test_an_approximate_step_keeps_its_failure_at_the_end() -> None:
    assert known(ApproxEvent(1, 1e-3)).forward(np.array([1.0, 5.0])).tolist() == [1e-3, 1e-3]


@pytest.mark.parametrize("rate", [0.01, 0.4])
def test_a_sampled_gaussian_is_its_mixture(rate: float) -> None:
    profile = known(PoissonSampled(Fraction(rate), GaussianEvent(1)))
    with mp.workdps(30):
        q = mp.mpf(rate)
        for epsilon in (0.001, 0.1, 0.5):
            # The mixture's ratio 1 - q + q e^(z - 1/2) grows with z and crosses e^epsilon, or e^-epsilon, once.
            for sign, curve in ((1, profile.forward), (-1, profile.backward)):
                level = (mp.exp(sign * epsilon) - 1 + q) / q
                if level <= 0:
                    exact = mp.mpf(0)
                else:
                    cross = mp.log(level) + mp.mpf(1) / 2
                    mixed = (1 - q) * mp.ncdf(-sign * cross) + q * mp.ncdf(-sign * (cross - 1))
                    plain = mp.ncdf(-sign * cross)
                    exact = mixed - mp.exp(epsilon) * plain if sign > 0 else plain - mp.exp(epsilon) * mixed

                assert float(curve(np.array([epsilon]))[0]) == pytest.approx(float(exact), rel=1e-9, abs=1e-20)


def test_without_replacement_both_directions_are_one() -> None:
    profile = known(SampledWithoutReplacement(1, 10, PureEvent(1)))

    assert profile.symmetric
    assert profile.largest == pytest.approx(math.log1p(0.1 * math.expm1(1)))
    assert float(profile.forward(np.array([0.0]))[0]) == pytest.approx(0.1 * math.tanh(0.5))


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_a_sampled_discrete_gaussian_is_its_mixture(rate: float) -> None:
    """Both directions, term by term; they ask the profile inside for an endless epsilon too."""
    sigma = 3.4
    profile = profile_of(PoissonSampled(rate, DiscreteGaussianEvent(sigma)))
    points = np.arange(-60, 61)
    law = np.exp(-(points**2) / (2 * sigma**2))
    without, moved = law / law.sum(), np.roll(law, 1) / law.sum()
    with_unit = (1 - rate) * without + rate * moved
    at = np.array([0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 3.0, 800.0, math.inf])
    factor = np.exp(np.minimum(at, 700.0))[:, None]

    forward = np.maximum(with_unit - factor * without, 0).sum(axis=1)
    backward = np.maximum(without - factor * with_unit, 0).sum(axis=1)

    assert profile.forward(at) == pytest.approx(forward, rel=1e-9, abs=1e-15)
    assert profile.backward(at) == pytest.approx(backward, rel=1e-9, abs=1e-15)
