"""Time: answers and data-dependent errors leave on the grid, polling included, and prices read no row."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.served import Served, write_people

from expost.core import EngineFailed
from expost.data import Dataset
from expost.service import Identity, Role
from expost.session import Session

ANN = Identity(Role.ANALYST, "ann", "people", "t")
GRID = 0.4
MISSED = {"statistic": "median", "arguments": {"column": "age", "within": 0.01, "max_epsilon": 0.05}}
COUNT = {"statistic": "count", "arguments": {"epsilon": 0.1}}


@pytest.fixture
def slow_grid(tmp_path: Path) -> Any:
    path = write_people(tmp_path)
    text = path.read_text(encoding="utf-8").replace("time_grid = 0.01", f"time_grid = {GRID}")
    path.write_text(text, encoding="utf-8")
    served = Served(path)
    with served.http:
        yield served


@pytest.mark.parametrize(
    ("body", "failure", "status"),
    [(COUNT, None, 200), (MISSED, None, 422), (COUNT, EngineFailed("Failed"), 503), (COUNT, RuntimeError("x"), 503)],
    ids=["answer", "missed", "failed source", "failed service"],
)
def test_whatever_depends_on_rows_leaves_on_the_grid(
    slow_grid: Served, monkeypatch: pytest.MonkeyPatch, body: Any, failure: Exception | None, status: int
) -> None:
    if failure is not None:

        def fail(*_: Any, **__: Any) -> Any:
            raise failure

        monkeypatch.setattr(Session, "ask", fail)
    began = time.perf_counter()
    found = slow_grid.call("ann", "POST", "/v1/datasets/people/ask", json=body)

    assert found.status_code == status
    assert time.perf_counter() - began >= GRID


def test_polling_shows_nothing_before_the_grid(slow_grid: Served) -> None:
    slow_grid.call("ann", "GET", "/v1/datasets")  # the slow hash of the token is computed once
    began = time.perf_counter()
    thread = threading.Thread(target=slow_grid.ask, args=("ann", "count"), kwargs={"epsilon": 0.1})
    thread.start()
    seen = []
    while time.perf_counter() - began < GRID:
        jobs = slow_grid.call("ann", "GET", "/v1/datasets/people/releases").json()["releases"]
        for job in jobs:
            found = slow_grid.call("ann", "GET", f"/v1/jobs/{job['job']}?wait=0").json()
            if time.perf_counter() - began < GRID:
                seen += [job, found]
    thread.join()

    assert seen
    assert {each["state"] for each in seen} == {"running"} and not any("result" in each for each in seen)


def test_what_is_checked_before_a_question_runs_reads_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(write_people(tmp_path))
    (tmp_path / "people.parquet").write_bytes(b"")  # nothing can be read any more
    for name in ("measure", "measure_total", "scan"):
        if hasattr(Dataset, name):
            monkeypatch.setattr(Dataset, name, None)
    fit = {"estimator": "Ridge", "settings": {"epsilon": 0.1, "regularization": 0.1}, "target": "pay"}
    for number, (kind, body) in enumerate(
        [
            ("ask", COUNT),
            ("ask", MISSED),
            ("fit", {**fit, "features": ["age"]}),
            ("ask", {"statistic": "mean", "arguments": {"column": "age", "by": "city", "within": 5}}),
            ("ask", {"statistic": "MeanDifferenceTest", "arguments": DIFFERENCE}),
        ]
    ):
        record, new = served.curator.begin("people", ANN, kind, json.loads(json.dumps(body)), f"k{number}")

        assert new and record.state == "running"
    assert served.curator.ledger.spent("dataset:people").amounts()["epsilon"] == 0
    assert served.curator.run(record, ANN).status == 503  # the last one: its rows are gone
    served.curator.close()


DIFFERENCE = {"value": "age", "by": "city", "groups": ["Oslo", "Rome"], "epsilon": 0.1}
