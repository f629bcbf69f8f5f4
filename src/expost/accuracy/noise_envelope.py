"""How much matrix noise can stretch any vector: the law of sup |B t - b| over directions, simulated once.

For noise as ``MomentLayout`` releases it (B symmetric, Laplace of scale 1 on the diagonal and 1/2 off it; b Laplace
of scale 1) the envelope bounds |B t - b| for all vectors t at once, by their length alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from expost.core import InvalidRequest
from expost.noise import BitSource, discrete_laplace

__all__ = ["NoiseEnvelope", "simulate_stretches", "table_row"]

Floats = NDArray[np.float64]

# [B, -b / offset] has some largest stretch; |B t - b| <= that times |(t, offset)|. The best offset depends on |t|.
OFFSETS = np.geomspace(0.25, 8, 11)
FAILURES = (0.2, 0.1, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.004, 0.003, 0.0025, 0.002, 0.0015, 0.001)
_SIMULATION_RISK = 1e-6  # that any one number of the table is too small
_GRID = 1 << 24  # simulated Laplace variables are within 1 / _GRID of real ones
_BATCH = 500


@dataclass(frozen=True)
class NoiseEnvelope:
    """Upper bounds that hold for all vectors at once, except with the given probability.

    >>> envelope = NoiseEnvelope.of(10, 0.01)
    >>> envelope.reach(np.array([0.0, 1.0])) < envelope.reach(np.array([2.0, 3.0]))
    array([ True,  True])
    """

    stretches: Floats
    """The bound on the largest stretch of [B, -b / offset], for each offset."""
    matrix: float
    """The bound on the largest stretch of B."""

    @classmethod
    def of(cls, dimension: int, failure_probability: float) -> NoiseEnvelope:
        """The envelope for vectors of this dimension; the table's next larger dimension is used, which is safe.

        B of a smaller dimension is a corner of a larger one, and cutting rows and columns shrinks every stretch.
        """
        return _read(_next_size(dimension), failure_probability)

    @staticmethod
    def least_failure(dimension: int) -> float:
        """The smallest failure probability that the table covers for this dimension."""
        return min(float(failure) for failure in _table()[_next_size(dimension)]["factors"])

    def reach(self, length: Floats) -> Floats:
        """A bound on |B t - b| for vectors t of these lengths, in units of the noise's scale."""
        reach: Floats = (self.stretches * np.hypot(np.asarray(length)[..., None], OFFSETS)).min(axis=-1)
        return reach


@lru_cache(maxsize=1)
def _table() -> dict[int, Any]:
    text = (files("expost.accuracy") / "noise_envelope.json").read_text(encoding="utf-8")
    return {int(size): row for size, row in json.loads(text).items()}


def _next_size(dimension: int) -> int:
    known = [size for size in _table() if size >= dimension]
    if not known:
        raise InvalidRequest(
            f"Expected at most {max(_table())} coefficients for this certificate",
            got=dimension,
            do='Pass method="objective"',
        )
    return min(known)


@lru_cache(maxsize=256)
def _read(size: int, failure_probability: float) -> NoiseEnvelope:
    row = _table()[size]
    known = [failure for failure in row["factors"] if float(failure) <= failure_probability * (1 + 1e-12)]
    if not known:
        raise InvalidRequest(
            "Expected a failure probability that the table of noise covers",
            got=failure_probability,
            do="Allow more failures, or climb fewer rungs",
        )
    factor = row["factors"][max(known, key=float)]
    return NoiseEnvelope(np.array(row["stretches"]) * factor, row["matrix"] * factor)


def simulate_stretches(dimension: int, draws: int, *, bits: BitSource | None = None) -> Floats:
    """Stretches of simulated noise: one row a draw, B's own in column 0 and then one for each offset."""
    rows = [_stretches(dimension, min(_BATCH, draws - start), bits) for start in range(0, draws, _BATCH)]
    return np.vstack(rows)


def _stretches(dimension: int, draws: int, bits: BitSource | None) -> Floats:
    upper = np.triu_indices(dimension)
    entries = discrete_laplace(_GRID, (draws, len(upper[0]) + dimension), bits=bits) / _GRID
    matrix = np.zeros((draws, dimension, dimension))
    matrix[:, upper[0], upper[1]] = entries[:, : len(upper[0])] * np.where(upper[0] == upper[1], 1.0, 0.5)
    matrix[:, upper[1], upper[0]] = matrix[:, upper[0], upper[1]]
    values, vectors = np.linalg.eigh(matrix)
    turned = np.einsum("nij,ni->nj", vectors, entries[:, len(upper[0]) :])
    own = np.abs(values).max(axis=1)
    with_offsets = [_top_root(values**2, (turned / offset) ** 2) for offset in OFFSETS]
    return np.column_stack([own, *with_offsets])


def _top_root(squares: Floats, weights: Floats) -> Floats:
    """The root of the largest eigenvalue of diag(squares) + w w', weights = w^2, from its secular equation."""
    low = squares.max(axis=1)
    high = low + weights.sum(axis=1)
    for _ in range(60):
        middle = (low + high) / 2
        beyond = (weights / np.maximum(middle[:, None] - squares, 1e-300)).sum(axis=1) < 1
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    root: Floats = np.sqrt(high)
    return root


def table_row(stretches: Floats, dimension: int) -> dict[str, Any]:
    """One row of the table: high stretches, and for each failure probability a factor that makes them cover all.

    A tenth of the draws sets the stretches, the rest the factors. A factor is an order statistic, high enough that with
    probability 1 - 1e-6 it is above the true quantile: the number of draws above a quantile is binomial.
    """
    first = len(stretches) // 10
    high = np.quantile(stretches[:first], 0.99, axis=0)
    worst = np.sort((stretches[first:] / high).max(axis=1))[::-1]
    # The entries are within a grid unit of real ones, so a stretch is within their norm, relative to the smallest.
    slack = (dimension + math.sqrt(dimension) / OFFSETS[0]) / _GRID / float(high.min())
    factors = {}
    for failure in FAILURES:
        above = int(binom.ppf(_SIMULATION_RISK, len(worst), failure))
        if above >= 1 and binom.cdf(above - 1, len(worst), failure) <= _SIMULATION_RISK:
            factors[str(failure)] = round(float(worst[above - 1]) + slack, 6)
    return {
        "draws": len(stretches),
        "matrix": round(float(high[0]), 6),
        "stretches": [round(float(value), 6) for value in high[1:]],
        "factors": factors,
    }
