import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
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
