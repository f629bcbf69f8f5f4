"""A dataset is its public description; what it adds up is sealed."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost import Session, epsilon
from expost.core import InvalidRequest, Sealed, Unit, unseal
from expost.data import Dataset, col
from expost.data.canonical_cell import Kind
from expost.data.sealed_form import CountForm, TotalForm
from expost.data.tally import Measured

TABLE = pa.table(
    {
        "age": [41, 17, 65, None],
        "city": ["a", "b", "a", "c"],
        "who": [1, 1, 2, 3],
        "when": [datetime.datetime(2013, 1, day) for day in (6, 7, 8, 31)],
        "list": [[1], [2], [3], [4]],
    }
)


ARROW_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()),
    pa.binary(),
    pa.large_binary(),
    pa.binary(3),
    pa.binary_view(),
    pa.decimal32(5, 2),
    pa.decimal128(30, 3),
    pa.decimal256(60, 3),
    pa.timestamp("s"),
    pa.timestamp("us", "Asia/Tokyo"),
    pa.timestamp("ns"),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.duration("ms"),
    pa.month_day_nano_interval(),
    pa.bool_(),
    pa.uint8(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.null(),
    pa.list_(pa.int8()),
    pa.large_list(pa.int8()),
    pa.list_(pa.int8(), 2),
    pa.struct([("a", pa.int8())]),
    pa.map_(pa.string(), pa.int8()),
]


def count(dataset: Dataset) -> int:
    return int(unseal(dataset.measure_total(CountForm(), dataset.tally(), secret=b"secret!!"))[0])


def test_the_schema_is_public_and_the_total_is_sealed() -> None:
    dataset = Dataset(TABLE)

    assert list(dataset.schema) == ["age", "city", "who", "when", "list"]
    assert isinstance(dataset.measure_rows(), Sealed)
    assert dataset.name is None
    assert "41" not in repr(dataset)


def test_a_file_names_its_dataset(tmp_path) -> None:
    pq.write_table(TABLE.drop_columns("list"), tmp_path / "people.parquet")

    assert Dataset(tmp_path / "people.parquet").name == "people"
    assert Dataset(str(tmp_path / "peop*.parquet")).name == "peop"


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"adjacency": "replace-one"}, "public number of rows"),
        ({"adjacency": "sideways"}, "adjacency"),
        ({"bounds": {"nowhere": (0, 1)}}, "name of a column"),
        ({"bounds": {"city": (0, 1)}}, "column of numbers"),
        ({"bounds": {"age": (9, 1)}}, "lower bound"),
        ({"categories": {"city": []}}, "categories"),
        ({"unit": "nowhere"}, "name of a column"),
        ({"max_rows_per_unit": 5}, "only with an id column"),
        ({"unit": "who", "max_rows_per_unit": 0}, "whole number"),
        ({"unit": Unit.of("who", per="day", time="age")}, "column of times"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(description, words) -> None:
    with pytest.raises(InvalidRequest, match=words):
        Dataset(TABLE, **description)


def test_a_view_filters_and_keeps_the_name() -> None:
    dataset = Dataset(TABLE, name="people")

    assert count(dataset.where("age >= 18")) == 2
    assert count(dataset.where("age >= 18").where(col("city") == "a")) == 2
    assert dataset.where("age >= 18").name == "people"
    assert count(dataset) == 4


def test_derived_columns_are_columns() -> None:
    dataset = Dataset(TABLE).derive(old="age >= 18", double=col("age") * 2)

    assert count(dataset.where("old")) == 2
    assert str(dataset.schema.kind("double").value) == "real"
    with pytest.raises(InvalidRequest, match="new column"):
        dataset.derive(age="1")


def test_a_public_table_is_looked_up_without_losing_or_adding_rows() -> None:
    zones = pa.table({"city": ["a", "b"], "zone": ["north", "south"], "size": [1.5, None]})
    dataset = Dataset(TABLE).join(zones, on="city", prefix="city_")

    assert count(dataset) == 4
    assert count(dataset.where("city_zone = 'north'")) == 2
    assert count(dataset.where("city_size > 1")) == 2
    with pytest.raises(InvalidRequest, match="once in the public table"):
        Dataset(TABLE).join(pa.concat_tables([zones, zones]), on="city")


def test_joined_columns_bring_public_categories_and_bounds() -> None:
    facts = {
        "city": ["a", "b", "z", None],
        "zone": ["south", "north", None, "never"],
        "size": [1.5, None, 7.0, 99.0],
        "rank": [1, 1, 1, 2],
        "coast": [True, False, None, None],
        "price": [Decimal("0.10"), Decimal("2.00"), None, None],
        "big": [2**53 + 1, 3, 3, 3],
        "since": [datetime.datetime(2013, 1, 1), datetime.datetime(2012, 1, 1), None, None],
    }
    dataset = Dataset(TABLE, categories={"city": ["a", "b"]}).join(pa.table(facts), on="city", prefix="c_")

    assert dataset.axis("c_zone").values == ("north", "south")
    assert dataset.bounds == {"c_size": (1.5, 7.0), "c_price": (0.1, 2.0)}
    assert dataset.categories["c_rank"] == (1,) and dataset.categories["c_big"] == (3,)
    session = Session(dataset, epsilon(2000))
    assert dict(session.count(by="c_zone", epsilon=50).value) == {"north": 1, "south": 2}
    assert dict(session.count(by="c_price", epsilon=50).value) == {0.1: 2, 2.0: 1}
    assert dict(session.count(by="c_since", epsilon=50).value)[facts["since"][0]] == 2
    assert session.mean("c_size", epsilon=800).value == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("make", [pl.DataFrame, pl.LazyFrame, pd.DataFrame, pa.table, dict])
def test_every_kind_of_table_can_be_joined(make) -> None:
    zones = make({"city": ["a", "b"], "zone": ["north", "south"]})

    assert count(Dataset(TABLE).join(zones, on="city").where("zone = 'north'")) == 2


def test_columns_of_every_arrow_type_can_be_joined_or_are_left_out() -> None:
    texts = [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string_view())]
    for kind in texts:
        zones = pa.array(["north", "south"], pa.string_view()).cast(pa.string()).cast(kind)
        keys = pa.array(["a", "b"], pa.string()).cast(kind)
        assert (
            count(Dataset(TABLE).join(pa.table({"city": keys, "zone": zones}), on="city").where("zone = 'north'")) == 2
        )
    for kind in (pa.list_(pa.int8()), pa.binary_view(), pa.time32("s"), pa.null(), pa.duration("s"), pa.uuid()):
        public = pa.table({"city": ["a", "b"], "odd": pa.nulls(2, kind), "size": [1, 2]})
        assert list(Dataset(TABLE).join(public, on="city").schema)[-1] == "size"
        assert "odd" not in Dataset(TABLE).join(public, on="city").schema


def test_a_window_is_a_dataset_with_an_account_of_its_own() -> None:
    dataset = Dataset(TABLE, name="people", unit=Unit.of("who", per="week", time="when"), max_rows_per_unit=9)
    week = dataset.within_window("2013-01-09")

    assert week.name == "people@2013-01-07"
    assert count(week) == 2
    assert count(dataset.within_window("2013-01-31")) == 1
    with pytest.raises(InvalidRequest, match="time window"):
        Dataset(TABLE).within_window("2013-01-09")
    with pytest.raises(InvalidRequest, match="Expected a day"):
        dataset.within_window("soon")


def test_a_unit_needs_a_limit_only_where_rows_are_added_up() -> None:
    dataset = Dataset(TABLE, unit="who")

    with pytest.raises(InvalidRequest, match="limit on the rows"):
        dataset.measure_total(CountForm(), dataset.tally(), secret=b"s")
    assert unseal(dataset.measure_total(CountForm(), dataset.tally(), secret=b"secret!!", once=True)).tolist() == [3]


def test_bounds_come_from_the_question_or_the_description() -> None:
    dataset = Dataset(TABLE, bounds={"age": (0, 50)})
    clamp = dataset.clamp(col("age"))
    tally = dataset.tally(measured=(Measured(col("age"), clamp),), degree=1)

    assert unseal(dataset.measure_total(TotalForm(clamp), tally, secret=b"")).tolist() == [41 + 17 + 50]
    assert dataset.clamp(col("age"), (0, 9)).high == 9
    with pytest.raises(InvalidRequest, match="public bounds"):
        dataset.clamp(col("age") + 1)


def test_categories_of_a_truth_are_known() -> None:
    assert Dataset(TABLE).derive(old="age > 40").axis("old").labels == (False, True)
    with pytest.raises(InvalidRequest, match="public categories"):
        Dataset(TABLE).axis("city")


def test_the_identity_tells_tables_units_and_filters_apart(tmp_path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(TABLE.drop_columns("list"), path)
    plain = Dataset(path)

    assert plain.identity == Dataset(path).identity
    assert plain.identity != plain.where("age > 1").identity
    assert plain.identity != Dataset(path, unit="who", max_rows_per_unit=1).identity
    pq.write_table(TABLE.drop_columns("list").slice(1), path)
    assert plain.identity != Dataset(path).identity


WHEN = pa.array([datetime.datetime(2013, 1, 1)] * 2, pa.timestamp("us"))
PEOPLE = pa.table({"n": [1, 2], "x": [0.5, 1.5], "t": ["a", "b"], "w": WHEN})


@pytest.mark.parametrize(
    ("key", "entries"),
    [
        ("n", {"n": ["a", "b"], "v": [1, 2]}),
        ("t", {"t": [1, 2], "v": [1, 2]}),
        ("w", {"w": [1.0, 2.0], "v": [1, 2]}),
        ("n", {"n": WHEN[:1], "v": [1]}),
        ("n", {"n": [2**53, 2**53 + 1], "v": [1, 2]}),
        ("t", {"t": [["a"], ["b"]], "v": [1, 2]}),
        ("t", {"other": ["a"], "v": [1]}),
        ("t", {"t": ["a", "a"], "v": [1, 2]}),
    ],
)
def test_a_public_table_that_cannot_be_looked_up_is_refused_before_a_row_is_read(key, entries) -> None:
    with pytest.raises(InvalidRequest):
        Dataset(PEOPLE).join(pa.table(entries), on=key)


def test_times_are_keys_too_and_a_missing_key_finds_nothing() -> None:
    calendar = pa.table({"w": pa.array([datetime.datetime(2013, 1, 1), None], pa.timestamp("us")), "v": [7, 8]})
    rows = pa.table({"w": pa.array([datetime.datetime(2013, 1, 1), None], pa.timestamp("us"))})

    assert count(Dataset(rows).join(calendar, on="w").where("v = 7")) == 1
    assert count(Dataset(rows).join(calendar, on="w").where("v = 8")) == 0


@pytest.mark.parametrize(
    "categories",
    [{"t": "ab"}, {"t": 5}, {"t": [["a"]]}, {"t": [1, 2]}, {"n": ["a"]}, {"w": ["2013"]}, {"x": [2**53, 2**53 + 1]}],
)
def test_categories_that_no_row_could_match_are_refused(categories) -> None:
    with pytest.raises(InvalidRequest):
        Dataset(PEOPLE, categories=categories)


def test_large_whole_categories_of_an_integer_column_are_told_apart() -> None:
    ids = Dataset(pa.table({"id": [2**53, 2**53 + 1, 2**53 + 1]}), categories={"id": [2**53, 2**53 + 1]})

    assert unseal(ids.measure_total(CountForm(), ids.tally(axes=(ids.axis("id"),)), secret=b"")).tolist() == [1, 2]


@pytest.mark.parametrize("name", ["bounds", "categories"])
@pytest.mark.parametrize("given", [1.5, "age", [1, 2], np.array([1, 2])])
def test_what_is_declared_by_column_must_be_a_mapping(name, given):
    with pytest.raises(InvalidRequest, match="by column"):
        Dataset(pa.table({"age": [1]}), **{name: given})


def test_a_file_read_with_other_types_is_another_table(tmp_path):
    """What was kept for the one must not answer for the other."""
    path = tmp_path / "people.csv"
    path.write_text("age\n1\n2\n")

    assert Dataset(str(path), types={"age": "integer"}).identity != Dataset(str(path)).identity


def test_a_public_table_holds_only_times_of_the_years_1_to_9999() -> None:
    first, last = -62_135_596_800, 253_402_300_799  # seconds
    rows = Dataset(pa.table({"w": pa.array([0], pa.timestamp("s"))}))
    for moment, kind in ((first - 1, pa.timestamp("s")), (last + 1, pa.timestamp("s")), (-(2**60), pa.timestamp("s"))):
        outside, inside = pa.array([moment], kind), pa.array([0], kind)
        for key, value in ((outside, inside), (inside, outside)):
            with pytest.raises(InvalidRequest, match="years 1 to 9999"):
                rows.join(pa.table({"w": key, "v": value}), on="w")
    for moment in (first, last):
        assert count(rows.join(pa.table({"w": pa.array([moment], pa.timestamp("s")), "v": [7]}), on="w")) == 1


def test_a_joined_time_has_the_range_of_the_public_table() -> None:
    days = pa.table({"k": ["a", "b", "c"], "day": [datetime.date(2013, 1, 5), datetime.date(2013, 3, 1), None]})
    joined = Dataset(pa.table({"k": ["a", "a", "b", "c", "x"]})).join(days, on="k")

    counts = Session(joined, 1e9).count(by="date_trunc('month', day)", epsilon=500).value

    assert dict(counts) == {datetime.datetime(2013, month, 1): rows for month, rows in ((1, 2), (2, 0), (3, 1))}


def test_a_public_table_that_cannot_be_joined_is_explained() -> None:
    data = Dataset(pa.table({"code": ["a"], "n": [1]}))
    for table, on, message in (
        ([{"code": "a"}], "code", "from_pylist"),
        ("states.csv", "code", "Read the file first"),
        ({"coda": ["a"], "x": [1]}, "code", "Did you mean 'coda'"),
        ({"zzz": ["a"]}, "code", "Name one of: zzz"),
        ({"code": ["a", "a"]}, "code", "once in the public table"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            data.join(table, on=on)


@pytest.mark.parametrize("kind", ARROW_TYPES, ids=str)
def test_a_public_table_with_a_column_of_any_arrow_type_is_joined(kind: pa.DataType) -> None:
    """Columns that no question can use are left out; the others have the categories of the table."""
    usable = Kind.of(kind) is not Kind.OTHER
    public = pa.table({"code": ["a", "b"], "z": pa.nulls(2, kind), "n": [1, 2]})

    joined = Dataset(pa.table({"code": ["a", "b", "a"]})).join(public, on="code")

    assert ("z" in joined.schema) is usable and "n" in joined.schema
    assert Session(joined, 1e9).count(by="n", epsilon=500).value == {1: 2, 2: 1}
    if usable:
        assert Session(joined, 1e9).count(where="z IS NULL", epsilon=500).value == 3
