"""Confidence bounds on expected scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["score_bounds", "vote_bounds"]

Floats = NDArray[np.float64]

_CLOSE = 1e-4  # relative, far above the error of the inverse incomplete beta function


def vote_bounds(votes: Any, samples: int, *, failure_probability: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the chance of a vote; each fails with at most this probability (CP34).

    >>> low, high = vote_bounds(np.array([100]), 100, failure_probability=0.001)
    >>> round(float(low[0]), 4), float(high[0])
    (0.9333, 1.0)
    """
    k = np.asarray(votes, np.float64)
    # The upper bound is the mirror of the lower one: 1 - failure_probability would round away what is left.
    return _least_chance(k, samples, failure_probability), 1 - _least_chance(samples - k, samples, failure_probability)


def _least_chance(votes: Floats, samples: int, failure_probability: float) -> Floats:
    """The chance at which this many votes or more have the failure probability, rounded down; 0 where none is found."""
    found = special.betaincinv(np.maximum(votes, 1), samples - votes + 1, failure_probability * (1 - _CLOSE))
    return np.where((votes > 0) & np.isfinite(found), found, 0.0)


def score_bounds(means: Any, samples: int, *, failure_probability: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the expectation of scores in [0, 1] from their mean.

    Chernoff's bound in its relative-entropy form, P(kl(mean, p) > ln(1/f)/n, mean > p) <= f, which holds for every law
    on [0, 1] since exp is convex (Hoe63, Theorem 1); never wider than Hoeffding's.

    >>> low, high = score_bounds(np.array([0.9]), 1000, failure_probability=0.001)
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.8611, 0.9316)
    """
    mean = np.clip(np.asarray(means, np.float64), 0.0, 1.0)
    limit = -np.log(failure_probability) / samples if failure_probability > 0 else np.inf
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
