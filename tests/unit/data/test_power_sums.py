"""Power sums are exact integers, whatever the order and the chunks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.data.tally import PowerSums


def slow(cell, steps, cells, degree):
    """The same sums with Python integers."""
    columns, count = steps.shape
    rows = [0] * cells
    first = [[0] * cells for _ in range(columns)]
    second = [[0] * cells for _ in range(columns * (columns + 1) // 2)]
    for row in range(count):
        place = 0 if cell is None else int(cell[row])
        values = [int(value) for value in steps[:, row]]
        rows[place] += 1
        for i, value in enumerate(values):
            first[i][place] += value
        for k, (i, j) in enumerate(zip(*np.triu_indices(columns), strict=True)):
            second[k][place] += values[i] * values[j]
    return rows, first if degree >= 1 else [], second if degree >= 2 else []


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([0, 1, 2]), st.booleans())
def test_sums_equal_those_of_python_integers(seed: int, columns: int, degree: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, (1 << 20) + 1, (columns, 50)).astype(float)
    cell = rng.integers(0, 4, 50) if grouped else None
    cells = 4 if grouped else 1

    found = PowerSums.of(cell, steps, cells=cells, degree=degree)

    rows, first, second = slow(cell, steps, cells, degree)
    assert found.rows.tolist() == rows
    assert found.first.tolist() == first
    assert found.second.tolist() == second


@pytest.mark.parametrize("grouped", [False, True])
def test_extreme_steps_do_not_round(grouped: bool) -> None:
    count, top = 131_072, 1 << 20
    steps = np.full((2, count), float(top))
    steps[1, ::3] -= 1
    cell = np.arange(count) % 2 if grouped else None

    found = PowerSums.of(cell, steps, cells=2 if grouped else 1, degree=2)

    low = -(-count // 3)
    cross = low * top * (top - 1) + (count - low) * top * top
    assert int(found.second[0].sum()) == count * top * top
    assert int(found.second[1].sum()) == cross


def test_totals_beyond_64_bits_become_python_integers() -> None:
    big = PowerSums(np.array([1]), np.array([[1 << 61]]), np.zeros((0, 1), np.int64))

    total = big + big + big

    assert total.first[0, 0] == 3 << 61


def test_nothing_added_changes_nothing() -> None:
    one = PowerSums.of(np.array([0, 1]), np.array([[2.0, 3.0]]), cells=2, degree=2)
    zero = PowerSums.zero(columns=1, cells=2, degree=2)

    for left, right in zip((one + zero, zero + one), (one, one), strict=True):
        assert left.rows.tolist() == right.rows.tolist() and left.second.tolist() == right.second.tolist()
