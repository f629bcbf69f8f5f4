"""What tells one source from another: cheap, public but for the samples, and never all rows."""

import os

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost import Session
from expost.data import Dataset
from expost.data.engines import ArrowEngine
from expost.data.source_identity import SourceIdentity, identify_addresses, identify_query, name_place, sample_rows


def sample(table: pa.Table) -> bytes:
    return sample_rows(table.schema, lambda rows: table.to_batches())


def test_equal_cells_have_equal_samples_whatever_holds_them() -> None:
    whole = pa.table({"b": pa.array([1, None, 3]), "a": ["x", "y", None]})
    same = pa.table(
        {
            "a": pa.array(["x", "y", None], pa.large_string()).dictionary_encode(),
            "b": pa.array(np.array([1, np.nan, 3]), pa.float32()),
        }
    )
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])

    assert sample(whole) == sample(same) == sample(chunked)
    assert sample(whole) != sample(whole.slice(1)) != sample(whole.rename_columns(["a", "b"]))


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_000])
def test_files_of_any_size_have_a_sample_that_their_ends_and_size_change(tmp_path, size: int) -> None:
    header = b"age\n"
    contents = [header + b"1\n" * size, header + b"1\n" * size + b"2\n", header + b"1\n" * (size + 1)]
    found = []
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(content)
        found.append(Dataset(path, types={"age": "integer"}).source_identity().samples[0])

    assert len(set(found)) == 3


def test_a_huge_row_group_is_not_read_for_an_identity(tmp_path) -> None:
    rows = 2_000_000
    path = tmp_path / "big.parquet"
    numbers = np.random.default_rng(1).integers(0, 1 << 62, rows)
    pq.write_table(pa.table({f"c{place}": numbers + place for place in range(3)}), path, row_group_size=rows)
    dataset, pool = Dataset(path), pa.system_memory_pool()
    default = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    before = pool.max_memory()
    try:
        identity = dataset.source_identity()
    finally:
        pa.set_memory_pool(default)

    # The file has 16 MB a column, in one row group. A few pages are read, of at most 1 MB each.
    assert len(identity.samples) == 2 and path.stat().st_size > 40_000_000
    assert pool.max_memory() - before < 12_000_000


def test_an_engine_of_the_caller_is_known_by_its_columns() -> None:
    class Plain:
        schema = pa.schema({"age": pa.int32()})

        def batches(self, columns, *, rows_per_batch=1):
            raise AssertionError("an identity reads no rows of an engine that has no method for it")

        def reduce(self, function, merge, columns):
            raise AssertionError

        def by_unit(self, key, function, columns, **terms):
            raise AssertionError

    class Broken(ArrowEngine):
        def identity(self):
            raise OSError("a path of the server")

    assert Dataset(Plain()).source_identity() == SourceIdentity(columns=(("age", "integer"),))
    assert Dataset(Broken(pa.table({"age": [1]}))).source_identity() == SourceIdentity(columns=(("age", "integer"),))


def test_derived_columns_and_filters_do_not_change_the_source(tmp_path) -> None:
    pq.write_table(pa.table({"born": [1980, 2001]}), tmp_path / "people.parquet")
    whole = Dataset(tmp_path / "people.parquet")

    assert whole.where("born > 1990").derive(age="2024 - born").source_identity() == whole.source_identity()


def test_places_are_absolute_and_a_link_has_two(tmp_path, monkeypatch) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to("a.parquet")
    monkeypatch.chdir(tmp_path)
    real = os.path.realpath(tmp_path)

    found = Dataset("b.parquet").source_identity()

    assert set(found.places) == {f"file:{tmp_path}/b.parquet", f"file:{real}/a.parquet"}
    assert name_place("b.parquet") == f"file:{tmp_path}/b.parquet" and name_place(5) is None
    assert f"glob:{tmp_path}/*.parquet" in Dataset("*.parquet").source_identity().places


def test_a_query_is_known_by_its_files_and_its_text_stays_inside(tmp_path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    schema = pa.schema({"x": pa.int64()})
    sql = f"select * from '{tmp_path}/a.parquet' where 'password=hidden' != ''"

    found = identify_query(schema, sql)

    assert found.places == (f"file:{tmp_path}/a.parquet",) and "hidden" not in repr(found)
    assert found.samples == identify_query(schema, sql.replace(" where", "\n  where")).samples
    assert found.samples != identify_query(schema, sql + " limit 5").samples


@pytest.mark.parametrize("word", ["*", ".*", "A", "%Y", "a*", "no/such/file", "x.parquet\x00"])
def test_a_word_of_a_query_that_is_not_a_file_is_not_looked_for(tmp_path, monkeypatch, word: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("A", "ab", ".hidden"):
        (tmp_path / name).write_text("x")

    assert identify_query(pa.schema({"x": pa.int64()}), f"select '{word}' as x").places == ()


def test_a_name_that_is_not_utf8_can_be_stored(tmp_path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/people\xff.csv")
    with open(path, "w") as file:
        file.write("age\n41\n")

    with Session(Dataset(path, name="people", types={"age": "integer"}), 1, ledger=tmp_path / "s.ledger") as session:
        assert session.ledger.sources()["dataset:people"].text.endswith("people\\xff.csv")


def test_a_relation_over_rows_in_memory_is_the_same_each_time() -> None:
    rows = pa.table({"x": [1, 2]})
    pairs = [(duckdb.from_arrow(rows), duckdb.from_arrow(rows))]
    pairs.append((duckdb.sql("select * from rows"), duckdb.sql("select * from rows")))
    for pair in pairs:
        first, second = (Dataset(relation).source_identity() for relation in pair)

        assert first == second and len(first.samples) == 1


def test_a_relation_of_a_stored_table_is_recognised(tmp_path) -> None:
    with duckdb.connect(tmp_path / "d.duckdb") as connection:
        connection.sql("create table people as select 1 as x")
        first, second = (Dataset(connection.sql("select * from people")).source_identity() for _ in range(2))
        other = Dataset(connection.sql("select x from people where x > 0")).source_identity()

    assert first.samples == second.samples != other.samples


def test_addresses_lose_their_passwords() -> None:
    found = identify_addresses(pa.schema([]), ["file:///data/a%20b.parquet", "hdfs://user:secret@host:9000/c.parquet"])

    assert set(found.places) == {"file:/data/a b.parquet", "hdfs://host:9000/c.parquet"}


def test_a_folder_that_spark_wrote_is_the_same_after_it_was_written_again() -> None:
    first = identify_addresses(pa.schema([]), ["s3://b/flights/part-0-a1.parquet", "s3://b/flights/part-1-a1.parquet"])
    again = identify_addresses(pa.schema([]), ["s3://b/flights/part-0-b2.parquet"])
    year = identify_addresses(pa.schema([]), ["s3://b/flights/year=2013/month=1/part-0-c3.parquet"])
    local = identify_addresses(pa.schema([]), ["file:///data/flights/part-0.parquet"])

    assert first.places[0] == again.places[0] == year.places[0] == "s3://b/flights"
    assert local.places[0] == "file:/data/flights"
