"""Ridge by a free certificate: targets hold as often as promised, and the bill is the rung."""

import numpy as np
import pytest

from expost import BudgetExceeded
from expost.core import Outcome
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_moments import CertifiedRidge
from expost.noise import SeededBits

PENALTY = 0.02


def table(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    y = np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * rng.normal(size=rows), -1, 1)
    return x, y


def request_for(
    x: np.ndarray, *, penalty: float = PENALTY, rungs: int | None = None, **terms: object
) -> CertifiedRidge:
    aim = Aim.of(failure_probability=0.2, max_epsilon=terms.pop("max_epsilon", 10.0), **terms)
    return CertifiedRidge(Problem(UnitBall(x.shape[1]), len(x), penalty, aim), rungs=rungs)


def excess(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    gram = x.T @ x / len(y) + PENALTY * np.eye(x.shape[1])
    away = theta - np.linalg.solve(gram, x.T @ y / len(y))
    return float(away @ gram @ away) / 2


def test_the_excess_risk_meets_the_target_as_often_as_promised() -> None:
    x, y = table()
    request = request_for(x, excess_risk=0.01)
    sealed, bits = request.measure(read_rows(x, y)), SeededBits(1)

    releases = [request.climb(sealed, bits) for _ in range(60)]

    missed = np.mean([excess(x, y, release.value.coefficients) > 0.01 for release in releases])
    assert missed <= 0.2  # the certificate is conservative: in fact none
    assert all(release.receipt.outcome is Outcome.CERTIFIED for release in releases)


@pytest.mark.parametrize(("name", "goal"), [("rmse", 0.15), ("r2", 0.5)])
def test_scores_are_reached_as_often_as_promised(name: str, goal: float) -> None:
    x, y = table()
    request = request_for(x, penalty=1e-6, score=(name, goal), max_epsilon=60.0)
    sealed, bits = request.measure(read_rows(x, y)), SeededBits(2)

    releases = [request.climb(sealed, bits) for _ in range(30)]

    errors = np.array([np.mean((y - x @ release.value.coefficients) ** 2) for release in releases])
    reached = np.sqrt(errors) <= goal if name == "rmse" else 1 - errors / y.var() >= goal
    assert all(release.receipt.outcome is Outcome.CERTIFIED for release in releases)
    assert reached.mean() >= 0.8


def test_the_bill_is_the_rung_and_the_steps_end_there() -> None:
    x, y = table()
    request = request_for(x, excess_risk=0.01)

    release = request.climb(request.measure(read_rows(x, y)), SeededBits(3))

    receipt = release.receipt
    assert receipt.bill.epsilon == request._ladder[receipt.rung] == release.climb[-1].epsilon
    assert receipt.bill.epsilon <= receipt.promise.epsilon <= 10
    assert release.climb[-1].value <= 0.01 < release.climb[-2].value


def test_a_ladder_of_a_thousand_rungs_stops_no_later_than_a_landing() -> None:
    x, y = table()
    request = request_for(x, excess_risk=0.01, rungs=1000)

    release = request.climb(request.measure(read_rows(x, y)), SeededBits(3))

    assert release.receipt.rungs == 1000
    assert release.receipt.rung in request._landings
    assert release.receipt.outcome is Outcome.CERTIFIED


def test_a_cap_that_cannot_be_enough_is_refused_before_the_data_is_touched() -> None:
    x, _ = table()

    with pytest.raises(BudgetExceeded):
        request_for(x, excess_risk=1e-6, max_epsilon=0.01)


def test_a_cap_that_is_not_enough_gives_the_best_private_model() -> None:
    x, y = table()
    request = request_for(x, score=("r2", 0.99), max_epsilon=1.0)

    release = request.climb(request.measure(read_rows(x, y)), SeededBits(4))

    assert release.receipt.outcome is Outcome.NOT_MET
    assert release.receipt.bill.epsilon == 1
    assert np.isfinite(release.value.coefficients).all()


def test_epsilon_first_reports_the_excess_risk_it_certifies() -> None:
    x, y = table()
    request = request_for(x, epsilon=2.0)
    sealed, bits = request.measure(read_rows(x, y)), SeededBits(5)

    releases = [request.climb(sealed, bits) for _ in range(100)]

    assert all(release.receipt.outcome is Outcome.FIXED for release in releases)
    assert np.mean([excess(x, y, r.value.coefficients) > r.receipt.achieved for r in releases]) <= 0.2
