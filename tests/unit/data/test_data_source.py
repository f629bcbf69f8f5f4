"""Sources of every kind, and errors that repeat neither rows nor passwords."""

import datetime

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from expost.core import InvalidRequest, Unit, unseal
from expost.data import Dataset, col
from expost.data.engines import ArrowEngine
from expost.data.evaluation import evaluate
from expost.data.row_source import read_rows
from expost.data.unit_identity import unit_words
from expost.stats.hypothesis.private_sample import encode_categories

COLUMNS = {"age": [41, 17, 65], "city": ["a", None, "b"]}


@pytest.mark.parametrize(
    "source",
    [
        pa.table(COLUMNS),
        pd.DataFrame(COLUMNS).astype({"age": "Int64"}),
        pl.DataFrame(COLUMNS),
        pl.LazyFrame(COLUMNS),
        pa.table(COLUMNS).to_batches()[0],
        "select * from (values (41, 'a'), (17, null), (65, 'b')) as people(age, city)",
    ],
    ids=lambda source: type(source).__name__,
)
def test_a_table_of_any_kind_is_read(source) -> None:
    dataset = Dataset(source)

    assert str(dataset.schema) == "age integer, city text"
    assert unseal(dataset.measure_rows()).tolist() == [3]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b", "a"])], ids=["categorical", "enum"])
def test_categories_of_polars_are_texts_in_filters_groups_units_and_labels(kind) -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "city": pl.Series(["a", None, "b", "a"], dtype=kind)})
    dataset = Dataset(frame, categories={"city": ["b", "a"]})
    (batch,) = dataset.batches(["city"])

    assert str(dataset.schema) == "x real, city text"
    assert evaluate(col("city") == "a", batch).certain.tolist() == [True, False, False, True]
    assert dataset.axis("city").codes(batch, {}).tolist() == [1, -1, 0, 1]
    assert encode_categories(batch, "city", ["a", "b"]).tolist() == [0, -1, 1, 0]
    assert unit_words(Unit("city"), batch, {}, b"0" * 32)[1].tolist() == [True, False, True, True]
    labels = next(read_rows(Dataset(frame, adjacency="replace-one", rows=4), "city").read())[1]
    assert labels.tolist() == ["a", None, "b", "a"]


def test_a_duckdb_relation_is_read_as_often_as_needed() -> None:
    dataset = Dataset(duckdb.connect().sql("select range as i from range(1000)"))

    assert [unseal(dataset.measure_rows()).tolist() for _ in range(3)] == [[1000]] * 3


@pytest.mark.parametrize(
    "source",
    ["nowhere.parquet", "nothing-*.csv", 41, None, [1, 2], "notes.txt", "select nothing from nowhere at all"],
)
def test_what_is_no_table_is_an_invalid_request(source, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")

    with pytest.raises(InvalidRequest):
        Dataset(source)


def test_a_database_url_with_a_password_is_not_repeated() -> None:
    for url in ("postgresql://ann:hunter2@localhost:1/db", "postgresql://ann:hunter2@localhost:1/db?table=flights"):
        with pytest.raises(InvalidRequest) as caught:
            Dataset(url)

        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_files_of_different_schemas_are_refused(tmp_path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "x-1.parquet")
    pq.write_table(pa.table({"a": ["1"]}), tmp_path / "x-2.parquet")

    with pytest.raises(InvalidRequest, match="one schema"):
        Dataset(str(tmp_path / "x-*.parquet"))


def test_an_engine_class_in_place_of_an_instance_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"not a class, got 'ArrowEngine'\. Pass an instance"):
        Dataset(ArrowEngine)


def test_an_engine_whose_schema_cannot_be_read_does_not_show_the_message_of_its_driver() -> None:
    class Unreachable(ArrowEngine):
        @property
        def schema(self) -> pa.Schema:
            raise OSError("no route for user:password@host")

    with pytest.raises(InvalidRequest, match="can be read, got 'Unreachable'") as refusal:
        Dataset(Unreachable(pa.table({"x": [1]})))
    assert refusal.value.__context__ is None


def test_repeated_column_names_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="without repeats"):
        Dataset(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_a_time_is_compared_with_texts_dates_and_moments_alike() -> None:
    flights = Dataset(pa.table({"when": pa.array([0, 1], pa.timestamp("us"))}))

    for moment in ("2013-01-31", np.datetime64("2013-01-31"), datetime.date(2013, 1, 31)):
        assert unseal(flights.where(col("when") < moment).measure_rows())[0] == 2
    for text in ("when < '2013-01-31'", "when < TIMESTAMP '2013-01-31'"):
        assert unseal(flights.where(text).measure_rows())[0] == 2
