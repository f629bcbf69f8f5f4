"""Random questions for the tables of ``odd_tables``: statistics, tests and fits over random expressions and filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from tests.privacy.odd_tables import TYPES, OddTable, Pair

import expost
from expost import stats
from expost.core import Unit
from expost.data import Dataset, col
from expost.noise import SeededBits
from expost.stats import hypothesis

__all__ = ["FITS", "QUESTIONS", "TESTS", "describe", "session"]

BOUNDS = {"x": (-7.5, 12.25), "n": (-3, 9)}
CATEGORIES: dict[str, list[Any]] = {
    "float64": [0, 1, 1.5],
    "int64": [0, 7, 2**53, 2**53 + 1],
    "uint64": [0, 1, 2**63],
    "decimal": [0, 1, 7],
    "bool": [False, True],
}
TEXTS = ["", "a", "b"]

Ask = Callable[[Any, Dataset], Any]
Random = np.random.Generator


def describe(pair: Pair, random: Random, *, filters: bool = True) -> Callable[[Any, dict[str, Any], OddTable], Dataset]:
    """Draw a public description for both tables of a pair, derived columns, a join and a filter included."""
    kinds = pair.first.types
    named: dict[str, Any] = {
        "name": "table",
        "bounds": {name: (0, 1) if kinds[name] == "bool" else bounds for name, bounds in BOUNDS.items()},
        "categories": {"key": categories(kinds["key"]), "label": labels(kinds["label"])},
        "adjacency": pair.adjacency,
    }
    if pair.unit == "row":
        if pair.adjacency == "replace-one":
            named["rows"] = len(pair.first.rows)
    else:
        week = random.random() < 0.2 and pair.adjacency == "add-remove" and pair.unit == "id and week"
        named["unit"] = Unit.of("id", per="week", time="when") if week else "id"
        named["max_rows_per_unit"] = int(random.integers(1, 5))
        if random.random() < 0.5:
            named["max_groups_per_unit"] = int(random.integers(1, 4))
        if random.random() < 0.3:
            named["max_rows_per_group"] = int(random.integers(1, 3))
    number, condition = number_expression(random), condition_expression(random, kinds)
    derived, joined, filtered = random.random() < 0.6, random.random() < 0.5, filters and random.random() < 0.4

    def build(source: Any, more: dict[str, Any], table: OddTable) -> Dataset:
        dataset = Dataset(source, **named, **more)
        if derived:
            dataset = dataset.derive(d=number)
        if joined:
            dataset = dataset.join(public_table(kinds["key"]), on="key", prefix="j_")
        if filtered and pair.adjacency == "add-remove":
            dataset = dataset.where(condition)
        return dataset

    return build


def categories(kind: str) -> list[Any]:
    """Public categories of a key column."""
    return CATEGORIES.get(kind, TEXTS)


def labels(kind: str) -> list[Any]:
    """Two public classes of the label column."""
    return {"int64": [2**53, 2**53 + 1], "float64": [0, 1], "bool": [False, True]}.get(kind, ["a", "b"])


def public_table(kind: str) -> pa.Table:
    """A public table to join by the key; -0.0 where the column holds floats."""
    keys = [key for key in categories(kind) if key != 2**53 + 1]  # a join compares numbers as floats
    spelled = [-0.0 if kind == "float64" and key == 0 else key for key in keys]
    arrow = TYPES[kind].arrow if kind in ("float64", "int64", "uint64", "bool") else None
    array = (
        pa.array(spelled, arrow)
        if arrow is not None
        else pa.array(spelled, pa.float64() if kind == "decimal" else None)
    )
    return pa.table({"key": array, "weight": pa.array([float(place) for place in range(len(keys))])})


def session(dataset: Dataset, bits: SeededBits) -> expost.Session:
    """A session with a large budget whose noise is frozen."""
    return expost.Session(dataset, expost.approx(500, 0.5), bits=bits, simulation=True)


# Expressions ----------------------------------------------------------------------------------------------------------


def number_expression(random: Random, depth: int = 2) -> Any:
    """A random expression of the number columns."""
    x, n = col("x"), col("n")
    leaves = [
        x,
        n,
        x * 0,
        x.round(),
        n / x,
        x % n,
        x.floor(),
        x.ceil(),
        x.abs(),
        x.fill(0),
        x - x,
        -x,
        col("when").month(),
        col("when").date_trunc("week").day(),
        col("when").week() - col("when").dayofyear(),
        expost.when(x > 1).then(n).otherwise(x),
        x.least(n, 7),
        x.bin(4, -3, 5),
        x.cast("text").length(),
        n.cast("text").as_number(),
    ]
    picked = leaves[random.integers(len(leaves))]
    if depth and random.random() < 0.4:
        other = number_expression(random, depth - 1)
        picked = [picked + other, picked * other, picked - other, (picked / other).round()][random.integers(4)]
    return picked


def condition_expression(random: Random, kinds: dict[str, str]) -> Any:
    """A random condition on numbers, keys and times."""
    number = number_expression(random, 1)
    literals = [0, -0.0, 1, 1.5, 2**53, -7.5]
    literal = literals[random.integers(len(literals))]
    key = categories(kinds["key"])[0]
    choices = [
        number > literal,
        number == literal,
        number.isin([0, 1, 7]),
        number.is_missing(),
        ~(number <= literal),
        (col("key") == key) if kinds["key"] != "uint64" else number >= literal,
        col("when").year() > 1970,
        col("when").between("1970-01-01", "2013-03-01"),
    ]
    picked = choices[random.integers(len(choices))]
    if random.random() < 0.4:
        other = choices[random.integers(len(choices))]
        picked = [picked & other, picked | other, picked & ~other][random.integers(3)]
    return picked


# Questions ------------------------------------------------------------------------------------------------------------


def _ask(build: Callable[[Random], Any]) -> Callable[[Random, dict[str, str]], Ask]:
    """A question whose terms are drawn once for both tables."""

    def drawn(random: Random, kinds: dict[str, str]) -> Ask:
        state = random.integers(2**63)

        def ask(asking: Any, dataset: Dataset) -> Any:
            return asking.ask(build(np.random.default_rng(state)))

        return ask

    return drawn


def _where(random: Random) -> Any:
    return None if random.random() < 0.5 else number_expression(random, 1) > [0, 1, -1.5][random.integers(3)]


_DAYS = ("1969-01-01", "2024-12-31")

QUESTIONS: dict[str, Callable[[Random, dict[str, str]], Ask]] = {
    "count": _ask(lambda r: stats.Count(epsilon=1, where=number_expression(r) > 0)),
    "count by": _ask(lambda r: stats.Count(epsilon=1, by="key", where=_where(r))),
    "count by a formula": _ask(
        lambda r: stats.Count(epsilon=1, by=["bin(x, 3)", col("when").quarter()], where=_where(r))
    ),
    "count, climbing": _ask(lambda r: stats.Count(within="30%", max_epsilon=5, where=number_expression(r) > -1e300)),
    "distinct by": _ask(lambda r: stats.CountDistinct(epsilon=1, by="key", where=_where(r))),
    "distinct by, gaussian": _ask(lambda r: stats.CountDistinct(within=4, by="key", where=_where(r), noise="gaussian")),
    "sum by, gaussian": _ask(lambda r: stats.Sum("n", within=60, by="key", noise="gaussian")),
    "sum": _ask(lambda r: stats.Sum("x", epsilon=1, where=_where(r))),
    "sum of an expression": _ask(lambda r: stats.Sum(number_expression(r), bounds=(-3, 3), epsilon=1, by="key")),
    "sum, climbing": _ask(lambda r: stats.Sum("n", within=5, max_epsilon=100)),
    "mean by": _ask(lambda r: stats.Mean("x", epsilon=1, by="key", where=_where(r))),
    "mean, climbing": _ask(lambda r: stats.Mean("x", within=2, max_epsilon=20)),
    "mean, private bounds": _ask(lambda r: stats.Mean(number_expression(r), bounds="private", epsilon=60)),
    "variance": _ask(lambda r: stats.Variance("x", epsilon=1, where=_where(r))),
    "deviation by": _ask(lambda r: stats.StandardDeviation("n", epsilon=1, by="key")),
    "covariance": _ask(lambda r: stats.Covariance(["x", "n"], epsilon=1)),
    "histogram": _ask(lambda r: stats.Histogram("x", edges=[-7.5, -0.5, 0, 3, 12.25], epsilon=1, by="label")),
    "equal bins": _ask(lambda r: stats.Histogram("x", bins=5, epsilon=1, where=_where(r))),
    "counts over time": _ask(
        lambda r: [
            stats.CountOverTime("when", every="quarter", bounds=_DAYS, epsilon=1, where=_where(r)),
            stats.Histogram("when", every="year", bounds=_DAYS, epsilon=1, by="label"),
            stats.Cumulative("when", every="year", bounds=_DAYS, epsilon=1),
            stats.Histogram("key", epsilon=1, where=_where(r)),
        ][r.integers(4)]
    ),
    "count by week": _ask(lambda r: stats.Count(epsilon=1, by="week(when)", where="when < '2013-06-30' OR x > 0")),
    "value counts": _ask(lambda r: stats.ValueCounts("key", epsilon=1, by="label")),
    "running totals": _ask(lambda r: stats.Cumulative("x", bins=30, epsilon=1, where=_where(r))),
    "running totals, climbing": _ask(lambda r: stats.Cumulative("n", bins=4, within="50%", max_epsilon=5)),
    "moving window by": _ask(lambda r: stats.Moving("x", 3, bins=8, within=20, by="key")),
    "ratio": _ask(lambda r: stats.Ratio("x", number_expression(r), bounds=[(0, 3), (0, 2)], epsilon=1)),
    "ratio, climbing": _ask(
        lambda r: stats.Ratio("x", "n", bounds=[(0, 3), (0, 2)], within=1, max_epsilon=5, by="key")
    ),
    "weighted mean": _ask(lambda r: stats.Mean("x", weight=number_expression(r), weight_bounds=(0, 3), epsilon=1)),
    "weighted mean, climbing by": _ask(
        lambda r: stats.Mean("n", weight="x", weight_bounds=(0, 2), within=3, max_epsilon=20, by="key")
    ),
    "correlation by": _ask(lambda r: stats.Correlation("x", "n", epsilon=1, by="key", where=_where(r))),
    "correlation, climbing": _ask(lambda r: stats.Correlation("x", "n", within=0.5, max_epsilon=5)),
    "table": _ask(lambda r: stats.ContingencyTable(["key", "label"], epsilon=1)),
    "quantiles": _ask(lambda r: stats.Quantiles("x", [0.1, 0.5], epsilon=1, where=_where(r))),
    "median": _ask(lambda r: stats.Median("x", epsilon=1)),
    "smooth quantile": _ask(lambda r: stats.Quantile("x", 0.75, method="smooth", epsilon=1)),
    "quantile by": _ask(lambda r: stats.Quantile("n", 0.9, by="key", epsilon=1)),
    "most common": _ask(lambda r: stats.MostCommon("key", epsilon=1)),
    "top": _ask(lambda r: stats.TopK("key", 2, epsilon=1)),
    "bounds": _ask(lambda r: stats.ApproximateBounds(number_expression(r), epsilon=40)),
    "summary": _ask(lambda r: stats.Summary(["x", "n"], epsilon=1)),
    "private keys": _ask(lambda r: stats.PrivateKeys("key", epsilon=1, delta=0.1)),
    "private keys of a number": _ask(lambda r: stats.PrivateKeys(number_expression(r).round(), epsilon=1, delta=0.1)),
    "private keys of a pair": _ask(lambda r: stats.PrivateKeys(["key", number_expression(r)], epsilon=1, delta=0.1)),
    "sum by a private pair": _ask(
        lambda r: stats.Sum("x", by=stats.PrivateKeys(["key", "n"], epsilon=1, delta=0.1), epsilon=1, where=_where(r))
    ),
    "count by private keys": _ask(lambda r: stats.CountByPrivateKeys("key", epsilon=1, delta=0.1, where=_where(r))),
    "sum by private keys": _ask(
        lambda r: stats.Sum("x", by=stats.PrivateKeys(col("n").round(), epsilon=1, delta=0.1), epsilon=1)
    ),
    "mean by two private keys": _ask(
        lambda r: stats.Mean("x", by=["label", stats.PrivateKeys("key", epsilon=1, delta=0.1)], epsilon=1)
    ),
}
"""Every statistic, with terms drawn at random."""

TESTS: dict[str, Callable[[Random, dict[str, str]], Ask]] = {
    "binomial": lambda r, k: (
        lambda s, d: s.ask(hypothesis.BinomialTest("label", equals=labels(k["label"])[0], null=0.3, epsilon=1))
    ),
    "goodness of fit": lambda r, k: (
        lambda s, d: s.ask(
            hypothesis.GoodnessOfFitTest("key", [1 / len(categories(k["key"]))] * len(categories(k["key"])), epsilon=1)
        )
    ),
    "independence": lambda r, k: lambda s, d: s.ask(hypothesis.IndependenceTest("key", "label", epsilon=1)),
    "several means": lambda r, k: lambda s, d: s.ask(hypothesis.AnovaTest("x", by="key", epsilon=1)),
    "two means": lambda r, k: (
        lambda s, d: s.ask(hypothesis.MeanDifferenceTest("x", by="label", groups=tuple(labels(k["label"])), epsilon=1))
    ),
    "rank sum": lambda r, k: (
        lambda s, d: s.ask(hypothesis.MannWhitneyTest("x", by="label", groups=tuple(labels(k["label"])), epsilon=1))
    ),
    "several rank sums": lambda r, k: lambda s, d: s.ask(hypothesis.KruskalWallisTest("x", by="key", epsilon=1)),
    "signed ranks": lambda r, k: lambda s, d: s.ask(hypothesis.SignedRankTest("x", "n", epsilon=1)),
    "rank sum of expected sizes": lambda r, k: (
        lambda s, d: s.ask(
            hypothesis.MannWhitneyTest(
                "x", by="label", groups=tuple(labels(k["label"])), epsilon=1, expected_sizes=(4, 5)
            )
        )
    ),
    "several rank sums of expected sizes": lambda r, k: (
        lambda s, d: s.ask(
            hypothesis.KruskalWallisTest("x", by="key", epsilon=1, expected_sizes=[3] * len(categories(k["key"])))
        )
    ),
    "signed ranks of expected rows": lambda r, k: (
        lambda s, d: s.ask(hypothesis.SignedRankTest("x", "n", epsilon=1, expected_rows=7))
    ),
    "rank correlation": lambda r, k: lambda s, d: s.ask(hypothesis.CorrelationTest("x", "n", epsilon=1)),
    "linear correlation": lambda r, k: lambda s, d: s.ask(hypothesis.LinearCorrelationTest("x", "n", epsilon=1)),
    "split test of means": lambda r, k: lambda s, d: s.ask(hypothesis.SplitTest("means", "x", "key", epsilon=1)),
}
"""Every hypothesis test."""


def _fit(make: Callable[[dict[str, str], int], Any], *, distances: bool = True) -> tuple[Any, bool]:
    def drawn(random: Random, kinds: dict[str, str]) -> Ask:
        def ask(asking: Any, dataset: Dataset) -> Any:
            model = make(kinds, dataset.rows or 14)
            return asking.fit(model, features=["x", "n"], target="label")

        return ask

    return drawn, distances


def _box(kinds: dict[str, str]) -> list[tuple[float, float]]:
    return [(0, 1) if kinds["x"] == "bool" else (-7.5, 12.25), (-3, 9)]


def _columns(kinds: dict[str, str]) -> dict[str, Any]:
    return {"x": "boolean" if kinds["x"] == "bool" else (-7.5, 12.25), "n": (-3, 9)}


def _classes(kinds: dict[str, str]) -> list[Any]:
    return labels(kinds["label"])


FITS: dict[str, tuple[Any, bool]] = {
    "logistic": _fit(
        lambda k, n: expost.LogisticRegression(epsilon=1, regularization=0.1, classes=_classes(k), bounds=_box(k)),
        distances=False,
    ),
    "huber": _fit(
        lambda k, n: expost.HuberSVC(epsilon=1, regularization=0.1, classes=_classes(k), bounds=_box(k)),
        distances=False,
    ),
    "logistic, excess risk": _fit(
        lambda k, n: expost.LogisticRegression(
            excess_risk=0.2, max_epsilon=20, regularization=0.1, classes=_classes(k), bounds=_box(k)
        ),
        distances=False,
    ),
    "ridge": _fit(
        lambda k, n: expost.Ridge(epsilon=5, regularization=0.5, bounds=_box(k), target_bounds=1.0), distances=False
    ),
    "ridge, readings": _fit(
        lambda k, n: expost.Ridge(
            excess_risk=0.02, max_epsilon=400, regularization=0.01, bounds=_box(k), target_bounds=1.0
        ),
        distances=False,
    ),
    "ridge, certificate": _fit(
        lambda k, n: expost.Ridge(
            method="certificate", epsilon=5, regularization=0.5, bounds=_box(k), target_bounds=1.0
        )
    ),
    "ridge, gaussian": _fit(
        lambda k, n: expost.Ridge(regularization=None, epsilon=1, delta=1e-5, bounds=_box(k), target_bounds=1.0),
        distances=False,
    ),
    "added rows, logistic": _fit(
        lambda k, n: expost.LogisticRegression(
            epsilon=1, regularization=0.1, classes=_classes(k), bounds=_box(k), rows=20
        ),
        distances=False,
    ),
    "added rows, ridge": _fit(
        lambda k, n: expost.Ridge(
            excess_risk=0.3, max_epsilon=50, regularization=0.5, bounds=_box(k), rows=20, target_bounds=1.0
        ),
        distances=False,
    ),
    "added rows, ridge, certificate": _fit(
        lambda k, n: expost.Ridge(
            method="certificate", epsilon=5, regularization=0.5, bounds=_box(k), rows=20, target_bounds=1.0
        )
    ),
    "persons, huber": _fit(
        lambda k, n: expost.HuberSVC(epsilon=1, regularization=1.0, classes=_classes(k), bounds=_box(k), rows=20),
        distances=False,
    ),
    "persons, ridge": _fit(
        lambda k, n: expost.Ridge(
            excess_risk=0.3, max_epsilon=50, regularization=0.5, bounds=_box(k), rows=20, target_bounds=1.0
        ),
        distances=False,
    ),
    "persons, ridge, certificate": _fit(
        lambda k, n: expost.Ridge(
            method="certificate", epsilon=5, regularization=0.5, bounds=_box(k), rows=20, target_bounds=1.0
        )
    ),
    "added rows, table classifier": _fit(
        lambda k, n: expost.Classifier(epsilon=1, delta=0, classes=_classes(k), columns=_columns(k)), distances=False
    ),
    "persons, table classifier": _fit(
        lambda k, n: expost.Classifier(
            score=("accuracy", 0.6), max_epsilon=50, delta=0, classes=_classes(k), columns=_columns(k)
        ),
        distances=False,
    ),
    "sgd classifier": _fit(
        lambda k, n: expost.SGDClassifier(epsilon=1, classes=_classes(k), rows=20, steps=3, bounds=_box(k))
    ),
    "sgd regressor": _fit(
        lambda k, n: expost.SGDRegressor(epsilon=1, rows=20, steps=3, bounds=_box(k), target_bounds=1.0)
    ),
    "newton": _fit(
        lambda k, n: expost.SGDClassifier(
            epsilon=1, classes=_classes(k), rows=20, steps=3, solver="newton", bounds=_box(k)
        )
    ),
}
"""Every way to fit a model, and whether its sealed answers are protected by their sensitivity alone."""
