"""Truncated-uniform-Laplace noise: the law behind the optimal private binomial test."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["noisy_binomial_p_values", "noisy_binomial_tail", "tulap_cdf"]

Floats = NDArray[np.float64]

_LOG = 42.0  # the binomial mass left out of the sums is below exp(-42) on either side
_LEFT_OUT = 2 * math.exp(-_LOG)  # which p-values add
_RATIO_ERROR = (
    2.0**-50
)  # of a mass, for each place of the window: five roundings of 2^-53 in a ratio and its sum, twice


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
    # Bernstein's inequality: beyond this reach the binomial mass is below exp(-42) < 1e-18 on either side.
    reach = math.sqrt(2 * _LOG * rows * chance * (1 - chance)) + 2 * _LOG / 3
    low = max(0, math.floor(rows * chance - reach))
    high = min(rows, math.ceil(rows * chance + reach))
    counts = np.arange(low, high + 1, dtype=np.float64)
    # Ratios of neighbours, summed: logarithms of factorials would lose a digit for every digit of the number of rows.
    ratios = np.log((rows - counts[:-1]) / (counts[:-1] + 1) * (chance / (1 - chance)))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    masses = np.exp(logs - logs.max())
    return counts, masses / masses.sum()


def noisy_binomial_tail(at: Any, rows: int, chance: float, epsilon: float) -> Floats:
    """P(X + N >= at) for X binomial and N the noise above; one value for each element of ``at``.

    >>> round(float(noisy_binomial_tail(5.0, 10, 0.5, 1.0)), 6)
    0.5
    """
    z = np.asarray(at, np.float64)
    counts, masses = _binomial_window(rows, chance)
    tail: Floats = tulap_cdf(counts - z[..., None], epsilon) @ masses
    return np.clip(tail, 0.0, 1.0)


def noisy_binomial_p_values(at: Any, rows: int, chance: float, epsilon: float) -> tuple[Floats, Floats]:
    """P(X + N >= at) and P(X + N <= at), both rounded up, so that a test by them keeps any level.

    What the window leaves out is added, and each tail is summed for itself: one minus the other tail would be rounding
    where it is small.

    >>> [float(tail.round(6)) for tail in noisy_binomial_p_values(9.0, 10, 0.5, 1.0)]
    [0.02991, 0.97009]
    """
    z = np.asarray(at, np.float64)
    counts, masses = _binomial_window(rows, chance)
    away = counts - z[..., None]
    upper, lower = (
        np.minimum((tulap_cdf(signed, epsilon) @ masses) * (1 + len(counts) * _RATIO_ERROR) + _LEFT_OUT, 1.0)
        for signed in (away, -away)
    )
    return upper, lower
