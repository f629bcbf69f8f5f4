"""Prices of trainings by gradient descent are monotone: asking for less, or allowing more, never costs more.

Noise is drawn by NumPy here: these tests are about prices, and the exact law takes a while for every new scale.
"""

from collections.abc import Sequence
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np
import pytest

import expost
from expost.core import Sealed, Sensitivity, unseal
from expost.noise import BitSource

SEEDS = range(5)
RUNG = 1.25  # noise decides at which phase a training stops: medians may differ by two phases
ROWS = 8000


class QuickStream:
    """Gaussian noise of the variance that a stream of exact noise has."""

    def __init__(self, noise: Fraction, sensitivity: Sensitivity, *, size: int, releases: int, bits: BitSource) -> None:
        self.variance = (float(noise) * float(sensitivity.amount)) ** 2
        self._rng = np.random.default_rng(bits.integer(64))

    def release(self, sealed: Sealed) -> np.ndarray:
        exact = np.asarray(unseal(sealed))
        return exact + np.rint(self._rng.normal(0, self.variance**0.5, exact.shape)).astype(np.int64)


@pytest.fixture(autouse=True)
def _draw_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("trainer", "measured_test"):
        monkeypatch.setattr(f"expost.models.descent.{module}.GaussianStream", QuickStream)


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    features = rng.uniform(-1, 1, (rows, 3))
    return features, features @ [1.0, -0.5, 0.3] + 0.1 * rng.normal(size=rows)


def price(score: tuple[str, float], *, rows: int = ROWS, max_epsilon: float = 2.0, **terms: Any) -> float:
    """Return the median epsilon of a training to a score over a family of seeds; the cap where the score is missed."""
    features, numbers = table(rows)
    settings: dict[str, Any] = {"rows": rows, "bounds": [(-1, 1)] * 3, "max_epsilon": max_epsilon} | terms
    if score[0] == "accuracy":
        kind, target, settings["classes"] = expost.SGDClassifier, (numbers > 0).astype(int), [0, 1]
    else:
        kind, target, settings["target_bounds"] = expost.SGDRegressor, numbers, 2.0
    paid = []
    for seed in SEEDS:
        try:
            paid.append(
                float(kind(score=score, simulation_seed=seed, **settings).fit(features, target).receipt_.epsilon)
            )
        except expost.TargetNotMet:
            paid.append(max_epsilon)
    return median(paid)


def assert_falling(prices: Sequence[float]) -> None:
    assert all(later <= RUNG * before for k, before in enumerate(prices) for later in prices[k:]), prices
    assert prices[-1] <= prices[0], prices


SCORES = {
    "SGDClassifier": [("accuracy", level) for level in (0.9, 0.85, 0.7)],
    "SGDRegressor": [("rmse", level) for level in (0.25, 0.4, 0.6)],
}
WAYS: dict[str, dict[str, Any]] = {"gradient": {}, "newton": {"solver": "newton"}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCORES)
def test_a_looser_score_never_costs_more(name: str, way: str) -> None:
    prices = [price(score, **WAYS[way]) for score in SCORES[name]]

    assert_falling(prices)
    assert prices[-1] < prices[0] < 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCORES)
def test_more_rows_never_cost_more(name: str, way: str) -> None:
    assert_falling([price(SCORES[name][1], rows=rows, **WAYS[way]) for rows in (2000, 4000, 16_000)])


@pytest.mark.parametrize("name", SCORES)
def test_a_larger_failure_probability_never_costs_more(name: str) -> None:
    assert_falling([price(SCORES[name][1], failure_probability=each) for each in (1e-6, 0.01, 0.3)])


@pytest.mark.parametrize("name", SCORES)
def test_a_larger_delta_never_costs_more(name: str) -> None:
    assert_falling([price(SCORES[name][1], delta=each) for each in (1e-9, 1e-6, 1e-4)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCORES)
def test_a_larger_cap_costs_the_same_once_the_score_is_reached(name: str, way: str) -> None:
    free = price(SCORES[name][1], **WAYS[way])

    assert free < 2
    assert [price(SCORES[name][1], max_epsilon=cap, **WAYS[way]) for cap in (3.0, 10.0)] == [free, free]
    assert price(SCORES[name][1], max_epsilon=1.5 * free, **WAYS[way]) <= RUNG * free
