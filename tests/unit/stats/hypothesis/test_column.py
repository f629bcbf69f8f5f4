import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.stats.hypothesis.column import GRID, bounded, check_values, codes, matches, measured, pair_of, truths


def batch(**columns):
    return pa.record_batch(columns)


def test_nothing_in_a_row_can_raise():
    rows = batch(x=pa.array([1, None, 300], pa.int16()), s=pa.array(["a", None, "c"]).dictionary_encode())

    assert matches(rows, "x", 10**12) == 0
    assert codes(rows, "s", ("c", "a")).tolist() == [1, -1, 0]
    assert np.isnan(measured(rows, "x")[1])
    assert bounded(measured(rows, "x"), (0, 2)).tolist() == [0, 0, GRID // 2]
    assert bounded([np.inf, -np.inf], (0, 2)).tolist() == [GRID // 2, -GRID // 2]


@pytest.mark.parametrize(
    "bounds", [(-1e308, 1e308), (0, float("inf")), (float("nan"), 1), (1, 1), (2, 1), (-1.7e308, 0.9e308)]
)
def test_bounds_without_a_finite_width_are_refused(bounds):
    with pytest.raises(InvalidRequest, match="finite width"):
        bounded([1e308], bounds)


def test_values_between_the_widest_and_the_narrowest_bounds_stay_on_the_lattice():
    extremes = [-np.inf, -1e308, -1.0, 0.0, 5e-324, 1.0, 1e308, np.inf, np.nan]
    for bounds in ((-8e307, 8e307), (1e308, 1.7e308), (0.0, 5e-324), (1.0, np.nextafter(1.0, 2.0))):
        assert np.abs(bounded(extremes, bounds)).max() <= GRID // 2
    assert bounded([np.nan], (1e308, 1.7e308)).tolist() == [0]


def test_decimals_and_booleans_are_numbers():
    import decimal

    rows = batch(d=pa.array([decimal.Decimal("1.5"), None]), b=pa.array([True, False]))

    assert measured(rows, "d")[0] == 1.5
    assert measured(rows, "b").tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("column", "value"), [("n", "x"), ("n", True), ("s", 1), ("b", 1), ("t", 0)])
def test_values_of_another_kind_are_refused_without_reading_rows(column, value):
    table = pa.table({"n": [1], "s": ["a"], "b": [True], "t": pa.array([0], pa.timestamp("s"))})

    with pytest.raises(InvalidRequest, match="column that holds"):
        check_values(Dataset(table), column, [value])


def test_truths_are_read_from_any_number():
    assert truths([0.0, 2.0, float("nan")]).tolist() == [False, True, False]
    assert truths([1, "yes", None, [1]]).tolist() == [True, False, False, False]
    for typed in (np.array(["yes"]), np.ones((2, 2)), None, "yes"):
        with pytest.raises(InvalidRequest):
            truths(typed)


@pytest.mark.parametrize(
    "pair",
    [([1, 2], [1]), (np.ones((1, 1)), np.ones((1, 1))), (np.array(["a-secret"]), [1]), (None, None)],
    ids=["lengths", "tables", "texts", "nothing"],
)
def test_what_is_no_pair_of_lists_of_numbers_is_refused_without_its_values(pair):
    with pytest.raises(InvalidRequest, match="two lists of numbers") as refusal:
        pair_of(*pair)
    assert "a-secret" not in str(refusal.value)


def test_a_cell_of_a_list_that_is_not_a_number_is_missing_and_changes_no_other_cell():
    first, second = pair_of([1, "a", None, 2**70, 1j], [1, 2, 3, 4, 5])
    assert np.array_equal(first, [1, np.nan, np.nan, 2.0**70, np.nan], equal_nan=True)
    assert second.tolist() == [1, 2, 3, 4, 5]


def test_complex_numbers_are_refused_without_a_word_of_their_cells():
    with pytest.raises(InvalidRequest, match="lists of numbers"):
        pair_of(np.ones(3) + 1j, np.ones(3))
