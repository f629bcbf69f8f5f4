"""Filters: refuse before a step that could overrun, so that a whole adaptive interaction keeps one promise.

A step is *reserved* at its worst case and *settled* at what it was found to cost; what pure ex-post steps leave unused is
given back where a theorem allows it. Events, their parameters and the moment to stop may all depend on every answer so
far. Proofs: docs/proofs/filters.md and docs/proofs/ex-post-composition.md.
"""

from __future__ import annotations

import abc
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting import approx, gaussian, pure, zcdp
from expost.accounting.by_orders import ByOrders
from expost.accounting.events import Event, ExPostEvent
from expost.accounting.price import Price, price_of, promised
from expost.accounting.rounding import float_down, float_up
from expost.accounting.scenario import check_adjacency
from expost.accounting.shares import conversion, default_shares
from expost.accounting.typed import curve_of, shares_of
from expost.core.adjacency import Adjacency
from expost.core.errors import BudgetExceeded, InvalidRequest
from expost.core.guarantee import (
    ApproxGuarantee,
    GaussianGuarantee,
    Guarantee,
    PureGuarantee,
    RenyiGuarantee,
    ZeroConcentratedGuarantee,
)
from expost.core.one_process import OneProcess
from expost.core.rational import probability, rational, round_up

__all__ = [
    "ApproxFilter",
    "BasicFilter",
    "ConcentratedFilter",
    "Filter",
    "GaussianFilter",
    "PureFilter",
    "RenyiFilter",
    "Reservation",
    "filter_for",
]

_ROUNDING = 2.0**-48  # of the addition in a comparison of floats: 16 ulps


@dataclass(frozen=True)
class Reservation:
    """A step that may run: what was asked for, and its worst case.

    >>> from expost.accounting import PureEvent
    >>> PureFilter(1).reserve(PureEvent(0.5)).event
    PureEvent(epsilon=Fraction(1, 2))
    """

    number: int
    event: Event
    price: Price


class Filter(OneProcess, abc.ABC):
    """A budget that fully adaptive steps are checked against before they run; safe to share between threads.

    It stays in its process, and a copy is the filter itself: two of one kind would each spend the whole budget.

    >>> from expost.accounting import ExPostEvent, PureEvent
    >>> filter = PureFilter(1)
    >>> step = filter.reserve(ExPostEvent.promise(0.9))
    >>> filter.settle(step, ExPostEvent(0.2, 0.9))
    >>> filter.admits(PureEvent(0.8)), filter.admits(PureEvent(0.81))
    (True, False)
    """

    _called = "filter"

    def __init__(self, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__()
        self.adjacency = Adjacency.parse(adjacency)
        self._total = Price(Fraction(0), self._nothing())
        self._open: dict[int, Reservation] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @property
    @abc.abstractmethod
    def budget(self) -> Guarantee:
        """What the whole interaction keeps."""

    @property
    def spent(self) -> Price:
        """What is charged so far: settled steps, and the worst cases of open ones."""
        with self._lock:
            return self._sum()

    def admits(self, event: Event) -> bool:
        """Whether the event's worst case fits in what is left; nothing is charged."""
        return self._fits(self.spent + self._worst_price(event))

    def reserve(self, event: Event) -> Reservation:
        """Charge the worst case, or refuse with ``BudgetExceeded``."""
        self._check_process()
        price = self._worst_price(event)
        with self._lock:
            self._checked(price)
            reservation = Reservation(next(self._numbers), event, price)
            self._open[reservation.number] = reservation
        return reservation

    def settle(self, reservation: Reservation, outcome: Event | None = None) -> None:
        """Close a reservation; ``outcome`` is the same event with the losses that its ex-post parts came to."""
        self._check_process()
        with self._lock:
            if not isinstance(reservation, Reservation) or self._open.get(reservation.number) is not reservation:
                raise InvalidRequest("Expected an open reservation of this filter", do="Settle each reservation once")
            price = reservation.price if outcome is None else self._outcome_price(reservation, outcome)
            del self._open[reservation.number]
            self._total = self._total + price

    def charge(self, event: Event) -> None:
        """Reserve and settle at once: for steps whose cost is known."""
        self._check_process()
        worst = self._worst_price(event)
        price = worst if event.is_leaf else self._price(event)
        with self._lock:
            checked = self._checked(worst)
            # What was just added up is the new total, unless open steps are in it or the price is not the worst case.
            self._total = checked if price is worst and not self._open else self._total + price

    def _checked(self, price: Price) -> Price:
        if self._fits(total := self._sum() + price):
            return total
        raise BudgetExceeded("Expected a worst case within what is left of the budget", do="Ask for less")

    def _sum(self) -> Price:
        """Settled steps and open ones."""
        return sum((held.price for held in self._open.values()), self._total) if self._open else self._total

    def _outcome_price(self, reservation: Reservation, outcome: Event) -> Price:
        if promised(outcome) != promised(reservation.event):
            raise InvalidRequest("Expected the outcome of the event that was reserved", do="Change its losses only")
        return self._price(outcome)

    def _worst_price(self, event: Event) -> Price:
        """The price before the run; the common cases without building an event."""
        if isinstance(event, ExPostEvent):
            return self._ex_post(event.cap, event.cap)
        return self._price(promised(event))

    def _price(self, event: Event) -> Price:
        check_adjacency(event, self.adjacency)
        return price_of(event, self._cost_of, self._ex_post)

    def _ex_post(self, loss: Fraction, cap: Fraction) -> Price:
        """What a pure ex-post part costs: what it came to, kept apart from the rest."""
        return Price(loss, self._nothing())

    def _nothing(self) -> Any:
        return Fraction(0)

    @abc.abstractmethod
    def _cost_of(self, leaf: Event) -> Any:
        """What a leaf costs in the filter's currency, or None."""

    @abc.abstractmethod
    def _fits(self, total: Price) -> bool:
        """Whether a total keeps the promise."""


class BasicFilter(Filter):
    """(epsilon, delta) by plain sums; pure ex-post steps are refunded (docs/proofs/ex-post-composition.md, Theorem 3).

    >>> BasicFilter(1, 1e-6).budget
    ApproxGuarantee(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000))
    """

    def __init__(
        self, epsilon: float | Fraction, delta: float | Fraction, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE
    ) -> None:
        self._epsilon = rational(epsilon, "epsilon")
        self._delta = rational(delta, "delta", positive=False)
        super().__init__(adjacency)

    @property
    def budget(self) -> Guarantee:
        """The sum of epsilons and the sum of deltas."""
        return ApproxGuarantee(self._epsilon, self._delta)

    def _cost_of(self, leaf: Event) -> Fraction | None:
        pair = approx.cost_of(leaf)
        return None if pair is None else pair[0]

    def _fits(self, total: Price) -> bool:
        return bool(total.loss + total.cost <= self._epsilon) and (not total.failure or total.failure <= self._delta)


class PureFilter(BasicFilter):
    """Pure epsilon by the exact sum, ex-post losses included (docs/proofs/ex-post-composition.md, Theorem 2).

    >>> PureFilter(1).budget
    PureGuarantee(epsilon=Fraction(1, 1))
    """

    def __init__(self, epsilon: float | Fraction, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__(epsilon, 0, adjacency=adjacency)

    @property
    def budget(self) -> Guarantee:
        """The sum of epsilons."""
        return PureGuarantee(self._epsilon)

    def _cost_of(self, leaf: Event) -> Fraction | None:
        return pure.cost_of(leaf)


class ConcentratedFilter(Filter):
    """rho by the exact sum (WRRW23, Theorem 1; docs/proofs/filters.md, Theorem 1), outside a sum of deltas.

    >>> filter = ConcentratedFilter.for_approx(1, 1e-6)
    >>> round(float(filter.rho), 4), str(filter.budget)
    (0.0244, 'epsilon 1, delta 1e-06')
    """

    def __init__(
        self,
        rho: float | Fraction,
        *,
        failure: float | Fraction = 0,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        self._rho, self._failure = rational(rho, "rho"), rational(failure, "failure", positive=False)
        if self._failure >= 1:
            raise InvalidRequest("Expected a failure below 1", got=failure, do="Lower the failure")
        self._budget = _concentrated(self._rho, self._failure)
        super().__init__(adjacency)

    @classmethod
    def for_approx(
        cls, epsilon: float | Fraction, delta: float | Fraction, *, failure: float | Fraction = 0
    ) -> ConcentratedFilter:
        """The filter that ends at (epsilon, delta): adaptive advanced composition, with the optimised conversion."""
        target = rational(epsilon, "epsilon")
        spare = probability(delta, "delta") - rational(failure, "failure", positive=False)
        if spare <= 0:
            raise InvalidRequest("Expected a failure below delta", got=failure, do="Lower the failure")
        low, high = Fraction(0), target  # at rho = epsilon no order brings the conversion below epsilon
        for _ in range(60):
            middle = (low + high) / 2
            inside = zcdp.ConcentratedTotal(middle, Fraction(0)).epsilon(spare) <= float_down(target)
            low, high = (middle, high) if inside else (low, middle)
        found = cls(low, failure=failure)
        found._budget = ApproxGuarantee(target, probability(delta, "delta"))
        return found

    @property
    def rho(self) -> Fraction:
        """The limit of the sum of rhos."""
        return self._rho

    @property
    def budget(self) -> Guarantee:
        """The sum of rhos; with a failure, or made for an (epsilon, delta), such a pair that includes it."""
        return self._budget

    def _cost_of(self, leaf: Event) -> Fraction | None:
        return zcdp.cost_of(leaf)

    def _ex_post(self, loss: Fraction, cap: Fraction) -> Price:
        # No refund: a realised loss must not take the cap's place (docs/proofs/ex-post-renyi.md).
        return Price(Fraction(0), zcdp.pure_to_zcdp(cap))

    def _fits(self, total: Price) -> bool:
        return bool(total.cost <= self._rho) and (not total.failure or total.failure <= self._failure)


def _concentrated(rho: Fraction, failure: Fraction) -> Guarantee:
    """What rho outside of a failure keeps: rho-zCDP says nothing of failures, so the pair for as much delta again."""
    if not failure:
        return ZeroConcentratedGuarantee(rho)
    spare = min(failure, (1 - failure) / 2)
    epsilon = zcdp.ConcentratedTotal(rho, Fraction(0)).epsilon(spare)
    return ApproxGuarantee(round_up(epsilon), failure + spare)


class GaussianFilter(Filter):
    """The square of mu by the exact sum (ST22, Theorem 1; docs/proofs/filters.md, Theorem 3): adaptivity is free.

    >>> GaussianFilter(4).budget.mu
    2.0
    """

    def __init__(self, mu_squared: float | Fraction, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        self._mu_squared = rational(mu_squared, "mu_squared")
        super().__init__(adjacency)

    @property
    def budget(self) -> GaussianGuarantee:
        """The sum of squares of mu."""
        return GaussianGuarantee(self._mu_squared)

    def _cost_of(self, leaf: Event) -> Fraction | None:
        return gaussian.cost_of(leaf)

    def _ex_post(self, loss: Fraction, cap: Fraction) -> Price:
        return Price(Fraction(0), gaussian.pure_to_gdp(cap))  # no refund, as in the concentrated filter

    def _fits(self, total: Price) -> bool:
        return bool(total.cost <= self._mu_squared) and not total.failure


class RenyiFilter(ByOrders, Filter):
    """A Renyi curve, every order within its limit (FZ21, Theorem 3.1); ex-post steps are refunded order by order.

    >>> from expost.accounting import PureEvent
    >>> RenyiFilter(((2, 1), (8, 3))).admits(PureEvent(0.5))
    True
    """

    def __init__(
        self,
        curve: Sequence[tuple[float | Fraction, float | Fraction]],
        *,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        self._budget = RenyiGuarantee(curve_of(curve))
        # An order is rounded up, a limit down: divergences grow with the order.
        self._orders = tuple(float_up(order) for order, _ in self._budget.curve)
        self._limits = np.array([float_down(limit) for _, limit in self._budget.curve])
        super().__init__(adjacency)

    @property
    def budget(self) -> RenyiGuarantee:
        """The limits, order by order."""
        return self._budget

    def _fits(self, total: Price) -> bool:
        return bool((total.cost <= self._limits).all()) and not total.failure


class ApproxFilter(ByOrders, Filter):
    """(epsilon, delta) over a grid of Renyi orders, each with a share of delta; prices every event.

    Continues while some order alone still proves the promise with its share (docs/proofs/filters.md, Theorem 2). Pure
    ex-post steps cost at each order the smaller of what they came to and of their cap's divergence
    (docs/proofs/ex-post-renyi.md); deltas of approximate steps come out of ``failure``.

    >>> from expost.accounting import ExPostEvent
    >>> ApproxFilter(1, 1e-6).admits(ExPostEvent.promise(0.2))
    True
    """

    def __init__(
        self,
        epsilon: float | Fraction,
        delta: float | Fraction,
        *,
        failure: float | Fraction = 0,
        shares: Mapping[float, float] | None = None,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        self._budget = ApproxGuarantee(rational(epsilon, "epsilon"), rational(delta, "delta"))
        self._failure = rational(failure, "failure", positive=False)
        spare = self._budget.delta - self._failure
        if spare <= 0:
            raise InvalidRequest("Expected a failure below delta", got=failure, do="Lower the failure")
        given = default_shares(self._budget.epsilon, spare) if shares is None else shares_of(shares)
        self._room = float_down(self._budget.epsilon) * (1 - _ROUNDING)
        self._orders = tuple(sorted(given))
        slices = (float_down(spare) * given[order] * (1 - 2e-12) for order in self._orders)
        self._conversion = np.array([conversion(order, part) for order, part in zip(self._orders, slices, strict=True)])
        super().__init__(adjacency)

    @property
    def budget(self) -> ApproxGuarantee:
        """What some order proves at every stop."""
        return self._budget

    def _fits(self, total: Price) -> bool:
        # The conversions are already widened; the addition's own rounding is taken off the room.
        return bool((total.cost + self._conversion).min() <= self._room) and (
            not total.failure or total.failure <= self._failure
        )


def filter_for(budget: Guarantee, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> Filter:
    """The filter whose promise is this budget.

    >>> type(filter_for(PureGuarantee(1))).__name__
    'PureFilter'
    """
    match budget:
        case PureGuarantee(epsilon):
            return PureFilter(epsilon, adjacency=adjacency)
        case ApproxGuarantee(epsilon, delta):
            return ApproxFilter(epsilon, delta, adjacency=adjacency)
        case ZeroConcentratedGuarantee(rho):
            return ConcentratedFilter(rho, adjacency=adjacency)
        case GaussianGuarantee(mu_squared):
            return GaussianFilter(mu_squared, adjacency=adjacency)
        case RenyiGuarantee(curve):
            return RenyiFilter(curve, adjacency=adjacency)
    raise InvalidRequest("Expected a budget of a known definition", do="Pass one of expost.core's guarantees")
