"""One suite for every engine: the same rows, the same sealed integers, no failure on any row."""

import datetime
import functools
import importlib
import math
import operator
import os
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from importlib import util
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from expost.core import unseal
from expost.data import Dataset
from expost.data.bounding import Atoms
from expost.data.canonical_cell import canonical_schema
from expost.data.data_source import open_source
from expost.data.engines import ArrowEngine, Engine, ParquetEngine
from expost.data.engines import engine as engine_module
from expost.data.engines.duckdb_engine import DuckEngine
from expost.data.sealed_form import CountForm, MomentForm, ShareForm, SquareForm
from expost.data.tally import Measured

# Spark has its own opinion about versions of pandas, which is not used here.
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")

ROWS = 20_000


def flights(seed: int = 0, rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(seed)
    delay = rng.normal(5, 40, rows)
    delay[rng.random(rows) < 0.01] = np.nan
    delay[rng.random(rows) < 0.001] = np.inf
    missing = rng.random(rows) < 0.02
    return pa.table(
        {
            "plane": pa.array([f"N{k}" for k in rng.zipf(1.5, rows) % 997], mask=rng.random(rows) < 0.01),
            "origin": rng.choice(["EWR", "JFK", "LGA", "XXX"], rows),
            "delay": pa.array(delay, mask=missing, from_pandas=False),
            "distance": pa.array(rng.integers(0, 5000, rows), pa.int32()),
            "when": pa.array(
                [datetime.datetime(2013, 1, 1) + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 8760, rows)],
                pa.timestamp("us"),
            ),
        }
    )


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def in_memory(table: pa.Table, folder: Path) -> Engine:
    return ArrowEngine(table)


def in_small_chunks(table: pa.Table, folder: Path) -> Engine:
    return ArrowEngine(pa.Table.from_batches(table.to_batches(max_chunksize=777), table.schema))


def in_parquet(table: pa.Table, folder: Path) -> Engine:
    pq.write_table(table, folder / "one.parquet", row_group_size=3000)
    return ParquetEngine([folder / "one.parquet"])


def in_several_files(table: pa.Table, folder: Path) -> Engine:
    for part in range(3):
        pq.write_table(table.slice(part * 7000, 7000), folder / f"part-{part}.parquet")
    return ParquetEngine(sorted(folder.glob("part-*.parquet")))


def in_duckdb(table: pa.Table, folder: Path) -> Engine:
    pq.write_table(table, folder / "two.parquet", row_group_size=5000)
    return DuckEngine.query(f"select * from '{folder / 'two.parquet'}'")


def in_a_relation(table: pa.Table, folder: Path) -> Engine:
    connection = duckdb.connect()
    connection.register("flights", table)
    return DuckEngine(connection.sql("select * from flights"))


def in_postgres(table: pa.Table, folder: Path) -> Engine:
    driver = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
    if reason := _postgres_server().missing():
        pytest.skip(reason)
    url, name = _postgres_server().shared_server().url("postgres"), f"flights_{uuid.uuid4().hex[:12]}"
    with driver.connect(url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(name, table, mode="create", db_schema_name="public")
        connection.commit()
    return open_source(f"{url}?table={name}")[0]


def _postgres_server():
    name = "expost_tests_postgres_server"  # shared with the other tests that need a server
    if name not in sys.modules:
        spec = util.spec_from_file_location(name, Path(__file__).parents[1] / "faults" / "postgres_server.py")
        sys.modules[name] = module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@functools.cache
def _spark():
    """One local Spark for the whole run."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="expost-spark-"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2,4]").appName("expost tests")  # a task may fail three times
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def in_spark(table: pa.Table, folder: Path) -> Engine:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none in PATH")
    pq.write_table(table, folder / "three.parquet", row_group_size=5000)
    return open_source(_spark().read.parquet(str(folder / "three.parquet")))[0]


def count_batch(batch: pa.RecordBatch) -> tuple[int, int]:
    return batch.num_rows, batch.num_rows


def add_counts(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0] + right[0], max(left[1], right[1])


def read_planes(batch: pa.RecordBatch) -> Atoms:
    """Rows whose unit is their distance."""
    distance = batch.column("distance").to_numpy(zero_copy_only=False).astype(np.int64)
    return Atoms([distance.view(np.uint64)], distance, np.zeros((0, len(distance)), np.int64))


def count_planes(atoms: Atoms) -> Counter:
    """How many rows each unit has, here: all of them, if each unit is in one part."""
    units, counts = np.unique(atoms.words[0].view(np.int64), return_counts=True)
    return Counter({(int(unit), int(count)): int(count) for unit, count in zip(units, counts, strict=True)})


ENGINES: list[Callable[[pa.Table, Path], Engine]] = [
    in_memory,
    in_small_chunks,
    in_parquet,
    in_several_files,
    in_duckdb,
    in_a_relation,
    in_postgres,
    in_spark,
]
if named := os.environ.get("EXPOST_ENGINE"):  # an engine outside the package: docs/howto/plug-in-an-engine.md
    module, _, function = named.partition(":")
    ENGINES.append(getattr(importlib.import_module(module), function))


@pytest.fixture(params=ENGINES, ids=lambda build: build.__name__)
def build(request):
    return request.param


def test_an_engine_reads_every_row_once_in_batches_of_the_size_asked_for(build, tmp_path) -> None:
    table = flights()
    engine = build(table, tmp_path)

    batches = list(engine.batches(["distance", "origin"], rows_per_batch=1000))

    assert engine.schema.names == table.schema.names
    assert all(batch.schema.names == ["distance", "origin"] and batch.num_rows <= 1000 for batch in batches)
    read = pa.Table.from_batches(batches).sort_by([("distance", "ascending"), ("origin", "ascending")])
    expected = table.select(["distance", "origin"]).sort_by([("distance", "ascending"), ("origin", "ascending")])
    assert read.to_pydict() == expected.to_pydict()


def test_an_engine_reduces_every_batch_once_and_can_do_it_again(build, tmp_path) -> None:
    engine = build(flights(), tmp_path)

    for _ in range(2):
        assert engine.reduce(count_batch, add_counts, ["distance"])[0] == ROWS
        assert engine.reduce(count_batch, add_counts, [])[0] == ROWS


def test_an_engine_brings_the_rows_of_each_unit_together(build, tmp_path) -> None:
    engine = build(shuffled(flights(), 5), tmp_path)
    found = engine.by_unit(read_planes, count_planes, ["distance"], merge=operator.add, secret=bytes(16))

    assert found.total() == ROWS
    distances = Counter(flights()["distance"].to_pylist())
    assert found == Counter({(distance, rows): rows for distance, rows in distances.items()})


def test_an_engine_reduces_an_empty_table_to_what_the_function_gives_for_no_rows(build, tmp_path) -> None:
    engine = build(flights().slice(0, 0), tmp_path)

    assert engine.reduce(count_batch, add_counts, ["distance"])[0] == 0
    assert not engine.by_unit(read_planes, count_planes, ["distance"], merge=operator.add, secret=bytes(16))


def test_an_engine_counts_rows_when_no_column_is_named(build, tmp_path) -> None:
    engine = build(flights(), tmp_path)

    counts = [batch.num_rows for batch in engine.batches([], rows_per_batch=1000)]

    assert sum(counts) == ROWS and max(counts) <= 1000
    assert unseal(Dataset(engine).measure_rows())[0] == ROWS


def test_an_engine_reads_an_empty_table(build, tmp_path) -> None:
    engine = build(flights().slice(0, 0), tmp_path)

    assert engine.schema.names == flights().schema.names
    assert [unseal(Dataset(engine).where(text).measure_rows())[0] for text in ("distance > 0", "true")] == [0, 0]


def test_batches_have_the_types_of_the_schema_even_if_all_cells_are_missing(build, tmp_path) -> None:
    names = ["when", "plane", "delay", "distance", "origin"]
    table = flights(rows=200)
    missing = pa.table({name: pa.nulls(200, table.schema.field(name).type) for name in table.schema.names})
    engine = build(pa.concat_tables([missing, table, missing]), tmp_path)
    expected = canonical_schema(pa.schema([engine.schema.field(name) for name in names]))

    assert all(canonical_schema(batch.schema) == expected for batch in engine.batches(names, rows_per_batch=100))


def test_an_engine_neither_changes_a_cell_nor_fails_on_one(build, tmp_path) -> None:
    table = pa.table(
        {
            "key": pa.array(range(9), pa.int64()),
            "n": pa.array([2**63 - 1, -(2**63), 2**53 + 1, 0, None, 1, 2, 3, 4], pa.int64()),
            "x": pa.array([1e308, -1e308, 5e-324, math.inf, -math.inf, None, 0.1, 2.0**53, 1.0], pa.float64()),
            "s": ["", " ", "it's", 'a "b"', "\\n", "é\n😀", "NULL", "x" * 5000, None],
        }
    )
    dataset = Dataset(build(shuffled(table, 3), tmp_path))

    read = pa.Table.from_batches(dataset.batches(table.column_names)).sort_by("key").to_pydict()

    expected = table.to_pydict()
    assert [None if math.isnan(x) else x for x in read.pop("x")] == expected.pop("x")
    assert read == expected


def sealed_integers(dataset: Dataset) -> list[int]:
    delay = dataset.expression("delay")
    measured = Measured(delay, dataset.clamp(delay))
    axes = (dataset.axis("origin"),)
    by_origin = dataset.tally(measured=(measured,), axes=axes, where=dataset.condition("distance >= 500"), degree=2)
    several = dataset.tally(
        measured=(measured, Measured(dataset.expression("distance"), dataset.clamp(dataset.expression("distance")))),
        degree=2,
    )
    moments = MomentForm(tuple(each.clamp for each in several.measured))
    totals = [
        dataset.measure_total(SquareForm(measured.clamp), by_origin, secret=b"frozen secret 16"),
        dataset.measure_total(moments, several, secret=b"frozen secret 16"),
    ]
    return [int(value) for total in totals for value in unseal(total)]


def describe(engine: Engine, unit: str) -> Dataset:
    limits = {} if unit == "row" else {"max_rows_per_unit": 7, "max_groups_per_unit": 2}
    return Dataset(
        engine,
        unit=unit,
        bounds={"delay": (-60.5, 300.25), "distance": (0, 5000)},
        categories={"origin": ["EWR", "JFK", "LGA"]},
        **limits,
    )


@pytest.mark.parametrize("unit", ["row", "plane"])
def test_every_engine_seals_the_same_integers_bit_for_bit(build, unit, tmp_path) -> None:
    expected = sealed_integers(describe(ArrowEngine(flights()), unit))

    assert sealed_integers(describe(build(shuffled(flights(), 7), tmp_path), unit)) == expected


@pytest.mark.parametrize("unit", ["row", "plane"])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("chunk", [1, 37, 20_000])
def test_order_chunks_and_threads_change_no_sealed_integer(unit, threads, chunk, monkeypatch) -> None:
    table = flights(rows=500)
    expected = sealed_integers(describe(ArrowEngine(table), unit))
    monkeypatch.setattr(engine_module, "count_workers", lambda: threads)
    rearranged = pa.Table.from_batches(shuffled(table, threads * 31 + chunk).to_batches(max_chunksize=chunk))

    assert sealed_integers(describe(ArrowEngine(rearranged), unit)) == expected


def test_spilling_to_disk_changes_no_sealed_integer() -> None:
    table = pa.concat_tables([flights(seed) for seed in range(14)])
    plain = describe(ArrowEngine(table), "plane")
    spilled = describe(ArrowEngine(table), "plane")
    spilled._memory_limit = 1

    assert sealed_integers(spilled) == sealed_integers(plain)


def test_csv_cells_that_do_not_fit_are_missing_and_nothing_fails(tmp_path) -> None:
    path = tmp_path / "people.csv"
    good = "\n".join(f"{k},{k % 7}.5,city{k % 3}" for k in range(30_000))
    path.write_text(f"id,x,city\n{good}\nnot a number,?,a\n7\n8,1.5,b,too,many\n", encoding="utf-8")

    dataset = Dataset(path, bounds={"x": (0, 10)})
    x = dataset.expression("x")
    tally = dataset.tally(measured=(Measured(x, dataset.clamp(x)),), degree=1)

    assert str(dataset.schema) == "id text, x real, city text"
    assert dataset.name == "people"
    assert unseal(dataset.measure_rows())[0] == 30_003  # cells are lost, not lines
    shares = unseal(dataset.measure_total(ShareForm(dataset.clamp(x)), tally, secret=b""))
    assert 30_000 <= shares.sum() / dataset.clamp(x).steps <= 30_001  # rows whose x is a number


def test_arrow_files_and_csv_hold_the_same_rows(tmp_path) -> None:
    table = flights().select(["origin", "distance"])
    pyarrow.csv.write_csv(table, tmp_path / "flights.csv")
    with pa.OSFile(str(tmp_path / "flights.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)

    totals = []
    for name in ("flights.csv", "flights.arrow"):
        types = {"types": {"distance": "integer"}} if name.endswith("csv") else {}  # a described number is real without
        dataset = Dataset(
            tmp_path / name, bounds={"distance": (0, 5000)}, categories={"origin": ["EWR", "JFK"]}, **types
        )
        distance = dataset.expression("distance")
        tally = dataset.tally(
            measured=(Measured(distance, dataset.clamp(distance)),), axes=(dataset.axis("origin"),), degree=2
        )
        totals.append(unseal(dataset.measure_total(SquareForm(dataset.clamp(distance)), tally, secret=b"")).tolist())
    assert totals[0] == totals[1]


def test_every_engine_treats_null_in_a_list_as_sql_does(build, tmp_path) -> None:
    dataset = Dataset(build(flights(), tmp_path))
    counts = {
        text: unseal(dataset.where(text).measure_rows())[0]
        for text in ("origin IN ('EWR', NULL)", "origin NOT IN ('EWR', NULL)", "distance NOT IN (1, NULL)")
    }

    origins = flights()["origin"].to_pylist()
    assert list(counts.values()) == [origins.count("EWR"), 0, 0]


def test_every_engine_computes_expressions_alike(build, tmp_path) -> None:
    table = flights(rows=2000)
    formulas = {
        "week": "date_trunc('week', \"when\")",
        "part": "CASE WHEN origin LIKE '%R' THEN lower(substring(origin, 1, 2)) ELSE concat(plane, '-', origin) END",
        "late": "coalesce(round(delay / distance, 2), least(distance, 7)) BETWEEN -0.5 AND 1",
        "read": "strptime(text(year(\"when\")) || '-02-2' || text(hour(\"when\") % 10), '%Y-%m-%d')",
    }
    found = [
        pa.Table.from_batches(dataset.batches(list(formulas))).to_pandas()
        for dataset in (Dataset(table, derive=formulas), Dataset(build(table, tmp_path), derive=formulas))
    ]

    ordered = [frame.sort_values(list(formulas), ignore_index=True) for frame in found]
    assert ordered[0].equals(ordered[1])
    assert ordered[0].notna().all(axis=0).to_dict() == {"week": True, "part": True, "late": True, "read": False}


def test_every_engine_has_one_equality_for_signed_zeros_missing_numbers_and_zones(build, tmp_path) -> None:
    """A key is found and counted, listed, joined and filtered by the same canonical cells."""
    zeros = [0.0, -0.0, 1.0, math.nan, None] * 7
    moments = [None if x is None else 3_600_000_000 for x in zeros]
    table = pa.table(
        {
            "x": pa.array(zeros, pa.float64()),
            "y": pa.array(zeros, pa.float32()),
            "when": pa.array(moments, pa.timestamp("us", "UTC")),
        }
    )
    dataset = Dataset(build(table, tmp_path), categories={"x": [-0.0, 1], "y": [0, 1]}).derive(z="0 * x", r="round(y)")
    (batch,) = dataset.batches(["x", "y", "z", "r", "when"])

    for name in ("x", "y", "z", "r"):
        column = batch.column(name)
        assert column.type == pa.float64() and column.null_count == 0
        assert not np.signbit(column.to_numpy()[column.to_numpy() == 0]).any()
        zeros_found = 21 if name == "z" else 14
        tally = dataset.tally(axes=(dataset.axis(name, [0.0, 1.0]),))
        found = dataset.find_keys(dataset.expression(name), tally, secret=b"").labels
        assert list(found) == ([0.0] if name == "z" else [0.0, 1.0])
        assert unseal(dataset.measure_total(CountForm(), tally, secret=b"")).tolist() == [zeros_found, 21 - zeros_found]
        for condition in (f"{name} = 0", f"{name} in (0, 5)", f"not {name} <> 0", f"{name} = -0.0"):
            assert unseal(dataset.where(condition).measure_rows())[0] == zeros_found, condition
    joined = dataset.join(pa.table({"x": [-0.0], "hit": ["yes"]}), on="x")
    assert unseal(joined.where("hit = 'yes'").measure_rows())[0] == 14
    assert batch.column("when").type == pa.timestamp("us")
    one = datetime.datetime(1970, 1, 1, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert unseal(dataset.where(dataset.expression("when") == one).measure_rows())[0] == 28
