import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app


@pytest.fixture
def where(tmp_path):
    path = tmp_path / "people.ledger"
    people = expost.Dataset(pa.table({"age": [1] * 5000}), name="people")
    with expost.Session(people, expost.epsilon(1), ledger=path) as session:
        session.count(epsilon=0.25)
    return str(path)


def run(*words: str):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_show_lists_accounts_and_entries(where: str) -> None:
    result = run("ledger", "show", where)

    assert "dataset:people" in result.output
    assert "epsilon 0.75" in result.output


def test_a_name_that_spells_an_emoji_stays_a_name(tmp_path) -> None:
    path = tmp_path / "a.ledger"
    with expost.open_ledger(path) as ledger:
        ledger.open_account("dataset:a", 1)
        ledger.hold(["dataset:a"], expost.core.PureLoss(0.25), question=":heart: of rows")

    shown = run("ledger", "show", str(path)).output
    assert ":heart:" in shown and "dataset:a:" in shown


def test_show_as_json_is_exact(where: str) -> None:
    data = json.loads(run("ledger", "show", where, "--json").output)

    assert data["accounts"][0]["left"] == {"definition": "pure", "epsilon": "3/4"}
    assert [entry["kind"] for entry in data["entries"]][-2:] == ["hold", "settle"]


def test_verify_says_sound(where: str) -> None:
    assert "sound" in run("ledger", "verify", where).output


def test_export_writes_one_line_an_entry(where: str, tmp_path) -> None:
    output = tmp_path / "out.jsonl"

    run("ledger", "export", where, "--output", str(output))

    assert [json.loads(line) for line in output.read_text().splitlines()]


def test_budget_opens_and_changes_an_account(where: str) -> None:
    run("ledger", "budget", where, "analyst:ann", "--epsilon", "0.5")
    run("ledger", "budget", where, "analyst:ann", "--epsilon", "0.75")

    assert expost.open_ledger(where).budget("analyst:ann") == expost.epsilon(0.75)


def test_show_draws_the_budget(where: str, tmp_path) -> None:
    picture = tmp_path / "budget.png"

    run("ledger", "show", where, "--account", "dataset:people", "--plot", str(picture))

    assert picture.read_bytes().startswith(b"\x89PNG")


def test_reading_does_not_create_a_ledger(tmp_path) -> None:
    with pytest.raises(expost.InvalidRequest, match="exists"):
        run("ledger", "show", str(tmp_path / "none.ledger"))

    assert not (tmp_path / "none.ledger").exists()


def test_an_export_replaces_an_export_and_nothing_else(where: str, tmp_path) -> None:
    output = tmp_path / "out.jsonl"
    for _ in range(2):
        run("ledger", "export", where, "--output", str(output))
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")

    for kept in (where, where + ".head", str(notes)):
        with pytest.raises(expost.InvalidRequest, match="one that this command wrote"):
            run("ledger", "export", where, "--output", kept)
    assert "sound" in run("ledger", "verify", where).output and notes.read_text() == "mine"
    assert len(output.read_text().splitlines()) == 6


@pytest.mark.parametrize("columns", [1, 20, 60])
def test_a_narrow_terminal_still_shows_every_number(where: str, columns: int) -> None:
    shown = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["ledger", "show", where]).output

    assert "0.75" in shown and "dataset:people" in shown


def test_a_backup_is_restored_with_its_anchor(where: str, tmp_path) -> None:
    backup, restored = str(tmp_path / "people.backup"), str(tmp_path / "again.ledger")
    saved = json.loads(run("ledger", "backup", where, backup, "--json").output)

    assert saved["anchor"] == json.loads(run("ledger", "anchor", where, "--json").output)["anchor"]
    assert "restored" in run("ledger", "restore", backup, restored, "--anchor", saved["anchor"]).output
    assert "sound" in run("ledger", "verify", restored, "--anchor", saved["anchor"]).output


def test_repair_explains_and_repairs_only_when_asked(where: str) -> None:
    assert "nothing to repair" in run("ledger", "repair", where).output
    with open(f"{where}.head", "w") as note:
        note.write("nonsense")

    explained = run("ledger", "repair", where).output
    repaired = json.loads(run("ledger", "repair", where, "--charge-rest", "--json").output)

    assert "epsilon 0.75" in explained and "Repaired" not in explained
    assert repaired["repaired"] and repaired["charges"] == {"dataset:people": {"definition": "pure", "epsilon": "3/4"}}
    assert expost.open_ledger(where).remaining("dataset:people") == expost.core.PureLoss(0)
