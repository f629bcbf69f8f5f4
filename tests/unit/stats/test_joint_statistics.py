"""Several statistics of one column from one release."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, Session
from expost.core import InvalidRequest, unseal
from expost.noise import SeededBits
from expost.stats.joint_statistics import JOINT_STATISTICS, JointStatistics

CELLS = [None, -7.0, -0.0, 0.5, 3.25, 8.0, 99.0]


def described(cells: list[float | None], **terms: object) -> Dataset:
    """A column with missing values."""
    return Dataset(pa.table({"x": pa.array(cells, pa.float64())}), bounds={"x": (-5, 10)}, **terms)  # type: ignore[arg-type]


def coordinates(cells: list[float | None], statistics: tuple[str, ...]) -> np.ndarray:
    """What is sealed."""
    dataset = described(cells)
    plan = JointStatistics("x", statistics, epsilon=1).plan(dataset)
    return np.asarray(unseal(plan.measure(dataset)))  # type: ignore[arg-type]


@pytest.mark.parametrize("statistics", [("rows", "mean"), ("rows", "variance"), ("count", "mean"), ("mean", "std")])
def test_a_row_moves_the_coordinates_by_its_size_whether_it_has_a_value_or_not(statistics: tuple[str, ...]) -> None:
    dataset = described(CELLS)
    declared = JointStatistics("x", statistics, epsilon=1).design(dataset).sensitivity.amount
    whole = coordinates(CELLS, statistics)
    for place, cell in enumerate(CELLS):
        moved = np.abs(whole - coordinates(CELLS[:place] + CELLS[place + 1 :], statistics)).sum()
        # Without the number of rows, a row without a value is not counted at all.
        assert moved == (0 if cell is None and "rows" not in statistics else declared)


def test_a_replaced_row_moves_the_coordinates_by_at_most_the_declared_sensitivity() -> None:
    dataset = described(CELLS, adjacency="replace-one", rows=len(CELLS))
    declared = JointStatistics("x", ("rows", "mean"), epsilon=1).design(dataset).sensitivity.amount
    whole, largest = coordinates(CELLS, ("rows", "mean")), 0
    for place in range(len(CELLS)):
        for cell in CELLS:
            moved = np.abs(whole - coordinates([*CELLS[:place], cell, *CELLS[place + 1 :]], ("rows", "mean"))).sum()
            assert moved <= declared
            largest = max(largest, int(moved))
    assert largest == declared  # a value at a bound replaced by none: the constant is tight


def test_intervals_hold_all_at_once() -> None:
    random = np.random.default_rng(4)
    values = np.where(random.random(900) < 0.2, np.nan, random.uniform(-5, 10, 900))
    known = values[~np.isnan(values)]
    exact = (900, len(known), known.sum(), known.mean(), known.var(), known.std(), known.var(ddof=1), known.std(ddof=1))
    dataset, missed = described([None if np.isnan(each) else float(each) for each in values]), 0
    plan = JointStatistics("x", JOINT_STATISTICS, epsilon=1, confidence=0.8).plan(dataset)
    for seed in range(60):
        release = plan.climb(plan.measure(dataset), SeededBits(seed))
        missed += any(not row.low <= answer <= row.high for row, answer in zip(release.value.rows, exact, strict=True))
    assert missed <= 21  # 12 are expected at most; 22 have a probability below 0.004


def test_the_number_of_rows_costs_nothing_more() -> None:
    cells = [float(k % 10) for k in range(2000)]
    with_rows, without = (
        JointStatistics("x", names, epsilon=1).design(described(cells)).sensitivity
        for names in (("rows", "mean"), ("mean",))
    )
    assert with_rows == without


def test_errors_count_in_units_of_their_own() -> None:
    cells = [float(k % 10) for k in range(5000)]
    release = Session(described(cells), 50).ask(
        JointStatistics("x", ("rows", "mean"), within=1, scales=[Fraction(100), Fraction(1, 4)], max_epsilon=20)
    )
    rows, mean = release.value.rows
    assert rows.met and mean.met
    assert rows.high - rows.low <= 200.01 and mean.high - mean.low <= 0.5001
    assert abs(rows.value - 5000) < 200


@pytest.mark.parametrize("statistics", [(), ("rows", "rows"), ("median",)])
def test_other_statistics_are_refused(statistics: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="different ones of"):
        JointStatistics("x", statistics, epsilon=1)
