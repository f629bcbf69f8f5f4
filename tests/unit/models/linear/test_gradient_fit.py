"""The gradient test accepts what is good enough, almost never what is not, and bills test and noise."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from expost import BudgetExceeded, InvalidRequest
from expost.accuracy.paper2017 import Task
from expost.core import Outcome
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall, UnitRows, grid_numbers
from expost.models.linear.classifier_fit import grid_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.output_perturbation import GradientFit
from expost.models.linear.paper_fit import NoiseReduction, PaperFit
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, TruncatedSquare
from expost.noise import SeededBits

LOSSES = [LogisticLoss(), HuberHinge(0.5), TruncatedSquare(1.0)]
SIGNS = grid_labels((-1.0, 1.0))


def table(rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(4), rows) * np.sign(rng.normal(size=(rows, 4)))
    return x, np.clip(x @ np.array([1.5, -1.0, 0.3, 0.0]) + 0.1 * rng.normal(size=rows), -1, 1)


def problem_for(excess_risk: float, rows: int = 3000, max_epsilon: float = 200.0) -> Problem:
    aim = Aim.of(excess_risk=excess_risk, failure_probability=0.1, max_epsilon=max_epsilon)
    return Problem(UnitBall(4), rows, 0.02, aim)


def request_for(loss, **terms) -> GradientFit:
    grid = grid_numbers(1.0) if isinstance(loss, TruncatedSquare) else SIGNS
    return GradientFit(problem_for(**terms), loss, grid)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_excess_risk_meets_the_target_as_often_as_promised(loss) -> None:
    x, y = table()
    y = y if isinstance(loss, TruncatedSquare) else np.sign(y)
    plain = TruncatedSquare(1e9) if isinstance(loss, TruncatedSquare) else loss
    request, exact = request_for(loss, excess_risk=0.02), request_for(loss, excess_risk=1e-6, max_epsilon=1e9)

    def value(theta: np.ndarray) -> float:
        return float(plain.value_at(x @ theta, y).mean() + 0.01 * theta @ theta)

    rows, bits = request.measure(read_rows(x, y)), SeededBits(3)
    lowest = value(exact.climb(exact.measure(read_rows(x, y)), SeededBits(0)).value.coefficients)
    releases = [request.climb(rows, bits) for _ in range(15)]

    assert all(release.receipt.outcome is Outcome.TESTED for release in releases)
    assert np.mean([value(release.value.coefficients) - lowest <= 0.02 for release in releases]) >= 0.9
    assert all(release.receipt.bill.within(request.worst_case) for release in releases)
    assert min(release.receipt.epsilon for release in releases) < 0.3 * float(request.worst_case.epsilon)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_one_row_moves_a_query_by_no_more_than_declared(loss) -> None:
    x, y = table(200)
    y = y if isinstance(loss, TruncatedSquare) else np.sign(y)
    request = request_for(loss, excess_risk=0.02, rows=200)
    scale = 2.0**-20 if isinstance(loss, TruncatedSquare) else 1.0
    rng = np.random.default_rng(1)
    corners = [(sign * unit, label) for unit in np.eye(4) for sign in (-1, 1) for label in (-1.0, 1.0)]

    def lengths(row: np.ndarray, label: float, theta: np.ndarray) -> int:
        source = read_rows(np.vstack([x[1:], row]), np.append(y[1:], label))
        features, target = next(iter(UnitRows(source, UnitBall(4), request._grid_target).chunks()))
        slopes = request._loss.slope_at(features @ theta * 2.0**-20, target * scale)
        return math.ceil(np.linalg.norm(slopes @ features * 2.0**-20 / 200 + 0.02 * theta) / request._step)

    furthest = 0
    for _ in range(20):
        theta = rng.normal(size=4)
        theta *= request._minimum.radius * rng.uniform() / np.linalg.norm(theta)
        found = [lengths(row, label, theta) for row, label in corners]
        furthest = max(furthest, max(found) - min(found))

    assert furthest <= request._rule.sensitivity.amount
    assert furthest > 0.3 * request._rule.sensitivity.amount


def test_a_gradient_that_is_too_long_is_almost_never_accepted() -> None:
    request = request_for(LogisticLoss(), excess_risk=0.02)
    rule, allowed = request._rule, math.floor(request._allowed / request._step)

    answers, _ = rule.simulate([-allowed - 1] * 40, runs=4000, bits=SeededBits(1))

    accepted = np.mean((answers == 1).any(axis=1))
    assert accepted <= 0.1
    # The margin is what keeps it there: without half of it, bad models would pass far too often.
    looser = replace(rule, threshold=rule.threshold - (rule.threshold + allowed) // 2)
    answers, _ = looser.simulate([-allowed - 1] * 40, runs=4000, bits=SeededBits(2))
    assert np.mean((answers == 1).any(axis=1)) > 0.2


def test_a_gradient_of_half_the_length_is_nearly_always_accepted() -> None:
    request = request_for(LogisticLoss(), excess_risk=0.02)
    half = math.floor(request._allowed / request._step / 2)

    answers, _ = request._rule.simulate([-half], runs=4000, bits=SeededBits(1))

    assert np.mean(answers[:, 0] == 1) >= 0.88


def test_the_test_costs_a_fraction_of_the_papers() -> None:
    problem = replace(problem_for(0.02), ball=UnitBall(4))
    paper = NoiseReduction(PaperFit(problem_for(0.02, max_epsilon=1e4), Task.LOGISTIC_OUTPUT, SIGNS))

    ours = GradientFit(problem, LogisticLoss(), SIGNS)._rule.guarantee.epsilon

    assert ours < paper._test_epsilon / 20


def test_data_without_structure_stop_on_an_early_rung_and_cost_little() -> None:
    x, _ = table()
    coins = np.random.default_rng(2).choice([-1.0, 1.0], len(x))
    request = request_for(LogisticLoss(), excess_risk=0.05)

    release = request.climb(request.measure(read_rows(x, coins)), SeededBits(1))

    assert release.receipt.outcome is Outcome.TESTED
    assert release.receipt.bill.epsilon == sum(release.receipt.breakdown.values(), Fraction(0))


def test_a_cap_below_the_test_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(BudgetExceeded):
        request_for(LogisticLoss(), excess_risk=0.001, max_epsilon=0.01)


def test_only_an_excess_risk_can_be_tested_for() -> None:
    aim = Aim.of(epsilon=1.0, failure_probability=0.1, max_epsilon=1)
    with pytest.raises(InvalidRequest, match="excess risk"):
        GradientFit(Problem(UnitBall(4), 100, 0.02, aim), LogisticLoss(), SIGNS)


def test_a_cap_that_leaves_too_much_noise_ends_without_a_model_that_passed() -> None:
    x, y = table()
    request = request_for(LogisticLoss(), excess_risk=0.001, max_epsilon=8.0)

    release = request.climb(request.measure(read_rows(x, np.sign(y))), SeededBits(5))

    assert release.receipt.epsilon <= 8.0
    if release.receipt.outcome is Outcome.NOT_MET:
        assert release.receipt.breakdown["testing"] == request._rule.epsilon_threshold
