"""How long a vector of independent Laplace noise is: exact quantiles, rounded up."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.rare_failure import LEAST_FAILURE, check_failure, too_rare
from expost.core import InvalidRequest

__all__ = ["laplace_norm_quantile", "laplace_norm_tail"]

_CELLS = 1 << 18
_ROUNDOFF = LEAST_FAILURE  # more than the error of the Fourier transforms of probabilities; spent on the safe side


@lru_cache(maxsize=256)
def laplace_norm_quantile(dimension: int, failure_probability: float) -> float:
    """A length that the Euclidean norm of ``dimension`` unit Laplace variables exceeds with at most this probability.

    The squares are rounded up to a grid and convolved, so the value is an upper bound, at most 0.3 % too large. On
    the lattice each coordinate may be one grid unit longer (docs/proofs/objective-perturbation.md).

    >>> round(laplace_norm_quantile(1, 0.1), 2)  # -ln(0.1)
    2.3
    """
    grid, survival = _survival(dimension)
    check_failure(failure_probability)
    if dimension == 1:
        return -math.log(failure_probability) * (1 + 1e-12)
    # survival[k] >= P(sum of squares > k grid); what is added to it for rounding may be more than is allowed
    enough = survival <= failure_probability
    cell = int(np.argmax(enough))
    if not enough[cell]:
        raise too_rare(failure_probability)
    return math.sqrt(cell * grid) * (1 + 1e-12)


def laplace_norm_tail(dimension: int, length: float) -> float:
    """The probability, rounded up, that the norm of unit Laplace variables exceeds ``length``.

    >>> laplace_norm_tail(2, 0.0)
    1.0
    """
    grid, survival = _survival(dimension)
    cell = math.floor(length**2 / grid)
    return float(survival[cell]) if cell < len(survival) else float(survival[-1])


@lru_cache(maxsize=64)
def _survival(dimension: int) -> tuple[float, NDArray[np.float64]]:
    if dimension < 1:
        raise InvalidRequest("Expected at least one dimension", got=dimension, do="Pass a positive dimension")
    # Squares of Laplace variables have mean 2 and variance 20; the tail of one is exp(-sqrt(t)), below 1e-13 at 900.
    reach = 2 * dimension + 12 * math.sqrt(20 * dimension) + 900
    grid = reach / _CELLS
    edges = np.sqrt(np.arange(_CELLS + 1) * grid)
    cells = np.zeros(2 * _CELLS)
    cells[1 : _CELLS + 1] = -np.diff(np.exp(-edges))  # each square is rounded up to the next multiple of the grid
    total = np.fft.irfft(np.fft.rfft(cells) ** dimension, n=2 * _CELLS)[: _CELLS + 1]
    # What the cells miss, and what a circular convolution folds back, is added as failure.
    missed = dimension * math.exp(-edges[-1]) + _folded(cells[: _CELLS + 1], grid, dimension) + _ROUNDOFF
    survival = np.clip(1 - np.cumsum(total) + missed, 0, 1)
    survival.setflags(write=False)
    return grid, survival


def _folded(cells: NDArray[np.float64], grid: float, dimension: int) -> float:
    """A bound on the probability that the sum leaves the circle, by Markov's inequality on exp(tilt * sum)."""
    reach = grid * (len(cells) - 1)
    tilt = 0.75 / math.sqrt(reach)  # below the rate exp(-sqrt) of one tail anywhere in reach
    one = float(cells @ np.exp(tilt * grid * np.arange(len(cells))))
    return math.exp(min(dimension * math.log(one) - tilt * 2 * reach, 0.0))
