"""Prices of ``Classifier`` and ``Regressor`` are monotone: asking for less, or allowing more, never costs more.

Each price is the median of one family of seeds. Noise decides at which rung a training stops, so neighbouring points may
differ by one rung against the law, and no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import pytest

import expost

SEEDS = range(3)
RUNG = 1.7  # the ratio of two neighbouring prices is below it
CLASSIFIER = {"columns": {"age": (18, 80), "job": ["a", "b"], "rich": ["no", "yes"]}}
REGRESSOR = {"columns": {"age": (18, 80), "job": ["a", "b"], "pay": (0, 120)}}


def table(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(77)
    age, job = rng.uniform(18, 80, rows), rng.choice(["a", "b"], rows)
    pay = age + 20 * (job == "b") + rng.normal(0, 6, rows)
    return {"age": age, "job": job, "pay": pay, "rich": np.where(pay > 55, "yes", "no")}


def price(score: tuple[str, float], rows: int = 4_000, cap: float = 1.0, **terms: Any) -> float:
    """Return the median epsilon of a training to a score; the cap if the score is missed."""
    kind, target = (expost.Classifier, "rich") if score[0] in ("accuracy", "log_loss") else (expost.Regressor, "pay")
    settings = CLASSIFIER if target == "rich" else REGRESSOR
    paid = []
    for seed in SEEDS:
        model = kind(score=score, max_epsilon=cap, simulation_seed=seed, **settings, **terms)
        try:
            paid.append(float(model.fit(table(rows), target=target).receipt_.epsilon))
        except expost.TargetNotMet:
            paid.append(cap)
    return median(paid)


def assert_falling(prices: Sequence[float]) -> None:
    """Fail unless no price is more than a rung above one before it, and the last is not above the first."""
    assert all(later <= RUNG * earlier for k, earlier in enumerate(prices) for later in prices[k:]), prices
    assert prices[-1] <= prices[0], prices


@pytest.mark.parametrize(
    ("measure", "levels"),
    [
        ("accuracy", [0.9, 0.87, 0.83, 0.7]),
        ("log_loss", [0.35, 0.45, 0.6]),
        ("r2", [0.8, 0.7, 0.5]),
        ("rmse", [10, 13, 20]),
    ],
)
def test_a_looser_score_never_costs_more(measure: str, levels: list[float]) -> None:
    prices = [price((measure, level)) for level in levels]

    assert_falling(prices)
    assert prices[-1] < prices[0]  # the levels differ enough for a price that follows them


@pytest.mark.parametrize("score", [("accuracy", 0.87), ("r2", 0.6)])
def test_more_rows_never_cost_more(score: tuple[str, float]) -> None:
    assert_falling([price(score, rows) for rows in (1_000, 3_000, 9_000)])


@pytest.mark.parametrize("score", [("accuracy", 0.87), ("r2", 0.6)])
def test_a_larger_cap_costs_no_more_once_the_score_is_reached(score: tuple[str, float]) -> None:
    free = price(score, cap=2.0)

    assert free < 2.0
    assert all(price(score, cap=cap) <= RUNG * free for cap in (1.05 * free, 2 * free, 1.0))
    assert price(score, cap=free / 3) <= free / 3


@pytest.mark.parametrize("score", [("accuracy", 0.87), ("r2", 0.6)])
def test_a_larger_failure_probability_never_costs_more(score: tuple[str, float]) -> None:
    assert_falling([price(score, failure_probability=failure) for failure in (1e-6, 0.01, 0.3)])
