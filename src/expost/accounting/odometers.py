"""Odometers: what an adaptive interaction has cost so far, readable at any moment.

A report holds at all moments at once: except with the stated failure probability, the privacy loss never exceeds any of the
numbers shown along the way, however the steps and the moments of reading were chosen. Proofs: docs/proofs/filters.md and
docs/proofs/boundaries.md.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting import pure, zcdp
from expost.accounting.boundaries import LinearBoundary, MixtureBoundary
from expost.accounting.by_orders import ByOrders
from expost.accounting.events import Event, GaussianEvent, checked_event
from expost.accounting.price import Price, price_of
from expost.accounting.rounding import Floats, float_down, float_up
from expost.accounting.scenario import check_adjacency
from expost.accounting.shares import default_shares
from expost.accounting.typed import shares_of
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest
from expost.core.loss import ApproxLoss, Loss, PureLoss
from expost.core.rational import probability, rational, round_up

__all__ = ["ConcentratedOdometer", "GaussianOdometer", "Odometer", "PureOdometer", "RenyiOdometer"]

_NEWTON_STEPS = 60


class Odometer(abc.ABC):
    """Steps are recorded after they ran, pure ex-post ones at what they came to.

    >>> from expost.accounting import ExPostEvent, PureEvent
    >>> odometer = PureOdometer()
    >>> odometer.record(PureEvent(0.5))
    >>> odometer.record(ExPostEvent(0.1, 1))
    >>> round(odometer.epsilon, 9)
    0.6
    """

    def __init__(
        self, failure_probability: float | Fraction | None, adjacency: Adjacency | str = Adjacency.ADD_REMOVE
    ) -> None:
        chosen = failure_probability
        self.failure_probability = Fraction(0) if chosen is None else probability(chosen, "failure_probability")
        self.adjacency = Adjacency.parse(adjacency)
        self._total = Price(Fraction(0), self._nothing())

    def record(self, event: Event) -> None:
        """Add a step; approximate ones are refused, because their failures are not in the failure probability."""
        check_adjacency(checked_event(event), self.adjacency)
        price = price_of(event, self._cost_of, self._ex_post)
        if price.failure > 0:
            raise InvalidRequest("Expected steps without a delta of their own", do="Use a filter, or another mechanism")
        self._total = self._total + price

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far: the exact ex-post part and the rest at the failure probability."""
        rest = self._rest(self._total.cost)
        return math.nextafter(rest + float_up(self._total.loss), math.inf) if rest else float_up(self._total.loss)

    def loss(self) -> Loss:
        """The same as a bill."""
        return ApproxLoss(round_up(self.epsilon), self.failure_probability)

    def _ex_post(self, loss: Fraction, cap: Fraction) -> Price:
        return Price(loss, self._nothing())

    def _nothing(self) -> Any:
        return Fraction(0)

    @abc.abstractmethod
    def _cost_of(self, leaf: Event) -> Any:
        """What a leaf costs in the odometer's currency, or None."""

    @abc.abstractmethod
    def _rest(self, cost: Any) -> float:
        """The bound on the loss of all that was not pure ex-post."""


class PureOdometer(Odometer):
    """The exact sum of pure losses, ex-post ones included; it cannot fail (docs/proofs/ex-post-composition.md, Theorem 1).

    >>> PureOdometer().loss()
    PureLoss(epsilon=Fraction(0, 1))
    """

    def __init__(self, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__(None, adjacency)

    def loss(self) -> Loss:
        """The exact bill."""
        return PureLoss(self._total.loss + self._total.cost)

    @property
    def epsilon(self) -> float:
        """The sum, as a float that is not below it."""
        return float_up(self._total.loss + self._total.cost)

    def _cost_of(self, leaf: Event) -> Fraction | None:
        return pure.cost_of(leaf)

    def _rest(self, cost: Any) -> float:
        return float_up(cost)


class RenyiOdometer(ByOrders, Odometer):
    """A mixture over Renyi orders; prices every event without a delta (docs/proofs/filters.md, Theorem 4).

    ``expected_epsilon`` says where the report should be tightest; it is valid everywhere.

    >>> from expost.accounting import GaussianEvent
    >>> odometer = RenyiOdometer(1e-6, expected_epsilon=5)
    >>> odometer.record(GaussianEvent(1))
    >>> 5.2 < odometer.epsilon < 6.0
    True
    """

    def __init__(
        self,
        failure_probability: float | Fraction,
        *,
        expected_epsilon: float | Fraction = 1,
        shares: Mapping[float, float] | None = None,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        delta = probability(failure_probability, "failure_probability")
        expected = rational(expected_epsilon, "expected_epsilon")
        given = default_shares(expected, delta) if shares is None else shares_of(shares)
        self._orders = tuple(sorted(given))
        self._log_shares = np.log([given[order] * (1 - 2e-12) for order in self._orders])
        super().__init__(failure_probability, adjacency)

    def _rest(self, cost: Floats) -> float:
        """The root in e of sum_j share_j exp((order_j - 1)(e - cost_j)) = 1/delta, from above by Newton's method."""
        if not cost.any():
            return 0.0
        target, rates = -math.log(float_down(self.failure_probability)), np.array(self._orders) - 1
        known = np.isfinite(cost)
        rates, cost, shares = rates[known], cost[known], self._log_shares[known]
        epsilon = float(np.min(cost + (target - shares) / rates))  # any single order proves this much
        for _ in range(_NEWTON_STEPS):
            terms = shares + rates * (epsilon - cost)
            top = float(terms.max())
            weights = np.exp(terms - top)
            step = (
                (top + math.log(float(weights.sum())) - target) * float(weights.sum()) / float(np.dot(rates, weights))
            )
            if step <= 1e-13 * abs(epsilon):
                break
            epsilon -= step
        # The logarithm of the sum is convex and increasing: the iterates descend to the root and stay above it.
        return max(0.0, epsilon + 2.0**-40 * (1 + abs(epsilon) + float(np.max(cost))))


class ConcentratedOdometer(Odometer):
    """Zero-concentrated steps under a boundary, straight or mixed (docs/proofs/boundaries.md).

    >>> from expost.accounting import ConcentratedEvent
    >>> odometer = ConcentratedOdometer(1e-6, tuned_at=0.5)
    >>> odometer.record(ConcentratedEvent(0.5))
    >>> 5.7 < odometer.epsilon < 6.3
    True
    """

    def __init__(
        self,
        failure_probability: float | Fraction,
        *,
        tuned_at: float | Fraction,
        linear: bool = False,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        clock = 2 * rational(tuned_at, "tuned_at")
        self.boundary: LinearBoundary | MixtureBoundary = (
            LinearBoundary(failure_probability, tuned_at=clock)
            if linear
            else MixtureBoundary(failure_probability, tuned_at=clock, concentrated=True)
        )
        super().__init__(failure_probability, adjacency)

    def _cost_of(self, leaf: Event) -> Fraction | None:
        return zcdp.cost_of(leaf)

    def _rest(self, cost: Fraction) -> float:
        # A step of rho moves the clock as far as a Gaussian one with mu squared 2 rho.
        return self.boundary.epsilon(float_up(2 * cost)) if cost else 0.0


class GaussianOdometer(Odometer):
    """Gaussian steps, so Gaussian noise reduction too, under a boundary (WRWR22, Section 3; docs/proofs/boundaries.md).

    Pure steps add their epsilon: only a truly Gaussian loss is Brownian motion in this clock.

    >>> from expost.accounting import GaussianEvent
    >>> odometer = GaussianOdometer(1e-6, tuned_at=1)
    >>> odometer.record(GaussianEvent(2))
    >>> 2.8 < odometer.epsilon < 3.1
    True
    """

    def __init__(
        self,
        failure_probability: float | Fraction,
        *,
        tuned_at: float | Fraction,
        linear: bool = False,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        kind = LinearBoundary if linear else MixtureBoundary
        self.boundary: LinearBoundary | MixtureBoundary = kind(failure_probability, tuned_at=tuned_at)
        super().__init__(failure_probability, adjacency)

    def _cost_of(self, leaf: Event) -> Fraction | Price | None:
        if isinstance(leaf, GaussianEvent):
            return leaf.mu_squared
        epsilon = pure.cost_of(leaf)
        return None if epsilon is None else Price(epsilon, self._nothing())

    def _rest(self, cost: Fraction) -> float:
        return self.boundary.epsilon(float_up(cost)) if cost else 0.0
