"""Cancelling: a question that waits costs nothing, a training ends after its phase, and an answer is never lost."""

import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.served import Served, write_people

import expost
from expost.client.http_transport import HttpTransport
from expost.client.remote_session import open_remote
from expost.core import ExpostError
from expost.service.service_store import RequestState
from expost.session import Session

FIT = {"estimator": "Regressor", "settings": {"epsilon": 0.3}, "features": ["age"], "target": "pay"}
COUNT = {"statistic": "count", "arguments": {"epsilon": 0.1}}
FIT_PATH, ASK_PATH = "/v1/datasets/people/fit", "/v1/datasets/people/ask"


@pytest.fixture
def quick(tmp_path: Path) -> Any:
    """A service with one thread that does not wait for answers."""
    path = write_people(tmp_path)
    limits = "[limits]\nworkers = 1\nwait_seconds = 0.02\n"
    path.write_text(path.read_text(encoding="utf-8") + limits, encoding="utf-8")
    served = Served(path)
    with served.http:
        yield served


class Blocked:
    """Holds up every question and fit until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        plain: Callable[..., Any] = getattr(Session, name)

        def block(*arguments: Any, **terms: Any) -> Any:
            self.begun.set()
            assert self.go.wait(30)
            return plain(*arguments, **terms)

        monkeypatch.setattr(Session, name, block)


def finish(served: Served, job: str, who: str = "ann") -> Any:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = served.call(who, "GET", f"/v1/jobs/{job}?wait=5").json()
        if found["state"] == "done":
            return found
    raise AssertionError(found)


def spent(served: Served) -> float:
    return float(served.curator.ledger.spent("dataset:people").amounts()["epsilon"])


def test_a_question_that_is_cancelled_before_its_turn_costs_nothing(quick: Served, monkeypatch: Any) -> None:
    blocked = Blocked(monkeypatch, "ask")
    first = quick.call("ann", "POST", ASK_PATH, json=COUNT).json()
    assert blocked.begun.wait(30)
    second = quick.call("ann", "POST", ASK_PATH, json=COUNT | {"arguments": {"epsilon": 0.2}}).json()
    assert (first["state"], second["state"]) == ("running", "queued")
    assert quick.call("bob", "DELETE", f"/v1/jobs/{second['job']}").status_code == 404
    assert quick.call("ann", "DELETE", f"/v1/jobs/{second['job']}").json()["state"] == "stopping"
    blocked.go.set()
    done = finish(quick, second["job"])

    assert (done["status"], done["result"]["error"]["code"]) == (409, "cancelled")
    assert done["result"]["error"]["cost"] == "nothing spent, data untouched"
    assert finish(quick, first["job"])["status"] == 200
    assert spent(quick) == pytest.approx(0.1)


def test_a_training_that_is_cancelled_ends_and_stays_charged(quick: Served, monkeypatch: Any) -> None:
    blocked = Blocked(monkeypatch, "fit")
    job = quick.call("ann", "POST", FIT_PATH, json=FIT).json()["job"]
    assert blocked.begun.wait(30)
    quick.call("ann", "DELETE", f"/v1/jobs/{job}")
    blocked.go.set()
    done = finish(quick, job)

    assert (done["status"], done["result"]["error"]["code"]) == (409, "cancelled")
    assert "stays charged" in done["result"]["error"]["cost"]
    assert spent(quick) > 0
    assert len(quick.curator.ledger.open_holds()) == 1
    again = quick.call("ann", "DELETE", f"/v1/jobs/{job}")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "running")
    assert "cancel" in [line.action for line in quick.curator.store.read_log()]


def test_a_statistic_that_has_begun_is_answered_although_it_was_cancelled(quick: Served, monkeypatch: Any) -> None:
    blocked = Blocked(monkeypatch, "ask")
    job = quick.call("ann", "POST", ASK_PATH, json=COUNT).json()["job"]
    assert blocked.begun.wait(30)
    quick.call("ann", "DELETE", f"/v1/jobs/{job}")
    blocked.go.set()

    assert finish(quick, job)["status"] == 200
    assert spent(quick) == pytest.approx(0.1)


def test_another_worker_hears_of_it(quick: Served, monkeypatch: Any) -> None:
    monkeypatch.setattr("expost.service.curator._BEAT_SECONDS", 0.05)
    blocked = Blocked(monkeypatch, "fit")
    job = quick.call("ann", "POST", FIT_PATH, json=FIT).json()["job"]
    assert blocked.begun.wait(30)
    # What another process would write, and this one reads with its next beat.
    assert quick.curator.store.change_request(job, only_if=RequestState.RUNNING, state=RequestState.STOPPING)
    until = time.monotonic() + 30
    while job not in quick.curator._stops and time.monotonic() < until:
        time.sleep(0.02)
    blocked.go.set()

    assert finish(quick, job)["result"]["error"]["code"] == "cancelled"


def test_a_client_waits_for_the_owner_without_a_storm_of_requests(tmp_path: Path) -> None:
    path = write_people(tmp_path, extra="approval_above = 0.2")
    served = Served(path)
    with served.http:
        transport = HttpTransport("http://testserver", served.tokens["ann"], client=served.http)
        session, answers = open_remote(transport, None), list[Any]()
        sent: list[str] = []
        plain = served.http.request

        def count(method: str, url: str, **content: Any) -> Any:
            sent.append(url)
            return plain(method, url, **content)

        served.http.request = count  # type: ignore[method-assign]

        def ask() -> None:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                answers.append((session.count(epsilon=0.4), [str(each.message) for each in heard]))

        thread = threading.Thread(target=ask)
        thread.start()
        waiting: list[Any] = []
        until = time.monotonic() + 30
        while not waiting and time.monotonic() < until:
            waiting = served.curator.store.list_requests(state=RequestState.WAITING)
            time.sleep(0.05)
        time.sleep(0.5)
        served.call("owner", "POST", f"/v1/owner/approvals/{waiting[0].request_id}", json={"approve": True})
        thread.join(60)

    release, heard = answers[0]
    assert isinstance(release, expost.Release) and any("approval" in each for each in heard)
    assert len([each for each in sent if "/v1/jobs/" in each]) <= 4


def test_ctrl_c_cancels_the_job(quick: Served, monkeypatch: Any) -> None:
    blocked = Blocked(monkeypatch, "fit")
    transport = HttpTransport("http://testserver", quick.tokens["ann"], client=quick.http)
    plain = transport.get

    def interrupt(path: str, **parameters: Any) -> Any:
        if path.startswith("/v1/jobs/"):
            raise KeyboardInterrupt
        return plain(path, **parameters)

    monkeypatch.setattr(transport, "get", interrupt)
    with pytest.raises(KeyboardInterrupt):
        transport.ask(FIT_PATH, FIT)
    (record,) = quick.curator.store.list_requests()
    blocked.go.set()

    assert finish(quick, record.request_id)["result"]["error"]["code"] == "cancelled"
    with pytest.raises(ExpostError):
        transport._send("DELETE", f"/v1/jobs/{record.request_id}")
