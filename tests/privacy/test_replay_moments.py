"""One replaced row, however extreme, moves the sealed moments and score sums by at most their sensitivity."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from expost.core import Measure, Norm, unseal
from expost.data.row_source import read_rows
from expost.data.second_moment import MomentLayout
from expost.data.unit_ball import UnitBall, UnitRows, grid_numbers
from expost.models.linear.classifier_fit import grid_labels
from expost.models.linear.ridge_objective import ResidualCheck
from expost.models.linear.tested_score import ScoreQuery

EXTREMES = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, 1.0, -1.0, 0.5, 3.0, -2.5])
PAIRS = 25
ROWS = 5


def _pairs(seed: int, width: int) -> list[tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(PAIRS):
        features, target = random.choice(EXTREMES, (ROWS, width)), random.choice(EXTREMES, ROWS)
        other, others = features.copy(), target.copy()
        place = random.integers(ROWS)
        other[place], others[place] = random.choice(EXTREMES, width), random.choice(EXTREMES)
        found.append(((features, target), (other, others)))
    return found


def _unit_rows(table: tuple[np.ndarray, np.ndarray], ball: UnitBall, measure: Measure = Measure.RMSE) -> UnitRows:
    grid = grid_numbers(2.0) if measure is Measure.RMSE else grid_labels((0.0, 1.0))
    return UnitRows(read_rows(*table), ball, grid)


BALLS = [
    UnitBall(width, norm, bound, lows, highs, intercept)
    for width, norm, intercept, (lows, highs) in itertools.product(
        (1, 3), (Norm.L1, Norm.L2), (False, True), ((None, None), ((-1.0,), (2.0,)))
    )
    for bound in (1.0, 2.5)
    if lows is None or len(lows) == width
]


@cache
def _unit_pairs(seed: int) -> list[tuple[UnitRows, UnitRows]]:
    """The pairs of one ball, read once for all layouts."""
    ball = BALLS[seed]
    return [(_unit_rows(first, ball), _unit_rows(second, ball)) for first, second in _pairs(seed, ball.width)]


@pytest.mark.parametrize("with_square, with_sum, full", list(itertools.product((False, True), repeat=3)))
def test_a_replaced_row_moves_the_moments_by_at_most_their_sensitivity(
    with_square: bool, with_sum: bool, full: bool
) -> None:
    for seed, ball in enumerate(BALLS):
        for coarse in (0, 14):
            layout = MomentLayout(ball, with_square=with_square, with_sum=with_sum, full=full, coarse=coarse)
            for pair in _unit_pairs(seed):
                one, other = (unseal(layout.measure(rows)) for rows in pair)
                assert sum(map(abs, (one - other).tolist())) <= layout.sensitivity.amount


@pytest.mark.parametrize("measure, goal", [(Measure.ACCURACY, 0.5), (Measure.LOG_LOSS, 0.5), (Measure.RMSE, 0.5)])
def test_a_replaced_row_moves_a_score_by_at_most_its_sensitivity(measure: Measure, goal: float) -> None:
    for seed, ball in enumerate(BALLS):
        theta = np.linspace(-2, 2, ball.dimension) if ball.dimension > 1 else np.array([2.0])
        query = ScoreQuery(measure, goal, ROWS, radius=math.sqrt(8 * ball.dimension))
        for first, second in _pairs(seed, ball.width):
            one, other = (
                unseal(query.seal_score(_unit_rows(table, ball, measure), theta)) for table in (first, second)
            )
            assert abs(int(one) - int(other)) <= query.sensitivity.amount


@pytest.mark.parametrize("goal", [0.01, 0.5, 0.99])
def test_a_replaced_row_moves_the_explained_share_by_at_most_its_sensitivity(goal: float) -> None:
    query = ScoreQuery(Measure.R2, goal, ROWS)
    for seed, ball in enumerate(BALLS):
        theta = np.full(ball.dimension, 3.0)
        for first, second in _pairs(seed, ball.width):
            one, other = (unseal(query.seal_score(_unit_rows(table, ball), theta)) for table in (first, second))
            assert abs(int(one) - int(other)) <= query.sensitivity.amount


@pytest.mark.parametrize("reach", [0.0, 1.0, 2.5])
def test_a_replaced_row_moves_the_residual_sum_by_at_most_its_sensitivity(reach: float) -> None:
    for seed, ball in enumerate(BALLS):
        check = ResidualCheck(np.full(ball.dimension, 4.0), reach, ball, leash=1.5)
        for first, second in _pairs(seed, ball.width):
            one, other = (check._seal_contributions(_unit_rows(table, ball)) for table in (first, second))
            assert abs(int(unseal(one)) - int(unseal(other))) <= one.sensitivity.amount
