"""How far a sum of noises goes: bounds on the unknown number of rows of a table."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["NUISANCE_SIZE", "noise_reach", "size_range"]

NUISANCE_SIZE = 0.001
"""The probability spent on bounding the unknown number of rows; it is added to the p-value (BB94, Lemma 1)."""

_STRENGTHS = np.linspace(0.02, 0.999, 400)


def noise_reach(cells: int, scale: float, *, failure_probability: float) -> int:
    """A number that the absolute sum of so many discrete Laplace noises exceeds with at most this probability.

    Chernoff's bound: the moment generating function of one, at t, is 1 / (1 - (sinh(t/2) / sinh(e/2))^2) with e the
    inverse of the scale.

    >>> noise_reach(1, 10.0, failure_probability=0.001)
    103
    """
    e = 1 / scale
    t = e * _STRENGTHS
    logs = -cells * np.log1p(-((np.sinh(t / 2) / math.sinh(e / 2)) ** 2))
    reach = (logs + math.log(2 / failure_probability)) / t
    return math.ceil(float(reach.min()))


def size_range(total: float, cells: int, scale: float) -> tuple[int, int]:
    """The numbers of rows that a noisy total leaves possible, but for probability ``NUISANCE_SIZE``.

    >>> size_range(500, 2, 10.0)
    (380, 620)
    """
    reach = noise_reach(cells, scale, failure_probability=NUISANCE_SIZE)
    high = max(math.floor(total) + reach, 0)
    return min(max(math.ceil(total) - reach, 0), high), high
