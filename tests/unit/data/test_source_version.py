"""A source that changes while a session is open is refused, and what was spent is stated as it is."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from expost import Dataset, InvalidRequest, Ridge, Session, epsilon
from expost.core import TableChanged
from expost.data.engines import ArrowEngine
from expost.data.source_version import MemoryWatch, file_version, is_same_version

ROWS = 2000


def make_numbers() -> np.ndarray:
    return np.arange(ROWS, dtype=float) % 10


def write_parquet(folder: Path, numbers: np.ndarray) -> str:
    pq.write_table(pa.table({"x": numbers}), folder / "t.parquet")
    return str(folder / "t.parquet")


def write_csv(folder: Path, numbers: np.ndarray) -> str:
    (folder / "t.csv").write_text("x\n" + "\n".join(map(str, numbers)) + "\n")
    return str(folder / "t.csv")


def write_feather(folder: Path, numbers: np.ndarray) -> str:
    path = folder / "t.feather"
    path.unlink(missing_ok=True)  # it is mapped into memory: rewriting it in place would pull its pages away
    pyarrow.feather.write_feather(pa.table({"x": numbers}), str(path), compression="uncompressed")
    return str(path)


def open_frame(numbers: np.ndarray) -> tuple[Any, Callable[[], None]]:
    frame = pd.DataFrame({"x": numbers, "city": ["Rome"] * len(numbers)})
    return frame, lambda: frame.loc.__setitem__((3, "x"), 9.5)


def open_column(numbers: np.ndarray) -> tuple[Any, Callable[[], None]]:
    frame = pd.DataFrame({"x": numbers})
    return frame, lambda: frame.__setitem__("x", frame["x"] + 1)


def open_array(numbers: np.ndarray) -> tuple[Any, Callable[[], None]]:
    return {"x": numbers}, lambda: numbers.__setitem__(7, 9.5)


def open_arrow(numbers: np.ndarray) -> tuple[Any, Callable[[], None]]:
    return pa.table({"x": numbers}), lambda: numbers.__setitem__(7, 9.5)  # Arrow shares the memory of the array


def open_list(numbers: np.ndarray) -> tuple[Any, Callable[[], None]]:
    rows = numbers.tolist()
    return {"x": rows}, lambda: rows.__setitem__(7, 9.5)


def open_rows(numbers: np.ndarray) -> tuple[Any, Callable[[], None]]:
    rows = [{"x": each} for each in numbers.tolist()]
    return rows, lambda: rows[7].__setitem__("x", 9.5)


def refused_for_free(session: Session, ask: Callable[[], Any]) -> None:
    spent = session.spent()
    with pytest.raises(InvalidRequest, match="changed after it was opened"):
        ask()
    assert session.spent() == spent


@pytest.mark.parametrize("write", [write_parquet, write_csv, write_feather])
@pytest.mark.parametrize("same_time", [False, True], ids=["new time", "old time"])
def test_a_changed_file_is_refused_and_a_new_session_answers(write: Any, same_time: bool, tmp_path: Path) -> None:
    path = write(tmp_path, make_numbers())
    before = os.stat(path)
    ledger = tmp_path / "t.ledger"
    with Session(Dataset(path, bounds={"x": (0, 10)}), epsilon(10), ledger=ledger) as session:
        session.count(within=100)
        session.count(within=50)
        write(tmp_path, make_numbers()[::-1].copy())  # the same rows and size in another order
        if same_time:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        refused_for_free(session, lambda: session.count(within=20))
        refused_for_free(session, lambda: session.sum("x", within=500))
    with Session(Dataset(path, bounds={"x": (0, 10)}), ledger=ledger) as later:
        assert abs(later.count(within=20).value - ROWS) < 200


@pytest.mark.parametrize("make", [open_frame, open_column, open_array, open_arrow, open_list, open_rows])
def test_a_changed_object_in_memory_is_refused(make: Any) -> None:
    source, change = make(make_numbers())
    session = Session(Dataset(source, name="t", bounds={"x": (0, 10)}), epsilon(10))
    session.count(within=100)
    assert abs(session.sum("x", within=2000).value - 9000) < 10_000
    change()
    refused_for_free(session, lambda: session.count(within=20))


def test_views_and_parts_notice_too() -> None:
    numbers = make_numbers()
    visits = Dataset(
        pa.table({"id": np.arange(ROWS) // 2, "x": numbers}),
        name="t",
        unit="id",
        max_rows_per_unit=2,
        bounds={"x": (0, 10)},
    )
    people = visits.per_unit(total="sum(x)", bounds={"total": (0, 20)})
    other = Dataset(pa.table({"id": np.arange(ROWS)}), name="other", unit="id", max_rows_per_unit=1)
    joined = other.join(visits, on="id")
    views = [visits.where("x > 3"), people, joined]
    assert not any(view.has_changed() for view in views)
    numbers[5] = 9.5
    assert all(view.has_changed() for view in views)
    assert not visits.dummy().has_changed()


def open_query(path: str) -> Any:
    return f"select * from '{path}'"


def open_relation(path: str) -> Any:
    return duckdb.connect().sql(f"select * from '{path}' where x >= 0")


def open_lazy(path: str) -> Any:
    return pytest.importorskip("polars").scan_parquet(path).filter(x=3.0)


@pytest.mark.parametrize("make", [open_query, open_relation, open_lazy])
def test_a_query_whose_files_change_is_refused(make: Any, tmp_path: Path) -> None:
    session = Session(Dataset(make(write_parquet(tmp_path, make_numbers())), name="t"), epsilon(10))
    session.count(within=100)
    session.count(within=50)
    write_parquet(tmp_path, make_numbers()[::-1].copy())
    refused_for_free(session, lambda: session.count(within=20))


class _Changing(ArrowEngine):
    """Gives another version from some reading on."""

    versions = ("a",)

    def version(self) -> tuple[str, ...]:
        return self.versions

    def batches(self, columns: Any, **options: Any) -> Any:
        self.versions = ("b",)
        return super().batches(columns, **options)


def test_a_change_while_rows_are_read_stays_charged_and_releases_nothing() -> None:
    engine = _Changing(pa.table({"x": make_numbers()}))
    session = Session(Dataset(engine, name="t", bounds={"x": (0, 10)}), epsilon(2))
    with pytest.raises(TableChanged, match="changed between two readings"):
        session.count(epsilon=0.5)
    assert session.spent().amounts()["epsilon"] == 0.5
    refused_for_free(session, lambda: session.count(epsilon=0.5))


def test_a_fit_notices_a_change() -> None:
    numbers = make_numbers()
    dataset = Dataset(
        pa.table({"x": numbers, "y": np.ones(ROWS)}),
        name="t",
        bounds={"x": (0, 10), "y": (-1, 1)},
        adjacency="replace-one",
        rows=ROWS,
    )
    session = Session(dataset, epsilon(2))
    numbers[5] = 9.5
    refused_for_free(session, lambda: session.fit(Ridge(epsilon=1.0, feature_bound=10.0), features=["x"], target="y"))


def test_a_frame_may_get_columns_and_may_be_dropped() -> None:
    frame = pd.DataFrame({"x": make_numbers()})
    dataset = Dataset(frame, bounds={"x": (0, 10)})
    frame["more"] = 1
    assert not dataset.has_changed()
    del frame
    assert not dataset.has_changed()


def test_another_process_does_not_watch_memory() -> None:
    watch = pickle.loads(pickle.dumps(MemoryWatch({"x": make_numbers()})))
    assert watch.version() == (None,)
    assert is_same_version(("a",), watch.version())


def test_large_arrays_are_sampled_at_both_ends() -> None:
    numbers = np.zeros(1 << 21)
    watch = MemoryWatch({"x": numbers})
    before = watch.version()
    for place in (0, -1):
        numbers[place] = 1.0
        assert watch.version() != before
        numbers[place] = 0.0
    assert watch.version() == before


def test_a_file_that_vanished_has_another_version(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, make_numbers())
    before = file_version([path])
    assert file_version([path]) == before
    os.remove(path)
    assert not is_same_version(before, file_version([path]))
