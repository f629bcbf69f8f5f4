"""Two currencies for Gaussian noise: zero-concentrated privacy (rho adds) and Gaussian privacy (mu squared adds).

Both are exact rationals while they are added. The conversion of rho to (epsilon, delta) is optimized over all orders;
the privacy profile of mu is known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy

from expost.accounting.composition import add_costs, approx_cost_of, largest_cost, leaves_inside, pure_cost_of
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    ExponentialEvent,
    GaussianEvent,
    Mixture,
    PoissonSampled,
    PrivacyEvent,
    SampledWithoutReplacement,
)
from expost.accounting.rounding import MARGIN, SMALLEST, Floats, float_down, float_up, read_amount, sqrt_up
from expost.accounting.scenario import SampledEvent, Scenario
from expost.accounting.tradeoff_curve import bound_by_epsilons, smallest_epsilon
from expost.core.meaning import concentrated_loss_bound, gaussian_loss_bound

__all__ = [
    "ConcentratedTotal",
    "GaussianTotal",
    "amplifies_failure",
    "concentrated_cost_of",
    "failure_of",
    "gaussian_cost_of",
    "gaussian_delta",
    "pure_to_gdp",
    "pure_to_zcdp",
    "rdp_to_delta",
    "rdp_to_epsilon",
    "sum_concentrated",
    "sum_gaussian",
]

_ULP = 2.0**-52
_LEAST_ORDER = math.nextafter(1.0, 2.0)  # what an order above 1 may be rounded to; within the slack of its cost
_SLACK = 2.0**-44  # 256 ulps of the largest term: each conversion adds four terms of at most two roundings
_TANH_ERROR = 2.0**-48  # two roundings and a library's tanh, 16 ulps
_ZERO = Fraction(0)


@dataclass(frozen=True)
class ConcentratedTotal:
    """rho-zCDP of a whole scenario, outside an event of probability ``failure`` (BS16, Definition 8.1).

    >>> round(ConcentratedTotal(Fraction(1, 2), Fraction(0)).epsilon(Fraction(1, 10**6)), 3)
    5.222
    """

    rho: Fraction
    failure: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta, optimized over all orders (CKS20, Proposition 12)."""
        if self.rho == 0 and delta >= self.failure:
            return 0.0
        if delta <= self.failure:
            return math.inf
        rho, left = float_up(self.rho), float_down(delta - self.failure)
        # The simple conversion has its minimum at this order (BS16, Proposition 1.3); the optimum is nearby.
        center = math.sqrt(math.log(1 / left) / rho)
        return _minimize_over_orders(lambda orders: rdp_to_epsilon(orders, rho * orders, left), center)

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon, optimized over all orders (CKS20, Proposition 12)."""
        rho, allowed = float_up(self.rho), float_down(epsilon)
        if rho == 0:
            return float_up(self.failure)
        # The first part is where the exponent alone is smallest, the second where the factor in front takes over.
        center = max((allowed - rho) / (2 * rho), 0.0) + math.sqrt(1 / (2 * rho))
        best = _minimize_over_orders(lambda orders: rdp_to_delta(orders, rho * orders, allowed), center)
        return min(1.0, math.nextafter(best + float_up(self.failure), math.inf))

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss exceeded with at most this probability: Chernoff's bound, where nothing else can fail."""
        if self.failure:
            return bound_by_epsilons(self.epsilon, self.failure, chance)
        return concentrated_loss_bound(self.rho, chance)


@dataclass(frozen=True)
class GaussianTotal:
    """mu-Gaussian differential privacy of a whole scenario, by the square of mu.

    >>> round(GaussianTotal(Fraction(1)).epsilon(Fraction(1, 10**6)), 4)
    4.8866
    """

    mu_squared: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta by the exact profile (DRS22, Corollary 2.13; BW18, Theorem 8)."""
        if delta == 0 and self.mu_squared > 0:
            return math.inf
        return smallest_epsilon(self._delta_at, float_down(delta))

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon by the exact profile, rounded up."""
        return self._delta_at(float_down(epsilon))

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss exceeded with at most this probability, by the exact tails."""
        return gaussian_loss_bound(self.mu_squared, chance)

    def _delta_at(self, epsilon: float) -> float:
        """Return the delta at a float epsilon."""
        return float(gaussian_delta(np.array([epsilon]), self._mu)[0]) if self.mu_squared else 0.0

    @cached_property
    def _mu(self) -> float:
        return float_up(sqrt_up(self.mu_squared))


def rdp_to_epsilon(orders: Floats, costs: Floats, delta: float) -> Floats:
    """Return the epsilon that each order alone proves: R + ln(1 - 1/a) - ln(delta a)/(a - 1) (CKS20, Proposition 12).

    >>> bool(rdp_to_epsilon(np.array([10.0]), np.array([1.0]), 1e-5) < 1 + np.log(1e5) / 9)
    True
    """
    orders = np.maximum(orders, _LEAST_ORDER)
    log_terms = (math.log(delta) + np.log(orders)) / (orders - 1)
    value = costs + np.log1p(-1 / orders) - log_terms
    return np.maximum(0.0, value + _SLACK * (costs + 1 + np.abs(log_terms)))


def rdp_to_delta(orders: Floats, costs: Floats, epsilon: float) -> Floats:
    """Return the delta of each order: e^((a - 1)(R - epsilon)) (1 - 1/a)^(a - 1) / a (CKS20, Proposition 12)."""
    orders = np.maximum(orders, _LEAST_ORDER)
    exponent = (orders - 1) * (costs - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    slack = _SLACK * (1 + (orders - 1) * (costs + abs(epsilon) + 1))
    return np.exp(np.clip(exponent + slack, math.log(SMALLEST), 0.0))


def gaussian_delta(epsilon: Floats, mu: float) -> Floats:
    """Return Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu), never below the true value (BW18, Theorem 8).

    With x = e/mu - mu/2, y = e/mu + mu/2 and the Mills ratio m this is phi(x) (m(x) - m(y)): the exponentials cancel
    before they can overflow. Rounding of x and y costs (x^2 + y^2) ulps, ``erfcx`` a few more; the error is added.

    >>> float(gaussian_delta(np.array([1.0]), 1.0)[0]).__round__(6)
    0.126937
    """
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    error = _ULP * (32 + 4 * (x**2 + y**2))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        upper, lower = scipy.special.erfcx(x / math.sqrt(2)), scipy.special.erfcx(y / math.sqrt(2))
        gap = np.exp(-(x**2) / 2) * (upper * (1 + error) - lower * (1 - error)) / 2
        # Far to the left erfcx overflows; there the profile is below Phi(-x), which is 1 up to rounding.
        value = np.where(np.isfinite(upper), gap * (1 + error), np.exp(scipy.special.log_ndtr(-x)) * (1 + MARGIN))
    return np.asarray(np.clip(np.where(np.isnan(value), 1.0, value), SMALLEST, 1.0))


def pure_to_zcdp(epsilon: float | Fraction) -> Fraction:
    """Convert epsilon-DP to rho-zCDP: rho = epsilon tanh(epsilon / 2), at most epsilon^2 / 2.

    No smaller rho holds for all epsilon-DP mechanisms (docs/proofs/pure-to-zcdp.md).

    Parameters
    ----------
    epsilon : number >= 0
        The pure epsilon.

    Returns
    -------
    Fraction
        The rho, rounded up.

    Raises
    ------
    InvalidRequest
        If epsilon is not a number >= 0.

    Examples
    --------
    >>> float(pure_to_zcdp(1)) < 0.4622
    True
    """
    e = float_up(read_amount(epsilon, "epsilon"))
    return Fraction(e * math.tanh(e / 2) * (1 + _TANH_ERROR))


def pure_to_gdp(epsilon: float | Fraction) -> Fraction:
    """Convert epsilon-DP to mu-Gaussian DP: the smallest mu, with Phi(-mu/2) = 1/(1 + e^epsilon), squared.

    Both trade-off curves touch where they meet the diagonal; convexity does the rest (docs/proofs/pure-to-gdp.md).

    Parameters
    ----------
    epsilon : number >= 0
        The pure epsilon.

    Returns
    -------
    Fraction
        The square of mu, rounded up.

    Raises
    ------
    InvalidRequest
        If epsilon is not a number >= 0.

    Examples
    --------
    >>> 1.25 < float(pure_to_gdp(Fraction(1, 100))) * 100**2 / 1.2533 < 1.2534
    True
    """
    exact = read_amount(epsilon, "epsilon")
    if exact == 0:
        return Fraction(0)
    e = float_up(exact)
    log_kink = -(e + math.log1p(math.exp(-e)))  # ln of 1/(1 + e^epsilon)
    mu = -2 * float(scipy.special.ndtri_exp(log_kink))
    # Near epsilon = 0 the inverse loses digits: step up until the forward function, which does not, agrees.
    while float(scipy.special.log_ndtr(-mu / 2)) > log_kink - 8 * _ULP * abs(log_kink):
        mu += max(4 * _ULP, mu * 2.0**-44)
    return Fraction(mu) ** 2


def concentrated_cost_of(event: PrivacyEvent) -> Fraction | None:
    """Return the rho of a leaf, or None where it has none.

    >>> concentrated_cost_of(GaussianEvent(2))
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
            # zCDP does not amplify, but a sample never costs more than the whole (joint quasi-convexity).
            pair, whole = approx_cost_of(event), add_costs(leaves_inside(event.event), concentrated_cost_of)
            return whole if pair is None or whole is None else min(whole, pure_to_zcdp(pair[0]))
        case Mixture():
            return largest_cost(event, concentrated_cost_of)
    epsilon_alone = pure_cost_of(event)
    return None if epsilon_alone is None else pure_to_zcdp(epsilon_alone)


def gaussian_cost_of(event: PrivacyEvent) -> Fraction | None:
    """Return the mu squared of a leaf, or None where it has none.

    >>> gaussian_cost_of(GaussianEvent(2))
    Fraction(1, 4)
    """
    match event:
        case GaussianEvent():
            return event.mu_squared
        case PoissonSampled() | SampledWithoutReplacement():
            # A sample never costs more than the whole: trade-off curves of mixtures are above (DRS22, Section 4).
            epsilon, whole = pure_cost_of(event), add_costs(leaves_inside(event.event), gaussian_cost_of)
            return whole if epsilon is None or whole is None else min(whole, pure_to_gdp(epsilon))
        case Mixture():
            return largest_cost(event, gaussian_cost_of)
    epsilon_alone = pure_cost_of(event)
    return None if epsilon_alone is None else pure_to_gdp(epsilon_alone)


def failure_of(event: PrivacyEvent) -> Fraction:
    """Return the probability outside which a leaf keeps its rho: the delta of approximate ones, also inside a sample.

    >>> failure_of(ApproxEvent(1, 1e-6))
    Fraction(1, 1000000)
    """
    if isinstance(event, ApproxEvent):
        return event.delta
    if isinstance(event, Mixture):
        return sum(
            (share * (add_costs(leaves_inside(part), failure_of) or _ZERO) for share, part in event.parts), _ZERO
        )
    if not isinstance(event, SampledEvent):
        return _ZERO
    inside = add_costs(leaves_inside(event.event), failure_of) or _ZERO
    return inside * event.rate if inside and amplifies_failure(event) else inside


def amplifies_failure(event: SampledEvent) -> bool:
    """Return whether a sampled event is priced as one (epsilon, delta) mechanism (BBG18, Theorems 8 and 9).

    Otherwise it is priced as if all units were in the sample; failures follow that choice.

    >>> amplifies_failure(PoissonSampled(0.1, ApproxEvent(1, 1e-6)))
    True
    """
    pair, whole = approx_cost_of(event), add_costs(leaves_inside(event.event), concentrated_cost_of)
    return pair is not None and (whole is None or pure_to_zcdp(pair[0]) <= whole)


def sum_concentrated(scenario: Scenario) -> ConcentratedTotal | None:
    """Add rhos over all leaves (BS16, Lemma 2.3; Lemma 8.2 for failures); None where a leaf has no rho."""
    rho = add_costs(scenario.leaves, concentrated_cost_of)
    failure = add_costs(scenario.leaves, failure_of) or _ZERO
    return ConcentratedTotal(rho, failure) if rho is not None and failure < 1 else None


def sum_gaussian(scenario: Scenario) -> GaussianTotal | None:
    """Add squares of mu over all leaves (DRS22, Corollary 3.3); None where a leaf has no mu."""
    mu_squared = add_costs(scenario.leaves, gaussian_cost_of)
    return None if mu_squared is None else GaussianTotal(mu_squared)


def _minimize_over_orders(bound: Callable[[Floats], Floats], center: float) -> float:
    """Return the smallest value of a bound over orders; every order is valid, so the search needs no precision."""
    offsets = center * np.geomspace(1e-3, 1e3, 601)
    for width in (1.03, 1.0002):
        best = offsets[int(np.argmin(bound(1 + offsets)))]
        offsets = best * np.geomspace(1 / width, width, 401)
    return float(np.min(bound(1 + offsets)))
