"""Shards bring each unit's rows together, in memory or on disk."""

import os
import tempfile

import numpy as np
import pytest

from expost.data.bounding import Atoms
from expost.data.unit_shard import Shards


def batches(count: int, rows: int) -> list[Atoms]:
    rng = np.random.default_rng(3)
    return [
        Atoms(
            [rng.integers(0, 5000, rows).astype(np.uint64)],
            rng.integers(0, 9, rows),
            rng.integers(0, 1 << 20, (2, rows)).astype(float),
        )
        for _ in range(count)
    ]


def table(parts) -> np.ndarray:
    joined = Atoms.join(list(parts))
    columns = np.stack([joined.words[0].astype(float), joined.cell.astype(float), *joined.steps.astype(float)])
    return columns[:, np.lexsort(columns)]


@pytest.mark.parametrize("limit", [10**12, 1_000_000])
def test_every_row_comes_back_once_with_its_unit_in_one_shard(limit: int) -> None:
    given = batches(10, 30_000)
    with Shards(key=7, memory_limit=limit) as shards:
        for each in given:
            shards.add(each)
        found = list(shards)

    np.testing.assert_array_equal(table(found), table(given))
    homes = [set(each.words[0].tolist()) for each in found]
    assert sum(map(len, homes)) == len(set().union(*homes))
    assert len(found) > 1


def test_temporary_files_are_removed(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Shards(key=7, memory_limit=1) as shards:
        for each in batches(12, 30_000):
            shards.add(each)
        assert os.listdir(tmp_path)

    assert not os.listdir(tmp_path)


def test_no_rows_make_no_shards() -> None:
    with Shards(key=1) as shards:
        assert list(shards) == []
