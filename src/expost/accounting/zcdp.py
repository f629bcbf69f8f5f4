"""Zero-concentrated privacy: exact rationals that add, and the optimised way back to (epsilon, delta)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from expost.accounting import approx, pure
from expost.accounting.events import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    PoissonSampled,
    SampledWithoutReplacement,
)
from expost.accounting.pure import summed
from expost.accounting.rounding import SMALLEST, Floats, float_down, float_up
from expost.accounting.scenario import Scenario
from expost.accounting.tails import bound_by_epsilons
from expost.accounting.typed import amount_of
from expost.core.meaning import concentrated_loss_bound

__all__ = [
    "ConcentratedTotal",
    "amplifies",
    "cost_of",
    "failure_of",
    "pure_to_zcdp",
    "rdp_to_delta",
    "rdp_to_epsilon",
    "total",
]

_LEAST_ORDER = math.nextafter(1.0, 2.0)  # what an order above 1 may be rounded to; within the slack of its cost
_SLACK = 2.0**-44  # 256 ulps of the largest term: each conversion adds four terms of at most two roundings
_ZERO = Fraction(0)
_SAMPLED = (PoissonSampled, SampledWithoutReplacement)
_TANH_ERROR = 2.0**-48  # two roundings and a library's tanh, 16 ulps


@dataclass(frozen=True)
class ConcentratedTotal:
    """rho-zCDP of a whole scenario, outside an event of probability ``failure`` (BS16, Definition 8.1).

    >>> round(ConcentratedTotal(Fraction(1, 2), Fraction(0)).epsilon(Fraction(1, 10**6)), 3)
    5.222
    """

    rho: Fraction
    failure: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """The epsilon at this delta, optimised over all orders (CKS20, Proposition 12)."""
        if self.rho == 0 and delta >= self.failure:
            return 0.0
        if delta <= self.failure:
            return math.inf
        rho, left = float_up(self.rho), float_down(delta - self.failure)
        # The unoptimised conversion has its minimum at this order (BS16, Proposition 1.3); the optimum is nearby.
        centre = math.sqrt(math.log(1 / left) / rho)
        return _best(lambda orders: rdp_to_epsilon(orders, rho * orders, left), centre)

    def delta(self, epsilon: Fraction) -> float:
        """The delta at this epsilon, optimised over all orders (CKS20, Proposition 12)."""
        rho, allowed = float_up(self.rho), float_down(epsilon)
        if rho == 0:
            return float_up(self.failure)
        # The first part is where the exponent alone is smallest, the second where the factor in front of it takes over.
        centre = max((allowed - rho) / (2 * rho), 0.0) + math.sqrt(1 / (2 * rho))
        best = _best(lambda orders: rdp_to_delta(orders, rho * orders, allowed), centre)
        return min(1.0, math.nextafter(best + float_up(self.failure), math.inf))

    def loss_bound(self, chance: Fraction) -> float:
        """The loss that is exceeded with this probability at most: Chernoff's bound, where nothing else can fail."""
        if self.failure:
            return bound_by_epsilons(self.epsilon, self.failure, chance)
        return concentrated_loss_bound(self.rho, chance)


def rdp_to_epsilon(orders: Floats, costs: Floats, delta: float) -> Floats:
    """The epsilon that each order alone proves: R + ln(1 - 1/a) - ln(delta a)/(a - 1) (CKS20, Proposition 12).

    >>> bool(rdp_to_epsilon(np.array([10.0]), np.array([1.0]), 1e-5) < 1 + np.log(1e5) / 9)
    True
    """
    orders = np.maximum(orders, _LEAST_ORDER)
    log_terms = (math.log(delta) + np.log(orders)) / (orders - 1)
    value = costs + np.log1p(-1 / orders) - log_terms
    return np.maximum(0.0, value + _SLACK * (costs + 1 + np.abs(log_terms)))


def rdp_to_delta(orders: Floats, costs: Floats, epsilon: float) -> Floats:
    """The delta that each order alone proves: e^((a - 1)(R - epsilon)) (1 - 1/a)^(a - 1) / a (CKS20, Proposition 12)."""
    orders = np.maximum(orders, _LEAST_ORDER)
    exponent = (orders - 1) * (costs - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    slack = _SLACK * (1 + (orders - 1) * (costs + abs(epsilon) + 1))
    return np.exp(np.clip(exponent + slack, math.log(SMALLEST), 0.0))


def pure_to_zcdp(epsilon: Fraction) -> Fraction:
    """epsilon-DP gives rho = epsilon tanh(epsilon / 2), at most epsilon^2 / 2, and no smaller rho does (docs/proofs/pure-to-zcdp.md).

    >>> float(pure_to_zcdp(Fraction(1))) < 0.4622
    True
    """
    e = float_up(amount_of(epsilon, "epsilon"))
    return Fraction(e * math.tanh(e / 2) * (1 + _TANH_ERROR))


def cost_of(event: Event) -> Fraction | None:
    """The rho of a leaf, or None where it has none.

    >>> cost_of(GaussianEvent(2))
    Fraction(1, 8)
    """
    match event:
        case GaussianEvent():
            return event.mu_squared / 2  # BS16, Proposition 1.6
        case ConcentratedEvent(rho):
            return rho
        case DiscreteGaussianEvent():
            return event.rho  # CKS20, Theorems 4 and 14
        case ExponentialEvent(epsilon):
            return min(epsilon**2 / 8, pure_to_zcdp(epsilon))  # CR21, Lemma 3.2; docs/proofs/bounded-range.md
        case ApproxEvent(epsilon):
            return pure_to_zcdp(epsilon)  # outside an event of probability delta
        case PoissonSampled() | SampledWithoutReplacement():
            return _sampled_cost(event)
    epsilon_alone = pure.cost_of(event)
    return None if epsilon_alone is None else pure_to_zcdp(epsilon_alone)


def total(scenario: Scenario) -> ConcentratedTotal | None:
    """Sums over all leaves (BS16, Lemma 2.3; Lemma 8.2 for failures), or None where a leaf has no rho."""
    rho = failure = Fraction(0)
    for leaf, count in scenario.leaves:
        cost = cost_of(leaf)
        if cost is None:
            return None
        rho += cost * count
        failure += failure_of(leaf) * count
    return ConcentratedTotal(rho, failure) if failure < 1 else None


def failure_of(event: Event) -> Fraction:
    """The probability outside which a leaf keeps its rho: the delta of approximate ones, also inside a sample.

    >>> failure_of(ApproxEvent(1, 1e-6))
    Fraction(1, 1000000)
    """
    if isinstance(event, ApproxEvent):
        return event.delta
    if not isinstance(event, _SAMPLED):
        return _ZERO
    inside = summed(event.event, failure_of) or _ZERO
    return inside * event.rate if inside and amplifies(event) else inside


def amplifies(event: PoissonSampled | SampledWithoutReplacement) -> bool:
    """Whether a sampled event is priced as one (epsilon, delta) mechanism on a sample (BBG18, Theorems 8 and 9).

    Otherwise it is priced as if all units were in the sample; failures go with the choice.

    >>> amplifies(PoissonSampled(0.1, ApproxEvent(1, 1e-6)))
    True
    """
    pair, whole = approx.cost_of(event), summed(event.event, cost_of)
    return pair is not None and (whole is None or pure_to_zcdp(pair[0]) <= whole)


def _sampled_cost(event: PoissonSampled | SampledWithoutReplacement) -> Fraction | None:
    # Concentrated privacy does not amplify, but a sample never costs more than the whole (joint quasi-convexity).
    pair, whole = approx.cost_of(event), summed(event.event, cost_of)
    return whole if pair is None or whole is None else min(whole, pure_to_zcdp(pair[0]))


def _best(bound: Callable[[Floats], Floats], centre: float) -> float:
    """The smallest value of a bound over orders; every order is valid, so the search needs no precision."""
    offsets = centre * np.geomspace(1e-3, 1e3, 601)
    for width in (1.03, 1.0002):
        best = offsets[int(np.argmin(bound(1 + offsets)))]
        offsets = best * np.geomspace(1 / width, width, 401)
    return float(np.min(bound(1 + offsets)))
