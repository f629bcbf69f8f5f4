"""A looser target, a larger cap, more rows or a larger failure probability never costs more, for every linear model."""

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import expost
from expost import BudgetExceeded
from expost.core import PlanContext
from expost.data.row_source import read_rows

LONG = os.environ.get("EXPOST_LONG") == "1"
SEEDS = 15 if LONG else 3
NOISE = 1.12  # medians of a few seeds differ by this much
ROWS = 20_000
BOX = [(0.0, 10.0)] * 6


def table(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (rows, 6))
    return x, np.clip((x / 10 - 0.5) @ [0.8, -0.5, 0.3, 0.6, -0.2, 0.1] + 0.1 * rng.normal(size=rows), -1, 1)


X, Y = table()
LABEL = (Y > 0).astype(int)

Make = Callable[..., Any]
REGRESSIONS: dict[str, Make] = {
    "ridge": lambda **terms: expost.Ridge(**terms),
    "ridge, small penalty": lambda **terms: expost.Ridge(regularization=5e-5, **terms),
    "ridge, added rows": lambda **terms: expost.Ridge(rows=terms.pop("declared", ROWS), **terms),
    "ridge, counted": lambda **terms: expost.Ridge(adjacency="add-remove", **terms),
    "certificate": lambda **terms: expost.Ridge(method="certificate", **terms),
    "output": lambda **terms: expost.Ridge(method="output", regularization=1.0, **terms),
    "ridge, Euclidean": lambda **terms: expost.Ridge(feature_norm="l2", **terms),
    "ridge, intercept": lambda **terms: expost.Ridge(fit_intercept=True, **terms),
}
CLASSIFIERS: dict[str, Make] = {
    "logistic": lambda **terms: expost.LogisticRegression(classes=(0, 1), **terms),
    "logistic, added rows": lambda **terms: expost.LogisticRegression(
        classes=(0, 1), rows=terms.pop("declared", ROWS), **terms
    ),
    "logistic, Euclidean with delta": lambda **terms: expost.LogisticRegression(
        classes=(0, 1), feature_norm="l2", delta=1e-6, **terms
    ),
    "svm": lambda **terms: expost.HuberSVC(classes=(0, 1), **terms),
    "svm, added rows": lambda **terms: expost.HuberSVC(classes=(0, 1), rows=terms.pop("declared", ROWS), **terms),
}
MODELS = REGRESSIONS | CLASSIFIERS


def price(name: str, *, rows: int = ROWS, **terms: Any) -> float:
    """Return the median bill over a family of seeds."""
    x, y = (X[:rows], Y[:rows]) if rows <= ROWS else table(rows)
    target = y if name in REGRESSIONS else (y > 0).astype(int)
    given = {"max_epsilon": 1000.0, "bounds": BOX} | terms
    given |= {"target_bounds": 1.0} if name in REGRESSIONS else {}
    if "added rows" in name:
        given["declared"] = rows
    fits = [MODELS[name](simulation_seed=seed, **given).fit(x, target) for seed in range(SEEDS)]
    return float(np.median([model.receipt_.epsilon for model in fits]))


def assert_falls(prices: list[float]) -> None:
    assert all(later <= NOISE * before for before, later in pairwise(prices)), prices


@pytest.mark.parametrize("name", MODELS)
def test_a_looser_target_never_costs_more(name: str) -> None:
    assert_falls([price(name, excess_risk=risk) for risk in (0.002, 0.005, 0.01, 0.02, 0.05)])


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"certificate"}))
def test_allowing_more_failures_never_costs_more(name: str) -> None:
    assert_falls(
        [price(name, excess_risk=0.02, failure_probability=each) for each in (1e-5, 1e-4, 2e-4, 0.01, 0.1, 0.3)]
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_larger_cap_never_costs_more(name: str) -> None:
    needed = price(name, excess_risk=0.02)
    assert_falls([price(name, excess_risk=0.02, max_epsilon=each * needed) for each in (2.5, 5, 60, 900)])


@pytest.mark.parametrize("name", MODELS)
def test_more_rows_never_cost_more(name: str) -> None:
    assert_falls([price(name, rows=rows, excess_risk=0.02) for rows in (5000, 10_000, 20_000)])


@pytest.mark.parametrize(
    ("make", "target", "goals"),
    [
        (
            lambda **terms: expost.LogisticRegression(classes=(0, 1), **terms),
            LABEL,
            [("accuracy", each) for each in (0.7, 0.65, 0.6)],
        ),
        (
            lambda **terms: expost.HuberSVC(classes=(0, 1), **terms),
            LABEL,
            [("accuracy", each) for each in (0.7, 0.65, 0.6)],
        ),
        (lambda **terms: expost.Ridge(target_bounds=1.0, **terms), Y, [("rmse", each) for each in (0.2, 0.25, 0.3)]),
    ],
    ids=["logistic", "svm", "ridge"],
)
def test_scores_cost_less_when_looser_and_no_more_under_a_larger_cap(make: Make, target: Any, goals: Any) -> None:
    def bill(goal: tuple[str, float], cap: float) -> float:
        terms = {"regularization": 1e-3, "bounds": BOX, "fit_intercept": True, "max_epsilon": cap}
        models = [make(score=goal, simulation_seed=seed, **terms).fit(X, target) for seed in range(SEEDS)]
        return float(np.median([model.receipt_.epsilon for model in models]))

    assert_falls([bill(goal, 50.0) for goal in goals])
    assert_falls([bill(goals[-1], cap) for cap in (20.0, 50.0, 400.0)])


def test_a_first_tilt_is_paid_only_if_its_check_can_accept() -> None:
    plans = [
        expost.Ridge(
            excess_risk=0.01, bounds=BOX, failure_probability=each, max_epsilon=1000.0, target_bounds=1.0
        )._build_query()
        for each in (0.3, 1e-3, 1e-5, 1e-7)
    ]
    assert all(plan.plan(read_rows(X, Y), PlanContext())._usual._scale > 0 for plan in plans)
    with pytest.raises(BudgetExceeded):
        expost.Ridge(excess_risk=0.01, bounds=BOX, max_epsilon=0.05, target_bounds=1.0).fit(X, Y)
