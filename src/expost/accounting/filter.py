"""Filters: refuse a step that could overrun, so that a whole adaptive interaction keeps one promise.

A step is *reserved* at its worst case and *settled* at its actual cost. What pure ex-post steps leave unused is given
back where a theorem allows it. Events, their parameters and the moment to stop may all depend on every answer so far.
Proofs: docs/proofs/filters.md and docs/proofs/ex-post-composition.md.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from expost.accounting.composition import approx_cost_of, pure_cost_of
from expost.accounting.concentrated import (
    ConcentratedTotal,
    concentrated_cost_of,
    gaussian_cost_of,
    pure_to_gdp,
    pure_to_zcdp,
)
from expost.accounting.event_price import (
    EventPrice,
    EventPricer,
    RenyiPricer,
    default_shares,
    order_conversion,
    worst_case_of,
)
from expost.accounting.privacy_event import PrivacyEvent
from expost.accounting.rounding import float_down, float_up, read_curve, read_shares
from expost.core import as_guarantee, explain_arguments
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
    """A step that may run.

    Parameters
    ----------
    number : int
        Its number within the filter.
    event : PrivacyEvent
        What will run.
    price : EventPrice
        Its worst case, which is charged until the reservation is settled.

    Examples
    --------
    >>> from expost.accounting import PureEvent
    >>> PureFilter(1).reserve(PureEvent(0.5)).event
    PureEvent(epsilon=Fraction(1, 2))
    """

    number: int
    event: PrivacyEvent
    price: EventPrice


class Filter(EventPricer):
    """A budget that fully adaptive steps are checked against before they run; threads may share it.

    It stays in its process, and a copy is the filter itself: two copies would each spend the whole budget.

    Parameters
    ----------
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import ExPostEvent, PureEvent
    >>> filter = PureFilter(1)
    >>> step = filter.reserve(ExPostEvent.promise(0.9))
    >>> filter.settle(step, ExPostEvent(0.2, 0.9))
    >>> filter.admits(PureEvent(0.8)), filter.admits(PureEvent(0.81))
    (True, False)
    """

    _owned_noun = "filter"

    def __init__(self, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__(adjacency)
        self._open: dict[int, Reservation] = {}
        self._numbers = itertools.count()

    @property
    @abc.abstractmethod
    def budget(self) -> Guarantee:
        """The promise that the whole interaction keeps."""

    @property
    def spent(self) -> EventPrice:
        """The charge so far: settled steps, and the worst cases of open ones."""
        with self._owner_lock:
            return self._sum_charges()

    @abc.abstractmethod
    def fits(self, total: EventPrice) -> bool:
        """Return whether a total price keeps the budget.

        Parameters
        ----------
        total : EventPrice
            The sum of prices of this filter's currency.

        Returns
        -------
        bool
        """

    def admits(self, event: PrivacyEvent) -> bool:
        """Return whether the event's worst case fits in what is left; nothing is charged.

        Parameters
        ----------
        event : PrivacyEvent
            The next step.

        Returns
        -------
        bool
        """
        return self.fits(self.spent + self.price_worst_case(event))

    def reserve(self, event: PrivacyEvent) -> Reservation:
        """Charge the worst case of a step before it runs.

        Parameters
        ----------
        event : PrivacyEvent
            The step.

        Returns
        -------
        Reservation

        Raises
        ------
        BudgetExceeded
            If the worst case does not fit; nothing is charged.
        """
        # Only the worst case is known before the run; admitting by anything smaller would let the budget be overrun.
        price = self.price_worst_case(event)
        with self._draw_alone():
            # Check and charge under one lock: two threads must not both take what is left.
            self._add_charge(price)
            reservation = Reservation(next(self._numbers), event, price)
            self._open[reservation.number] = reservation
        return reservation

    def settle(self, reservation: Reservation, outcome: PrivacyEvent | None = None) -> None:
        """Close a reservation and charge what the step cost.

        Parameters
        ----------
        reservation : Reservation
            What ``reserve`` returned.
        outcome : PrivacyEvent, optional
            The reserved event with the losses of its ex-post parts; without it the worst case stays charged.

        Raises
        ------
        InvalidRequest
            If the reservation is not open here, or the outcome is that of another event.
        """
        with self._draw_alone():
            # Identity, not equality: reservations of two filters can be equal.
            if not isinstance(reservation, Reservation) or self._open.get(reservation.number) is not reservation:
                raise InvalidRequest("Expected an open reservation of this filter", do="Settle each reservation once")
            price = reservation.price
            if outcome is not None:
                # Only losses may differ: with another cap it would be a step that was never admitted.
                if worst_case_of(outcome) != worst_case_of(reservation.event):
                    raise InvalidRequest(
                        "Expected the outcome of the event that was reserved", do="Change its losses only"
                    )
                price = self.price_event(outcome)
            # Closed only after pricing succeeded; on an error the worst case stays charged.
            del self._open[reservation.number]
            self._total = self._total + price

    def charge(self, event: PrivacyEvent) -> None:
        """Reserve and settle at once: for steps whose cost is known.

        Parameters
        ----------
        event : PrivacyEvent
            The step.

        Raises
        ------
        BudgetExceeded
            If the worst case does not fit; nothing is charged.
        """
        worst = self.price_worst_case(event)
        # Admission is by the worst case even though the loss is known: the loss depends on the data, admission must not.
        price = worst if event.is_leaf else self.price_event(event)
        with self._draw_alone():
            total = self._add_charge(worst)
            # The sum just checked is the new total, unless open steps are in it or the price is not the worst case.
            self._total = total if price is worst and not self._open else self._total + price

    def _add_charge(self, price: EventPrice) -> EventPrice:
        """Return all charges with one more, or refuse it."""
        if self.fits(total := self._sum_charges() + price):
            return total
        raise BudgetExceeded(
            "Cannot run this step because its worst case exceeds what is left of the budget",
            do="Lower its epsilon, or add noise",
        )

    def _sum_charges(self) -> EventPrice:
        """Add settled steps and open ones."""
        return sum((held.price for held in self._open.values()), self._total) if self._open else self._total


class BasicFilter(Filter):
    """An (epsilon, delta) budget by plain sums; pure ex-post steps are refunded.

    Proof: docs/proofs/ex-post-composition.md, Theorem 3.

    Parameters
    ----------
    epsilon : number > 0
        The limit of the sum of epsilons.
    delta : number >= 0
        The limit of the sum of deltas.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> BasicFilter(1, 1e-6).budget
    ApproxGuarantee(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000))
    """

    @explain_arguments
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

    def fits(self, total: EventPrice) -> bool:
        # Realized losses may stand for their caps because density ratios multiply, outcome by outcome.
        return bool(total.loss + total.cost <= self._epsilon) and (not total.failure or total.failure <= self._delta)

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | None:
        pair = approx_cost_of(leaf)
        return None if pair is None else pair[0]


class PureFilter(BasicFilter):
    """A pure epsilon budget by the exact sum, ex-post losses included.

    Proof: docs/proofs/ex-post-composition.md, Theorem 2.

    Parameters
    ----------
    epsilon : number > 0
        The limit of the sum of epsilons.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> PureFilter(1).budget
    PureGuarantee(epsilon=Fraction(1, 1))
    """

    @explain_arguments
    def __init__(self, epsilon: float | Fraction, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__(epsilon, 0, adjacency=adjacency)

    @property
    def budget(self) -> Guarantee:
        """The sum of epsilons."""
        return PureGuarantee(self._epsilon)

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | None:
        return pure_cost_of(leaf)


class ConcentratedFilter(Filter):
    """A rho budget by the exact sum, outside a sum of deltas (WRRW23, Theorem 1; docs/proofs/filters.md, Theorem 1).

    Parameters
    ----------
    rho : number > 0
        The limit of the sum of rhos.
    failure : number in [0, 1), default 0
        The limit of the sum of deltas of approximate steps.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> filter = ConcentratedFilter.for_approx(1, 1e-6)
    >>> round(float(filter.rho), 4), str(filter.budget)
    (0.0244, 'epsilon 1, delta 1e-06')
    """

    @explain_arguments
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
        self._budget: Guarantee = ZeroConcentratedGuarantee(self._rho)
        if self._failure:
            # rho-zCDP does not cover failures, so the promise is a pair for as much delta again.
            spare = min(self._failure, (1 - self._failure) / 2)
            epsilon = ConcentratedTotal(self._rho, Fraction(0)).epsilon(spare)
            self._budget = ApproxGuarantee(round_up(epsilon), self._failure + spare)
        super().__init__(adjacency)

    @classmethod
    def for_approx(
        cls, epsilon: float | Fraction, delta: float | Fraction, *, failure: float | Fraction = 0
    ) -> ConcentratedFilter:
        """Return the filter that ends at (epsilon, delta): adaptive advanced composition, optimally converted.

        Parameters
        ----------
        epsilon : number > 0
            The epsilon of the whole interaction.
        delta : number in (0, 1)
            The delta of the whole interaction.
        failure : number in [0, delta), default 0
            The part of delta for approximate steps.

        Returns
        -------
        ConcentratedFilter
        """
        target = rational(epsilon, "epsilon")
        spare = probability(delta, "delta") - rational(failure, "failure", positive=False)
        if spare <= 0:
            raise InvalidRequest("Expected a failure below delta", got=failure, do="Lower the failure")
        low, high = Fraction(0), target  # at rho = epsilon no order brings the conversion below epsilon
        for _ in range(60):
            middle = (low + high) / 2
            # The converted epsilon rises with rho, so bisection applies.
            inside = ConcentratedTotal(middle, Fraction(0)).epsilon(spare) <= float_down(target)
            low, high = (middle, high) if inside else (low, middle)
        # ``low`` was itself converted and fits; the bisection never returns an untested rho.
        found = cls(low, failure=failure)
        found._budget = ApproxGuarantee(target, probability(delta, "delta"))
        return found

    @property
    def rho(self) -> Fraction:
        """The limit of the sum of rhos."""
        return self._rho

    @property
    def budget(self) -> Guarantee:
        """The sum of rhos; with a failure, or made by ``for_approx``, an (epsilon, delta) that includes it."""
        return self._budget

    def fits(self, total: EventPrice) -> bool:
        return bool(total.cost <= self._rho) and (not total.failure or total.failure <= self._failure)

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | None:
        return concentrated_cost_of(leaf)

    def _price_ex_post(self, loss: Fraction, cap: Fraction, span: Fraction) -> EventPrice:
        # No refund: a realized loss must not take the cap's place (docs/proofs/ex-post-renyi.md).
        return EventPrice(Fraction(0), pure_to_zcdp(cap + span))


class GaussianFilter(Filter):
    """A budget of mu squared by the exact sum (ST22, Theorem 1; docs/proofs/filters.md, Theorem 3): adaptivity is free.

    Parameters
    ----------
    mu_squared : number > 0
        The limit of the sum of squares of mu.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> GaussianFilter(4).budget.mu
    2.0
    """

    @explain_arguments
    def __init__(self, mu_squared: float | Fraction, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        self._mu_squared = rational(mu_squared, "mu_squared")
        super().__init__(adjacency)

    @property
    def budget(self) -> GaussianGuarantee:
        """The sum of squares of mu."""
        return GaussianGuarantee(self._mu_squared)

    def fits(self, total: EventPrice) -> bool:
        # mu-GDP covers no failure event, so a step with a delta never fits.
        return bool(total.cost <= self._mu_squared) and not total.failure

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | None:
        return gaussian_cost_of(leaf)

    def _price_ex_post(self, loss: Fraction, cap: Fraction, span: Fraction) -> EventPrice:
        return EventPrice(Fraction(0), pure_to_gdp(cap + span))  # no refund, as in the concentrated filter


class RenyiFilter(RenyiPricer, Filter):
    """A Renyi curve, every order within its limit (FZ21, Theorem 3.1); ex-post steps are refunded order by order.

    Parameters
    ----------
    curve : pairs of an order > 1 and an epsilon >= 0
        The limit at each order.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import PureEvent
    >>> RenyiFilter(((2, 1), (8, 3))).admits(PureEvent(0.5))
    True
    """

    @explain_arguments
    def __init__(
        self,
        curve: Sequence[tuple[float | Fraction, float | Fraction]],
        *,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        self._budget = RenyiGuarantee(read_curve(curve))
        # An order is rounded up, a limit down: divergences grow with the order.
        self._orders = tuple(float_up(order) for order, _ in self._budget.curve)
        self._limits = np.array([float_down(limit) for _, limit in self._budget.curve])
        super().__init__(adjacency)

    @property
    def budget(self) -> RenyiGuarantee:
        """The limits, order by order."""
        return self._budget

    def fits(self, total: EventPrice) -> bool:
        # All orders, because the promise names all of them; each holds by itself (FZ21, Theorem 3.1).
        return bool((total.cost <= self._limits).all()) and not total.failure


class ApproxFilter(RenyiPricer, Filter):
    """An (epsilon, delta) budget over a grid of Renyi orders, each with a share of delta; prices every event.

    Continues while some order alone still proves the promise with its share (docs/proofs/filters.md, Theorem 2). Plain
    sums are the infinite order, which needs no share: what ``BasicFilter`` admits under the same limits, this one
    admits too. Pure ex-post steps cost at each order the smaller of their loss and of their cap's divergence
    (docs/proofs/ex-post-renyi.md).

    Parameters
    ----------
    epsilon : number > 0
        The epsilon of the whole interaction.
    delta : number in (0, 1)
        The delta of the whole interaction.
    failure : number in [0, delta), default 0
        The part of delta for approximate steps.
    shares : mapping of order to share, optional
        The share of the rest of delta of each Renyi order; by default half of it is on the order that is best for
        Gaussian steps.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import ExPostEvent
    >>> ApproxFilter(1, 1e-6).admits(ExPostEvent.promise(0.2))
    True
    """

    @explain_arguments
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
        given = default_shares(self._budget.epsilon, spare) if shares is None else read_shares(shares)
        self._orders = tuple(sorted(given))
        # A share below its nominal value is safe; 2e-12 covers the rounding of shares that sum to one.
        slices = (float_down(spare) * given[order] * (1 - 2e-12) for order in self._orders)
        conversions = np.array(
            [order_conversion(order, part) for order, part in zip(self._orders, slices, strict=True)]
        )
        # The conversions are already widened; the rounding of their subtraction is taken off the limit.
        limit = float_down(self._budget.epsilon)
        self._limits = limit * (1 - _ROUNDING) - conversions - np.abs(conversions) * _ROUNDING
        super().__init__(adjacency)

    @property
    def budget(self) -> ApproxGuarantee:
        """The pair that some order proves at every stop."""
        return self._budget

    @property
    def orders(self) -> tuple[float, ...]:
        """The finite orders, increasing."""
        return self._orders

    @property
    def limits(self) -> tuple[float, ...]:
        """The largest sum of divergences that proves the budget, at each finite order; below 0 where none does."""
        return tuple(self._limits.tolist())

    @property
    def failure(self) -> Fraction:
        """The limit of the sum of deltas of approximate steps."""
        return self._failure

    def fits(self, total: EventPrice) -> bool:
        # One order is enough, and it may change from step to step: the shares of delta pay for that choice.
        proved = total.loss <= self._budget.epsilon or bool((total.cost <= self._limits).any())
        return proved and (not total.failure or total.failure <= self._failure)

    def _price_leaf(self, leaf: PrivacyEvent) -> EventPrice:
        pair = approx_cost_of(leaf)
        # The infinite order adds exact epsilons; one Gaussian step ends it.
        return replace(super()._price_leaf(leaf), loss=math.inf if pair is None else pair[0])

    def _price_ex_post(self, loss: Fraction, cap: Fraction, span: Fraction) -> EventPrice:
        return replace(super()._price_ex_post(loss, cap, span), loss=loss)


@explain_arguments
def filter_for(
    budget: Guarantee | float | tuple[float, float] | Mapping[str, float],
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> Filter:
    """Return the filter whose promise is this budget.

    Parameters
    ----------
    budget : Guarantee, number, (epsilon, delta) pair or dict
        What the whole interaction must keep, in any form that ``expost.core.as_guarantee`` reads.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Returns
    -------
    Filter

    Raises
    ------
    InvalidRequest
        If the budget is not one of these.

    Examples
    --------
    >>> type(filter_for(1)).__name__, type(filter_for((1, 1e-6))).__name__
    ('PureFilter', 'ApproxFilter')
    """
    match as_guarantee(budget):
        case PureGuarantee(epsilon):
            return PureFilter(epsilon, adjacency=adjacency)
        case ApproxGuarantee(epsilon, delta):
            # Renyi orders rather than plain sums: tighter after a few steps, and every event has a price.
            return ApproxFilter(epsilon, delta, adjacency=adjacency)
        case ZeroConcentratedGuarantee(rho):
            return ConcentratedFilter(rho, adjacency=adjacency)
        case GaussianGuarantee(mu_squared):
            return GaussianFilter(mu_squared, adjacency=adjacency)
        case RenyiGuarantee(curve):
            return RenyiFilter(curve, adjacency=adjacency)
    raise InvalidRequest("Expected a budget of a known definition", do="Pass one of expost.core's guarantees")
