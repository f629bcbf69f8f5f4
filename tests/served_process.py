"""The command ``expost serve`` in a process of its own, clients that never give up, and what must be true after failures."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import httpx2

from expost.ledger import open_ledger
from expost.service import Curator, ServiceSettings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """The command ``expost serve`` in a process that can be killed."""

    def __init__(self, settings: Path, port: int, *, workers: int = 1) -> None:
        self._settings, self.port, self._workers = settings, port, workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        code = "import sys; from expost.cli import main; sys.argv[0] = 'expost'; main()"
        command = [sys.executable, "-c", code, "serve", str(self._settings), "--port", str(self.port)]
        command += ["--workers", str(self._workers)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if httpx2.get(f"http://127.0.0.1:{self.port}/ready", timeout=30).status_code == 200:
                    return
            except httpx2.TransportError:
                time.sleep(0.1)
        self.kill()
        raise AssertionError("the service did not start")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it as an owner would, workers included."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)


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


def check_books(settings: ServiceSettings, askers: list[Asker], *, least: int) -> None:
    """Check that every answer that left is charged, once, and is the same under its key, and that there are enough."""
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
    assert len(given) > least
    for key, found in answers.items():
        texts = {json.dumps(one.get("release"), sort_keys=True) for one in found if "release" in one}
        assert len(texts) <= 1, key  # the same key is the same answer
    entries = {one["release"]["receipt"]["of"]["ledger_entry"] for one in given}
    answered = [key for key, found in answers.items() if any("release" in one for one in found)]
    assert len(entries) == len(answered)  # different keys are different entries
    assert entries <= {receipt.ledger_entry or entry for entry, receipt in settled.items()}
    # Every answer that left is in the ledger, and the ledger has charged exactly its receipts and open holds.
    assert spent == sum((receipt.bill.amounts()["epsilon"] for receipt in settled.values()), Fraction(0)) + held


def ask_through(server: ServerProcess, token: str, *, askers: int, disturb: Callable[[], None]) -> list[Asker]:
    """Ask all the time from several clients while the service or its database is disturbed; return the clients."""
    stop = threading.Event()
    with server:
        found = [Asker(number, server.port, token, stop) for number in range(askers)]
        for asker in found:
            asker.start()
        try:
            disturb()
        finally:
            stop.set()
            for asker in found:
                asker.join(90)
    return found
