"""Rows reach learning inside the unit ball, on the grid, whatever the caller brought."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from expost import Dataset, InvalidRequest
from expost.core import Norm
from expost.data.row_source import CHUNK_ROWS, read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers

SIDE = 1 << GRID_BITS


def awkward_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.standard_cauchy((2000, 7)) * 10.0 ** rng.integers(-12, 12, (2000, 1))
    rows[::5, 0] = np.nan
    rows[::7, 1] = np.inf
    rows[::11] = 0
    rows[::13] = 1 / 7
    return rows


def gridded(features: object, target: object, ball: UnitBall) -> tuple[np.ndarray, np.ndarray]:
    chunks = list(UnitRows(read_rows(features, target), ball, grid_numbers(1.0)).chunks())
    return np.vstack([x for x, _ in chunks]), np.concatenate([y for _, y in chunks])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("bound", [1.0, 0.3, 1e6])
def test_no_gridded_row_leaves_the_unit_ball(bound: float, intercept: bool) -> None:
    rows = awkward_rows()

    sums, _ = gridded(rows, np.zeros(len(rows)), UnitBall(7, Norm.L1, bound, intercept=intercept))
    squares, _ = gridded(rows, np.zeros(len(rows)), UnitBall(7, Norm.L2, bound, intercept=intercept))

    assert np.isfinite(sums).all() and np.isfinite(squares).all()
    assert np.abs(sums).astype(np.int64).sum(axis=1).max() <= SIDE
    assert (squares.astype(np.int64) ** 2).sum(axis=1).max() <= SIDE**2
    assert np.abs(sums).astype(np.int64).sum(axis=1).max() > 0.99 * SIDE  # the check would notice a missing bound


def test_targets_are_clipped_and_missing_ones_count_as_zero() -> None:
    _, target = gridded(np.ones((4, 1)), np.array([5.0, -5.0, np.nan, 0.5]), UnitBall(1))

    assert target.tolist() == [SIDE, -SIDE, 0, SIDE / 2]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_a_model_for_the_ball_predicts_the_same_on_raw_rows(bounded: bool, intercept: bool) -> None:
    rng = np.random.default_rng(1)
    raw = rng.uniform(-1, 3, (50, 3))
    lows, highs = ((-1.0, -1.0, -2.0), (3.0, 4.0, 3.0)) if bounded else (None, None)
    ball = UnitBall(3, Norm.L1, 9.0, lows, highs, intercept)
    theta = rng.normal(size=ball.dimension)

    weights, constant = ball.unscale_coefficients(theta, target_scale=2.5)

    assert np.allclose(raw @ weights + constant, 2.5 * ball.scale_rows(raw) @ theta)


def test_every_kind_of_table_gives_the_same_rows() -> None:
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((300, 3)) < 0.5, 0.0, rng.uniform(-0.5, 0.5, (300, 3)))
    target = rng.uniform(-1, 1, 300)
    names = ["a", "b", "c"]
    table = pa.table({**{name: dense[:, i] for i, name in enumerate(names)}, "y": target})
    kinds = [
        (scipy.sparse.csr_matrix(dense), target),
        (scipy.sparse.coo_array(dense), target),
        (pd.DataFrame(dense, columns=names), pd.Series(target)),
        (pl.DataFrame(dense, schema=names), pl.Series(target)),
        (table.drop_columns("y"), target),
        (np.asfortranarray(dense), target[:, None]),
        (Dataset(table, adjacency="replace-one", rows=300), "y"),
    ]

    expected = gridded(dense, target, UnitBall(3))
    for features, labels in kinds:
        got = gridded(features, labels, UnitBall(3))

        assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True)), type(features)


def test_chunks_are_short_enough_for_exact_sums_and_repeat() -> None:
    rows = UnitRows(
        read_rows(np.ones((3 * CHUNK_ROWS + 1, 2)), np.zeros(3 * CHUNK_ROWS + 1)), UnitBall(2), grid_numbers(1)
    )

    first = [len(x) for x, _ in rows.chunks()]

    assert max(first) <= CHUNK_ROWS
    assert first == [len(x) for x, _ in rows.chunks()]


def test_private_rows_cannot_be_printed_or_pickled() -> None:
    rows = UnitRows(read_rows(np.full((2, 1), 0.123), np.zeros(2)), UnitBall(1), grid_numbers(1))
    list(rows.chunks())

    assert "123" not in repr(rows)
    with pytest.raises(TypeError):
        pickle.dumps(rows)


def test_a_dataset_with_a_private_number_of_rows_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="replace-one"):
        read_rows(Dataset(pa.table({"a": [1.0], "y": [0.0]})), "y")


def test_rows_beyond_the_declared_number_are_not_read() -> None:
    data = Dataset(pa.table({"a": [1.0] * 10, "y": [0.5] * 10}), adjacency="replace-one", rows=4)

    features, _ = gridded(data, "y", UnitBall(1))

    assert len(features) == 4


@pytest.mark.parametrize("features", [np.empty((0, 2)), np.empty((3, 0)), np.ones(3), np.array([["a"], ["b"]])])
def test_what_is_no_table_of_numbers_is_refused(features: np.ndarray) -> None:
    with pytest.raises(InvalidRequest):
        read_rows(features, np.zeros(len(features)))
