"""Marks of rows that have a match in another private table: a person's marks depend on that person's rows only."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.replay import assert_one_number_differs
from tests.unit.data.test_unit_join import LEFT, RIGHT, described, duckdb_join, made_up, only, rows_of, without

from expost import Session, epsilon
from expost.core import InvalidRequest
from expost.data import Dataset, col


def marked(left: pa.Table, right: pa.Table, on: Any = "id") -> Dataset:
    """The rows of one table with a mark."""
    return described(left).join(described(right), on=on, how="exists", prefix="known")


@pytest.mark.parametrize("on", ["id", ["id", "k"], ["k", "id"]])
@pytest.mark.parametrize("size", [0, 1, 50])
def test_marks_are_those_of_exists_in_duckdb(on: Any, size: int) -> None:
    left, right = made_up(LEFT, 60, seed=1), made_up(RIGHT, size, seed=2)
    keys = [on] if isinstance(on, str) else on
    condition = " AND ".join(f"l.{key} = r.{key}" for key in keys)
    text = f"SELECT l.*, EXISTS (SELECT * FROM rights r WHERE {condition}) AS known FROM lefts l"

    assert rows_of(marked(left, right, on)) == rows_of(Dataset(duckdb_join(left, right, text)))


def test_a_filter_of_the_other_table_applies_first() -> None:
    left, right = made_up(LEFT, 60, seed=1), made_up(RIGHT, 50, seed=2)
    view = described(left).join(described(right).where("k >= 1"), on="id", how="exists", prefix="known")
    text = "SELECT l.*, EXISTS (SELECT * FROM rights r WHERE l.id = r.id AND r.k >= 1) AS known FROM lefts l"

    assert rows_of(view) == rows_of(Dataset(duckdb_join(left, right, text)))


def test_columns_without_the_mark_are_those_of_the_table() -> None:
    left, right = made_up(LEFT, 30, seed=1), made_up(RIGHT, 20, seed=2)
    view = marked(left, right)
    assert [batch.num_columns for batch in view.batches(["x", "k"])] == [2]
    assert view.max_rows_per_unit == 3


def test_the_marks_of_a_person_depend_on_no_other_person_order_or_batch() -> None:
    left, right = made_up(LEFT, 80, seed=3), made_up(RIGHT, 60, seed=4)
    everybody = rows_of(marked(left, right, ["id", "k"]))
    shuffled = np.random.default_rng(5).permutation(80), np.random.default_rng(6).permutation(60)
    assert rows_of(marked(left.take(shuffled[0]), right.take(shuffled[1]), ["id", "k"])) == everybody
    for person in ("a", "", "x" * 5000):
        alone = rows_of(marked(only(left, person), only(right, person), ["id", "k"]))
        others = rows_of(marked(without(left, person), without(right, person), ["id", "k"]))
        assert alone + others == everybody
    small = marked(left, right)
    parts = list(small._engine.batches(["id", "known"], rows_per_batch=7))
    whole = list(small._engine.batches(["id", "known"]))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches(whole).combine_chunks())


@pytest.mark.parametrize("person", ["a", "b", "c"])
@pytest.mark.parametrize("condition", [col("known"), ~col("known")])
def test_one_person_moves_a_count_of_marked_rows_and_nothing_else(person: str, condition: Any) -> None:
    left, right = made_up(LEFT, 60, seed=7), made_up(RIGHT, 50, seed=8)

    def ask(first: pa.Table, second: pa.Table) -> Any:
        def run(bits: Any) -> Any:
            view = described(first).join(described(second), on=["id", "k"], how="exists", prefix="known")
            session = Session(described(first), epsilon(9), tables=[], bits=bits, simulation=True).view(view)
            return session.count(where=condition, epsilon=1).value

        return run

    with mock.patch("os.urandom", lambda size: bytes(range(size))):
        seen = assert_one_number_differs(ask(left, right), ask(without(left, person), without(right, person)))
    assert seen.sealed


def test_marks_that_cannot_be_made_are_refused() -> None:
    left, right = made_up(LEFT, 5, seed=1), made_up(RIGHT, 5, seed=2)
    first, second = described(left), described(right)
    for terms, reason in (
        ({"on": "k", "prefix": "known"}, "id of the unit among the keys"),
        ({"on": "id", "prefix": "x"}, "a new name"),
        ({"on": "id"}, "a new name"),
        ({"on": "id", "prefix": "known", "max_rows_per_unit": 3}, "no max_rows_per_unit"),
        ({"on": ["id", "x"], "prefix": "known"}, "same type"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            first.join(second, how="exists", **terms)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="same id column"):
        Dataset(left).join(second, on="id", how="exists", prefix="known")
    with pytest.raises(InvalidRequest, match="one key of a public table"):
        first.join({"k": [1], "z": [2]}, on="k", how="exists", prefix="known")
