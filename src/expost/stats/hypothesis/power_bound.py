"""Powers that are proved by simulation: exact confidence bounds, so that only bad luck in the simulation can be wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["bound_on_share", "chance_kept", "critical_value", "most_larger"]

Floats = NDArray[np.float64]

_NEARLY_SURE = 0.995  # of the rejections that the true reference makes, the drawn one shall make so many


def bound_on_share(hits: int, trials: int, *, failure_probability: float) -> float:
    """A lower bound on a probability from a count of hits, wrong with at most this probability (CP34).

    >>> round(bound_on_share(90, 100, failure_probability=0.001), 3)
    0.775
    """
    if hits == 0:
        return 0.0
    return float(special.betaincinv(hits, trials - hits + 1, failure_probability))


def most_larger(level: float, draws: int) -> int:
    """How many draws of a reference may be at least as large as the statistic of a test that rejects at this level.

    A p-value (1 + larger) / (1 + draws) is at most the level up to here; -1 if it never is.

    >>> most_larger(0.05, 9_999)
    498
    """
    return math.floor(level * (draws + 1) * (1 - 1e-12)) - 1


def chance_kept(level: float, draws: int) -> tuple[float, float]:
    """A tail and how surely a statistic beyond it is rejected by a drawn reference.

    With probability at most ``tail`` for a draw to be as large, at most ``most_larger`` of them are with the second
    number's probability: a binomial tail.

    >>> tail, sure = chance_kept(0.05, 9_999)
    >>> round(tail, 4), round(sure, 4)
    (0.0445, 0.995)
    """
    most = most_larger(level, draws)
    if most < 0:
        return 0.0, 0.0
    return float(special.betaincinv(most + 1, draws - most, 1 - _NEARLY_SURE)), _NEARLY_SURE


def critical_value(null: Any, tail: float, *, failure_probability: float) -> float:
    """A value that a fresh draw exceeds with at most probability ``tail``; wrong with at most ``failure_probability``.

    The chance to exceed the r-th smallest of m draws is at most a Beta(m - r + 1, r) number, for every law (order
    statistics: the distribution function at the r-th smallest is at least the r-th smallest of m uniform numbers).

    >>> values = np.arange(10_000.0)
    >>> critical_value(values, 0.05, failure_probability=0.001) > 9_500
    True
    """
    ordered = np.sort(np.asarray(null, np.float64).ravel())
    count = len(ordered)
    ranks = np.arange(max(1, math.floor(count * (1 - 2 * tail))), count + 1)
    exceeded = special.betaincinv(count - ranks + 1, ranks, 1 - failure_probability)
    enough = np.flatnonzero(exceeded <= tail)
    return math.inf if enough.size == 0 else float(ordered[ranks[enough[0]] - 1])
