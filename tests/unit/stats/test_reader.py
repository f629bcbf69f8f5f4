"""Intervals read off noisy coordinates cover the exact answers as often as they say."""

from fractions import Fraction

import numpy as np
import pytest

from expost.accuracy.weighted_noise import laplace_sum_radius
from expost.data import Clamp
from expost.data.sealed_form import MomentForm, ShareForm, SquareForm, TotalForm, TreeForm
from expost.data.tally import PowerSums
from expost.noise import SeededBits, sample_laplace
from expost.stats.covariance import CovarianceReader
from expost.stats.quantile import QuantileReader
from expost.stats.reader import (
    CombinationReader,
    DeviationReader,
    MeanReader,
    SquareMeanReader,
    TotalReader,
    VarianceReader,
    weighted_radius,
)

CLAMP = Clamp.of((-10, 30), whole=True)
RUNS, LEVEL = 4000, 0.1
# A true miss rate of 10 % shows as more than 12.6 % of 4,000 runs about once in ten million.
MOST = 0.126

VALUES = {
    "spread": np.random.default_rng(0).integers(-10, 31, 300),
    "at the end": np.full(200, 30),
    "few": np.array([-10, 30, 5]),
    "two ends": np.array([-10] * 90 + [30] * 10),
}


def noisy_copies(form, values: np.ndarray, scale: float, seed: int) -> np.ndarray:
    """Many noisy copies of the coordinates, one a column, as cells of their own."""
    steps = (values - int(CLAMP.low)).astype(float)[None, :]
    exact = form.coordinates(PowerSums.of(None, steps, cells=1, degree=2)).astype(np.int64)
    noise = sample_laplace(Fraction(scale), (form.size, RUNS), bits=SeededBits(seed))
    return exact + noise


def misses(reader, form, values, exact: float, scale: float, seed: int = 3) -> float:
    reading = reader.read(noisy_copies(form, values, scale, seed), scale, LEVEL)
    return float(((reading.low > exact + 1e-9) | (reading.high < exact - 1e-9)).mean())


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("scale", [40, 400, 4000])
def test_means_are_covered(name: str, scale: int) -> None:
    values = VALUES[name]

    assert misses(MeanReader(CLAMP), ShareForm(CLAMP), values, values.mean(), scale) <= MOST


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("scale", [1600, 16_000, 160_000])
@pytest.mark.parametrize(
    ("reader", "exact"),
    [(SquareMeanReader, np.mean), (VarianceReader, np.var), (DeviationReader, np.std)],
    ids=["mean", "variance", "deviation"],
)
def test_means_variances_and_deviations_from_three_shares_are_covered(reader, exact, name: str, scale: int) -> None:
    values = VALUES[name]

    assert misses(reader(CLAMP), SquareForm(CLAMP), values, float(exact(values)), scale) <= MOST


@pytest.mark.parametrize("scale", [1, 30, 3000])
def test_sums_are_covered_and_almost_exactly_as_often_as_asked(scale: int) -> None:
    form, values = TotalForm(CLAMP), VALUES["spread"]

    missed = misses(TotalReader(form.unit), form, values, float(values.sum()), scale)

    assert missed <= MOST
    assert scale == 1 or missed >= 0.07


def test_half_the_noise_scale_would_be_noticed() -> None:
    values = VALUES["spread"]
    noisy = noisy_copies(ShareForm(CLAMP), values, 400, 5)
    reading = MeanReader(CLAMP).read(noisy, 200, LEVEL)

    assert float(((reading.low > values.mean()) | (reading.high < values.mean())).mean()) > MOST


def test_the_mean_interval_is_tight_where_noise_is_small() -> None:
    values = VALUES["spread"]

    assert misses(MeanReader(CLAMP), ShareForm(CLAMP), values, values.mean(), 40) >= 0.05


@pytest.mark.parametrize("share", [0.0, 1e-12, 0.1, 0.37, 0.4999999, 0.5])
@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0, 2.0**40])
def test_the_radius_of_a_weighted_pair_is_never_above_that_of_one_noise_alone(share: float, scale: float) -> None:
    alone, pair = (float(weighted_radius(np.array([f]), scale, 0.05)[0]) for f in (0.0, share))

    assert 0 < pair <= alone * (1 + 1e-5)
    assert alone == pytest.approx(scale * np.log(20) + 1, rel=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_radius_of_a_weighted_pair_holds_for_lattice_noise(share: float) -> None:
    x, y = sample_laplace(Fraction(25), (2, 40_000), bits=SeededBits(8))
    radius = float(weighted_radius(np.array([share]), 25.0, 0.05)[0])
    beyond = float((np.abs((1 - share) * x - share * y) > radius).mean())

    assert 0.03 <= beyond <= 0.056


def test_combinations_are_covered() -> None:
    x = sample_laplace(Fraction(9), (3, 20_000), bits=SeededBits(2))
    weights = np.array([2.0, -1.0, 0.5])

    assert float((np.abs(weights @ x) > laplace_sum_radius(weights[:, None], 9.0, 0.05)[0]).mean()) <= 0.05
    reading = CombinationReader((Fraction(2), Fraction(-1), Fraction(1, 2))).read(x, 9.0, 0.05)
    np.testing.assert_allclose(reading.value, weights @ x)


def test_all_entries_of_a_covariance_are_covered_at_once() -> None:
    clamps = (Clamp.of((0, 10), whole=True), Clamp.of((0, 4), whole=True))
    form = MomentForm(clamps)
    rng = np.random.default_rng(1)
    first = rng.integers(0, 11, 500)
    values = np.stack([first, np.clip(first // 3 + rng.integers(0, 2, 500), 0, 4)])
    exact = form.coordinates(PowerSums.of(None, values.astype(float), cells=1, degree=2)).astype(np.int64)
    expected = np.cov(values, bias=True)[np.triu_indices(2)]
    scale = form.row_size // 2
    missed = 0
    for seed in range(200):
        noise = sample_laplace(Fraction(scale), exact.shape, bits=SeededBits(seed))
        reading = CovarianceReader(form).read(exact + noise, float(scale), 0.1)
        missed += bool(((reading.low > expected) | (reading.high < expected)).any())

    assert missed <= 40


def test_quantiles_of_all_probabilities_are_covered_at_once() -> None:
    form, clamp = TreeForm((8, 8)), Clamp.of((0, 64), whole=True)
    values = np.random.default_rng(3).integers(0, 64, 2000)
    exact = form.coordinates(PowerSums(np.bincount(values, minlength=64), np.zeros((0, 0)), np.zeros((0, 0))))
    shares = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
    expected = np.quantile(values, [0.1, 0.5, 0.9], method="inverted_cdf")
    missed = 0
    for seed in range(200):
        noise = sample_laplace(Fraction(20), exact.shape, bits=SeededBits(seed))
        reading = QuantileReader(form, clamp, shares).read(exact + noise, 20.0, 0.1)
        missed += bool(((reading.low > expected + 1) | (reading.high < expected)).any())

    assert missed <= 40
