"""A database that crashes again and again under two workers: nothing is lost, overspent or answered twice.

``EXPOST_LONG=1`` crashes it a hundred times instead of a few.
"""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.served import write_people
from tests.served_process import ServerProcess, ask_through, check_books, free_port

from expost.ledger import new_key
from expost.service import Curator, Role, ServiceSettings

CRASHES = int(os.environ.get("EXPOST_CRASHES", "100" if os.environ.get("EXPOST_LONG") else "2"))
ASKERS = 4


@pytest.mark.slow
@pytest.mark.timeout(max(300, 30 * CRASHES))
def test_a_crashing_database_loses_overspends_and_repeats_nothing(
    tmp_path: Path, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    database = postgres.Server()
    path = write_people(tmp_path)
    place = database.new_place()
    text = path.read_text(encoding="utf-8").replace("people.ledger", place).replace("people.state", place)
    path.write_text(text.replace("budget = [5.0, 1e-5]", "budget = 1000.0"), encoding="utf-8")
    settings = ServiceSettings.read(path)
    curator = Curator(settings)
    secret = curator.create_token(role=Role.ANALYST, subject="ann", dataset="people", budget=900.0)
    curator.close()
    server = ServerProcess(path, free_port(), workers=2)

    def crash_often() -> None:
        for number in range(CRASHES):
            time.sleep(1.0 + (number * 0.37) % 0.7)
            database.crash()
            time.sleep(0.2)
            database.start()
        time.sleep(3.0)

    try:
        check_books(settings, ask_through(server, secret.text, askers=ASKERS, disturb=crash_often), least=CRASHES)
    finally:
        database.stop()
