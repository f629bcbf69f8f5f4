"""Trade-off curves, guesses and posteriors against what the best attacker really does."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from expost.accounting import GaussianEvent, LaplaceEvent, PureEvent, Repeat, account
from expost.accounting.tradeoff_curve import TradeoffCurve, guess_rate
from expost.core import InvalidRequest

ALARMS = np.array([1e-6, 0.01, 0.1, 0.3, 0.5, 0.9])


def test_the_gaussian_curve_is_below_and_near_the_true_one() -> None:
    true = ndtr(-ndtri(ALARMS) - 1)
    found = account(GaussianEvent(1)).tradeoff().missed_detection(ALARMS)

    assert np.all(found <= true)
    assert found == pytest.approx(true, abs=2e-3)


def test_the_pure_curve_has_its_kink() -> None:
    curve = account(PureEvent(1)).tradeoff()
    kink = 1 / (1 + math.e)

    assert float(curve.missed_detection(kink)) == pytest.approx(kink, abs=1e-9)
    assert float(curve.missed_detection(0.0)) == pytest.approx(1, abs=1e-9)
    assert float(curve.missed_detection(1.0)) == 0


def test_no_attacker_on_laplace_noise_beats_the_curve() -> None:
    curve = account(LaplaceEvent(1)).tradeoff()
    thresholds = np.linspace(-3, 4, 50)
    alarm = np.where(thresholds < 0, 1 - np.exp(thresholds) / 2, np.exp(-thresholds) / 2)
    shifted = thresholds - 1
    missed = np.where(shifted < 0, np.exp(shifted) / 2, 1 - np.exp(-shifted) / 2)

    assert np.all(curve.missed_detection(alarm) <= missed + 1e-12)


def test_a_risk_rises_by_the_factor_of_pure_privacy() -> None:
    curve = account(PureEvent(0.1)).tradeoff()

    assert curve.risk(0.01) == pytest.approx(0.01 * math.exp(0.1), rel=1e-6)
    assert curve.risk(1.0) == pytest.approx(1)


@pytest.mark.parametrize("prior", [0.01, 0.5, 0.8])
def test_the_guess_rate_of_randomised_response_is_that_of_its_best_attacker(prior: float) -> None:
    keep = math.exp(1.3) / (1 + math.exp(1.3))
    best = max(prior * keep + (1 - prior) * keep, prior, 1 - prior)

    assert account(PureEvent(Fraction(13, 10))).guess_rate(prior) == pytest.approx(best, rel=1e-9)


def test_the_posterior_of_pure_privacy_is_bayes_rule() -> None:
    assert account(PureEvent(0.1)).posterior(0.5) == pytest.approx(1 / (1 + math.exp(-0.1)), rel=1e-9)
    assert account(GaussianEvent(1)).posterior(0.5) == 1


def test_the_loss_bound_holds_for_gaussian_noise() -> None:
    # The loss of a Gaussian mechanism is normal with mean mu^2/2 and deviation mu.
    for mu, chance in ((0.3, 1e-3), (1.0, 1e-6), (2.0, 0.05)):
        bound = account(GaussianEvent(1 / Fraction(mu))).loss_bound(chance)
        exceeded = float(ndtr(-(bound - mu**2 / 2) / mu))

        assert exceeded <= chance
        assert exceeded >= chance / 50


def test_epsilon_at_delta_is_no_bound_on_the_probability_of_the_loss() -> None:
    """Why the loss bound exists: with probability above delta the loss exceeds the epsilon of (epsilon, delta)."""
    epsilon = account(GaussianEvent(1)).epsilon(1e-3)

    assert float(ndtr(-(epsilon - 0.5))) > 1e-3


def test_nothing_reveals_nothing() -> None:
    nothing = account(Repeat(PureEvent(1), 0))

    assert nothing.tradeoff().missed_detection(ALARMS) == pytest.approx(1 - ALARMS)
    assert nothing.loss_bound(0.01) == 0
    assert nothing.guess_rate(0.3) == pytest.approx(0.7)


def test_nonsense_is_refused() -> None:
    curve = TradeoffCurve(np.array([1.0]), np.array([1.0]))
    with pytest.raises(InvalidRequest, match="false-alarm"):
        curve.missed_detection(1.5)
    with pytest.raises(InvalidRequest, match="prior"):
        guess_rate(lambda epsilon: 0.0, 1.0)
    assert curve.loss_bound(0.5) == math.inf
