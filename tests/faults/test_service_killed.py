"""A service that is killed again and again: every answer is charged, none is given twice, and none that was given is lost.

``EXPOST_LONG=1`` kills it a thousand times instead of a few.
"""

import json
import os
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.served import write_people
from tests.served_process import ServerProcess, free_port

from expost.ledger import new_key, open_ledger
from expost.service import Curator, Role, ServiceSettings

KILLS = 1000 if os.environ.get("EXPOST_LONG") else 4
ASKERS = 4


class Asker(threading.Thread):
    """Asks one question after another; if the connection breaks, the same one again under the same key."""

    def __init__(self, number: int, port: int, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._number, self._port, self._token, self._stop_asking = number, port, token, stop
        self.answers: dict[str, list[dict[str, Any]]] = {}

    def run(self) -> None:
        asked = 0
        while not self._stop_asking.is_set():
            key = f"{self._number}-{asked}"
            # Picks and gradual releases; each question once, so that none is free because it was asked before.
            body = {"statistic": "count", "arguments": {"epsilon": 0.01, "where": f"age > {asked % 70}"}}
            if asked % 3 == 1:
                body = {"statistic": "median", "arguments": {"column": "age", "epsilon": 0.01}}
            found = self._ask(key, body)
            if found is not None:
                self.answers.setdefault(key, []).append(found)
                if asked % 4 == 0:
                    again = self._ask(key, body)
                    if again is not None:
                        self.answers[key].append(again)
                asked += 1

    def _ask(self, key: str, body: dict[str, Any]) -> dict[str, Any] | None:
        headers = {"authorization": f"Bearer {self._token}", "idempotency-key": key}
        try:
            response = httpx2.post(
                f"http://127.0.0.1:{self._port}/v1/datasets/people/ask", json=body, headers=headers, timeout=60
            )
            found = response.json()
            while found.get("state") == "running":
                address = f"http://127.0.0.1:{self._port}/v1/jobs/{found['job']}?wait=5"
                found = httpx2.get(address, headers={"authorization": headers["authorization"]}, timeout=60).json()
        except (httpx2.TransportError, json.JSONDecodeError):
            time.sleep(0.02)
            return None
        result: dict[str, Any] = found.get("result", found)
        return result


@pytest.mark.slow
def test_a_killed_service_loses_overspends_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    monkeypatch.setattr("expost.service.curator._LOST_SECONDS", 1.0)
    path = write_people(tmp_path)
    path.write_text(
        path.read_text(encoding="utf-8").replace("budget = [5.0, 1e-5]", "budget = 1000.0"), encoding="utf-8"
    )
    settings = ServiceSettings.read(path)
    curator = Curator(settings)
    secret = curator.create_token(role=Role.ANALYST, subject="ann", dataset="people", budget=900.0)
    curator.close()
    server, stop = ServerProcess(path, free_port()), threading.Event()
    server.start()
    askers = [Asker(number, server.port, secret.text, stop) for number in range(ASKERS)]
    for asker in askers:
        asker.start()
    for number in range(KILLS):
        time.sleep(0.3 + (number * 0.37) % 0.7)
        server.kill()
        server.start()
    time.sleep(1.0)
    stop.set()
    for asker in askers:
        asker.join(90)
    server.kill()

    curator = Curator(settings, clock=lambda: time.time() + 3600)
    curator.recover_all()
    curator.close()
    answers = {key: found for asker in askers for key, found in asker.answers.items()}
    given = [one for found in answers.values() for one in found if "release" in one]
    with open_ledger(settings.ledger) as ledger:
        report, spent = ledger.verify(), ledger.spent("dataset:people").amounts()["epsilon"]
        held = sum((hold.worst_case.amounts()["epsilon"] for hold in ledger.open_holds()), Fraction(0))
        settled = {each.id: each.receipt for each in ledger.history("dataset:people") if each.receipt is not None}
        assert ledger.spent("analyst:ann/people").amounts()["epsilon"] == spent
    assert report is not None
    assert len(given) > KILLS
    for key, found in answers.items():
        texts = {json.dumps(one.get("release"), sort_keys=True) for one in found if "release" in one}
        assert len(texts) <= 1, key  # the same key is the same answer
    entries = {one["release"]["receipt"]["of"]["ledger_entry"] for one in given}
    answered = [key for key, found in answers.items() if any("release" in one for one in found)]
    assert len(entries) == len(answered)  # different keys are different entries
    assert entries <= {receipt.ledger_entry or entry for entry, receipt in settled.items()}
    # Every answer that left is in the ledger, and the ledger has charged exactly its receipts and open holds.
    assert spent == sum((receipt.bill.amounts()["epsilon"] for receipt in settled.values()), Fraction(0)) + held
