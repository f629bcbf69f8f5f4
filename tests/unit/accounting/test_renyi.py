"""Renyi divergences of every leaf against integrals and sums in long arithmetic."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    RenyiEvent,
    Repeat,
    Sequence,
)
from expost.accounting.renyi import ORDERS, RenyiTotal, renyi_divergences, sum_renyi
from expost.accounting.scenario import list_scenarios
from expost.core import InvalidRequest

DIGITS = 30


def laplace(scale: mp.mpf, order: mp.mpf) -> mp.mpf:
    def density(z: mp.mpf, at: int) -> mp.mpf:
        return mp.exp(-abs(z - at) / scale) / (2 * scale)

    def integrand(z: mp.mpf) -> mp.mpf:
        return density(z, 0) ** order * density(z, 1) ** (1 - order)

    return mp.log(mp.quad(integrand, [-60 * scale, -5 * scale, 0, 1, 1 + 5 * scale, 60 * scale])) / (order - 1)


def discrete(weight: Callable[[int], mp.mpf], shift: int, reach: int, order: mp.mpf) -> mp.mpf:
    norm = mp.fsum(weight(z) for z in range(-reach, reach + 1))
    moment = mp.fsum(weight(z) ** order * weight(z - shift) ** (1 - order) for z in range(-reach, reach + shift + 1))
    return mp.log(moment / norm) / (order - 1)


def sampled_gaussian(rate: mp.mpf, sigma: mp.mpf, order: mp.mpf) -> mp.mpf:
    def integrand(z: mp.mpf) -> mp.mpf:
        return mp.npdf(z, 0, sigma) * (1 - rate + rate * mp.exp((2 * z - 1) / (2 * sigma**2))) ** order

    pieces = [
        -40 * sigma,
        -8 * sigma,
        -2 * sigma,
        0,
        1,
        order,
        order + 2 * sigma,
        order + 8 * sigma,
        order + 40 * sigma,
    ]
    return mp.log(mp.quad(integrand, pieces)) / (order - 1)


@pytest.mark.parametrize("order", [1.1, 2.0, 3.7, 20.0, 300.0])
@pytest.mark.parametrize("multiplier", ["0.3", "1", "7", "900"])
def test_laplace(multiplier: str, order: float) -> None:
    with mp.workdps(DIGITS):
        exact = laplace(mp.mpf(multiplier), mp.mpf(order))
        found = renyi_divergences(LaplaceEvent(Fraction(multiplier)), (order,))[0]

        assert exact <= found <= exact * (1 + mp.mpf("1e-6"))


@pytest.mark.parametrize("order", [1.1, 2.0, 12.0])
@pytest.mark.parametrize(("scale", "shift"), [("0.4", 1), ("3", 2), ("17", 5)])
def test_discrete_laplace(scale: str, shift: int, order: float) -> None:
    with mp.workdps(DIGITS):
        b = mp.mpf(scale)
        exact = discrete(lambda z: mp.exp(-abs(z) / b), shift, int(60 * b) + 60, mp.mpf(order))
        found = renyi_divergences(DiscreteLaplaceEvent(Fraction(scale), shift), (order,))[0]

        assert exact <= found <= exact * (1 + mp.mpf("1e-7"))


@pytest.mark.parametrize("order", [1.1, 2.0, 12.0])
@pytest.mark.parametrize(("scale", "shift"), [("0.7", 1), ("3", 2), ("9", 5)])
def test_discrete_gaussian(scale: str, shift: int, order: float) -> None:
    with mp.workdps(DIGITS):
        s = mp.mpf(scale)
        exact = discrete(lambda z: mp.exp(-(z**2) / (2 * s**2)), shift, int((20 + order) * s) + 60, mp.mpf(order))
        found = renyi_divergences(DiscreteGaussianEvent(Fraction(scale), shift), (order,))[0]

        assert exact <= found * (1 + mp.mpf("1e-20"))


@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [
        ("0.01", "1.1", 4.7),
        ("0.01", "1.1", 5.0),
        ("0.001", "0.5", 1.1),
        ("0.3", "2", 3.3),
        ("0.5", "0.3", 10.9),
        ("0.9", "1", 1.7),
        ("0.0001", "1", 2.5),
        ("0.2", "1", 64.0),
        ("0.01", "0.06", 2.3),
        ("0.000001", "3", 10.3),
    ],
)
def test_sampled_gaussian_divergences(rate: str, sigma: str, order: float) -> None:
    with mp.workdps(40):
        exact = sampled_gaussian(mp.mpf(rate), mp.mpf(sigma), mp.mpf(order))
        found = renyi_divergences(PoissonSampled(Fraction(rate), GaussianEvent(Fraction(sigma))), (order,))[0]

        assert exact <= found <= exact * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize("epsilon", ["0.0001", "0.1", "3", "50"])
@pytest.mark.parametrize("order", [1.01, 2.0, 40.0, 1024.0])
def test_randomised_response(epsilon: str, order: float) -> None:
    with mp.workdps(DIGITS):
        e, a = mp.mpf(epsilon), mp.mpf(order)
        exact = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
        found = renyi_divergences(PureEvent(Fraction(epsilon)), (order,))[0]

        assert exact <= found <= exact * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize(
    "event",
    [
        LaplaceEvent(10**12),
        DiscreteLaplaceEvent(2**45, 3),
        PureEvent(Fraction(1, 10**12)),
        PoissonSampled(Fraction(1, 10**9), GaussianEvent(1)),
        PoissonSampled(Fraction(1, 10**6), LaplaceEvent(1000)),
        PureEvent(5000),
        LaplaceEvent(Fraction(1, 2000)),
        GaussianEvent(Fraction(1, 1000)),
        PoissonSampled(Fraction(1, 2), GaussianEvent(Fraction(1, 100))),
    ],
    ids=repr,
)
def test_extreme_parameters_give_finite_increasing_curves(event: PrivacyEvent) -> None:
    curve = renyi_divergences(event, ORDERS)

    assert np.all(np.isfinite(curve))
    assert np.all(curve >= 0)
    assert np.all(np.diff(curve) >= -1e-9 * curve[1:])


def test_a_listed_curve_is_interpolated_by_chords_and_ends() -> None:
    event = RenyiEvent(((2, 1), (4, 3)))
    found = renyi_divergences(event, (1.5, 2.0, 3.0, 4.0, 5.0))

    assert found.round(9).tolist() == [1.0, 1.0, 2.5, 3.0, math.inf]


def test_orders_of_one_or_less_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="orders above 1"):
        renyi_divergences(PureEvent(1), (1.0,))


def test_totals_add_and_report_the_best_order() -> None:
    found = sum_renyi(list_scenarios(Sequence([Repeat(ConcentratedEvent(0.1), 3), ApproxEvent(0.1, 1e-8)]))[0])
    assert found is not None

    alone = [
        RenyiTotal((order,), cost, found.failure)
        for order, cost in zip(found.orders, found.costs[:, None], strict=True)
    ]

    assert found.failure == Fraction(1, 10**8)
    assert found.epsilon(Fraction(1, 10**6)) == min(one.epsilon(Fraction(1, 10**6)) for one in alone)
    assert found.epsilon(Fraction(1, 10**9)) == math.inf
    assert found.delta(Fraction(found.epsilon(Fraction(1, 10**6)))) <= 1e-6 * (1 + 1e-9)


def test_the_moments_accountant_example() -> None:
    # T Gaussian steps of unit noise: the moment bound min_s exp(T s(s+1)/2 - s epsilon) is at s = epsilon/T - 1/2.
    steps, epsilon = 4, 12.0
    closed_form = math.exp(-((epsilon - steps / 2) ** 2) / (2 * steps))
    found = sum_renyi(list_scenarios(Repeat(GaussianEvent(1), steps))[0])
    assert found is not None

    assert found.delta(Fraction(epsilon)) < closed_form
    assert found.delta(Fraction(epsilon)) > closed_form / 100
