"""Curves that a privacy loss stays under at all times at once, except with a stated probability.

The clock is ``mu_squared``: what Gaussian releases have used so far, sensitivity^2 / variance, adding over releases. In
that clock the loss of Gaussian noise reduction is v/2 plus Brownian motion (WRWR22, Section 3), so a curve that Brownian
motion crosses with probability at most delta bounds the ex-post loss wherever an analyst stops. Proofs:
docs/proofs/boundaries.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from expost.accounting.rounding import MARGIN, Floats, float_down, float_up
from expost.accounting.typed import amount_of
from expost.core.errors import InvalidRequest
from expost.core.rational import probability, rational

__all__ = ["LinearBoundary", "MixtureBoundary", "normal_mixture_quantile"]

_NEWTON_STEPS = 40


@dataclass(frozen=True)
class LinearBoundary:
    """A straight line, tightest where it is tuned: v/2 + sqrt(2 ln(1/delta) v) at ``tuned_at``.

    Holds for any steps that are zero-concentrated given the past, Gaussian or not.

    >>> LinearBoundary(1e-6, tuned_at=1).epsilon(1).__round__(2)
    5.76
    """

    failure_probability: Fraction
    tuned_at: Fraction

    def __init__(self, failure_probability: float | Fraction, *, tuned_at: float | Fraction) -> None:
        object.__setattr__(self, "failure_probability", probability(failure_probability, "failure_probability"))
        object.__setattr__(self, "tuned_at", rational(tuned_at, "tuned_at"))

    def epsilon(self, mu_squared: float | Fraction) -> float:
        """The loss that is exceeded here, or anywhere else along the line, with the failure probability only."""
        return float(self.curve(np.array([float_up(amount_of(mu_squared, "mu_squared"))]))[0])

    def curve(self, mu_squared: Floats) -> Floats:
        """The same at many points of the clock."""
        budget, at = _log_inverse(self.failure_probability), float(self.tuned_at)
        # P[some v: X_v >= b + a v] = e^(-2ab) for Brownian motion X; here 2ab = ln(1/delta) (docs/proofs/boundaries.md).
        intercept, slope = math.sqrt(budget * at / 2), math.sqrt(budget / (2 * at))
        return (mu_squared / 2 + intercept + slope * mu_squared) * (1 + MARGIN)


@dataclass(frozen=True)
class MixtureBoundary:
    """A curve within some 10 % of the pointwise bound over two decades around ``tuned_at``; vanishes at zero.

    Half-normal mixture of lines in the clock 1/v: the rigorous one-sided form. For Gaussian steps only; with
    ``concentrated=True`` the lines are mixed in the clock v itself, which holds for any zero-concentrated steps and does
    not vanish at zero.

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

    def epsilon(self, mu_squared: float | Fraction) -> float:
        """The loss that is exceeded here, or anywhere else along the curve, with the failure probability only."""
        return float(self.curve(np.array([float_up(amount_of(mu_squared, "mu_squared"))]))[0])

    def curve(self, mu_squared: Floats) -> Floats:
        """The same at many points of the clock."""
        with np.errstate(divide="ignore"):
            clock = mu_squared if self.concentrated else 1 / mu_squared
        prior = self._share() * (float(self.tuned_at) if self.concentrated else 1 / float(self.tuned_at))
        quantile = normal_mixture_quantile((clock + prior) / prior, _log_inverse(2 * self.failure_probability))
        if self.concentrated:
            deviation = quantile * np.sqrt(clock + prior)
        else:
            # v W(1/v) with W the boundary in the clock 1/v: v sqrt(1/v + r) = sqrt(v + r v^2).
            deviation = np.where(mu_squared > 0, quantile * np.sqrt(mu_squared + prior * mu_squared**2), 0.0)
        return (mu_squared / 2 + deviation) * (1 + MARGIN)

    def _share(self) -> float:
        """The prior's precision as a share of the clock at which the curve is lowest, where it is tuned."""
        budget = _log_inverse(2 * self.failure_probability)
        return float(brentq(lambda x: budget + 0.5 * math.log((1 + x) / x) - 1 / (2 * x), 1e-6, 1e3))


def normal_mixture_quantile(growth: Floats, log_inverse: float) -> Floats:
    """The z with z^2/2 + ln Phi(z) = log_inverse + ln(growth)/2, approached from above.

    The left side is increasing and convex, so Newton's method from the left of the root jumps to its right and then only
    descends: every iterate is safe.

    >>> z = normal_mixture_quantile(np.array([1.0]), 5.0)[0]
    >>> bool(z**2 / 2 + log_ndtr(z) >= 5)
    True
    """
    with np.errstate(invalid="ignore"):
        target = np.where(np.isfinite(growth), log_inverse + 0.5 * np.log(growth), 0.0)
    z = np.sqrt(2 * np.maximum(target, 0.0))
    for _ in range(_NEWTON_STEPS):
        log_mass = log_ndtr(z)
        step = (z**2 / 2 + log_mass - target) / (z + np.exp(-(z**2) / 2 - log_mass) / math.sqrt(2 * math.pi))
        z = z - step
        if np.all(np.abs(step) <= 1e-13 * z):
            break
    return np.asarray(z * (1 + MARGIN))


def _log_inverse(value: Fraction) -> float:
    return -math.log(float_down(value))
