"""What the benchmarks measure again is put next to what the page states."""

import json
import sys

import pytest
from benchmarks import compare, run
from benchmarks.page import Measured, Part, Section, Table


def make(numbers):
    return Table("See.", ["row", "found"], [["one", Measured.of_runs(numbers["runs"])]])


@pytest.fixture
def stated(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "SECTIONS", [Section("Good", "About.", [Part("good", make)])])
    facts = {"machine": run.machine(), "command": "scripts/bench good --pass '--runs 3'", "words": "--runs 3"}
    run.keep_result(tmp_path / "kept", "good", facts | {"numbers": {"runs": [1.0, 2.0, 3.0]}})
    return tmp_path


def compared(folder, monkeypatch, *words: str) -> dict:
    file = folder / "out.json"
    monkeypatch.setattr(sys, "argv", ["compare", "--results", str(folder / "kept"), "--json", str(file), *words])
    compare.main()
    (row,) = json.loads(file.read_text(encoding="utf-8"))
    return row


def test_a_benchmark_runs_with_the_options_that_the_page_names(stated, monkeypatch) -> None:
    called = []
    monkeypatch.setattr(
        compare, "run_one", lambda *given: called.append(given) or {"numbers": {"runs": [9.0]}, "log": []}
    )

    row = compared(stated, monkeypatch)

    assert [each[::2] for each in called] == [("good", "--runs 3")]
    assert (row["value"], row["found"], row["low"], row["high"]) == (2.0, 9.0, 0.8, 3.75)
    assert row["command"] == "scripts/bench good --pass '--runs 3'"


def test_one_that_fails_says_why_and_moves_nothing(stated, monkeypatch) -> None:
    monkeypatch.setattr(compare, "run_one", lambda *given: {"failed": "no such peer"})

    row = compared(stated, monkeypatch)

    assert row["found"] is None and row["note"] == "no such peer"


def test_what_is_kept_is_listed_without_a_measurement(stated, monkeypatch) -> None:
    monkeypatch.setattr(compare, "run_one", None)

    row = compared(stated, monkeypatch, "--kept")

    assert row["found"] is None and row["value"] == 2.0


def test_a_number_that_only_the_new_run_has_is_no_stated_one(stated) -> None:
    again = {"good": {"numbers": {"runs": [1.0]}, "command": "", "machine": {}}}

    assert compare.compare_results({}, again, {}) == []
