"""How sure a count of hits makes us of a probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["at_least", "at_most"]


def at_least(hits: ArrayLike, trials: int, *, failure_probability: float) -> NDArray[Any]:
    """The Clopper-Pearson lower bound: the true probability is below it with at most ``failure_probability``.

    CP34: the bound solves P(Binomial(trials, bound) >= hits) = failure_probability, a quantile of a beta law.

    >>> float(at_least(1000, 1000, failure_probability=0.05).round(4))
    0.997
    """
    count = np.asarray(hits, dtype=np.float64)
    low = special.betaincinv(np.maximum(count, 1), trials - count + 1, failure_probability)
    return np.where(count > 0, low, 0.0)


def at_most(hits: ArrayLike, trials: int, *, failure_probability: float) -> NDArray[Any]:
    """The Clopper-Pearson upper bound, the mirror image of ``at_least``.

    >>> float(at_most(0, 1000, failure_probability=0.05).round(4))
    0.003
    """
    misses = trials - np.asarray(hits, dtype=np.float64)
    return 1.0 - at_least(misses, trials, failure_probability=failure_probability)
