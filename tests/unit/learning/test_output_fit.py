"""Output perturbation: the noise has the priced scale, and the bound holds for any data."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost import InvalidRequest
from expost.accuracy.output_certificate import curved_noise_bound
from expost.core import Norm
from expost.data.matrix import UnitBall, grid_numbers, read_rows
from expost.learning.aim import Aim
from expost.learning.classification import grid_labels
from expost.learning.losses import HuberHinge, Logistic, TruncatedSquare
from expost.learning.output_fit import OutputFit
from expost.learning.problem import Problem
from expost.noise import SeededBits


def table(rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    return x, np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * rng.normal(size=rows), -1, 1)


def request_for(loss, *, norm: Norm = Norm.L1, **terms) -> OutputFit:
    aim = Aim.of(failure_probability=0.2, max_epsilon=1e6, **terms)
    grid = grid_numbers(1.0) if isinstance(loss, TruncatedSquare) else grid_labels((-1.0, 1.0))
    return OutputFit(Problem(UnitBall(3, norm), 2000, 0.05, aim), loss, grid)


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), TruncatedSquare(1.0)], ids=repr)
def test_the_excess_risk_meets_the_target_as_often_as_promised(loss, norm: Norm) -> None:
    x, y = table()
    y = y if isinstance(loss, TruncatedSquare) else np.sign(y)
    plain = TruncatedSquare(1e9) if isinstance(loss, TruncatedSquare) else loss
    request = request_for(loss, norm=norm, excess_risk=0.01)
    rows, bits = request.measure(read_rows(x, y)), SeededBits(3)

    def value(theta: np.ndarray) -> float:
        return float(plain.value(x @ theta, y).mean() + 0.025 * theta @ theta)

    best = request_for(loss, norm=norm, epsilon=1e5)
    lowest = value(best.climb(best.measure(read_rows(x, y)), SeededBits(0)).value.coefficients)
    missed = [value(request.climb(rows, bits).value.coefficients) - lowest > 0.01 for _ in range(60)]

    assert np.mean(missed) <= 0.2


@pytest.mark.parametrize("loss", [Logistic(), TruncatedSquare(1.0)], ids=repr)
def test_one_row_moves_the_minimum_by_no_more_than_declared(loss) -> None:
    x, y = table()
    y = y if isinstance(loss, TruncatedSquare) else np.sign(y)
    request = request_for(loss, epsilon=1e5)
    others = [(sign * unit, label) for unit in np.eye(3) for sign in (-1, 1) for label in (-1.0, 1.0)]

    def minimum(row: np.ndarray, label: float) -> np.ndarray:
        rows = request.measure(read_rows(np.vstack([x[1:], row]), np.append(y[1:], label)))
        return request.climb(rows, SeededBits(0)).value.coefficients

    minima = [minimum(row, label) for row, label in others]

    furthest = max(np.abs(a - b).sum() for a in minima for b in minima)
    assert 0 < furthest <= request._sensitivity


def test_the_noise_has_the_priced_scale() -> None:
    x, y = table()
    request = request_for(Logistic(), epsilon=1.0)
    rows, bits = request.measure(read_rows(x, np.sign(y))), SeededBits(5)

    values = np.array([request.climb(rows, bits).value.coefficients for _ in range(600)])

    noise = np.abs(values - np.median(values, axis=0))
    ratio = noise.mean() / request._sensitivity
    assert abs(ratio - 1) < 4 / math.sqrt(noise.size)  # 9.4 %: a scale wrong by 10 % is noticed


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.0, 0.0)])
def test_the_bound_on_curved_noise_covers_all_weights(weights: tuple[float, ...]) -> None:
    noise = np.random.default_rng(0).laplace(size=(100_000, 3))
    sums = ((1 + 20.0 * np.array(weights)) * noise**2).sum(axis=1)

    assert (sums > curved_noise_bound(3, 20.0, 0.1)).mean() <= 0.1
    assert (sums > 0.4 * curved_noise_bound(3, 20.0, 0.1)).mean() > (0.1 if weights[0] == 1 else 0)


def test_scores_are_not_for_output_perturbation() -> None:
    with pytest.raises(InvalidRequest):
        request_for(Logistic(), score=("accuracy", 0.9))


def test_the_bill_is_known_before_the_run() -> None:
    request = request_for(Logistic(), excess_risk=0.01)
    x, y = table()

    release = request.climb(request.measure(read_rows(x, np.sign(y))), SeededBits(1))

    assert release.receipt.bill == request.worst_case
    assert release.receipt.achieved == pytest.approx(0.01, rel=1e-5)
    assert release.receipt.breakdown["testing"] == Fraction(0)


def test_a_minimum_close_to_zero_is_solved_as_exactly_as_any_other() -> None:
    x, _ = table()
    y = 1e-3 * x[:, 0]
    request = request_for(TruncatedSquare(1.0), epsilon=1e6)

    released = request.climb(request.measure(read_rows(x, y)), SeededBits(4)).value.coefficients

    exact = np.linalg.solve(x.T @ x / len(y) + 0.05 * np.eye(3), x.T @ y / len(y))
    assert np.abs(exact).max() > 1e-4
    assert np.allclose(released, exact, atol=2e-5)
