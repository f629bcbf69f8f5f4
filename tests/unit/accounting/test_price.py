"""Prices before and after a run."""

from fractions import Fraction

import numpy as np
import pytest

from expost.accounting import ExPostEvent, GaussianEvent, Parallel, PoissonSampled, PureEvent, Repeat, Sequence, pure
from expost.accounting.price import Price, price_of, promised
from expost.core import InvalidRequest


def apart(loss: Fraction, cap: Fraction) -> Price:
    return Price(loss, Fraction(0))


def test_a_price_adds_in_all_its_parts() -> None:
    price = price_of(Sequence([ExPostEvent(0.1, 1), Repeat(PureEvent(0.2), 3)]), pure.cost_of, apart)

    assert (price.loss, price.cost) == (Fraction(1, 10), Fraction(6, 10))


def test_parallel_parts_cost_the_dearest_in_each_part() -> None:
    price = price_of(Parallel([ExPostEvent(0.3, 1), PureEvent(0.2)]), pure.cost_of, apart)

    assert (price.loss, price.cost) == (Fraction(3, 10), Fraction(2, 10))


def test_what_has_no_price_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="price in this currency, got 'gaussian'"):
        price_of(GaussianEvent(1), pure.cost_of, apart)


def test_a_promise_is_the_same_event_at_its_caps() -> None:
    event = Sequence([PoissonSampled(0.5, ExPostEvent(0.1, 1)), Parallel([Repeat(ExPostEvent(0, 2), 2)]), PureEvent(1)])

    assert promised(event) == Sequence(
        [PoissonSampled(0.5, ExPostEvent(1, 1)), Parallel([Repeat(ExPostEvent(2, 2), 2)]), PureEvent(1)]
    )
    assert promised(promised(event)) == promised(event)


def test_an_event_without_ex_post_parts_is_its_own_promise() -> None:
    event = Sequence([Repeat(PureEvent(1), 2), Parallel([GaussianEvent(1)])])

    assert promised(event) is event


def test_exact_sums_stay_exact_and_short() -> None:
    total = Price(Fraction(0), Fraction(0))
    for _ in range(3):
        total = total + Price(Fraction(0), Fraction(1, 3))
    assert total.cost == 1

    for prime in (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103):
        exact = total.cost + Fraction(1, prime)
        total = total + Price(Fraction(0), Fraction(1, prime))
        assert exact <= total.cost <= exact + Fraction(1, 2**127)
        assert total.cost.denominator.bit_length() <= 129


def test_arrays_are_summed_upwards() -> None:
    one = Price(Fraction(0), np.array([0.1, 1.0]))

    assert Fraction(float((one + one + one).cost[0])) >= 3 * Fraction(0.1)
