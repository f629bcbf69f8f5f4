"""What an event costs in one currency, before and after it ran: what filters and odometers add up."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting.events import (
    Event,
    ExPostEvent,
    Parallel,
    PoissonSampled,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
    checked_event,
)
from expost.accounting.rounding import add_up
from expost.accounting.scenario import Scenario, scenarios
from expost.accounting.zcdp import failure_of
from expost.core.errors import InvalidRequest

__all__ = ["Price", "price_of", "promised"]

_ZERO = Fraction(0)
_LONGEST = 128  # bits of an exact denominator; sums of unrelated fractions would otherwise grow without bound

CostOf = Callable[[Event], Any]
"""The cost of a leaf, a Fraction or an array over orders, or a whole price; None where the currency has none."""

ExPost = Callable[[Fraction, Fraction], "Price"]
"""The price of a pure ex-post part, by what it came to and what it could have come to."""


@dataclass(frozen=True)
class Price:
    """The pure ex-post part where it is kept apart, the rest in the currency at hand, and the probability outside which both hold.

    >>> (Price(Fraction(1), Fraction(2)) + Price(Fraction(1), Fraction(0))).loss
    Fraction(2, 1)
    """

    loss: Fraction
    cost: Any
    failure: Fraction = Fraction(0)

    def __add__(self, other: Price) -> Price:
        return Price(
            _plus(self.loss, other.loss) if other.loss else self.loss,
            _plus(self.cost, other.cost),
            _plus(self.failure, other.failure) if other.failure else self.failure,
        )


def price_of(event: Event, cost_of: CostOf, ex_post: ExPost) -> Price:
    """The price of a whole event, the dearest way through its parallel parts.

    >>> from expost.accounting.events import PureEvent
    >>> price_of(PureEvent(1), lambda leaf: leaf.epsilon, lambda loss, cap: Price(loss, Fraction(0))).cost
    Fraction(1, 1)
    """
    if event.is_leaf:
        return _leaf_price(event, cost_of)
    if isinstance(event, ExPostEvent):
        return ex_post(event.loss, event.cap)
    prices = [_scenario_price(scenario, cost_of, ex_post) for scenario in scenarios(event)]
    if len(prices) == 1:
        return prices[0]
    losses, costs, failures = zip(*((price.loss, price.cost, price.failure) for price in prices), strict=True)
    # Part by part the maximum bounds every scenario.
    cost = np.max(costs, axis=0) if isinstance(costs[0], np.ndarray) else max(costs)
    return Price(max(losses), cost, max(failures))


def promised(event: Event) -> Event:
    """The event as it stands before its run: ex-post parts at their caps.

    >>> promised(ExPostEvent(0.1, 1))
    ExPostEvent(loss=Fraction(1, 1), cap=Fraction(1, 1))
    """
    if checked_event(event).is_leaf:
        return event
    match event:
        case ExPostEvent(loss, cap):
            return event if loss == cap else ExPostEvent(cap, cap)
        case Sequence(events) | Parallel(events):
            before = tuple(map(promised, events))
            return event if all(map(operator.is_, before, events)) else replace(event, events=before)
        case Repeat() | PoissonSampled() | SampledWithoutReplacement():
            inner = promised(event.event)
            return event if inner is event.event else replace(event, event=inner)
    return event


def _scenario_price(scenario: Scenario, cost_of: CostOf, ex_post: ExPost) -> Price:
    total = ex_post(scenario.loss, scenario.cap)
    for leaf, count in scenario.leaves:
        one = _leaf_price(leaf, cost_of)
        total = total + (one if count == 1 else Price(one.loss * count, _times(one.cost, count), one.failure * count))
    return total


def _leaf_price(leaf: Event, cost_of: CostOf) -> Price:
    cost = cost_of(leaf)
    if cost is None:
        raise InvalidRequest(
            "Expected an event with a price in this currency", got=leaf.kind, do="Use another currency"
        )
    return cost if isinstance(cost, Price) else Price(_ZERO, cost, failure_of(leaf))


def _times(cost: Any, count: int) -> Any:
    return np.nextafter(cost * count, np.inf) if isinstance(cost, np.ndarray) else cost * count


def _plus(one: Any, other: Any) -> Any:
    """A sum, upwards where it must be rounded: floats always, rationals once their denominators explode."""
    if isinstance(one, np.ndarray):
        return add_up(one, other)
    exact = one + other
    numerator, denominator = exact.as_integer_ratio()
    if denominator.bit_length() <= _LONGEST:
        return exact
    return Fraction(-((-numerator << _LONGEST) // denominator), 1 << _LONGEST)
