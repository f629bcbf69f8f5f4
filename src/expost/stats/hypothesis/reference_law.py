"""Reference distributions with the noise inside: tails, quantiles and draws.

All of it is post-processing of public numbers, so rounding in floats cannot weaken privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special

from expost.noise import BitSource, system_bits

__all__ = [
    "NUISANCE_SIZE",
    "binomial_masses",
    "bound_noise_sum",
    "bound_table_size",
    "critical_score",
    "noise_variance",
    "noisy_normal_power",
    "noisy_normal_quantile",
    "noisy_normal_tail",
    "noisy_score_tail",
    "sample_binomials",
    "sample_laplaces",
    "sample_multinomials",
    "sample_normals",
    "sample_row_counts",
    "sample_uniforms",
    "student_factor",
]

Floats = NDArray[np.float64]

NUISANCE_SIZE = 0.001
"""The probability spent on bounding the unknown number of rows; it is added to the p-value (BB94, Lemma 1)."""

_APART = 1.005  # scales closer than this are moved apart, upwards: more noise in the reference, never less
_LOG = 42.0
_MOST_CELLS = 1 << 24  # size limit of tables of distribution functions
_STRENGTHS = np.linspace(0.02, 0.999, 400)


def noisy_normal_tail(at: Any, deviation: Any, scales: list[Any]) -> Floats:
    """Return P(Z > at) for Z = Normal(0, deviation^2) + the sum of Laplace(scale) over ``scales``; broadcasts.

    With different scales the characteristic function of the Laplace part splits into partial fractions,
    prod 1/(1 + b_i^2 t^2) = sum w_i / (1 + b_i^2 t^2), w_i = prod_{j != i} b_i^2 / (b_i^2 - b_j^2), so the tail is a
    weighted sum of tails of normal plus one Laplace, each in closed form. Discrete Laplace noise of scale b = 1/e has
    the moment generating function 1/(1 - (sinh(t/2)/sinh(e/2))^2) <= 1/(1 - (t/e)^2), so the reference is not narrower
    than the noise that was added.

    >>> float(noisy_normal_tail(0.0, 1.0, [2.0]))
    0.5
    >>> round(float(noisy_normal_tail(3.0, 1.0, [2.0, 0.5])), 4)
    0.1342
    """
    x, s = np.asarray(at, np.float64), np.asarray(deviation, np.float64)
    positive = [np.asarray(scale, np.float64) for scale in scales if np.any(np.asarray(scale) > 0)]
    if not positive:
        normal: Floats = special.ndtr(-x / np.maximum(s, 1e-300))
        return normal
    # In rising order, each at least a little above the one before: equal scales would divide by zero in the weights.
    ordered = np.sort(np.stack(np.broadcast_arrays(*positive)), axis=0)
    parts = [np.maximum(ordered[0], ordered[-1] * 1e-6)]
    for scale in ordered[1:]:
        parts.append(np.maximum(scale, _APART * parts[-1]))
    s = np.maximum(s, parts[-1] * 1e-9)
    total: Floats = np.zeros(np.broadcast_shapes(x.shape, s.shape, *(part.shape for part in parts)))
    for index, b in enumerate(parts):
        weight = np.ones_like(b)
        for other, c in enumerate(parts):
            if other != index:
                weight = weight * b**2 / (b**2 - c**2)
        # P(Normal + one Laplace > x): the Gaussian tail plus two exponentially tilted ones, in logarithms.
        log_tilt = s**2 / (2 * b**2)
        up = np.exp(np.minimum(log_tilt - x / b + special.log_ndtr(x / s - s / b), 0.0))
        down = np.exp(np.minimum(log_tilt + x / b + special.log_ndtr(-x / s - s / b), 0.0))
        total = total + weight * (special.ndtr(-x / s) + (up - down) / 2)
    return np.clip(total, 0.0, 1.0)


def noisy_normal_quantile(tail: float, deviation: float, scales: list[float]) -> float:
    """Return the point that the same sum exceeds with probability ``tail`` < 1/2, by bisection, rounded outwards."""
    low, high = 0.0, deviation + sum(scales)
    while float(noisy_normal_tail(high, deviation, scales)) > tail:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if float(noisy_normal_tail(middle, deviation, scales)) > tail else (low, middle)
    return high


def noisy_normal_power(critical: float, shift: float, deviation: float, scales: Any, alternative: str) -> float:
    """Return the power of a test that rejects beyond a critical value, if the statistic has this mean and law."""
    toward = {"two-sided": abs(shift), "greater": shift, "less": -shift}[alternative]
    power = noisy_normal_tail(critical - toward, deviation, list(scales))
    if alternative == "two-sided":
        power = power + noisy_normal_tail(critical + toward, deviation, list(scales))
    return float(np.clip(power, 0.0, 1.0))


def noisy_score_tail(at: Any, masses: Floats, scale: float) -> Floats:
    """Return P(score + noise >= at) exactly: discrete Laplace noise of this scale, scores of these probabilities.

    The scores are centered, in steps of 2; ``at`` are whole numbers.

    >>> masses = np.array([1, 2, 2, 1]) / 6
    >>> round(float(noisy_score_tail(3, masses, 1e-3)), 4), round(float(noisy_score_tail(3, masses, 4.0)), 4)
    (0.1667, 0.2972)
    """
    z, most = np.asarray(at, np.float64), len(masses) - 1
    decay = math.exp(-2 / scale)
    # Sums of the probabilities below and above each score, weighted by exp(-distance / scale): recursions.
    below, above = (signal.lfilter([1.0], [1.0, -decay], part) for part in (masses, masses[::-1]))
    beyond = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    place = np.clip(np.ceil((z + most) / 2), 0, most + 1).astype(np.int64)  # of the first score that is large enough
    under, over = np.maximum(place - 1, 0), np.minimum(place, most)
    low = np.where(place > 0, below[under] * np.exp(-np.maximum(z - (2 * under - most), 0) / scale), 0.0)
    high = np.where(place <= most, above[most - over] * np.exp(-np.maximum(2 * over - most - z, 0) / scale), 0.0)
    step = math.exp(-1 / scale)
    # P(noise >= d) is exp(-d / scale) / (1 + step) for d > 0, and 1 - exp(-(1 - d) / scale) / (1 + step) otherwise.
    tails: Floats = beyond[place] + (low - step * high) / (1 + step)
    return np.clip(tails, 0.0, 1.0)


def critical_score(tail_at: Callable[[float], Any], tail: float) -> float:
    """Return the smallest whole number whose upper tail is at most ``tail`` < 1/2, by bisection.

    >>> critical_score(lambda z: noisy_score_tail(z, np.array([1, 2, 2, 1]) / 6, 1e-3), 0.2)
    2
    """
    low, high = 0, 1
    while float(tail_at(high)) > tail:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if float(tail_at(middle)) > tail else (low, middle)
    return high


def student_factor(freedom: Any) -> Floats:
    """Return how much wider Student's t is than the normal at a tail of 1e-4; larger tails are covered too.

    >>> round(float(student_factor(10.0)), 3)
    1.531
    """
    factor: Floats = special.stdtrit(freedom, 1 - 1e-4) / special.ndtri(1 - 1e-4)
    return factor


def noise_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise: 2 a / (1 - a)^2 with a = exp(-1/scale)."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def bound_noise_sum(cells: int, scale: float, *, failure_probability: float) -> int:
    """Bound the absolute sum of ``cells`` discrete Laplace noises, except with this probability.

    Chernoff's bound: the moment generating function of one, at t, is 1 / (1 - (sinh(t/2) / sinh(e/2))^2) with e the
    inverse of the scale.
    """
    e = 1 / scale
    t = e * _STRENGTHS
    logs = -cells * np.log1p(-((np.sinh(t / 2) / math.sinh(e / 2)) ** 2))
    reach = (logs + math.log(2 / failure_probability)) / t
    return math.ceil(float(reach.min()))


def bound_table_size(total: float, cells: int, scale: float) -> tuple[int, int]:
    """Return the range of row counts that a noisy total leaves possible, except with probability ``NUISANCE_SIZE``."""
    reach = bound_noise_sum(cells, scale, failure_probability=NUISANCE_SIZE)
    high = max(math.floor(total) + reach, 0)
    return min(max(math.ceil(total) - reach, 0), high), high


def sample_uniforms(shape: tuple[int, ...], bits: BitSource | None = None) -> Floats:
    """Draw uniform numbers strictly between 0 and 1, on a grid of 2^-53."""
    words = (bits or system_bits()).words(int(np.prod(shape)))
    drawn: Floats = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return drawn.reshape(shape)


def sample_normals(shape: tuple[int, ...], bits: BitSource | None = None) -> Floats:
    """Draw standard normal numbers, by inversion."""
    drawn: Floats = special.ndtri(sample_uniforms(shape, bits))
    return drawn


def sample_laplaces(shape: tuple[int, ...], bits: BitSource | None = None) -> Floats:
    """Draw Laplace numbers of scale 1, by inversion."""
    centered = sample_uniforms(shape, bits) - 0.5
    drawn: Floats = -np.sign(centered) * np.log1p(-2 * np.abs(centered))
    return drawn


def sample_binomials(trials: Any, chance: Any, bits: BitSource | None = None) -> Floats:
    """Draw binomial numbers, one per element of the broadcast arguments, by inversion of the distribution function."""
    n, p = np.broadcast_arrays(np.asarray(trials, np.float64), np.clip(chance, 0.0, 1.0))
    u = sample_uniforms(n.shape, bits)
    inside = (n > 0) & (p > 0) & (p < 1)
    drawn: Floats = np.where(p >= 1, n, 0.0)
    if not inside.any():
        return drawn
    found = _invert_by_table(u[inside], n[inside], float(chance)) if np.ndim(chance) == 0 else None
    if found is None:
        k = np.ceil(special.bdtrik(u[inside], n[inside], p[inside]))
        found = np.clip(np.nan_to_num(k, nan=0.0), 0.0, n[inside])  # below P(0) it has no solution: it is 0
    drawn[inside] = found
    return drawn


def _invert_by_table(u: Floats, n: Floats, chance: float) -> Floats | None:
    """Invert the distribution functions for one chance by table lookup; None if the tables would be too large."""
    different, place = np.unique(n, return_inverse=True)
    most = float(different[-1])
    # Bernstein's inequality: the binomial mass beyond this reach is below exp(-42), less than one step of the uniform.
    reach = math.ceil(math.sqrt(2 * _LOG * most * chance * (1 - chance)) + 2 * _LOG / 3)
    if len(different) * (2 * reach + 1) > _MOST_CELLS or most > _MOST_CELLS:
        return None
    first = np.maximum(np.floor(different * chance) - reach, 0.0)
    counts = first[:, None] + np.arange(2 * reach + 2)
    upto = np.minimum(np.cumsum(binomial_masses(counts, different[:, None], chance), axis=1), 1.0)
    upto[:, -1] = 1.0
    # One search for all tables: the table of each number of trials lies one unit above the one before.
    lifted = (upto + np.arange(len(different))[:, None]).ravel()
    found = np.searchsorted(lifted, u + place, side="left") - place * upto.shape[1]
    drawn: Floats = np.clip(first[place] + found, 0.0, n)
    return drawn


def binomial_masses(counts: Floats, trials: Floats, chance: float) -> Floats:
    """Return binomial probabilities of whole numbers; 0 below zero and beyond the number of trials.

    >>> binomial_masses(np.array([-1.0, 0.0, 1.0, 2.0]), np.array([1.0]), 0.25)
    array([0.  , 0.75, 0.25, 0.  ])
    """
    k, n = np.clip(counts, 0, trials).astype(np.int64), np.asarray(trials).astype(np.int64)
    largest = int(n.max())
    unit = 1 << max(largest.bit_length() - 3, 10)  # so that numbers of about the same size share one table
    logs = _log_factorials(-(-largest // unit) * unit)
    likely = logs[n] - logs[k] - logs[n - k] + k * math.log(chance) + (n - k) * math.log1p(-chance)
    masses: Floats = np.where((counts >= 0) & (counts <= trials), np.exp(likely), 0.0)
    return masses


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> Floats:
    """Tabulate the logarithms of the factorials up to ``most``."""
    logs: Floats = special.gammaln(np.arange(1, most + 2, dtype=np.float64))
    return logs


def sample_multinomials(trials: int, chances: Floats, size: int, bits: BitSource | None = None) -> Floats:
    """Draw ``size`` rows of multinomial counts, cell after cell by conditional binomials."""
    cells = np.asarray(chances, np.float64).ravel()
    left, mass = np.full(size, float(trials)), 1.0
    counts = np.empty((size, cells.size))
    for cell, chance in enumerate(cells[:-1]):
        share = min(chance / mass, 1.0) if mass > 0 else 0.0
        counts[:, cell] = sample_binomials(left, share, bits)
        left = left - counts[:, cell]
        mass -= chance
    counts[:, -1] = left
    return counts


def sample_row_counts(rows: int, chances: Floats, size: int, bits: BitSource | None = None) -> Floats:
    """Draw multinomial counts row by row, which is faster for a few rows.

    >>> sample_row_counts(2, np.array([0.2, 0.8]), 5).sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """
    cell = np.searchsorted(np.cumsum(chances)[:-1], sample_uniforms((size, rows), bits), side="right")
    places = cell + np.arange(size)[:, None] * len(chances)
    counts: Floats = np.bincount(places.ravel(), minlength=size * len(chances)).astype(np.float64)
    return counts.reshape(size, len(chances))
