"""Watching a training changes its noise by a percent, not its price."""

from typing import Any

import numpy as np
import pytest

import expost

PUBLIC: dict[str, Any] = {"rows": 4000, "feature_bound": 3.5, "delta": 1e-6, "steps": 30, "simulation_seed": 4}


@pytest.fixture
def table() -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).normal(size=(4000, 3))
    return rows, rows @ [1.0, -1.0, 0.5]


@pytest.mark.parametrize("solver", ["gradient", "newton"])
def test_a_watched_classifier_tells_its_accuracy_and_loss_at_the_same_price(table: Any, solver: str) -> None:
    rows, line = table
    terms = {"classes": [0, 1], "epsilon": 4.0, "solver": solver, **PUBLIC}
    watched = expost.SGDClassifier(progress=True, **terms).fit(rows, (line > 0).astype(int))
    alone = expost.SGDClassifier(**terms).fit(rows, (line > 0).astype(int))

    assert watched.receipt_.terms["watched"].startswith("accuracy 0.9") and "loss" in watched.receipt_.terms["watched"]
    assert "watched" not in alone.receipt_.terms
    assert watched.receipt_.epsilon == alone.receipt_.epsilon
    assert watched.receipt_.terms["events"] == alone.receipt_.terms["events"]


def test_a_watched_regression_tells_its_error_in_the_units_of_the_target(table: Any) -> None:
    rows, line = table
    model = expost.SGDRegressor(target_bounds=(-60, 60), epsilon=100.0, progress=True, **PUBLIC).fit(rows, 10 * line)

    words = model.receipt_.terms["watched"].split()
    exact = float(np.sqrt(np.mean((model.predict(rows) - 10 * line) ** 2)))
    assert words[0] == "rmse" and abs(float(words[1]) - exact) < 3 * float(words[3]) + 2


def test_a_person_sees_the_reading_while_it_trains(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Screen:
        def __enter__(self) -> "Screen":
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def advance_steps(self, step: int, steps: int, epsilon: Any, news: str) -> None:
            seen.append(news)

    monkeypatch.setattr("expost.models.descent.gradient_model.RichProgress", Screen)
    rows, line = table
    expost.SGDClassifier(classes=[0, 1], score=("accuracy", 0.8), max_epsilon=4.0, progress=True, **PUBLIC).fit(
        rows, (line > 0).astype(int)
    )

    assert all(news.startswith("accuracy ") for news in seen)
    assert "target reached" in seen[-1]
