"""Only owners open accounts, and a second name on the command line opens no second budget."""

import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app

BUDGET = ("--budget", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("EXPOST_LEDGER_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    table = pa.table({"id": range(2000), "age": [each % 97 for each in range(2000)]})
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table.slice(1000), tmp_path / "other.parquet")
    return tmp_path


def run(*words: str):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def count(source: str, *words: str, ledger: str = "s.ledger", level: str = "0.9"):
    return run("query", source, "count", "--epsilon", level, "--ledger", ledger, *words)


def accounts() -> list[str]:
    with expost.open_ledger("s.ledger", create=False) as ledger:
        return ledger.accounts()


def test_a_budget_opens_the_account_of_a_new_ledger_and_says_so(folder) -> None:
    shown = count("t.parquet", *BUDGET).output
    assert "opened account dataset:t in s.ledger with a budget of epsilon 1" in " ".join(shown.split())

    again = run("query", "t.parquet", "count", "--epsilon", "0.05", "--ledger", "s.ledger", *BUDGET)
    assert again.exit_code == 0 and "opened" not in again.output
    assert json.loads(count("t.parquet", *BUDGET, "--json", ledger="quiet.ledger").output)


@pytest.mark.parametrize("command", ["query", "price", "fit"])
@pytest.mark.parametrize("budget", [BUDGET, ()])
def test_in_a_ledger_that_exists_only_its_owner_opens_accounts(folder, command: str, budget) -> None:
    count("t.parquet", *BUDGET)
    words = {"query": ["count", "--epsilon", "0.9"], "price": ["count", "--epsilon", "0.9"]}
    words["fit"] = ["--model", "sgd-regressor", "--target", "age", "--target-bounds", "0:97", "--rows", "1000"]
    words["fit"] += ["--feature", "id=0:2000", "--epsilon", "0.5"]

    with pytest.raises(expost.InvalidRequest, match=r"expost ledger budget s\.ledger dataset:other --epsilon 1"):
        run(command, "other.parquet", *words[command], "--ledger", "s.ledger", *budget)
    assert accounts() == ["dataset:t"]

    run(
        "ledger",
        "budget",
        "s.ledger",
        "dataset:other",
        "--epsilon",
        "1",
        "--delta",
        "1e-6" if command == "fit" else "0",
    )
    shown = run(command, "other.parquet", *words[command], "--ledger", "s.ledger")
    assert shown.exit_code == 0 and "account dataset:other pays for other.parquet from now on" in shown.output


def test_a_query_without_a_ledger_and_a_budget_names_the_option(folder) -> None:
    with pytest.raises(expost.InvalidRequest, match="Pass --budget 1"):
        count("t.parquet")
    assert not os.path.exists("s.ledger")


@pytest.mark.parametrize("kind", ["link", "hard link", "copy", "described"])
def test_no_other_name_has_another_budget(folder, kind: str) -> None:
    make = {"link": os.symlink, "hard link": os.link, "copy": shutil.copyfile}
    make["described"] = lambda source, target: (folder / "u.toml").write_text(f'source = "{source}"\nname = "u"\n')
    make[kind]("t.parquet", "u.parquet")
    source = "u.toml" if kind == "described" else "u.parquet"
    count("t.parquet", *BUDGET)

    with pytest.raises(expost.InvalidRequest, match="expost ledger budget"):
        count(source, *BUDGET)
    with pytest.raises(expost.InvalidRequest, match="'dataset:t' pays for these rows"):
        run("ledger", "budget", "s.ledger", "dataset:u", "--epsilon", "1", "--source", source)
    assert accounts() == ["dataset:t"]
    run("ledger", "budget", "s.ledger", "dataset:u", "--epsilon", "1")  # for whatever is asked about first
    with pytest.raises(expost.InvalidRequest, match="'dataset:t' pays for these rows"):
        count(source)
    with expost.open_ledger("s.ledger") as ledger:
        assert float(ledger.spent("dataset:u").epsilon) == 0 and ledger.verify()


def test_the_owner_says_why_and_the_ledger_shows_it(folder) -> None:
    count("t.parquet", *BUDGET)
    words = ["ledger", "budget", "s.ledger", "dataset:u", "--epsilon", "0.5", "--source", "t.parquet"]
    with pytest.raises(expost.InvalidRequest, match="--another-budget to be a reason"):
        run(*words, "--another-budget", " ")
    run(*words, "--another-budget", "the study of the [b]hospital[/b]")
    run(*words[:4], "--epsilon", "0.75")  # changes the budget only

    shown = run("ledger", "show", "s.ledger", "--json").output
    tables = {table["account"]: table for table in json.loads(shown)["tables"]}
    assert tables["dataset:u"]["reasons"] == ["the study of the [b]hospital[/b]"]
    assert tables["dataset:u"]["shares_with"] == ["dataset:t"]
    assert tables["dataset:t"]["columns"] == {"id": "integer", "age": "integer"}
    assert tables["dataset:t"]["adjacency"] == "add-remove" and len(tables["dataset:t"]["code"]) == 8
    text = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["ledger", "show", "s.ledger"]).output
    assert "t.parquet" in shown  # the table wraps a long path
    for word in ("one row", "add-remove", "epsilon 0.75", "[b]hospital[/b]", "not asked yet", "id, age"):
        assert word in text, word


def test_an_account_is_rebound_by_its_owner_only_and_with_a_reason(folder) -> None:
    count("t.parquet", *BUDGET, level="0.5")
    (folder / "new").mkdir()
    pq.write_table(pa.table({"id": range(9000, 9999), "age": [5] * 999}), folder / "new" / "t.parquet")

    with pytest.raises(expost.InvalidRequest, match="expost ledger rebind"):
        count("new/t.parquet")
    for why in ("", "a\nb"):
        with pytest.raises(expost.InvalidRequest, match="--why to be a reason"):
            run("ledger", "rebind", "s.ledger", "dataset:t", "new/t.parquet", "--why", why)
    run("ledger", "rebind", "s.ledger", "dataset:t", "new/t.parquet", "--why", "moved and rewritten")
    assert count("new/t.parquet", level="0.25").exit_code == 0

    with pytest.raises(expost.InvalidRequest, match="expost ledger budget LEDGER dataset:nobody"):
        run("ledger", "rebind", "s.ledger", "dataset:nobody", "new/t.parquet", "--why", "x")
    run("ledger", "budget", "s.ledger", "dataset:u", "--epsilon", "1", "--source", "other.parquet")
    with pytest.raises(expost.InvalidRequest, match="'dataset:t' pays for these rows"):
        run("ledger", "rebind", "s.ledger", "dataset:u", "t.parquet", "--why", "x")
    assert "moved and rewritten" in run("ledger", "show", "s.ledger").output
    assert run("ledger", "verify", "s.ledger").exit_code == 0


def test_a_name_without_a_prefix_is_that_of_the_dataset(folder) -> None:
    run("ledger", "budget", "s.ledger", "t", "--epsilon", "1", "--source", "t.parquet")
    run("ledger", "budget", "s.ledger", "t", "--epsilon", "0.75")
    run("ledger", "rebind", "s.ledger", "t", "other.parquet", "--why", "a second file")
    run("ledger", "budget", "s.ledger", "study", "--epsilon", "1")

    assert accounts() == ["dataset:t", "study"]
    assert count("t.parquet", level="0.7").exit_code == 0


def test_a_reason_needs_its_source(folder) -> None:
    with pytest.raises(expost.InvalidRequest, match="--another-budget needs --source"):
        run("ledger", "budget", "s.ledger", "dataset:t", "--epsilon", "1", "--another-budget", "x")
    assert not os.path.exists("s.ledger")
