"""Lazy polars frames are streamed: every pass runs the query again, and no pass holds its whole result."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import expost
from expost.core import InvalidRequest
from expost.data.data_source import open_source

FRAME = pl.DataFrame({"age": range(1000), "city": ["Rome", "Oslo"] * 500})


def test_a_lazy_frame_is_read_in_batches_without_collecting_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "rows.parquet")
    lazy, collected = pl.scan_parquet(tmp_path / "rows.parquet"), []
    collect = pl.LazyFrame.collect

    def watch(frame: pl.LazyFrame, *terms: Any, **named: Any) -> Any:
        found = collect(frame, *terms, **named)
        collected.append(len(found))
        return found

    monkeypatch.setattr(pl.LazyFrame, "collect", watch)
    engine, _ = open_source(lazy)
    for _ in range(2):
        batches = list(engine.batches(["age"], rows_per_batch=300))
        assert sorted(value for batch in batches for value in batch.column(0).to_pylist()) == list(range(1000))
        assert max(batch.num_rows for batch in batches) <= 300
    assert max(collected) == 0
    assert sum(batch.num_rows for batch in engine.batches([])) == 1000


def test_a_lazy_frame_answers_as_the_frame_does() -> None:
    for source in (FRAME, FRAME.lazy()):
        session = expost.Session(expost.Dataset(source, bounds={"age": (0, 1000)}), expost.approx(1000, 1e-6))
        assert abs(float(session.mean("age", epsilon=900).value) - 499.5) < 1


def test_declared_types_of_a_lazy_frame_are_read_cell_by_cell() -> None:
    lazy = pl.DataFrame({"age": [1.0, 2.5, None]}).lazy()
    engine, _ = open_source(lazy, types={"age": "integer"})

    assert [value for batch in engine.batches(["age"]) for value in batch.column(0).to_pylist()] == [1, None, None]
    with pytest.raises(InvalidRequest, match="types of the table's columns"):
        open_source(lazy, types={"aeg": "integer"})


def test_an_account_recognises_a_lazy_frame_and_its_copy() -> None:
    one, other = (open_source(source)[0].identity() for source in (FRAME.lazy(), FRAME.clone().lazy()))
    different = open_source(FRAME.with_columns(pl.col("age") + 1).lazy())[0].identity()

    assert one == other
    assert one != different
