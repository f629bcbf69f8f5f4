"""Statements without noise, compared with DuckDB on random tables. The long profile (EXPOST_LONG=1) asks 10,000 of them."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.unit.sql.exact_answers import without_noise
from tests.unit.sql.random_statements import (
    ITEMS,
    PUBLIC,
    RandomStatement,
    describe_tables,
    draw_rows,
    draw_statement,
    items_of,
    to_table,
)

from expost import Session
from expost.core import InvalidRequest
from expost.sql import read_statement

LONG = os.environ.get("EXPOST_LONG") == "1"
TABLES, PER_TABLE = (200, 50) if LONG else (8, 6)
pytestmark = pytest.mark.timeout(7200 if LONG else 300)
_REFUSED = 0.15  # of the statements at most
_REASONS = ("no COALESCE of a mean", "public bounds of", "a limit on the groups of one id")
"""Why a random statement may be refused. Anything else is an item of the subset that does not work."""


def close(kind: str, ours: Any, theirs: Any) -> bool:
    """Return whether a number agrees, up to the rounding of values to the grid."""
    if kind == "exact":
        return bool(ours == theirs)
    slack = {"real": 2e-3, "spread": 2e-2, "root": 2e-1, "free": 2e-2}[kind]
    return math.isclose(float(ours), float(theirs), rel_tol=1e-3, abs_tol=slack)


def compare(statement: RandomStatement, ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    """Compare the groups that both have; ours lists empty ones too, and has numbers where SQL has NULL."""
    found = {key_of(row[: statement.keys]): row[statement.keys :] for row in ours}
    expected = {key_of(row[: statement.keys]): row[statement.keys :] for row in theirs}
    assert expected.keys() <= found.keys(), (expected.keys() - found.keys(), found)
    if statement.having:
        assert expected.keys() == found.keys()
    for key, values in expected.items():
        for kind, mine, exact in zip(statement.kinds, found[key], values, strict=True):
            if exact is not None and exact == exact:  # 0 / 0 of DuckDB
                assert close(kind, mine, exact), (key, kind, mine, exact)
    for key in found.keys() - expected.keys():
        assert all(mine in (0, None) for kind, mine in zip(statement.kinds, found[key], strict=True) if kind == "count")


def key_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return labels that compare alike: numbers as floats, dates as times."""
    shown: list[Any] = []
    for value in values:
        if isinstance(value, bool | str) or value is None:
            shown.append(value)
        elif isinstance(value, int | float):
            shown.append(float(value) + 0.0)
        else:
            shown.append(str(value)[:10])
    return tuple(shown)


def ask_both(seed: int, count: int, seen: Counter[str]) -> tuple[int, int]:
    """Ask statements about one random table, and return how many were asked and refused. Count the items that were answered."""
    random = np.random.default_rng([17, seed])
    size = int(random.choice([0, 1, 5, 40, 40, 60]))
    visits, people = (
        to_table(draw_rows(random, size if name == "visits" else 9, table=name), name) for name in ("visits", "people")
    )
    database = duckdb.connect()
    database.register("all_visits", visits)
    database.register("all_people", people)
    database.register("places", PUBLIC)
    persons = seed % 4 != 0
    # Rows without an id belong to nobody.
    condition = "WHERE id IS NOT NULL" if persons else ""
    database.execute(f"CREATE VIEW visits AS SELECT * FROM all_visits {condition}")
    database.execute("CREATE VIEW people AS SELECT * FROM all_people WHERE id IS NOT NULL")
    first, second = describe_tables(visits, people, unit="id" if persons else "row", most=200)
    refused = 0
    for _ in range(count):
        statement = draw_statement(random, persons=persons)
        if not persons and "DISTINCT" in statement.text:
            continue
        session = Session(first, 10**6, tables=[second] if second is not None else [])
        try:
            with without_noise():
                ours = session.sql(f"{statement.text} WITH EPSILON 8", tables={"places": PUBLIC})
        except InvalidRequest as refusal:
            assert "Look at the mark" in str(refusal), (statement.text, refusal)
            assert any(reason in str(refusal) for reason in _REASONS), (statement.text, refusal)
            refused += 1
            continue
        seen.update(items_of(statement.text))
        theirs = database.execute(statement.text).fetchall()
        try:
            compare(statement, list(ours.value), theirs)
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}: {statement.text}\n{difference}\n{ours}\n{theirs}") from None
    return count, refused


def test_statements_without_noise_say_what_duckdb_says() -> None:
    asked = refused = 0
    seen: Counter[str] = Counter()
    for seed in range(TABLES):
        counts = ask_both(seed, PER_TABLE, seen)
        asked, refused = asked + counts[0], refused + counts[1]
    assert refused <= _REFUSED * asked, (refused, asked)
    print(f"{asked} asked, {refused} refused; answered:", dict(seen.most_common()))
    assert not LONG or min(seen[item] for item in ITEMS) >= 20


def test_every_item_of_the_subset_is_drawn_and_read() -> None:
    random = np.random.default_rng(23)
    visits, people = to_table(draw_rows(random, 5)), to_table(draw_rows(random, 5, table="people"), "people")
    first, second = describe_tables(visits, people)
    assert second is not None
    seen: Counter[str] = Counter()
    for _ in range(600):
        text = draw_statement(random, persons=True).text
        try:
            read_statement(f"{text} WITH EPSILON 1", {"visits": first, "people": second}, public={"places": PUBLIC})
        except InvalidRequest as refusal:
            assert any(reason in str(refusal) for reason in _REASONS), (text, refusal)
            continue
        seen.update(items_of(text))
    assert set(seen) == set(ITEMS), set(ITEMS) - set(seen)


def test_a_wrong_answer_would_be_noticed() -> None:
    statement = RandomStatement("", 1, ("exact", "real"), having=False)
    compare(statement, [("a", 3, 1.5), ("b", 0, 0.0)], [("a", 3, 1.5)])
    for wrong in ([("a", 4, 1.5)], [("a", 3, 1.6)], [("b", 3, 1.5)]):
        with pytest.raises(AssertionError):
            compare(statement, wrong, [("a", 3, 1.5)])
