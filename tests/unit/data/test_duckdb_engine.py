"""DuckDB's spill: rows on disk are for their owner's eyes, and gone when nobody needs them."""

import gc
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import duckdb
import pytest

from expost.core import EngineFailed, InvalidRequest
from expost.data import Dataset
from expost.data.engines import duckdb_engine
from expost.data.engines.duckdb_engine import DuckEngine

QUERY = "select name, count(*) as n from (select 'person ' || i || repeat('x', 60) as name from range(400000) t(i)) group by name"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_is_spilled_lies_in_a_folder_that_only_its_owner_may_enter(place, monkeypatch) -> None:
    monkeypatch.setattr(duckdb_engine, "_MEMORY", "40MB")
    monkeypatch.setattr(duckdb_engine, "count_workers", lambda: 1)
    before = os.umask(0o000)
    try:
        engine = DuckEngine.query(QUERY)
        rows, spilled = 0, 0
        for batch in engine.batches(["name"]):
            rows += batch.num_rows
            spilled += sum(path.stat().st_size for path in place.rglob("*.tmp"))
            for folder in place.iterdir():
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(before)
    assert rows == 400_000
    assert spilled > 0  # it does spill: the check above has seen something


def test_every_connection_has_a_folder_of_its_own_until_it_is_let_go(place) -> None:
    first, second = DuckEngine.query("select 1 as a"), DuckEngine.query("select 1 as a")
    assert len(list(place.iterdir())) == 2

    del first
    gc.collect()
    assert len(list(place.iterdir())) == 1
    assert [batch.num_rows for batch in second.batches(["a"])] == [1]


def test_a_query_that_is_refused_leaves_no_folder(place) -> None:
    with pytest.raises(InvalidRequest, match="DuckDB can read"):
        DuckEngine.query("select nothing from nowhere")
    assert not list(place.iterdir())


def test_a_process_that_ends_leaves_no_folder_and_its_child_removes_none(place) -> None:
    script = (
        "import os, sys\n"
        "from expost import Dataset\n"
        "people = Dataset('select 1 as a', name='people')\n"
        "child = os.fork()\n"
        "if not child: sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(len(os.listdir(os.environ['TMPDIR'])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=os.environ | {"TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1"]
    assert not list(place.iterdir())


def test_a_csv_file_is_read_without_writing_anything(place, monkeypatch) -> None:
    (place / "people.csv").write_text("a\n" + "1\n" * 1000, encoding="utf-8")
    monkeypatch.chdir(place)
    assert sum(batch.num_rows for batch in Dataset(place / "people.csv").batches(["a"])) == 1000
    assert [path.name for path in place.iterdir()] == ["people.csv"]


def read_in_threads(engine: DuckEngine, threads: int = 4) -> list[object]:
    """What each of several threads reads while the others read too."""
    found: list[object] = []
    together = threading.Barrier(threads)

    def read() -> None:
        together.wait()
        try:
            found.append(sum(batch.num_rows for batch in engine.batches(["a"], rows_per_batch=1000)))
        except Exception as error:
            found.append(error)

    running = [threading.Thread(target=read) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


def test_threads_may_read_at_the_same_time() -> None:
    rows = 200_000
    connection = duckdb.connect()
    relation = connection.sql(f"select range as a from range({rows})")

    assert read_in_threads(DuckEngine(relation)) == [rows] * 4
    assert read_in_threads(DuckEngine.query(f"select range as a from range({rows})")) == [rows] * 4


def test_one_thread_reads_a_query_twice_at_once_and_a_relation_not() -> None:
    query = DuckEngine.query("select range as a from range(100000)")
    pairs = zip(query.batches(["a"], rows_per_batch=2048), query.batches(["a"], rows_per_batch=2048), strict=True)
    assert sum(one.num_rows == two.num_rows for one, two in pairs) == -(-100_000 // 2048)

    relation = DuckEngine(duckdb.connect().sql("select range as a from range(100000)"))
    first = relation.batches(["a"], rows_per_batch=2048)
    next(first)
    with pytest.raises(EngineFailed, match="two passes at once"):
        next(relation.batches(["a"]))
    first.close()
    assert sum(batch.num_rows for batch in relation.batches(["a"])) == 100_000
