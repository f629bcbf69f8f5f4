"""Truncated-uniform-Laplace noise: the law behind the optimal private binomial test."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["noisy_binomial_tail", "tulap_cdf"]

Floats = NDArray[np.float64]

_LOG = 42.0  # the binomial mass left out of the sums is below exp(-42), far below any p-value in use


def tulap_cdf(at: Any, epsilon: float) -> Floats:
    """P(N <= at) for N = discrete Laplace of scale 1/epsilon, plus a uniform number in (-1/2, 1/2).

    AS18, Definition 4.1 with q = 0.

    >>> round(float(tulap_cdf(0.0, 1.0)), 6)
    0.5
    """
    x = np.asarray(at, np.float64)
    left = -np.abs(x)
    nearest, b = np.round(left), np.exp(-epsilon)
    below = np.exp(epsilon * nearest) / (1 + b) * (b + (left - nearest + 0.5) * (1 - b))
    cdf: Floats = np.where(x <= 0, below, 1 - below)
    return cdf


@lru_cache(maxsize=256)
def _binomial_window(rows: int, chance: float) -> tuple[Floats, Floats]:
    """The counts that matter and their probabilities."""
    # Bernstein's inequality: beyond this reach the binomial mass is below exp(-42) < 1e-18.
    reach = math.sqrt(2 * _LOG * rows * chance * (1 - chance)) + 2 * _LOG / 3
    low = max(0, math.floor(rows * chance - reach))
    high = min(rows, math.ceil(rows * chance + reach))
    counts = np.arange(low, high + 1, dtype=np.float64)
    return counts, np.exp(
        special.gammaln(rows + 1)
        - special.gammaln(counts + 1)
        - special.gammaln(rows - counts + 1)
        + special.xlogy(counts, chance)
        + special.xlog1py(rows - counts, -chance)
    )


def noisy_binomial_tail(at: Any, rows: int, chance: float, epsilon: float) -> Floats:
    """P(X + N >= at) for X binomial and N the noise above; one value for each element of ``at``.

    >>> round(float(noisy_binomial_tail(5.0, 10, 0.5, 1.0)), 6)
    0.5
    """
    z = np.asarray(at, np.float64)
    counts, masses = _binomial_window(rows, chance)
    tail: Floats = tulap_cdf(counts - z[..., None], epsilon) @ masses
    return np.clip(tail, 0.0, 1.0)
