"""Scores by private tests: reached as often as promised, never flattered, and billed for fits and tests."""

import itertools
import math

import numpy as np
import pytest

from expost import BudgetExceeded
from expost.core import Measure, Outcome
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear import tested_score
from expost.models.linear.classifier_fit import grid_labels, known_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.row_loss import LogisticLoss, TruncatedSquare
from expost.models.linear.tested_score import ScoreQuery, TestedFit
from expost.noise import SeededBits


def table(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    return x, np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * rng.normal(size=rows), -1, 1)


def request_for(
    score: tuple[str, float], *, rows: int = 4000, max_epsilon: float = 30.0, validation: int = 0
) -> TestedFit:
    aim = Aim.of(score=score, failure_probability=0.2, max_epsilon=max_epsilon)
    problem = Problem(UnitBall(3), rows, 0.001, aim)
    if score[0] in ("rmse", "r2"):
        return TestedFit(problem, TruncatedSquare(1.0), grid_numbers(1.0), validation=validation)
    return TestedFit(problem, LogisticLoss(), grid_labels((-1.0, 1.0)), validation=validation)


def reached(name: str, goal: float, x: np.ndarray, y: np.ndarray, model) -> bool:
    predicted = model.predict(x)
    match name:
        case "accuracy":
            return np.mean((predicted > 0) == (y > 0)) >= goal
        case "log_loss":
            return np.logaddexp(0, -np.sign(y) * predicted).mean() <= goal
        case "rmse":
            return math.sqrt(np.mean((y - predicted) ** 2)) <= goal
    return 1 - np.mean((y - predicted) ** 2) / y.var() >= goal


SCORES = [("accuracy", 0.85), ("log_loss", 0.5), ("rmse", 0.3), ("r2", 0.5)]


@pytest.mark.parametrize("validation", [0, 4])
@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_score_is_reached_as_often_as_promised(
    score: tuple[str, float], validation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = table()
    labels = y if score[0] in ("rmse", "r2") else np.sign(y)
    request = request_for(score, validation=validation)
    rows, bits = request.measure(read_rows(x, labels)), SeededBits(1)
    deal, tested = tested_score.split_rows, [slice(None)] * 12
    if validation:
        tested.clear()

    def watched(*given):
        parts = deal(*given)
        kept = np.concatenate([features for features, _ in parts[1].read()])
        tested.append(np.isin(x[:, 0], kept[:, 0]))  # no two rows are equal
        return parts

    monkeypatch.setattr(tested_score, "split_rows", watched)

    releases = [request.climb(rows, bits) for _ in range(12)]

    assert all(release.receipt.outcome is Outcome.TESTED for release in releases)
    found = [reached(*score, x[part], labels[part], each.value) for part, each in zip(tested, releases, strict=True)]
    assert np.mean(found) >= 0.8


def test_a_score_out_of_reach_is_almost_never_reported_as_reached() -> None:
    # Labels are coins, so no model gets far beyond one half; the test must not be fooled by its own noise.
    x, _ = table()
    coins = np.random.default_rng(3).choice([-1.0, 1.0], len(x))
    request = request_for(("accuracy", 0.56), max_epsilon=1.0)
    rows, bits = request.measure(read_rows(x, coins)), SeededBits(2)

    outcomes = [request.climb(rows, bits).receipt.outcome for _ in range(40)]

    assert np.mean([outcome is Outcome.TESTED for outcome in outcomes]) <= 0.2 + 3 * math.sqrt(0.16 / 40)


def test_fits_and_test_add_unless_they_read_different_rows() -> None:
    x, y = table()
    for validation in (0, 4):
        request = request_for(("accuracy", 0.85), validation=validation)
        release = request.climb(request.measure(read_rows(x, np.sign(y))), SeededBits(5))
        parts = release.receipt.breakdown
        together = max(parts.values()) if validation else sum(parts.values())

        assert release.receipt.bill.epsilon == together <= release.receipt.promise.epsilon <= 30


def test_a_missed_score_costs_less_than_a_hit_would_have() -> None:
    x, y = table()
    request = request_for(("accuracy", 0.9999), max_epsilon=2.0)

    release = request.climb(request.measure(read_rows(x, np.sign(y))), SeededBits(6))

    assert release.receipt.outcome is Outcome.NOT_MET
    assert release.receipt.bill.epsilon < release.receipt.promise.epsilon


def test_a_cap_below_the_cheapest_fit_is_refused() -> None:
    with pytest.raises(BudgetExceeded):
        request_for(("accuracy", 0.9), rows=10, max_epsilon=0.1)


@pytest.mark.parametrize("name", ["accuracy", "log_loss", "rmse", "r2"])
def test_one_row_moves_a_query_by_no_more_than_declared(name: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-0.3, 0.3, (7, 3)), rng.uniform(-1, 1, 7)
    theta = np.array([2.0, -3.0, 1.0])
    measure = {"accuracy": Measure.ACCURACY, "log_loss": Measure.LOG_LOSS, "rmse": Measure.RMSE, "r2": Measure.R2}[name]
    query = ScoreQuery(measure, 0.3, 8, radius=4.0)
    signed = name in ("accuracy", "log_loss")

    def exact(row: np.ndarray, label: float) -> int:
        features = np.vstack([x, row])
        targets = np.append(np.sign(y) if signed else y, label)
        rows = UnitRows(read_rows(features, targets), UnitBall(3), (lambda t: t) if signed else grid_numbers(1.0))
        if measure is Measure.R2:
            return query._sum_explained(rows, theta)
        return sum(query._sum_chunk(f @ (theta * 2.0**-GRID_BITS), t) for f, t in rows.chunks())

    corners = [(sign * unit, label) for unit in np.eye(3) for sign in (-1, 1) for label in (-1.0, 1.0)]
    values = [exact(row, label) for row, label in corners]

    moved = max(abs(a - b) for a, b in itertools.combinations(values, 2))
    assert 0 < moved <= query.sensitivity.amount
    if name != "r2":
        assert moved >= 0.7 * query.sensitivity.amount


def test_a_query_reaches_its_threshold_exactly_when_the_score_is_reached() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-0.3, 0.3, (50, 3)), rng.uniform(-1, 1, 50)
    rows = UnitRows(read_rows(x, y), UnitBall(3), grid_numbers(1.0))
    for _ in range(20):
        theta = rng.normal(size=3)
        error = np.mean((np.clip(x @ theta, -1, 1) - y) ** 2)
        score = 1 - error / y.var()
        for goal in (score - 0.01, score + 0.01):
            explained = ScoreQuery(Measure.R2, goal, 50)._sum_explained(rows, theta)
            assert (explained >= 0) == (score >= goal)


@pytest.mark.parametrize("validation", [0, 5])
def test_a_label_that_is_no_class_is_never_predicted_right(validation: int) -> None:
    x, y = table()
    aim = Aim.of(score=("accuracy", 0.6), failure_probability=0.2, max_epsilon=30.0)
    problem, pair = Problem(UnitBall(3), 4000, 0.001, aim), (-1.0, 1.0)
    labels = np.where(np.arange(4000) % 10 < 5, 7.0, np.sign(y))  # half of them, in both parts

    def met(target: np.ndarray) -> bool:
        fit = TestedFit(
            problem, LogisticLoss(), grid_labels(pair), validation=validation, known_target=known_labels(pair)
        )
        return fit.climb(fit.measure(read_rows(x, target)), SeededBits(3)).receipt.outcome.met

    assert met(np.sign(y))
    assert not met(labels)
