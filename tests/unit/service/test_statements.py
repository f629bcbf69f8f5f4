"""Statements in SQL by HTTP, from Python and on the page."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.served import Served, write_people

from expost.client.http_transport import HttpTransport
from expost.client.remote_session import RemoteSession, open_remote
from expost.core import BudgetExceeded, InvalidRequest
from expost.service.question_sql import statement_of

PATH = "/v1/datasets/people/sql"
GROUPS = "SELECT city, COUNT(*) AS n FROM people GROUP BY city WITH EPSILON 0.1"


@pytest.fixture
def remote(served: Served) -> RemoteSession:
    return open_remote(HttpTransport("http://testserver", served.tokens["ann"], client=served.http), None)


def spent(served: Served) -> float:
    return float(served.curator.ledger.spent("dataset:people").amounts()["epsilon"])


def test_a_statement_is_answered_once_under_its_key_and_charged(served: Served) -> None:
    headers = {"idempotency-key": "k"}
    first, again = (served.call("ann", "POST", PATH, json={"sql": GROUPS}, headers=headers) for _ in range(2))

    assert first.status_code == 200 and first.json() == again.json()
    assert spent(served) == pytest.approx(0.1)
    assert served.call("auditor", "POST", PATH, json={"sql": GROUPS}).status_code == 403
    assert served.call("ann", "POST", PATH, json={"sql": GROUPS, "dialect": "x"}, headers=headers).status_code == 409


def test_from_python_a_statement_is_what_a_session_gives(served: Served, remote: RemoteSession) -> None:
    price = remote.sql_price(GROUPS)
    explained = remote.sql(f"EXPLAIN PRICE {GROUPS}")
    assert str(price) == str(explained) and spent(served) == 0
    release = remote.sql(GROUPS, request_id="r")

    assert release.columns == ("city", "n") and [row["city"] for row in release.to_dicts()] == ["Oslo", "Rome"]
    assert release.receipt.bill == price.quote.worst_case
    assert remote.sql(GROUPS, request_id="r") == release
    joined = remote.sql(
        "SELECT region, COUNT(*) AS n FROM people JOIN places USING (city) GROUP BY region WITH EPSILON 0.1",
        tables={"places": {"city": ["Oslo", "Rome"], "region": ["north", "south"]}},
    )
    assert joined.column("region") == ["north", "south"]
    assert remote.part("city", "Rome").sql("SELECT COUNT(*) AS n FROM people WITH EPSILON 0.1").column("n")[0] < 2500
    with pytest.raises(InvalidRequest, match="rows themselves"):
        remote.sql("SELECT * FROM people WITH EPSILON 0.1")
    with pytest.raises(BudgetExceeded):
        remote.sql("SELECT COUNT(*) FROM people ERROR WITHIN 1 AT MOST EPSILON 0.1")


NO_STATEMENTS = [
    "",
    "SELECT * FROM read_parquet('/etc/passwd') WITH EPSILON 0.1",
    "SELECT * FROM 'people.parquet' WITH EPSILON 0.1",
    "SELECT COUNT(*) FROM people; DROP TABLE people WITH EPSILON 0.1",
    "COPY people TO '/tmp/x'",
    "ATTACH 'x.db'",
    "SELECT COUNT(*) FROM information_schema.tables WITH EPSILON 0.1",
    "SELECT getenv('HOME'), COUNT(*) FROM people WITH EPSILON 0.1",
    "SELECT COUNT(*) FROM people WHERE (SELECT COUNT(*) FROM people) > 3 WITH EPSILON 0.1",
    "SELECT COUNT(*) FROM people WITH EPSILON 1e999",
    "SELECT COUNT(*) FROM people WITH EPSILON -1",
    "SELECT COUNT(*) FROM people ERROR WITHIN 0%",
    "(" * 5000,
    "SELECT " + "-" * 4000 + "1 FROM people WITH EPSILON 0.1",
    "SELECT COUNT(*) FROM people WHERE " + " AND ".join(["age > 3"] * 2000) + " AND age LIKE 3 WITH EPSILON 0.1",
    "\u202eSELECT",
]


def test_what_is_no_statement_about_the_table_costs_nothing_and_shows_nothing(served: Served) -> None:
    for text, path in itertools.product(NO_STATEMENTS, (PATH, f"{PATH}-price")):
        response = served.call("ann", "POST", path, json={"sql": text})

        assert response.status_code == 400, response.text
        assert not {"Traceback", "sqlglot", "site-packages", "root:"} & set(response.text.split())
    assert spent(served) == 0


WRONG_BODIES: list[Any] = (
    [{}, {"sql": 3}, {"sql": "x", "dialect": 3}, {"sql": GROUPS, "dialect": "oracle"}]
    + [
        {"sql": GROUPS, "tables": each}
        for each in ([], {"t": 3}, {"t": {"a": [1], "b": [1, 2]}}, {"t": {"a": [{}, 1]}})
    ]
    + [{"sql": GROUPS, "bounds": []}, {"sql": GROUPS, "place": [["part", "city"]]}, {"sql": GROUPS, "keep": 1}]
)


def test_wrong_bodies_of_a_statement_are_refused_in_words(served: Served) -> None:
    for body, path in itertools.product(WRONG_BODIES, (PATH, f"{PATH}-price")):
        response = served.call("ann", "POST", path, json=body)
        assert response.status_code == 400, response.text
    assert spent(served) == 0


def test_questions_of_the_page_as_sql_have_their_price(served: Served) -> None:
    asked: dict[str, dict[str, Any]] = {
        "count": {"within": 100, "where": "age > 30"},
        "mean": {"column": "age", "by": "city", "within": "5%"},
        "sum": {"column": "pay", "within": "5%"},
        "median": {"column": "age", "within": 3},
        "quantile": {"column": "age", "share": 0.9, "within": 3},
        "value-counts": {"column": "city", "within": 100},
        "most-common": {"column": "city", "within": 100},
        "ratio": {"numerator": "pay", "denominator": "age", "within": "5%"},
        "correlation": {"x": "age", "y": "pay", "within": 0.2},
        "std": {"column": "age", "within": "5%"},
        "variance": {"column": "age", "within": "5%"},
    }
    for statistic, arguments in asked.items():
        text = statement_of(statistic, arguments, dataset="people", unit=None)
        priced = served.call("ann", "POST", f"{PATH}-price", json={"sql": text}).json()
        body = {"statistic": statistic, "arguments": arguments}
        plain = served.call("ann", "POST", "/v1/datasets/people/price", json=body).json()

        assert priced["worst_case_text"] == plain["worst_case_text"], (statistic, text)
    assert statement_of("histogram", {"column": "age", "within": 3}, dataset="people", unit=None) == ""
    assert '"a""b"' in statement_of("count", {"by": 'a"b', "within": 3}, dataset="people", unit=None)


def test_a_statement_of_the_page_shows_its_table(served: Served) -> None:
    text = served.http.post("/login", data={"token": served.tokens["ann"]}).text
    csrf = text.split('name="csrf" content="')[1].split('"')[0]
    answer = served.http.post("/datasets/people/sql", data={"csrf": csrf, "key": "k", "sql": GROUPS})

    assert answer.status_code == 200 and "Receipt" in answer.text and "n low" in answer.text and "Oslo" in answer.text
    assert "n low" in served.http.get(f"{answer.url.path}.csv").text
    assert served.http.get("/history.html").text.count("Oslo") == 1
    wrong = served.http.post("/datasets/people/sql", data={"csrf": csrf, "key": "l", "sql": "SELECT <b> FROM people"})
    assert wrong.status_code == 400 and "&lt;b&gt;" in wrong.text and "<b>" not in wrong.text


def test_a_question_with_too_many_groups_is_refused(served: Served) -> None:
    found = served.ask("ann", "histogram", column="age", by="city", bins=60_000, epsilon=0.1)

    assert found.status_code == 400 and "100000 groups" in found.json()["error"]["message"]


@pytest.mark.parametrize("route", ["sql", "sql-price"])
@pytest.mark.parametrize("before", ["", "EXPLAIN PRICE "])
def test_a_statement_with_too_many_groups_is_refused_before_it_is_priced_or_stored(
    tmp_path: Path, route: str, before: str
) -> None:
    path = write_people(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "[limits]\ngroups = 1\n", encoding="utf-8")
    served = Served(path)
    text = f"{before}SELECT city, COUNT(*) AS n FROM people GROUP BY city HAVING COUNT(*) > 1000000 LIMIT 1 WITH EPSILON 0.1"
    with served.http:
        found = served.call("ann", "POST", f"/v1/datasets/people/{route}", json={"sql": text})
        assert found.status_code == 400 and "at most 1 groups, got 2" in found.json()["error"]["message"]
        assert served.curator.store.list_requests(subject="ann") == []
        whole = served.call(
            "ann", "POST", f"/v1/datasets/people/{route}", json={"sql": "SELECT COUNT(*) FROM people WITH EPSILON 0.1"}
        )
        assert whole.status_code == 200


def test_a_remote_price_of_a_statement_says_how_many_groups_it_has(served: Served) -> None:
    text = "SELECT city, COUNT(*) AS n FROM people GROUP BY city WITH EPSILON 0.1"
    assert served.call("ann", "POST", "/v1/datasets/people/sql-price", json={"sql": text}).json()["groups"] == 2
