"""Ridge through a truncated loss: the target holds for the squared loss, and the bill adds up."""

from fractions import Fraction

import numpy as np
import pytest

from expost import BudgetExceeded
from expost.accuracy.ridge_certificate import THRESHOLDS
from expost.core import Outcome, unseal
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_objective import CheckResult, ResidualCheck, TiltedRidge
from expost.noise import SeededBits

PENALTY = 0.02


def table(rows: int = 3000, *, noise: float = 0.1, slope: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(4), rows) * np.sign(rng.normal(size=(rows, 4)))
    y = np.clip(x @ np.array([slope, -slope, 0.3, 0.0]) + noise * rng.normal(size=rows), -1, 1)
    return x, y


def excess(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    gram = x.T @ x / len(y) + PENALTY * np.eye(x.shape[1])
    away = theta - np.linalg.solve(gram, x.T @ y / len(y))
    return float(away @ gram @ away) / 2


def request_for(x: np.ndarray, **terms: object) -> TiltedRidge:
    aim = Aim.of(failure_probability=0.2, max_epsilon=terms.pop("max_epsilon", 3.0), **terms)
    return TiltedRidge(Problem(UnitBall(x.shape[1]), len(x), PENALTY, aim))


def test_the_squared_risk_meets_the_target_as_often_as_promised() -> None:
    x, y = table()
    request = request_for(x, excess_risk=0.01)
    rows, bits, runs = request.measure(read_rows(x, y)), SeededBits(1), 150

    releases = [request.climb(rows, bits) for _ in range(runs)]

    missed = np.mean([excess(x, y, release.value.coefficients) > 0.01 for release in releases])
    assert missed <= 0.2 + 3 * np.sqrt(0.16 / runs)
    assert all(release.receipt.outcome.met for release in releases)
    assert all(release.receipt.achieved <= 0.01 for release in releases)


def test_the_bill_is_the_sum_of_its_parts_and_within_the_cap() -> None:
    x, y = table()
    request = request_for(x, excess_risk=0.01)
    rows = request.measure(read_rows(x, y))

    for seed in range(20):
        receipt = request.climb(rows, SeededBits(seed)).receipt

        assert receipt.bill.epsilon == sum(receipt.breakdown.values())
        assert receipt.bill.epsilon <= 3


def test_data_with_large_residuals_is_fitted_with_a_wider_reach() -> None:
    # Half the targets contradict the other half: many residuals beyond the reach, and the first check must fail.
    x, y = table(slope=6.0)
    y = np.where(np.arange(len(y)) % 5 == 0, -np.sign(y), np.sign(y))
    request = request_for(x, excess_risk=0.01, max_epsilon=50.0)
    rows = request.measure(read_rows(x, y))

    releases = [request.climb(rows, SeededBits(seed)) for seed in range(10)]

    assert all(release.receipt.outcome.met for release in releases)
    assert np.median([excess(x, y, release.value.coefficients) for release in releases]) <= 0.01
    first = request._epsilon
    assert any(release.receipt.breakdown["generation"] > first for release in releases)


def test_a_cap_too_low_for_the_tilt_is_refused_before_the_data_is_touched() -> None:
    x, _ = table()

    with pytest.raises(BudgetExceeded):
        request_for(x, excess_risk=0.001, max_epsilon=0.01)


def test_a_cap_too_low_for_the_check_ends_as_not_met() -> None:
    x, y = table()
    tilt = request_for(x, excess_risk=0.01)._epsilon
    request = request_for(x, excess_risk=0.01, max_epsilon=tilt * Fraction(1001, 1000))

    release = request.climb(request.measure(read_rows(x, y)), SeededBits(0))

    assert release.receipt.outcome is Outcome.NOT_MET
    assert release.receipt.bill.epsilon <= tilt * Fraction(1001, 1000)


def test_epsilon_first_reports_what_it_buys() -> None:
    x, y = table()
    request = request_for(x, epsilon=1.0)

    releases = [request.climb(request.measure(read_rows(x, y)), SeededBits(seed)) for seed in range(10)]

    assert all(release.receipt.outcome is Outcome.FIXED for release in releases)
    assert all(release.receipt.bill.epsilon <= 1 for release in releases)
    assert all(excess(x, y, r.value.coefficients) <= r.receipt.achieved for r in releases)
    # The check's share is spent where it is needed, so that the bound reported says something.
    assert all(release.receipt.achieved < 0.1 for release in releases)
    assert any(release.receipt.breakdown["testing"] == Fraction(1, 4) for release in releases)


def test_units_of_the_caller_change_nothing_but_the_units() -> None:
    x, y = table()
    aim = Aim.of(excess_risk=0.01 * 25, failure_probability=0.2, max_epsilon=3)
    scaled = TiltedRidge(Problem(UnitBall(4, bound=10.0), len(x), PENALTY * 100, aim, target_bounds=(-5.0, 5.0)))
    plain = request_for(x, excess_risk=0.01)

    big = scaled.climb(scaled.measure(read_rows(10 * x, 5 * y)), SeededBits(3))
    small = plain.climb(plain.measure(read_rows(x, y)), SeededBits(3))

    assert np.allclose(big.value.coefficients * 2, small.value.coefficients, atol=1e-4)
    assert big.receipt.epsilon == pytest.approx(small.receipt.epsilon)


@pytest.mark.parametrize("leash", [0.4, 1.5, 9.0])
def test_one_row_moves_the_checked_sum_by_no_more_than_declared(leash: float) -> None:
    theta = np.array([3.0, -2.0, 0.5, 0.1])
    check = ResidualCheck(theta, 1.0, UnitBall(4), leash)

    def contribution(row: np.ndarray, label: float) -> float:
        beyond = max(abs(row @ theta - label) - 1.0, 0.0)
        return beyond**2 / 2 - max(beyond - float(np.linalg.norm(row)) * leash, 0.0) ** 2 / 2

    extremes = [contribution(sign * unit, label) for unit in np.eye(4) for sign in (-1, 1) for label in (-1.0, 1.0)]
    assert max(extremes) == pytest.approx(check.most, rel=1e-6)
    rows = UnitRows(read_rows(np.eye(4), -np.ones(4)), UnitBall(4), lambda t: t * 2.0**GRID_BITS)
    assert check._seal_contributions(rows).sensitivity.amount >= max(extremes) * 2**GRID_BITS


def test_no_check_is_paid_for_where_no_row_can_leave_the_reach() -> None:
    check = ResidualCheck(np.array([0.5, -0.5]), 1.6, UnitBall(2), 1.0)

    assert check.needless


@pytest.mark.parametrize("part", [0.4, 0.7, 1.0])
def test_the_bound_of_a_missed_check_holds_at_the_rung_where_it_stopped(part: float) -> None:
    x, y = np.tile(np.eye(4), (50, 1)), -np.ones(200)
    check = ResidualCheck(np.array([1.0, 0.8, 0.6, 0.5]), 1.0, UnitBall(4), 9.0)
    rows = UnitRows(read_rows(x, y), UnitBall(4), lambda t: t * 2.0**GRID_BITS)
    exact = unseal(check._seal_contributions(rows)) * 2.0**-GRID_BITS
    bits, failure = SeededBits(3), 0.2
    seen = [check.climb(rows, scale=exact * part, cap=Fraction(1000), bits=bits) for _ in range(500)]
    missed = [each for each in seen if not each.enough]

    below = np.sum([each.bound_hidden(failure) < exact for each in missed]) / len(seen)
    assert len(missed) > 50 and below <= failure


def test_a_check_that_stops_by_its_noise_shares_the_failures_among_its_rungs() -> None:
    one, many = (CheckResult(5.0, 2.0, Fraction(1), False, rungs) for rungs in (1, len(THRESHOLDS)))

    assert many.bound_hidden(0.06) == one.bound_hidden(0.06 / len(THRESHOLDS)) > one.bound_hidden(0.06)


def truncated_minimum(x: np.ndarray, y: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """The minimum of the truncated risk plus tilt . theta, by plain descent."""
    theta = np.zeros(x.shape[1])
    for _ in range(2500):
        theta -= 0.9 * (x.T @ np.clip(x @ theta - y, -1, 1) / len(y) + PENALTY * theta + tilt)
    return theta


def test_what_is_known_and_what_is_hidden_bound_the_excess_risk_together() -> None:
    rng = np.random.default_rng(5)
    x, y = table(rows=600, slope=6.0)
    y = np.where(rng.random(600) < 0.15, -np.sign(y), y)
    request = request_for(x, excess_risk=0.05, max_epsilon=50.0)
    bounds, truths = [], []
    for length in np.geomspace(1e-3, 0.2, 12):
        direction = rng.normal(size=4)
        tilt = length * direction / np.linalg.norm(direction)
        theta = truncated_minimum(x, y, tilt)
        beyond = np.maximum(np.abs(x @ theta - y) - 1, 0)
        moved = np.minimum(beyond, np.linalg.norm(x, axis=1) * request._near_distance)
        hidden = float(np.mean(moved * beyond - moved**2 / 2))
        bounds.append(request._bound_together(length**2 / (2 * PENALTY), hidden))
        truths.append(excess(x, y, theta))

    assert np.all(np.array(truths) <= np.array(bounds) * (1 + 1e-6))
    # Without what is hidden the bound would be wrong on this table.
    assert any(
        truth > length**2 / (2 * PENALTY) for truth, length in zip(truths, np.geomspace(1e-3, 0.2, 12), strict=True)
    )


def test_a_reading_bounds_what_is_hidden_as_often_as_it_says() -> None:
    check = ResidualCheck(np.array([2.0, 0.0]), 1.0, UnitBall(2), 9.0)
    rows = UnitRows(read_rows(np.tile([1.0, 0.0], (9, 1)), -np.ones(9)), UnitBall(2), grid_numbers(1.0))
    bits = SeededBits(3)

    readings = [check.read(rows, Fraction(1), bits=bits) for _ in range(2000)]

    wrong = np.mean([reading.bound_hidden(0.1) < 18.0 for reading in readings])
    assert 0.07 < wrong < 0.13
