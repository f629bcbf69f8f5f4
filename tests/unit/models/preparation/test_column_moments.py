"""Sums of bounded columns are exact, and no row moves them further than their sensitivity."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from expost.core import Adjacency, InvalidRequest, Norm
from expost.data.row_source import read_rows
from expost.models.preparation.column_moments import BOX_BITS, BoundedColumns, ColumnLayout, ColumnMoments
from expost.models.preparation.feature_selection import ColumnChoice

WIDTH = 2
BOX = BoundedColumns((-1.0,) * WIDTH, (1.0,) * WIDTH)
CELLS = [-1.0, -0.9, -0.5, 0.0, 0.3, 1.0, np.nan, np.inf, -1e300]
ROWS = [list(cells) for cells in product(CELLS, repeat=WIDTH)]
UNIT = 2**BOX_BITS


def sums(layout: ColumnLayout, rows: list[list[float]]) -> np.ndarray:
    return layout.sum_rows(read_rows(np.array(rows, float)), BOX)


def length(move: np.ndarray, norm: Norm) -> float:
    numbers = move.astype(float)
    return float(np.abs(numbers).sum()) if norm is Norm.L1 else float(np.sqrt(numbers @ numbers))


def largest_move(layout: ColumnLayout, norm: Norm) -> float:
    """The largest move over all rows of the grid of odd cells, in units of the sensitivity."""
    rest = [[0.1, -0.7], [1 / 3, 2 / 3]]
    vectors = [sums(layout, [*rest, row]) for row in ROWS]
    if layout.adjacency is Adjacency.ADD_REMOVE:
        moves = [vector - sums(layout, rest) for vector in vectors]
    else:
        moves = [first - second for first in vectors for second in vectors]
    return max(length(move, norm) for move in moves) / float(layout.sensitivity(norm).amount)


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("products", [False, True])
def test_no_row_moves_the_moments_further_than_declared(products: bool, adjacency: Adjacency, norm: Norm) -> None:
    layout = ColumnLayout(WIDTH, products=products, adjacency=adjacency)

    reached = largest_move(layout, norm)

    assert reached <= 1
    assert reached > (0.99 if adjacency is Adjacency.ADD_REMOVE or not products else 0.65)


def test_a_sensitivity_of_two_thirds_would_be_exceeded() -> None:
    for adjacency in Adjacency:
        layout = ColumnLayout(WIDTH, adjacency=adjacency)
        assert largest_move(layout, Norm.L1) > 2 / 3
        assert largest_move(layout, Norm.L2) > 2 / 3


def test_the_moments_are_exact_whatever_the_order_and_the_chunks() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (20_000, WIDTH))
    rows[::7, 0] = np.nan
    layout = ColumnLayout(WIDTH)
    grid = BOX.grid_rows(rows).astype(np.int64).astype(object)

    found = layout.sum_rows(read_rows(rows), BOX)

    assert found.tolist() == layout.sum_rows(read_rows(rows[::-1]), BOX).tolist()
    squares = (grid * grid).sum(axis=0)
    assert found.tolist() == [
        20_000 * UNIT,
        *grid.sum(axis=0),
        *[(each + UNIT // 2) // UNIT for each in squares],
        len(rows[::7]) * UNIT,
        0,
    ]


def test_values_beyond_the_bounds_count_as_the_bounds() -> None:
    layout = ColumnLayout(WIDTH, products=True)

    assert sums(layout, [[5.0, -np.inf]]).tolist() == sums(layout, [[1.0, -1.0]]).tolist()
    assert sums(layout, [[np.nan, 0.5]]).tolist() == sums(layout, [[0.0, 0.5]]).tolist()


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("classes", [0, 3])
def test_no_row_moves_a_score_further_than_declared(classes: int, adjacency: Adjacency) -> None:
    plan = ColumnChoice(
        columns=BOX,
        target_bounds=None if classes else (-1.0, 1.0),
        classes=classes,
        picks=1,
        epsilon=Fraction(1),
        adjacency=adjacency,
        terms={},
    )
    rng, most = np.random.default_rng(1), 0.0
    targets = [0, 1, 2, -1] if classes else [-1.0, 1.0, 0.2, np.nan]
    for size in [0, 1, 2, 30, 200]:
        corner = [[-1.0, 1.0]] * size
        for rest in (corner, rng.choice([-1.0, 1.0, 0.4], (size, WIDTH)).tolist()):
            aims = [targets[0]] * size if rest is corner else rng.choice(targets, size).tolist()
            scored = [
                plan.score_columns(read_rows(np.array([*rest, row], float), np.array([*aims, target])))
                for row in ROWS
                for target in targets
            ]
            if adjacency is Adjacency.ADD_REMOVE:
                base = plan.score_columns(read_rows(np.array(rest, float), np.array(aims))) if size else 0
                moves = [np.abs(score - base) for score in scored]
            else:
                moves = [np.abs(score - scored[0]) for score in scored]
            most = max(most, max(float(move.max()) for move in moves))

    assert most <= plan.sensitivity.amount
    assert most > 0.45 * plan.sensitivity.amount


def test_noise_that_cannot_be_drawn_is_refused_before_the_rows() -> None:
    with pytest.raises(InvalidRequest, match="Raise epsilon"):
        ColumnMoments(
            "q", BOX, ColumnLayout(WIDTH), Fraction(1, 10**12), Fraction(0), None, lambda moments, deviation: None, {}
        )
