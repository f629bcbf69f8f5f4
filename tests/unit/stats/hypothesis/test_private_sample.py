import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.data.canonical_cell import float_cells
from expost.stats.hypothesis.hypothesis_input import check_values
from expost.stats.hypothesis.private_sample import (
    GRID,
    encode_categories,
    encode_labels,
    read_labels,
    read_private_pair,
    read_private_truths,
    round_to_grid,
)


def batch(**columns):
    return pa.record_batch(columns)


def test_nothing_in_a_row_can_raise():
    rows = batch(x=pa.array([1, None, 300], pa.int16()), s=pa.array(["a", None, "c"]).dictionary_encode())

    assert (encode_categories(rows, "x", (10**12,)) == -1).all()
    assert encode_categories(rows, "s", ("c", "a")).tolist() == [1, -1, 0]
    assert np.isnan(float_cells(rows.column("x"))[1])
    assert round_to_grid(float_cells(rows.column("x")), (0, 2)).tolist() == [0, 0, GRID // 2]
    assert round_to_grid([np.inf, -np.inf], (0, 2)).tolist() == [GRID // 2, -GRID // 2]


@pytest.mark.parametrize(
    "bounds", [(-1e308, 1e308), (0, float("inf")), (float("nan"), 1), (1, 1), (2, 1), (-1.7e308, 0.9e308)]
)
def test_bounds_without_a_finite_width_are_refused(bounds):
    with pytest.raises(InvalidRequest, match="finite width"):
        round_to_grid([1e308], bounds)


def test_values_between_the_widest_and_the_narrowest_bounds_stay_on_the_lattice():
    extremes = [-np.inf, -1e308, -1.0, 0.0, 5e-324, 1.0, 1e308, np.inf, np.nan]
    for bounds in ((-8e307, 8e307), (1e308, 1.7e308), (0.0, 5e-324), (1.0, np.nextafter(1.0, 2.0))):
        assert np.abs(round_to_grid(extremes, bounds)).max() <= GRID // 2
    assert round_to_grid([np.nan], (1e308, 1.7e308)).tolist() == [0]


def test_decimals_and_booleans_are_numbers():
    import decimal

    rows = batch(d=pa.array([decimal.Decimal("1.5"), None]), b=pa.array([True, False]))

    assert float_cells(rows.column("d"))[0] == 1.5
    assert float_cells(rows.column("b")).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("column", "value"), [("n", "x"), ("n", True), ("s", 1), ("b", 1), ("t", 0)])
def test_values_of_another_kind_are_refused_without_reading_rows(column, value):
    table = pa.table({"n": [1], "s": ["a"], "b": [True], "t": pa.array([0], pa.timestamp("s"))})

    with pytest.raises(InvalidRequest, match="column that holds"):
        check_values(Dataset(table), column, [value])


def test_truths_are_read_from_any_number():
    assert read_private_truths([0.0, 2.0, float("nan")]).tolist() == [False, True, False]
    assert read_private_truths([1, "yes", None, [1]]).tolist() == [True, False, False, False]
    for typed in (np.array(["yes"]), np.ones((2, 2)), None, "yes"):
        with pytest.raises(InvalidRequest):
            read_private_truths(typed)


@pytest.mark.parametrize(
    "pair",
    [([1, 2], [1]), (np.ones((1, 1)), np.ones((1, 1))), (np.array(["a-secret"]), [1]), (None, None)],
    ids=["lengths", "tables", "texts", "nothing"],
)
def test_what_is_no_pair_of_lists_of_numbers_is_refused_without_its_values(pair):
    with pytest.raises(InvalidRequest, match="two lists of numbers") as refusal:
        read_private_pair(*pair)
    assert "a-secret" not in str(refusal.value)


def test_a_cell_of_a_list_that_is_not_a_number_is_missing_and_changes_no_other_cell():
    first, second = read_private_pair([1, "a", None, 2**70, 1j], [1, 2, 3, 4, 5])
    assert np.array_equal(first, [1, np.nan, np.nan, 2.0**70, np.nan], equal_nan=True)
    assert second.tolist() == [1, 2, 3, 4, 5]


def test_complex_numbers_are_refused_without_a_word_of_their_cells():
    with pytest.raises(InvalidRequest, match="lists of numbers"):
        read_private_pair(np.ones(3) + 1j, np.ones(3))


def same(codes):
    """Which pairs of rows are of one group."""
    return (codes[:, None] == codes) & (codes >= 0)


@pytest.mark.parametrize(
    "values",
    [
        ["x", "y", "x", "z"],
        [1.5, 2.5, 1.5, 3.5],
        [True, False, True, None],
        [None, float("nan"), None, "a"],
        [("a", 1), ("a", 2), ("a", 1), ()],
    ],
)
def test_equal_cells_are_one_group_whatever_their_type(values):
    codes = encode_labels(read_labels(values))

    assert codes[0] == codes[2] != codes[3]
    assert codes.min() == 0


def test_arrays_of_one_type_and_lists_tell_the_same_groups_apart():
    drawn = np.random.default_rng(3).integers(0, 7, 60)

    for array in (drawn, drawn.astype(str), drawn.astype("datetime64[D]"), drawn.astype(float)):
        np.testing.assert_array_equal(
            same(encode_labels(read_labels(array))), same(encode_labels(read_labels(list(array))))
        )


def test_codes_have_no_gaps_and_rows_in_no_group_stay_out():
    assert encode_labels(np.array([-2, 8, -1, 5])).tolist() == [-1, 1, -1, 0]
    assert encode_labels(np.array([], np.int64)).tolist() == []
    assert encode_labels(np.array([[], {}, "a"], object)).tolist() == [-1, -1, 0]


def test_records_are_labels():
    records = np.array([(1, "a"), (1, "b"), (1, "a")], dtype=[("n", int), ("t", "U1")])

    assert encode_labels(read_labels(records)).tolist() == [0, 1, 0]


@pytest.mark.parametrize("values", ["abc", np.zeros((2, 2)), 5, {"a": 1}])
def test_what_is_no_list_becomes_no_list(values):
    assert read_labels(values).ndim != 1


def test_masked_labels_are_refused():
    with pytest.raises(InvalidRequest):
        read_labels(np.ma.array([1, 2], mask=[0, 1]))
