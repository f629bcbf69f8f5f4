"""Moments are exact integers, the same however the rows come, and move as little as declared."""

import itertools

import numpy as np
import pytest

from expost.core import Ladder, Norm
from expost.data.row_source import RowSource, read_rows
from expost.data.second_moment import MomentLayout
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.noise import DiscreteLaplacePath


def opened(layout: MomentLayout, source: RowSource) -> np.ndarray:
    """The measured vector, through a release so weak that it is exact."""
    rows = UnitRows(source, layout.ball, grid_numbers(1.0))
    sealed = layout.measure(rows)
    return DiscreteLaplacePath(sealed, Ladder((sealed.sensitivity.amount * 900,))).at(0)


def by_hand(x: np.ndarray, y: np.ndarray, layout: MomentLayout) -> list[int]:
    """The same sums in Python integers."""
    gridded = [[int(v * 2**GRID_BITS) for v in row] for row in layout.ball.scale_rows(x).tolist()]
    targets = [int(v * 2**GRID_BITS) for v in y.tolist()]
    width = len(gridded[0])
    out = [
        sum(row[i] * row[j] for row in gridded) * (1 if i == j else 2) for i in range(width) for j in range(i, width)
    ]
    out += [sum(row[i] * t for row, t in zip(gridded, targets, strict=True)) for i in range(width)]
    if layout.with_square:
        out.append(sum(t * t for t in targets))
    if layout.with_sum:
        out.append(sum(targets) << GRID_BITS)
    return out


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("intercept", [False, True])
def test_moments_equal_sums_in_python_integers(norm: Norm, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(500, 3)), rng.uniform(-1, 1, 500)
    layout = MomentLayout(UnitBall(3, norm, intercept=intercept), with_square=True, with_sum=True)

    assert opened(layout, read_rows(x, y)).tolist() == by_hand(x, y, layout)


def test_order_and_chunking_change_nothing() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30_000, 4)), rng.uniform(-1, 1, 30_000)
    layout = MomentLayout(UnitBall(4))
    shuffled = rng.permutation(len(y))

    def in_pieces(step: int) -> RowSource:
        return RowSource(len(y), 4, None, lambda: ((x[i : i + step], y[i : i + step]) for i in range(0, len(y), step)))

    expected = opened(layout, read_rows(x, y)).tolist()
    assert opened(layout, read_rows(x[shuffled], y[shuffled])).tolist() == expected
    assert opened(layout, in_pieces(37)).tolist() == expected
    assert opened(layout, in_pieces(8192)).tolist() == expected


def test_sums_beyond_64_bits_are_kept_exactly() -> None:
    # A source that claims ten million rows by repeating one full chunk of the largest possible values.
    chunk = np.ones((8192, 1)), np.ones(8192)
    source = RowSource(8192 * 1300, 1, None, lambda: itertools.repeat(chunk, 1300))
    layout = MomentLayout(UnitBall(1))
    sealed = layout.measure(UnitRows(source, layout.ball, grid_numbers(1.0)))

    released = DiscreteLaplacePath(sealed, Ladder((sealed.sensitivity.amount * 900,))).at(0)

    assert int(released[0]) == 8192 * 1300 * 4**GRID_BITS > 2**63


@pytest.mark.parametrize("with_square", [False, True])
@pytest.mark.parametrize("with_sum", [False, True])
@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
def test_no_replaced_row_moves_the_vector_further_than_declared(with_square: bool, with_sum: bool, norm: Norm) -> None:
    layout = MomentLayout(UnitBall(4, norm), with_square=with_square, with_sum=with_sum)
    rng = np.random.default_rng(2)
    corners = [
        *np.eye(4),
        np.ones(4) / (4 if norm is Norm.L1 else 2),
        np.array([1, -1, 1, -1]) / (4 if norm is Norm.L1 else 2),
    ]
    corners += [v / (np.abs(v).sum() if norm is Norm.L1 else np.linalg.norm(v)) for v in rng.normal(size=(5, 4))]
    targets = [-1.0, -0.5, 0.0, 0.5, 1.0]
    records = [np.array(by_hand(x[None], np.array([y]), layout), dtype=float) for x in corners for y in targets]

    furthest = max(np.abs(a - b).sum() for a, b in itertools.combinations(records, 2))

    declared = float(layout.sensitivity.amount)
    assert furthest <= declared
    if norm is Norm.L1:  # attained, so that a smaller claim would be wrong
        assert furthest > 0.999 * declared


def test_a_released_vector_is_unpacked_into_means() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-0.3, 0.3, (200, 3)), rng.uniform(-1, 1, 200)
    layout = MomentLayout(UnitBall(3), with_square=True, with_sum=True)

    moments = layout.unpack(opened(layout, read_rows(x, y)), 200)

    assert np.allclose(moments.gram, x.T @ x / 200, atol=1e-5)
    assert np.allclose(moments.cross, x.T @ y / 200, atol=1e-5)
    assert moments.square == pytest.approx(np.mean(y**2), abs=1e-5)
    assert moments.total == pytest.approx(np.mean(y), abs=1e-5)


@pytest.mark.parametrize("full", [False, True])
def test_coarse_sums_and_stacks_of_them_are_unpacked_alike(full: bool) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.uniform(-0.3, 0.3, (200, 3)), rng.uniform(-1, 1, 200)
    fine, coarse = (MomentLayout(UnitBall(3), full=full, coarse=bits) for bits in (0, 20))

    grams, crosses = fine.unpack_matrices(np.stack([opened(fine, read_rows(x, y))] * 2), 200)
    moments = coarse.unpack(opened(coarse, read_rows(x, y)), 200)

    assert np.allclose(grams, x.T @ x / 200, atol=1e-5) and np.allclose(crosses, x.T @ y / 200, atol=1e-5)
    assert np.allclose(moments.gram, grams[1], atol=1e-6) and np.allclose(moments.cross, crosses[1], atol=1e-6)
    assert float(coarse.sensitivity.amount * 2**20 / fine.sensitivity.amount) == pytest.approx(1, abs=1e-4)
