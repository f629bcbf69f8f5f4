"""Record and replay: with noise frozen, a neighbour changes the protected value alone, by at most its sensitivity."""

import logging
import math
import warnings
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from expost.core import unseal
from expost.data import Dataset, col
from expost.stats import (
    ApproximateBounds,
    Count,
    CountDistinct,
    Covariance,
    Histogram,
    Mean,
    Median,
    MostCommon,
    PrivateKeys,
    Quantile,
    Quantiles,
    Sum,
    Variance,
    gradual_release,
)

WILD = [None, float("nan"), float("inf"), float("-inf"), -1e308, 1e308, 0.0, -0.0, 5e-324, 41.0]
KEYS = ["a", "b", "unlisted", None, "\xff"]
QUESTIONS = [
    Count(epsilon=1, where="x / y > 1 or x is null"),
    Count(epsilon=1, by="key"),
    CountDistinct(epsilon=1, by="key"),
    CountDistinct(within=2, by="key", noise="gaussian"),
    Sum("y", within=9, by="key", noise="gaussian"),
    Histogram("x", edges=[0, 10, 100], epsilon=1),
    Sum("x", epsilon=1, by="key"),
    Mean("x", epsilon=1),
    Variance("x", epsilon=1, by="key"),
    Covariance(["x", "y"], epsilon=1),
    Covariance(["x", "y"], epsilon=1, by="key"),
    Quantiles("x", [0.5], epsilon=1, levels=1),
    Quantiles("x", [0.5], epsilon=1, levels=1, by="key"),
    Median("x", epsilon=1),
    Quantile("x", 0.9, epsilon=1, by="key"),
    MostCommon("key", epsilon=1),
    MostCommon("key", epsilon=1, by=col("x") > 50),
    ApproximateBounds("x", epsilon=1),
]


class FrozenBits:
    """The same secret every time."""

    def words(self, count: int) -> np.ndarray:
        return np.arange(1, count + 1, dtype=np.uint64)


@pytest.fixture(autouse=True)
def frozen(monkeypatch):
    monkeypatch.setattr(gradual_release, "system_bits", FrozenBits)


def rows(seed: int, count: int) -> list[dict]:
    rng = np.random.default_rng(seed)

    def wild():
        return WILD[rng.integers(len(WILD))] if rng.random() < 0.5 else float(rng.normal(50, 40))

    return [
        {"who": int(rng.integers(0, 6)), "key": KEYS[rng.integers(len(KEYS))], "x": wild(), "y": wild()}
        for _ in range(count)
    ]


def dataset(table: list[dict], unit: str, **more) -> Dataset:
    schema = pa.schema({"who": pa.int8(), "key": pa.string(), "x": pa.float64(), "y": pa.float64()})
    limits = {} if unit == "row" else {"max_rows_per_unit": 3, "max_groups_per_unit": 2}
    return Dataset(
        pa.Table.from_pylist(table, schema),
        unit=unit,
        bounds={"x": (0, 100), "y": (-5, 5)},
        categories={"key": ["a", "b"]},
        **limits,
        **more,
    )


def parts(measured) -> list:
    return measured if isinstance(measured, list) else [measured]


def moved(left, right) -> float:
    """How far one sealed part moved: in its own norm, or for records how many came and went."""
    here, there = (np.asarray(unseal(each), dtype=object).ravel() for each in (left, right))
    if len(here) != len(there):
        return sum(((Counter(here) - Counter(there)) + (Counter(there) - Counter(here))).values())
    distance = np.abs(here - there)
    if left.sensitivity.norm.value == "l2":
        return math.sqrt((distance**2).sum()) * (1 - 1e-12)
    return distance.max(initial=0) if left.sensitivity.norm.value == "linf" else distance.sum()


def records(asked) -> bool:
    """Whether the sealed parts are records, whose number may change, rather than totals."""
    return isinstance(asked, Quantile)


@pytest.mark.parametrize("unit", ["row", "who"])
@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: f"{asked.question} {getattr(asked, 'noise', '')}")
def test_a_neighbour_moves_the_sealed_value_within_its_sensitivity_and_nothing_else(asked, unit, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(25):
            table = rows(seed, 14)
            fewer = table[1:] if unit == "row" else [row for row in table if row["who"] != table[0]["who"]]
            sealed = []
            for each in (table, fewer):
                plan = asked.plan(dataset(each, unit))
                sealed.append(parts(plan.measure(dataset(each, unit))))

            assert len(sealed[0]) == len(sealed[1])
            for left, right in zip(*sealed, strict=True):
                assert left.sensitivity == right.sensitivity
                here, there = (np.asarray(unseal(each)) for each in (left, right))
                assert here.dtype == there.dtype and (here.shape == there.shape or records(asked))
            # Parts hold different rows, so together they move no further than one of them may.
            together = sum(moved(left, right) for left, right in zip(*sealed, strict=True))
            assert together <= sealed[0][0].sensitivity.amount
    assert caplog.records == []


@pytest.mark.parametrize("asked", [each for each in QUESTIONS if each.question != "count of rows"])
def test_a_replaced_row_moves_the_sealed_value_within_its_sensitivity(asked) -> None:
    for seed in range(25):
        table, other = rows(seed, 14), rows(1000 + seed, 1)
        sealed = []
        for each in (table, other + table[1:]):
            data = dataset(each, "row", adjacency="replace-one", rows=14)
            plan = asked.plan(data)
            sealed.append(parts(plan.measure(data)))

        together = sum(moved(left, right) for left, right in zip(*sealed, strict=True))
        # Picks are proved for a row that leaves one group and enters another: two moves (parallel-picks.md).
        moves = 2 if isinstance(asked, Quantile | MostCommon) else 1
        assert together <= moves * sealed[0][0].sensitivity.amount or (records(asked) and moves_of(sealed) <= 2)


def moves_of(sealed) -> int:
    """How many records came and went in all groups together."""
    gone = come = 0
    for left, right in zip(*sealed, strict=True):
        here, there = (Counter(np.asarray(unseal(each)).tolist()) for each in (left, right))
        gone, come = gone + (here - there).total(), come + (there - here).total()
    return gone + come


@pytest.mark.parametrize("unit", ["row", "who", "who once"])
def test_a_neighbour_opens_few_private_keys_and_moves_their_counts_within_the_sensitivity(unit) -> None:
    for seed in range(40):
        table = rows(seed, 14)
        name = unit.split()[0]
        fewer = table[1:] if unit == "row" else [row for row in table if row["who"] != table[0]["who"]]
        asked, found = PrivateKeys("key", epsilon=1, delta=0.01), []
        for each in (table, fewer):
            data = dataset(each, name)
            data.max_groups_per_unit = None if unit == "who" else data.max_groups_per_unit
            plan = asked.plan(data)
            measured = plan.measure(data)
            found.append(dict(zip(measured.keys, np.asarray(unseal(measured.sealed)).tolist(), strict=True)))
        left, right = found

        limit = plan.rows
        assert measured.sealed.sensitivity.amount == limit == {"row": 1, "who": 3, "who once": 2}[unit]
        assert sum(abs(left.get(key, 0) - right.get(key, 0)) for key in {*left, *right}) <= limit
        assert len(set(left) ^ set(right)) <= limit and min([*left.values(), 1]) > 0


def test_bounding_that_keeps_everything_would_be_caught(monkeypatch) -> None:
    monkeypatch.setattr("expost.data.exact_total.bound_contributions", lambda atoms, *_: atoms)
    asked, beyond = Count(epsilon=1, by="key"), 0
    for seed in range(25):
        table = rows(seed, 60)
        fewer = [row for row in table if row["who"] != table[0]["who"]]
        tables = [dataset(each, "who") for each in (table, fewer)]
        sealed = [asked.plan(each).measure(each) for each in tables]
        left, right = (np.asarray(unseal(each), dtype=object) for each in sealed)
        beyond += np.abs(left - right).sum() > sealed[0].sensitivity.amount

    assert beyond > 0
