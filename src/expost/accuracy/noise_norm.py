"""How long vectors of noise are: quantiles of norms and of curved squares, always rounded up.

Convolutions are by Fourier transforms on grids to which every value is rounded up. What the grids miss, what a circular
convolution folds back and what the transforms round are all counted as failures.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.noise.spherical_noise import GRID_RATIO, least_step, shape_of

__all__ = [
    "LEAST_FAILURE",
    "check_failure",
    "curved_gaussian_bound",
    "curved_noise_bound",
    "curved_spherical_bound",
    "laplace_norm_quantile",
    "spherical_norm_quantile",
    "spherical_variances",
    "too_rare",
]

Floats = NDArray[np.float64]

LEAST_FAILURE = 1e-11
"""Fourier transforms of probabilities are off by less; rarer failures cannot be distinguished from their error."""

_NORM_CELLS = 1 << 18
_CURVED_CELLS = 1 << 17
_CLOSE = 1e-9  # relative, far above the error of the incomplete gamma functions
_MISSED = 1e-14  # probability of variances beyond the table; counted as failure
_GAUSSIAN_ROUNDOFF = 1e-13  # more than the error of a Fourier transform of probabilities, on every survival
_SEARCH_STEPS = 80
_SHARES = np.linspace(0.02, 0.98, 49)


def check_failure(failure_probability: float) -> None:
    """Refuse a failure probability for which no quantile of noise can be computed in floats."""
    if not LEAST_FAILURE < failure_probability < 1:
        raise too_rare(failure_probability)


def too_rare(failure_probability: float) -> InvalidRequest:
    """Return the error for a quantile that was not found."""
    expected = f"Expected a failure probability well above {LEAST_FAILURE:g} and below 1"
    return InvalidRequest(expected, got=failure_probability, do="Allow more failures")


@lru_cache(maxsize=256)
def laplace_norm_quantile(dimension: int, failure_probability: float) -> float:
    """Return a length that the Euclidean norm of ``dimension`` unit Laplace variables exceeds this rarely.

    The squares are rounded up to a grid and convolved, so the value is an upper bound, at most 0.3 % too large. On
    the lattice each coordinate may be one grid unit longer (docs/proofs/objective-perturbation.md).

    >>> round(laplace_norm_quantile(1, 0.1), 2)  # -ln(0.1)
    2.3
    """
    grid, survival = _laplace_survival(dimension)
    check_failure(failure_probability)
    if dimension == 1:
        return -math.log(failure_probability) * (1 + 1e-12)
    # survival[k] >= P(sum of squares > k grid); what is added to it for rounding may exceed what is allowed.
    enough = survival <= failure_probability
    cell = int(np.argmax(enough))
    if not enough[cell]:
        raise too_rare(failure_probability)
    return math.sqrt(cell * grid) * (1 + 1e-12)


@lru_cache(maxsize=64)
def _laplace_survival(dimension: int) -> tuple[float, Floats]:
    """Return a grid and P(sum of Laplace squares > k grid), from above."""
    if dimension < 1:
        raise InvalidRequest("Expected at least one dimension", got=dimension, do="Pass a positive dimension")
    # Squares of Laplace variables have mean 2 and variance 20; the tail of one is exp(-sqrt(t)), below 1e-13 at 900.
    reach = 2 * dimension + 12 * math.sqrt(20 * dimension) + 900
    grid = reach / _NORM_CELLS
    edges = np.sqrt(np.arange(_NORM_CELLS + 1) * grid)
    cells = np.zeros(2 * _NORM_CELLS)
    cells[1 : _NORM_CELLS + 1] = -np.diff(np.exp(-edges))  # each square is rounded up to the next multiple of the grid
    total = np.fft.irfft(np.fft.rfft(cells) ** dimension, n=2 * _NORM_CELLS)[: _NORM_CELLS + 1]
    # P(the sum leaves the circle) by Markov's inequality on exp(tilt * sum), with a tilt below the rate exp(-sqrt) of
    # one tail anywhere in reach.
    kept = cells[: _NORM_CELLS + 1]
    longest = grid * (len(kept) - 1)
    tilt = 0.75 / math.sqrt(longest)
    one = float(kept @ np.exp(tilt * grid * np.arange(len(kept))))
    folded = math.exp(min(dimension * math.log(one) - tilt * 2 * longest, 0.0))
    # What the cells miss, and what a circular convolution folds back, is added as failure.
    missed = dimension * math.exp(-edges[-1]) + folded + LEAST_FAILURE
    survival = np.clip(1 - np.cumsum(total) + missed, 0, 1)
    survival.setflags(write=False)
    return grid, survival


@lru_cache(maxsize=64)
def spherical_variances(dimension: int) -> tuple[Floats, Floats]:
    """Return the variances that spherical noise of scale 1 is a mixture of, and their probabilities.

    The probability that is missed is below 1e-14.

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
    cells = np.where(
        ends[1:] < shape, np.diff(scipy.special.gammainc(shape, ends)), -np.diff(scipy.special.gammaincc(shape, ends))
    )
    if dimension % 2 == 0:
        cells *= ratio ** (-(steps[1:] - steps[0]) / 2)
    chances: Floats = cells / cells.sum()
    variances: Floats = np.asarray(2 * ends[1:], dtype=np.float64)
    for table in (variances, chances):
        table.setflags(write=False)
    return variances, chances


@lru_cache(maxsize=256)
def spherical_norm_quantile(dimension: int, failure_probability: float) -> float:
    """Return a length that spherical Laplace noise of scale 1 exceeds this rarely.

    For real-valued noise; on a lattice add 33 units times the root of the dimension (docs/proofs/spherical-laplace.md).

    >>> spherical_norm_quantile(3, 0.1) < 5.5  # a Gamma law of shape 3 has its quantile at 5.32
    True
    """
    check_failure(failure_probability)
    variances, chances = spherical_variances(dimension)
    goal = failure_probability * (1 - _CLOSE) - _MISSED

    def tail(length: float) -> float:
        return float(chances @ scipy.special.gammaincc(dimension / 2, length**2 / (2 * variances)))

    low, high = 0.0, 4.0 * dimension + 40.0
    while tail(high) > goal:
        high *= 2
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > goal else (low, middle)
    return high * (1 + _CLOSE)


def curved_noise_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """Bound sum_j (curvature w_j + 1) b_j^2 for unit Laplace b and any fixed weights w >= 0 with sum at most 1.

    It is exceeded with at most the failure probability whatever w is. The sum is convex in w, so its mean excess over
    any level is largest where w is all on one coordinate; the bound is that law's conditional value at risk
    min_c c + E(S - c)+ / failure, by Markov's inequality (docs/proofs/output-perturbation.md).

    >>> round(curved_noise_bound(1, 0.0, 0.1), 1)  # of an exponential squared: larger than its quantile 5.3
    11.9
    """
    check_failure(failure_probability)
    levels, beyond, cut = _laplace_mean_excess(dimension, curvature)
    allowed = failure_probability - cut
    if allowed <= 0:
        raise too_rare(failure_probability)
    return float((levels + beyond / allowed).min())


@lru_cache(maxsize=64)
def _laplace_mean_excess(dimension: int, curvature: float) -> tuple[Floats, Floats, float]:
    """Return levels c, E(S - c)+ from above for squares cut at a reach, and P(any square is beyond it)."""
    heavy, size = 1 + curvature, _CURVED_CELLS
    # Laplace squares have mean 2, variance 20 and the tail exp(-sqrt(t)).
    reach = 2 * dimension + 12 * math.sqrt(20 * dimension) + 900 * heavy
    grid = reach / size
    edges: Floats = np.asarray(np.arange(size + 1) * grid, np.float64)
    light_cells, heavy_cells = np.zeros(2 * size), np.zeros(2 * size)
    light_cells[1 : size + 1] = -np.diff(np.exp(-np.sqrt(edges)))  # each square is rounded up to the next edge
    heavy_cells[1 : size + 1] = -np.diff(np.exp(-np.sqrt(edges / heavy)))
    law = np.fft.irfft(np.fft.rfft(light_cells) ** (dimension - 1) * np.fft.rfft(heavy_cells), n=2 * size)
    # Cut at the reach, the sum has the exponential moments that Markov's inequality needs.
    cut = (dimension - 1) * math.exp(-math.sqrt(reach)) + math.exp(-math.sqrt(reach / heavy))
    values = grid * np.arange(size + 1)
    tilt = 0.75 / math.sqrt(heavy * values[-1])  # below the rate exp(-sqrt) of either tail anywhere within the reach
    powers = np.exp(tilt * values)
    means = [float(cells[: size + 1] @ powers) for cells in (light_cells, heavy_cells)]
    moment = (dimension - 1) * math.log(means[0]) + math.log(means[1])
    folded = math.exp(min(moment - tilt * 2 * reach, 0.0))  # P(sum > 2 reach): what the circle folds back
    last = math.exp(moment - tilt * reach - 1) / tilt  # E(sum - reach)+, since x+ <= exp(tilt x - 1) / tilt
    survival = np.clip(1 - np.cumsum(law[: size + 1]), 0, 1) + LEAST_FAILURE + folded
    # E(S - c)+ is the integral of the survival beyond c.
    return edges, np.cumsum(survival[::-1])[::-1] * grid + last, cut


def curved_gaussian_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """Bound sum_j (curvature w_j + 1) g_j^2 for standard normal g and any fixed weights w >= 0 of sum at most 1.

    It is exceeded with at most the failure probability, whatever w is: the conditional value at risk of the worst w,
    all on one coordinate (docs/proofs/output-perturbation.md).

    >>> 2.7 < curved_gaussian_bound(1, 0.0, 0.1) < 4.7  # between the quantile of a chi-square and its mean beyond that
    True
    """
    check_failure(failure_probability)
    return _value_at_risk(dimension, curvature, failure_probability, np.ones(1).tobytes(), np.ones(1).tobytes())


def curved_spherical_bound(dimension: int, curvature: float, failure_probability: float) -> float:
    """Bound the sum of ``curved_gaussian_bound`` for spherical Laplace noise of scale 1.

    >>> curved_spherical_bound(3, 5.0, 0.1) > curved_spherical_bound(3, 5.0, 0.2)
    True
    """
    check_failure(failure_probability)
    variances, chances = spherical_variances(dimension)
    # What the table misses has a probability below 1e-14 and hardly larger variances: its mean excess is added.
    missed = 1e-14 * 2 * float(variances[-1]) * (dimension + curvature)
    bound = _value_at_risk(dimension, curvature, failure_probability, variances.tobytes(), chances.tobytes())
    return bound + missed / failure_probability


@lru_cache(maxsize=256)
def _value_at_risk(dimension: int, curvature: float, failure: float, variances: bytes, chances: bytes) -> float:
    """Return min_c c + E(V C - c)+ / failure for a mixture of variances V; arrays as bytes, so that they hash."""
    grid, beyond = _gaussian_mean_excess(dimension, curvature)
    scales, weights = np.frombuffer(variances), np.frombuffer(chances)

    def bound(level: float) -> float:
        cells = np.minimum((level / scales / grid).astype(np.int64), len(beyond) - 1)  # rounded down: from above
        return level + float(weights * scales @ beyond[cells]) / failure

    low, high = 0.0, 4 * float(scales @ weights) * grid * _CURVED_CELLS
    for _ in range(_SEARCH_STEPS):  # the bound is convex in the level, and valid at every level
        third = (high - low) / 3
        low, high = (low, high - third) if bound(low + third) <= bound(high - third) else (low + third, high)
    return bound((low + high) / 2)


@lru_cache(maxsize=64)
def _gaussian_mean_excess(dimension: int, curvature: float) -> tuple[float, Floats]:
    """Return a grid and E(C - level)+ on it, from above, for C = (1 + curvature) g_1^2 + g_2^2 + ... + g_n^2."""
    heavy, size = 1 + curvature, _CURVED_CELLS
    # Beyond this reach less than 1e-15 is left of either part.
    reach = dimension + 12 * math.sqrt(2 * dimension) + 80 + 80 * heavy
    grid = reach / size
    edges = np.arange(size + 1) * grid
    law = np.zeros(2 * size)
    law[1 : size + 1] = np.diff(
        scipy.special.gammainc(0.5, edges / (2 * heavy))
    )  # each value is rounded up to the next edge
    if dimension > 1:
        rest = np.zeros(2 * size)
        rest[1 : size + 1] = np.diff(scipy.special.gammainc((dimension - 1) / 2, edges / 2))
        law = np.fft.irfft(np.fft.rfft(law) * np.fft.rfft(rest), n=2 * size)
    survival = np.clip(1 - np.cumsum(law[: size + 1]), 0, 1) + _GAUSSIAN_ROUNDOFF
    beyond = np.cumsum(survival[::-1])[::-1] * grid
    # E(C - reach)+ <= heavy P(chi^2_3 > s reach / heavy) + n P(chi^2_(n+1) > (1 - s) reach): each beyond its share.
    parts = heavy * scipy.special.gammaincc(1.5, _SHARES * reach / (2 * heavy))
    parts += dimension * scipy.special.gammaincc((dimension + 1) / 2, (1 - _SHARES) * reach / 2)
    return grid, np.asarray(beyond + float(parts.min()))
