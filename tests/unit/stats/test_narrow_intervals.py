"""Intervals of variances, covariances and quantiles: they cover, and are hardly wider than their noise needs."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost.data import Clamp
from expost.data.exact_total import PowerSums
from expost.data.sealed_form import MomentForm, SquareForm, TreeForm
from expost.stats.covariance import CovarianceReader
from expost.stats.quantile import QuantileReader
from expost.stats.reader import CellReading, SquareMeanReader, VarianceReader

LEVEL, RUNS = 0.05, 3000
CLAMP = Clamp.of((0, 100), whole=True)


def draw_noise(rng: np.random.Generator, scale: float, size: tuple[int, ...]) -> np.ndarray:
    chance = 1 - np.exp(-1 / scale)
    return rng.geometric(chance, size) - rng.geometric(chance, size)


def rows(rng: np.random.Generator, count: int, columns: int) -> np.ndarray:
    mixed = rng.normal(size=(count, columns)) @ rng.normal(size=(columns, columns))
    return np.clip(np.rint(40 + 12 * mixed), 0, 100)


def coverage(reading: CellReading, truth: np.ndarray) -> tuple[float, float]:
    """Return how often all entries are covered, and how much wider the intervals are than would do for that."""
    value, low, high = (end.reshape(-1, len(truth)) for end in (reading.value, reading.low, reading.high))
    covered = ((low - 1e-9 <= truth) & (truth <= high + 1e-9)).all(axis=1)
    used = (np.abs(value - truth) / np.maximum(value - low, high - value)).max(axis=1)
    return float(covered.mean()), 1 / float(np.quantile(used, 1 - LEVEL))


@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_intervals_cover_and_are_hardly_wider_than_needed(columns: int, epsilon: float) -> None:
    rng = np.random.default_rng(columns)
    table = rows(rng, 20_000, columns)
    form = SquareForm(CLAMP) if columns == 1 else MomentForm((CLAMP,) * columns)
    sums = PowerSums.of(None, table.T, cells=1, degree=2)
    exact = form.coordinates(sums).astype(np.int64)
    scale = form.row_size / epsilon
    noisy = exact.reshape(-1, 1) + draw_noise(rng, scale, (form.size, RUNS))
    upper = np.triu_indices(columns)
    truth = np.atleast_2d(np.cov(table.T, bias=True))[upper]
    readers = {"second moments": (VarianceReader(CLAMP) if columns == 1 else CovarianceReader(form), truth)}
    if columns == 1:
        readers["mean"] = (SquareMeanReader(CLAMP), table.mean(axis=0))

    for name, (reader, wanted) in readers.items():
        covered, width = coverage(reader.read(noisy, scale, LEVEL), wanted)
        # Four standard errors below the level.
        assert covered >= 1 - LEVEL - 4 * math.sqrt(LEVEL / RUNS), name
        assert width <= 1.25, name


def test_variances_are_covered_where_rows_are_few_or_at_the_bounds() -> None:
    rng = np.random.default_rng(5)
    for values in (np.zeros(30), np.full(30, 100.0), np.array([0.0, 100.0] * 10), np.array([50.0])):
        exact = SquareForm(CLAMP).coordinates(PowerSums.of(None, values[None, :], cells=1, degree=2)).astype(np.int64)
        for epsilon in (0.05, 1.0, 20.0):
            scale = SquareForm(CLAMP).row_size / epsilon
            noisy = exact.reshape(-1, 1) + draw_noise(rng, scale, (3, RUNS))
            covered, _ = coverage(VarianceReader(CLAMP).read(noisy, scale, LEVEL), np.array([values.var()]))
            assert covered >= 1 - LEVEL - 4 * math.sqrt(LEVEL / RUNS)


def read_tree(branches: tuple[int, ...], count: int, *, noise: float = 1.0) -> tuple[float, float]:
    """Return how often all three quartiles of some rows are covered, and the median width in leaves."""
    rng, form = np.random.default_rng(len(branches) + count), TreeForm(branches)
    values = np.clip(rng.normal(50, 15, count), 0, 100)
    leaf = np.minimum((values / 100 * form.leaves).astype(int), form.leaves - 1)
    exact_nodes = [np.bincount(leaf * nodes // form.leaves, minlength=nodes) for nodes in form.counts]
    scale, runs = form.levels / 0.5, 600
    noisy = np.concatenate(exact_nodes)[:, None] + draw_noise(rng, noise * scale, (form.size, runs))
    shares = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
    reading = QuantileReader(form, Clamp.of((0, 100)), shares).read(noisy, scale, LEVEL)
    exact = np.array([np.sort(values)[math.ceil(float(share) * count) - 1] for share in shares])
    low, high = reading.low.reshape(-1, 3), reading.high.reshape(-1, 3)
    return float(((low <= exact) & (exact <= high)).all(axis=1).mean()), float(
        np.median(high - low)
    ) * form.leaves / 100


@pytest.mark.parametrize("branches", [(8,), (32,), (8, 16), (16, 32), (8, 8, 8)])
@pytest.mark.parametrize("count", [1, 40, 700, 20_000])
def test_quantiles_of_a_tree_are_covered(branches: tuple[int, ...], count: int) -> None:
    covered, _ = read_tree(branches, count)

    assert covered >= 1 - LEVEL - 4 * math.sqrt(LEVEL / 600)


def test_quantiles_of_many_rows_are_within_few_leaves() -> None:
    assert read_tree((8, 8, 8), 20_000)[1] <= 3.5


def test_twice_the_noise_of_a_tree_would_be_noticed() -> None:
    covered = min(read_tree((8, 8, 8), 3_000, noise=noise)[0] for noise in (3.0, 6.0))

    assert covered < 1 - LEVEL - 4 * math.sqrt(LEVEL / 600)
