import json
import os
import subprocess
import sys
from importlib import metadata

import pytest

from expost.core import epsilon
from expost.ledger import open_ledger


def expost(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "expost", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_an_error_prints_its_sentence_code_and_cost_and_sets_the_exit_code() -> None:
    result = expost("ledger", "show", "no-such.ledger")

    assert result.returncode == 2
    assert "invalid_request" in result.stderr
    assert "Expected a ledger file that exists" in result.stderr
    assert "nothing spent" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_for_machines_is_json() -> None:
    result = expost("ledger", "show", "no-such.ledger", "--json")

    assert json.loads(result.stdout)["error"] == "invalid_request"
    assert result.returncode == 2


def test_the_version_is_the_packages() -> None:
    assert expost("--version").stdout.strip() == metadata.version("expost")


def test_a_missed_target_shows_the_answer_that_was_paid_for(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "41\n" * 100)
    words = ["query", str(tmp_path / "people.csv"), "count", "--within", "1%", "--max-epsilon", "0.01", "--budget", "1"]

    plain = expost(*words)
    machine = expost(*words, "--json")

    assert plain.returncode == machine.returncode == 4
    assert "which was paid for" in plain.stderr
    assert "not met" in plain.stdout
    assert json.loads(machine.stdout)["receipt"]["outcome"] == "not met"
    assert "value" in json.loads(machine.stdout)


def test_a_sentence_for_python_comes_with_the_options_of_the_command_line(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("city,age\nRome,1\n")
    source = str(tmp_path / "people.csv")

    assert "--budget 1" in expost("query", source, "count", "--epsilon", "1").stderr
    words = ("mean", "city", "--bounds", "age=0:1", "--epsilon", "1", "--budget", "1")
    assert "--type COLUMN=real" in expost("query", source, *words).stderr
    assert "--categories" in expost("query", source, "count", "--by", "city", "--epsilon", "1", "--budget", "1").stderr


def test_a_wrong_delta_is_a_typed_error() -> None:
    result = expost("account", "--gaussian", "1", "--delta", "2")

    assert (result.returncode, "Traceback" in result.stderr) == (2, False)


def test_completion_is_offered() -> None:
    # The name is given: which shell runs the tests, if any, is not the question.
    shown = expost("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")

    assert "complete" in shown.stdout.lower()


@pytest.mark.parametrize(
    "words",
    [
        ["query", ".", "count", "--epsilon", "1"],
        ["demo", "--output", "/dev/null/x"],
        ["reproduce", "brownian", "--output", "/dev/null/x"],
    ],
    ids=["folder", "demo", "reproduce"],
)
def test_a_place_that_cannot_be_is_refused_in_one_sentence(words: list[str]) -> None:
    result = expost(*words)

    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert "Expected " in result.stderr


def test_an_analyst_without_a_budget_is_told_the_command_that_gives_one(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "41\n" * 100)
    result = expost(
        "query", str(tmp_path / "people.csv"), "count", "--epsilon", "1", "--budget", "1", "--analyst", "ann"
    )

    assert "expost ledger budget LEDGER analyst:NAME" in result.stderr and "--budget 1" not in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["people", "machines"])
def test_an_answer_that_is_paid_for_is_told_even_where_the_disk_is_full(tmp_path, form: list[str]) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "41\n" * 100)
    words = ["query", str(tmp_path / "people.csv"), "count", "--epsilon", "1", "--budget", "1", *form]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "expost", *words], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert result.returncode == 1
    assert json.loads(result.stderr[result.stderr.index("{") :])["receipt"]["outcome"] == "fixed epsilon"


def test_nothing_is_paid_where_no_answer_can_be_told(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "41\n" * 100)
    words = ["query", str(tmp_path / "people.csv"), "count", "--epsilon", "1", "--budget", "1"]
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "expost", *words], stderr=subprocess.PIPE, text=True
    )

    assert closed.returncode == 2 and "standard output that is open" in closed.stderr
    assert not (tmp_path / "people.ledger").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_other_output_on_a_full_disk_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "expost", "account", "--gaussian", "1", "--delta", "1e-5"]
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)

    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "Cannot write the output: No space left" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_model_that_is_paid_for_is_told_where_its_file_cannot_be_written(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("age,pay\n" + "41,1\n30,0\n" * 500)
    words = [
        "--model",
        "ridge",
        "--target",
        "pay",
        "--feature",
        "age=0:100",
        "--rows",
        "1000",
        "--epsilon",
        "1",
        "--budget",
        "1",
    ]
    words += ["--target-bounds", "1"]
    result = expost("fit", str(tmp_path / "people.csv"), *words, "--output", "/dev/full")

    assert result.returncode == 1 and "nothing spent" not in result.stderr
    assert json.loads(result.stderr[result.stderr.index("{") :])["estimator"] == "Ridge"


def test_an_answer_is_told_where_standard_error_is_closed(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "41\n" * 100)
    words = ["query", str(tmp_path / "people.csv"), "count", "--epsilon", "1", "--budget", "1", "--json"]
    closed = subprocess.run(
        ["sh", "-c", '"$@" <&- 2>&-', "sh", sys.executable, "-m", "expost", *words], stdout=subprocess.PIPE, text=True
    )

    assert closed.returncode == 0 and json.loads(closed.stdout)["receipt"]["outcome"] == "fixed epsilon"


def test_a_demo_removes_no_ledger_but_its_own(tmp_path) -> None:
    with open_ledger(tmp_path / "census.ledger") as book:
        book.open_account("dataset:people", epsilon(1))
    result = expost("demo", "--output", str(tmp_path))

    assert result.returncode == 2 and "no ledger but a demo's" in result.stderr
    with open_ledger(tmp_path / "census.ledger", create=False) as book:
        assert book.accounts() == ["dataset:people"]
