"""Means and variances near a bound: the noisy ratio is kept, moved into the bounds, and intervals still cover."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost.data import Clamp
from expost.data.sealed_form import MomentForm
from expost.noise import SeededBits
from expost.noise.lattice_sampler import sample_laplace
from expost.stats.covariance import CovarianceReader
from expost.stats.reader import CentredMeanReader, DeviationReader, MeanReader, SquareMeanReader, VarianceReader

RUNS, LEVEL = 8_000, 0.1
MOST = LEVEL + 5.2 * np.sqrt(LEVEL * (1 - LEVEL) / RUNS)  # exceeded with probability 1e-7 at a rate of LEVEL
FLAG = Clamp.of((0, 1), whole=True)
PAY = Clamp.of((0, 1000), whole=True)
RNG = np.random.default_rng(0)

COLUMNS = {
    "one row at the bound": (FLAG, np.zeros(1)),
    "two rows, one at each bound": (FLAG, np.array([0.0, 1.0])),
    "zeros": (FLAG, np.zeros(1000)),
    "ones": (FLAG, np.ones(60)),
    "1 % of 300": (FLAG, np.r_[np.ones(3), np.zeros(297)]),
    "0.2 % of 5000": (FLAG, np.r_[np.ones(10), np.zeros(4990)]),
    "small incomes": (PAY, np.rint(RNG.exponential(10, 2000))),
    "half": (FLAG, np.r_[np.ones(100), np.zeros(100)]),
}
EPSILONS = (0.02, 0.1, 1.0)


def released(reader: object, exact: list[np.ndarray], step: int, epsilon: float) -> tuple[object, np.ndarray]:
    """Readings of many runs, and the noisy coordinates they were read off."""
    scale = Fraction(step) / Fraction(str(epsilon))
    noise = sample_laplace(scale, (len(exact), RUNS), bits=SeededBits(5))
    noisy = np.array([int(each) for each in exact])[:, None] + noise
    return reader.read(noisy, float(scale), LEVEL), noisy


def rmse(values: np.ndarray, exact: float) -> float:
    return float(np.sqrt(np.mean((values - exact) ** 2)))


def squares(clamp: Clamp, values: np.ndarray) -> list[np.ndarray]:
    t = clamp.to_steps(values)
    return [(t**2).sum(), (2 * t * (clamp.steps - t)).sum(), ((clamp.steps - t) ** 2).sum()]


def misses(reading: object, exact: float) -> float:
    return float(((reading.low > exact + 1e-9) | (reading.high < exact - 1e-9)).mean())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_mean_is_as_near_as_the_clipped_noisy_ratio_and_its_interval_covers(name: str, epsilon: float) -> None:
    clamp, values = COLUMNS[name]
    t, width = clamp.to_steps(values), float(clamp.high - clamp.low)
    exact = [t.sum(), (clamp.steps - t).sum()]

    reading, noisy = released(MeanReader(clamp), exact, clamp.steps, epsilon)

    plain = float(clamp.low) + width * np.clip(noisy[0] / np.where(noisy.sum(0) == 0, 1, noisy.sum(0)), 0, 1)
    assert rmse(reading.value, values.mean()) <= 1.02 * rmse(plain, values.mean()) + 1e-12
    assert misses(reading, values.mean()) <= MOST
    assert ((reading.low <= reading.value) & (reading.value <= reading.high)).all()


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_centred_mean_is_as_near_as_the_clipped_noisy_ratio(name: str, epsilon: float) -> None:
    clamp, values = COLUMNS[name]
    t = clamp.to_steps(values)
    exact = [(2 * t - clamp.steps).sum(), np.int64(clamp.steps * len(t))]

    reading, noisy = released(CentredMeanReader(clamp), exact, 2 * clamp.steps, epsilon)

    ratio = np.clip(noisy[0] / np.where(noisy[1] == 0, 1, noisy[1]), -1, 1)
    plain = float(clamp.low + clamp.high) / 2 + ratio * float(clamp.high - clamp.low) / 2
    assert rmse(reading.value, values.mean()) <= 1.02 * rmse(plain, values.mean()) + 1e-12
    assert misses(reading, values.mean()) <= MOST


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_variance_is_as_near_as_the_clipped_noisy_one_and_its_interval_covers(name: str, epsilon: float) -> None:
    clamp, values = COLUMNS[name]
    reading, noisy = released(VarianceReader(clamp), squares(clamp, values), clamp.steps**2, epsilon)

    total = noisy.sum(0).astype(float)
    share = noisy / np.where(total == 0, 1, total)
    mean = np.clip(share[0] + share[1] / 2, 0, 1)
    spread = np.clip(share[0] * (1 - mean) ** 2 - mean * (1 - mean) * share[1] + mean**2 * share[2], 0, 0.25)
    plain, exact = spread * float(clamp.high - clamp.low) ** 2, float(values.var())
    assert rmse(reading.value, exact) <= 1.1 * rmse(plain, exact) + 1e-12
    assert misses(reading, exact) <= MOST
    assert ((reading.low <= reading.value) & (reading.value <= reading.high)).all()

    for reader, truth in ((DeviationReader(clamp), np.sqrt(exact)), (SquareMeanReader(clamp), values.mean())):
        other, _ = released(reader, squares(clamp, values), clamp.steps**2, epsilon)
        assert misses(other, float(truth)) <= MOST
        assert ((other.low <= other.value) & (other.value <= other.high)).all()


def test_the_middle_of_the_bounds_is_not_released_for_a_mean_at_a_bound() -> None:
    clamp, values = COLUMNS["zeros"]
    t = clamp.to_steps(values)

    reading, _ = released(MeanReader(clamp), [t.sum(), (clamp.steps - t).sum()], clamp.steps, 1.0)
    assert (reading.value < 0.1).all()
    spread, _ = released(VarianceReader(clamp), squares(clamp, values), clamp.steps**2, 1.0)
    assert (spread.value < 0.1).all()


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_a_covariance_of_few_rows_stays_in_its_range(rows: int) -> None:
    form = MomentForm((FLAG, FLAG))
    noisy = sample_laplace(Fraction(50), (form.size, 4_000), bits=SeededBits(2)) + rows

    reading = CovarianceReader(form).read(noisy, 50.0, LEVEL)

    assert np.isfinite([reading.value, reading.low, reading.high]).all()
    assert (np.abs(reading.value) <= 0.25 + 1e-9).all()
    assert ((reading.low <= reading.value) & (reading.value <= reading.high)).all()


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_tables_of_few_rows_are_answered_within_their_bounds(rows: int, adjacency: str) -> None:
    table = pa.table({"x": pa.array([1] * rows, pa.int64()), "g": pa.array(["a"] * rows, pa.string())})
    public = {"rows": max(rows, 1)} if adjacency == "replace-one" else {}
    data = expost.Dataset(table, bounds={"x": (0, 1)}, categories={"g": ["a", "b"]}, adjacency=adjacency, **public)
    for statistic in (expost.stats.Mean, expost.stats.Variance, expost.stats.StandardDeviation):
        for by in (None, "g"):
            question = statistic("x", epsilon=0.5, by=by)
            plan = question.plan(data)
            release = plan.climb(plan.measure(data), SeededBits(rows))
            seen = [release.value] if by is None else [row.value for row in release.value.rows]
            assert all(0 <= value <= 1 for value in seen)
