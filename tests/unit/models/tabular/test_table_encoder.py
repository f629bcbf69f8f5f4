"""The features of a row depend on that row and on public declarations, and their length is bounded by them."""

import datetime
import json
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.models.tabular import (
    CategoryColumn,
    ColumnEncoding,
    DateColumn,
    FlagColumn,
    NumberColumn,
    TableEncoder,
)

UTC = datetime.UTC
DAY = datetime.date
ENCODER = TableEncoder(
    (
        NumberColumn("age", -1.5, 100),
        NumberColumn("income", 0, 1e80, missing=False),
        NumberColumn("price", Decimal("0.10"), Decimal("99.90")),
        CategoryColumn("city", ["Rome", "Oslo", "München", ""]),
        CategoryColumn("code", [-1, 0.0, 2.5, 7]),
        CategoryColumn("held", [DAY(2024, 2, 29), datetime.datetime(2024, 3, 1, 12, tzinfo=UTC)]),
        FlagColumn("member"),
        DateColumn("born", DAY(1900, 1, 1), DAY(2024, 12, 31)),
        DateColumn("seen", "2020-01-01", "2024-12-31T12:30:00+02:00", hours=True),
    )
)
FLOATS = st.one_of(
    st.none(), st.floats(width=64), st.sampled_from([-0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, 2.5, 7])
)
TEXTS = st.one_of(st.none(), st.sampled_from(["Rome", "rome", "Oslo", "", "\x00"]), st.text(max_size=3))
MOMENTS = st.one_of(
    st.none(),
    st.datetimes(),
    st.sampled_from([datetime.datetime(2024, 2, 29), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)]),
)
TYPES = {
    "age": [pa.float64(), pa.float32(), pa.float16()],
    "income": [pa.float64(), pa.dictionary(pa.int8(), pa.float64())],
    "price": [pa.decimal128(8, 2), pa.decimal256(50, 3), pa.decimal64(9, 1)],
    "city": [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    "code": [pa.float64(), pa.int64(), pa.int8(), pa.uint64()],
    "held": [pa.timestamp("us"), pa.date32(), pa.timestamp("ns"), pa.timestamp("ms", "Europe/Rome")],
    "member": [pa.bool_(), pa.int16(), pa.float64()],
    "born": [pa.date32(), pa.date64(), pa.timestamp("s")],
    "seen": [pa.timestamp("us", "America/New_York"), pa.timestamp("us")],
}


def decimals(places: int) -> st.SearchStrategy:
    return st.none() | st.decimals(-9999, 9999, allow_nan=False, allow_infinity=False, places=places)


def far_times(kind: pa.DataType) -> st.SearchStrategy:
    """Return counts of the type's unit, over all of its range: years before 1 and after 9999 among them."""
    bits = 31 if pa.types.is_date32(kind) else 63
    return st.none() | st.integers(-(2**bits) + 1, 2**bits - 1) | st.integers(-(10**6), 10**6)


def column_of(name: str, kind: pa.DataType, rows: int, draw: st.DrawFn) -> pa.Array:
    """Return a column of hostile cells."""

    def cells(strategy: st.SearchStrategy) -> list:
        return draw(st.lists(strategy, min_size=rows, max_size=rows))

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_decimal(plain):
        column = pa.array(cells(decimals(plain.scale)), pa.decimal256(50, 3)).cast(plain)
    elif pa.types.is_floating(plain):
        floats = np.array([np.nan if value is None else value for value in cells(FLOATS)], np.float64)
        with np.errstate(all="ignore"):
            column = pa.array(floats.astype(plain.to_pandas_dtype()), mask=np.array(cells(st.booleans()), bool))
    elif pa.types.is_integer(plain):
        bounds = np.iinfo(plain.to_pandas_dtype())
        column = pa.array(cells(st.none() | st.integers(int(bounds.min), int(bounds.max)) | st.integers(0, 9)), plain)
    elif pa.types.is_boolean(plain):
        column = pa.array(cells(st.none() | st.booleans()), plain)
    elif pa.types.is_temporal(plain):
        whole = pa.int32() if pa.types.is_date32(plain) else pa.int64()
        column = pa.array(cells(far_times(plain)), whole).view(plain)
    else:
        column = pa.array(cells(TEXTS), plain)
    return column.dictionary_encode() if pa.types.is_dictionary(kind) else column


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    columns = {name: column_of(name, draw(st.sampled_from(kinds)), rows, draw) for name, kinds in TYPES.items()}
    return pa.table(columns)


def exact_lengths(features: np.ndarray) -> list[Fraction]:
    return [sum((Fraction(float(value)) ** 2 for value in row), Fraction(0)) for row in features]


@settings(max_examples=80, deadline=None)
@given(tables())
def test_no_cell_makes_encoding_fail_or_a_row_longer_than_declared(table: pa.Table) -> None:
    features = ENCODER.encode(table)

    assert features.shape == (table.num_rows, ENCODER.width)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert np.abs(features).max(initial=0) <= 1
    assert all(length <= Fraction(ENCODER.squared_length) for length in exact_lengths(features))
    for column in ENCODER.columns:
        part = column.encode(table.column(column.name))
        assert all(length <= Fraction(column.squared_length) for length in exact_lengths(part))


@settings(max_examples=40, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_a_row_is_encoded_by_itself_whatever_the_rows_around_it(table: pa.Table, random) -> None:
    whole = ENCODER.encode(table)
    order = list(range(table.num_rows))
    random.shuffle(order)
    cuts = sorted(random.sample(range(table.num_rows + 1), min(2, table.num_rows + 1)))

    alone = [ENCODER.encode(table.slice(place, 1)) for place in range(table.num_rows)]
    shuffled = ENCODER.encode(pa.concat_tables([table.slice(0, 0), *(table.slice(place, 1) for place in order)]))
    chunked = pa.concat_tables([table.slice(0, cuts[0]), table.slice(cuts[0])])

    assert np.array_equal(whole, np.concatenate([np.zeros((0, ENCODER.width), np.float32), *alone]))
    assert np.array_equal(whole[order], shuffled)
    assert np.array_equal(whole, ENCODER.encode(chunked))


def test_rows_are_written_alike_in_one_block_and_in_many() -> None:
    ages = np.arange(30_000) % 101.0
    table = pa.table({"age": ages, "city": pa.array(np.array(["Rome", "Oslo", "Bonn"])[np.arange(30_000) % 3])})
    encoder = TableEncoder(
        (NumberColumn("age", 0, 100), CategoryColumn("city", [*map(str, range(60)), "Rome", "Oslo"]))
    )

    features = encoder.encode(table)

    assert np.array_equal(features[:, 0], (ages / 50 - 1).astype(np.float32))
    assert features[:, 2:].sum(axis=1).tolist() == [1.0] * 30_000
    assert (features[0::3, 62] == 1).all() and (features[1::3, 63] == 1).all() and (features[2::3, 64] == 1).all()


def test_numbers_are_scaled_clipped_and_marked_where_missing() -> None:
    column = NumberColumn("x", 10, 20)
    cells = [10, 15, 20, 25, -1e300, np.inf, -np.inf, np.nan, None]

    features = column.encode(pa.array(cells, pa.float64()))

    assert features.tolist() == [[-1, 0], [0, 0], [1, 0], [1, 0], [-1, 0], [1, 0], [-1, 0], [0, 1], [0, 1]]
    assert NumberColumn("x", 10, 20, missing=False).encode(pa.array([None, 12.5])).tolist() == [[0], [-0.5]]


@pytest.mark.parametrize(
    ("levels", "column", "expected"),
    [
        ([0, 1], pa.array([-0.0, 1.0, None, 2.0]), [0, 1, 2, 2]),
        ([0.0, True], pa.array([0, 1, 3], pa.uint8()), [0, 1, 2]),
        ([False, True], pa.array([True, False, None]), [1, 0, 2]),
        ([1, 0], pa.array([True, False, None]), [0, 1, 2]),
        ([0.1, 1], pa.array([Decimal("0.10"), Decimal("1.00"), Decimal("1.01")]), [0, 1, 2]),
        ([2**53 + 1, 2**53], pa.array([2**53, 2**53 + 1, 2**53 + 2]), [1, 0, 2]),
        (["a", "other"], pa.array(["other", "A", "a"]).dictionary_encode(), [1, 2, 0]),
        ([DAY(2024, 1, 1)], pa.array([DAY(2024, 1, 1), None]), [0, 1]),
    ],
)
def test_categories_compare_canonical_cells(levels: list, column: pa.Array, expected: list) -> None:
    features = CategoryColumn("c", levels).encode(column)

    assert features.argmax(axis=1).tolist() == expected
    assert features.sum(axis=1).tolist() == [1.0] * len(column)


def test_dates_become_position_month_weekday_and_hour() -> None:
    column = DateColumn("when", DAY(2024, 1, 1), DAY(2024, 12, 31), hours=True)
    moments = [datetime.datetime(2024, 4, 6, 6, 59), datetime.datetime(1990, 1, 1), datetime.datetime(3000, 1, 1), None]

    features = dict(zip(column.names_out, column.encode(pa.array(moments)).T.tolist(), strict=True))

    assert features["when"][1:] == [-1, 1, 0]
    assert abs(features["when"][0] - (2 * 96 / 365 - 1)) < 0.01
    assert features["when=month sine"] == [1, 0, 0, 0]
    assert features["when=month cosine"] == [0, 1, 1, 0]
    assert features["when=Saturday"] == [1, 0, 0, 0]
    assert features["when=Monday"] == [0, 1, 0, 0]
    assert features["when=hour sine"] == [1, 0, 0, 0]
    assert features["when=hour cosine"] == [0, 1, 1, 0]
    assert features["when=missing"] == [0, 0, 0, 1]


def test_a_moment_is_encoded_alike_in_every_zone_and_unit() -> None:
    column = DateColumn("when", DAY(2024, 1, 1), DAY(2024, 12, 31), hours=True)
    moment = datetime.datetime(2024, 6, 1, 23, 30, tzinfo=UTC)
    kinds = [pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ms", "UTC")]

    rows = [column.encode(pa.array([moment], kind)).tolist() for kind in kinds]

    assert all(row == rows[0] for row in rows)


@pytest.mark.parametrize("column", ENCODER.columns, ids=lambda column: column.name)
def test_a_column_survives_json_and_pickle(column: ColumnEncoding) -> None:
    assert ColumnEncoding.from_json(json.loads(json.dumps(column.to_json()))) == column
    assert pickle.loads(pickle.dumps(column)) == column


def test_an_encoder_survives_json_and_pickle() -> None:
    assert TableEncoder.from_json(json.loads(json.dumps(ENCODER.to_json()))) == ENCODER
    assert pickle.loads(pickle.dumps(ENCODER)) == ENCODER
    levels = CategoryColumn("c", [Decimal("0.10"), Decimal("7")])
    assert ColumnEncoding.from_json(json.loads(json.dumps(levels.to_json()))).levels == (Decimal("0.10"), Decimal("7"))


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2, "columns": []},
        {"format": 1, "columns": []},
        {"format": 1, "columns": [{"kind": "odd", "name": "x"}]},
        {"format": 1, "columns": [{"kind": "number", "name": "x", "low": "a", "high": 2, "missing": True}]},
        {"format": 1, "columns": [{"kind": "number", "name": "x", "low": 1, "high": 2, "missing": 3}]},
        {"format": 1, "columns": [{"kind": "category", "name": "x", "levels": [{"decimal": 3}]}]},
        {"format": 1, "columns": [{"kind": "category", "name": "x", "levels": "ab"}, {"kind": "flag", "name": "x"}]},
        {"format": 1, "columns": [{"kind": "date", "name": "x", "start": 3, "end": "2020", "hours": True}]},
        {"format": 1, "columns": [{"kind": "flag", "name": 3}]},
    ],
)
def test_a_damaged_document_is_refused(damage: dict) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        TableEncoder.from_json(damage)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NumberColumn("x", 2, 1), "low below high"),
        (lambda: NumberColumn("x", 1, 1), "low below high"),
        (lambda: NumberColumn("x", 0, np.inf), "low below high"),
        (lambda: NumberColumn("x", 0, np.nan), "low below high"),
        (lambda: NumberColumn("x", "0", "1"), "low below high"),
        (lambda: CategoryColumn("x", []), "at least one level"),
        (lambda: CategoryColumn("x", "abc"), "list of levels"),
        (lambda: CategoryColumn("x", {"a", "b"}), "list of levels"),
        (lambda: CategoryColumn("x", [1, True]), "once"),
        (lambda: CategoryColumn("x", [0.0, -0.0]), "once"),
        (lambda: CategoryColumn("x", [0.1, Decimal("0.1")]), "once"),
        (lambda: CategoryColumn("x", [DAY(2024, 1, 1), datetime.datetime(2024, 1, 1)]), "once"),
        (lambda: CategoryColumn("x", ["a", None]), "other"),
        (lambda: CategoryColumn("x", [1.0, np.nan]), "other"),
        (lambda: CategoryColumn("x", [1.0, np.inf]), "other"),
        (lambda: CategoryColumn("x", [np.datetime64("NaT")]), "other"),
        (lambda: CategoryColumn("x", ["\ud800"]), "other"),
        (lambda: CategoryColumn("x", ["a", 1]), "one kind"),
        (lambda: CategoryColumn("x", range(2**16 + 1)), "at most"),
        (lambda: DateColumn("x", DAY(2024, 1, 2), DAY(2024, 1, 1)), "start before its end"),
        (lambda: DateColumn("x", "soon", "later"), "start before its end"),
        (lambda: DateColumn("x", np.datetime64("NaT"), DAY(2024, 1, 1)), "start before its end"),
        (lambda: FlagColumn(""), "name of a column"),
        (lambda: TableEncoder(()), "at least one"),
        (lambda: TableEncoder((FlagColumn("x"), NumberColumn("x", 0, 1))), "declared once"),
    ],
)
def test_a_wrong_declaration_is_refused_in_a_sentence(make, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        make()


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (NumberColumn("x", 0, 1), pa.array(["1"])),
        (NumberColumn("x", 0, 1), pa.array([b"1"])),
        (FlagColumn("x"), pa.array(["true"])),
        (CategoryColumn("x", ["a"]), pa.array([1])),
        (CategoryColumn("x", [1]), pa.array(["1"])),
        (CategoryColumn("x", [2**53 + 1]), pa.array([1.0])),
        (DateColumn("x", "2020-01-01", "2021-01-01"), pa.array(["2020-01-01"])),
        (NumberColumn("x", 0, 1), pa.array([datetime.timedelta(1)])),
    ],
)
def test_a_type_that_does_not_fit_is_refused_whatever_the_cells(column: ColumnEncoding, cells: pa.Array) -> None:
    for rows in (cells, cells[:0], pa.nulls(2, cells.type)):
        with pytest.raises(InvalidRequest, match=r"'?x'?"):
            TableEncoder((column,)).encode(pa.table({"x": rows}))


def test_a_column_of_nulls_without_a_type_is_missing() -> None:
    table = pa.table({name: pa.nulls(2) for name in ENCODER.names_in})

    features = dict(zip(ENCODER.names_out, ENCODER.encode(table).T.tolist(), strict=True))

    assert features["age=missing"] == features["city=other"] == features["born=missing"] == [1, 1]
    assert features["member"] == features["income"] == [0, 0]


def test_missing_and_repeated_columns_of_a_table_are_errors_and_others_are_ignored() -> None:
    encoder = TableEncoder((FlagColumn("b"), FlagColumn("a")))
    truth = pa.array([True])

    assert encoder.encode(pa.table({"a": [False], "spare": ["x"], "b": truth})).tolist() == [[1.0, -1.0]]
    with pytest.raises(InvalidRequest, match="'a' in the table"):
        encoder.encode(pa.table({"b": truth}))
    with pytest.raises(InvalidRequest, match="without repeats"):
        encoder.encode(pa.Table.from_arrays([truth, truth, truth], names=["a", "b", "a"]))


def test_every_feature_has_its_own_name() -> None:
    encoder = TableEncoder((NumberColumn("age", 0, 1), FlagColumn("age=missing"), CategoryColumn("c", ["other"])))

    assert encoder.names_out == ("age", "age=missing", "age=missing (2)", "c='other'", "c=other")
    assert len(set(ENCODER.names_out)) == ENCODER.width
