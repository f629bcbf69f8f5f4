"""Statistics of noisy contingency tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "fit_statistic", "independent_law", "noise_variance", "table_statistic"]

Floats = NDArray[np.float64]

_FLOOR = 0.5  # expected rows of a cell below this are taken for this: no division by nothing


@dataclass(frozen=True)
class Table:
    """Noisy two-way counts (first axis: repetitions), the public number of rows, and the epsilon of the noise."""

    counts: Floats
    rows: int
    epsilon: float


def noise_variance(epsilon: float) -> float:
    """The variance of discrete Laplace noise for counts of sensitivity 2: 2 a / (1 - a)^2 with a = exp(-epsilon/2).

    >>> round(noise_variance(1.0), 2)
    7.84
    """
    return 1 / (2 * math.sinh(epsilon / 4) ** 2)


def fit_statistic(noisy: Floats, rows: int, chances: Floats, epsilon: float) -> Floats:
    """The quadratic form of the noisy distance from the expected counts in the inverse of its covariance.

    The covariance is rows (diag p - p p') + v I for noise of variance v; the direction of the total carries noise
    only, since the number of rows is known, and is projected out (KR17, Section 5.2). By the Woodbury identity the
    form needs no matrix: with d = rows p + v, w = x / d, it is x'w + rows (p'w)^2 / (1 - rows p'(p/d)).

    >>> float(fit_statistic(np.array([[50.0, 50.0]]), 100, np.array([0.5, 0.5]), 1.0)[0])
    0.0
    """
    away = noisy - rows * chances
    away = away - away.mean(-1, keepdims=True)
    scale = rows * chances + noise_variance(epsilon)
    weighted = away / scale
    shared = rows * (chances**2 / scale).sum()
    statistic: Floats = (away * weighted).sum(-1) + rows * (weighted @ chances) ** 2 / (1 - shared)
    return statistic


def independent_law(table: Table) -> Floats:
    """The independent joint probabilities with the margins of the noisy table, one for each repetition.

    Margins are cut at a small positive share, so that the law stays inside the simplex whatever the noise.
    """
    lengths = table.counts.shape[1:]
    margins = []
    for axis in (2, 1):
        sums = table.counts.sum(axis=axis)
        share = np.maximum(sums / table.rows, _FLOOR / table.rows / max(lengths))
        margins.append(share / share.sum(-1, keepdims=True))
    law: Floats = margins[0][:, :, None] * margins[1][:, None, :]
    return law


def table_statistic(table: Table) -> Floats:
    """The sum of squared distances from independence, each over its variance from sampling and noise."""
    expected = table.rows * independent_law(table)
    variance = np.maximum(expected, _FLOOR) + noise_variance(table.epsilon)
    # Both margins of the noisy table are fitted, so they are taken out of the distance as well.
    away = table.counts - expected
    away = away - away.mean(1, keepdims=True) - away.mean(2, keepdims=True) + away.mean((1, 2), keepdims=True)
    statistic: Floats = (away**2 / variance).sum((1, 2))
    return statistic
