import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from expost.core import InvalidRequest
from expost.holdout.holdout_plan import GRID
from expost.holdout.holdout_sample import HoldoutSample, lattice_total, metric_of, score_rows


def test_totals_are_exact_whatever_the_order_of_rows():
    values = np.random.default_rng(1).random(10_001)
    shuffled = np.random.default_rng(2).permutation(values)

    assert lattice_total(values, 10_001, "x") == lattice_total(shuffled, 10_001, "x")
    assert lattice_total(values, 10_001, "x") / GRID == pytest.approx(values.sum(), abs=10_001 / GRID)


def test_one_row_moves_a_total_by_at_most_one():
    low, high = np.array([0.3, -1e308]), np.array([0.3, np.inf])

    assert lattice_total(high, 2, "x") - lattice_total(low, 2, "x") == GRID
    assert lattice_total(np.array([0.3, np.nan]), 2, "x") == lattice_total(low, 2, "x")


def test_columns_are_questions_of_their_own():
    totals = lattice_total(np.array([[True, False], [True, True]]), 2, "x")

    assert totals.tolist() == [2 * GRID, GRID]


@pytest.mark.parametrize(
    "data", [np.zeros((4, 2)), [1, 2, 3, 4], pd.DataFrame({"a": range(4)}), (np.zeros((4, 2)), list("abcd"))]
)
def test_samples_are_arrays_tables_or_tuples_of_parts(data):
    assert HoldoutSample(data, "training").rows == 4


@pytest.mark.parametrize(
    "data", [[], np.zeros(0), 7, "rows", (np.zeros(3), np.zeros(4)), (), {1, 2}, sparse.coo_matrix((3, 3))]
)
def test_other_things_are_no_samples(data):
    with pytest.raises(InvalidRequest, match="training sample"):
        HoldoutSample(data, "training")


KINDS = {
    "array": np.asarray,
    "list": list,
    "series": pd.Series,
    "arrow": pa.array,
    "frame": lambda rows: pd.DataFrame({"x": rows}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_on_which_a_question_fails_counts_as_nothing_and_says_nothing(kind, capfd):
    def picky(rows):
        values = np.asarray(rows, np.float64).ravel()
        if (values == 0.25).any():
            raise ValueError(f"the rows are {values}")
        warnings.warn(f"the rows are {values}", stacklevel=1)
        return values

    def total(rows):
        return int(HoldoutSample(KINDS[kind](rows), "holdout").sealed_total(picky))

    assert total([0.5] * 9) == 9 * GRID // 2
    for place in range(9):  # the neighbour that makes the question fail differs by that one row's value
        assert total([0.5] * place + [0.25] + [0.5] * (8 - place)) == 8 * GRID // 2
    assert total([0.25] * 9) == 0
    assert capfd.readouterr() == ("", "")


def test_a_failing_row_moves_every_total_by_at_most_one():
    rng = np.random.default_rng(4)

    def picky(rows):
        if (rows > 0.9).any():
            raise KeyError("unseen")
        return np.stack([rows, 1 - rows], axis=1)

    for _ in range(20):
        rows, other = rng.random(50), rng.random(50)
        neighbour = np.r_[rows[:-1], other[-1]]
        totals = [HoldoutSample(data, "holdout").sealed_total(picky, columns=2) for data in (rows, neighbour)]

        kept = rows[rows <= 0.9]
        assert totals[0].tolist() == lattice_total(np.stack([kept, 1 - kept], axis=1), len(kept), "x").tolist()
        assert np.abs(totals[0] - totals[1]).max() <= GRID


def test_values_of_another_shape_or_kind_count_as_nothing():
    sample = HoldoutSample(np.array([0.5, 1.0]), "holdout")

    assert sample.sealed_total(lambda rows: ["text" if row == 1.0 else row for row in rows]) == GRID // 2
    assert sample.sealed_total(lambda rows: rows[rows < 1.0]) == GRID // 2
    assert sample.sealed_total(lambda rows: rows, columns=2).tolist() == [0, 0]


def test_a_few_failing_rows_cost_a_few_calls_more():
    calls = []

    def picky(rows):
        calls.append(len(rows))
        if 777 in rows:
            raise ValueError
        return np.ones(len(rows))

    assert HoldoutSample(np.arange(4096), "holdout").sealed_total(picky) == 4095 * GRID
    assert len(calls) == 1 + 2 * 12


def test_a_wrong_number_of_values_is_refused():
    with pytest.raises(InvalidRequest, match="one value for each row"):
        HoldoutSample(np.zeros(3), "training").total(lambda rows: rows[:2])


def test_metrics_score_row_by_row():
    class Half:
        def predict(self, features):
            return np.zeros(len(features))

    question = score_rows(Half(), lambda truth, predicted: 1 - np.abs(truth - predicted))

    assert question(np.zeros((2, 1)), np.array([0.0, 0.25])).tolist() == [1.0, 0.75]
    with pytest.raises(InvalidRequest, match="metric"):
        metric_of("auc")
