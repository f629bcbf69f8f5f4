"""Joins, views and one row per person: what they answer without noise, and what they refuse."""

from __future__ import annotations

import gc
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.unit.sql.exact_answers import without_noise

from expost import Dataset, Session
from expost.core import InvalidRequest, unseal
from expost.data.public_lookup import _PREPARED, PublicLookup
from expost.sql import read_statement

RANDOM = np.random.default_rng(8)
VISITS = pa.table(
    {"id": RANDOM.integers(0, 300, 2000), "paid": RANDOM.integers(0, 100, 2000), "day": RANDOM.integers(1, 8, 2000)}
)
PEOPLE = pa.table(
    {"id": np.arange(280), "age": RANDOM.integers(18, 90, 280), "city": RANDOM.choice(["Rome", "Oslo"], 280)}
)
CITIES = pa.table({"city": ["Rome", "Oslo"], "country": ["IT", "NO"]})


def described(visits: pa.Table = VISITS, people: pa.Table = PEOPLE, *, most: int = 100) -> tuple[Dataset, Dataset]:
    """Both tables with their descriptions."""
    terms: dict[str, Any] = {"unit": "id"}
    return (
        Dataset(visits, name="visits", max_rows_per_unit=most, bounds={"paid": (0, 100), "day": (1, 7)}, **terms),
        Dataset(
            people,
            name="people",
            max_rows_per_unit=1,
            bounds={"age": (0, 120)},
            categories={"city": ["Oslo", "Rome"]},
            **terms,
        ),
    )


def session() -> Session:
    """A session about both tables."""
    first, second = described()
    return Session(first, 1000, tables=[second])


ANSWERED = [
    "SELECT COUNT(*), SUM(paid) FROM visits JOIN people USING (id)",
    "SELECT p.city, COUNT(*), SUM(v.paid) FROM visits v LEFT JOIN people p ON v.id = p.id WHERE city IS NOT NULL GROUP BY p.city",
    "SELECT n, COUNT(*) FROM (SELECT p.id, COUNT(v.paid) AS n FROM people p LEFT JOIN visits v ON p.id = v.id AND v.day > 5 "
    "GROUP BY p.id) GROUP BY n HAVING COUNT(*) > 0 ORDER BY n",
    "WITH adults AS (SELECT id, city FROM people WHERE age >= 30), t AS (SELECT id, SUM(paid) AS total FROM visits GROUP BY id "
    "HAVING COUNT(*) > 2) SELECT city, SUM(total), COUNT(*) FROM adults JOIN t USING (id) GROUP BY city ORDER BY city",
    "SELECT country, COUNT(*) FROM people JOIN cities ON people.city = cities.city GROUP BY country ORDER BY country",
    "SELECT COUNT(*) FROM visits v JOIN (SELECT id, MAX(paid) AS top FROM visits GROUP BY id) m ON v.id = m.id AND v.paid = m.top",
    "SELECT COUNT(*) FROM visits a JOIN visits b ON a.id = b.id AND b.day = 3 WHERE a.paid > b.paid",
    "SELECT COUNT(DISTINCT v.id) FROM visits v JOIN people p ON v.id = p.id WHERE p.age > v.paid",
    "SELECT COUNT(*), SUM(paid) FROM visits, people p WHERE visits.id = p.id AND p.age > 40",
    "SELECT country, COUNT(*) FROM people p CROSS JOIN cities c WHERE c.city = p.city AND age < 50 GROUP BY country",
    "SELECT COUNT(*) FROM visits v, people p, cities c WHERE p.id = v.id AND p.city = c.city AND c.country = 'IT'",
    "SELECT COUNT(*) FROM visits WHERE id IN (SELECT id FROM people WHERE age > 30)",
    "SELECT COUNT(*) FROM visits WHERE id NOT IN (SELECT id FROM people WHERE age > 30)",
    "SELECT COUNT(*) FROM people WHERE EXISTS (SELECT * FROM visits v WHERE v.id = people.id AND v.paid > 90) OR age < 20",
    "SELECT COUNT(*), SUM(paid) FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.id = v.id AND w.day = v.day "
    "AND w.paid < 50)",
    "SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT * FROM visits v JOIN people q ON v.id = q.id WHERE v.id = p.id AND "
    "q.age > v.paid)",
    "SELECT COUNT(*) FROM people WHERE id IN (SELECT id FROM visits WHERE id IN (SELECT id FROM people WHERE age > 60))",
    "SELECT city, COUNT(*) FROM people SEMI JOIN visits USING (id) GROUP BY city",
    "SELECT COUNT(*) FROM people ANTI JOIN visits ON people.id = visits.id AND visits.day = 3",
    "SELECT COUNT(*) FROM (SELECT DISTINCT id FROM visits WHERE day = 2)",
    "SELECT COUNT(*) FROM (SELECT id FROM visits GROUP BY id)",
    "SELECT n, COUNT(*) FROM (SELECT id, COUNT(*) FROM visits GROUP BY id) AS t(who, n) GROUP BY n HAVING COUNT(*) > 0",
    "WITH v(who, much) AS (SELECT id, paid FROM visits) SELECT SUM(much), COUNT(DISTINCT who) FROM v AS w",
    "SELECT SUM(v.euros) FROM visits v(id, euros) JOIN people USING (id)",
    "SELECT SUM(a), SUM(b) FROM (SELECT id, COUNT(*) FILTER (WHERE day > 3) AS a, SUM(paid) FILTER (WHERE day = 1) AS b FROM "
    "visits GROUP BY 1)",
]


@pytest.mark.parametrize("text", ANSWERED)
def test_joins_and_views_without_noise_are_those_of_duckdb(text: str) -> None:
    database = duckdb.connect()
    for name, table in {"visits": VISITS, "people": PEOPLE, "cities": CITIES}.items():
        database.register(name, table)
    with without_noise():
        release = session().sql(f"{text} WITH EPSILON 8", tables={"cities": CITIES})
    expected = [tuple(map(str, row)) for row in database.execute(text).fetchall()]
    shown = [tuple(str(int(cell)) if isinstance(cell, float) else str(cell) for cell in row) for row in release.value]
    assert sorted(shown) == sorted(expected)


def test_a_person_moves_a_join_by_at_most_what_is_declared_although_both_tables_have_rows_of_many_types() -> None:
    text = "SELECT COUNT(*) FROM visits v JOIN people p ON v.id = p.id AND p.age > 20 WHERE v.paid > 10 WITH EPSILON 1"
    person = 7
    many = pa.concat_tables([VISITS, pa.table({"id": [person] * 400, "paid": [50] * 400, "day": [2] * 400})])
    without = many.filter(pa.compute.not_equal(many.column("id"), person))
    rest = PEOPLE.filter(pa.compute.not_equal(PEOPLE.column("id"), person))
    exact = []
    for visits, people in ((many, PEOPLE), (without, rest), (many, rest)):
        first, second = described(visits, people, most=5)
        statement = read_statement(text, {"visits": first, "people": second})
        (part,) = statement.query.plan(statement.dataset).plans
        sealed = part.measure(statement.dataset)
        exact.append((int(np.ravel(unseal(sealed))[0]), sealed.sensitivity.amount))
    counts, amounts = zip(*exact, strict=True)
    assert set(amounts) == {5}
    assert 0 < abs(counts[0] - counts[1]) <= 5
    assert counts[1] == counts[2]  # an inner join has no row of a person who is in one table only


CONTINUED = [
    "SELECT COUNT(*) AS n FROM visits JOIN people USING (id)",
    "SELECT city, SUM(paid) AS paid FROM visits v JOIN people p ON v.id = p.id AND p.age > 30 GROUP BY city",
    "SELECT AVG(total) AS total FROM (SELECT id, SUM(paid) AS total FROM visits WHERE day > 1 GROUP BY id)",
    "SELECT COUNT(*) AS n FROM visits WHERE id IN (SELECT id FROM people WHERE age > 30)",
    "SELECT country, COUNT(*) AS n FROM visits JOIN people USING (id) JOIN cities USING (city) GROUP BY country",
]


@pytest.mark.parametrize("text", CONTINUED)
def test_a_view_that_a_statement_made_is_continued_by_later_statements(text: str) -> None:
    asked: Any = session()
    first, again, more = (asked.sql(f"{text} WITH EPSILON {each}", tables={"cities": CITIES}) for each in (1, 1, 3))
    assert first.value == again.value
    assert (again.receipt.bill.epsilon, more.receipt.bill.epsilon, asked.spent().epsilon) == (0, 2, 3)


def test_a_filter_on_a_public_table_leaves_out_its_groups() -> None:
    places = {"city": ["a", "b"], "land": ["I", "N"]}
    visits = Dataset(pa.table({"city": ["a", "b", "c"]}), name="visits")
    text = "SELECT land, COUNT(*) AS n FROM visits JOIN places USING (city) WHERE land <> 'N' GROUP BY land WITH EPSILON 50"
    assert Session(visits, 100).sql(text, tables={"places": places}).value == (("I", 1),)


@pytest.mark.parametrize("name", ["self", "bounds", "categories", "(rows)", "id + 1", 'a"b'])
def test_any_name_may_be_given_to_an_aggregate_of_a_person(name: str) -> None:
    visits = Dataset(pa.table({"id": [1, 1, 2]}), name="visits", unit="id", max_rows_per_unit=2)
    quoted = '"' + name.replace('"', '""') + '"'
    text = f"SELECT SUM({quoted}) AS n FROM (SELECT id, COUNT(*) AS {quoted} FROM visits GROUP BY id) WITH EPSILON 50"
    assert Session(visits, 100).sql(text).column("n") == [pytest.approx(3, abs=1)]


def test_public_tables_without_names_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="by their names"):
        Session(Dataset(pa.table({"x": [1]}), name="t"), 1).sql("SELECT COUNT(*) FROM t WITH EPSILON 1", tables=[1])  # type: ignore[arg-type]


def test_views_that_differ_are_not_taken_for_each_other() -> None:
    made: dict[str, Dataset] = {}
    first, second = described()
    facts: dict[str, Any] = {"bounds": {"age": (0, 120)}, "categories": {"city": ["Oslo", "Rome"]}}
    other = Dataset(PEOPLE, name="people", unit="id", max_rows_per_unit=2, **facts)
    texts = [*CONTINUED[:4], CONTINUED[3].replace("30", "31"), CONTINUED[2].replace("day > 1", "day > 2")]
    views = [
        read_statement(
            f"{text} WITH EPSILON 1", {"visits": first, "people": people}, public={"cities": CITIES}, made=made
        )
        for text in texts
        for people in (second, other)
        if people is second or "people" in text
    ]
    assert len({id(each.dataset) for each in views}) == len(made) == len(views)
    for limit in (1, 2, 3):
        read_statement(
            f"{CONTINUED[0]} WITH EPSILON 1", {"visits": first, "people": second}, made=made, max_rows_per_unit=limit
        )
    assert len(made) == len(views) + 3


def test_the_oldest_views_are_forgotten() -> None:
    made: dict[str, Dataset] = {}
    first, second = described()
    for age in range(40):
        read_statement(
            f"SELECT COUNT(*) FROM visits WHERE id IN (SELECT id FROM people WHERE age > {age}) WITH EPSILON 1",
            {"visits": first, "people": second},
            made=made,
        )
    assert len(made) == 16


def test_fewer_joined_rows_can_be_stated() -> None:
    text = "SELECT COUNT(*) FROM visits a JOIN visits b ON a.id = b.id AND a.day = b.day WITH EPSILON 1"
    sensitive, stated = (session().sql_price(text, max_rows_per_unit=most).parts[0] for most in (None, 20))
    assert sensitive.sensitivity.startswith("10000 ")
    assert stated.sensitivity.startswith("20 ")


REFUSED = {
    "SELECT COUNT(*) FROM visits JOIN people ON visits.day = people.age WITH EPSILON 1": "the id of the unit, id, among the keys",
    "SELECT COUNT(*) FROM visits, people WITH EPSILON 1": "the keys of the join",
    "SELECT COUNT(*) FROM visits CROSS JOIN people WITH EPSILON 1": "the keys of the join",
    "SELECT COUNT(*) FROM visits NATURAL JOIN people WITH EPSILON 1": "the keys of the join",
    "SELECT COUNT(*) FROM visits, people p WHERE visits.day = p.age WITH EPSILON 1": "the id of the unit, id, among the keys",
    "SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT * FROM people WHERE age > 30) WITH EPSILON 1": "among the equal columns",
    "SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT * FROM people p WHERE p.id = visits.id AND p.age > paid) WITH EPSILON 1": (
        "equal columns of both tables"
    ),
    "SELECT COUNT(*) FROM visits WHERE paid IN (SELECT age FROM people) WITH EPSILON 1": "on both sides of IN",
    "SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT id FROM people GROUP BY id) WITH EPSILON 1": "no GROUP here",
    "SELECT COUNT(*) FROM visits SEMI JOIN cities ON visits.day = cities.city WITH EPSILON 1": "JOIN with a public table",
    "SELECT SUM(CASE WHEN EXISTS (SELECT 1 FROM people) THEN 1 ELSE 0 END) FROM visits WITH EPSILON 1": "no subquery here",
    "SELECT COUNT(*) FROM visits RIGHT JOIN people USING (id) WITH EPSILON 1": "JOIN or LEFT JOIN",
    "SELECT COUNT(*) FROM visits JOIN visits USING (id) WITH EPSILON 1": "a name of its own for each table",
    "SELECT COUNT(*) FROM visits v LEFT JOIN people p ON v.id = p.id AND v.day > 3 WITH EPSILON 1": "in a LEFT JOIN",
    "SELECT COUNT(*) FROM visits v LEFT JOIN people p ON v.id = p.id WHERE p.id IS NULL WITH EPSILON 1": "missing where there is no match",
    "SELECT AVG(n) FROM (SELECT day, COUNT(*) AS n FROM visits GROUP BY day) WITH EPSILON 1": "one row per person",
    "SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM visits) WITH EPSILON 1": "one row per person",
    "SELECT COUNT(*) FROM (SELECT DISTINCT day FROM visits) WITH EPSILON 1": "one row per person",
    "SELECT COUNT(*) FROM (SELECT DISTINCT id, day FROM visits) WITH EPSILON 1": "no DISTINCT in a view",
    "SELECT COUNT(*) FROM (SELECT id FROM visits LIMIT 3) WITH EPSILON 1": "no LIMIT in a view",
    "SELECT COUNT(*) FROM cities WITH EPSILON 1": "a private table first",
    "SELECT AVG(n) FROM (SELECT id, LEN(*) FILTER (WHERE day > 1) AS n, SUM(day) AS m FROM visits GROUP BY id) WITH EPSILON 1": (
        "FILTER after COUNT"
    ),
    "SELECT COUNT(*) FROM visits v(a, b, c, d) WITH EPSILON 1": "at most 3 new names",
    "SELECT COUNT(*) FROM visits v(a, a) WITH EPSILON 1": "at most 3 new names, each once",
    "SELECT COUNT(*) FROM people JOIN cities c(a, b) ON people.city = c.a WITH EPSILON 1": "an alias without a list of columns",
    "SELECT AVG(day) FROM visits a JOIN visits b ON a.id = b.id WITH EPSILON 1": "a column that only one table has",
}


@pytest.mark.parametrize("text", REFUSED)
def test_other_joins_are_refused_with_their_place(text: str) -> None:
    asked = session()
    with pytest.raises(InvalidRequest) as refusal:
        asked.sql(text, tables={"cities": CITIES})
    assert REFUSED[text] in str(refusal.value)
    assert "Look at the mark:" in str(refusal.value)
    assert asked.spent().epsilon == 0  # type: ignore[attr-defined]


def test_a_joined_table_without_a_limit_is_shown_the_line_to_add() -> None:
    first, _ = described()
    second = Dataset(PEOPLE, name="people", unit="id")
    with pytest.raises(InvalidRequest, match=r"\[unit\] max_rows_per_unit = 10"):
        Session(first, 10, tables=[second]).sql("SELECT COUNT(*) FROM visits JOIN people USING (id) WITH EPSILON 1")


def test_ids_of_different_types_are_refused() -> None:
    first, _ = described()
    texts = PEOPLE.set_column(0, "id", pa.array(map(str, range(280))))
    second = Dataset(texts, name="people", unit="id", max_rows_per_unit=1)
    with pytest.raises(InvalidRequest, match="same type"):
        Session(first, 10, tables=[second]).sql("SELECT COUNT(*) FROM visits JOIN people USING (id) WITH EPSILON 1")


def test_a_public_table_is_prepared_once_and_forgotten_with_it() -> None:
    places = pa.table({"city": ["Rome", "Oslo"], "country": ["IT", "NO"]})
    text = "SELECT country, COUNT(*) AS n FROM people JOIN places USING (city) GROUP BY country WITH EPSILON 9"
    asked = session()
    before = len(_PREPARED)
    with mock.patch.object(PublicLookup, "_read", side_effect=PublicLookup._read) as read:
        for _ in range(3):
            asked.sql(text, tables={"places": places})  # type: ignore[attr-defined]
        assert read.call_count == 1
        assert asked.sql(text, tables={"places": places.slice(0, 1)}).column("country") == ["IT"]  # type: ignore[attr-defined]
        assert read.call_count == 2
    assert len(_PREPARED) > before
    asked = None  # type: ignore[assignment]
    del places, read
    gc.collect()
    assert len(_PREPARED) <= before
