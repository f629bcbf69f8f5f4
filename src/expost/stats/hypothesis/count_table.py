"""Tables of counts by public categories: release under noise, and their statistics."""

from __future__ import annotations

import functools
import operator
from abc import ABC
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Norm, Release, Sealed, Sensitivity
from expost.data import Dataset
from expost.noise import BitSource, sample_laplace
from expost.stats.hypothesis.hypothesis_input import TableSize
from expost.stats.hypothesis.hypothesis_plan import HypothesisPlan, HypothesisVerdict, add_laplace_noise
from expost.stats.hypothesis.private_sample import encode_categories
from expost.stats.hypothesis.reference_law import noise_variance, sample_multinomials

__all__ = [
    "CountTablePlan",
    "NoisyTable",
    "fit_statistic",
    "independence_statistic",
    "project_on_simplex",
    "sample_noisy_tables",
    "shape_statistic",
]

Floats = NDArray[np.float64]

_LEAST_VARIANCE = 1e-6  # of the noise: without any the covariance has no inverse


@dataclass(frozen=True, kw_only=True)
class CountTablePlan(HypothesisPlan, ABC):
    """A priced test whose release is a table of noisy counts."""

    columns: tuple[str, ...]
    categories: tuple[tuple[Any, ...], ...]
    size: TableSize

    @property
    def scale(self) -> float:
        """Return the scale of the noise in each cell."""
        return self.size.cell_sensitivity / float(self.price.epsilon)

    def measure(self, dataset: Dataset) -> Sealed:
        """Count the rows in each cell; rows outside the public categories are left out."""
        count = functools.partial(_count_cells, self.columns, self.categories)
        return self.seal_counts(dataset.reduce(count, operator.add, list(self.columns)))

    def seal_counts(self, counts: NDArray[np.int64]) -> Sealed:
        """Seal counts with their sensitivity."""
        return Sealed(counts.ravel(), Sensitivity(self.size.cell_sensitivity, Norm.L1, self.size.adjacency))

    def release_numbers(self, sealed: Sealed, bits: BitSource | None) -> Floats:
        return np.asarray(add_laplace_noise(sealed, self.price.epsilon, bits), np.float64)

    def release_table_verdict(
        self, test: str, *, statistic: float, p_value: float, bits: BitSource, level: str, citations: tuple[str, ...]
    ) -> Release[HypothesisVerdict]:
        """Return the verdict with its receipt."""
        return self.release_verdict(
            HypothesisVerdict(test=test, statistic=statistic, p_value=p_value),
            method="discrete Laplace counts, drawn reference with noise",
            bits=bits,
            level=level,
            terms=self.size.terms,
            adjacency=self.size.adjacency,
            citations=citations,
        )


def sample_noisy_tables(rows: int, law: Floats, draws: int, scale: float, bits: BitSource) -> Floats:
    """Draw noisy tables of this many rows that follow a law."""
    counts = sample_multinomials(rows, law, draws, bits)
    noise = sample_laplace(Fraction(scale), counts.shape, bits=bits)
    noisy: Floats = (counts + noise).reshape((draws, *law.shape))
    return noisy


def fit_statistic(noisy: Floats, rows: int, chances: Floats, scale: float) -> Floats:
    """Return the quadratic form of the noisy distance from the expected counts in the inverse of its covariance.

    The covariance is rows (diag p - p p') + v I for noise of variance v; the direction of the total carries noise
    only, since the number of rows is known, and is projected out (KR17, Section 5.2). By the Woodbury identity the
    form needs no matrix: with d = rows p + v, w = x / d, it is x'w + rows (p'w)^2 / (1 - rows p'(p/d)).
    """
    away = noisy - rows * chances
    away = away - away.mean(-1, keepdims=True)
    spread = rows * chances + max(noise_variance(scale), _LEAST_VARIANCE)
    weighted = away / spread
    shared = rows * (chances**2 / spread).sum()
    statistic: Floats = (away * weighted).sum(-1) + rows * (weighted @ chances) ** 2 / (1 - shared)
    return statistic


def shape_statistic(noisy: Floats, rows: Any, chances: Floats, scale: float) -> Floats:
    """Return a norm of the noisy distance from the given shares of the noisy total, for a table of private size.

    Counts are weighted as if there were ``rows`` of them (a number, or one for each element of the first axis); the
    distance itself does not use that number, so the norm of a table with more rows exceeds this one by at most the norm
    of what each row adds.
    """
    away = noisy - noisy.sum(-1, keepdims=True) * chances
    sizes = np.asarray(rows, np.float64)
    weights = 1 / (
        sizes[(...,) + (None,) * (noisy.ndim - sizes.ndim)] * chances + max(noise_variance(scale), _LEAST_VARIANCE)
    )
    statistic: Floats = np.sqrt((away**2 * weights).sum(-1))
    return statistic


def project_on_simplex(values: Floats) -> Floats:
    """Return the nearest probabilities to each row of numbers (Euclidean projection on the simplex; DSSC08, Figure 1).

    >>> project_on_simplex(np.array([[0.8, 0.4, -0.3]])).round(6).tolist()
    [[0.7, 0.3, 0.0]]
    """
    falling = -np.sort(-values, axis=-1)
    excess = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, values.shape[-1] + 1)
    kept = np.count_nonzero(falling > excess, axis=-1)[..., None]
    projected: Floats = np.maximum(values - np.take_along_axis(excess, kept - 1, axis=-1), 0.0)
    return projected


@dataclass(frozen=True)
class NoisyTable:
    """Noisy two-way counts (first axis: repetitions), the number of rows if public, and the scale of the noise."""

    counts: Floats
    rows: int | None
    scale: float

    @property
    def sizes(self) -> Floats:
        """Return the number of rows of each repetition; where it is private, the noisy total, kept positive."""
        if self.rows is not None:
            return np.full(len(self.counts), float(self.rows))
        cells = self.counts[0].size
        noisy: Floats = np.maximum(self.counts.sum((1, 2)), float(cells))
        return noisy


def independence_statistic(table: NoisyTable) -> Floats:
    """Sum the squared distances from independence, each over its variance from sampling and noise.

    With margins p and q the distances are (I - p 1') Z (I - 1 q'), linear in the noisy table Z. At the true margins
    their mean is 0 and their variances are n p (1 - p) q (1 - q) + v (1 - 2p + r p^2)(1 - 2q + c q^2) for noise of variance
    v in each cell of an r x c table, so the law of the sum hardly depends on the margins.
    """
    sizes = table.sizes
    rows, columns = (project_on_simplex(table.counts.sum(axis) / sizes[:, None]) for axis in (2, 1))
    away = table.counts - rows[:, :, None] * table.counts.sum(1, keepdims=True)
    away = away - away.sum(2, keepdims=True) * columns[:, None, :]
    sampled = sizes[:, None, None] * (rows * (1 - rows))[:, :, None] * (columns * (1 - columns))[:, None, :]
    # |e_i - p_i 1|^2: the share of the noise variance that is left once the margin is taken out.
    left_rows, left_columns = (1 - 2 * shares + shares.shape[-1] * shares**2 for shares in (rows, columns))
    noise = max(noise_variance(table.scale), _LEAST_VARIANCE) * left_rows[:, :, None] * left_columns[:, None, :]
    statistic: Floats = (away**2 / (sampled + noise)).sum((1, 2))
    return statistic


def _count_cells(
    columns: tuple[str, ...], categories: tuple[tuple[Any, ...], ...], batch: pa.RecordBatch
) -> NDArray[np.int64]:
    """Count the rows of a batch in each cell."""
    counts = np.zeros(tuple(map(len, categories)), np.int64)
    places = [encode_categories(batch, *pair) for pair in zip(columns, categories, strict=True)]
    inside = np.all([place >= 0 for place in places], axis=0)
    np.add.at(counts, tuple(place[inside] for place in places), 1)
    return counts
