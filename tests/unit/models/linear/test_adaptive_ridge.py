"""A penalty chosen by the noise: small where the data is curved, enough where it is flat; billed in zCDP."""

from fractions import Fraction

import numpy as np
import pytest

import expost
from expost.accounting.concentrated import ConcentratedTotal
from expost.core import Norm, Outcome, unseal
from expost.data.row_source import read_rows
from expost.data.second_moment import measure_least_curvature
from expost.data.unit_ball import UnitBall, UnitRows, grid_numbers
from expost.models import Ridge
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_moments import AdaptiveRidge
from expost.noise import SeededBits

DELTA = Fraction(1, 10**6)
TRUTH = np.array([0.7, -0.5, 0.2])


def table(rows: int = 4000, *, flat: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.uniform(-0.55, 0.55, (rows, 3)) * [1.0, 1.0, flat]
    return x, np.clip(x @ TRUTH + 0.05 * rng.normal(size=rows), -1, 1)


def request_for(rows: int = 4000, *, epsilon: float = 1.0, failure: float = 0.2) -> AdaptiveRidge:
    aim = Aim.of(epsilon=epsilon, failure_probability=failure, max_epsilon=1)
    return AdaptiveRidge(Problem(UnitBall(3, Norm.L2), rows, 1.0, aim), DELTA)


def excess(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    away = theta - np.linalg.lstsq(x, y, rcond=None)[0]
    return float(np.mean((x @ away) ** 2)) / 2


def test_curved_data_gets_no_penalty_and_a_certificate_that_holds() -> None:
    x, y = table(40_000)
    request = request_for(40_000)
    sealed, bits = request.measure(read_rows(x, y)), SeededBits(1)

    releases = [request.climb(sealed, bits) for _ in range(60)]

    assert all(release.receipt.terms["regularization"] == 0 for release in releases)
    assert all(release.receipt.outcome is Outcome.FIXED for release in releases)
    wrong = np.mean([excess(x, y, each.value.coefficients) > each.receipt.achieved for each in releases])
    assert wrong <= 0.2
    assert max(each.receipt.achieved for each in releases) < 0.01


def test_flat_data_gets_a_penalty_as_large_as_its_noise_and_no_wild_coefficients() -> None:
    x, y = table(flat=1e-3)
    request = request_for()
    sealed, bits = request.measure(read_rows(x, y)), SeededBits(2)

    releases = [request.climb(sealed, bits) for _ in range(60)]

    assert all(release.receipt.terms["regularization"] > 0 for release in releases)
    assert max(np.abs(release.value.coefficients).max() for release in releases) < 3
    plain = [
        np.linalg.solve(each.value.moments.gram, each.value.moments.cross)  # the same noise without a penalty
        for each in releases
    ]
    adaptive = [excess(x, y, each.value.coefficients) for each in releases]
    assert np.mean(adaptive) < np.mean([excess(x, y, theta) for theta in plain])


def test_the_bill_is_a_rho_that_implies_the_epsilon_asked_for() -> None:
    request = request_for(epsilon=0.7)
    x, y = table()

    receipt = request.climb(request.measure(read_rows(x, y)), SeededBits(0)).receipt

    assert receipt.bill == request.worst_case
    assert sum(receipt.breakdown.values()) == receipt.bill.rho
    assert ConcentratedTotal(receipt.bill.rho, Fraction(0)).epsilon(DELTA) <= 0.7


def test_replacing_a_row_moves_the_smallest_eigenvalue_by_no_more_than_declared() -> None:
    rng, ball = np.random.default_rng(0), UnitBall(3, Norm.L2)
    largest = 0
    for _ in range(200):
        x = rng.normal(size=(4, 3)) * rng.choice([0.1, 1.0, 10.0], (4, 1))
        z = x.copy()
        z[0] = rng.normal(size=3)
        one, other = (
            measure_least_curvature(UnitRows(read_rows(t, np.zeros(4)), ball, grid_numbers(1.0))) for t in (x, z)
        )
        assert abs(int(unseal(one)) - int(unseal(other))) <= one.sensitivity.amount
        largest = max(largest, abs(int(unseal(one)) - int(unseal(other))))
    # One row is all of the least curvature here: the bound is reached.
    eye, gone = np.eye(3), np.diag([1.0, 1.0, 0.0])
    one, other = (
        measure_least_curvature(UnitRows(read_rows(t, np.zeros(3)), ball, grid_numbers(1.0))) for t in (eye, gone)
    )
    assert int(unseal(one)) - int(unseal(other)) >= 2**20 - 3


def test_the_estimator_chooses_a_penalty_where_none_is_given() -> None:
    x, y = table(40_000)
    model = Ridge(
        epsilon=2.0,
        delta=1e-6,
        regularization=None,
        feature_norm="l2",
        simulation_seed=0,
        feature_bound=1.0,
        target_bounds=1.0,
    ).fit(x, y)

    assert np.allclose(model.coef_, TRUTH, atol=0.05)
    assert model.receipt_.terms["regularization"] == 0
    assert np.allclose(model.repenalised(1e-9).coef_, model.coef_, atol=1e-3)


@pytest.mark.parametrize("terms", [{"epsilon": 1.0}, {"excess_risk": 0.1, "delta": 1e-6}])
def test_no_regularization_without_epsilon_and_delta_is_refused(terms: dict[str, float]) -> None:
    x, y = table(100)

    with pytest.raises(expost.InvalidRequest, match="regularization"):
        Ridge(regularization=None, feature_bound=1.0, target_bounds=1.0, **terms).fit(x, y)
