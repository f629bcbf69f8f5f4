"""Keys that occur, exactly as they are stored, and none that cannot be said."""

import datetime

import pyarrow as pa

from expost.core import Unit
from expost.data import col
from expost.data.engines import ArrowEngine
from expost.data.engines.canonical_engine import CanonicalEngine
from expost.data.keys import found_keys
from expost.data.tally import Tally


def keys(column: pa.Array, **parts) -> list[object]:
    table = pa.table({"k": column, "who": pa.array(["a", None] * (len(column) // 2) + ["a"] * (len(column) % 2))})
    tally = Tally(unit=parts.get("unit", Unit.row()), where=~col("k").is_missing())
    return list(found_keys(CanonicalEngine(ArrowEngine(table)), tally, col("k")).labels)


def test_large_whole_keys_are_told_apart() -> None:
    assert keys(pa.array([2**53 + 1, 2**53, None, 2**53])) == [2**53, 2**53 + 1]


def test_times_beyond_the_calendar_are_no_keys_and_nothing_fails() -> None:
    times = pa.array([2**61, 0, None, -(2**61)], pa.timestamp("us"))

    assert keys(times) == [datetime.datetime(1970, 1, 1)]


def test_rows_without_an_id_open_no_group() -> None:
    assert keys(pa.array(["x", "y", "z"]), unit=Unit.of("who")) == ["x", "z"]
