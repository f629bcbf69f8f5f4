"""Simulates the table behind expost.accuracy.NoiseEnvelope and writes it into the package. Takes about ten minutes."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from expost.accuracy.noise_envelope import OFFSETS
from expost.noise import BitSource, SeededBits, sample_laplace

Floats = NDArray[np.float64]

TABLE = Path(__file__).parents[1] / "src" / "expost" / "accuracy" / "noise_envelope.json"
SIZES = [*range(1, 17), *range(18, 33, 2), 36, 40, 44, 48, 52, 56, 64, 72, 77, 84, 96, 112, 128, 160, 192, 256]
FAILURES = (0.2, 0.1, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.004, 0.003, 0.0025, 0.002, 0.0015, 0.001)
SIMULATION_RISK = 1e-6  # that any one number of the table is too small
GRID = 1 << 24  # simulated Laplace variables are within 1 / GRID of real ones
BATCH = 500


def simulate_stretches(dimension: int, draws: int, *, bits: BitSource | None = None) -> Floats:
    """Simulate stretches: one row per draw, that of B in column 0 and then one for each offset."""
    upper, rows = np.triu_indices(dimension), []
    for start in range(0, draws, BATCH):
        batch = min(BATCH, draws - start)
        entries = sample_laplace(GRID, (batch, len(upper[0]) + dimension), bits=bits) / GRID
        matrix = np.zeros((batch, dimension, dimension))
        matrix[:, upper[0], upper[1]] = entries[:, : len(upper[0])] * np.where(upper[0] == upper[1], 1.0, 0.5)
        matrix[:, upper[1], upper[0]] = matrix[:, upper[0], upper[1]]
        values, vectors = np.linalg.eigh(matrix)
        turned = np.einsum("nij,ni->nj", vectors, entries[:, len(upper[0]) :])
        with_offsets = [top_root(values**2, (turned / offset) ** 2) for offset in OFFSETS]
        rows.append(np.column_stack([np.abs(values).max(axis=1), *with_offsets]))
    return np.vstack(rows)


def top_root(squares: Floats, weights: Floats) -> Floats:
    """Return the root of the largest eigenvalue of diag(squares) + w w', weights = w^2, from its secular equation."""
    low = squares.max(axis=1)
    high = low + weights.sum(axis=1)
    for _ in range(60):
        middle = (low + high) / 2
        beyond = (weights / np.maximum(middle[:, None] - squares, 1e-300)).sum(axis=1) < 1
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    root: Floats = np.sqrt(high)
    return root


def table_row(stretches: Floats, dimension: int) -> dict[str, Any]:
    """Return one row of the table: high stretches, and for each failure probability a factor to cover all draws.

    A tenth of the draws sets the stretches, the rest the factors. A factor is an order statistic, high enough that with
    probability 1 - 1e-6 it is above the true quantile: the number of draws above a quantile is binomial.
    """
    first = len(stretches) // 10
    high = np.quantile(stretches[:first], 0.99, axis=0)
    worst = np.sort((stretches[first:] / high).max(axis=1))[::-1]
    # The entries are within a grid unit of real ones, so a stretch is within their norm, relative to the smallest.
    slack = (dimension + math.sqrt(dimension) / OFFSETS[0]) / GRID / float(high.min())
    factors = {}
    for failure in FAILURES:
        above = int(binom.ppf(SIMULATION_RISK, len(worst), failure))
        if above >= 1 and binom.cdf(above - 1, len(worst), failure) <= SIMULATION_RISK:
            factors[str(failure)] = round(float(worst[above - 1]) + slack, 6)
    return {
        "draws": len(stretches),
        "matrix": round(float(high[0]), 6),
        "stretches": [round(float(value), 6) for value in high[1:]],
        "factors": factors,
    }


def draws_for(size: int) -> int:
    return 20_000 if size <= 40 else 10_000 if size <= 84 else 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    for size in options.sizes:
        draws = simulate_stretches(size, draws_for(size), bits=SeededBits(20_170_000 + size))
        row = table_row(draws, size)
        known = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
        known[str(size)] = row
        ordered = {key: known[key] for key in sorted(known, key=int)}
        TABLE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        print(size, row["matrix"], row["factors"], flush=True)


if __name__ == "__main__":
    main()
