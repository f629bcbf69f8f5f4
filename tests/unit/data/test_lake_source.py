"""Tables of many files: the same rows as in one file, and no row decides a type, an error or a file that is read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from expost import Dataset, InvalidRequest, Session, epsilon
from expost.core import unseal
from expost.data.canonical_cell import canonical_batch
from expost.data.data_source import open_source
from expost.data.lake_source import is_lake, list_lake
from expost.data.sealed_form import CountForm

ROWS = 900


def make_table(rows: int = ROWS) -> pa.Table:
    places = np.arange(rows)
    return pa.table(
        {
            "x": (places % 10).astype(float),
            "city": pa.array([("Rome", "Oslo", "Köln/Süd")[place % 3] for place in places], pa.string()),
            "year": pa.array(2010 + places % 4, pa.int64()),
        }
    )


def write_hive(table: pa.Table, folder: Path, columns: list[str]) -> Path:
    """Write a table as Spark does, with its markers and checksums."""
    pyarrow.dataset.write_dataset(
        table,
        folder,
        format="parquet",
        partitioning=pyarrow.dataset.partitioning(table.select(columns).schema, flavor="hive"),
    )
    (folder / "_SUCCESS").touch()
    (folder / "._SUCCESS.crc").write_bytes(b"crc")
    hidden = folder / "_temporary" / "0"
    hidden.mkdir(parents=True)
    pq.write_table(table, hidden / "part-0.parquet")
    pq.write_table(table, folder / ".part-0.parquet")
    return folder


def rows_of(source: Any, **options: Any) -> list[tuple[Any, ...]]:
    engine, _ = open_source(source, **options)
    names = sorted(engine.schema.names)
    read = [batch for batch in engine.batches(names, rows_per_batch=100)]
    scanned = list(engine.scan(canonical_batch, names))
    found, again = (
        sorted(zip(*(pa.Table.from_batches(each).column(name).to_pylist() for name in names), strict=True), key=repr)
        if each
        else []
        for each in (read, scanned)
    )
    assert repr(found) == repr(again)  # NaN differs from itself
    return found


def expected(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table.column(name).to_pylist() for name in sorted(table.column_names)), strict=True), key=repr)


def count(source: Any, **description: Any) -> int:
    dataset = Dataset(source, **description)
    return int(unseal(dataset.measure_total(CountForm(), dataset.tally(), secret=b"secret key of 16"))[0])


def test_a_folder_has_the_rows_of_its_visible_files(tmp_path: Path) -> None:
    table = make_table()
    folder = write_hive(table, tmp_path / "visits", ["city", "year"])
    types = {"year": "integer"}
    assert rows_of(folder, types=types) == expected(table)
    assert rows_of(str(folder) + "/", types=types) == expected(table)
    assert rows_of(f"{folder}/city=*/*/*.parquet", types=types) == expected(table)
    assert rows_of(f"{folder}/city=Rome/*/*.parquet", implied=types) == expected(
        table.filter(pa.compute.equal(table["city"], "Rome")).select(["x", "year"])
    )
    assert Dataset(folder).name == "visits"


def test_names_of_folders_are_texts_unless_a_type_is_declared(tmp_path: Path) -> None:
    folder = write_hive(make_table(), tmp_path / "visits", ["year"])
    kinds = {name: each.value for name, each in Dataset(folder).schema.kinds.items()}
    assert kinds == {"x": "real", "city": "text", "year": "text"}
    before = Dataset(folder, bounds={"year": (2010, 2013)}).schema.kinds
    # One person's odd partition changes no type and is a missing number.
    odd = folder / "year=unknown"
    odd.mkdir()
    pq.write_table(make_table(1).select(["x", "city"]), odd / "part-0.parquet")
    null = folder / "year=__HIVE_DEFAULT_PARTITION__"
    null.mkdir()
    pq.write_table(make_table(1).select(["x", "city"]), null / "part-0.parquet")
    assert Dataset(folder, bounds={"year": (2010, 2013)}).schema.kinds == before
    assert count(folder) == ROWS + 2
    years = [row[-1] for row in rows_of(folder, types={"year": "integer"})]
    assert years.count(None) == 2
    assert {row[-1] for row in rows_of(folder)} == {"2010", "2011", "2012", "2013", "unknown", None}


@pytest.mark.parametrize("kind", ["boolean", "time", "real", "time:%Y"])
def test_partitions_of_every_declared_type(kind: str, tmp_path: Path) -> None:
    folder = write_hive(make_table(), tmp_path / "visits", ["year"])
    assert len(rows_of(folder, types={"year": kind})) == ROWS


def test_files_of_another_schema_and_foreign_types_are_refused(tmp_path: Path) -> None:
    folder = write_hive(make_table(), tmp_path / "visits", ["year"])
    with pytest.raises(InvalidRequest, match="types of partition columns only"):
        Dataset(folder, types={"x": "integer"})
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidRequest, match="Parquet files, a Delta table or an Iceberg table"):
        Dataset(empty)
    pq.write_table(pa.table({"x": ["text"], "city": ["Rome"]}), folder / "year=2010" / "odd.parquet")
    with pytest.raises(InvalidRequest, match="files of one schema"):
        Dataset(folder)


def test_a_folder_that_grows_is_the_same_table_and_notices_it(tmp_path: Path) -> None:
    folder = write_hive(make_table(), tmp_path / "visits", ["year"])
    ledger = tmp_path / "t.ledger"
    with Session(Dataset(folder), epsilon(5), ledger=ledger) as session:
        session.count(within=100)
        pq.write_table(make_table(50).select(["x", "city"]), folder / "year=2010" / "more.parquet")
        spent = session.spent()
        with pytest.raises(InvalidRequest, match="changed after it was opened"):
            session.count(within=50)
        assert session.spent() == spent
    with Session(Dataset(folder), ledger=ledger) as session:
        assert session.spent() == spent
        assert abs(session.count(within=50).value - ROWS - 50) < 500
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(InvalidRequest, match="pays for these rows"):
        Session(Dataset(tmp_path / "copy"), epsilon(5), ledger=ledger)


def test_arrow_datasets_of_any_file_system(tmp_path: Path) -> None:
    table = make_table()
    folder = write_hive(table, tmp_path / "visits", ["year"])
    partitioning = pyarrow.dataset.partitioning(pa.schema({"year": pa.int64()}), flavor="hive")
    dataset = pyarrow.dataset.dataset(folder, format="parquet", partitioning=partitioning, exclude_invalid_files=False)
    assert rows_of(dataset) == expected(table)
    (tmp_path / "t.csv").write_text("x\n1\n")
    with pytest.raises(InvalidRequest, match="Arrow dataset of Parquet"):
        Dataset(pyarrow.dataset.dataset(tmp_path / "t.csv", format="csv"))


def test_fsspec_stores_are_listed_and_read() -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    table = make_table()
    for part in range(3):
        store.makedirs(f"/visits/year={2010 + part}", exist_ok=True)
        with store.open(f"/visits/year={2010 + part}/part.parquet", "wb") as file:
            pq.write_table(table.slice(part * 300, 300).select(["x", "city"]), file)
    assert count("memory://visits") == ROWS
    assert count("memory://visits/year=*/part.parquet") == ROWS
    assert count("memory://visits/year=2010/part.parquet") == 300
    dataset = Dataset("memory://visits", bounds={"year": (2010, 2012)})
    assert dataset.source_identity().places[0] == "memory://visits"
    assert not dataset.in_memory  # another process may refer to it by its address
    store.rm("/visits/year=2012/part.parquet")
    assert dataset.has_changed()
    store.rm("/visits", recursive=True)


def test_hidden_names_and_patterns(tmp_path: Path) -> None:
    for name in ("a/_b=1/c.parquet", "a/_x/c.parquet", "a/.x/c.parquet", "a/c.parquet", "d.parquet"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    store = pyarrow.fs.LocalFileSystem()
    found = [each.path.removeprefix(f"{tmp_path}/") for each in list_lake(store, str(tmp_path))]
    assert found == ["a/_b=1/c.parquet", "a/c.parquet", "d.parquet"]
    assert [each.path for each in list_lake(store, f"{tmp_path}/a/*.parquet")] == [f"{tmp_path}/a/c.parquet"]
    assert not is_lake("select * from t") and not is_lake(3) and not is_lake("gone.parquet")


def test_addresses_hide_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest) as error:
        Dataset("nothing://user:secret@host/t")
    assert "secret" not in str(error.value)


def write_delta(table: pa.Table, folder: Path, **options: Any) -> Path:
    deltalake = pytest.importorskip("deltalake", reason="the extra lake is not installed")
    deltalake.write_deltalake(str(folder), table, **options)
    return folder


def test_a_delta_table_is_read_at_one_version(tmp_path: Path) -> None:
    table = make_table()
    folder = write_delta(table, tmp_path / "visits", partition_by=["year", "city"])
    assert rows_of(folder) == expected(table)
    dataset = Dataset(folder, name="visits")
    assert dataset.schema.kinds["year"].value == "integer"  # the table stores its types
    ledger = tmp_path / "t.ledger"
    session = Session(dataset, epsilon(5), ledger=ledger)
    session.count(within=100)
    write_delta(table, folder, mode="append")
    with pytest.raises(InvalidRequest, match="changed after it was opened"):
        session.count(within=50)
    assert count(folder) == 2 * ROWS
    with Session(Dataset(folder), ledger=ledger) as later:
        assert later.spent() == session.spent()
    import deltalake

    opened = deltalake.DeltaTable(str(folder), version=0)
    assert rows_of(opened) == expected(table)
    opened.update_incremental()
    opened.delete("city = 'Rome'")
    assert count(folder) == 2 * ROWS * 2 // 3


def test_a_delta_table_without_rows_and_with_new_columns(tmp_path: Path) -> None:
    folder = write_delta(make_table(0), tmp_path / "empty", partition_by=["year"])
    assert count(folder) == 0
    write_delta(make_table(), folder, mode="append")
    write_delta(make_table(30).append_column("more", pa.array([1.5] * 30)), folder, mode="append", schema_mode="merge")
    found = rows_of(folder)
    assert len(found) == ROWS + 30 and sum(row[1] == 1.5 for row in found) == 30


def test_an_iceberg_table_is_read_at_one_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        "test", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    catalog.create_namespace("db")
    table = make_table()
    made = catalog.create_table("db.visits", schema=table.schema)
    made.append(table)
    assert rows_of(made) == expected(table)
    session = Session(Dataset(made, name="visits"), epsilon(5))
    session.count(within=100)
    folder = made.location().removeprefix("file://")
    assert rows_of(folder) == expected(table)
    with made.update_schema() as update:
        update.rename_column("x", "delay")
    assert sorted(Dataset(folder).schema.kinds) == ["city", "delay", "year"]
    made.append(table.rename_columns(["delay", "city", "year"]))
    with pytest.raises(InvalidRequest, match="changed after it was opened"):
        session.count(within=50)
    assert count(folder) == 2 * ROWS
    made.delete("city = 'Rome'")
    assert count(folder) == 2 * ROWS * 2 // 3
    assert Dataset(folder).has_changed() is False
