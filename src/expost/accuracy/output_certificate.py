"""What epsilon buys before the run for output perturbation: the minimum plus noise."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.rare_failure import LEAST_FAILURE, check_failure, too_rare

__all__ = ["curved_noise_bound"]

Floats = NDArray[np.float64]

_CELLS = 1 << 17
_ROUNDOFF = LEAST_FAILURE  # more than the error of a Fourier transform of probabilities, on every survival


def curved_noise_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """A bound on sum_j (curvature w_j + 1) b_j^2 for unit Laplace b and any fixed weights w >= 0 with sum at most 1.

    It is exceeded with at most the failure probability whatever w is. The sum is convex in w, so its mean excess over
    any level is largest where w is all on one coordinate; the bound is that law's conditional value at risk
    min_c c + E(S - c)+ / failure, by Markov's inequality (docs/proofs/output-perturbation.md).

    >>> round(curved_noise_bound(1, 0.0, 0.1), 1)  # of an exponential squared: larger than its quantile 5.3
    11.9
    """
    check_failure(failure_probability)
    levels, beyond, cut = _mean_excess(dimension, curvature)
    allowed = failure_probability - cut
    if allowed <= 0:
        raise too_rare(failure_probability)
    return float((levels + beyond / allowed).min())


@lru_cache(maxsize=64)
def _mean_excess(dimension: int, curvature: float) -> tuple[Floats, Floats, float]:
    """Levels c, E(S - c)+ from above for squares cut at a reach, and the probability that any square is beyond it."""
    heavy = 1 + curvature
    # Laplace squares have mean 2, variance 20 and the tail exp(-sqrt(t)).
    reach = 2 * dimension + 12 * math.sqrt(20 * dimension) + 900 * heavy
    grid = reach / _CELLS
    edges: Floats = np.asarray(np.arange(_CELLS + 1) * grid, np.float64)
    light_cells = _rounded_up(np.sqrt(edges))
    heavy_cells = _rounded_up(np.sqrt(edges / heavy))
    law = np.fft.irfft(np.fft.rfft(light_cells) ** (dimension - 1) * np.fft.rfft(heavy_cells), n=2 * _CELLS)
    # Cut at the reach, the sum has the exponential moments that Markov's inequality needs.
    cut = (dimension - 1) * math.exp(-math.sqrt(reach)) + math.exp(-math.sqrt(reach / heavy))
    tilt, moment = _moment(light_cells, heavy_cells, grid, heavy, dimension)
    folded = math.exp(min(moment - tilt * 2 * reach, 0.0))  # P(sum > 2 reach): what the circle folds back
    last = math.exp(moment - tilt * reach - 1) / tilt  # E(sum - reach)+, since x+ <= exp(tilt x - 1) / tilt
    survival = np.clip(1 - np.cumsum(law[: _CELLS + 1]), 0, 1) + _ROUNDOFF + folded
    # E(S - c)+ is the integral of the survival beyond c.
    return edges, np.cumsum(survival[::-1])[::-1] * grid + last, cut


def _moment(light: Floats, heavy: Floats, grid: float, factor: float, dimension: int) -> tuple[float, float]:
    """A tilt and the logarithm of the mean of exp(tilt * sum) of cut squares, for Markov's inequality."""
    values = grid * np.arange(_CELLS + 1)
    # Below the rate exp(-sqrt) of either tail anywhere within the reach.
    tilt = 0.75 / math.sqrt(factor * values[-1])
    powers = np.exp(tilt * values)
    means = [float(cells[: _CELLS + 1] @ powers) for cells in (light, heavy)]
    return tilt, (dimension - 1) * math.log(means[0]) + math.log(means[1])


def _rounded_up(roots: Floats) -> Floats:
    """Probabilities of the square of a Laplace variable, rounded up to the grid whose cell borders have these roots."""
    cells = np.zeros(2 * _CELLS)
    cells[1 : _CELLS + 1] = -np.diff(np.exp(-roots))
    return cells
