"""Is an exact vector short? Decided from the vector under Laplace noise, whose own length is taken out."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

__all__ = ["is_short", "log_chance"]

Floats = NDArray[np.float64]

_RATES = np.geomspace(1e-4, 3.0, 60)
_SLACK = 1e-9  # relative; more than floats and the lattice can move a squared length


def is_short(noisy_length: float, length: float, dimension: int, failure_probability: float) -> bool:
    """Whether the exact vector is certainly no longer than ``length``; lengths in units of the noise's scale.

    A vector longer than ``length`` is taken for a short one with at most the failure probability. That the noise itself is
    about sqrt(2 dimension) long does not count against it (docs/proofs/ridge-certificate.md, 7).

    >>> is_short(12.0, 13.0, 77, 0.01), is_short(12.0, 9.0, 77, 0.01)
    (True, False)
    """
    return log_chance(noisy_length, length, dimension) <= math.log(failure_probability)


def log_chance(noisy_length: float, length: float, dimension: int) -> float:
    """A bound on the log-probability that a vector of this length or longer is this short under noise.

    Markov's inequality for exp(-rate |z|^2). A Laplace variable is normal given an exponential variance, so the expectation of
    one coordinate is a mixture of exponentials in its square, its logarithm is convex there, and the worst vector of a given
    length lies along an axis.
    """
    square = noisy_length**2 * (1 + _SLACK) + _SLACK
    logs = _RATES * square + (dimension - 1) * _log_mean(0.0) + _log_mean(length)
    return min(float(logs.min()), 0.0)


def _log_mean(centre: float) -> Floats:
    """The logarithm of E exp(-rate (centre + Laplace)^2) for every rate: two Gaussian integrals."""
    # (1/2) int_0^inf exp(-b - rate (centre +- b)^2) db = sqrt(pi / rate) / 2 exp(1 / (4 rate) +- centre) Phi(-x sqrt 2).
    root = np.sqrt(2 * _RATES)
    sides = [sign * centre + log_ndtr(-(1 + sign * 2 * _RATES * centre) / root) for sign in (1, -1)]
    together: Floats = np.logaddexp(*sides) + 1 / (4 * _RATES) + 0.5 * np.log(math.pi / _RATES) - math.log(2)
    return together
