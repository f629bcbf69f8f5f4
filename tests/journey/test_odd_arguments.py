"""Whatever is passed where: an answer or the house's refusal, never another library's error, and nothing held."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from expost import Dataset, Session, Unit, approx, epsilon
from expost.core import ExpostError, TargetNotMet
from expost.core.errors import EngineFailed
from expost.stats import hypothesis

ODD: list[Any] = [None, 0, -1, 1, 2, 1e-40, 1e12, 1e40, float("nan"), float("inf"), True, 10**30, 1.5, object()]
ODD += [
    "1",
    "x",
    "",
    b"x",
    [],
    {},
    (1, 2),
    [1, 2],
    {"x": None},
    {"x": (1,)},
    {"x": "ab"},
    {"x": [1, "a"]},
    {"x": [None]},
]
ODD += [{"x": [[1]]}, {"q": (0, 1)}, {1: 2}, {"x": (float("nan"), 1)}, {"x": (5, 1)}, {"x": [1, 1]}, {"x": {1: 2}}]

TABLE = pa.table({"x": [1, 2, 3], "s": ["a", "b", "c"]})
PEOPLE = Dataset(TABLE, name="t", bounds={"x": (0, 10)}, categories={"s": ["a", "b"]})
VISITS = Dataset(
    pa.table({"id": [1], "when": pa.array([0], pa.timestamp("us"))}),
    unit=Unit.of("id", per="week", time="when"),
    max_rows_per_unit=1,
)


def session() -> Session:
    return Session(PEOPLE, approx(1, 1e-3))


def asked(name: str, *subject: str) -> Any:
    """A question by its name; the first terms are its subject."""

    def ask(**terms: Any) -> Any:
        about = [terms.pop(each) for each in subject]
        return getattr(session(), name)(*about, **terms)

    return ask


CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Dataset": (
        lambda **terms: Dataset(TABLE, **terms),
        {
            "name": "t",
            "unit": "row",
            "max_rows_per_unit": None,
            "max_groups_per_unit": None,
            "bounds": {"x": (0, 1)},
            "categories": {"s": ["a"]},
            "adjacency": "add-remove",
            "rows": None,
            "types": None,
        },
    ),
    "Dataset of ids": (
        lambda **terms: Dataset(TABLE, **terms),
        {"unit": "x", "max_rows_per_unit": 1, "max_groups_per_unit": 1},
    ),
    "where": (lambda condition: PEOPLE.where(condition), {"condition": "x > 1"}),
    "derive": (lambda formula: PEOPLE.derive(z=formula), {"formula": "x + 1"}),
    "join": (
        lambda table, on, prefix: PEOPLE.join(table, on=on, prefix=prefix),
        {"table": pa.table({"s": ["a"], "v": [1]}), "on": "s", "prefix": "p_"},
    ),
    "within_window": (lambda start: VISITS.within_window(start), {"start": "2013-01-01"}),
    "axis": (lambda column, values: PEOPLE.axis(column, values), {"column": "s", "values": ["a"]}),
    "Session": (
        lambda **terms: Session(PEOPLE, **terms),
        {"budget": epsilon(1), "ledger": None, "analyst": None, "analyst_budget": None},
    ),
    "part": (lambda column, value: session().part(column, value), {"column": "s", "value": "a"}),
    "parts": (lambda column: session().parts(column), {"column": "s"}),
    "window": (
        lambda first, last: Session(VISITS, epsilon(1)).window(first, last),
        {"first": "2013-01-01", "last": "2013-02-01"},
    ),
    "count": (asked("count"), {"epsilon": 0.1, "confidence": 0.9, "where": None, "by": None}),
    "count within": (asked("count"), {"within": 10, "confidence": 0.9, "max_epsilon": 1}),
    "mean": (asked("mean", "column"), {"column": "x", "epsilon": 0.1, "bounds": (0, 1), "by": "s"}),
    "quantile": (asked("quantile", "column", "share"), {"column": "x", "share": 0.5, "epsilon": 0.1}),
    "quantiles": (asked("quantiles", "column", "shares"), {"column": "x", "shares": [0.5], "epsilon": 0.1}),
    "histogram": (asked("histogram", "column"), {"column": "x", "edges": [0, 1, 2], "epsilon": 0.1}),
    "top k": (asked("top_k", "column", "k"), {"column": "s", "k": 1, "epsilon": 0.1}),
    "most common": (asked("most_common", "column"), {"column": "s", "method": "exponential", "epsilon": 0.1}),
    "bounds": (
        asked("bounds", "column"),
        {"column": "x", "smallest": 1.0, "largest": 100.0, "confidence": 0.9, "epsilon": 0.1},
    ),
    "private keys": (asked("private_keys", "column"), {"column": "s", "epsilon": 0.1, "delta": 1e-6, "where": None}),
    "summary": (asked("summary", "columns"), {"columns": ["x"], "epsilon": 0.1, "bounds": None, "by": None}),
    "covariance": (asked("covariance", "columns"), {"columns": ["x", "x"], "epsilon": 0.1}),
    "contingency table": (asked("contingency_table", "columns"), {"columns": ["s"], "epsilon": 0.1}),
}

PAIRS = {"x": [float(k % 7) for k in range(60)], "y": [float(k % 5) for k in range(60)]}
SAMPLE = Dataset(
    pa.table(PAIRS | {"c": ["a", "b", "c"] * 20, "d": ["u", "v"] * 30}),
    name="sample",
    bounds={"x": (0, 10), "y": (0, 10)},
    categories={"c": ["a", "b", "c"], "d": ["u", "v"]},
    adjacency="replace-one",
    rows=60,
)


def sampled(kind: Any) -> Any:
    return lambda **terms: Session(SAMPLE, epsilon(100)).ask(kind(**terms))


MEANS = {"value": "x", "by": "d", "groups": ("u", "v")}
CALLS |= {
    "binomial test": (
        sampled(hypothesis.BinomialTest),
        {"column": "c", "equals": "a", "null": 0.3, "alternative": "less", "epsilon": 1, "confidence": 0.9},
    ),
    "goodness of fit": (
        sampled(hypothesis.GoodnessOfFitTest),
        {"column": "c", "chances": [0.2, 0.3, 0.5], "epsilon": 1},
    ),
    "independence": (sampled(hypothesis.IndependenceTest), {"first": "c", "second": "d", "epsilon": 1}),
    "several means": (sampled(hypothesis.AnovaTest), {"value": "x", "by": "c", "epsilon": 1}),
    "several means, power": (
        sampled(hypothesis.AnovaTest),
        {"value": "x", "by": "c", "power": 0.5, "effect": (0, 3, 6), "deviation": 2},
    ),
    "two means": (sampled(hypothesis.MeanDifferenceTest), MEANS | {"epsilon": 1}),
    "two means, power": (sampled(hypothesis.MeanDifferenceTest), MEANS | {"power": 0.5, "effect": 5, "deviation": 2}),
    "rank sum": (sampled(hypothesis.MannWhitneyTest), MEANS | {"epsilon": 1, "expected_sizes": (30, 30)}),
    "rank sum, power": (
        sampled(hypothesis.MannWhitneyTest),
        MEANS | {"power": 0.5, "effect": 1.5, "expected_sizes": (30, 30), "confidence": 0.9},
    ),
    "several rank sums": (sampled(hypothesis.KruskalWallisTest), {"value": "x", "by": "c", "epsilon": 1}),
    "several rank sums, power": (
        sampled(hypothesis.KruskalWallisTest),
        {"value": "x", "by": "c", "power": 0.5, "effect": (0, 1, 2), "expected_sizes": (20, 20, 20)},
    ),
    "signed ranks, power": (
        sampled(hypothesis.SignedRankTest),
        {"first": "x", "second": "y", "power": 0.5, "effect": 1.5, "alternative": "less", "expected_rows": 60},
    ),
    "rank correlation": (sampled(hypothesis.CorrelationTest), {"first": "x", "second": "y", "epsilon": 1}),
    "rank correlation, power": (
        sampled(hypothesis.CorrelationTest),
        {"first": "x", "second": "y", "power": 0.5, "effect": 0.8},
    ),
    "linear correlation": (sampled(hypothesis.LinearCorrelationTest), {"first": "x", "second": "y", "epsilon": 1}),
    "linear correlation, power": (
        sampled(hypothesis.LinearCorrelationTest),
        {"first": "x", "second": "y", "power": 0.3, "effect": 0.9, "deviations": (2, 2)},
    ),
    "split test": (
        sampled(hypothesis.SplitTest),
        {"relation": "means", "first": "x", "second": "c", "epsilon": 1, "parts": None},
    ),
    "two samples": (
        hypothesis.mean_difference_test,
        {"first": PAIRS["x"], "second": PAIRS["y"], "bounds": (0, 10), "epsilon": 1},
    ),
    "two lists": (hypothesis.correlation_test, {**PAIRS, "epsilon": 1}),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_argument_ends_in_an_error_that_is_not_ours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a text may name a ledger
    call, usual = CALLS[name]
    with contextlib.suppress(TargetNotMet):
        call(**usual)
    for argument in usual:
        for value in ODD:
            try:
                call(**usual | {argument: value})
            except EngineFailed:
                pytest.fail(f"{argument}={value!r} was refused after it was held")
            except ExpostError as refusal:
                assert str(refusal).endswith((".", "?", "^")), (argument, value)  # a mark at the place in a text
