"""Climbs by looks: what they cost against an oracle, and that contradictions certify nothing."""

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Adjacency, unseal
from expost.data import Clamp, Dataset
from expost.noise import SeededBits
from expost.stats import Covariance, Mean, Quantiles, StandardDeviation, Variance
from expost.stats.checkpoint_climb import _FIRST_PARTS, checkpoint_parts
from expost.stats.reader import CentredMeanReader, DeviationReader, MeanReader, SquareMeanReader, VarianceReader


def table(rows: int, adjacency: str = "add-remove") -> Dataset:
    rng = np.random.default_rng(rows)
    data = pa.table({"x": np.clip(rng.normal(40, 30, rows), -60, 300), "y": rng.integers(0, 100, rows)})
    public = {} if adjacency == "add-remove" else {"rows": rows}
    return Dataset(data, bounds={"x": (-60, 300), "y": (0, 100)}, adjacency=adjacency, **public)


def oracle(question, data: Dataset) -> float:
    """The least epsilon whose interval would reach the target if there were no noise, at the full confidence."""
    design, target = question.design(data), question.target
    exact = np.asarray(unseal(question.plan(data).measure(data)), dtype=object).reshape(design.cells, -1).T
    level = float(target.failure_probability) / design.cells
    for epsilon in np.geomspace(1e-3, 20, 120):
        reading = design.reader.read(exact, float(design.sensitivity.amount) / epsilon, level)
        reading = reading.balance_values() if target.measure.value == "relative error" else reading
        if reading.reaches_target(target).all():
            return float(epsilon)
    raise AssertionError("out of reach")


@pytest.mark.parametrize("rows", [4_000, 60_000])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "build",
    [
        lambda: Mean("x", within=2, max_epsilon=12),
        lambda: Mean("x", within="5%", max_epsilon=12),
        lambda: Variance("x", within="10%", max_epsilon=12),
        lambda: StandardDeviation("y", within=3, max_epsilon=12),
        lambda: Quantiles("y", [0.5], levels=2, within=6, max_epsilon=12),
        lambda: Covariance(["x", "y"], within=1000, max_epsilon=12),
    ],
    ids=["mean", "mean, relative", "variance", "deviation", "quantiles", "covariance"],
)
def test_a_climb_costs_little_more_than_an_oracle_would_pay(build, adjacency: str, rows: int) -> None:
    data, costs = table(rows, adjacency), []
    for seed in range(9):
        question = build()
        plan = question.plan(data)
        release = plan.climb(plan.measure(data), SeededBits(seed))
        assert release.receipt.outcome.met
        costs.append(release.receipt.epsilon)

    # Costs of one target spread by a factor of three; their mean over many seeds is at most 2.1 times the oracle's.
    assert np.mean(costs) <= 2.6 * oracle(build(), data)
    assert data.adjacency is Adjacency.parse(adjacency)


@pytest.mark.parametrize("reader", [MeanReader, CentredMeanReader, VarianceReader, SquareMeanReader, DeviationReader])
def test_noisy_numbers_that_no_rows_could_give_tell_nothing(reader) -> None:
    clamp = Clamp.of((0, 10), whole=True)
    noisy = {
        MeanReader: [[-900], [1000]],
        CentredMeanReader: [[1000], [100]],
    }.get(reader, [[-9_000], [10_000], [10_000]])

    reading = reader(clamp).read(np.array(noisy), 1.0, 0.05)

    whole = 10 if reader in (MeanReader, CentredMeanReader, SquareMeanReader) else 25 if reader is VarianceReader else 5
    assert reading.high[0] - reading.low[0] >= whole * (1 - 1e-9)


def test_the_parts_of_looks_add_up_to_at_most_one() -> None:
    parts = checkpoint_parts(first=_FIRST_PARTS)

    assert 0.99 < sum(next(parts) for _ in range(500)) <= 1


def test_groups_of_different_sizes_cost_little_more_than_the_smallest_alone() -> None:
    sizes = [6_000, 6_000, 6_000, 6_000, 6_000, 1_000]
    site = np.repeat(np.arange(len(sizes)), sizes)
    pay = np.clip(np.random.default_rng(3).gamma(2.0, 20.0, len(site)), 0, 200)
    alone = pa.table({"pay": pay[site == 5]})
    data = pa.table({"site": site, "pay": pay})
    bounds, bills = {"pay": (0, 200)}, {}
    grouped = Dataset(data, bounds=bounds, categories={"site": list(range(len(sizes)))})
    for by, dataset in ((None, Dataset(alone, bounds=bounds)), ("site", grouped)):
        plan = Mean("pay", within="5%", max_epsilon=50, by=by).plan(dataset)
        found = [plan.climb(plan.measure(dataset), SeededBits(seed)).receipt for seed in range(24)]
        assert all("groups not met" not in receipt.terms for receipt in found)
        bills[by] = np.mean([receipt.epsilon for receipt in found])

    # With an even split of the failure probability the ratio would be log(12 / 0.05) / log(2 / 0.05) = 1.5.
    assert bills["site"] <= 1.25 * bills[None]
