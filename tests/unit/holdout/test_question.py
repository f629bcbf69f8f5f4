import numpy as np
import pandas as pd
import pytest

from expost.core import EngineFailed, InvalidRequest
from expost.holdout.noise_level import GRID
from expost.holdout.question import Sample, lattice_total, metric_of, row_scores


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
    assert Sample(data, "training").rows == 4


@pytest.mark.parametrize("data", [[], np.zeros(0), 7, "rows", (np.zeros(3), np.zeros(4)), ()])
def test_other_things_are_no_samples(data):
    with pytest.raises(InvalidRequest, match="training sample"):
        Sample(data, "training")


def test_an_error_on_secret_rows_says_nothing_about_them():
    sample = Sample(np.array([17.25, 42.5]), "holdout")

    def curious(rows):
        raise ValueError(f"the rows are {rows}")

    with pytest.raises(EngineFailed) as caught:
        sample.sealed_total(curious)

    assert "17.25" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_wrong_number_of_values_is_refused():
    with pytest.raises(InvalidRequest, match="one value for each row"):
        Sample(np.zeros(3), "training").total(lambda rows: rows[:2])


def test_metrics_score_row_by_row():
    class Half:
        def predict(self, features):
            return np.zeros(len(features))

    question = row_scores(Half(), lambda truth, predicted: 1 - np.abs(truth - predicted))

    assert question(np.zeros((2, 1)), np.array([0.0, 0.25])).tolist() == [1.0, 0.75]
    with pytest.raises(InvalidRequest, match="metric"):
        metric_of("auc")
