"""Sources that cannot be read: the house's error, without a word of what is in them."""

from __future__ import annotations

import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from expost import Dataset, Session, epsilon
from expost.core import ExpostError, InvalidRequest

SECRET = "meiko-4711"


def parquet(path: Path) -> bytes:
    pq.write_table(pa.table({"name": [SECRET] * 1000}), path / "whole.parquet", compression=None)
    return (path / "whole.parquet").read_bytes()


FILES = {
    "text.parquet": lambda whole: SECRET.encode(),
    "empty.parquet": lambda whole: b"",
    "cut.parquet": lambda whole: whole[: len(whole) // 2],
    "tail.parquet": lambda whole: whole[:-4] + b"XXXX",
    "footer.parquet": lambda whole: whole[:-300] + b"\xff" * 200 + whole[-100:],
    "text.arrow": lambda whole: SECRET.encode() * 100,
    "empty.feather": lambda whole: b"",
    "bytes.csv": lambda whole: bytes(range(256)) * 20,
    "table.xlsx": lambda whole: b"PK",
    "table": lambda whole: b"a,b\n1,2\n",
}


def refused(source: object, **terms: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest, match="Expected") as refusal:
        Dataset(source, **terms)
    assert refusal.value.__context__ is None and refusal.value.__cause__ is None
    assert SECRET not in str(refusal.value)
    return refusal.value


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused_in_our_own_words(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name](parquet(tmp_path)))
    assert name in str(refused(tmp_path / name))


@pytest.mark.parametrize("name", ["missing.parquet", "missing.csv", "", ".", "folder.parquet", "*.parquet"])
def test_what_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    refused(str(tmp_path / name))


@pytest.mark.parametrize("name", ["table.parquet", "table.csv", "table.arrow"])
def test_a_file_that_may_not_be_read_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(f"no {SECRET}")

    (tmp_path / name).write_bytes(b"a\n1\n")
    for place in ("pyarrow.parquet.read_schema", "pathlib.Path.open", "pyarrow.memory_map"):
        monkeypatch.setattr(place, forbidden)
    refused(tmp_path / name, types={"a": "integer"} if name.endswith("csv") else None)


def test_a_database_that_cannot_be_reached_does_not_show_its_password() -> None:
    pytest.importorskip("adbc_driver_postgresql")
    refused(f"postgresql://u:{SECRET}@localhost:1/d?table=t")


FRAMES = {
    "numbers and texts": pd.DataFrame({"x": [1, SECRET, None, {}]}),
    "lists and texts": pd.DataFrame({"x": [[1], SECRET]}),
    "repeated names": pd.DataFrame([[1, SECRET]], columns=["x", "x"]),
    "numbers beyond 64 bits": pd.DataFrame({"x": [10**30, 1]}),
    "a series": pd.Series([SECRET]),
    "a dictionary": {"x": [SECRET]},
    "an array": np.zeros((2, 2)),
    "bytes": b"table.parquet",
    "nothing": None,
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_is_no_table_is_refused_without_its_cells(name: str) -> None:
    refused(FRAMES[name])


@pytest.mark.parametrize("name", ["numbers and texts", "repeated names", "nothing"])
def test_a_public_table_that_is_none_is_refused_too(name: str) -> None:
    people = Dataset(pa.table({"x": [1]}))
    with pytest.raises(InvalidRequest, match="Expected a table") as refusal:
        people.join(FRAMES[name], on="x")
    assert refusal.value.__context__ is None


ODD = {
    "long doubles": pd.DataFrame({"x": np.array([1, 2], np.longdouble)}),
    "sparse": pd.DataFrame({"x": pd.arrays.SparseArray([0, 1])}),
    "complex numbers": pd.DataFrame({"x": [1 + 2j, 1j]}),
    "periods": pd.DataFrame({"x": pd.period_range("2020", periods=2)}),
    "intervals": pd.DataFrame({"x": pd.interval_range(0, 2)}),
    "categories": pd.DataFrame({"x": pd.Categorical(["a", "b"])}),
    "durations": pd.DataFrame({"x": pd.to_timedelta([1, 2])}),
    "half floats": pd.DataFrame({"x": np.array([1, 2], np.float16)}),
    "decimals": pd.DataFrame({"x": [decimal.Decimal("1.1")] * 2}),
    "bytes": pd.DataFrame({"x": [b"a", b"\xff"]}),
    "numbered columns": pd.DataFrame([[1, 2], [3, 4]]),
    "nested": pa.table({"x": [[1, 2], [3]], "s": [{"a": 1}, {"a": 2}]}),
    "no rows": pa.table({"x": pa.array([], pa.int64())}),
    "no columns": pa.table({}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_tables_are_counted_or_refused_and_never_fail(name: str) -> None:
    try:
        answer = Session(Dataset(ODD[name], name="odd"), epsilon(100)).count(epsilon=90)
    except ExpostError as refusal:
        assert isinstance(refusal, InvalidRequest)
    else:
        assert answer.value == (0 if name.startswith("no ") else 2)


@pytest.mark.parametrize("table", [ODD["no rows"], ODD["no columns"]], ids=["no rows", "no columns"])
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_of_no_rows_or_no_columns_are_counted(table: pa.Table, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    assert Session(Dataset(path, name="odd"), epsilon(100)).count(epsilon=90).value == 0
