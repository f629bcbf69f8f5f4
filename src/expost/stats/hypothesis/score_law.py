"""The law of Kendall's score of independent columns, with its noise inside."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.stats.hypothesis.reference import noisy_normal_tail

__all__ = ["MOST_EXACT", "null_deviation", "score_masses", "score_tail"]

Floats = NDArray[np.float64]

MOST_EXACT = 100
"""Rows of which the law is summed; of more it is taken for normal."""


def score_tail(at: Any, rows: int, scale: float) -> Floats:
    """P(score + noise >= at) for discrete Laplace noise of this scale; ``at`` are whole numbers.

    Exact for up to 100 rows. Of more, a normal tail: the law is symmetric, its kurtosis below the normal one, and its
    points are two apart, so that a step of one to the left makes up for them (the continuity correction).

    >>> round(float(score_tail(3, 3, 1e-3)), 4), round(float(score_tail(3, 3, 4.0)), 4)
    (0.1667, 0.2972)
    """
    z = np.asarray(at, np.float64)
    if rows > MOST_EXACT:
        return noisy_normal_tail(z - 1, null_deviation(rows), [scale])
    masses, most = score_masses(rows), rows * (rows - 1) // 2
    points, place = np.unique(z, return_inverse=True)
    away = points[:, None] - np.arange(-most, most + 1, 2)
    tails: Floats = _noise_tail(away, scale) @ masses
    return np.clip(tails[place].reshape(z.shape), 0.0, 1.0)


@lru_cache(maxsize=16)
def score_masses(rows: int) -> Floats:
    """The probabilities of the scores -n (n - 1) / 2, ... in steps of 2, for a uniform permutation (Ken38, Section 4).

    A row that comes k-th is passed by any number from 0 to k - 1 of those before it, all equally likely: the score is a
    sum of independent uniform numbers.

    >>> (6 * score_masses(3)).round(9).tolist()
    [1.0, 2.0, 2.0, 1.0]
    """
    masses = np.ones(1)
    for row in range(2, rows + 1):
        masses = np.convolve(masses, np.full(row, 1 / row))
    return masses


def null_deviation(rows: int) -> float:
    """The standard deviation of the score under independence (Ken38, Section 5).

    >>> round(null_deviation(10) ** 2, 6)
    125.0
    """
    return math.sqrt(rows * (rows - 1) * (2 * rows + 5) / 18)


def _noise_tail(at: Floats, scale: float) -> Floats:
    """P(discrete Laplace noise >= at)."""
    steps = np.where(at > 0, at, 1 - at)
    far = np.exp(-steps / scale) / (1 + math.exp(-1 / scale))
    tail: Floats = np.where(at > 0, far, 1 - far)
    return tail
