"""The commands of the service: what the server is started with, and tokens made where the owner's file is."""

from pathlib import Path
from typing import Any

import pytest
from tests.served import write_people
from typer.testing import CliRunner

from expost.cli import app


def test_a_worker_may_take_long_to_start_and_no_path_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run(application: str, *, timeout_worker_healthcheck: int = 5, **terms: Any) -> None:
        seen.update(terms, patience=timeout_worker_healthcheck)

    monkeypatch.setattr("uvicorn.run", run)
    CliRunner().invoke(app, ["serve", str(write_people(tmp_path)), "--port", "8123"], catch_exceptions=False)

    assert seen["patience"] >= 60 and not seen["access_log"] and seen["port"] == 8123


def test_tokens_are_made_listed_and_rotated_in_the_folder_of_the_owners_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_people(tmp_path)
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        return CliRunner().invoke(app, ["token", *words], catch_exceptions=False).stdout

    made = call("create", "--analyst", "analyst-1", "--dataset", "people", "--epsilon", "0.5", "--expires", "30d")
    token_id = made.split("_")[1]
    other = call("rotate", "owner.toml", token_id).strip()

    assert other.startswith("expost_") and other != made.strip()
    listed = call("list")
    assert token_id in listed and "revoked" in listed and other.split("_")[1] in listed
