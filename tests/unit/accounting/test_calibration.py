"""Calibrated numbers keep their target and are as tight as their digits allow."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from expost.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    account,
    calibration,
    noise_multiplier_for,
    sampling_rate_for,
    steps_for,
)
from expost.core import InvalidRequest, approx, epsilon, zcdp


@pytest.mark.parametrize("target", [approx(1, 1e-5), approx(0.05, 1e-9), approx(10, 1e-3)])
def test_gaussian_noise_is_as_small_as_the_exact_profile_allows(target: object) -> None:
    found = noise_multiplier_for(target)  # type: ignore[arg-type]
    allowed = float(target.epsilon)  # type: ignore[attr-defined]
    delta = target.delta  # type: ignore[attr-defined]

    assert account(GaussianEvent(found)).epsilon(delta) <= allowed
    assert account(GaussianEvent(found * Fraction(999, 1000))).epsilon(delta) > allowed


def test_the_classical_rule_needs_more_noise() -> None:
    assert float(noise_multiplier_for(approx(1, 1e-5))) < math.sqrt(2 * math.log(1.25e5))


def test_laplace_noise_for_a_pure_target_is_exact() -> None:
    assert noise_multiplier_for(epsilon(0.5), noise=LaplaceEvent) == 2
    assert noise_multiplier_for(epsilon(0.5), steps=3, noise=LaplaceEvent) == 6


def test_sampled_steps_are_calibrated_too() -> None:
    found = noise_multiplier_for(approx(2, 1e-5), steps=100, sampling=0.02, currency="rdp")
    event = Repeat(PoissonSampled(0.02, GaussianEvent(found)), 100)

    assert account(event, currency="rdp").epsilon(1e-5) <= 2
    assert len(str(float(found))) <= 6


def test_the_number_of_steps_is_the_largest_that_fits() -> None:
    step, target = GaussianEvent(20), approx(1, 1e-5)
    found = steps_for(target, step)

    assert account(Repeat(step, found)).epsilon(1e-5) <= 1 < account(Repeat(step, found + 1)).epsilon(1e-5)
    assert steps_for(epsilon(1), PureEvent(0.1)) == 10
    assert steps_for(epsilon(1), PureEvent(2)) == 0


def test_the_sampling_rate_is_the_largest_that_fits() -> None:
    found = sampling_rate_for(approx(1, 1e-5), GaussianEvent(1), steps=10, currency="rdp")

    def cost(rate: Fraction) -> float:
        return account(Repeat(PoissonSampled(rate, GaussianEvent(1)), 10), currency="rdp").epsilon(1e-5)

    assert cost(found) <= 1 < cost(found * Fraction(101, 100))
    assert sampling_rate_for(epsilon(10), PureEvent(1), steps=10) == 1


@pytest.mark.parametrize(
    ("target", "step", "steps"),
    [
        (approx(1, 1e-5), GaussianEvent(1), 2),
        (approx(1, 1e-5), GaussianEvent(4), 2),
        (approx(0.05, 1e-9), GaussianEvent(2), 30),
        (approx(3, 1e-6), LaplaceEvent(0.1), 3),
        (epsilon(0.001), LaplaceEvent(0.1), 5),
    ],
    ids=repr,
)
def test_a_sampling_rate_is_found_in_few_prices_and_no_larger_one_fits(monkeypatch, target, step, steps) -> None:
    priced = []
    monkeypatch.setattr(calibration, "account", lambda event, **terms: priced.append(event) or account(event, **terms))

    found = sampling_rate_for(target, step, steps=steps)

    assert len(priced) <= 20  # halving took 24 and more
    larger = found * (1 + Fraction(2, 10**4 - 1))
    costs = [
        account(Repeat(PoissonSampled(rate, step), steps)).epsilon(target.amounts().get("delta", 0))
        for rate in (found, larger)
    ]
    assert costs[0] <= target.epsilon < costs[1]


@pytest.mark.parametrize("target", [approx(1, 1e-5), approx(0.001, 1e-12), approx(200, 1e-3), epsilon(1e-5)])
def test_a_noise_multiplier_is_found_in_few_prices(monkeypatch, target) -> None:
    priced = []
    monkeypatch.setattr(calibration, "account", lambda event, **terms: priced.append(event) or account(event, **terms))
    noise = LaplaceEvent if target == epsilon(1e-5) else GaussianEvent

    found = noise_multiplier_for(target, noise=noise)

    assert len(priced) <= 12 + abs(math.log2(found))
    assert account(noise(found)).epsilon(target.amounts().get("delta", 0)) <= target.epsilon


@given(
    slope=st.floats(0.2, 8),
    bend=st.floats(-2, 2),
    root=st.floats(1e-6, 1e6),
    sides=st.tuples(st.floats(1e-7, 0.9), st.floats(1.1, 1e7)),
    silent=st.booleans(),
)
def test_the_crossing_is_between_its_neighbours_whatever_the_shape_of_the_costs(
    slope, bend, root, sides, silent
) -> None:
    """Rising and falling costs, curved ones, ones that jump to infinity; the side that keeps the target is returned."""
    tried = []

    def cost(number: Fraction) -> float:
        tried.append(number)
        place = math.log(number / root)
        if silent and place > 0:
            return math.inf
        return math.exp(slope * place + bend * math.tanh(place) * abs(place))

    sign = math.copysign(1, slope + bend)
    assume(slope + bend > 0.05 and sign > 0)
    good, bad = Fraction(root * sides[0]), Fraction(root * sides[1])
    assume(cost(good) <= 1 < cost(bad))

    found = calibration._find_crossing(cost, (good, cost(good)), (bad, cost(bad)))

    assert cost(found) <= 1 < cost(found * (1 + Fraction(2, 10**5)))
    assert len(tried) < 70


def test_what_cannot_be_reached_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="some noise multiplier"):
        noise_multiplier_for(epsilon(1))
    with pytest.raises(InvalidRequest, match="some sampling rate"):
        sampling_rate_for(epsilon(1), GaussianEvent(1), steps=1)
    with pytest.raises(InvalidRequest, match="costs something"):
        steps_for(epsilon(1), PureEvent(0))
    with pytest.raises(InvalidRequest, match="budget of epsilon"):
        noise_multiplier_for(zcdp(1))
    with pytest.raises(InvalidRequest, match="at most 1"):
        noise_multiplier_for(approx(1, 1e-5), sampling=2)
