"""Odometers: what an adaptive interaction has cost so far, readable at any moment.

A report holds at all moments at once: except with the stated failure probability, the privacy loss never exceeds any of
the numbers shown along the way, however the steps and the moments of reading were chosen. Proofs: docs/proofs/filters.md.

The boundaries are curves that a privacy loss stays under at all times at once. Their clock is ``mu_squared``: what
Gaussian releases have used so far, sensitivity^2 / variance, adding over releases. In that clock the loss of Gaussian
noise reduction is v/2 plus Brownian motion (WRWR22, Section 3), so a curve that Brownian motion crosses with probability
at most delta bounds the ex-post loss wherever an analyst stops. Proofs: docs/proofs/boundaries.md.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy

from expost.accounting.composition import pure_cost_of
from expost.accounting.concentrated import concentrated_cost_of
from expost.accounting.event_price import EventPrice, EventPricer, RenyiPricer, default_shares
from expost.accounting.privacy_event import GaussianEvent, PrivacyEvent
from expost.accounting.rounding import MARGIN, Floats, float_down, float_up, read_amount, read_shares
from expost.core import explain_arguments
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest
from expost.core.loss import ApproxLoss, Loss, PureLoss
from expost.core.rational import probability, rational, round_up

__all__ = [
    "ConcentratedOdometer",
    "GaussianOdometer",
    "LinearBoundary",
    "MixtureBoundary",
    "Odometer",
    "PureOdometer",
    "RenyiOdometer",
    "normal_mixture_quantile",
]

_ROOT_STEPS = 60  # of Newton's method over Renyi orders
_QUANTILE_STEPS = 40  # of Newton's method for a mixture


class _Boundary(abc.ABC):
    """A curve over the clock ``mu_squared`` that the loss stays under at all times at once."""

    def epsilon(self, mu_squared: float | Fraction) -> float:
        """Return the loss that is exceeded here, or anywhere else along the curve, with the failure probability only.

        Parameters
        ----------
        mu_squared : number >= 0
            The clock.

        Returns
        -------
        float
        """
        return float(self.curve(np.array([float_up(read_amount(mu_squared, "mu_squared"))]))[0])

    @abc.abstractmethod
    def curve(self, mu_squared: Floats) -> Floats:
        """Return the bound at many points of the clock.

        Parameters
        ----------
        mu_squared : array of float >= 0
            The clock.

        Returns
        -------
        array of float
        """


@dataclass(frozen=True)
class LinearBoundary(_Boundary):
    """A straight line, tightest where it is tuned: v/2 + sqrt(2 ln(1/delta) v) at v = ``tuned_at``.

    Holds for any steps that are zero-concentrated given the past, Gaussian or not.

    Parameters
    ----------
    failure_probability : number in (0, 1)
        The probability that the loss crosses the line anywhere.
    tuned_at : number > 0
        The mu squared at which the line is tightest.

    Examples
    --------
    >>> LinearBoundary(1e-6, tuned_at=1).epsilon(1).__round__(2)
    5.76
    """

    failure_probability: Fraction
    tuned_at: Fraction

    def __init__(self, failure_probability: float | Fraction, *, tuned_at: float | Fraction) -> None:
        object.__setattr__(self, "failure_probability", probability(failure_probability, "failure_probability"))
        object.__setattr__(self, "tuned_at", rational(tuned_at, "tuned_at"))

    def curve(self, mu_squared: Floats) -> Floats:
        # A smaller failure probability gives a higher line, so it is rounded down.
        budget, at = -math.log(float_down(self.failure_probability)), float(self.tuned_at)
        # P[some v: X_v >= b + a v] = e^(-2ab) for Brownian motion X; 2ab = ln(1/delta) here (docs/proofs/boundaries.md).
        intercept, slope = math.sqrt(budget * at / 2), math.sqrt(budget / (2 * at))
        return (mu_squared / 2 + intercept + slope * mu_squared) * (1 + MARGIN)


@dataclass(frozen=True)
class MixtureBoundary(_Boundary):
    """A curve within some 10 % of the pointwise bound over two decades around ``tuned_at``; vanishes at zero.

    A half-normal mixture of lines in the clock 1/v, the rigorous one-sided form. For Gaussian steps only.

    Parameters
    ----------
    failure_probability : number in (0, 1/4)
        The probability that the loss crosses the curve anywhere.
    tuned_at : number > 0
        The mu squared at which the curve is tightest.
    concentrated : bool, default False
        Mix the lines in the clock v itself: holds for any zero-concentrated steps, and does not vanish at zero.

    Examples
    --------
    >>> MixtureBoundary(1e-6, tuned_at=1).epsilon(1) < 6.1
    True
    """

    failure_probability: Fraction
    tuned_at: Fraction
    concentrated: bool = False

    def __init__(
        self, failure_probability: float | Fraction, *, tuned_at: float | Fraction, concentrated: bool = False
    ) -> None:
        object.__setattr__(self, "failure_probability", probability(failure_probability, "failure_probability"))
        object.__setattr__(self, "tuned_at", rational(tuned_at, "tuned_at"))
        object.__setattr__(self, "concentrated", concentrated)
        if self.failure_probability >= Fraction(1, 4):
            raise InvalidRequest(
                "Expected a failure_probability below 1/4", got=failure_probability, do="Pass a small one"
            )

    def curve(self, mu_squared: Floats) -> Floats:
        # A half-normal prior has twice the density of a normal one on its side: hence 2 delta.
        budget = -math.log(float_down(2 * self.failure_probability))
        # The prior's precision, as a share of the clock at which the curve is lowest where it is tuned.
        share = float(scipy.optimize.brentq(lambda x: budget + 0.5 * math.log((1 + x) / x) - 1 / (2 * x), 1e-6, 1e3))
        with np.errstate(divide="ignore"):
            # The clock 1/v is infinite before the first release, where the curve is zero.
            clock = mu_squared if self.concentrated else 1 / mu_squared
        prior = share * (float(self.tuned_at) if self.concentrated else 1 / float(self.tuned_at))
        quantile = normal_mixture_quantile((clock + prior) / prior, budget)
        if self.concentrated:
            deviation = quantile * np.sqrt(clock + prior)
        else:
            # v W(1/v) with W the boundary in the clock 1/v: v sqrt(1/v + r) = sqrt(v + r v^2).
            deviation = np.where(mu_squared > 0, quantile * np.sqrt(mu_squared + prior * mu_squared**2), 0.0)
        return (mu_squared / 2 + deviation) * (1 + MARGIN)


def normal_mixture_quantile(growth: Floats, log_inverse: float) -> Floats:
    """Return the z with z^2/2 + ln Phi(z) = log_inverse + ln(growth)/2, approached from above.

    The left side is increasing and convex, so Newton's method from the left of the root jumps to its right and then
    only descends: every iterate is safe.

    >>> z = normal_mixture_quantile(np.array([1.0]), 5.0)[0]
    >>> bool(z**2 / 2 + scipy.special.log_ndtr(z) >= 5)
    True
    """
    with np.errstate(invalid="ignore"):
        # An infinite growth is the start of the clock 1/v; its quantile is never used.
        target = np.where(np.isfinite(growth), log_inverse + 0.5 * np.log(growth), 0.0)
    z = np.sqrt(2 * np.maximum(target, 0.0))
    for _ in range(_QUANTILE_STEPS):
        log_mass = scipy.special.log_ndtr(z)
        # Newton: the derivative of z^2/2 + ln Phi(z) is z + phi(z) / Phi(z).
        step = (z**2 / 2 + log_mass - target) / (z + np.exp(-(z**2) / 2 - log_mass) / math.sqrt(2 * math.pi))
        z = z - step
        if np.all(np.abs(step) <= 1e-13 * z):
            break
    return np.asarray(z * (1 + MARGIN))


class Odometer(EventPricer):
    """The base class of odometers. Steps are recorded after they ran, pure ex-post ones at their losses.

    Parameters
    ----------
    failure_probability : number in (0, 1) or None
        The probability that the loss ever exceeds a report; None for an odometer that cannot fail.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import ExPostEvent, PureEvent
    >>> odometer = PureOdometer()
    >>> odometer.record(PureEvent(0.5))
    >>> odometer.record(ExPostEvent(0.1, 1))
    >>> round(odometer.epsilon, 9)
    0.6
    """

    _owned_noun = "odometer"

    def __init__(
        self, failure_probability: float | Fraction | None, adjacency: Adjacency | str = Adjacency.ADD_REMOVE
    ) -> None:
        chosen = failure_probability
        self.failure_probability = Fraction(0) if chosen is None else probability(chosen, "failure_probability")
        super().__init__(adjacency)

    def record(self, event: PrivacyEvent) -> None:
        """Add a step.

        Parameters
        ----------
        event : PrivacyEvent
            What ran.

        Raises
        ------
        InvalidRequest
            If the currency has no price for it, or it has a delta: such failures are not in the failure probability.
        """
        price = self.price_event(event)
        # A boundary bounds the loss of steps that cannot fail; a delta would have to be added to its own.
        if price.failure > 0:
            raise InvalidRequest("Expected steps without a delta of their own", do="Use a filter, or another mechanism")
        with self._draw_alone():
            self._total = self._total + price

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far: the exact ex-post part, and the rest at the failure probability."""
        # The ex-post part is exact and holds for every outcome, so it adds outside the failure probability.
        rest = self._bound_rest(self._total.cost)
        return math.nextafter(rest + float_up(self._total.loss), math.inf) if rest else float_up(self._total.loss)

    def loss(self) -> Loss:
        """Return the bound as a bill.

        Returns
        -------
        Loss
        """
        return ApproxLoss(round_up(self.epsilon), self.failure_probability)

    @abc.abstractmethod
    def _bound_rest(self, cost: Any) -> float:
        """Return the bound on the loss of everything that was not pure ex-post."""


class PureOdometer(Odometer):
    """The exact sum of pure losses, ex-post ones included; it cannot fail.

    Proof: docs/proofs/ex-post-composition.md, Theorem 1.

    Parameters
    ----------
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> PureOdometer().loss()
    PureLoss(epsilon=Fraction(0, 1))
    """

    @explain_arguments
    def __init__(self, *, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        super().__init__(None, adjacency)

    def loss(self) -> Loss:
        return PureLoss(self._total.loss + self._total.cost)

    @property
    def epsilon(self) -> float:
        """The sum, rounded up to a float."""
        return float_up(self._total.loss + self._total.cost)

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | None:
        return pure_cost_of(leaf)

    def _bound_rest(self, cost: Any) -> float:
        return float_up(cost)


class RenyiOdometer(RenyiPricer, Odometer):
    """A mixture over Renyi orders; prices every event without a delta (docs/proofs/filters.md, Theorem 4).

    Parameters
    ----------
    failure_probability : number in (0, 1)
        The probability that the loss ever exceeds a report.
    expected_epsilon : number > 0, default 1
        Where the report should be tightest; it is valid everywhere.
    shares : mapping of order to share, optional
        The share of the failure probability of each Renyi order.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import GaussianEvent
    >>> odometer = RenyiOdometer(1e-6, expected_epsilon=5)
    >>> odometer.record(GaussianEvent(1))
    >>> 5.2 < odometer.epsilon < 6.0
    True
    """

    @explain_arguments
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
        given = default_shares(expected, delta) if shares is None else read_shares(shares)
        self._orders = tuple(sorted(given))
        # A little below their nominal values, so that rounding cannot make the shares sum to more than one.
        self._log_shares = np.log([given[order] * (1 - 2e-12) for order in self._orders])
        super().__init__(failure_probability, adjacency)

    def _bound_rest(self, cost: Floats) -> float:
        """Return the root in e of sum_j share_j exp((order_j - 1)(e - cost_j)) = 1/delta, from above."""
        if not cost.any():
            return 0.0
        target, rates = -math.log(float_down(self.failure_probability)), np.array(self._orders) - 1
        # An order with an infinite cost proves nothing; its share is given up.
        known = np.isfinite(cost)
        rates, cost, shares = rates[known], cost[known], self._log_shares[known]
        epsilon = float(np.min(cost + (target - shares) / rates))  # any single order proves this much
        for _ in range(_ROOT_STEPS):
            terms = shares + rates * (epsilon - cost)
            top = float(terms.max())
            # The largest term is factored out, so that no exponential overflows.
            weights = np.exp(terms - top)
            step = (
                (top + math.log(float(weights.sum())) - target) * float(weights.sum()) / float(np.dot(rates, weights))
            )
            if step <= 1e-13 * abs(epsilon):
                break
            epsilon -= step
        # The logarithm of the sum is convex and increasing: Newton's iterates descend to the root and stay above it.
        return max(0.0, epsilon + 2.0**-40 * (1 + abs(epsilon) + float(np.max(cost))))


class ConcentratedOdometer(Odometer):
    """Zero-concentrated steps under a boundary, straight or mixed (docs/proofs/boundaries.md).

    Parameters
    ----------
    failure_probability : number in (0, 1)
        The probability that the loss ever exceeds a report; below 1/4 for a mixture.
    tuned_at : number > 0
        The rho at which the report should be tightest; it is valid everywhere.
    linear : bool, default False
        Use a straight line instead of a mixture.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import ConcentratedEvent
    >>> odometer = ConcentratedOdometer(1e-6, tuned_at=0.5)
    >>> odometer.record(ConcentratedEvent(0.5))
    >>> 5.7 < odometer.epsilon < 6.3
    True
    """

    @explain_arguments
    def __init__(
        self,
        failure_probability: float | Fraction,
        *,
        tuned_at: float | Fraction,
        linear: bool = False,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    ) -> None:
        clock = 2 * rational(tuned_at, "tuned_at")  # rho of a Gaussian step is mu squared / 2 (BS16, Proposition 1.6)
        self.boundary: LinearBoundary | MixtureBoundary = (
            LinearBoundary(failure_probability, tuned_at=clock)
            if linear
            else MixtureBoundary(failure_probability, tuned_at=clock, concentrated=True)
        )
        super().__init__(failure_probability, adjacency)

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | None:
        return concentrated_cost_of(leaf)

    def _bound_rest(self, cost: Fraction) -> float:
        # A step of rho moves the clock as far as a Gaussian one with mu squared 2 rho.
        return self.boundary.epsilon(float_up(2 * cost)) if cost else 0.0


class GaussianOdometer(Odometer):
    """Gaussian steps, so Gaussian noise reduction too, under a boundary (WRWR22, Section 3; docs/proofs/boundaries.md).

    Pure steps add their epsilon: only a truly Gaussian loss is Brownian motion in this clock.

    Parameters
    ----------
    failure_probability : number in (0, 1)
        The probability that the loss ever exceeds a report; below 1/4 for a mixture.
    tuned_at : number > 0
        The mu squared at which the report should be tightest; it is valid everywhere.
    linear : bool, default False
        Use a straight line instead of a mixture.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent.

    Examples
    --------
    >>> from expost.accounting import GaussianEvent
    >>> odometer = GaussianOdometer(1e-6, tuned_at=1)
    >>> odometer.record(GaussianEvent(2))
    >>> 2.8 < odometer.epsilon < 3.1
    True
    """

    @explain_arguments
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

    def _leaf_cost(self, leaf: PrivacyEvent) -> Fraction | EventPrice | None:
        if isinstance(leaf, GaussianEvent):
            return leaf.mu_squared
        epsilon = pure_cost_of(leaf)
        # A pure step counts in the exact part, outside the boundary: its loss is not Gaussian.
        return None if epsilon is None else EventPrice(epsilon, self._zero_cost())

    def _bound_rest(self, cost: Fraction) -> float:
        return self.boundary.epsilon(float_up(cost)) if cost else 0.0
