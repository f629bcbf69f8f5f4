"""A service that is killed again and again: every answer is charged, none is given twice, and none that was given is lost.

``EXPOST_LONG=1`` kills it a thousand times instead of a few.
"""

import os
import time
from pathlib import Path

import pytest
from tests.served import write_people
from tests.served_process import ServerProcess, ask_through, check_books, free_port

from expost.ledger import new_key
from expost.service import Curator, Role, ServiceSettings

KILLS = int(os.environ.get("EXPOST_KILLS", "1000" if os.environ.get("EXPOST_LONG") else "4"))
ASKERS = 4


@pytest.mark.slow
@pytest.mark.timeout(max(300, 30 * KILLS))
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
    server = ServerProcess(path, free_port())

    def kill_often() -> None:
        for number in range(KILLS):
            time.sleep(0.3 + (number * 0.37) % 0.7)
            server.kill()
            server.start()
        time.sleep(1.0)

    check_books(settings, ask_through(server, secret.text, askers=ASKERS, disturb=kill_often), least=KILLS)
