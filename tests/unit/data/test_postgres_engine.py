"""A real PostgreSQL server: no row makes a query fail, and all passes see one moment."""

import dataclasses
import math
import operator
import sys
import uuid
from importlib import util
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from expost.core import InvalidRequest, Unit, unseal
from expost.data import Dataset
from expost.data.sealed_form import SquareForm
from expost.data.tally import Measured


def postgres_server():
    name = "expost_tests_postgres_server"  # shared with the other tests that need a server
    if name not in sys.modules:
        spec = util.spec_from_file_location(name, Path(__file__).parents[2] / "faults" / "postgres_server.py")
        sys.modules[name] = module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def server():
    pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
    if reason := postgres_server().missing():
        pytest.skip(reason)
    return postgres_server().shared_server().url("postgres")


@pytest.fixture
def run(server):
    with psycopg.connect(server, autocommit=True) as connection:
        yield lambda text: connection.execute(text)


def fresh() -> str:
    return "t_" + uuid.uuid4().hex[:12]


EDGES = """
    (1, 1.5, 'NaN', 'a', '2013-01-01', '2013-01-01 12:00:00.000001', true, 'x'),
    (2, 'NaN', 1e400, '', 'infinity', 'infinity', false, 'y'),
    (3, 'Infinity', 1e-400, repeat('é', 40000), '4713-01-01 BC', '4713-01-01 BC', null, null),
    (null, null, null, null, null, null, null, null),
    (-32768, '-0', -2.5, 'a"b,c''', '9999-12-31', '294276-12-31 23:59:59.999999', true, 'x')
"""


def test_values_that_arrow_cannot_hold_are_missing_and_nothing_fails(server, run) -> None:
    table, label = fresh(), fresh()
    run(f"CREATE TYPE {label} AS ENUM ('x', 'y')")
    run(
        f"CREATE TABLE {table} (i smallint, f float8, n numeric, t text, d date, "
        f'w timestamptz, b boolean, "a ""label""" {label})'
    )
    run(f"INSERT INTO {table} VALUES {EDGES}")
    dataset = Dataset(f"{server}?table={table}")

    assert dataset.name == table
    assert str(dataset.schema) == 'i integer, f real, n real, t text, d time, w time, b boolean, a "label" text'
    rows = pa.Table.from_batches(dataset.batches(list(dataset.schema))).sort_by("i").to_pydict()
    assert rows["i"] == [-32768, 1, 2, 3, None]
    assert str(rows["n"]) == str([-2.5, math.nan, math.nan, 0.0, math.nan])
    assert rows["t"] == ["a\"b,c'", "a", "", None, None]
    assert [None if day is None else day.date().isoformat() for day in rows["d"]] == [
        "9999-12-31",
        "2013-01-01",
        *[None] * 3,
    ]
    assert [moment is None for moment in rows["w"]] == [True, False, True, True, True]
    assert rows["w"][1].microsecond == 1
    assert rows["b"] == [True, True, False, None, None]
    assert rows['a "label"'] == ["x", "x", "y", None, None]
    assert unseal(dataset.measure_rows()).tolist() == [5]


def test_every_pass_sees_the_moment_of_opening(server, run) -> None:
    table = fresh()
    run(f"CREATE TABLE {table} AS SELECT generate_series(1, 1000) AS i")
    dataset = Dataset(f"{server}?table=public.{table}")

    run(f"INSERT INTO {table} SELECT generate_series(1, 50)")
    run(f"DELETE FROM {table} WHERE i < 10")

    assert [unseal(dataset.measure_rows()).tolist() for _ in range(2)] == [[1000]] * 2
    assert unseal(Dataset(f"{server}?table={table}").measure_rows()).tolist() == [1050 - 18]


def test_a_pass_that_is_broken_off_leaves_the_next_one_whole(server, run) -> None:
    table = fresh()
    run(f"CREATE TABLE {table} AS SELECT generate_series(1, 300000) AS i, repeat('x', 50) AS t")
    dataset = Dataset(f"{server}?table={table}")

    outer = dataset.batches(["i", "t"])
    next(outer)
    inner = sum(batch.num_rows for batch in dataset.batches(["i"]))  # passes may overlap
    outer.close()

    assert inner == 300_000 == sum(batch.num_rows for batch in dataset.batches(["t"]))


@pytest.mark.parametrize("table", ["no_such_table", "no_such_schema.t", "T", "pg_authid"])
def test_a_table_that_is_not_there_is_refused_without_the_address(server, run, table) -> None:
    run("DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with pytest.raises(InvalidRequest) as caught:
        Dataset(server.replace("owner@", "guest:hunter2@") + f"?table={table}")

    assert "hunter2" not in str(caught.value) and "127.0.0.1" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_table_is_the_same_under_every_address_and_another_table_is_not(server, run) -> None:
    table, other = fresh(), fresh()
    run(f"CREATE TABLE {table} AS SELECT generate_series(1, 2000) AS i")
    run(f"CREATE TABLE {other} AS SELECT generate_series(5, 3000) AS i")
    run(f"CREATE VIEW {other}_view AS SELECT * FROM {other}")
    join = "&" if "?" in server else "?"

    def identity(query: str):
        return Dataset(f"{server}{join}{query}").source_identity()

    first = identity(f"table={table}")
    again = identity(f"application_name=another&table=public.{table}")
    assert first == again and len(first.places) == len(first.samples) == 1
    assert first.places[0].endswith(f"/postgres/public.{table}")
    assert identity(f"table={other}").places != first.places
    run(f"CREATE TABLE {table}_copy AS SELECT * FROM {table}")
    assert identity(f"table={table}_copy").samples == first.samples
    view = identity(f"table={other}_view")
    assert view.samples == ()  # a view may be expensive to read
    assert set(identity(f"table={other}").places) < set(view.places)  # but it is known what it reads


def test_a_table_reads_its_partitions_and_a_view_what_its_views_read(server, run) -> None:
    table = fresh()
    run(f"CREATE TABLE {table} (i int) PARTITION BY LIST (i)")
    run(f"CREATE TABLE {table}_one PARTITION OF {table} FOR VALUES IN (1)")
    run(f"CREATE VIEW {table}_v AS SELECT i FROM {table}")
    run(f"CREATE VIEW {table}_w AS SELECT i + 1 AS j FROM {table}_v WHERE i > 0")
    join = "&" if "?" in server else "?"

    def places(name: str) -> list[str]:
        found = Dataset(f"{server}{join}table={name}").source_identity().places
        return [place.rpartition(".")[2].removeprefix(table) for place in found]

    assert places(table) == ["", "_one"] and places(f"{table}_one") == ["_one"]
    assert places(f"{table}_w") == ["_w", "", "_one", "_v"]


@pytest.fixture
def queries(server, monkeypatch):
    from expost.data.engines.postgres_engine import PostgresEngine  # needs the driver

    seen, plain = [], PostgresEngine._stream

    def stream(self, query, rows_per_batch):
        seen.append(query)
        return plain(self, query, rows_per_batch)

    monkeypatch.setattr(PostgresEngine, "_stream", stream)
    return seen


FILTERED = """
    i integer, big bigint, f float8, small real, n numeric, t text, d date, w timestamp, z timestamptz, b boolean
"""
CONDITIONS = [
    "i >= 3 and f / 2 < 40",
    "i > 2.5",
    "not (i < 3 or f > 60)",
    "not (i = 3 and b)",
    "i in (1, 5, NULL) or t = 'it''s'",
    "t <> 'a' and f <= 10.1",
    "t in ('a', 'B') and not b",
    "b or f = 0",
    "i is not null and f is not null",
    "not (f < 50)",
    "big = 9007199254740994",
    "small > 0.1 and i > 1",
    "n >= 0.1",
    "n < 1000 and i <> 4",
    "d >= '2013-01-02' and w < '2013-02-01'",
    "z between '2013-01-01 12:00:00' and '2013-01-03'",
    "f = 10.1 or f > 1e300",
    "t = 'é'",
    "40 <= i",
    "i = 1 and i = 2",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_that_the_server_applies_keeps_the_same_rows(server, run, condition) -> None:
    table = fresh()
    run(f"CREATE TABLE {table} ({FILTERED})")
    run(
        f"""INSERT INTO {table} SELECT i % 7, 9007199254740990 + i % 9, (i % 100) * 1.01, i / 10.0, (i % 50) / 10.0,
        (ARRAY['a', 'B', 'A', 'it''s', 'é', ''])[i % 6 + 1], DATE '2013-01-01' + i % 60,
        TIMESTAMP '2013-01-01' + i % 90 * INTERVAL '1 day', TIMESTAMPTZ '2013-01-01 00:00+02' + i * INTERVAL '1 hour',
        i % 3 = 0 FROM generate_series(1, 400) AS i"""
    )
    run(
        f"""INSERT INTO {table} VALUES (NULL, NULL, 'NaN', 'NaN', 'NaN', NULL, 'infinity', 'infinity', 'infinity', NULL),
        (3, 3, 'Infinity', '-Infinity', 1e400, 'a', '-infinity', '-infinity', '-infinity', true),
        (-1, -1, '-0', '-0', 1e-400, 'a', '0044-03-15 BC', '0044-03-15 BC', '0044-03-15 BC', false)"""
    )
    far = Dataset(f"{server}?table={table}")
    near = Dataset(pa.Table.from_batches(far.batches(list(far.schema))))
    expected = unseal(near.where(condition).measure_rows())[0]

    assert unseal(far.where(condition).measure_rows())[0] == expected
    assert sum(batch.num_rows for batch in far.where(condition).batches(["i"])) == expected


def test_a_filter_is_applied_on_the_server_and_a_text_is_quoted(server, run, queries) -> None:
    table = fresh()
    run(f"CREATE TABLE {table} AS SELECT i, 'it''s ' || i % 5 AS t FROM generate_series(1, 5000) AS i")
    dataset = Dataset(f"{server}?table={table}").derive(twice="2 * i", bounds=(0, 10_000))
    queries.clear()

    rows = unseal(dataset.where("i > 4000 and twice < 9000 and t = 'it''s 0'").measure_rows())[0]

    assert rows == 99
    (query,) = queries
    assert """WHERE ("i" > 4000 AND "t" = 'it''s 0')""" in query


def test_the_server_counts_equal_rows(server, run, queries) -> None:
    table = fresh()
    run(
        f"CREATE TABLE {table} AS SELECT (i * i) % 37 AS u, i % 5 AS g, (i % 11)::int AS x,"
        f" (ARRAY['Oslo', 'oslo', NULL])[i % 3 + 1] AS city FROM generate_series(1, 20000) AS i"
    )
    run(f"ANALYZE {table}")
    facts = {"bounds": {"x": (0, 10)}, "categories": {"g": list(range(5)), "city": ["Oslo", "oslo"]}}
    facts |= {"unit": "u", "max_rows_per_unit": 9, "max_groups_per_unit": 2}
    far = Dataset(f"{server}?table={table}", **facts)
    near = Dataset(pa.Table.from_batches(far.batches(list(far.schema))), **facts)
    queries.clear()

    def totals(dataset):
        x = dataset.expression("x")
        measured = (Measured(x, dataset.clamp(x)),)
        for by in ("g", "city"):
            tally = dataset.tally(measured=measured, axes=(dataset.axis(by),), degree=2)
            yield unseal(dataset.measure_total(SquareForm(measured[0].clamp), tally, secret=b"frozen")).tolist()
            free = dataset._engine.reduce(tally_function(tally), operator.add, tally.columns)
            yield free.first.tolist()

    assert list(totals(far)) == list(totals(near))
    assert len(queries) == 4 and all("GROUP BY" in query for query in queries)


def tally_function(tally):
    return lambda batch: tally.sum_atoms(dataclasses.replace(tally, unit=Unit()).read_atoms(batch))
