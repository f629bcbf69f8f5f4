"""Prices before and after a run, and shares of delta over Renyi orders."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost.accounting import (
    ExPostEvent,
    GaussianEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    PureFilter,
    Repeat,
    Sequence,
)
from expost.accounting.concentrated import rdp_to_epsilon
from expost.accounting.event_price import EventPrice, default_shares, order_conversion, worst_case_of
from expost.core import InvalidRequest


def test_a_price_adds_in_all_its_parts() -> None:
    price = PureFilter(9).price_event(Sequence([ExPostEvent(0.1, 1), Repeat(PureEvent(0.2), 3)]))

    assert (price.loss, price.cost) == (Fraction(1, 10), Fraction(6, 10))


def test_parallel_parts_cost_the_dearest_in_each_part() -> None:
    price = PureFilter(9).price_event(Parallel([ExPostEvent(0.3, 1), PureEvent(0.2)]))

    assert (price.loss, price.cost) == (Fraction(3, 10), Fraction(2, 10))


def test_what_has_no_price_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="price in this currency, got 'gaussian'"):
        PureFilter(9).price_event(GaussianEvent(1))


def test_a_promise_is_the_same_event_at_its_caps() -> None:
    event = Sequence([PoissonSampled(0.5, ExPostEvent(0.1, 1)), Parallel([Repeat(ExPostEvent(0, 2), 2)]), PureEvent(1)])

    assert worst_case_of(event) == Sequence(
        [PoissonSampled(0.5, ExPostEvent(1, 1)), Parallel([Repeat(ExPostEvent(2, 2), 2)]), PureEvent(1)]
    )
    assert worst_case_of(worst_case_of(event)) == worst_case_of(event)


def test_an_event_without_ex_post_parts_is_its_own_promise() -> None:
    event = Sequence([Repeat(PureEvent(1), 2), Parallel([GaussianEvent(1)])])

    assert worst_case_of(event) is event


def test_exact_sums_stay_exact_and_short() -> None:
    total = EventPrice(Fraction(0), Fraction(0))
    for _ in range(3):
        total = total + EventPrice(Fraction(0), Fraction(1, 3))
    assert total.cost == 1

    for prime in (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103):
        exact = total.cost + Fraction(1, prime)
        total = total + EventPrice(Fraction(0), Fraction(1, prime))
        assert exact <= total.cost <= exact + Fraction(1, 2**127)
        assert total.cost.denominator.bit_length() <= 129


def test_arrays_are_summed_upwards() -> None:
    one = EventPrice(Fraction(0), np.array([0.1, 1.0]))

    assert Fraction(float((one + one + one).cost[0])) >= 3 * Fraction(0.1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
def test_shares_are_positive_and_sum_to_one(epsilon: float) -> None:
    shares = default_shares(Fraction(epsilon), Fraction(1, 10**6))

    assert math.fsum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0
    assert min(shares) > 1


def test_the_likely_order_gets_half() -> None:
    shares = default_shares(Fraction(1), Fraction(1, 10**6))
    likely = max(shares, key=lambda order: shares[order])

    assert shares[likely] == 0.5
    assert 15 <= likely <= 60


@pytest.mark.parametrize("order", [1.5, 2.0, 40.0, 512.0])
def test_the_conversion_is_what_is_added_to_a_divergence(order: float) -> None:
    direct = float(rdp_to_epsilon(np.array([order]), np.array([3.0]), 1e-9)[0]) - 3

    assert order_conversion(order, 1e-9) == pytest.approx(direct, abs=1e-10)
    assert order_conversion(order, 1e-9) >= direct - 1e-11
