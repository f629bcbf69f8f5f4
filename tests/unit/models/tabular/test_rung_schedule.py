"""Prices of trainings on tables: exact, increasing, and independent of the cap."""

import itertools
from fractions import Fraction

import pytest

from expost.accounting.concentrated import GaussianTotal
from expost.models.tabular.rung_schedule import RungSchedule, plan_epsilon, plan_score

DELTAS = ["1e-18", "1e-9", "1e-6", "1e-3", "0.1"]
CAPS = ["1e-6", "0.005", "0.01", "0.0131", "0.016", "0.3", "1", "3.6", "9", "34", "100", "1000"]


def check_prices(schedule: RungSchedule, delta: Fraction, cap: Fraction) -> None:
    prices, total = schedule.prices, Fraction(0)
    assert len(schedule.rungs) == len(prices.epsilons)
    assert schedule.rungs[0].profiled
    shares = prices.shares
    assert sum(shares) <= delta and len(shares) == len(prices.epsilons)
    assert all(first < second for first, second in itertools.pairwise(prices.epsilons))
    for rung, price, share in zip(schedule.rungs, prices.epsilons, shares, strict=True):
        total += 1 / rung.noise**2
        assert GaussianTotal(total).epsilon(share) <= price <= cap
        # However the rung is divided, its releases together are within its own event.
        for test_share in (0.06, 0.15, 0.5, 0.75):
            step, test = rung.divide(test_share)
            noises = [*(rung.profile_noise or ()), *[step] * rung.steps, test]
            assert sum(1 / noise**2 for noise in noises) <= 1 / rung.noise**2


@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("delta", DELTAS)
def test_every_stop_is_priced_at_its_share_of_delta_and_prices_rise_to_the_cap(delta: str, numeric: bool) -> None:
    for cap in CAPS:
        check_prices(plan_score(Fraction(cap), Fraction(delta), numeric=numeric), Fraction(delta), Fraction(cap))


@pytest.mark.parametrize("delta", DELTAS)
def test_a_given_epsilon_is_never_exceeded(delta: str) -> None:
    for epsilon in ("1e-6", "0.01", "1", "30", "10000"):
        check_prices(plan_epsilon(Fraction(epsilon), Fraction(delta)), Fraction(delta), Fraction(epsilon))


def test_prices_agree_with_an_independent_accountant() -> None:
    from scipy.optimize import brentq
    from scipy.stats import norm

    schedule = plan_score(Fraction(2), Fraction(1, 10**6))
    total = 0.0
    for rung, price, share in zip(schedule.rungs, schedule.prices.epsilons, schedule.prices.shares, strict=True):
        total += float(1 / rung.noise**2)
        mu = total**0.5

        def excess(epsilon: float, mu: float = mu, share: float = float(share)) -> float:
            # Corollary 2.13 of DRS22.
            above = norm.logcdf(-epsilon / mu - mu / 2) + epsilon
            return float(norm.cdf(-epsilon / mu + mu / 2) - 2.718281828459045**above - share)

        assert brentq(excess, 0, 50, xtol=1e-12) == pytest.approx(float(price), rel=1e-5)


@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("delta", DELTAS)
def test_a_larger_cap_adds_rungs_and_changes_no_earlier_one(delta: str, numeric: bool) -> None:
    large = plan_score(Fraction(40), Fraction(delta), numeric=numeric)
    known = dict(zip(large.prices.epsilons, large.rungs, strict=True))
    for cap in CAPS[2:-2]:
        small = plan_score(Fraction(cap), Fraction(delta), numeric=numeric)
        # The last rung may be one at the cap itself.
        for price, rung in list(zip(small.prices.epsilons, small.rungs, strict=True))[:-1]:
            assert known[price] == rung


def test_the_event_of_a_stop_has_all_releases_up_to_it() -> None:
    schedule = plan_score(Fraction(1), Fraction(1, 10**6))
    for count in (1, 3, len(schedule.rungs)):
        total = sum((1 / rung.noise**2 for rung in schedule.rungs[:count]), Fraction(0))
        assert len(schedule.event(count).events) == count
        assert GaussianTotal(total).epsilon(Fraction(1, 32 * 10**6)) <= schedule.prices.epsilons[count - 1]
