"""The command for statements: one, several from standard input, and the prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from typer.testing import CliRunner

from expost import Dataset, Session
from expost.cli import app
from expost.cli.sql_command import _run_prompt, list_words, split_statements

COUNT = "SELECT city, COUNT(*) AS n FROM people GROUP BY city WITH EPSILON 0.5"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A described table."""
    pq.write_table(pa.table({"city": ["Rome", "Oslo"] * 500, "age": [30, 50] * 500}), tmp_path / "people.parquet")
    place = tmp_path / "people.toml"
    place.write_text('source = "people.parquet"\n[categories]\ncity = ["Oslo", "Rome"]\n[bounds]\nage = [0, 100]\n')
    return place


def run(*words: str, input: str | None = None) -> Any:
    return CliRunner().invoke(app, ["sql", *words], input=input)


def test_a_statement_prints_a_table_and_a_receipt(people: Path) -> None:
    found = run(str(people), COUNT, "--budget", "1")
    assert found.exit_code == 0, found.output
    assert "Oslo" in found.output
    assert "epsilon 0.5" in found.output


def test_a_statement_as_json_has_rows_with_intervals(people: Path) -> None:
    found = run(str(people), COUNT, "--budget", "1", "--json")
    rows = json.loads(found.stdout)["value"]
    assert [row["city"] for row in rows] == ["Oslo", "Rome"]
    assert rows[0]["n low"] <= rows[0]["n"] <= rows[0]["n high"]


def test_statements_are_read_from_standard_input(people: Path) -> None:
    found = run(str(people), "--budget", "1", input=f"{COUNT};\nEXPLAIN PRICE {COUNT} -- free;\n;")
    assert found.exit_code == 0, found.output
    assert "protected: one row" in found.output


def test_a_public_table_can_be_joined(people: Path, tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("city,country\nRome,IT\nOslo,NO\n")
    text = "SELECT country, COUNT(*) AS n FROM people JOIN places USING (city) GROUP BY country WITH EPSILON 0.5"
    found = run(str(people), text, "--public", f"places={tmp_path / 'places.csv'}", "--budget", "1", "--json")
    assert [row["country"] for row in json.loads(found.stdout)["value"]] == ["IT", "NO"]


def test_semicolons_in_quotes_and_comments_do_not_split() -> None:
    assert split_statements("SELECT ';' ; -- a; b\nSELECT \";\" /* ; */;") == [
        "SELECT ';'",
        '-- a; b\nSELECT ";" /* ; */',
    ]


def test_the_prompt_answers_explains_errors_and_keeps_a_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dataset = Dataset(pa.table({"age": [30, 50] * 500}), name="people", bounds={"age": (0, 100)})
    with Session(dataset, 1) as session, create_pipe_input() as pipe, create_app_session(pipe, DummyOutput()):
        pipe.send_text(
            "SELECT COUNT(*)\rFROM people WITH EPSILON 0.5;\rSELECT AVG(aeg) FROM people WITH EPSILON 0.1;\r\x04"
        )
        _run_prompt(session, {"dialect": "duckdb", "tables": {}}, as_json=False)
        assert session.spent().epsilon == 0.5  # type: ignore[attr-defined]
    shown = capsys.readouterr()
    assert "COUNT(*)" in shown.out
    assert "Did you mean 'age'" in shown.err
    kept = (tmp_path / "expost" / "sql_history").read_text()
    assert "AVG(aeg)" in kept
    assert "+SELECT COUNT(*)\n+FROM people" in kept  # a statement of several lines is one entry
    assert (tmp_path / "expost" / "sql_history").stat().st_mode & 0o077 == 0


def test_the_prompt_completes_names_and_categories() -> None:
    dataset = Dataset(pa.table({"city": ["Rome"]}), name="people", categories={"city": ["Rome", "Oslo"]})
    with Session(dataset, 1) as session:
        words = list_words(session, {"tables": {"places": None}})
    assert {"SELECT", "people", "city", "'Oslo'", "places"} <= set(words)
