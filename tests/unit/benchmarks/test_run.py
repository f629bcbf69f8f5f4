"""The runner of the benchmarks; what they measure is not tested."""

import json
import sys

import pytest
from benchmarks import run

GOOD = '''"""Counts to three."""
import json, sys

def main():
    print("row  value")
    open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps([1, 2, 3]))

main()
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    package = tmp_path / "benchmarks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "good.py").write_text(GOOD)
    (package / "bad.py").write_text('"""Breaks."""\ndef main(): ...\nraise SystemExit("no peer")\n')
    (package / "helper.py").write_text('"""No benchmark."""\n')
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "__file__", str(package / "run.py"))
    return tmp_path


def test_only_files_with_a_main_function_are_benchmarks(folder) -> None:
    assert run.benchmarks() == {"bad": "Breaks.", "good": "Counts to three."}


def test_a_failure_is_written_down_and_stops_nothing(folder, monkeypatch, capsys) -> None:
    page, results = folder / "page.md", folder / "results.json"
    monkeypatch.setattr(sys, "argv", ["run", "--page", str(page), "--results", str(results)])

    with pytest.raises(SystemExit) as end:
        run.main()

    assert end.value.code == 1
    text = page.read_text(encoding="utf-8")
    assert "Not measured: no peer." in text
    assert "row  value" in text
    assert json.loads(results.read_text())["good"]["numbers"] == [1, 2, 3]


def test_results_of_others_are_kept_with_their_own_date(folder, monkeypatch) -> None:
    page, results = folder / "page.md", folder / "results.json"
    results.write_text(json.dumps({"bad": {"printed": "old", "machine": run.machine() | {"when": "2020-01-01"}}}))
    monkeypatch.setattr(sys, "argv", ["run", "good", "--page", str(page), "--results", str(results)])

    run.main()

    assert "Measured 2020-01-01" in page.read_text(encoding="utf-8")


def test_an_unknown_name_is_refused(folder, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "no-such"])

    with pytest.raises(SystemExit):
        run.main()


def test_the_page_leads_from_a_peer_to_its_benchmarks(monkeypatch) -> None:
    monkeypatch.setattr(run, "COMPARED", {"a peer": ("good", "absent"), "nobody": ("absent",)})

    overview = run._overview({"good": {}})

    assert "| a peer | [good](#benchmarksgoodpy) |" in overview
    assert "nobody" not in overview and "absent" not in overview


def test_every_comparison_names_a_benchmark_that_exists() -> None:
    assert {name for names in run.COMPARED.values() for name in names} <= set(run.benchmarks())


def test_options_of_one_benchmark_are_passed_on_and_written_down(folder, monkeypatch) -> None:
    (folder / "benchmarks" / "echo.py").write_text('"""Echoes."""\nimport sys\ndef main(): ...\nprint(sys.argv[1:])\n')
    page = folder / "page.md"
    paths = ["--page", str(page), "--results", str(folder / "results.json")]
    monkeypatch.setattr(sys, "argv", ["run", "echo", "--pass", "--rows 2e6 --only counts", *paths])

    run.main()

    text = page.read_text(encoding="utf-8")
    assert "['--rows', '2e6', '--only', 'counts']" in text and "Run with `--rows 2e6 --only counts`." in text
    monkeypatch.setattr(sys, "argv", ["run", "--pass", "--rows 2e6", *paths])
    with pytest.raises(SystemExit):
        run.main()


def test_a_short_run_says_what_it_was_run_with(folder, monkeypatch) -> None:
    (folder / "benchmarks" / "echo.py").write_text('"""Echoes."""\nimport sys\ndef main(): ...\nprint(sys.argv[1:])\n')
    monkeypatch.setattr(run, "SHORT", {"echo": "--rounds 2"})
    page = folder / "page.md"
    paths = ["--page", str(page), "--results", str(folder / "results.json")]
    monkeypatch.setattr(sys, "argv", ["run", "--short", "echo", "good", *paths])

    run.main()

    text = page.read_text(encoding="utf-8")
    assert "['--rounds', '2']" in text and text.count("Run with") == 1


def test_short_options_are_those_of_benchmarks_that_exist() -> None:
    assert set(run.SHORT) <= set(run.benchmarks())
    for name, words in run.SHORT.items():
        script = (run.ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert all(f'"{word}"' in script for word in words.split() if word.startswith("--"))


def test_every_benchmark_that_compares_keeps_its_numbers() -> None:
    for name in {name for names in run.COMPARED.values() for name in names}:
        assert '"--json"' in (run.ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")


def test_the_place_of_a_measurement_names_this_package_too() -> None:
    assert {"expost", "numpy"} <= set(run.machine()["versions"])


def test_a_printed_markdown_table_is_a_table_of_the_page_and_the_rest_is_word_for_word() -> None:
    shown = run._shown("| a | b |\n| --- | --- |\n| 1 | 2 |\n\nbest: 1\n  second: 2\n")

    assert shown == "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n```text\nbest: 1\n  second: 2\n```\n"
    assert run._shown("  rows | time\n   10 | 2 s\n") == "```text\n  rows | time\n   10 | 2 s\n```\n"


def test_every_benchmark_can_write_its_numbers_down() -> None:
    silent = [
        name for name in run.benchmarks() if '"--json"' not in (run.ROOT / "benchmarks" / f"{name}.py").read_text()
    ]

    assert silent == []
