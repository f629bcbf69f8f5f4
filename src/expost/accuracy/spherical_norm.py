"""How long a vector of spherical Laplace noise is: quantiles, rounded up."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from expost.accuracy.rare_failure import check_failure
from expost.core import InvalidRequest
from expost.noise.spherical_laplace import GRID_RATIO, least_step, shape_of

__all__ = ["spherical_norm_quantile", "spherical_variances"]

Floats = NDArray[np.float64]

_CLOSE = 1e-9  # relative, far above the error of the incomplete gamma functions
_MISSED = 1e-14  # probability of variances beyond the table; counted as failure


@lru_cache(maxsize=64)
def spherical_variances(dimension: int) -> tuple[Floats, Floats]:
    """The variances that spherical noise of scale 1 is mixed of, and their probabilities; what is missed is below 1e-14.

    >>> variances, chances = spherical_variances(5)
    >>> round(float(chances.sum()), 9), round(float(variances @ chances), 1)  # the ideal mean is dimension + 1
    (1.0, 6.0)
    """
    if dimension < 1:
        raise InvalidRequest("Expected at least one dimension", got=dimension, do="Pass a positive dimension")
    shape, ratio = shape_of(dimension), float(GRID_RATIO)
    highest = math.ceil(math.log((40 + 2 * shape + 12 * math.sqrt(shape)) / shape) / math.log(ratio))
    steps = np.arange(least_step(), highest + 1)
    ends = shape * ratio**steps
    # Differences on the side where they lose no digits.
    cells = np.where(ends[1:] < shape, np.diff(gammainc(shape, ends)), -np.diff(gammaincc(shape, ends)))
    if dimension % 2 == 0:
        cells *= ratio ** (-(steps[1:] - steps[0]) / 2)
    chances: Floats = cells / cells.sum()
    variances: Floats = np.asarray(2 * ends[1:], dtype=np.float64)
    for table in (variances, chances):
        table.setflags(write=False)
    return variances, chances


@lru_cache(maxsize=256)
def spherical_norm_quantile(dimension: int, failure_probability: float) -> float:
    """A length that spherical Laplace noise of scale 1 exceeds with at most this probability.

    For real-valued noise; on a lattice add 33 units a root of the dimension (docs/proofs/spherical-laplace.md).

    >>> spherical_norm_quantile(3, 0.1) < 5.5  # a Gamma law of shape 3 has its quantile at 5.32
    True
    """
    check_failure(failure_probability)
    variances, chances = spherical_variances(dimension)
    goal = failure_probability * (1 - _CLOSE) - _MISSED

    def tail(length: float) -> float:
        return float(chances @ gammaincc(dimension / 2, length**2 / (2 * variances)))

    low, high = 0.0, 4.0 * dimension + 40.0
    while tail(high) > goal:
        high *= 2
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > goal else (low, middle)
    return high * (1 + _CLOSE)
