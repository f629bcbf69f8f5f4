"""Statistics of noisy tables of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "fit_statistic", "independent_law", "noise_variance", "shape_statistic", "table_statistic"]

Floats = NDArray[np.float64]

_FLOOR = 0.5  # expected rows of a cell below this are taken for this: no division by nothing
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


def independent_law(table: Table) -> Floats:
    """The independent joint probabilities with the margins of the noisy table, one for each repetition.

    Margins are cut at a small positive share, so that the law stays inside the simplex whatever the noise.
    """
    lengths = table.counts.shape[1:]
    rows = table.sizes[:, None]
    margins = []
    for axis in (2, 1):
        sums = table.counts.sum(axis=axis)
        share = np.maximum(sums / rows, _FLOOR / rows / max(lengths))
        margins.append(share / share.sum(-1, keepdims=True))
    law: Floats = margins[0][:, :, None] * margins[1][:, None, :]
    return law


def table_statistic(table: Table) -> Floats:
    """The sum of squared distances from independence, each over its variance from sampling and noise."""
    expected = table.sizes[:, None, None] * independent_law(table)
    variance = np.maximum(expected, _FLOOR) + noise_variance(table.scale)
    # Both margins of the noisy table are fitted, so they are taken out of the distance as well.
    away = table.counts - expected
    away = away - away.mean(1, keepdims=True) - away.mean(2, keepdims=True) + away.mean((1, 2), keepdims=True)
    statistic: Floats = (away**2 / variance).sum((1, 2))
    return statistic
