"""Encoded rows: few are kept, many are read again in every pass, and results are the same either way."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost.core import TableChanged
from expost.data.engines import ArrowEngine
from expost.models.tabular import grid_table
from expost.models.tabular.grid_table import GridTable
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.tabular_rows import RowChunk

COLUMNS = {"age": (0, 100), "city": ["Rome", "Oslo"], "sick": [False, True]}
PLAIN = TableProfile(1.0, np.zeros(2), np.ones(2), 1.0)


class RestlessEngine(ArrowEngine):
    """Reads its rows in another order and in other batches each time."""

    def __init__(self, table: pa.Table, *, growing: bool = False) -> None:
        super().__init__(table)
        self._rng, self._growing, self.passes = np.random.default_rng(7), growing, 0

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = 1 << 17) -> Iterator[pa.RecordBatch]:
        self.passes += 1
        rows = self._table.num_rows if not self._growing else self._table.num_rows - 100 + self.passes
        mixed = self._table.select(list(columns)).take(self._rng.permutation(rows)).combine_chunks()
        for start in range(0, rows, 137 + self.passes):
            yield from mixed.slice(start, 137 + self.passes).to_batches()


def people(rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(3)
    age, city = rng.uniform(0, 100, rows), rng.choice(["Rome", "Oslo", "Bonn"], rows)
    sick = (age > 50) ^ (rng.random(rows) < 0.1)
    return pa.table({"id": rng.integers(0, rows // 3, rows), "age": age, "city": city, "sick": sick, "stay": age / 10})


def fit(table: Any, kind: str, **terms: Any) -> tuple[np.ndarray, np.ndarray]:
    if kind == "classifier":
        model = expost.Classifier(columns=COLUMNS, epsilon=0.7, simulation_seed=1, **terms).fit(table, target="sick")
    else:
        columns = {name: COLUMNS[name] for name in ("age", "city")}
        model = expost.Regressor(columns=columns, target_bounds=(0, 10), epsilon=0.7, simulation_seed=1, **terms).fit(
            table, target="stay"
        )
    return model.coef_, model.intercept_


@pytest.mark.parametrize("terms", [{}, {"unit": "id", "max_rows_per_unit": 2}], ids=["rows", "persons"])
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_rows_that_are_read_again_in_any_order_give_the_model_of_rows_that_are_kept(
    kind: str, terms: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The choice of a person's rows has a fresh secret: fix it to compare.
    monkeypatch.setattr("expost.models.tabular.tabular_rows.system_bits", lambda: FixedBits())
    kept = fit(people(), kind, **terms)
    monkeypatch.setattr(grid_table, "MEMORY_LIMIT", 0)
    engine = RestlessEngine(people())
    streamed = fit(engine, kind, **terms)

    assert engine.passes > 30
    assert all(np.array_equal(one, other) for one, other in zip(kept, streamed, strict=True))


class FixedBits:
    def words(self, count: int) -> np.ndarray:
        return np.arange(count, dtype=np.uint64)


def test_a_table_of_persons_that_changes_between_passes_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_table, "MEMORY_LIMIT", 0)

    with pytest.raises(TableChanged):
        fit(RestlessEngine(people(), growing=True), "classifier", unit="id", max_rows_per_unit=2)


def test_a_table_of_rows_that_changes_between_passes_is_fitted_to_what_each_pass_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grid_table, "MEMORY_LIMIT", 0)

    assert np.isfinite(fit(RestlessEngine(people(), growing=True), "classifier")[0]).all()


def make_blocks(count: int) -> tuple[Any, list[int]]:
    reads: list[int] = []

    def read() -> Iterator[RowChunk]:
        reads.append(1)
        for number in range(count):
            yield RowChunk(np.full((10, 2), 0.1 * number, np.float32), np.zeros(10), np.ones(10, np.float32))

    return read, reads


def test_few_rows_are_read_once_and_many_in_every_pass_and_none_of_these_is_kept() -> None:
    read, reads = make_blocks(5)
    small = GridTable(read, PLAIN, classes=2)
    passes = [[rows.integers().tolist() for rows, _, _ in small] for _ in range(3)]
    assert len(reads) == 1

    large = GridTable(read, PLAIN, classes=2, memory_limit=500)
    again = [[rows.integers().tolist() for rows, _, _ in large] for _ in range(3)]
    assert len(reads) == 4
    assert passes == again
    assert large._kept is None


def test_a_pass_that_was_not_finished_is_not_kept() -> None:
    read, reads = make_blocks(5)
    table = GridTable(read, PLAIN, classes=2)
    next(iter(table))

    assert len(list(table)) == 5
    assert len(reads) == 2


def test_private_rows_are_neither_shown_nor_pickled() -> None:
    table = GridTable(make_blocks(1)[0], PLAIN, classes=2)
    assert "private" in repr(table)
    with pytest.raises(TypeError):
        pickle.dumps(table)
