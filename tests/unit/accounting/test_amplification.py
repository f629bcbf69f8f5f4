"""Amplification by sampling: exact formulas, never below the truth."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.accounting import GaussianEvent, PoissonSampled, PureEvent, SampledWithoutReplacement, amplified_epsilon
from expost.accounting.amplification import poisson_gaussian_renyi, poisson_renyi_symmetric
from expost.accounting.renyi import ORDERS, renyi_divergences


@settings(max_examples=100, deadline=None, derandomize=True)
@given(epsilon=st.fractions(Fraction(1, 10**9), 2000), rate=st.fractions(Fraction(1, 10**9), 1))
def test_the_amplified_epsilon_is_rounded_up(epsilon: Fraction, rate: Fraction) -> None:
    found = amplified_epsilon(epsilon, rate)
    with mp.workdps(900):
        q, e = (mp.mpf(x.numerator) / x.denominator for x in (rate, epsilon))
        exact = mp.log1p(q * mp.expm1(e))

        assert mp.mpf(found.numerator) / found.denominator >= exact * (1 - mp.mpf(10) ** -800)
        assert found <= epsilon
        assert float(found) <= float(exact) * (1 + 1e-10)


def test_the_values_of_the_slides_and_of_the_correction() -> None:
    # 2 q epsilon = 0.10 is printed for epsilon 5 and rate 0.01; the formula behind it gives 0.906.
    assert float(amplified_epsilon(Fraction(5), Fraction(1, 100))) == pytest.approx(0.9058, abs=1e-3)
    assert float(amplified_epsilon(Fraction(1, 2), Fraction(1, 100))) <= 2 * 0.01 * 0.5


def test_nothing_and_everything() -> None:
    assert amplified_epsilon(Fraction(3), Fraction(0)) == 0
    assert amplified_epsilon(Fraction(3), Fraction(1)) == 3
    assert amplified_epsilon(Fraction(0), Fraction(1, 2)) == 0


def test_between_whole_orders_the_quadrature_is_below_the_chord() -> None:
    orders = (2.0, 2.5, 3.0, 7.3)

    def curve(at: tuple[float, ...]) -> np.ndarray:
        return np.array(at) / 2

    exact = poisson_gaussian_renyi(orders, 0.05, 1.0)
    chords = poisson_renyi_symmetric(orders, 0.05, curve)

    assert exact[[0, 2]] == pytest.approx(chords[[0, 2]], rel=1e-9)
    assert np.all(exact[[1, 3]] < chords[[1, 3]])


@pytest.mark.parametrize("noise_multiplier", [0.06, 0.8, 30.0])
@pytest.mark.parametrize("rate", [1e-12, 0.01, 0.9])
def test_orders_that_are_priced_at_once_cost_what_each_costs_alone(noise_multiplier: float, rate: float) -> None:
    orders = (1.0001, 200.5, *ORDERS)  # more than are integrated at a time, and of very different reach

    together = poisson_gaussian_renyi(orders, rate, noise_multiplier)
    some = [0, 1, *range(2, len(orders), 6)]
    alone = [poisson_gaussian_renyi((orders[place],), rate, noise_multiplier)[0] for place in some]

    assert together[some] == pytest.approx(alone, rel=1e-12)


def test_sampling_without_replacement_amplifies_too() -> None:
    orders = (2.0, 8.0, 32.0)
    whole = renyi_divergences(GaussianEvent(4), orders)
    sampled = renyi_divergences(SampledWithoutReplacement(10, 1000, GaussianEvent(4)), orders)

    assert np.all(sampled < whole / 50)


def test_sampling_without_replacement_is_within_a_factor_of_the_sharper_published_bound() -> None:
    peer = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = (2.0, 4.0, 8.0, 16.0, 32.0)
    sharper = peer._compute_rdp_sample_wor_gaussian(0.01, 4.0, orders)
    ours = renyi_divergences(SampledWithoutReplacement(10, 1000, GaussianEvent(4)), orders)

    assert np.all(ours >= sharper * (1 - 1e-9))
    assert np.all(ours <= sharper * 2)


def test_a_sampled_pure_step_is_no_dearer_than_its_amplified_epsilon() -> None:
    event = PoissonSampled(0.1, PureEvent(2))
    amplified = math.log1p(0.1 * math.expm1(2))

    assert renyi_divergences(event, (1000.0,))[0] <= amplified * (1 + 1e-9)
    assert renyi_divergences(event, (2.0,))[0] < renyi_divergences(PureEvent(Fraction(amplified)), (2.0,))[0]


@pytest.mark.parametrize("rate", ["1e-320", "1e-300", "1e-291", "1e-30", "1e-12", "0.001", "0.5", "0.999999999"])
@pytest.mark.parametrize(
    "epsilon", ["1e-12", "0.5", "29.9999", "30", "31", "500", "699.9", "700", "709", "1000", "17000"]
)
def test_no_rate_and_no_epsilon_is_amplified_below_the_truth(epsilon: str, rate: str) -> None:
    with mp.workdps(400):
        truth = mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(epsilon)))
        found = amplified_epsilon(Fraction(epsilon), Fraction(rate))
        value = mp.mpf(found.numerator) / found.denominator

        assert truth <= value and found <= Fraction(epsilon)
        if truth > mp.mpf("1e-280") and Fraction(rate) > Fraction("1e-280"):
            assert value <= truth * (1 + mp.mpf("1.1e-11"))
