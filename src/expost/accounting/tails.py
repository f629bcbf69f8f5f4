"""How large a privacy loss can be, but for a probability, from what is known of (epsilon, delta).

A pair (e, d) bounds the probability b of any event A that is e^x times likelier with a unit than without: P(A) - e^e Q(A) <= d,
so x <= e - ln(1 - d/b). The smallest of these bounds over all pairs of a mechanism is exact for what can be computed from
its output (docs/proofs/interpretation.md, Theorem 1). What finds no pair below b is infinite, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from expost.accounting.rounding import MARGIN, Floats
from expost.core.meaning import approx_loss_bound

__all__ = ["bound_by_epsilons", "bound_by_pairs"]

# Parts of the probability that delta may take; where delta falls like e^(-k epsilon) the best is 1/(1 + k).
_PARTS = (Fraction(0), *(1 / (1 + Fraction(2) ** half) for half in range(-6, 13)))


def bound_by_pairs(epsilons: Floats, deltas: Floats, failure_probability: float) -> float:
    """The smallest bound over pairs that all hold; infinite if every delta reaches the failure probability.

    >>> round(bound_by_pairs(np.array([0.0, 1.0]), np.array([0.5, 1e-6]), 1e-4), 4)
    1.0101
    """
    if failure_probability <= 0:
        proved = epsilons[deltas <= 0]
        return float(np.min(proved)) if len(proved) else math.inf
    # Rounded upwards before the logarithm, which is steep near 1.
    ratios = np.where(deltas > 0, np.nextafter(deltas / failure_probability, np.inf), 0.0)
    below = ratios < 1
    if not below.any():
        return math.inf
    return float(np.min(epsilons[below] - np.log1p(-ratios[below]) * (1 + MARGIN)))


def bound_by_epsilons(epsilon_at: Callable[[Fraction], float], failure: Fraction, chance: Fraction) -> float:
    """The smallest bound over deltas between ``failure``, which is never undercut, and the probability ``chance``.

    >>> round(bound_by_epsilons(lambda delta: 1.0, Fraction(1, 10**6), Fraction(1, 10**4)), 4)
    1.0101
    """
    if chance <= failure:
        return math.inf if failure else epsilon_at(chance)
    least = math.inf
    for part in _PARTS:
        delta = failure + part * (chance - failure)
        epsilon = epsilon_at(delta)
        if math.isfinite(epsilon):
            least = min(least, approx_loss_bound(Fraction(epsilon), delta, chance))
    return least
