"""The price of an event in one currency, before and after it ran: what filters and odometers add up."""

from __future__ import annotations

import abc
import math
import operator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting.concentrated import failure_of, rdp_to_epsilon
from expost.accounting.privacy_event import (
    ExPostEvent,
    Mixture,
    Parallel,
    PoissonSampled,
    PrivacyEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
    check_event,
)
from expost.accounting.renyi import ex_post_divergences, renyi_divergences
from expost.accounting.rounding import Floats, add_up, float_down, float_up
from expost.accounting.scenario import event_under, list_scenarios
from expost.core import SingleOwner
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest

__all__ = ["EventPrice", "EventPricer", "RenyiPricer", "default_shares", "order_conversion", "worst_case_of"]

_ZERO = Fraction(0)
_LONGEST = 128  # bits of an exact denominator; sums of unrelated fractions would otherwise grow without bound
_SHARE_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


@dataclass(frozen=True)
class EventPrice:
    """What one event, or everything so far, costs in one currency.

    Parameters
    ----------
    loss : Fraction
        The pure ex-post part, where the currency keeps it separate; infinite where there is no pure bound.
    cost : Fraction or array of float
        The rest, in the currency; an array has one value per Renyi order.
    failure : Fraction, default 0
        The probability outside which both hold.

    Examples
    --------
    >>> (EventPrice(Fraction(1), Fraction(2)) + EventPrice(Fraction(1), Fraction(0))).loss
    Fraction(2, 1)
    """

    loss: Fraction | float
    cost: Any
    failure: Fraction = Fraction(0)

    def __add__(self, other: EventPrice) -> EventPrice:
        return EventPrice(
            # Zero parts are skipped: this addition runs for every step of a training, and exact fractions are slow.
            _add_rounding_up(self.loss, other.loss) if other.loss else self.loss,
            _add_rounding_up(self.cost, other.cost),
            _add_rounding_up(self.failure, other.failure) if other.failure else self.failure,
        )

    def times(self, count: int) -> EventPrice:
        """Return the price of ``count`` such events, rounded up.

        Parameters
        ----------
        count : int >= 0
            How many events there are.

        Returns
        -------
        EventPrice
        """
        if count == 1:
            return self
        many = self.cost * count
        # One product is at most half a unit off, so the next float is above the exact one.
        cost = np.nextafter(many, np.inf) if isinstance(many, np.ndarray) else many
        return EventPrice(self.loss * count, cost, self.failure * count)


class EventPricer(SingleOwner, abc.ABC):
    """Prices events in one currency, under one adjacency, and holds a running total.

    It stays in its process, and a copy is the object itself: two copies would each count half of the steps.
    """

    _copies_are_itself = True

    def __init__(self, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__()
        self.adjacency = Adjacency.parse(adjacency)
        self._total = EventPrice(Fraction(0), self._zero_cost())

    def price_event(self, event: PrivacyEvent) -> EventPrice:
        """Return the price of an event as it happened, at the most expensive combination of its parallel parts.

        Parameters
        ----------
        event : PrivacyEvent
            The event; pure ex-post parts count at their losses, where a theorem allows it.

        Returns
        -------
        EventPrice

        Raises
        ------
        InvalidRequest
            If the currency has no price for a part, or the event belongs to the other adjacency.
        """
        event = event_under(check_event(event), self.adjacency)
        if event.is_leaf:
            return self._price_leaf(event)
        if isinstance(event, ExPostEvent):
            return self._price_ex_post(event.loss, event.cap, 2 * event.before)
        # A unit passes through one part of each parallel step; which one is not public, so every combination is priced.
        prices = []
        for scenario in list_scenarios(event):
            total = self._price_ex_post(scenario.loss, scenario.cap, scenario.span)
            for leaf, count in scenario.leaves:
                total = total + self._price_leaf(leaf).times(count)
            prices.append(total)
        if len(prices) == 1:
            return prices[0]
        losses, costs, failures = zip(*((price.loss, price.cost, price.failure) for price in prices), strict=True)
        # Part by part the maximum bounds every scenario.
        cost = np.max(costs, axis=0) if isinstance(costs[0], np.ndarray) else max(costs)
        return EventPrice(max(losses), cost, max(failures))

    def price_worst_case(self, event: PrivacyEvent) -> EventPrice:
        """Return the price of an event before its run: pure ex-post parts count at their caps.

        Parameters
        ----------
        event : PrivacyEvent
            The event.

        Returns
        -------
        EventPrice

        Raises
        ------
        InvalidRequest
            As for ``price_event``.
        """
        if isinstance(event, ExPostEvent):  # the common case, without building another event
            return self._price_ex_post(event.cap, event.cap, 2 * event.before)
        return self.price_event(worst_case_of(event))

    def _price_leaf(self, leaf: PrivacyEvent) -> EventPrice:
        """Return the price of a leaf; refuse one that the currency cannot price."""
        cost = self._leaf_cost(leaf)
        if cost is None:
            raise InvalidRequest(
                "Expected an event with a price in this currency", got=leaf.kind, do="Use another currency"
            )
        # Outside the failures of all leaves every cost holds: failures add by a union bound.
        return cost if isinstance(cost, EventPrice) else EventPrice(_ZERO, cost, failure_of(leaf))

    def _price_ex_post(self, loss: Fraction, cap: Fraction, span: Fraction) -> EventPrice:
        """Return the price of a pure ex-post part: its loss, kept apart from the rest; refinements telescope."""
        return EventPrice(loss, self._zero_cost())

    def _zero_cost(self) -> Any:
        """Return the cost of nothing."""
        return Fraction(0)

    @abc.abstractmethod
    def _leaf_cost(self, leaf: PrivacyEvent) -> Any:
        """Return the cost of a leaf, a Fraction or an array or a whole price; None where the currency has none."""


class RenyiPricer(EventPricer):
    """Prices every event at each of ``_orders``; pure ex-post parts by their losses, order by order.

    See docs/proofs/ex-post-renyi.md for the ex-post parts.
    """

    _orders: tuple[float, ...]

    def _zero_cost(self) -> Floats:
        return np.zeros(len(self._orders))

    def _leaf_cost(self, leaf: PrivacyEvent) -> Floats:
        return renyi_divergences(leaf, self._orders)

    def _price_ex_post(self, loss: Fraction, cap: Fraction, span: Fraction) -> EventPrice:
        # Nothing is kept apart here: which of loss and divergence is smaller differs from order to order.
        return EventPrice(Fraction(0), ex_post_divergences(loss + span, cap + span, self._orders))


def worst_case_of(event: PrivacyEvent) -> PrivacyEvent:
    """Return the event as it stands before its run: ex-post parts at their caps.

    >>> worst_case_of(ExPostEvent(0.1, 1))
    ExPostEvent(loss=Fraction(1, 1), cap=Fraction(1, 1), before=Fraction(0, 1))
    """
    if check_event(event).is_leaf:
        return event
    match event:
        case ExPostEvent(loss, cap, paid):
            return event if loss == cap else ExPostEvent(cap, cap, paid)
        case Sequence(events) | Parallel(events) | Mixture(events):
            # The same object where nothing changes, so that comparing an outcome with its reservation stays cheap.
            before = tuple(map(worst_case_of, events))
            return event if all(map(operator.is_, before, events)) else replace(event, events=before)
        case Repeat() | PoissonSampled() | SampledWithoutReplacement():
            inner = worst_case_of(event.event)
            return event if inner is event.event else replace(event, event=inner)
    return event


def default_shares(epsilon: Fraction, delta: Fraction) -> dict[float, float]:
    """Share delta among Renyi orders: half for the best order of Gaussian steps, the rest over a coarse grid.

    A fixed share s costs an order ln(1/s)/(order - 1) of epsilon; with half of it on the likely order that is little.

    >>> round(sum(default_shares(Fraction(1), Fraction(1, 10**6)).values()), 9)
    1.0
    """
    target, allowed = float_up(epsilon), float_down(delta)
    orders = np.arange(2.0, 513.0)
    # The likely order is the one at which the largest concentrated budget converts to this epsilon and delta.
    budgets = (target - np.array([order_conversion(order, allowed) for order in orders])) / orders
    likely = float(orders[int(np.argmax(budgets))])
    others = sorted({float(order) for order in _SHARE_ORDERS} - {likely})
    return {likely: 0.5} | {order: 0.5 / len(others) for order in others}


def order_conversion(order: float, delta: float) -> float:
    """Return what this order adds to its divergence in the conversion to (epsilon, delta) (CKS20, Proposition 12).

    >>> round(order_conversion(2.0, 0.25), 6)
    0.0
    """
    # The bound is cut at zero, so a divergence large enough to stay above zero is added first and then removed.
    base = max(64.0, 2 * abs(math.log(order)))
    return float(rdp_to_epsilon(np.array([order]), np.array([base]), delta)[0]) - base


def _add_rounding_up(one: Any, other: Any) -> Any:
    """Add, upwards where the sum must be rounded: floats always, rationals once their denominators explode."""
    if isinstance(one, np.ndarray):
        return add_up(one, other)
    exact = one + other
    if exact == math.inf:  # a leaf without a pure epsilon
        return exact
    numerator, denominator = exact.as_integer_ratio()
    if denominator.bit_length() <= _LONGEST:
        return exact
    return Fraction(-((-numerator << _LONGEST) // denominator), 1 << _LONGEST)
