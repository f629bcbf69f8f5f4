"""A small service for tests: a table of made-up people, an owner, an auditor and two analysts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from expost.service import Curator, Role, ServiceSettings, create_app

CANARY = "Xanadu-7781"
ROWS = 4000


def write_people(folder: Path, *, more: str = "", extra: str = "") -> Path:
    """Write a table, its description and the owner's settings; return the settings' path."""
    rng = np.random.default_rng(0)
    city = np.array(["Rome", "Oslo"])[rng.integers(0, 2, ROWS)].tolist()
    city[17] = CANARY
    table = {"age": rng.integers(18, 90, ROWS), "city": city, "pay": rng.normal(50, 10, ROWS)}
    table["seen"] = np.datetime64("2025-01-01") + rng.integers(0, 365, ROWS)
    pq.write_table(pa.table(table), folder / "people.parquet")
    (folder / "people.toml").write_text(
        'source = "people.parquet"\nname = "people"\n[bounds]\nage = [18, 90]\npay = [0, 100]\nseen = ["2025-01-01", "2025-12-31"]\n'
        '[categories]\ncity = ["Oslo", "Rome"]\n',
        encoding="utf-8",
    )
    settings = folder / "owner.toml"
    settings.write_text(
        f'ledger = "people.ledger"\nstate = "people.state"\ntime_grid = 0.01\n{more}\n[[datasets]]\n'
        f'description = "people.toml"\ntitle = "People"\nbudget = [5.0, 1e-5]\nquestion_cap = 0.5\n{extra}\n',
        encoding="utf-8",
    )
    return settings


class Served:
    """A curator with an HTTP client and one token per role."""

    def __init__(self, path: Path, clock: Callable[[], float] | None = None) -> None:
        self.settings = ServiceSettings.read(path)
        self.curator = Curator(self.settings) if clock is None else Curator(self.settings, clock=clock)
        self.tokens: dict[str, str] = {}
        for name, role in (("owner", Role.OWNER), ("auditor", Role.AUDITOR)):
            self.tokens[name] = self.curator.create_token(role=role, subject=name).text
        for name in ("ann", "bob"):
            secret = self.curator.create_token(role=Role.ANALYST, subject=name, dataset="people", budget=(3.0, 1e-6))
            self.tokens[name] = secret.text
        self.app = create_app(self.curator)
        self.http = TestClient(self.app, raise_server_exceptions=False)

    def call(self, who: str, method: str, path: str, **content: Any) -> Any:
        """Send a request with somebody's token."""
        headers = {"authorization": f"Bearer {self.tokens[who]}", **content.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **content)

    def ask(self, who: str, statistic: str, key: str | None = None, **arguments: Any) -> Any:
        """Ask a question about the people."""
        headers = {} if key is None else {"idempotency-key": key}
        body = {"statistic": statistic, "arguments": arguments}
        return self.call(who, "POST", "/v1/datasets/people/ask", json=body, headers=headers)
