"""A tally is a pure function of a batch: filter, cell, clamp, add."""

import numpy as np
import pyarrow as pa

from expost.core import Unit
from expost.data import col
from expost.data.axis import Categories
from expost.data.clamp import Clamp
from expost.data.tally import Measured, Tally

BATCH = pa.record_batch(
    {
        "city": ["a", "b", "a", None, "c", "a"],
        "age": pa.array([10, 20, None, 40, 50, 999], pa.int32()),
        "who": ["x", "y", "x", "z", None, "x"],
    }
)
AGE = Measured(col("age"), Clamp.of((0, 100), whole=True))


def test_rows_outside_filter_categories_and_numbers_are_left_out() -> None:
    tally = Tally((AGE,), (Categories.of(col("city"), ["a", "b"]),), where=col("age") > 15, degree=2)

    sums = tally.sum_atoms(tally.read_atoms(BATCH))

    assert sums.rows.tolist() == [1, 1]
    assert sums.first.tolist() == [[100, 20]]
    assert sums.second.tolist() == [[10_000, 400]]


def test_rows_without_an_id_belong_to_nobody() -> None:
    tally = Tally(unit=Unit.of("who"), key=b"k")

    assert len(tally.read_atoms(BATCH)) == 5


def test_only_the_columns_that_matter_are_read() -> None:
    derived = {"double": col("age") * 2}
    tally = Tally((Measured(col("double"), Clamp.of((0, 9))),), where=col("city") == "a", derived=derived)

    assert tally.columns == ("age", "city")


def test_cells_of_several_axes_are_numbered_row_by_row() -> None:
    axes = Categories.of(col("city"), ["a", "b"]), Categories.of(col("who"), ["x", "y", "z"])

    sums = Tally(axes=axes).sum_atoms(Tally(axes=axes).read_atoms(BATCH))

    assert sums.rows.tolist() == [3, 0, 0, 0, 1, 0]


def test_an_id_within_a_window_is_a_unit_of_its_own() -> None:
    times = np.array(["2013-01-06T23:00", "2013-01-07T01:00", "2013-01-13T23:00", "NaT"], "datetime64[us]")
    batch = pa.record_batch({"who": ["x"] * 4, "when": times})
    words = Tally(unit=Unit.of("who", per="week", time="when"), key=b"k").read_atoms(batch).words

    assert [len(set(word.tolist())) for word in words] == [1, 1, 2]  # Sunday, then Monday to Sunday
