"""Statistics of noisy tables of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "fit_statistic", "noise_variance", "on_simplex", "shape_statistic", "table_statistic"]

Floats = NDArray[np.float64]

_LEAST_VARIANCE = 1e-6  # of the noise: without any the covariance has no inverse


@dataclass(frozen=True)
class Table:
    """Noisy two-way counts (first axis: repetitions), the number of rows if public, and the scale of the noise."""

    counts: Floats
    rows: int | None
    scale: float

    @property
    def sizes(self) -> Floats:
        """The number of rows of each repetition; where it is private, the noisy total, kept positive."""
        if self.rows is not None:
            return np.full(len(self.counts), float(self.rows))
        cells = self.counts[0].size
        noisy: Floats = np.maximum(self.counts.sum((1, 2)), float(cells))
        return noisy


def noise_variance(scale: float) -> float:
    """The variance of discrete Laplace noise of this scale: 2 a / (1 - a)^2 with a = exp(-1/scale).

    >>> round(noise_variance(2.0), 2)
    7.84
    """
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def fit_statistic(noisy: Floats, rows: int, chances: Floats, scale: float) -> Floats:
    """The quadratic form of the noisy distance from the expected counts in the inverse of its covariance.

    The covariance is rows (diag p - p p') + v I for noise of variance v; the direction of the total carries noise
    only, since the number of rows is known, and is projected out (KR17, Section 5.2). By the Woodbury identity the
    form needs no matrix: with d = rows p + v, w = x / d, it is x'w + rows (p'w)^2 / (1 - rows p'(p/d)).

    >>> float(fit_statistic(np.array([[50.0, 50.0]]), 100, np.array([0.5, 0.5]), 2.0)[0])
    0.0
    """
    away = noisy - rows * chances
    away = away - away.mean(-1, keepdims=True)
    spread = rows * chances + max(noise_variance(scale), _LEAST_VARIANCE)
    weighted = away / spread
    shared = rows * (chances**2 / spread).sum()
    statistic: Floats = (away * weighted).sum(-1) + rows * (weighted @ chances) ** 2 / (1 - shared)
    return statistic


def shape_statistic(noisy: Floats, rows: Any, chances: Floats, scale: float) -> Floats:
    """A norm of the noisy distance from the given shares of the noisy total, for a table whose size is not known.

    Counts are weighted as if there were ``rows`` of them (a number, or one for each element of the first axis); the
    distance itself does not use that number, so the norm of a table with more rows exceeds this one by at most the norm
    of what each row adds.

    >>> float(shape_statistic(np.array([[50.0, 50.0]]), 90, np.array([0.5, 0.5]), 2.0)[0])
    0.0
    """
    away = noisy - noisy.sum(-1, keepdims=True) * chances
    sizes = np.asarray(rows, np.float64)
    weights = 1 / (
        sizes[(...,) + (None,) * (noisy.ndim - sizes.ndim)] * chances + max(noise_variance(scale), _LEAST_VARIANCE)
    )
    statistic: Floats = np.sqrt((away**2 * weights).sum(-1))
    return statistic


def on_simplex(values: Floats) -> Floats:
    """Return the nearest probabilities to each row of numbers (Euclidean projection on the simplex; DSSC08, Figure 1).

    >>> on_simplex(np.array([[0.8, 0.4, -0.3]])).round(6).tolist()
    [[0.7, 0.3, 0.0]]
    """
    falling = -np.sort(-values, axis=-1)
    excess = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, values.shape[-1] + 1)
    kept = np.count_nonzero(falling > excess, axis=-1)[..., None]
    projected: Floats = np.maximum(values - np.take_along_axis(excess, kept - 1, axis=-1), 0.0)
    return projected


def table_statistic(table: Table) -> Floats:
    """Sum the squared distances from independence, each over its variance from sampling and noise.

    With margins p and q the distances are (I - p 1') Z (I - 1 q'), linear in the noisy table Z. At the true margins
    their mean is 0 and their variances are n p (1 - p) q (1 - q) + v (1 - 2p + r p^2)(1 - 2q + c q^2) for noise of variance
    v in each cell of an r x c table, so the law of the sum hardly depends on the margins.
    """
    rows, columns = (on_simplex(table.counts.sum(axis) / table.sizes[:, None]) for axis in (2, 1))
    away = table.counts - rows[:, :, None] * table.counts.sum(1, keepdims=True)
    away = away - away.sum(2, keepdims=True) * columns[:, None, :]
    sampled = table.sizes[:, None, None] * (rows * (1 - rows))[:, :, None] * (columns * (1 - columns))[:, None, :]
    noise = max(noise_variance(table.scale), _LEAST_VARIANCE)
    statistic: Floats = (away**2 / (sampled + noise * _kept(rows)[:, :, None] * _kept(columns)[:, None, :])).sum((1, 2))
    return statistic


def _kept(shares: Floats) -> Floats:
    """Return what is left of the variance of noise once the margin is taken out: |e_i - p_i 1|^2."""
    kept: Floats = 1 - 2 * shares + shares.shape[-1] * shares**2
    return kept
