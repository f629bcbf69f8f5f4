"""Every kind of question that a session answers, as a function of its epsilon: for tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from expost import stats
from expost.core import Query
from expost.stats import hypothesis

__all__ = ["CATEGORIES", "QUESTIONS", "TESTS", "described"]

CATEGORIES = {"c": ["a", "b", "c"], "d": ["u", "v"]}

Build = Callable[[Any], Query]

QUESTIONS: dict[str, Build] = {
    "count": lambda e: stats.Count(epsilon=e),
    "count where": lambda e: stats.Count(epsilon=e, where="x > 4"),
    "count by": lambda e: stats.Count(epsilon=e, by="c"),
    "count, climbing": lambda e: stats.Count(within="10%", max_epsilon=e),
    "count of units": lambda e: stats.CountDistinct(epsilon=e),
    "sum": lambda e: stats.Sum("x", epsilon=e),
    "sum, climbing": lambda e: stats.Sum("x", within="10%", max_epsilon=e),
    "sum, private bounds": lambda e: stats.Sum("x", bounds="private", epsilon=e),
    "mean": lambda e: stats.Mean("x", epsilon=e),
    "mean by": lambda e: stats.Mean("x", epsilon=e, by="d"),
    "mean, climbing": lambda e: stats.Mean("x", within=1, max_epsilon=e),
    "mean, private bounds": lambda e: stats.Mean("x", bounds="private", epsilon=e),
    "mean, private bounds, climbing": lambda e: stats.Mean("x", bounds="private", within="10%", max_epsilon=e),
    "variance": lambda e: stats.Variance("x", epsilon=e),
    "variance, climbing": lambda e: stats.Variance("x", within="30%", max_epsilon=e),
    "standard deviation": lambda e: stats.StandardDeviation("x", epsilon=e),
    "covariance": lambda e: stats.Covariance(["x", "y"], epsilon=e),
    "histogram": lambda e: stats.Histogram("x", edges=[0, 5, 10], epsilon=e),
    "histogram, bins": lambda e: stats.Histogram("x", bins=4, epsilon=e),
    "value counts": lambda e: stats.ValueCounts("c", epsilon=e),
    "running totals": lambda e: stats.Cumulative("x", bins=4, epsilon=e),
    "moving window": lambda e: stats.Moving("x", 2, bins=4, within="90%", max_epsilon=e),
    "ratio": lambda e: stats.Ratio("x", "y", epsilon=e),
    "ratio, climbing": lambda e: stats.Ratio("x", "y", within="30%", max_epsilon=e),
    "weighted mean": lambda e: stats.Mean("x", weight="y", epsilon=e),
    "correlation": lambda e: stats.Correlation("x", "y", epsilon=e),
    "contingency table": lambda e: stats.ContingencyTable(["c", "d"], epsilon=e),
    "quantile": lambda e: stats.Quantile("x", 0.9, epsilon=e),
    "quantile by": lambda e: stats.Quantile("x", 0.9, by="c", epsilon=e),
    "quantile, smooth": lambda e: stats.Quantile("x", 0.9, method="smooth", epsilon=e),
    "quantile, capped": lambda e: stats.Quantile("x", 0.9, rank_within=10, max_epsilon=e),
    "median": lambda e: stats.Median("x", epsilon=e),
    "median within a value": lambda e: stats.Median("x", within=2, max_epsilon=e),
    "quantiles": lambda e: stats.Quantiles("x", [0.1, 0.9], epsilon=e),
    "quantiles, climbing": lambda e: stats.Quantiles("x", [0.1, 0.9], within=2, max_epsilon=e),
    "most common": lambda e: stats.MostCommon("c", epsilon=e),
    "most common by": lambda e: stats.MostCommon("c", by="d", epsilon=e),
    "most common, exponential": lambda e: stats.MostCommon("c", method="exponential", epsilon=e),
    "top k": lambda e: stats.TopK("c", 2, epsilon=e),
    "bounds": lambda e: stats.ApproximateBounds("x", epsilon=e),
    "private keys": lambda e: stats.PrivateKeys("c", epsilon=e, delta=1e-6),
    "count by private keys": lambda e: stats.CountByPrivateKeys("c", epsilon=e, delta=1e-6),
    "sum by private keys": lambda e: stats.Sum("x", by=stats.PrivateKeys("c", epsilon=e, delta=1e-6), epsilon=e),
    "summary": lambda e: stats.Summary(["x", "y"], epsilon=e),
    "summary, climbing": lambda e: stats.Summary(["x", "y"], within="30%", max_epsilon=e),
}
"""Questions about a table of any adjacency, except that private keys need add-remove."""

TESTS: dict[str, Build] = {
    "binomial test": lambda e: hypothesis.BinomialTest("c", equals="a", null=0.3, epsilon=e),
    "goodness of fit": lambda e: hypothesis.GoodnessOfFitTest("c", [0.2, 0.3, 0.5], epsilon=e),
    "independence": lambda e: hypothesis.IndependenceTest("c", "d", epsilon=e),
    "several means": lambda e: hypothesis.AnovaTest("x", by="c", epsilon=e),
    "two means": lambda e: hypothesis.MeanDifferenceTest("x", by="d", groups=("u", "v"), epsilon=e),
    "rank sum": lambda e: hypothesis.MannWhitneyTest("x", by="d", groups=("u", "v"), epsilon=e),
    "several rank sums": lambda e: hypothesis.KruskalWallisTest("x", by="c", epsilon=e),
    "signed ranks": lambda e: hypothesis.SignedRankTest("x", "y", epsilon=e),
    "rank correlation": lambda e: hypothesis.CorrelationTest("x", "y", epsilon=e),
    "linear correlation": lambda e: hypothesis.LinearCorrelationTest("x", "y", epsilon=e),
    "split test of means": lambda e: hypothesis.SplitTest("means", "x", "c", epsilon=e),
    "split test of independence": lambda e: hypothesis.SplitTest("independence", "c", "d", epsilon=e),
    "split test of correlation": lambda e: hypothesis.SplitTest("correlation", "x", "y", epsilon=e),
}
"""Hypothesis tests; the correlations need a public number of rows."""


def described() -> dict[str, Any]:
    """How the tables of these questions are described."""
    return {"name": "table", "bounds": {"x": (0, 10), "y": (0, 10)}, "categories": CATEGORIES}
