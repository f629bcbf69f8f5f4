"""Random statements on neighbouring tables: sealed answers differ within their sensitivity, and nothing else differs.

With an id as the unit, the neighbours differ by all rows of one person in both tables. The long profile (EXPOST_LONG=1)
asks many more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.privacy.replay import Seen, assert_one_number_differs
from tests.unit.sql.random_statements import PUBLIC, describe_tables, draw_rows, draw_statement, to_table

from expost import Session, approx
from expost.core import InvalidRequest

LONG = os.environ.get("EXPOST_LONG") == "1"
STATEMENTS = 400 if LONG else 8
pytestmark = pytest.mark.timeout(7200 if LONG else 300)

Rows = list[dict[str, Any]]


def is_asked(text: str, visits: Rows, people: Rows, unit: str) -> bool:
    """Whether a statement is inside the subset; that is decided by public facts alone."""
    first, second = describe_tables(to_table(visits), to_table(people, "people"), unit=unit)
    with Session(first, 1000, tables=[second] if second is not None else []) as session:
        try:
            session.sql_price(text, tables={"places": PUBLIC})
        except InvalidRequest:
            return False
    return True


def action(text: str, visits: Rows, people: Rows, unit: str, most: int) -> Callable[[Any], Any]:
    """What an analyst does: opens the tables and asks."""

    def run(bits: Any) -> Any:
        first, second = describe_tables(to_table(visits), to_table(people, "people"), unit=unit, most=most)
        tables = [] if second is None else [second]
        session = Session(first, approx(500, 0.5), tables=tables, bits=bits, simulation=True)
        release = session.sql(text, tables={"places": PUBLIC})
        return repr(first), release.table_cells(), release.receipt

    return run


def check(seed: int, *, unit: str) -> Seen | None:
    """Compare one statement on two neighbours."""
    random = np.random.default_rng([29, seed, len(unit)])
    visits, people = draw_rows(random, 20), draw_rows(random, 8, table="people")
    text = draw_statement(random, persons=unit == "id", picks=True).text
    clause = str(random.choice(["WITH EPSILON 2", "ERROR WITHIN 20% AT MOST EPSILON 9", "WITH EPSILON 0.5"]))
    text = f"{text} {clause}"
    most = int(random.choice([1, 2, 200]))
    if unit == "row":
        others = list(visits)
        others.pop(int(random.integers(len(others))))
        pairs = (visits, others), (people, people)
        if "DISTINCT" in text:
            return None
    else:
        person = int(random.integers(12))
        pairs = tuple((rows, [row for row in rows if row["id"] != person]) for rows in (visits, people))  # type: ignore[assignment]
    if not is_asked(text, visits, people, unit):
        return None
    # The secrets by which rows are kept are the same in both runs; the guarantee holds for each value of them.
    with mock.patch("os.urandom", lambda size: bytes(range(size))):
        return assert_one_number_differs(
            action(text, pairs[0][0], pairs[1][0], unit, most), action(text, pairs[0][1], pairs[1][1], unit, most)
        )


@pytest.mark.parametrize("unit", ["row", "id"])
def test_one_unit_changes_the_sealed_answers_of_a_statement_and_nothing_else(unit: str) -> None:
    compared = [check(seed, unit=unit) for seed in range(STATEMENTS)]
    assert sum(seen is not None and bool(seen.sealed) for seen in compared) >= STATEMENTS / 3


def test_private_groups_of_a_statement_are_released_as_keys() -> None:
    random = np.random.default_rng(31)
    visits = draw_rows(random, 60, ids=30)
    text = "SELECT FLOOR(x / 8) / 2 AS c, COUNT(*), AVG(x) FROM visits GROUP BY c WITH EPSILON 20 WITH DELTA 0.01"
    person = 3
    rest = [row for row in visits if row["id"] != person]
    seen = assert_one_number_differs(action(text, visits, [], "id", 2), action(text, rest, [], "id", 2))
    assert seen.keys
