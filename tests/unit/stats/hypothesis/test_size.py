import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats.hypothesis import (
    anova_test,
    binomial_test,
    fit_test,
    independence_test,
    mean_difference_test,
    split_test,
)
from expost.stats.hypothesis.size import TableSize

TABLE = pa.table({"x": [1.0, 2.0]})


def test_what_is_public_depends_on_the_neighbours():
    public = TableSize.of_dataset(Dataset(TABLE, adjacency="replace-one", rows=2), expected_rows=9)
    private = TableSize.of_dataset(Dataset(TABLE), expected_rows=9)

    assert (public.rows, public.priced_rows, public.cell_sensitivity) == (2, 2, 2)
    assert (private.rows, private.priced_rows, private.cell_sensitivity) == (None, 9, 1)
    assert private.terms == {"rows": "private", "rows expected": 9}


def test_a_filtered_table_has_no_public_size():
    view = Dataset(TABLE, adjacency="replace-one", rows=2).where("x > 1")

    with pytest.raises(InvalidRequest, match="public number of rows"):
        TableSize.of_dataset(view)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_a_guess_is_a_positive_whole_number(wrong):
    with pytest.raises(InvalidRequest, match="expected_rows"):
        TableSize.of(5, adjacency="add-remove", expected_rows=wrong)


SAMPLES = {  # each test on a table, or a group, of so many rows
    "proportion": lambda rows, **named: binomial_test(np.ones(rows), 0.5, **named),
    "two means": lambda rows, **named: mean_difference_test(np.ones(rows), np.zeros(9), bounds=(0, 1), **named),
    "several means": lambda rows, **named: anova_test(*[np.ones(rows)] * 3, bounds=(0, 1), **named),
    "given probabilities": lambda rows, **named: fit_test([rows, 0], [0.5, 0.5], **named),
    "independence": lambda rows, **named: independence_test([[rows, 0], [0, 0]], **named),
    "split test": lambda rows, **named: split_test("means", np.ones(rows), np.arange(rows), **named),
}


@pytest.mark.parametrize("test", SAMPLES.values(), ids=SAMPLES)
def test_a_private_number_of_rows_is_not_told_by_a_refusal(test):
    for rows in (0, 1, 2):
        assert 0 < test(rows, adjacency="add-remove", epsilon=1, bits=SeededBits(rows)).value.p_value <= 1


@pytest.mark.parametrize("test", SAMPLES.values(), ids=SAMPLES)
def test_no_rows_are_refused_where_their_number_is_public(test):
    with pytest.raises(InvalidRequest, match="Expected"):
        test(0, adjacency="replace-one", epsilon=1)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("wrong", [np.array(["yes"]), np.ones((1, 2)), 1j, "text", None])
def test_what_is_no_sample_is_refused_whatever_is_public(wrong, adjacency):
    calls = [
        lambda **named: binomial_test(wrong, 0.5, **named),
        lambda **named: mean_difference_test(wrong, np.zeros(9), bounds=(0, 1), **named),
        lambda **named: anova_test(wrong, np.zeros(9), bounds=(0, 1), **named),
        lambda **named: fit_test(wrong, [0.5, 0.5], **named),
        lambda **named: independence_test(wrong, **named),
        lambda **named: split_test("means", wrong, wrong, **named),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest, match="Expected"):
            call(adjacency=adjacency, epsilon=1)
