"""A row becomes integers of bounded length that depend on the row alone."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.models.descent.feature_grid import FeatureGrid


def raw(seed: int = 0, rows: int = 200, width: int = 7, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=scale, size=(rows, width))


@pytest.mark.parametrize("width", [1, 3, 500, 5000])
@pytest.mark.parametrize("scale", [1e-12, 0.01, 1.0, 1e200])
def test_no_encoded_row_is_longer_than_declared(width: int, scale: float) -> None:
    grid = FeatureGrid(width, bound=2.0)

    rows = grid.encode_rows(raw(width=width, scale=scale, rows=20)).integers().astype(np.int64)

    assert (rows**2).sum(axis=1).max() <= grid.longest
    assert (rows[:, :width] ** 2).sum(axis=1).max() <= 1 << 24


def test_an_encoded_row_depends_on_that_row_alone() -> None:
    grid, rows = FeatureGrid(7), raw(rows=1000)
    whole = grid.encode_rows(rows).integers()

    order = np.random.default_rng(1).permutation(1000)
    assert (grid.encode_rows(rows[order]).integers() == whole[order]).all()
    for start, stop in ((0, 1), (3, 10), (999, 1000), (17, 400)):
        assert (grid.encode_rows(rows[start:stop]).integers() == whole[start:stop]).all()


def test_short_rows_keep_their_values_and_long_ones_their_direction() -> None:
    grid = FeatureGrid(2, bound=5.0, intercept=False)

    short, long = grid.encode_rows(np.array([[3.0, -4.0], [300.0, -400.0]])).integers()

    assert np.allclose(short / grid.unit, [3, -4], atol=1 / grid.unit)
    assert (short == long).all()


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=3, max_size=3))
@settings(max_examples=200, deadline=None)
def test_no_value_breaks_the_encoding(values: list[float]) -> None:
    grid = FeatureGrid(3)

    rows = grid.encode_rows(np.array([values])).integers().astype(np.int64)

    assert (rows**2).sum() <= grid.longest


def test_missing_and_infinite_values_have_a_meaning() -> None:
    grid = FeatureGrid(2, intercept=False)

    missing, infinite = grid.encode_rows(np.array([[np.nan, 0.5], [np.inf, 1.0]])).integers()

    assert missing[0] == 0 and missing[1] > 0
    assert infinite[0] > 4000 and infinite[1] == 0


def test_column_bounds_map_to_the_unit_cube_and_back() -> None:
    grid = FeatureGrid(2, bound=2.0, lows=(0.0, 10.0), highs=(100.0, 20.0))
    weights = np.array([[1.0, -2.0, 0.5]])

    slopes, constants = grid.raw_weights(weights)
    rows = np.array([[25.0, 19.0], [400.0, 0.0]])
    encoded = grid.encode_rows(rows).integers()

    expected = encoded @ weights[0] / grid.unit
    clipped = np.clip(rows, [0, 10], [100, 20])
    assert np.allclose(clipped @ slopes[0] + constants[0], expected, atol=4 / grid.unit)


def test_sparse_rows_are_read_like_dense_ones() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    rows = raw()

    assert (
        FeatureGrid(7).encode_rows(sparse.csr_matrix(rows)).integers() == FeatureGrid(7).encode_rows(rows).integers()
    ).all()


def test_encoded_rows_are_not_shown_or_pickled() -> None:
    rows = FeatureGrid(7).encode_rows(raw())

    assert repr(rows) == "<rows of a private table>"
    with pytest.raises(TypeError):
        pickle.dumps(rows)


@pytest.mark.parametrize("arguments", [{"width": 0}, {"width": 2, "bound": 0.0}, {"width": 2, "bound": float("nan")}])
def test_senseless_grids_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        FeatureGrid(**arguments)  # type: ignore[arg-type]
