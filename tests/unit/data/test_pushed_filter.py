"""What a source filters by itself keeps every row that the whole filter keeps."""

from __future__ import annotations

import datetime
import math
import operator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost import Dataset, col
from expost.core import unseal
from expost.data.canonical_cell import Kind
from expost.data.engines.duckdb_engine import DuckEngine
from expost.data.expression import Expression, Literal
from expost.data.pushed_filter import SqlWriter, expand_columns, push_filter

KINDS = {"i": Kind.INTEGER, "f": Kind.REAL, "t": Kind.TEXT, "b": Kind.BOOLEAN, "w": Kind.TIME}
MOMENTS = [None, datetime.datetime(1, 1, 1), datetime.datetime(2013, 1, 1, 12), datetime.datetime(2013, 1, 2)]
TABLE = pa.table(
    {
        "i": pa.array([None, 0, 1, 2, 3, -(2**63), 2**63 - 1, 2**53 + 1] * 8, pa.int64()),
        "f": pa.array([math.nan, None, 0.0, -0.0, 0.1, 1.5, math.inf, -math.inf] * 8, pa.float64()),
        "t": pa.array(([None, "", "a", "A", "it's", "é", "ä", "a "] * 9)[3:67]),
        "b": pa.array(([None, True, False] * 22)[:64]),
        "w": pa.array((MOMENTS * 17)[3:67], pa.timestamp("us")),
        "narrow": pa.array([0.1, 1.5, None, 16_777_216.0] * 16, pa.float32()),
    }
)
CONSTANTS = {
    "i": [0, 1, 2.5, 3.0, -(2**62), 2**53, 1e300],
    "f": [0, 0.1, 1.5, -1, 2**52, 1e308],
    "t": ["a", "", "it's", "é", 'a"b'],
    "b": [True, False],
    "w": [datetime.datetime(2013, 1, 1, 12), datetime.date(2013, 1, 2)],
    "narrow": [0.1, 16_777_217],
}


def compare(name: str) -> st.SearchStrategy[Expression]:
    signs = ["=", "<>", "<", "<=", ">", ">="]
    build = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    return st.builds(
        lambda sign, value: getattr(col(name), build[sign])(value),
        st.sampled_from(signs if name not in "b" else signs[:2]),
        st.sampled_from(CONSTANTS[name]),
    )


LEAVES = st.one_of(
    *map(compare, CONSTANTS),
    st.sampled_from(list(KINDS)).map(lambda name: ~col(name).is_missing()),
    st.sampled_from(list(KINDS)).map(lambda name: col(name).is_missing()),
    st.builds(
        lambda name, size: col(name).is_in([*CONSTANTS[name][:size], None]),
        st.sampled_from(["i", "f", "t"]),
        st.integers(1, 3),
    ),
    st.just(col("b")),
    st.just(col("i") / 2 > col("f")),
    st.just(Literal(True)),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(condition=CONDITIONS)
def test_no_row_that_a_filter_keeps_is_left_out_by_the_source(files: list[str], condition: Expression) -> None:
    connection = duckdb.connect()
    connection.register("cells", TABLE)
    far, near = Dataset(DuckEngine(connection.sql("select * from cells"))), Dataset(TABLE)
    expected = unseal(near.where(condition).measure_rows())[0]

    assert unseal(far.where(condition).measure_rows())[0] == expected
    assert sum(batch.num_rows for batch in far.where(condition).batches(["i", "t"])) == expected
    narrow = far._engine.narrow(far.condition(condition))
    assert sum(batch.num_rows for batch in narrow.batches(["i"])) >= expected
    for file in files:
        stored = Dataset(file)
        assert unseal(stored.where(condition).measure_rows())[0] == expected
        assert sum(batch.num_rows for batch in stored.where(condition).batches(["i", "t"])) == expected


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The cells in row groups of one to sixty rows, in several orders."""
    folder, found = tmp_path_factory.mktemp("cells"), []
    orders = [np.arange(64), *(np.argsort(TABLE[name].to_pandas().rank().to_numpy()) for name in ("i", "f", "w"))]
    for place, order in enumerate(orders):
        found.append(str(folder / f"{place}.parquet"))
        pq.write_table(TABLE.take(pa.array(order)), found[-1], row_group_size=(1, 3, 7, 60)[place])
    return found


def test_row_groups_without_a_row_of_the_filter_are_not_read(tmp_path: Path) -> None:
    rows = pa.table({"day": pa.array(range(100)), "city": [f"{k:03d}" for k in range(100)]})
    for year in (2012, 2013):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(rows, tmp_path / f"year={year}" / "0.parquet", row_group_size=10)
    dataset = Dataset(tmp_path, types={"year": "integer"})

    def rows_read(condition: str) -> int:
        narrow = dataset._engine.narrow(dataset.condition(condition))
        assert sum(narrow.scan(operator.attrgetter("num_rows"), ["day"])) == sum(
            batch.num_rows for batch in narrow.batches(["day"])
        )
        return sum(batch.num_rows for batch in narrow.batches(["day"]))

    assert rows_read("year = 2013") == 100
    assert rows_read("year = 2013 and day >= 95") == 10
    assert rows_read("day < 10 or city = '055'") == 40
    assert rows_read("year in (1999, 2000)") == 0
    assert rows_read("day / 2 > 1000") == 200
    assert unseal(dataset.where("year = 2013 and day between 15 and 24").measure_rows())[0] == 10


def test_statistics_that_cannot_be_read_leave_nothing_out(tmp_path: Path) -> None:
    texts = pa.array([b"\xff", b"a", b"b"], pa.binary()).view(pa.string())
    far = pa.array([2**62, 0, 1], pa.int64()).view(pa.timestamp("ms"))
    pq.write_table(pa.table({"t": texts, "w": far, "f": [math.nan, 1.0, 2.0]}), tmp_path / "odd.parquet")
    dataset = Dataset(tmp_path / "odd.parquet")

    for condition, rows in (("t = 'a'", 1), ("w < '1971-01-01'", 2), ("f >= 1", 2), ("f < 0", 0)):
        assert unseal(dataset.where(condition).measure_rows())[0] == rows


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("i > 3 and f / 2 > 1", '"i" > 3'),
        ("i > 3 or f / 2 > 1", None),
        ("not (i > 3 or f / 2 > 1)", '"i" <= 3'),
        ("not (i > 3 and f / 2 > 1)", None),
        ("3 >= i", '"i" <= 3'),
        ("i > 2.5", None),  # floats and integers are compared in more than one way
        ("i = 9223372036854775808", None),
        ("t < 'b'", None),  # texts have more than one order
        ("t <> 'b'", None),  # and more than one equality
        ("t = 'it''s'", "\"t\" = 'it''s'"),
        ("t = 'ä'", None),
        ("b", '"b" = TRUE'),
        ("not b", '"b" = FALSE'),
        ("f in (1, NULL)", "\"f\" IN (CAST('1.0' AS double precision))"),
        ("f not in (1)", None),
        ("t is not null", '"t" IS NOT NULL'),
        ("t is null", None),
        ("w >= '2013-01-31'", "\"w\" >= TIMESTAMP '2013-01-31 00:00:00'"),
        ("twice > 3", None),
        ("same > 3", '"i" > 3'),
    ],
)
def test_a_part_is_pushed_only_if_a_source_decides_it_alike(condition: str, pushed: str | None) -> None:
    dataset = Dataset(TABLE, derive={"twice": "2 * i", "same": "i"})
    stored = expand_columns(dataset.condition(condition), dataset._derived)

    assert push_filter(stored, KINDS, SqlWriter()) == pushed
