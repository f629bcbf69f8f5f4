"""Neighbouring tables, same randomness: the sealed integers may differ by the declared sensitivity and by nothing more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expost import stats
from expost.core import Norm, Sealed, Unit, unseal
from expost.data import Dataset, col
from expost.noise import SeededBits

PAIRS = 15  # random pairs for each statistic and description
EXTREMES = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, -7.5, 12.25, 3.0, None]
CITIES = ["Rome", "Oslo", "Bern", "", "Nowhere", None]
IDS = ["a", "b", "a\0", "", "ü", "b ", None]
START = datetime(2024, 12, 30)
MONTH = ("2024-12-29", "2025-01-28")

Rows = list[dict[str, Any]]

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "x": pa.float64(),
        "n": pa.int64(),
        "city": pa.string(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us"),
    }
)

STATISTICS: dict[str, Callable[[], Any]] = {
    "count": lambda: stats.Count(epsilon=1, where="x > 0 or city = 'Rome'"),
    "count by city": lambda: stats.Count(epsilon=1, by="city"),
    "count by city and flag": lambda: stats.Count(epsilon=1, by=["city", "flag"]),
    "distinct": lambda: stats.CountDistinct(epsilon=1, where="n >= 0"),
    "distinct by city": lambda: stats.CountDistinct(epsilon=1, by="city"),
    "sum": lambda: stats.Sum("x", epsilon=1),
    "sum of integers by city": lambda: stats.Sum("n", epsilon=1, by="city"),
    "sum below zero": lambda: stats.Sum("x", bounds=(-20, -5), epsilon=1),
    "sum of an expression": lambda: stats.Sum(col("x") / col("n"), bounds=(-1, 3), epsilon=1, where="not flag"),
    "mean": lambda: stats.Mean("x", epsilon=1),
    "mean by city": lambda: stats.Mean("n", epsilon=1, by="city"),
    "variance": lambda: stats.Variance("x", epsilon=1),
    "deviation by flag": lambda: stats.StandardDeviation("n", epsilon=1, by="flag"),
    "covariance": lambda: stats.Covariance(["x", "n", "flag"], epsilon=1),
    "histogram": lambda: stats.Histogram("x", edges=[-10, -0.5, 0, 3, 12.25], epsilon=1),
    "histogram by city": lambda: stats.Histogram("n", edges=[-3, 0, 9], epsilon=1, by="city"),
    "table": lambda: stats.ContingencyTable(["city", "flag"], epsilon=1),
    "quantiles": lambda: stats.Quantiles("x", [0.1, 0.5], epsilon=1),
    "quantiles by flag": lambda: stats.Quantiles("n", [0.5], epsilon=1, by="flag", levels=2),
    "top": lambda: stats.TopK("city", 2, epsilon=1),
    "equal bins": lambda: stats.Histogram("x", bins=3, epsilon=1, by="city"),
    "value counts": lambda: stats.ValueCounts("city", epsilon=1),
    "months": lambda: stats.CountOverTime("at", bounds=("2024-12-31", "2025-01-20"), epsilon=1),
    "running totals": lambda: stats.Cumulative("x", bins=30, epsilon=1),
    "running totals by city": lambda: stats.Cumulative("at", every="day", bounds=MONTH, epsilon=1, by="city"),
    "moving window": lambda: stats.Moving("at", 10, every="day", bounds=MONTH, epsilon=1),
    "ratio": lambda: stats.Ratio("x", "n", bounds=[None, (0, 9)], epsilon=1),
    "ratio of integers by city": lambda: stats.Ratio("n", "flag", epsilon=1, by="city"),
    "weighted mean": lambda: stats.Mean("x", weight="n", weight_bounds=(0, 9), epsilon=1),
    "mean by city with real weights": lambda: stats.Mean("n", weight="x", weight_bounds=(0.5, 3), epsilon=1, by="city"),
    "correlation": lambda: stats.Correlation("x", "n", epsilon=1),
}

UNITS: dict[str, dict[str, Any]] = {
    "row": {"unit": "row"},
    "id, 1 row": {"unit": "id", "max_rows_per_unit": 1},
    "id, 3 rows": {"unit": "id", "max_rows_per_unit": 3},
    "id, 3 rows, 2 groups": {"unit": "id", "max_rows_per_unit": 3, "max_groups_per_unit": 2},
    "id and week": {"unit": Unit.of("id", per="week", time="at"), "max_rows_per_unit": 2},
}


def _row(random: np.random.Generator, unit: Any) -> dict[str, Any]:
    return {
        "id": unit,
        "x": EXTREMES[random.integers(len(EXTREMES))],
        "n": [None, -(2**62), 2**62, -3, 0, 5, 9][random.integers(7)],
        "city": CITIES[random.integers(len(CITIES))],
        "flag": [None, True, False][random.integers(3)],
        "at": None if random.random() < 0.1 else START,
    }


def _unit(random: np.random.Generator, name: Any, description: str) -> Rows:
    """All rows of one unit: several where an id is the unit, often the same row again."""
    rows = [_row(random, name) for _ in range(1 if description == "row" else int(random.integers(0, 9)))]
    return rows + [dict(row) for row in rows[: 0 if description == "row" else int(random.integers(0, 4))]]


def _neighbours(random: np.random.Generator, description: str, adjacency: str) -> tuple[Rows, Rows]:
    # With a window, two windows of one id are two units; the others' rows stay in another week.
    names = IDS[:-1] if description != "row" else [IDS[random.integers(len(IDS))] for _ in range(8)]
    count = int(random.integers(0, len(names)))
    others = [row for name in names[1 : count + 1] for row in _unit(random, name, description)]
    if description == "id and week":
        for row in others:
            row["id"], row["at"] = names[0], START + timedelta(days=7 * int(random.integers(1, 4)))
    first = _unit(random, names[0], description)
    second = _unit(random, names[0], description) if adjacency == "replace-one" else []
    place = int(random.integers(0, len(others) + 1))
    return others[:place] + first + others[place:], others[:place] + second + others[place:]


def _dataset(rows: Rows, description: str, adjacency: str) -> Dataset:
    public = {"rows": max(len(rows), 1)} if adjacency == "replace-one" and description == "row" else {}
    return Dataset(
        pa.Table.from_pylist(rows, schema=SCHEMA),
        bounds={"x": (-7.5, 12.25), "n": (-3, 9)},
        categories={"city": ["Rome", "Oslo", "Bern", ""]},
        adjacency=adjacency,
        **UNITS[description],
        **public,
    )


@pytest.fixture(autouse=True)
def frozen_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secret that chooses which rows a unit keeps is the same for both tables."""
    monkeypatch.setattr("expost.stats.gradual_release.system_bits", lambda: SeededBits(7))


def _sealed(request: Any, dataset: Dataset) -> Sealed:
    plan = request.plan(dataset)
    measured = plan.measure(dataset)
    if isinstance(measured, list):  # one sealed vector a group, and here there is one group
        (measured,) = measured
    assert isinstance(measured, Sealed)
    return measured


def _distance(first: Any, second: Any, norm: Norm) -> int:
    steps = [abs(int(a) - int(b)) for a, b in zip(first, second, strict=True)]
    return max(steps) if norm is Norm.LINF else sum(steps)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("description", UNITS)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_one_unit_moves_the_sealed_integers_by_at_most_the_sensitivity(
    statistic: str, description: str, adjacency: str
) -> None:
    random = np.random.default_rng([len(statistic), len(description), len(adjacency)])
    for _ in range(PAIRS):
        tables = _neighbours(random, description, adjacency)
        first, second = (_sealed(STATISTICS[statistic](), _dataset(rows, description, adjacency)) for rows in tables)
        assert first.sensitivity == second.sensitivity
        exact, other = unseal(first), unseal(second)
        assert len(exact) == len(other)
        assert _distance(exact, other, first.sensitivity.norm) <= first.sensitivity.amount


@pytest.mark.parametrize("description", ["row", "id, 3 rows"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_most_common_category_is_sealed_under_its_largest_change(description: str, adjacency: str) -> None:
    random = np.random.default_rng(3)
    for _ in range(PAIRS):
        tables = _neighbours(random, description, adjacency)
        request = stats.MostCommon("city", epsilon=1)
        first, second = (_sealed(request, _dataset(rows, description, adjacency)) for rows in tables)
        assert first.sensitivity.norm is Norm.LINF
        assert _distance(unseal(first), unseal(second), Norm.LINF) <= first.sensitivity.amount


@pytest.mark.parametrize("description", ["row", "id, 3 rows"])
def test_a_unit_adds_at_most_its_rows_to_the_sorted_steps_of_a_quantile(description: str) -> None:
    random = np.random.default_rng(4)
    for _ in range(PAIRS):
        tables = _neighbours(random, description, "add-remove")
        request = stats.Median("x", epsilon=1)
        first, second = (_sealed(request, _dataset(rows, description, "add-remove")) for rows in tables)
        longer, shorter = list(unseal(first)), list(unseal(second))
        for step in shorter:  # what is left of the one after the other is taken out of it
            longer.remove(step)
        assert len(longer) <= first.sensitivity.amount
