"""A worker that dies at any moment: nothing is lost, uncharged or answered twice."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.served import Served, write_people

from expost.ledger import Ledger
from expost.service import Curator, Identity, Role
from expost.service.question_form import ESTIMATORS
from expost.service.service_store import ServiceStore

ANN = Identity(Role.ANALYST, "ann", "people", "t")
COUNT = {"statistic": "count", "arguments": {"within": 50}}
MEDIAN = {"statistic": "median", "arguments": {"column": "age", "rank_within": 100}}


class Killed(BaseException):
    """Stands for the end of a process: no handler of ours catches it."""


def die_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    original = getattr(owner, name)

    def dying(*given: Any, **terms: Any) -> Any:
        if after:
            original(*given, **terms)
        raise Killed

    monkeypatch.setattr(owner, name, dying)


@pytest.mark.parametrize("body", [COUNT, MEDIAN], ids=["gradual", "pick"])
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [(Ledger, "settle", False), (Ledger, "settle", True), (Curator, "_finish", False)],
    ids=["before settling", "after settling", "before the response is stored"],
)
def test_an_answer_that_was_drawn_is_delivered_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], owner: Any, name: str, after: bool
) -> None:
    first = Served(write_people(tmp_path))
    with monkeypatch.context() as patch:
        die_at(patch, owner, name, after=after)
        record, new = first.curator.begin("people", ANN, "ask", body, "k")
        with pytest.raises(Killed):
            first.curator.run(record, ANN)
    assert new
    first.curator.close()

    second = Curator(first.settings, clock=lambda: time.time() + 3600)
    found, new = second.begin("people", ANN, "ask", body, "k")

    assert not new
    assert (found.state, found.status) == ("done", 200)
    assert '"release"' in (found.response or "")
    assert not second.ledger.open_holds()
    release = found.response
    assert second.begin("people", ANN, "ask", body, "k")[0].response == release
    second.ledger.verify()
    second.close()


def test_a_question_that_had_no_answer_yet_stays_charged_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Served(write_people(tmp_path))
    with monkeypatch.context() as patch:
        die_at(patch, Curator, "_store_kept", after=False)
        record, _ = first.curator.begin("people", ANN, "ask", COUNT, "k")
        with pytest.raises(Killed):
            first.curator.run(record, ANN)
    first.curator.close()
    second = Curator(first.settings, clock=lambda: time.time() + 3600)
    found, _ = second.begin("people", ANN, "ask", COUNT, "k")

    assert found.status == 503 and "interrupted" in (found.response or "")
    assert second.ledger.spent("dataset:people").amounts()["epsilon"] > 0
    second.close()


def test_a_running_question_of_a_living_worker_is_left_alone(tmp_path: Path) -> None:
    first = Served(write_people(tmp_path))
    record, _ = first.curator.begin("people", ANN, "ask", COUNT, "k")
    second = Curator(first.settings)

    assert second.recover(record).state == "running"
    first.curator.run(record, ANN)
    assert second.begin("people", ANN, "ask", COUNT, "k")[0].state == "done"
    first.curator.close()
    second.close()


def test_of_two_workers_that_adopt_a_request_one_does(tmp_path: Path) -> None:
    first = Served(write_people(tmp_path))
    record, _ = first.curator.begin("people", ANN, "ask", COUNT, "k")
    store = ServiceStore(first.settings.state)

    assert store.adopt_request(record, "one", 5.0)
    assert not store.adopt_request(record, "two", 6.0)
    store.close()
    first.curator.close()


def test_another_worker_continues_an_answer_and_pays_the_difference(tmp_path: Path, monkeypatch: Any) -> None:
    from expost.ledger import new_key

    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    first = Served(write_people(tmp_path))
    rough = first.ask("ann", "count", within=200).json()
    before = first.curator.ledger.spent("analyst:ann/people").amounts()["epsilon"]
    second = Curator(first.settings)
    finer = second.session("people", ANN).count(within=100)
    spent = second.ledger.spent("analyst:ann/people").amounts()["epsilon"]

    assert rough["release"]["receipt"]["of"]["paid_before"] is None
    assert finer.receipt.paid_before is not None
    assert spent == before + finer.receipt.bill.amounts()["epsilon"]
    bob = Identity(Role.ANALYST, "bob", "people", "t")
    assert second.session("people", bob).count(within=100).receipt.paid_before is None  # he has not paid for it
    first.curator.close()
    second.close()


FIT = {"estimator": "Ridge", "settings": {"epsilon": 0.2, "regularization": 0.1}, "target": "pay", "features": ["age"]}
MISSED = {**FIT, "settings": {"score": ["r2", 0.9], "regularization": 0.1, "rows": 4000, "max_epsilon": 0.1}}


@pytest.mark.parametrize(("body", "status"), [(FIT, 200), (MISSED, 422)], ids=["fixed epsilon", "missed"])
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [(Ledger, "settle", False), (Ledger, "settle", True), (Curator, "_finish", False)],
    ids=["before settling", "after settling", "before the response is stored"],
)
def test_a_model_that_was_trained_is_delivered_after_a_crash(
    tmp_path: Path, monkeypatch: Any, body: dict[str, Any], status: int, owner: Any, name: str, after: bool
) -> None:
    first = Served(write_people(tmp_path))
    with monkeypatch.context() as patch:
        die_at(patch, owner, name, after=after)
        record, _ = first.curator.begin("people", ANN, "fit", body, "k")
        with pytest.raises(Killed):
            first.curator.run(record, ANN)
    stopped = first.curator.store.find_request(record.request_id)
    assert stopped is not None
    ticket = json.loads(stopped.kept or "null")["hold"]["ticket"]
    first.curator.close()
    # The next worker is another process: it cannot settle what this one held.
    monkeypatch.setattr("expost.ledger.posting.is_own_ticket", lambda given: given != ticket)
    second = Curator(first.settings, clock=lambda: time.time() + 3600)
    found, new = second.begin("people", ANN, "fit", body, "k")
    answer = json.loads(found.response or "null")

    assert not new and (found.state, found.status) == ("done", status)
    receipt = answer["model"]["receipt"] if status == 200 else answer["error"]["release"]["receipt"]["of"]
    assert receipt["ledger_entry"] is not None
    assert status != 200 or len(answer["model"]["coefficients"]) >= 1
    assert not second.ledger.open_holds()
    second.ledger.verify()
    second.close()


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_what_is_kept_of_a_fit_is_the_model_that_is_returned(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    kept: list[Any] = []
    original = Curator._store_kept
    monkeypatch.setattr(Curator, "_store_kept", lambda *given: [kept.append(given[-1]), original(*given)])
    settings: dict[str, Any] = {"epsilon": 0.3}
    labels = "C" in name or name == "LogisticRegression"
    settings |= {"classes": ["Oslo", "Rome"]} if labels else {"target_bounds": {"low": 0, "high": 100}}
    if name in ("Classifier", "Regressor"):
        settings["columns"] = {"age": {"low": 18, "high": 90}}
    elif name.startswith("SGD"):
        settings |= {"delta": 1e-7, "rows": 4000, "steps": 3}
    else:
        settings["regularization"] = 0.1
    body = {"estimator": name, "settings": settings, "target": "city" if labels else "pay", "features": ["age"]}
    served = Served(write_people(tmp_path))
    with served.http:
        found = served.call("ann", "POST", "/v1/datasets/people/fit", json=body)
    assert found.status_code == 200, found.text
    model, stored = found.json()["model"], json.loads(kept[-1].to_json())["model"]

    assert len(kept) == 1
    assert {**model, "receipt": None} == {**stored, "receipt": None}


@pytest.mark.parametrize("moment", ["_keeper", "_finish"])
def test_a_worker_that_was_taken_for_dead_gives_no_second_answer(tmp_path: Path, monkeypatch: Any, moment: str) -> None:
    first = Served(write_people(tmp_path))
    record, _ = first.curator.begin("people", ANN, "ask", COUNT, "k")
    second = Curator(first.settings, clock=lambda: time.time() + 3600)
    original, seen = getattr(Curator, moment), list[Any]()

    def adopt(self: Curator, *given: Any) -> Any:
        if self is first.curator and not seen:
            seen.append(None)
            seen.append(second.begin("people", ANN, "ask", COUNT, "k")[0])
        return original(self, *given)

    monkeypatch.setattr(Curator, moment, adopt)
    first.curator.run(record, ANN)
    adopted, last = seen[-1], second.begin("people", ANN, "ask", COUNT, "k")[0]

    assert adopted.state == "done" and adopted.status == (503 if moment == "_keeper" else 200)
    assert (last.status, last.response) == (adopted.status, adopted.response)
    second.ledger.verify()
    first.curator.close()
    second.close()


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [(Ledger, "settle", False), (Ledger, "settle", True), (Curator, "_finish", False)],
    ids=["before settling", "after settling", "before the response is stored"],
)
def test_a_database_that_is_away_for_a_moment_costs_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    monkeypatch.setattr("expost.service.curator._BEAT_SECONDS", 0.05)
    served = Served(write_people(tmp_path))
    curator = served.curator
    original = getattr(owner, name)

    def fail_once(*given: Any, **terms: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        if after:
            original(*given, **terms)
        raise OperationalError("SELECT 1", {}, ConnectionError())

    record, _ = curator.begin("people", ANN, "ask", COUNT, "k")
    monkeypatch.setattr(owner, name, fail_once)
    curator.run(record, ANN)
    until = time.monotonic() + 30
    while time.monotonic() < until and (found := curator.store.find_request(record.request_id)).state != "done":  # type: ignore[union-attr]
        time.sleep(0.02)

    assert found is not None and (found.state, found.status) == ("done", 200)
    assert not curator.ledger.open_holds() and not curator._put_off
    assert curator.ledger.spent("dataset:people") == curator.ledger.spent("analyst:ann/people")
    curator.close()
