"""What epsilon buys before the run for output perturbation: the minimum plus noise."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

__all__ = ["curved_noise_bound"]

_CELLS = 1 << 17


@lru_cache(maxsize=64)
def curved_noise_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """A bound on sum_j (curvature w_j + 1) b_j^2 for unit Laplace b and any fixed weights w >= 0 with sum at most 1.

    It is exceeded with at most the failure probability whatever w is. The sum is convex in w, so its mean excess over
    any level is largest where w is all on one coordinate; the bound is that law's conditional value at risk
    min_c c + E(S - c)+ / failure, by Markov's inequality (docs/proofs/output-perturbation.md).

    >>> round(curved_noise_bound(1, 0.0, 0.1), 1)  # of an exponential squared: larger than its quantile 5.3
    11.9
    """
    heavy = 1 + curvature
    # Laplace squares have mean 2, variance 20 and the tail exp(-sqrt(t)): beyond this reach less than 1e-12 is left.
    reach = 2 * dimension + 12 * math.sqrt(20 * dimension) + 900 * heavy
    grid = reach / _CELLS
    edges = np.arange(_CELLS + 1) * grid
    light_cells = _rounded_up(np.sqrt(edges))
    heavy_cells = _rounded_up(np.sqrt(edges / heavy))
    law = np.fft.irfft(np.fft.rfft(light_cells) ** (dimension - 1) * np.fft.rfft(heavy_cells), n=2 * _CELLS)
    survival = np.clip(1 - np.cumsum(law[: _CELLS + 1]), 0, 1) + 1e-11
    # E(S - c)+ is the integral of the survival beyond c. What lies beyond the reach is less than 1e-11 of half the reach,
    # which the roundoff adds to every c up to the middle; at later ones it would be missing (docs/proofs/small-terms.md).
    beyond = np.cumsum(survival[::-1])[::-1] * grid
    return float((edges + beyond / failure_probability)[: _CELLS // 2].min())


def _rounded_up(roots: np.ndarray) -> np.ndarray:
    """Probabilities of the square of a Laplace variable, rounded up to the grid whose cell borders have these roots."""
    cells = np.zeros(2 * _CELLS)
    cells[1 : _CELLS + 1] = -np.diff(np.exp(-roots))
    return cells
