"""Does a sample follow a law on the integers?

``p_value`` compares the sample with a cumulative distribution function in cells of about equal probability
(Pearson's chi-square). ``follows`` calls it a misfit below ``FALSE_ALARM``. With ``SAMPLES`` values it must also call a
law of a scale 10 % too small or too large a misfit: ``notices_wrong_scales`` says so, and every distribution test asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

SAMPLES = 100_000
FALSE_ALARM = 1e-9
CELLS = 60
WRONG = (0.9, 1.1)

Cdf = Callable[[NDArray[Any]], NDArray[np.float64]]
"""P(X <= k) of an array of integers."""


def p_value(sample: NDArray[Any], cdf: Cdf, cells: int = CELLS) -> float:
    """The probability, under the law, of a misfit at least this bad."""
    edges = np.unique([_quantile(cdf, share) for share in np.arange(1, cells) / cells])
    upper = np.concatenate([cdf(edges.astype(float)), [1.0]])
    expected = np.diff(upper, prepend=0.0) * len(sample)
    observed = np.bincount(np.searchsorted(edges, sample.astype(float)), minlength=len(expected))
    used = expected > 0
    if observed[~used].any() or cdf(np.array([float(sample.min())]))[0] <= 0:
        return 0.0  # a value that the law cannot take
    if used.sum() == 1:
        return 1.0  # the law takes one value, and so did the sample
    statistic = ((observed[used] - expected[used]) ** 2 / expected[used]).sum()
    return float(stats.chi2.sf(statistic, used.sum() - 1))


def follows(sample: NDArray[Any], cdf: Cdf) -> bool:
    """Whether the sample passes, at a false-alarm rate of ``FALSE_ALARM``."""
    return p_value(sample, cdf) >= FALSE_ALARM


def notices_wrong_scales(draw: Callable[[float], NDArray[Any]], cdf: Cdf) -> bool:
    """Whether samples of both wrong scales fail against the right law; ``draw`` takes the factor on the scale."""
    return not any(follows(draw(factor), cdf) for factor in WRONG)


def _quantile(cdf: Cdf, share: float) -> int:
    """The least integer k with P(X <= k) >= share."""
    reach = 1
    while cdf(np.array([float(reach)]))[0] < share or cdf(np.array([-float(reach)]))[0] >= share:
        reach *= 2
    low, high = -reach, reach
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cdf(np.array([float(middle)]))[0] >= share else (middle, high)
    return high


def laplace_cdf(scale: float) -> Cdf:
    """Of P(k) proportional to exp(-|k| / scale)."""
    a = np.exp(-1 / scale)

    def cdf(k: NDArray[Any]) -> NDArray[np.float64]:
        k = np.floor(k)
        left = np.exp(np.minimum(k, 0) / scale) / (1 + a)
        right = 1 - np.exp(-(np.maximum(k, 0) + 1) / scale) / (1 + a)
        return np.where(k < 0, left, right)

    return cdf


def geometric_cdf(scale: float) -> Cdf:
    """Of P(g) proportional to exp(-g / scale), g >= 0."""
    return lambda k: np.where(k < 0, 0.0, -np.expm1(-(np.maximum(np.floor(k), 0) + 1) / scale))


def gaussian_cdf(variance: float) -> Cdf:
    """Of P(k) proportional to exp(-k^2 / (2 variance)); by sums below variance 10^4, there the normal law fits."""
    if variance > 1e4:  # midpoints err by less than 1 / (24 variance)
        return lambda k: np.asarray(special.ndtr((np.floor(k) + 0.5) / np.sqrt(variance)))
    reach = int(12 * np.sqrt(variance)) + 12
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    sums = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
    return lambda k: sums[np.clip(np.floor(k) + reach + 1, 0, 2 * reach + 1).astype(int)]


def uniform_cdf(bound: int) -> Cdf:
    """Of the integers from 0 to ``bound - 1``."""
    return lambda k: np.clip((np.floor(k) + 1) / bound, 0, 1)
