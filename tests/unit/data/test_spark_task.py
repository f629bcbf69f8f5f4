"""Guards of Spark tasks that need no cluster."""

import operator
import pickle
from types import SimpleNamespace

import pytest

from expost.data.engines.spark_task import MergeResults, Result


def merge(*homes: int) -> list[int]:
    """Merge the results of tasks that had these shards, each with the result 1."""
    functions = SimpleNamespace(value=pickle.dumps((None, operator.add, None, None)))
    rows = [Result(0, 1, each, pickle.dumps(1)).to_batch() for each in homes]
    merged = [Result.of(row) for batch in MergeResults(functions)(rows) for row in batch.to_pylist()]
    return [each.read() for each in merged]


def test_results_of_different_shards_are_merged() -> None:
    assert merge(0b001, 0b010, 0b100) == [3]


def test_a_shard_that_was_bounded_in_two_tasks_ends_the_query() -> None:
    with pytest.raises(RuntimeError, match="A function of private rows failed"):
        merge(0b011, 0b110)
