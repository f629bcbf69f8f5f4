"""With the secret frozen, one unit changes only its own kept rows: what a table adds up to is the sum over its units.

Sealed totals are linear in the kept rows. So "what a unit keeps is a function of its own rows" means that the total of a
table is the total of the table without a unit plus the total of that unit alone, for every statistic and grouping.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expost import stats
from expost.core import Sealed, Unit, unseal
from expost.data import Dataset, col
from expost.noise import SeededBits

CITIES = ["Rome", "Oslo", "Bern", "", "Nowhere", "ü", "x" * 5000, "x" * 4999 + "y", None]
SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "x": pa.float64(),
        "n": pa.int64(),
        "city": pa.string(),
        "flag": pa.bool_(),
        "big": pa.uint64(),
        "at": pa.timestamp("us"),
    }
)
REGIONS = pa.table({"city": ["Rome", "Oslo", "Bern", "ü"], "region": ["south", "north", "middle", "middle"]})

PUBLIC: dict[str, Callable[[Dataset], Any]] = {
    "count by city": lambda data: stats.Count(epsilon=1, by="city"),
    "count by city and flag": lambda data: stats.Count(epsilon=1, by=["city", "flag"]),
    "count by flag, city and n": lambda data: stats.Count(epsilon=1, by=["flag", "city", "n"]),
    "distinct by city": lambda data: stats.CountDistinct(epsilon=1, by="city"),
    "distinct": lambda data: stats.CountDistinct(epsilon=1),
    "sum": lambda data: stats.Sum("x", epsilon=1),
    "sum by city": lambda data: stats.Sum("x", epsilon=1, by="city"),
    "sum of a part": lambda data: stats.Sum("n", epsilon=1, by="city", where="flag"),
    "mean by flag": lambda data: stats.Mean("n", epsilon=1, by="flag"),
    "variance by city": lambda data: stats.Variance("x", epsilon=1, by="city"),
    "covariance": lambda data: stats.Covariance(["x", "n"], epsilon=1),
    "histogram by city": lambda data: stats.Histogram("n", edges=[-3, 0, 2, 9], epsilon=1, by="city"),
    "value counts": lambda data: stats.ValueCounts("city", epsilon=1),
    "running totals": lambda data: stats.Cumulative("n", bins=5, epsilon=1, by="city"),
    "moving window": lambda data: stats.Moving("x", 2, bins=5, epsilon=1),
    "ratio by city": lambda data: stats.Ratio("x", "flag", epsilon=1, by="city"),
    "weighted mean": lambda data: stats.Mean("x", weight="flag", epsilon=1, by="city"),
    "correlation": lambda data: stats.Correlation("x", "n", epsilon=1, by="city"),
    "table": lambda data: stats.ContingencyTable(["city", "flag"], epsilon=1),
    "quantiles by city": lambda data: stats.Quantiles("x", [0.5], epsilon=1, by="city", levels=2),
    "median by city": lambda data: stats.Median("x", epsilon=1, by="city"),
    "most common": lambda data: stats.MostCommon("city", epsilon=1),
    "count by region": lambda data: stats.Count(epsilon=1, by=data.axis("region", ["north", "south", "middle"])),
    "sum by a derived key": lambda data: stats.Sum("n", epsilon=1, by=data.axis("parity", [0, 1, 2])),
}
PRIVATE: dict[str, Callable[[Dataset], Any]] = {
    "text keys": lambda data: stats.PrivateKeys("city", epsilon=1, delta=1e-6),
    "integer keys": lambda data: stats.PrivateKeys("n", epsilon=1, delta=1e-6),
    "wide integer keys": lambda data: stats.PrivateKeys("big", epsilon=1, delta=1e-6),
    "real keys": lambda data: stats.PrivateKeys("x", epsilon=1, delta=1e-6),
    "truth keys": lambda data: stats.PrivateKeys("flag", epsilon=1, delta=1e-6),
    "joined keys": lambda data: stats.PrivateKeys("region", epsilon=1, delta=1e-6),
    "derived keys": lambda data: stats.PrivateKeys("parity", epsilon=1, delta=1e-6),
    "keys of a part": lambda data: stats.PrivateKeys("city", epsilon=1, delta=1e-6, where="n > 0"),
    "counts by private keys": lambda data: stats.CountByPrivateKeys("city", epsilon=1, delta=1e-6),
    "sums by two private keys": lambda data: stats.Sum(
        "x", epsilon=1, by=[stats.PrivateKeys(each, epsilon=1, delta=1e-6) for each in ("city", "n")]
    ),
}
LIMITS: dict[str, dict[str, Any]] = {
    "one row": {"max_rows_per_unit": 1},
    "one group": {"max_groups_per_unit": 1, "max_rows_per_unit": 50},
    "two groups, three rows": {"max_groups_per_unit": 2, "max_rows_per_unit": 3},
    "two rows in each of two groups": {"max_groups_per_unit": 2, "max_rows_per_group": 2},
    "one row in each group": {"max_rows_per_unit": 4, "max_rows_per_group": 1},
    "a week": {"max_groups_per_unit": 1, "max_rows_per_unit": 2, "unit": Unit.of("id", per="week", time="at")},
}


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("expost.stats") and hasattr(module, "system_bits"):
            monkeypatch.setattr(module, "system_bits", lambda: SeededBits(7))


def _table(rng: np.random.Generator, ids: list[str], rows: int) -> pa.Table:
    start = datetime(2024, 12, 30)
    found = [
        {
            "id": ids[rng.integers(len(ids))],
            "x": [0.0, -0.0, 1.5, 2.25, -7.0, 3.0][rng.integers(6)],
            "n": int(rng.integers(-2, 8)),
            "city": CITIES[rng.integers(len(CITIES))],
            "flag": [True, False, None][rng.integers(3)],
            "big": [0, 2**53 + 1, 2**63, 2**64 - 1][rng.integers(4)],
            "at": start + timedelta(hours=int(rng.integers(24 * 20))),
        }
        for _ in range(rows)
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def _dataset(table: pa.Table, **description: Any) -> Dataset:
    data = Dataset(
        table,
        **{"unit": "id"} | description,
        bounds={"x": (-5, 5), "n": (0, 8)},
        categories={"city": ["Oslo", "Rome", "Bern", ""], "n": [0, 1, 2, 3]},
    )
    return data.join(REGIONS, on="city").derive(parity=col("n") % 3)


def _public(question: Callable[[Dataset], Any], data: Dataset) -> Counter[Any]:
    asked = question(data)
    plan = asked.plan(data)
    sealed = plan.measure(data)
    if isinstance(sealed, Sealed):
        return Counter(dict(enumerate(int(each) for each in np.atleast_1d(unseal(sealed)))))
    if isinstance(asked, stats.Median):  # single rows, group by group
        return Counter((group, int(step)) for group, each in enumerate(sealed) for step in unseal(each))
    return Counter({(group, place): int(v) for group, e in enumerate(sealed) for place, v in enumerate(unseal(e))})


def _private(question: Callable[[Dataset], Any], data: Dataset) -> Counter[Any]:
    asked = question(data)
    plan = asked.plan(data)
    measured = plan.measure(data)
    stages = measured[0] if isinstance(measured, tuple) else (measured,)
    return Counter(
        {
            (stage, key): int(count)
            for stage, found in enumerate(stages)
            for key, count in zip(found.keys, unseal(found.sealed), strict=True)
        }
    )


def _sum(first: Counter[Any], second: Counter[Any]) -> dict[Any, int]:
    return {key: first[key] + second[key] for key in {*first, *second}}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("question", [*PUBLIC, *PRIVATE])
def test_a_table_adds_up_to_its_units(question: str, limits: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        others, unit = _table(rng, [f"p{k}" for k in range(6)], 60), _table(rng, ["new"], 12)
        tables = [_dataset(each, **LIMITS[limits]) for each in (pa.concat_tables([unit, others]), others, unit)]
        if question in PUBLIC:
            both, rest, alone = (_public(PUBLIC[question], each) for each in tables)
        else:
            both, rest, alone = (_private(PRIVATE[question], each) for each in tables)
        assert {k: v for k, v in _sum(rest, alone).items() if v} == {k: v for k, v in both.items() if v}


@pytest.mark.parametrize("limits", LIMITS)
def test_the_order_of_public_categories_does_not_move_what_is_kept(limits: str) -> None:
    table = _table(np.random.default_rng(5), ["a", "b", "c"], 80)

    def counts(cities: list[str]) -> dict[str, int]:
        data = Dataset(table, **{"unit": "id"} | LIMITS[limits], categories={"city": cities})
        question = stats.Count(epsilon=1, by="city")
        plan = question.plan(data)
        return dict(zip(cities, unseal(plan.measure(data)).tolist(), strict=True))

    assert counts(["Rome", "Oslo", "Bern"]) == counts(["Bern", "Rome", "Oslo"])


def test_private_and_public_keys_keep_the_same_rows() -> None:
    table = _table(np.random.default_rng(6), ["a", "b", "c"], 80)
    cities = sorted({each for each in table.column("city").to_pylist() if each is not None})
    data = Dataset(table, unit="id", max_groups_per_unit=2, max_rows_per_unit=3, categories={"city": cities})
    public = stats.CountDistinct(epsilon=1, by="city")
    plan = public.plan(data)
    found = _private(PRIVATE["text keys"], data)

    assert {key: count for (_, key), count in found.items()} == {
        city: count for city, count in zip(cities, unseal(plan.measure(data)).tolist(), strict=True) if count
    }
