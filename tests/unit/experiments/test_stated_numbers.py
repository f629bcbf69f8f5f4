"""Numbers of the README and the docs are made again, and a number that moved is named."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from expost.cli import app
from expost.core import InvalidRequest
from expost.experiments import experiment_report, remade_numbers, stated_numbers
from expost.experiments.stated_numbers import (
    StatedNumber,
    Verdict,
    compare_figures,
    find_clone,
    remake_numbers,
    summarize,
)

COMPARE = """import json, sys
rows = [{"benchmark": "census", "what": "expost: epsilon paid", "value": 0.12, "low": 0.1, "high": 0.2,
         "command": "scripts/bench census", "found": None if "--kept" in sys.argv else 0.3, "note": "not measured again"}]
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(rows))
"""


@pytest.fixture
def fast(monkeypatch):
    """Makers that answer at once."""
    made = {"census count": {"value": 11708.0, "low": 11151.0, "high": 12324.0, "epsilon": 0.1}}
    monkeypatch.setattr(stated_numbers, "MAKERS", remade_numbers.MAKERS)
    monkeypatch.setattr(stated_numbers, "run_maker", lambda name: made.get(name, {}))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "clone" / "benchmarks").mkdir(parents=True)
    (tmp_path / "clone" / "docs" / "benchmarks").mkdir(parents=True)
    (tmp_path / "clone" / "benchmarks" / "__init__.py").touch()
    (tmp_path / "clone" / "benchmarks" / "compare.py").write_text(COMPARE, encoding="utf-8")
    return tmp_path / "clone"


def test_every_maker_of_the_registry_exists_and_states_its_number_within_its_spread() -> None:
    for each in stated_numbers.stated_numbers():
        assert each.low <= each.value <= each.high, each.text
        name = each.maker.partition(":")[0]
        assert name in remade_numbers.MAKERS or name.startswith("benchmark "), each.maker


def test_a_number_outside_its_spread_has_moved_and_one_inside_holds(fast) -> None:
    found = {each.maker: each for each in remake_numbers()}

    assert found["census count: value"].verdict is Verdict.HOLDS
    assert found["census count: epsilon"].verdict is Verdict.MOVED
    assert found["census means: epsilon"].verdict is Verdict.NOT_MADE


def test_numbers_of_benchmarks_say_that_they_need_a_clone(fast) -> None:
    notes = {each.note for each in remake_numbers() if each.maker.startswith("benchmark ")}

    assert notes == {"needs a clone of the project"}


def test_with_a_clone_its_benchmarks_are_run(fast, clone) -> None:
    (readme, *_), (row,) = (
        [
            each
            for each in remake_numbers(clone=clone)
            if each.maker == "benchmark census: expost: epsilon paid" and match(each)
        ]
        for match in (lambda each: each.page == "README.md", lambda each: each.page == "docs/benchmarks.md")
    )

    assert readme.found == row.found == 0.3
    assert row.verdict is Verdict.MOVED


def test_the_quick_version_compares_pages_with_what_the_clone_keeps(fast, clone) -> None:
    found = [
        each
        for each in remake_numbers(clone=clone, quick=True)
        if each.maker == "benchmark census: expost: epsilon paid"
    ]

    readme = next(each for each in found if each.page == "README.md")
    row = next(each for each in found if each.page == "docs/benchmarks.md")
    assert readme.found == 0.12 and "not measured again" in readme.note
    assert row.verdict is Verdict.NOT_MADE


def test_benchmarks_that_do_not_run_are_said_to(fast, clone) -> None:
    (clone / "benchmarks" / "compare.py").write_text("raise SystemExit('no numpy')", encoding="utf-8")

    with pytest.raises(InvalidRequest, match="no numpy"):
        remake_numbers(clone=clone)


def test_a_folder_that_is_no_clone_is_refused_only_if_it_was_given(tmp_path, monkeypatch, clone) -> None:
    monkeypatch.chdir(clone)
    assert find_clone() == clone
    with pytest.raises(InvalidRequest, match="clone"):
        find_clone(tmp_path / "empty")


def test_points_of_a_figure_move_by_standard_errors_or_by_a_twentieth(tmp_path) -> None:
    (tmp_path / "kept").mkdir()
    head = "table,method,tolerance,epsilon,epsilon_error\n"
    kept, made = tmp_path / "kept" / "a.csv", tmp_path / "a.csv"
    kept.write_text(head + "flights,ours,0.1,1.0,0.1\nflights,ours,0.2,2.0,0\nflights,ours,0.3,3.0,0\n")
    made.write_text(head + "flights,ours,0.1,1.5,0.1\nflights,ours,0.2,2.2,0\n")

    first, second, third = compare_figures(kept, made)

    assert [first.verdict, second.verdict, third.verdict] == [Verdict.HOLDS, Verdict.MOVED, Verdict.NOT_MADE]
    assert (first.text, third.note) == ("flights, ours, 0.1", "not in the new file")


def test_a_figure_agrees_with_itself() -> None:
    for kept in (Path(__file__).parents[3] / "docs" / "experiments").glob("*.csv"):
        points = compare_figures(kept, kept)
        assert points and all(each.verdict is Verdict.HOLDS for each in points), kept


def test_the_report_shows_what_moved_first_and_is_also_a_table_for_machines(tmp_path) -> None:
    held = StatedNumber("README.md", "a <b>", 1.0, 0.9, 1.1, "m: a", "command", found=1.0)
    moved = StatedNumber("README.md", "c", 1.0, 0.9, 1.1, "m: c", "command", found=2.0)

    page, numbers = experiment_report.write_report(tmp_path, names=(), numbers=[held, moved])

    text = page.read_text(encoding="utf-8")
    assert text.index("moved") < text.index("a &lt;b&gt;")
    assert (tmp_path / "numbers.csv").read_text().splitlines()[1].startswith("moved,README.md,c,1.0")
    assert summarize(numbers) == "2 stated numbers: 1 as stated, 1 moved, 0 not made"


def test_the_command_says_which_number_moved_and_ends_with_one(fast, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stated_numbers, "find_clone", lambda given=None: None)

    result = CliRunner().invoke(app, ["reproduce", "numbers", "--quick", "--output", str(tmp_path)])

    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    assert "moved: README.md, 12324], epsilon 0.005819: stated 0.005819" in words
    assert "no clone of the project here" in words


@pytest.mark.parametrize("words", [["brownian", "--clone", "."], ["all", "--trials", "3"]])
def test_options_of_the_other_kind_are_refused(words, tmp_path) -> None:
    result = CliRunner().invoke(app, ["reproduce", *words, "--output", str(tmp_path / "new")])

    assert isinstance(result.exception, InvalidRequest)
    assert not (tmp_path / "new").exists()


def test_a_quick_run_of_everything_makes_every_number_of_the_package(tmp_path) -> None:
    for name in ("census table", "census count", "census means", "census classifier"):
        assert remade_numbers.run_maker(name), name
    assert sys.version_info >= (3, 11) and json.dumps(stated_numbers.given_texts())
