"""Questions over HTTP: charged once, answered once, refused in one form and without a word about rows."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from tests.served import CANARY, Served, write_people


def left(served: Served, who: str) -> float:
    return float(served.curator.ledger.remaining(f"analyst:{who}/people").amounts()["epsilon"])


def test_an_answer_is_charged_to_the_table_and_to_the_analyst(served: Served) -> None:
    found = served.ask("ann", "mean", column="age", by="city", within=5)
    bill = found.json()["release"]["receipt"]["of"]["bill"]

    assert found.status_code == 200
    assert served.curator.ledger.spent("dataset:people").amounts()["epsilon"] > 0
    assert left(served, "ann") < 3 == left(served, "bob")
    assert bill["definition"] == "pure"


def test_the_same_key_returns_the_same_answer_and_charges_once(served: Served) -> None:
    first = served.ask("ann", "count", "k", epsilon=0.1)
    after = left(served, "ann")
    again = served.ask("ann", "count", "k", epsilon=0.1)

    assert first.json() == again.json()
    assert left(served, "ann") == after
    assert served.ask("bob", "count", "k", epsilon=0.1).json() != first.json()  # a key belongs to its sender


def test_a_key_of_another_question_is_refused(served: Served) -> None:
    served.ask("ann", "count", "k", epsilon=0.1)
    found = served.ask("ann", "count", "k", epsilon=0.2)

    assert (found.status_code, found.json()["error"]["code"]) == (409, "key_reused")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "JSON"),
        (b"nonsense", "JSON"),
        (b"[1]", "JSON object"),
        (b'{"statistic": "count", "statistic": "sum"}', "every key once"),
        (b'{"statistic": "count", "arguments": {"within": NaN}}', "finite"),
        (b"[" * 1000, "levels"),
        (b'{"statistic": "cuont"}', "statistic"),
        (b'{"statistic": 3}', "statistic"),
        (b'{"statistic": "count", "arguments": [1]}', "by their names"),
        (b'{"statistic": "count", "arguments": {"withn": 3}}', "within"),
        (b'{"statistic": "count", "arguments": {"within": -3}}', "within"),
        (b'{"statistic": "mean", "arguments": {"column": "agee", "within": 3}}', "agee"),
        (b'{"statistic": "count", "arguments": {"within": 3, "where": "agee > 3"}}', "agee"),
        (b'{"statistic": "count", "arguments": {"within": {"$kind": "os.system"}}}', "kind"),
        (b'{"statistic": "count", "arguments": {"within": {"$kind": "fraction", "of": "1/0"}}}', "fraction"),
        (b'{"statistic": "count", "place": "x"}', "place"),
        (b'{"statistic": "count", "more": 1}', "keys"),
        (b'{"statistic": "count", "arguments": {"simulation_seed": 1}}', "simulation_seed"),
    ],
)
def test_wrong_input_gets_one_sentence_and_costs_nothing(served: Served, body: bytes, part: str) -> None:
    for path in ("ask", "price"):
        found = served.call(
            "ann", "POST", f"/v1/datasets/people/{path}", content=body, headers={"content-type": "application/json"}
        )
        error = found.json()["error"]

        assert found.status_code == 400, found.text
        assert set(error) == {"code", "message", "cost"}
        assert part in error["message"] and "nothing spent" in error["cost"]
    assert left(served, "ann") == 3


@pytest.mark.parametrize("length", [70_000, 10**6])
def test_a_long_body_is_refused_whether_or_not_it_states_its_length(served: Served, length: int) -> None:
    def chunks() -> Any:
        for _ in range(length // 1000):
            yield b" " * 1000

    path = "/v1/datasets/people/ask"

    assert served.call("ann", "POST", path, content=b" " * length).status_code == 413
    assert served.call("ann", "POST", path, content=chunks()).status_code == 413


def test_a_question_above_the_cap_or_the_budget_is_refused_before_rows_are_read(served: Served) -> None:
    above = served.ask("ann", "count", within=0.1)
    more = served.ask("ann", "count", epsilon=0.51)
    named = served.ask("ann", "count", within=1, max_epsilon=100)

    assert (above.status_code, more.status_code, named.status_code) == (409, 409, 409)
    assert "the owner's cap" in more.json()["error"]["message"]
    assert left(served, "ann") == 3


def test_a_target_that_is_not_met_states_what_was_paid_and_gives_the_release(served: Served) -> None:
    found = served.ask("ann", "median", column="age", within=0.01, max_epsilon=0.05)
    error = found.json()["error"]

    assert found.status_code == 422
    assert error["code"] == "target_not_met"
    assert error["release"]["receipt"]["of"]["outcome"] == "not met"
    assert left(served, "ann") < 3


def test_nothing_says_a_value_that_is_not_public(served: Served) -> None:
    texts = [
        served.ask("ann", "count", by="city", epsilon=0.5).text,
        served.ask("ann", "most-common", column="city", epsilon=0.5).text,
        served.call("ann", "GET", "/v1/datasets/people").text,
        served.call("owner", "GET", "/v1/owner/log").text,
        served.call("owner", "GET", "/v1/owner/ledger.csv").text,
        served.http.get("/metrics").text,
    ]

    assert not any(CANARY in text for text in texts)


def test_a_frozen_table_answers_nothing_until_it_is_thawed(served: Served) -> None:
    assert served.call("owner", "POST", "/v1/owner/datasets/people/freeze").status_code == 200
    refused = served.ask("ann", "count", epsilon=0.1)
    served.call("owner", "POST", "/v1/owner/datasets/people/thaw")

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "frozen")
    assert served.ask("ann", "count", epsilon=0.1).status_code == 200


def test_a_question_above_the_threshold_waits_for_the_owner(tmp_path: Path) -> None:
    served = Served(write_people(tmp_path, extra="approval_above = 0.2"))
    with served.http:
        small = served.ask("ann", "count", epsilon=0.1)
        large = served.ask("ann", "count", "a", epsilon=0.4)
        other = served.ask("ann", "sum", "b", column="age", epsilon=0.3)
        job, second = large.json()["job"], other.json()["job"]

        assert (small.status_code, large.status_code) == (200, 202)
        assert large.json()["state"] == "waiting for the owner"
        assert left(served, "ann") == pytest.approx(2.9)
        served.call("owner", "POST", f"/v1/owner/approvals/{job}", json={"approve": True})
        served.call("owner", "POST", f"/v1/owner/approvals/{second}", json={"approve": False})
        found = served.call("ann", "GET", f"/v1/jobs/{job}?wait=10").json()

        assert found["state"] == "done" and found["status"] == 200
        assert served.call("ann", "GET", f"/v1/jobs/{second}").json()["status"] == 403
        assert left(served, "ann") == pytest.approx(2.6)  # the finer count continues the first
        decided = served.call("owner", "POST", f"/v1/owner/approvals/{job}", json={"approve": True})
        assert decided.status_code == 404


def test_a_fit_returns_a_model_that_predicts(served: Served) -> None:
    settings = {"epsilon": 0.5, "columns": {"age": {"low": 18, "high": 90}}, "target_bounds": {"low": 0, "high": 100}}
    body = {"estimator": "Regressor", "settings": settings, "target": "pay"}
    found = served.call("ann", "POST", "/v1/datasets/people/fit", json=body)

    assert found.status_code == 200, found.text
    assert found.json()["model"]["columns"]["columns"][0]["kind"] == "number"


@pytest.mark.parametrize("setting", ["ledger", "account", "simulation_seed", "unit", "progress", "checkpoint"])
def test_a_fit_takes_no_setting_that_is_the_owners(served: Served, setting: str) -> None:
    body = {"estimator": "SGDRegressor", "settings": {"epsilon": 0.1, setting: "x"}, "target": "pay"}
    found = served.call("ann", "POST", "/v1/datasets/people/fit", json=body)

    assert found.status_code == 400
    assert setting in found.json()["error"]["message"]


def test_the_audit_log_is_complete_and_notices_a_change(served: Served) -> None:
    served.ask("ann", "count", epsilon=0.1)
    served.call("owner", "POST", "/v1/owner/datasets/people/freeze")
    found = served.call("auditor", "GET", "/v1/owner/log").json()

    assert found["intact"]
    assert [line["action"] for line in found["lines"]][-2:] == ["ask", "freeze"]
    store = served.curator.store
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE service_log SET actor = 'nobody' WHERE line = 2")
    assert not store.check_log()


def test_every_response_has_the_headers_that_protect_a_page(served: Served) -> None:
    for path in ("/login", "/v1/datasets", "/nowhere", "/static/expost.css"):
        headers = served.http.get(path).headers

        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_the_schema_describes_every_route_under_v1(served: Served) -> None:
    schema = served.http.get("/v1/openapi.json").json()

    assert "/v1/datasets/{dataset}/ask" in schema["paths"]
    assert not any(path.startswith("/owner") for path in schema["paths"])
    assert json.dumps(schema)


def test_odd_arguments_are_refused_in_words_by_every_route(served: Served) -> None:
    paths, names = ("ask", "price", "price-curve", "simulate"), ("self", "statistic", "dataset", "within", "expect")
    odd: list[Any] = [None, {}, [], [None], 10**400, "1e400%", {"$kind": "tuple", "of": [1]}]
    for path, name, value in itertools.product(paths, names, odd):
        body = {"statistic": "count", "arguments": {"within": 0.001, name: value}}
        response = served.call("ann", "POST", f"/v1/datasets/people/{path}", json=body)

        assert response.status_code < 500, (path, name, value, response.text)
    assert served.curator.ledger.spent("dataset:people").amounts()["epsilon"] == 0


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "application/json"])
def test_a_token_may_send_its_question_as_any_type(served: Served, kind: str) -> None:
    headers = {"content-type": kind}
    body = b'{"statistic": "count", "arguments": {"epsilon": 0.1}}'
    found = served.call("ann", "POST", "/v1/datasets/people/ask", content=body, headers=headers)

    assert found.status_code == 200, found.text
