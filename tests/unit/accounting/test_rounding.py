"""Floats fall on the safe side; whatever is typed gives a number or a refusal of ours, never another library's error."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost import accounting
from expost.accounting import GaussianEvent, PureEvent, PureFilter, account
from expost.accounting.rounding import (
    add_up,
    float_down,
    float_up,
    read_amount,
    read_curve,
    read_delta,
    read_shares,
    sqrt_down,
    sqrt_up,
    widen,
)
from expost.core import ExpostError, InvalidRequest, approx, epsilon

NUMBERS = st.fractions(min_value=0, max_value=10**9)


@given(NUMBERS)
def test_floats_enclose_an_exact_number(value: Fraction) -> None:
    assert Fraction(float_down(value)) <= value <= Fraction(float_up(value))
    assert float_up(value) <= math.nextafter(float_down(value), math.inf)


@given(NUMBERS)
def test_roots_enclose_the_square_root(value: Fraction) -> None:
    assert sqrt_down(value) ** 2 <= value <= sqrt_up(value) ** 2
    assert sqrt_up(value) - sqrt_down(value) <= Fraction(1, 2**199)


def test_sums_of_floats_are_rounded_up() -> None:
    np = __import__("numpy")
    total, exact = np.zeros(1), Fraction(0)
    for _ in range(1000):
        total, exact = add_up(total, np.array([0.1])), exact + Fraction(0.1)

    assert Fraction(float(total[0])) >= exact
    assert float(total[0]) < 100 * (1 + 1e-12)


def test_widening_beats_a_thousand_ulps() -> None:
    assert widen(1.0) > 1 + 1000 * 2.0**-52


ODD = [None, 0, -1, 1, 2, 1e-40, 1e-30, 1e-12, 1e12, 1e18, 1e40, float("nan"), float("inf"), True, "1", "x", b"x"]
ODD = [*ODD, [], {}, (), (1, 2), object(), 10**30, Fraction(1, 3), 1.5]
STEP = GaussianEvent(1)


@functools.cache
def kept(event: Any) -> Any:
    return account(event, currency="auto" if event == STEP else "pure")


def of(event: Any, method: str) -> Any:
    return lambda **terms: getattr(kept(event), method)(**terms)


def curve(method: str) -> Any:
    return lambda **terms: getattr(kept(PureEvent(0.1)).tradeoff(), method)(**terms)


CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "PureEvent": (accounting.PureEvent, {"epsilon": 0.1}),
    "ApproxEvent": (accounting.ApproxEvent, {"epsilon": 0.1, "delta": 1e-6}),
    "ConcentratedEvent": (accounting.ConcentratedEvent, {"rho": 0.1}),
    "RenyiEvent": (accounting.RenyiEvent, {"curve": ((2, 1),)}),
    "LaplaceEvent": (accounting.LaplaceEvent, {"noise_multiplier": 2}),
    "GaussianEvent": (accounting.GaussianEvent, {"noise_multiplier": 2}),
    "DiscreteLaplaceEvent": (accounting.DiscreteLaplaceEvent, {"scale": 2, "sensitivity": 1}),
    "DiscreteGaussianEvent": (accounting.DiscreteGaussianEvent, {"scale": 2, "sensitivity": 1, "dimension": 1}),
    "ExponentialEvent": (accounting.ExponentialEvent, {"epsilon": 0.1}),
    "PermuteAndFlipEvent": (accounting.PermuteAndFlipEvent, {"epsilon": 0.1}),
    "Mixture": (accounting.Mixture, {"events": (STEP, STEP), "probabilities": (0.5, 0.5)}),
    "ExPostEvent": (accounting.ExPostEvent, {"loss": 0.1, "cap": 1}),
    "ExPostEvent.promise": (accounting.ExPostEvent.promise, {"cap": 1}),
    "PoissonSampled": (accounting.PoissonSampled, {"rate": 0.1, "event": STEP}),
    "SampledWithoutReplacement": (
        accounting.SampledWithoutReplacement,
        {"sample_size": 1, "population_size": 9, "event": STEP},
    ),
    "Sequence": (accounting.Sequence, {"events": (STEP,)}),
    "Repeat": (accounting.Repeat, {"event": STEP, "count": 2}),
    "Parallel": (accounting.Parallel, {"events": (STEP,), "fixed_parts": False}),
    "PrivacyEvent.from_json": (accounting.PrivacyEvent.from_json, {"data": STEP.to_json()}),
    "account": (account, {"events": [STEP], "adjacency": "add-remove", "currency": "auto"}),
    "PrivacyAccount": (
        accounting.PrivacyAccount,
        {"event": STEP, "currency": "auto", "adjacency": account(STEP).adjacency},
    ),
    "PrivacyAccount.epsilon": (of(STEP, "epsilon"), {"delta": 1e-6}),
    "PrivacyAccount.epsilon, pure": (of(PureEvent(0.1), "epsilon"), {"delta": 1e-6}),
    "PrivacyAccount.delta": (of(STEP, "delta"), {"epsilon": 1}),
    "PrivacyAccount.currencies": (of(STEP, "currencies"), {"delta": 1e-6}),
    "PrivacyAccount.guarantee": (of(STEP, "guarantee"), {"delta": 1e-6}),
    "PrivacyAccount.loss_bound": (of(PureEvent(0.1), "loss_bound"), {"failure_probability": 1e-6}),
    "PrivacyAccount.posterior": (of(PureEvent(0.1), "posterior"), {"prior": 0.5, "failure_probability": 1e-6}),
    "PrivacyAccount.guess_rate": (of(STEP, "guess_rate"), {"prior": 0.5}),
    "PrivacyAccount.explain": (of(PureEvent(0.1), "explain"), {"delta": 1e-6, "prior": 0.5, "risk": 0.01}),
    "TradeoffCurve.risk": (curve("risk"), {"without": 0.1}),
    "TradeoffCurve.missed_detection": (curve("missed_detection"), {"false_alarm": 0.1}),
    "TradeoffCurve.loss_bound": (curve("loss_bound"), {"failure_probability": 0.1}),
    "event_of": (accounting.event_of, {"terms": STEP}),
    "filter_for": (accounting.filter_for, {"budget": epsilon(1), "adjacency": "add-remove"}),
    "ApproxFilter": (accounting.ApproxFilter, {"epsilon": 1, "delta": 1e-6, "failure": 0, "shares": None}),
    "BasicFilter": (accounting.BasicFilter, {"epsilon": 1, "delta": 1e-6}),
    "PureFilter": (PureFilter, {"epsilon": 1, "adjacency": "add-remove"}),
    "ConcentratedFilter": (accounting.ConcentratedFilter, {"rho": 1, "failure": 0}),
    "ConcentratedFilter.for_approx": (
        accounting.ConcentratedFilter.for_approx,
        {"epsilon": 1, "delta": 1e-6, "failure": 0},
    ),
    "GaussianFilter": (accounting.GaussianFilter, {"mu_squared": 1}),
    "RenyiFilter": (accounting.RenyiFilter, {"curve": ((2, 1),)}),
    "Filter.admits": (lambda event: PureFilter(1).admits(event), {"event": PureEvent(0.1)}),
    "Filter.reserve": (lambda event: PureFilter(1).reserve(event), {"event": PureEvent(0.1)}),
    "Filter.charge": (lambda event: PureFilter(1).charge(event), {"event": PureEvent(0.1)}),
    "Filter.settle": (lambda outcome: _settled(outcome), {"outcome": None}),
    "ConcentratedOdometer": (accounting.ConcentratedOdometer, {"failure_probability": 1e-6, "tuned_at": 1}),
    "GaussianOdometer": (accounting.GaussianOdometer, {"failure_probability": 1e-6, "tuned_at": 1}),
    "RenyiOdometer": (
        accounting.RenyiOdometer,
        {"failure_probability": 1e-6, "expected_epsilon": 1, "shares": None},
    ),
    "Odometer.record": (lambda event: accounting.PureOdometer().record(event), {"event": PureEvent(0.1)}),
    "LinearBoundary.epsilon": (accounting.LinearBoundary(1e-6, tuned_at=1).epsilon, {"mu_squared": 1}),
    "MixtureBoundary.epsilon": (accounting.MixtureBoundary(1e-6, tuned_at=1).epsilon, {"mu_squared": 1}),
    "basic_composition": (accounting.basic_composition, {"epsilon": 1, "count": 2, "delta": 0}),
    "advanced_composition": (accounting.advanced_composition, {"epsilon": 1, "count": 2, "slack": 1e-6, "delta": 0}),
    "optimal_composition": (accounting.optimal_composition, {"epsilon": 1, "count": 2, "at_delta": 1e-6, "delta": 0}),
    "amplified_epsilon": (accounting.amplified_epsilon, {"epsilon": Fraction(1), "rate": Fraction(1, 2)}),
    "pure_to_gdp": (accounting.pure_to_gdp, {"epsilon": Fraction(1)}),
    "pure_to_zcdp": (accounting.pure_to_zcdp, {"epsilon": Fraction(1)}),
    "noise_multiplier_for": (
        lambda **terms: accounting.noise_multiplier_for(approx(1, 1e-6), currency="zcdp", **terms),
        {"steps": 1, "sampling": 1, "noise": GaussianEvent},
    ),
}


def _settled(outcome: Any) -> None:
    held = PureFilter(1)
    held.settle(held.reserve(PureEvent(0.1)), outcome)


@pytest.mark.parametrize("name", CALLS)
def test_no_argument_ends_in_an_error_that_is_not_ours(name: str) -> None:
    call, usual = CALLS[name]
    call(**usual)
    for argument in usual:
        for value in ODD:
            try:
                call(**usual | {argument: value})
            except ExpostError as refusal:
                assert str(refusal).startswith(("Expected", "Cannot")), (argument, value)


@pytest.mark.parametrize("delta", [1, 1.5, 2, 1e12, 0, -1, "x"])
def test_a_report_at_a_delta_that_is_none_is_refused(delta: object) -> None:
    with pytest.raises(InvalidRequest, match="delta"):
        accounting.account_report(gaussian=1, delta=delta)


@pytest.mark.parametrize(
    "terms", [{"gaussian": 1e-12}, {"gaussian": 1e-30}, {"gaussian": 1e12}, {"steps": 10**30}, {"sampling": 1e-12}]
)
def test_a_report_about_extremes_has_numbers(terms: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"gaussian": 1, "sampling": 0.1, "steps": 3}
    report = accounting.account_report(delta=1e-6, **usual | terms)

    assert report["epsilon"] >= 0 and not np.isnan(list(report["currencies"].values())).any()


def test_amounts_curves_and_shares_are_read_exactly() -> None:
    assert read_amount(Fraction(1, 10**40), "epsilon") == Fraction(1, 10**40)
    assert read_delta(0) == 0 and read_delta(0.5) == Fraction(1, 2)
    assert read_curve(((2, 0.1), [4, 0.3]))[1] == (Fraction(4), Fraction(3, 10))
    assert read_shares({2: 1}) == {2.0: 1.0}
    for shares in ({}, {1: 0.5}, {2: 0.6, 3: 0.6}, {2: 0}, [2], {"2": 1}):
        with pytest.raises(InvalidRequest):
            read_shares(shares)
