"""The parts of a statement: what is released together, and what no two parts may do."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pytest

from expost import Dataset, Session
from expost.core import PlanContext
from expost.sql import read_statement
from expost.sql.statement_part import StatementPart
from expost.sql.statement_query import StatementQuery

TABLE = pa.table({"x": [1.0, 2.0, None] * 500, "y": [1, 2, 3] * 500})


def described() -> Dataset:
    """A table with two columns of numbers."""
    return Dataset(TABLE, name="t", bounds={"x": (0, 4), "y": (0, 4)})


def parts_of(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The kinds of the parts of a statement, and what each answers."""
    query = read_statement(text, {"t": described()}).query
    return [(part.kind, part.names) for part in query.parts]


PARTS = {
    "SELECT COUNT(*), AVG(x) FROM t WITH EPSILON 1": [("joint", ("rows", "mean"))],
    "SELECT AVG(x), SUM(x), COUNT(x), AVG(y) FROM t WITH EPSILON 1": [
        ("joint", ("mean", "sum", "count")),
        ("mean", ("mean",)),
    ],
    "SELECT COUNT(*), COUNT(x) FROM t WITH EPSILON 1": [("rows", ("rows",)), ("rows", ("count",))],
    "SELECT COUNT(*), SUM(x) FROM t ERROR WITHIN 10, 40": [("rows", ("rows",)), ("sum", ("sum",))],
    "SELECT COUNT(*), SUM(x) FROM t ERROR WITHIN 5%": [("joint", ("rows", "sum"))],
    "SELECT COUNT(*), AVG(x) FROM t ERROR WITHIN 10, 1": [("joint", ("rows", "mean"))],
    "SELECT COUNT(*) + COUNT(*) AS n, COUNT(*) FROM t WITH EPSILON 1": [("rows", ("rows",))],
    "SELECT COUNT(*) FILTER (WHERE y > 1), AVG(x) FROM t WITH EPSILON 1": [("rows", ("rows",)), ("mean", ("mean",))],
    "SELECT MIN(x), MAX(x) FROM t WITH EPSILON 1": [("bounds", ("lower bound", "upper bound"))],
}


@pytest.mark.parametrize("text", PARTS)
def test_statistics_of_the_same_rows_and_column_are_released_together(text: str) -> None:
    assert parts_of(text) == PARTS[text]


def twice() -> StatementQuery:
    """A statement whose two parts release the same vector; the reader of statements makes none."""
    query = read_statement("SELECT AVG(x) FROM t WITH EPSILON 4", {"t": described()}).query
    return replace(query, parts=(*query.parts, *query.parts))


def prices() -> list[float]:
    """What both parts cost after an earlier release at epsilon 1."""
    dataset = described()
    session = Session(dataset, 100)
    session.sql("SELECT AVG(x) FROM t WITH EPSILON 1")
    with session._cache.take_turn() as cache:
        plan = twice().plan(dataset, PlanContext(cache, frozenset({"pure"})))
    return [float(part.due) for part in plan.plans]


def test_no_release_is_continued_twice() -> None:
    assert prices() == [1, 2]


def test_two_parts_that_continued_one_release_would_be_caught() -> None:
    with mock.patch.object(StatementPart, "cache_key", lambda *_: None):
        assert prices() != [1, 2]
