"""Keys that occur, exactly as they are stored, and none that cannot be said."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Unit
from expost.data import col
from expost.data.axis import FoundKeys
from expost.data.canonical_cell import canonical_batch
from expost.data.engines import ArrowEngine
from expost.data.engines.engine import CanonicalEngine
from expost.data.exact_total import find_keys
from expost.data.tally import Tally


def keys(column: pa.Array, **parts) -> list[object]:
    table = pa.table({"k": column, "who": pa.array(["a", None] * (len(column) // 2) + ["a"] * (len(column) % 2))})
    tally = Tally(unit=parts.get("unit", Unit.row()), where=~col("k").is_missing())
    return list(find_keys(CanonicalEngine(ArrowEngine(table)), tally, col("k")).labels)


def test_large_whole_keys_are_told_apart() -> None:
    assert keys(pa.array([2**53 + 1, 2**53, None, 2**53])) == [2**53, 2**53 + 1]


def test_times_beyond_the_calendar_are_no_keys_and_nothing_fails() -> None:
    times = pa.array([2**61, 0, None, -(2**61)], pa.timestamp("us"))

    assert keys(times) == [datetime.datetime(1970, 1, 1)]


def test_rows_without_an_id_open_no_group() -> None:
    assert keys(pa.array(["x", "y", "z"]), unit=Unit.of("who")) == ["x", "z"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([f"k{k % 300}" for k in range(900)] + [None, "x" * 5000]),
        pa.array([*range(-200, 200), 2**62, None]),
        pa.array([*range(300), 2**63, 2**64 - 1, None], pa.uint64()),
        pa.array([k / 7 for k in range(-300, 300)] + [-0.0, float("inf"), float("-inf"), float("nan"), None]),
        pa.array([*range(0, 10**9, 10**7), None], pa.timestamp("us")),
    ],
    ids=["texts", "integers", "unsigned", "reals", "times"],
)
def test_many_keys_are_found_where_few_would_be(column: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"k": column})
    found = find_keys(CanonicalEngine(ArrowEngine(table)), Tally(key=b"secret", where=~col("k").is_missing()), col("k"))
    batch = canonical_batch(pa.record_batch({"k": pa.concat_arrays([column.slice(3), column])}))
    few = found.codes(batch, {})
    monkeypatch.setattr("expost.data.axis._FEW", 1)
    many = FoundKeys(found.expression, found.column.filter(pa.array(np.arange(found.size) != 5)), b"secret")

    assert many._sorted_words is not None
    expected = np.where(few == 5, -1, few - (few > 5))
    assert many.codes(batch, {}).tolist() == expected.tolist()
