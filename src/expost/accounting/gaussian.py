"""Gaussian differential privacy: squares of mu add, and the privacy profile is known exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri_exp

from expost.accounting import pure
from expost.accounting.events import Event, GaussianEvent, PoissonSampled, SampledWithoutReplacement
from expost.accounting.pure import summed
from expost.accounting.rounding import MARGIN, SMALLEST, Floats, float_down, float_up, sqrt_up
from expost.accounting.scenario import Scenario
from expost.accounting.typed import amount_of
from expost.core.meaning import gaussian_loss_bound

__all__ = ["GaussianTotal", "cost_of", "gaussian_delta", "pure_to_gdp", "smallest_epsilon", "total"]

_ULP = 2.0**-52
_LARGEST = 1e18
_CLOSE = 1e-13  # relative width at which the search for an epsilon ends


@dataclass(frozen=True)
class GaussianTotal:
    """mu-Gaussian differential privacy of a whole scenario, by the square of mu.

    >>> round(GaussianTotal(Fraction(1)).epsilon(Fraction(1, 10**6)), 4)
    4.8866
    """

    mu_squared: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """The epsilon at this delta by the exact profile (DRS22, Corollary 2.13; BW18, Theorem 8)."""
        if delta == 0 and self.mu_squared > 0:
            return math.inf
        return smallest_epsilon(self._delta, float_down(delta))

    def delta(self, epsilon: Fraction) -> float:
        """The delta at this epsilon by the exact profile, rounded up."""
        return self._delta(float_down(epsilon))

    def loss_bound(self, chance: Fraction) -> float:
        """The loss that is exceeded with this probability at most, by the exact tails."""
        return gaussian_loss_bound(self.mu_squared, chance)

    def _delta(self, epsilon: float) -> float:
        if self.mu_squared == 0:
            return 0.0
        return float(gaussian_delta(np.array([epsilon]), self._mu)[0])

    @cached_property
    def _mu(self) -> float:
        return float_up(sqrt_up(self.mu_squared))


def gaussian_delta(epsilon: Floats, mu: float) -> Floats:
    """Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu), never below the true value (BW18, Theorem 8).

    With x = e/mu - mu/2, y = e/mu + mu/2 and the Mills ratio m this is phi(x) (m(x) - m(y)): the exponentials cancel
    before they can overflow. Rounding of x and y costs (x^2 + y^2) ulps, ``erfcx`` a few more; the error is added.

    >>> float(gaussian_delta(np.array([1.0]), 1.0)[0]).__round__(6)
    0.126937
    """
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    error = _ULP * (32 + 4 * (x**2 + y**2))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        upper, lower = erfcx(x / math.sqrt(2)), erfcx(y / math.sqrt(2))
        gap = np.exp(-(x**2) / 2) * (upper * (1 + error) - lower * (1 - error)) / 2
        # Far to the left erfcx overflows; there the profile is below Phi(-x), which is 1 up to rounding.
        value = np.where(np.isfinite(upper), gap * (1 + error), np.exp(log_ndtr(-x)) * (1 + MARGIN))
    return np.asarray(np.clip(np.where(np.isnan(value), 1.0, value), SMALLEST, 1.0))


def smallest_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon, up to rounding, whose delta is proved to be at most ``delta``; a safe search.

    The value returned was itself evaluated, so a profile that never understates delta makes it an upper bound.

    >>> round(smallest_epsilon(lambda epsilon: 0.5 - epsilon, 0.25), 9)
    0.25
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > _LARGEST:
            return math.inf
    return _narrowed(delta_at, delta, low, high)


def _narrowed(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """The upper end of the bracket once it is narrow, a quarter of a bisection's calls later (OT21).

    The next point is the secant's, nudged towards the middle so that both ends close in; it stays so near
    to the middle that the bracket is never more than one halving behind a bisection's.
    """
    above, below = delta_at(low), delta_at(high)
    first = allowed = high - low
    while high - low > _CLOSE * high:
        middle, width = (low + high) / 2, high - low
        secant = low + width * _share(above, delta, below)
        nudge = max(width**2 / first, _CLOSE * high) / 4
        aim = min(secant + nudge, middle) if secant < middle else max(secant - nudge, middle)
        reach = allowed - width / 2
        point = min(max(aim, middle - reach), middle + reach)
        found = delta_at(point)
        if found <= delta:
            high, below = point, found
        else:
            low, above = point, found
        allowed /= 2
    return high


def _share(above: float, delta: float, below: float) -> float:
    """How far down from ``above`` to ``below`` this delta is: tails fall like exponentials, ends like lines."""
    if min(delta, below) > 0:
        above, delta, below = math.log(above), math.log(delta), math.log(below)
    return (above - delta) / (above - below) if above > below else 0.5


def pure_to_gdp(epsilon: Fraction) -> Fraction:
    """The square of the smallest mu such that epsilon-DP gives mu-GDP: Phi(-mu/2) = 1/(1 + e^epsilon).

    Both trade-off curves touch where they meet the diagonal; convexity does the rest (docs/proofs/pure-to-gdp.md).

    >>> 1.25 < float(pure_to_gdp(Fraction(1, 100))) * 100**2 / 1.2533 < 1.2534
    True
    """
    epsilon = amount_of(epsilon, "epsilon")
    if epsilon == 0:
        return Fraction(0)
    e = float_up(epsilon)
    log_kink = -(e + math.log1p(math.exp(-e)))  # ln of 1/(1 + e^epsilon)
    mu = -2 * float(ndtri_exp(log_kink))
    # Near epsilon = 0 the inverse loses digits: step up until the forward function, which does not, agrees.
    while float(log_ndtr(-mu / 2)) > log_kink - 8 * _ULP * abs(log_kink):
        mu += max(4 * _ULP, mu * 2.0**-44)
    return Fraction(mu) ** 2


def cost_of(event: Event) -> Fraction | None:
    """The mu squared of a leaf, or None where it has none.

    >>> cost_of(GaussianEvent(2))
    Fraction(1, 4)
    """
    match event:
        case GaussianEvent():
            return event.mu_squared
        case PoissonSampled() | SampledWithoutReplacement():
            # A sample never costs more than the whole: trade-off curves of mixtures are above (DRS22, Section 4).
            epsilon, whole = pure.cost_of(event), summed(event.event, cost_of)
            return whole if epsilon is None or whole is None else min(whole, pure_to_gdp(epsilon))
    epsilon_alone = pure.cost_of(event)
    return None if epsilon_alone is None else pure_to_gdp(epsilon_alone)


def total(scenario: Scenario) -> GaussianTotal | None:
    """The sum of squares over all leaves (DRS22, Corollary 3.3), or None where a leaf has no mu."""
    mu_squared = Fraction(0)
    for leaf, count in scenario.leaves:
        cost = cost_of(leaf)
        if cost is None:
            return None
        mu_squared += cost * count
    return GaussianTotal(mu_squared)
