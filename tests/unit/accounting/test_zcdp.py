"""Concentrated privacy: conversions against long arithmetic and against each other."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.accounting import ApproxEvent, ExponentialEvent, GaussianEvent, PoissonSampled, PureEvent, pure_to_zcdp
from expost.accounting.gaussian import GaussianTotal
from expost.accounting.scenario import scenarios
from expost.accounting.zcdp import ConcentratedTotal, cost_of, failure_of, rdp_to_delta, rdp_to_epsilon, total

DELTA = Fraction(1, 10**6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(order=st.floats(1.01, 2000), cost=st.floats(0, 50), digits=st.floats(1, 200))
def test_the_conversion_of_one_order_is_rounded_up(order: float, cost: float, digits: float) -> None:
    delta = 10**-digits
    found = float(rdp_to_epsilon(np.array([order]), np.array([cost]), delta)[0])
    with mp.workdps(60):
        a, d = mp.mpf(order), mp.mpf(delta)
        exact = mp.mpf(cost) + mp.log(1 - 1 / a) - mp.log(d * a) / (a - 1)
        assert max(exact, 0) <= found <= max(exact, 0) + mp.mpf("1e-9") * (1 + abs(exact))
        # And the way back proves at most the delta it came from.
        if exact > 0:
            assert float(rdp_to_delta(np.array([order]), np.array([cost]), found)[0]) <= delta * (1 + 1e-6)


def test_the_conversion_holds_for_the_gaussian_mechanism_itself() -> None:
    for mu in (0.1, 1.0, 3.0):
        exact = GaussianTotal(Fraction(mu) ** 2).epsilon(DELTA)
        found = ConcentratedTotal(Fraction(mu) ** 2 / 2, Fraction(0)).epsilon(DELTA)
        simple = mu**2 / 2 + 2 * math.sqrt(mu**2 / 2 * math.log(1e6))

        assert exact < found < simple


def test_the_values_of_the_reference_table() -> None:
    assert ConcentratedTotal(Fraction(1, 2), Fraction(0)).epsilon(DELTA) == pytest.approx(5.222, abs=1e-3)


def test_the_best_order_is_found() -> None:
    for rho in (1e-6, 1e-3, 0.5, 20.0):
        orders = 1 + np.geomspace(1e-4, 1e7, 200_001)
        grid = float(np.min(rdp_to_epsilon(orders, rho * orders, 1e-6)))

        assert ConcentratedTotal(Fraction(rho), Fraction(0)).epsilon(DELTA) <= grid * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 8.0, 100.0])
def test_pure_privacy_becomes_concentrated_without_understating(epsilon: float) -> None:
    with mp.workdps(40):
        exact = mp.mpf(epsilon) * mp.tanh(mp.mpf(epsilon) / 2)
        found = pure_to_zcdp(Fraction(epsilon))

        assert mp.mpf(found.numerator) / found.denominator >= exact
        assert float(found) <= min(float(exact), epsilon**2 / 2, epsilon) * (1 + 1e-13)


def test_the_exponential_mechanism_costs_a_quarter_of_its_epsilon_squared() -> None:
    assert cost_of(ExponentialEvent(1)) == Fraction(1, 8)
    assert cost_of(ExponentialEvent(20)) <= Fraction(20)


def test_failures_of_approximate_steps_come_out_of_delta() -> None:
    found = total(scenarios(ApproxEvent(1, 1e-7))[0])
    assert found is not None

    assert found.failure == Fraction(1, 10**7)
    assert found.epsilon(Fraction(1, 10**7)) == math.inf
    assert found.epsilon(DELTA) > ConcentratedTotal(found.rho, Fraction(0)).epsilon(DELTA)
    assert found.delta(Fraction(50)) >= 1e-7


def test_a_failure_is_sampled_with_its_mechanism() -> None:
    assert failure_of(PoissonSampled(0.1, ApproxEvent(1, 1e-6))) == Fraction(1, 10**7)
    assert failure_of(PureEvent(1)) == 0


def test_gaussian_steps_have_exact_costs() -> None:
    assert cost_of(GaussianEvent(Fraction(3, 2))) == Fraction(2, 9)
