import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.stats.hypothesis.labels import coded, labels_of


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
    codes = coded(labels_of(values))

    assert codes[0] == codes[2] != codes[3]
    assert codes.min() == 0


def test_arrays_of_one_type_and_lists_tell_the_same_groups_apart():
    drawn = np.random.default_rng(3).integers(0, 7, 60)

    for array in (drawn, drawn.astype(str), drawn.astype("datetime64[D]"), drawn.astype(float)):
        np.testing.assert_array_equal(same(coded(labels_of(array))), same(coded(labels_of(list(array)))))


def test_codes_have_no_gaps_and_rows_in_no_group_stay_out():
    assert coded(np.array([-2, 8, -1, 5])).tolist() == [-1, 1, -1, 0]
    assert coded(np.array([], np.int64)).tolist() == []
    assert coded(np.array([[], {}, "a"], object)).tolist() == [-1, -1, 0]


def test_records_are_labels():
    records = np.array([(1, "a"), (1, "b"), (1, "a")], dtype=[("n", int), ("t", "U1")])

    assert coded(labels_of(records)).tolist() == [0, 1, 0]


@pytest.mark.parametrize("values", ["abc", np.zeros((2, 2)), 5, {"a": 1}])
def test_what_is_no_list_becomes_no_list(values):
    assert labels_of(values).ndim != 1


def test_masked_labels_are_refused():
    with pytest.raises(InvalidRequest):
        labels_of(np.ma.array([1, 2], mask=[0, 1]))
