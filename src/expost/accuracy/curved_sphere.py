"""What rotation-invariant noise on a minimum costs in risk: a bound for any data, from the law of the noise alone."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from expost.accuracy.rare_failure import check_failure
from expost.accuracy.spherical_norm import spherical_variances

__all__ = ["curved_gaussian_bound", "curved_spherical_bound"]

Floats = NDArray[np.float64]

_CELLS = 1 << 17
_ROUNDOFF = 1e-13  # more than the error of a Fourier transform of probabilities, on every survival
_SEARCH = 80
_SHARES = np.linspace(0.02, 0.98, 49)


def curved_gaussian_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """A bound on sum_j (curvature w_j + 1) g_j^2 for standard normal g and any fixed weights w >= 0 of sum at most 1.

    It is exceeded with at most the failure probability, whatever w is: the conditional value at risk of the worst w, all on
    one coordinate (docs/proofs/output-perturbation.md).

    >>> 2.7 < curved_gaussian_bound(1, 0.0, 0.1) < 4.7  # between the quantile of a chi-square and its mean beyond that
    True
    """
    return _value_at_risk(dimension, curvature, failure_probability, np.ones(1), np.ones(1))


def curved_spherical_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """The same for spherical Laplace noise of scale 1.

    >>> curved_spherical_bound(3, 5.0, 0.1) > curved_spherical_bound(3, 5.0, 0.2)
    True
    """
    variances, chances = spherical_variances(dimension)
    # What the table misses has a probability below 1e-14 and hardly larger variances: its mean excess is added.
    missed = 1e-14 * 2 * float(variances[-1]) * (dimension + curvature)
    return _value_at_risk(dimension, curvature, failure_probability, variances, chances) + missed / failure_probability


@lru_cache(maxsize=64)
def _mean_excess(dimension: int, curvature: float) -> tuple[float, Floats]:
    """E(C - level)+ on a grid of levels, from above, for C = (1 + curvature) g_1^2 + g_2^2 + ... + g_n^2."""
    heavy = 1 + curvature
    # Beyond this reach less than 1e-15 is left of either part.
    reach = dimension + 12 * math.sqrt(2 * dimension) + 80 + 80 * heavy
    grid = reach / _CELLS
    edges = np.arange(_CELLS + 1) * grid
    law = _rounded_up(gammainc(0.5, edges / (2 * heavy)))
    if dimension > 1:
        rest = _rounded_up(gammainc((dimension - 1) / 2, edges / 2))
        law = np.fft.irfft(np.fft.rfft(law) * np.fft.rfft(rest), n=2 * _CELLS)
    survival = np.clip(1 - np.cumsum(law[: _CELLS + 1]), 0, 1) + _ROUNDOFF
    beyond = np.cumsum(survival[::-1])[::-1] * grid
    # E(C - reach)+ <= heavy P(chi^2_3 > s reach / heavy) + n P(chi^2_(n+1) > (1 - s) reach): each part beyond its share.
    parts = heavy * gammaincc(1.5, _SHARES * reach / (2 * heavy))
    parts += dimension * gammaincc((dimension + 1) / 2, (1 - _SHARES) * reach / 2)
    return grid, np.asarray(beyond + float(parts.min()))


def _rounded_up(cumulative: NDArray[Any]) -> Floats:
    cells = np.zeros(2 * _CELLS)
    cells[1 : _CELLS + 1] = np.diff(cumulative)  # each value is rounded up to the next edge
    return cells


@lru_cache(maxsize=256)
def _scaled(dimension: int, curvature: float, failure: float, key: bytes, chances: bytes) -> float:
    grid, beyond = _mean_excess(dimension, curvature)
    variances, weights = np.frombuffer(key), np.frombuffer(chances)

    def bound(level: float) -> float:
        cells = np.minimum((level / variances / grid).astype(np.int64), len(beyond) - 1)  # rounded down: from above
        return level + float(weights * variances @ beyond[cells]) / failure

    low, high = 0.0, 4 * float(variances @ weights) * grid * _CELLS
    for _ in range(_SEARCH):  # the bound is convex in the level, and valid at every level
        third = (high - low) / 3
        low, high = (low, high - third) if bound(low + third) <= bound(high - third) else (low + third, high)
    return bound((low + high) / 2)


def _value_at_risk(dimension: int, curvature: float, failure: float, variances: Floats, chances: Floats) -> float:
    check_failure(failure)
    return _scaled(dimension, curvature, failure, variances.tobytes(), chances.tobytes())
