"""No row makes an expression fail; what cannot be computed is missing."""

import datetime
import warnings

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.data import Schema, col
from expost.data.axis import Categories
from expost.data.canonical_cell import Kind
from expost.data.cell_values import Numbers, Truths
from expost.data.evaluation import evaluate
from expost.data.expression import Expression, Lookup
from expost.data.sql_expression import parse_sql
from expost.data.table_schema import check_filter, kind_of

WILD = pa.record_batch(
    {
        "i": pa.array([0, -1, None, 2**62, -(2**63)], pa.int64()),
        "u": pa.array([0, 1, None, 2**64 - 1, 7], pa.uint64()),
        "r": pa.array([0.0, float("nan"), None, float("inf"), -1e308]),
        "s": pa.array(["", "12.5", None, "1e999", "abc"]),
        "b": pa.array([True, False, None, True, False]),
        "t": pa.array([0, 2**62, None, -(2**62), 1_356_998_400_000_000], pa.timestamp("us")),
        "d": pa.array([0, 15_000, None, -800_000, 1], pa.date32()),
    }
)
SCHEMA = Schema.of(WILD.schema)


def truths(expression: Expression) -> list[bool | None]:
    found = evaluate(expression, WILD)
    assert isinstance(found, Truths)
    return [bool(true) if known else None for true, known in zip(found.true, found.known, strict=True)]


def numbers(expression: Expression) -> list[float | None]:
    found = evaluate(expression, WILD)
    assert isinstance(found, Numbers)
    return [None if np.isnan(number) else float(number) for number in found.numbers]


def test_division_by_zero_overflow_and_nan_are_missing() -> None:
    assert numbers(1 / col("i")) == [None, -1.0, None, 1 / 2**62, -1 / 2**63]
    assert numbers(col("r") * 1e10)[3:] == [None, None]
    assert numbers(col("i") % 0) == [None] * 5


def test_a_text_that_spells_no_number_is_missing() -> None:
    assert numbers(col("s").as_number()) == [None, 12.5, None, None, None]


def test_comparisons_with_missing_values_are_unknown_and_logic_is_three_valued() -> None:
    assert truths(col("r") > 0) == [False, None, None, True, False]
    assert truths((col("r") > 0) | (col("i") <= 0)) == [True, True, None, True, True]
    assert truths((col("r") > 0) & (col("i") > 0)) == [False, False, None, True, False]
    assert truths(~(col("r") > 0)) == [True, None, None, False, True]
    assert truths(col("r").is_missing()) == [False, True, True, False, False]


def test_in_and_fill_and_text_functions() -> None:
    assert truths(col("s").isin(["abc", "12.5"])) == [False, True, None, False, True]
    assert numbers(col("i").fill(5))[2] == 5.0
    assert truths(col("s").upper() == "ABC") == [False, False, None, False, True]
    assert numbers(col("s").length()) == [0.0, 4.0, None, 5.0, 3.0]
    assert truths(col("s").contains("b")) == [False, False, None, False, True]


def test_calendar_parts_are_those_of_utc() -> None:
    batch = pa.record_batch({"t": pa.array([datetime.datetime(2013, 2, 3, 4, 5)], pa.timestamp("ms"))})
    parts = [col("t").year(), col("t").month(), col("t").day(), col("t").hour(), col("t").weekday()]

    assert [evaluate(part, batch).numbers.tolist() for part in parts] == [[2013], [2], [3], [4], [7]]


def test_times_compare_with_constants() -> None:
    assert truths(col("t") >= datetime.date(2013, 1, 1)) == [False, True, None, False, True]
    assert truths(parse_sql("t < TIMESTAMP '1970-01-02'"))[0] is True


def test_a_lookup_misses_what_the_public_table_does_not_list() -> None:
    found = evaluate(Lookup(col("s"), ("abc", "12.5"), (1, 2), label="x"), WILD)

    assert found.missing.tolist() == [True, False, True, True, False]


@pytest.mark.parametrize(
    "expression",
    [
        col("s") * 2,
        col("s") > 1,
        col("i") & (col("r") > 1),
        col("i").lower(),
        col("i").year(),
        col("t").as_number(),
        col("s").contains(col("s")),
        col("nowhere") > 1,
        col("b").isin(["x"]),
    ],
    ids=repr,
)
def test_nonsense_is_refused_before_any_row_is_read(expression: Expression) -> None:
    with pytest.raises(InvalidRequest):
        kind_of(expression, SCHEMA)


def test_a_filter_must_be_a_condition() -> None:
    with pytest.raises(InvalidRequest, match="condition"):
        check_filter(col("i") + 1, SCHEMA)


LEAVES = st.sampled_from([col("i"), col("u"), col("r"), col("b")]) | st.floats(-1e300, 1e300).map(
    lambda number: col("r") * 0 + number
)


@settings(max_examples=60)
@given(
    st.recursive(
        LEAVES,
        lambda inner: st.tuples(st.sampled_from("+-*/%"), inner, inner).map(
            lambda three: getattr(
                three[1], {"+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__", "%": "__mod__"}[three[0]]
            )(three[2])
        ),
        max_leaves=8,
    )
)
def test_no_arithmetic_raises_or_warns_on_wild_rows(expression: Expression) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(expression > 0, WILD)

    assert len(found.missing) == WILD.num_rows


def test_bytes_that_are_no_text_pass_through() -> None:
    data = pa.py_buffer(b"\xff\xfe1.5a")
    broken = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 2, 5, 6], np.int32).tobytes()), data)
    batch = pa.record_batch({"s": broken})

    for expression in (
        col("s").lower() == "a",
        col("s").as_number() > 1,
        col("s").contains("a"),
        col("s").starts_with("1"),
        col("s").isin(["a"]),
        col("s").length() > 1,
    ):
        assert len(evaluate(expression, batch).missing) == 3


def test_null_in_a_list_follows_sql() -> None:
    rows = pa.table({"x": pa.array([1, 2, None], pa.int32()), "t": ["a", "b", None]})
    batch = rows.to_batches()[0]
    connection = duckdb.connect()
    connection.register("rows", rows)

    for text in (
        "x IN (1, NULL)",
        "x NOT IN (1, NULL)",
        "x NOT IN (1)",
        "x NOT IN (3, NULL) OR x = 2",
        "t NOT IN ('a', NULL)",
        "t IN ('a', NULL)",
        "(t IN ('b', NULL)) IS NULL",
    ):
        condition = connection.sql(f"SELECT coalesce({text}, false) FROM rows").fetchall()
        assert [row[0] for row in condition] == evaluate(parse_sql(text), batch).certain.tolist(), text


def test_a_long_chain_of_conditions_is_computed() -> None:
    batch = pa.record_batch({"i": np.arange(4000)})
    chain = col("i") >= 0
    for k in range(3000):
        chain = chain & (col("i") != k)

    assert chain.depth == 2
    assert evaluate(chain, batch).certain.sum() == 1000
    text = parse_sql(" or ".join(f"i = {k}" for k in range(3000)))
    assert evaluate(text, batch).certain.sum() == 3000


def test_rows_find_their_entry_by_text_number_truth_and_time() -> None:
    moments = np.array(["2013-01-01", "2014-01-01", "NaT"], "datetime64[us]")
    batch = pa.record_batch({"t": ["a", "z", None], "n": [1.0, 3.0, None], "b": [True, False, None], "w": moments})
    found = {
        "t": Lookup(col("t"), ("a", "b"), (10, 20), label="v"),
        "n": Lookup(col("n"), (1, 2), (10, 20), label="v"),
        "b": Lookup(col("b"), (True,), (10,), label="v"),
        "w": Lookup(col("w"), (datetime.datetime(2013, 1, 1),), (10,), label="v"),
    }

    for lookup in found.values():
        values = evaluate(lookup, batch)
        assert values.missing.tolist() == [False, True, True]
        assert values.numbers[0] == 10


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("coalesce(NULL, s) = 'abc'", [4]),
        ("coalesce(s, NULL) = 'abc'", [4]),
        ("lower(coalesce(NULL, upper(s))) = 'abc'", [4]),
        ("coalesce(NULL, TRUE)", [0, 1, 2, 3, 4]),
        ("coalesce(coalesce(NULL, NULL), b)", [0, 3]),
        ("coalesce(b, NULL)", [0, 3]),
        ("coalesce(coalesce(NULL, b), TRUE)", [0, 2, 3]),
        ("coalesce(NULL, t) = TIMESTAMP '1970-01-01'", [0]),
        ("year(coalesce(NULL, t)) = 2013", [4]),
        ("coalesce(NULL, i) = 0", [0]),
        ("coalesce(r, TRUE) = 1", [1, 2]),
        ("coalesce(NULL, NULL) IS NULL", [0, 1, 2, 3, 4]),
        ("NULL IN ('a', 'b')", []),
        ("NOT (NULL = s) OR NULL", []),
        ("NULL + i > 0", []),
    ],
)
def test_null_is_of_the_kind_of_what_it_meets(text: str, kept: list[int]) -> None:
    condition = parse_sql(text)
    check_filter(condition, Schema.of(WILD.schema))

    assert np.flatnonzero(evaluate(condition, WILD).certain).tolist() == kept


def test_truths_filled_with_numbers_are_numbers() -> None:
    filled = col("b").fill(7)

    assert kind_of(filled, Schema.of(WILD.schema)) is Kind.REAL
    assert evaluate(filled, WILD).numbers.tolist() == [1, 0, 7, 1, 0]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-00:01"])
def test_a_moment_outside_of_all_years_is_refused_before_any_row_is_read(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_sql(f"t > TIMESTAMP '{text}'")
    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        col("t").isin([datetime.datetime.fromisoformat(text)])
    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        Categories.of(col("t"), [datetime.datetime.fromisoformat(text)])


def test_moments_are_compared_in_utc() -> None:
    assert (
        evaluate(parse_sql("t = TIMESTAMP '1970-01-01T02:00:00+02:00'"), WILD).certain.tolist() == [True] + [False] * 4
    )
