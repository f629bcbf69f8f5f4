"""Where a minimum lies and how far a row moves it: bounds that hold, and are not far from the truth."""

import numpy as np
import pytest

from expost.core import unseal
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall, UnitRows, grid_numbers
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.risk_minimum import MinimumBounds, SealedRisk
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, TruncatedSquare

ROWS, PENALTY = 50, 0.1
LOSSES = [LogisticLoss(), HuberHinge(0.5), TruncatedSquare(1.0)]


def minimum(loss, rows=ROWS):
    aim = Aim.of(excess_risk=0.1, failure_probability=0.1, max_epsilon=1)
    return MinimumBounds(Problem(UnitBall(1), rows, PENALTY, aim), loss)


def solved(found, x, y):
    """The minimum on a fine grid: one feature, so that nothing can go wrong."""
    thetas = np.linspace(-2 * found.radius, 2 * found.radius, 40_001)
    risk = sum(found.solved.value_at(thetas * a, np.full_like(thetas, b)) for a, b in zip(x, y, strict=True)) / len(x)
    return thetas[np.argmin(risk + PENALTY / 2 * thetas**2)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_minimum_lies_in_the_ball_and_no_row_moves_it_further_than_said(loss):
    found, random, furthest = minimum(loss), np.random.default_rng(1), 0.0
    for _ in range(30):
        x, y = random.uniform(-1, 1, ROWS), random.choice([-1.0, 1.0], ROWS)
        before = solved(found, x, y)
        x[0], y[0] = random.choice([-1.0, 1.0]), random.choice([-1.0, 1.0])
        furthest = max(furthest, abs(solved(found, x, y) - before))

        assert abs(before) <= found.radius
    assert 0.05 * found.row_distance < furthest <= found.row_distance


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_what_the_solver_leaves_over_is_a_small_part_and_more_rows_move_less(loss):
    assert 0 < 2 * minimum(loss).solver_distance < 1e-3 * minimum(loss).row_distance
    assert minimum(loss, 10 * ROWS).row_distance < 0.11 * minimum(loss).row_distance


def test_only_squares_have_targets_on_a_grid():
    assert [minimum(loss).target_scale == 1.0 for loss in LOSSES] == [True, True, False]
    square = minimum(LOSSES[2])
    x, y = np.full((ROWS, 1), 0.5), np.full(ROWS, 0.25)
    rows = UnitRows(read_rows(x, y), UnitBall(1), grid_numbers(1.0))
    risk = SealedRisk(rows, square.solved, PENALTY, target_scale=square.target_scale)

    sealed = risk.seal_minimum(1e-9, 1)
    assert unseal(sealed)[0] * 1e-9 == pytest.approx(0.125 / (0.25 + PENALTY), rel=1e-6)
