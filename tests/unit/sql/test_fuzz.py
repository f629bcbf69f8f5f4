"""Any text gets an answer or a clear refusal: no other exception leaves. The long profile (EXPOST_LONG=1) tries many more."""

from __future__ import annotations

import os
import re
import string

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from tests.unit.sql.random_statements import PUBLIC, describe_tables, draw_rows, draw_statement, to_table

from expost import Session
from expost.core import BudgetExceeded, InvalidRequest, TargetNotMet

LONG = os.environ.get("EXPOST_LONG") == "1"
TRIES = 20_000 if LONG else 150
ASKED = 2000 if LONG else 100
pytestmark = pytest.mark.timeout(7200 if LONG else 300)
WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "RIGHT",
    "CROSS",
    "USING",
    "ON",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "AS",
    "DISTINCT",
    "WITH",
    "RECURSIVE",
    "EXPLAIN",
    "PRICE",
    "ERROR",
    "WITHIN",
    "AT",
    "CONFIDENCE",
    "MOST",
    "EPSILON",
    "DELTA",
    "FILTER",
    "COUNT",
    "SUM",
    "AVG",
    "MEDIAN",
    "MODE",
    "QUANTILE_CONT",
    "VAR_POP",
    "CORR",
    "MIN",
    "MAX",
    "FLOOR",
    "ROUND",
    "COALESCE",
    "NULLIF",
    "CAST",
    "EXTRACT",
    "INTERVAL",
    "OVER",
    "PARTITION",
    "UNION",
    "ALL",
    "EXISTS",
    "QUALIFY",
    "WINDOW",
    "TABLESAMPLE",
    "PIVOT",
    "LATERAL",
    "UNNEST",
    "VALUES",
    "visits",
    "people",
    "places",
    "id",
    "x",
    "n",
    "city",
    "flag",
    "seen",
    "age",
    "job",
    "(",
    ")",
    "(",
    ")",
    ",",
    ",",
    ".",
    "*",
    "+",
    "-",
    "/",
    "%",
    "=",
    "<",
    ">",
    "<>",
    "||",
    "::",
    ";",
    "'",
    '"',
    "`",
    "[",
    "]",
    "{",
    "}",
    "1",
    "0",
    "5%",
    "0.1",
    "1e-6",
    "1e999",
    "'a'",
    "'%'",
    "--",
    "/*",
    "*/",
    "$1",
    "?",
    ":a",
    "@",
    "#",
    "\\",
    "\n",
]


@pytest.fixture(scope="module")
def session() -> Session:
    """A session about small tables; nothing is asked of it twice."""
    random = np.random.default_rng(3)
    visits, people = to_table(draw_rows(random, 20)), to_table(draw_rows(random, 9, table="people"), "people")
    first, second = describe_tables(visits, people)
    assert second is not None
    return Session(first, 10**6, tables=[second])


def check(session: Session, text: str, dialect: str = "duckdb", *, ask: bool = False) -> None:
    """Fail unless a text gets an answer or a refusal that cost nothing."""
    try:
        if ask:
            session.sql(text, dialect=dialect, tables={"places": PUBLIC})
        else:
            session.sql_price(text, dialect=dialect, tables={"places": PUBLIC})
    except (InvalidRequest, BudgetExceeded) as refusal:
        assert str(refusal).strip()
        assert "sqlglot" not in str(refusal)
    except TargetNotMet as missed:
        assert missed.release is not None


@settings(max_examples=TRIES)
@given(text=st.text(max_size=80), dialect=st.sampled_from(["duckdb", "postgres", "spark"]))
def test_any_text_is_answered_or_refused(session: Session, text: str, dialect: str) -> None:
    check(session, text, dialect)


@settings(max_examples=TRIES)
@given(words=st.lists(st.sampled_from(WORDS), max_size=25), dialect=st.sampled_from(["duckdb", "postgres", "spark"]))
def test_any_words_of_sql_are_answered_or_refused(session: Session, words: list[str], dialect: str) -> None:
    check(session, "SELECT " + " ".join(words), dialect)


def test_statements_with_faults_are_answered_or_refused(session: Session) -> None:
    random = np.random.default_rng(11)
    for _ in range(TRIES):
        text = f"{draw_statement(random, persons=True).text} {random.choice(['WITH EPSILON 1', 'ERROR WITHIN 5%'])}"
        for _ in range(int(random.integers(0, 4))):
            text = _damage(text, random)
        check(session, text, str(random.choice(["duckdb", "postgres", "spark"])))


def _damage(text: str, random: np.random.Generator) -> str:
    """Remove, repeat, swap or insert a part of a text."""
    words = text.split(" ")
    place, other = (int(random.integers(len(words))) for _ in range(2))
    kind = int(random.integers(6))
    if kind == 0:
        del words[place]
    elif kind == 1:
        words.insert(place, words[other])
    elif kind == 2:
        words[place], words[other] = words[other], words[place]
    elif kind == 3:
        words.insert(place, str(random.choice(WORDS)))
    elif kind == 4:
        words[place] = str(random.choice(WORDS))
    else:
        at = int(random.integers(len(text) + 1))
        return (
            text[:at] + str(random.choice(list(string.printable + "é\0\ud800"))) + text[at + int(random.integers(2)) :]
        )
    return " ".join(words) or "SELECT"


def test_statements_with_exchanged_parts_are_answered_or_refused(session: Session) -> None:
    random = np.random.default_rng(13)
    pool = [draw_statement(random, persons=True, picks=True).text for _ in range(60)]
    for _ in range(TRIES):
        text, other = (str(random.choice(pool)) for _ in range(2))
        for _ in range(int(random.integers(1, 4))):
            text = exchange_part(text, other, random)
        check(session, f"{text} WITH EPSILON 1", str(random.choice(["duckdb", "postgres", "spark"])))


FUNCTIONS = sorted({name for each in exp.ALL_FUNCTIONS for name in each.sql_names()})
CONSTANTS = [
    "0",
    "1",
    "-1",
    "2.5",
    "1e308",
    "1e-320",
    "9223372036854775807",
    "9223372036854775808",
    "''",
    "'NaN'",
    "'inf'",
    "'é'",
    "NULL",
    "TRUE",
    "FALSE",
    "'2024-02-30'",
    "'2024-01-05'",
    "DATE'9999-12-31'",
    "TIMESTAMP'0001-01-01'",
    "INTERVAL'1'DAY",
    "(SELECT(1))",
    "[1,2]",
    "(1,2)",
    "{'a':1}",
    "*",
    "x",
    "n",
    "city",
    "seen",
    "flag",
    "id",
    "COUNT(*)",
    "AVG(x)",
]
PARTS = {
    "name": (
        r"\b[a-z]\w*\b",
        ["id", "x", "n", "city", "flag", "seen", "age", "job", "k0", "v0", "visits", "people", "nowhere"],
    ),
    "function": (r"\b[A-Z_]{2,}(?=\()", FUNCTIONS),
    "constant": (r"'[^']*'|\b\d+(\.\d+)?\b|\bNULL\b", CONSTANTS),
    "operator": (
        r"<>|<=|>=|[=<>+*/%]|\bAND\b|\bOR\b|\bLIKE\b",
        ["=", "<>", "<", "+", "-", "*", "/", "%", "AND", "OR", "||", "LIKE", "IN", "IS"],
    ),
    "group": (r"\([^()]*\)", []),
    "join": (
        r"\b(LEFT |SEMI |ANTI |CROSS )?JOIN\b",
        ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "SEMI JOIN", "ASOF JOIN"],
    ),
}
"""Kinds of the parts of a statement: a regular expression, and what else may stand there."""


def exchange_part(text: str, other: str, random: np.random.Generator) -> str:
    """Replace a part of a statement by another part of its kind, so that most results can still be parsed."""
    pattern, values = PARTS[str(random.choice(list(PARTS)))]
    places = list(re.finditer(pattern, text))
    values = [*values, *(each.group() for each in re.finditer(pattern, other))] if random.random() < 0.8 else CONSTANTS
    if not places or not values:
        return text
    place = places[int(random.integers(len(places)))]
    return text[: place.start()] + values[int(random.integers(len(values)))] + text[place.end() :]


FORMULAS = [
    "({0} + {1})",
    "{0} - {1}",
    "({0} * {1})",
    "{0} / {1}",
    "-({0})",
    "ROUND({0}, {1})",
    "ROUND({0})",
    "FLOOR({0})",
    "CEIL({0})",
    "ABS({0})",
    "SQRT({0})",
    "NULLIF({0}, {1})",
    "COALESCE({0}, {1})",
    "LEAST({0}, {1})",
    "GREATEST({0}, {1}, {2})",
    "CAST({0} AS DOUBLE)",
    "CAST({0} AS INTEGER)",
    "CASE WHEN {0} > {1} THEN {2} END",
    "{0} = {1}",
    "{0} < {1}",
    "({0} AND {1})",
    "NOT {0}",
    "{0} IS NULL",
    "{0} IN ({1}, {2})",
    "{0} BETWEEN {1} AND {2}",
]
ATOMS = [
    *[
        "COUNT(*)",
        "AVG(x)",
        "SUM(n)",
        "MODE(city)",
        "MODE(flag)",
        "city",
        "flag",
        "MONTH(seen)",
        "DATE_TRUNC('month', seen)",
    ],
    *[
        "0",
        "2",
        "-3",
        "0.5",
        "1e308",
        "1" + "0" * 300,
        "'a'",
        "'2024-01-05'",
        "DATE '2024-01-05'",
        "NULL",
        "TRUE",
        "1 + 1",
    ],
]


def draw_formula(random: np.random.Generator, depth: int) -> str:
    """Draw a formula of released values, whatever the kinds of its parts."""
    if depth <= 0 or random.random() < 0.2:
        return str(random.choice(ATOMS))
    return str(random.choice(FORMULAS)).format(*(draw_formula(random, depth - 1) for _ in range(3)))


def test_formulas_are_refused_before_anything_is_paid_or_do_not_fail(session: Session) -> None:
    random = np.random.default_rng(19)
    for _ in range(ASKED):
        column, condition, order = (draw_formula(random, int(random.integers(1, 4))) for _ in range(3))
        clauses = [f" HAVING {condition}", f" ORDER BY {order}"]
        text = f"SELECT {column} AS c FROM visits GROUP BY city, flag, DATE_TRUNC('month', seen), MONTH(seen)"
        check(session, f"{text}{clauses[int(random.integers(2))] * (random.random() < 0.5)} WITH EPSILON 1", ask=True)


HOSTILE = {
    "deep parentheses": "SELECT COUNT(*) FROM visits WHERE " + "(" * 5000 + "x" + ")" * 5000,
    "many nots": "SELECT COUNT(*) FROM visits WHERE " + "NOT " * 5000 + "flag WITH EPSILON 1",
    "many minuses": "SELECT SUM(" + "- " * 5000 + "x) FROM visits WITH EPSILON 1",
    "a long sum": "SELECT SUM(" + "+".join(["x"] * 4000) + ") FROM visits WITH EPSILON 1",
    "many ands": "SELECT COUNT(*) FROM visits WHERE " + " AND ".join(["flag"] * 3000) + " WITH EPSILON 1",
    "nested cases": "SELECT SUM("
    + "CASE WHEN flag THEN 1 ELSE " * 500
    + "0"
    + " END" * 500
    + ") FROM visits WITH EPSILON 1",
    "a view of itself": "WITH v AS (SELECT * FROM v) SELECT COUNT(*) FROM v WITH EPSILON 1",
    "two views of each other": "WITH v AS (SELECT * FROM w), w AS (SELECT * FROM v) SELECT COUNT(*) FROM v WITH EPSILON 1",
    "views that double a column": "WITH v0 AS (SELECT id, x AS y FROM visits), "
    + ", ".join(f"v{k} AS (SELECT id, {'+'.join(['y'] * 60)} AS y FROM v{k - 1})" for k in range(1, 9))
    + " SELECT SUM(LEAST(GREATEST(y, 0), 1)) FROM v8 WITH EPSILON 1",
    "a long statement": "SELECT COUNT(*) FROM visits WHERE city IN (" + ",".join(f"'{k}'" for k in range(9000)) + ")",
    "a huge number": "SELECT COUNT(*) FROM visits WHERE x > " + "9" * 500 + " WITH EPSILON 1",
    "a huge price": "SELECT COUNT(*) FROM visits WITH EPSILON 1e300",
    "a tiny price": "SELECT COUNT(*) FROM visits WITH EPSILON 1e-300",
    "a long exponent": "SELECT COUNT(*) FROM visits WITH EPSILON 1e-9223372036854775807",
    "a long exponent of a delta": "SELECT city, COUNT(*) FROM visits GROUP BY 1 WITH EPSILON 1 WITH DELTA 1e-999999999",
    "a long exponent of an error": "SELECT COUNT(*) FROM visits ERROR WITHIN 1E999999999",
    "a long exponent in a row": "SELECT COUNT(*) FROM visits WHERE x > 1e999999999 WITH EPSILON 1",
    "wide limits": "SELECT SUM(LEAST(GREATEST(x, -9223372036854775808), 9)) FROM visits WITH EPSILON 1",
    "limits beyond floats": "SELECT MIN(x * 1e300 * 1e300) FROM visits WITH EPSILON 1",
    "bins beyond floats": "SELECT bin(x * 1e300 * 1e300, 3), COUNT(*) FROM visits GROUP BY 1 WITH EPSILON 1",
    "persons beyond floats": "SELECT MIN(y) FROM (SELECT id, MAX(n * 1e300 * 1e300) AS y FROM visits GROUP BY id) WITH EPSILON 1",
    "sums beyond floats": "SELECT AVG(y) FROM (SELECT id, SUM(n * 4e307) AS y FROM visits GROUP BY id) WITH EPSILON 1",
    "no text": "",
    "only a clause": "ERROR WITHIN 5%",
    "only a semicolon": ";",
    "an open comment": "SELECT COUNT(*) FROM visits /* WITH EPSILON 1",
    "an open quote": "SELECT COUNT(*) FROM visits WHERE city = 'a WITH EPSILON 1",
    "a jinja block": "SELECT {{ x }} FROM visits WITH EPSILON 1",
    "wide groups": "SELECT CAST(seen AS DATE), n, city, flag, COUNT(*) FROM visits GROUP BY 1, 2, 3, 4 WITH EPSILON 1",
    "too many groups": "SELECT DATE_TRUNC('second', seen), COUNT(*) FROM visits GROUP BY 1 WITH EPSILON 1",
    "a bin of a text": "SELECT bin(city, 3), COUNT(*) FROM visits GROUP BY 1 WITH EPSILON 1",
    "a bin of odd ends": "SELECT bin(x, 3, 3, 3), COUNT(*) FROM visits GROUP BY 1 WITH EPSILON 1",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
def test_hostile_texts_are_refused(session: Session, name: str, dialect: str) -> None:
    check(session, HOSTILE[name], dialect)


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
@pytest.mark.parametrize("call", ["COUNT()", "MAX()", "MIN(DISTINCT)", "FLOOR()", "bin()", "WIDTH_BUCKET(x)", "YEAR()"])
def test_a_function_without_its_arguments_is_refused(session: Session, call: str, dialect: str) -> None:
    for text in (
        f"SELECT {call} FROM visits",
        f"SELECT SUM({call}) FROM visits",
        f"SELECT COUNT(*) FROM visits WHERE {call} > 1",
        f"SELECT {call}, COUNT(*) FROM visits GROUP BY 1",
        f"SELECT AVG(y) FROM (SELECT id, {call} AS y FROM visits GROUP BY id)",
    ):
        with pytest.raises(InvalidRequest, match="Look at the mark"):
            session.sql_price(f"{text} WITH EPSILON 1", dialect=dialect)


def test_a_text_that_is_none_is_refused(session: Session) -> None:
    for given_text in (None, 5, b"SELECT 1", ["SELECT 1"], pa.table({"a": [1]})):
        with pytest.raises(InvalidRequest, match="a statement as a text"):
            session.sql(given_text)  # type: ignore[arg-type]
