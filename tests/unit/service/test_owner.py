"""What an owner decides and sees: limits of questions, spending by analyst and part, backups, anchors, and waiting prices."""

import csv
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.served import Served, write_people

from expost.core import InvalidRequest, LedgerUnsound
from expost.ledger import new_key, open_ledger
from expost.ledger.backup import restore_ledger
from expost.service import Curator, Role, ServiceSettings
from expost.service.access_token import Identity
from expost.service.spending_report import trace_spending

LIMITS = "/v1/owner/datasets/people/limits"


def test_limits_of_a_question_hold_at_once_for_every_worker_and_after_a_restart(served: Served) -> None:
    assert served.ask("ann", "count", epsilon=0.3).status_code == 200
    body = {"question_cap": 0.2, "approval_above": 0.1}
    assert served.call("owner", "POST", LIMITS, json=body).json() == {"dataset": "people"} | body

    assert served.ask("ann", "count", epsilon=0.3, where="age > 20").json()["error"]["code"] == "budget_exceeded"
    assert served.ask("ann", "count", epsilon=0.15, where="age > 20").status_code == 202
    assert served.ask("ann", "count", epsilon=0.05, where="age > 20").status_code == 200
    assert served.ask("owner", "count", epsilon=0.3, where="age > 21").status_code == 200
    facts = served.call("ann", "GET", "/v1/datasets/people").json()
    assert {name: facts[name] for name in body} == body
    other = Curator(served.settings)
    assert other.limits_of("people").to_dict() == body
    assert other.ledger.question_cap("dataset:people") == served.curator.limits_of("people").question_cap
    other.close()
    lines = [line for line in served.curator.store.read_log() if line.action == "change limits"]
    assert [line.actor for line in lines] == ["owner:owner"]
    served.call("owner", "POST", LIMITS, json=dict.fromkeys(body))
    assert served.ask("ann", "count", epsilon=0.3, where="age > 22").status_code == 200


WRONG_LIMITS: list[Any] = [
    {},
    [],
    {"question_cap": 1},
    {"question_cap": "x", "approval_above": None},
    {"question_cap": 0, "approval_above": None},
    {"question_cap": -1, "approval_above": None},
    {"question_cap": 0.1, "approval_above": 0.2},
    {"question_cap": 10**9, "approval_above": None},
    {"question_cap": True, "approval_above": None},
    {"question_cap": [1], "approval_above": {}},
]


def test_wrong_limits_change_nothing(served: Served) -> None:
    before = served.curator.limits_of("people")
    for body in WRONG_LIMITS:
        response = served.call("owner", "POST", LIMITS, json=body)

        assert response.status_code == 400, response.text
        assert served.curator.limits_of("people") == before
        assert served.call("owner", "POST", LIMITS.replace("people", "none"), json=body).status_code in (400, 404)


def test_a_waiting_question_shows_the_owner_what_it_asks_and_may_cost(tmp_path: Path) -> None:
    served = Served(write_people(tmp_path, extra="approval_above = 0.2"))
    with served.http:
        served.ask("ann", "count", epsilon=0.4, where="age > 65")
        (found,) = served.call("owner", "GET", "/v1/owner/approvals").json()["waiting"]

    assert (found["analyst"], found["may_cost"]) == ("ann", "epsilon 0.4")
    assert found["body"]["arguments"] == {"epsilon": 0.4, "where": "age > 65"}


def test_spending_is_traced_by_analyst_and_part(served: Served) -> None:
    for who, epsilon, place in (("ann", 0.1, []), ("bob", 0.2, []), ("ann", 0.3, [["part", "city", "Rome"]])):
        body = {"statistic": "count", "arguments": {"epsilon": epsilon}, "place": place}
        assert served.call(who, "POST", "/v1/datasets/people/ask", json=body).status_code == 200
    traced = trace_spending(served.curator, "people")

    assert traced.lines["all together"] == pytest.approx([0.1, 0.3, 0.6])
    assert traced.lines["ann"] == pytest.approx([0.1, 0.1, 0.4])
    assert traced.lines["bob"] == pytest.approx([0, 0.2, 0.2])
    assert [(name, round(amount, 6)) for name, amount in traced.parts] == [("city=Rome", 0.3)]
    csrf = sign_in(served, "owner")
    page = served.http.get("/owner").text
    assert page.count("<polyline") == 3 and "city=Rome" in page and csrf in page


def test_a_rotated_token_is_replaced_for_the_same_holder_until_the_same_end(served: Served) -> None:
    made = {"role": "analyst", "subject": "carl", "dataset": "people", "budget": 0.5, "expires": "30d"}
    first = served.call("owner", "POST", "/v1/owner/tokens", json=made).json()
    address = f"/v1/owner/tokens/{first['id']}/rotate"
    for body in ([], {"expires": 3}, {"expires": "soon"}, {"more": 1}, "30d"):
        assert served.call("owner", "POST", address, json=body).status_code == 400, body
    own = served.curator.create_own_token(Identity.of(served.curator.store.find_token(first["id"])), timedelta(days=9))
    with pytest.raises(InvalidRequest, match="owner made"):
        served.curator.rotate_token(own.token_id)
    second = served.call("owner", "POST", address, json={}).json()
    served.tokens |= {"first": first["token"], "own": own.text, "second": second["token"]}

    assert served.ask("second", "count", epsilon=0.1).status_code == 200
    assert served.call("first", "GET", "/v1/datasets").status_code == 401
    assert served.call("own", "GET", "/v1/datasets").status_code == 401
    found = {each.token_id: each for each in served.curator.store.list_tokens()}
    assert found[second["id"]].expires == found[first["id"]].expires
    assert served.call("owner", "POST", address, json={}).status_code == 404
    assert len(served.curator.usable_tokens("carl")) == 1  # a rotation that is refused makes no token
    third = served.curator.rotate_token(second["id"], lifetime=timedelta(hours=1))
    assert served.curator.store.find_token(third.token_id).expires < found[first["id"]].expires


def test_an_expired_token_is_rotated_with_a_new_length_only(tmp_path: Path) -> None:
    at = [1e9]
    curator = Curator(ServiceSettings.read(write_people(tmp_path)), clock=lambda: at[0])
    old = curator.create_token(role=Role.OWNER, subject="owner", lifetime=timedelta(hours=1))
    at[0] += 3601
    with pytest.raises(InvalidRequest, match="has expired"):
        curator.rotate_token(old.token_id)
    curator.rotate_token(old.token_id, lifetime=timedelta(hours=2))

    assert len(curator.usable_tokens("owner")) == 1
    curator.close()


def test_the_owner_replaces_a_token_on_the_page(served: Served) -> None:
    csrf = sign_in(served, "owner")
    (old,) = served.curator.usable_tokens("ann")
    shown = served.http.post(f"/owner/tokens/{old.token_id}/rotate", data={"csrf": csrf}).text
    served.tokens["new"] = shown.split('id="made">')[1].split("<")[0]

    assert served.call("new", "GET", "/v1/datasets").status_code == 200
    assert served.call("ann", "GET", "/v1/datasets").status_code == 401
    again = served.http.post(f"/owner/tokens/{old.token_id}/rotate", data={"csrf": csrf})
    assert again.status_code == 404 and "There is no such token" in again.text


def sign_in(served: Served, who: str) -> str:
    served.http.cookies.clear()
    text: str = served.http.post("/login", data={"token": served.tokens[who]}).text
    return text.split('name="csrf" content="')[1].split('"')[0]


def test_the_owner_changes_limits_on_the_page(served: Served) -> None:
    csrf = sign_in(served, "owner")
    form = {"csrf": csrf, "question_cap": "0.25", "approval_above": ""}
    assert served.http.post("/owner/datasets/people/limits", data=form).status_code == 200
    assert served.curator.limits_of("people").to_dict() == {"question_cap": 0.25, "approval_above": None}
    wrong = served.http.post("/owner/datasets/people/limits", data=form | {"question_cap": "many"})

    assert wrong.status_code == 400 and "as a number" in wrong.text
    assert served.curator.limits_of("people").to_dict() == {"question_cap": 0.25, "approval_above": None}


def test_a_backup_can_be_restored_and_is_checked_against_its_anchor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    served = Served(write_people(tmp_path))
    with served.http:
        served.ask("ann", "count", epsilon=0.1)
        backup = served.call("owner", "GET", "/v1/owner/ledger.backup")
        assert backup.status_code == 200
        anchor = backup.headers["expost-anchor"]
        assert served.call("owner", "GET", "/v1/owner/anchor").json() == {"anchor": anchor}
        for who in ("ann", "auditor"):
            assert served.call(who, "GET", "/v1/owner/ledger.backup").status_code == 403
        spent = served.curator.ledger.spent("dataset:people")
        served.ask("ann", "count", epsilon=0.1, where="age > 30")
        newer = served.call("owner", "GET", "/v1/owner/anchor").json()["anchor"]
    source = tmp_path / "copy"
    source.write_bytes(backup.content)
    with pytest.raises(LedgerUnsound, match="lacks at least"):
        restore_ledger(str(source), str(tmp_path / "old"), anchor=newer)
    restore_ledger(str(source), str(tmp_path / "restored"), anchor=anchor)
    with open_ledger(str(tmp_path / "restored")) as ledger:
        assert ledger.spent("dataset:people") == spent


def test_a_history_leaves_as_csv_and_as_a_report(served: Served) -> None:
    served.ask("ann", "count", epsilon=0.1)
    served.ask("ann", "mean", column="age", by="city", epsilon=0.1)
    served.ask("bob", "count", epsilon=0.1, where="age > 77.125")
    fit = {"estimator": "Regressor", "settings": {"epsilon": 0.1}, "features": ["age"], "target": "pay"}
    job = served.call("ann", "POST", "/v1/datasets/people/fit", json=fit).headers["location"].rsplit("/", 1)[1]
    sign_in(served, "ann")
    table = list(csv.DictReader(io.StringIO(served.http.get("/history.csv").text)))
    report = served.http.get("/history.html")

    assert len(table) == 3 and {line["dataset"] for line in table} == {"people"}
    count = next(line for line in table if line["question"] == "count of rows")
    assert float(count["low"]) < float(count["value"]) < float(count["high"]) and float(count["epsilon"]) == 0.1
    assert "Answers of ann" in report.text and "mean of age by city" in report.text and "77.125" not in report.text
    assert "<script" not in report.text and "attachment" in report.headers["content-disposition"]
    page = served.http.get(f"/answers/{job}").text
    assert "It is fitted" in page and "Receipt" in page


def test_the_balance_on_the_page_is_that_of_the_budget_that_ends_first(served: Served) -> None:
    served.tokens["dan"] = served.curator.create_token(
        role=Role.ANALYST, subject="dan", dataset="people", budget=0.1
    ).text
    assert served.ask("dan", "count", epsilon=0.1).status_code == 200
    sign_in(served, "dan")

    page = served.http.get("/datasets/people").text
    assert "Nothing is left of your budget" in page and "epsilon 0<" in page
