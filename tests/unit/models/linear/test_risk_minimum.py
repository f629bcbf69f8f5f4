"""The solver lands as close to the minimum as it says."""

import numpy as np
import pytest
from scipy.optimize import minimize

from expost.core import Norm
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear.risk_minimum import Objective, SolverAccuracy, minimize_objective
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss, TruncatedSquare


def rows_of(rows: int = 400, width: int = 4, *, signs: bool) -> UnitRows:
    rng = np.random.default_rng(3)
    features = rng.uniform(-0.25, 0.25, (rows, width))
    target = np.clip(features @ rng.normal(size=width) * 4 + 0.3 * rng.normal(size=rows), -1, 1)
    ball = UnitBall(width, Norm.L1)
    return UnitRows(
        read_rows(features, np.sign(target) if signs else target), ball, lambda y: y if signs else grid_numbers(1)(y)
    )


@pytest.mark.parametrize(
    "loss", [LogisticLoss(), HuberHinge(0.3), TruncatedSquare(0.2), TruncatedSquare(5.0)], ids=repr
)
@pytest.mark.parametrize("penalty", [1e-3, 0.1])
def test_the_minimum_is_found(loss: RowLoss, penalty: float) -> None:
    signs = not isinstance(loss, TruncatedSquare)
    tilt = np.array([0.01, -0.02, 0.0, 0.03])
    objective = Objective(rows_of(signs=signs), loss, penalty, tilt, 1.0 if signs else 2.0**-GRID_BITS)

    theta = minimize_objective(objective)

    found = minimize(objective.evaluate_at, theta + 0.1, jac=True, method="BFGS", options={"gtol": 1e-9})
    assert np.allclose(theta, found.x, atol=1e-5)
    assert np.linalg.norm(objective.evaluate_at(theta)[1]) < 1e-10


@pytest.mark.parametrize("length", [1e3, 1e8, 1e15])
def test_long_tilts_are_solved_to_the_precision_of_their_floats(length: float) -> None:
    objective = Objective(rows_of(signs=True), LogisticLoss(), 1e-3, np.array([length, 0.0, 0.0, -length]))

    theta = minimize_objective(objective)

    assert np.linalg.norm(theta * 1e-3 + objective.tilt) <= 1.001 + 1e-12 * length


def test_the_distance_shrinks_with_the_penalty_and_covers_perturbed_arithmetic() -> None:
    ball = UnitBall(4, Norm.L1)
    near, far = (
        SolverAccuracy(LogisticLoss(), ball, rows=10_000, penalty=penalty).bound_distance(100.0, 0.01)
        for penalty in (0.1, 0.001)
    )

    assert near < far < 1e-6
    objective = Objective(rows_of(signs=True), LogisticLoss(), 0.1, np.zeros(4))
    theta = minimize_objective(objective)
    # The same sums in another order and precision move the minimum by less than the distance.
    exact = [(x.astype(np.longdouble), y.astype(np.longdouble)) for x, y in rows_of(signs=True).chunks()]
    gradient = sum(
        LogisticLoss().slope_at(x @ theta.astype(np.longdouble) / 2**GRID_BITS, y)[::-1] @ x[::-1] for x, y in exact
    )
    assert np.linalg.norm(np.float64(gradient) / 400 / 2**GRID_BITS + 0.1 * theta) / 0.1 < near


@pytest.mark.parametrize("seed", range(40))
def test_the_solver_converges_on_kinked_and_repeated_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    features = np.repeat(rng.choice([-1.0, 0.0, 0.5, 1.0], (rows, width)) / width, 3, axis=0)
    signs = np.repeat(rng.choice([-1.0, 1.0], rows), 3)
    penalty = float(10.0 ** rng.uniform(-4, 1))
    tilt = rng.laplace(size=width) * 10.0 ** rng.uniform(-6, 2)
    for loss in (HuberHinge(0.05), HuberHinge(2.0), TruncatedSquare(0.1), LogisticLoss()):
        unit = UnitRows(read_rows(features, signs), UnitBall(width), lambda y: y)
        objective = Objective(unit, loss, penalty, tilt)

        theta = minimize_objective(objective)

        assert np.linalg.norm(objective.evaluate_at(theta)[1]) < 1e-6 * (1 + np.linalg.norm(tilt))
