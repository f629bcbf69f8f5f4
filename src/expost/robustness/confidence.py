"""Confidence bounds on expected scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["score_bounds", "vote_bounds"]

Floats = NDArray[np.float64]


def vote_bounds(votes: Any, samples: int, *, failure_probability: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the chance of a vote; each fails with at most this probability (CP34).

    >>> low, high = vote_bounds(np.array([100]), 100, failure_probability=0.001)
    >>> round(float(low[0]), 4), float(high[0])
    (0.9333, 1.0)
    """
    k = np.asarray(votes, np.float64)
    low = np.where(k > 0, special.betaincinv(np.maximum(k, 1), samples - k + 1, failure_probability), 0.0)
    high = np.where(k < samples, special.betaincinv(k + 1, np.maximum(samples - k, 1), 1 - failure_probability), 1.0)
    return low, high


def score_bounds(means: Any, samples: int, *, failure_probability: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the expectation of scores in [0, 1] from their mean.

    Chernoff's bound in its relative-entropy form, P(kl(mean, p) > ln(1/f)/n, mean > p) <= f, which holds for every law
    on [0, 1] since exp is convex (Hoe63, Theorem 1); never wider than Hoeffding's.

    >>> low, high = score_bounds(np.array([0.9]), 1000, failure_probability=0.001)
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.8611, 0.9316)
    """
    mean = np.clip(np.asarray(means, np.float64), 0.0, 1.0)
    limit = np.log(1 / failure_probability) / samples
    return _root(mean, limit, np.zeros_like(mean)), _root(mean, limit, np.ones_like(mean))


def _root(mean: Floats, limit: float, end: Floats) -> Floats:
    """The point between the mean and an end where the relative entropy reaches the limit, rounded outwards."""
    near, far = mean.copy(), end.copy()
    for _ in range(60):
        middle = (near + far) / 2
        inside = _entropy(mean, middle) <= limit
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return far


def _entropy(mean: Floats, p: Floats) -> Floats:
    relative: Floats = special.rel_entr(mean, p) + special.rel_entr(1 - mean, 1 - p)
    return relative
