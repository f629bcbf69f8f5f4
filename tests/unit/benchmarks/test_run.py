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


def paths_of(folder) -> list[str]:
    return ["--page", str(folder / "page.md"), "--results", str(folder / "kept")]


def kept(folder, name: str) -> dict:
    return json.loads((folder / "kept" / f"{name}.json").read_text(encoding="utf-8"))


def test_a_failure_is_written_down_and_stops_nothing(folder, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["run", *paths_of(folder)])

    with pytest.raises(SystemExit) as end:
        run.main()

    assert end.value.code == 1
    assert kept(folder, "bad")["failed"] == "no peer"
    good = kept(folder, "good")
    assert (good["numbers"], good["log"], good["command"]) == ([1, 2, 3], ["row  value"], "scripts/bench good")
    assert good["machine"]["when"] and (folder / "page.md").exists()


def test_results_of_others_are_kept_with_their_own_date(folder, monkeypatch) -> None:
    old = {"numbers": [4.5], "log": [], "machine": run.machine() | {"when": "2020-01-01"}}
    run.keep_result(folder / "kept", "bad", old)
    monkeypatch.setattr(sys, "argv", ["run", "good", *paths_of(folder)])

    run.main()

    assert kept(folder, "bad")["machine"]["when"] == "2020-01-01"


def test_numbers_are_kept_with_six_digits_and_no_infinity(tmp_path) -> None:
    run.keep_result(tmp_path, "one", {"numbers": {"a": 0.123456789, "b": [float("inf"), 3]}})

    assert json.loads((tmp_path / "one.json").read_text()) == {"numbers": {"a": 0.123457, "b": [None, 3]}}


def test_an_unknown_name_is_refused(folder, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "no-such"])

    with pytest.raises(SystemExit):
        run.main()


def test_options_of_one_benchmark_are_passed_on_and_written_down(folder, monkeypatch) -> None:
    (folder / "benchmarks" / "echo.py").write_text('"""Echoes."""\nimport sys\ndef main(): ...\nprint(sys.argv[1:])\n')
    words = "--rows 2e6 --only counts"
    monkeypatch.setattr(sys, "argv", ["run", "echo", "--pass", words, *paths_of(folder)])

    run.main()

    echo = kept(folder, "echo")
    assert echo["log"] == ["['--rows', '2e6', '--only', 'counts']"]
    assert (echo["words"], echo["command"]) == (words, f"scripts/bench echo --pass '{words}'")
    monkeypatch.setattr(sys, "argv", ["run", "--pass", "--rows 2e6", *paths_of(folder)])
    with pytest.raises(SystemExit):
        run.main()


def test_a_short_run_says_what_it_was_run_with(folder, monkeypatch) -> None:
    (folder / "benchmarks" / "echo.py").write_text('"""Echoes."""\nimport sys\ndef main(): ...\nprint(sys.argv[1:])\n')
    monkeypatch.setattr(run, "SHORT", {"echo": "--rounds 2"})
    monkeypatch.setattr(sys, "argv", ["run", "--short", "echo", "good", *paths_of(folder)])

    run.main()

    assert kept(folder, "echo")["log"] == ["['--rounds', '2']"]
    assert kept(folder, "good")["words"] == ""


def test_short_options_are_those_of_benchmarks_that_exist() -> None:
    assert set(run.SHORT) <= set(run.benchmarks())
    for name, words in run.SHORT.items():
        module = run.PARTS.get(name, (name,))[0]
        script = (run.ROOT / "benchmarks" / f"{module}.py").read_text(encoding="utf-8")
        assert all(f'"{word}"' in script for word in words.split() if word.startswith("--"))


def test_the_place_of_a_measurement_names_this_package_too() -> None:
    assert {"expost", "numpy"} <= set(run.machine()["versions"])


def test_every_benchmark_can_write_its_numbers_down() -> None:
    files = {run.PARTS.get(name, (name,))[0] for name in run.benchmarks()}
    silent = [name for name in files if '"--json"' not in (run.ROOT / "benchmarks" / f"{name}.py").read_text()]

    assert silent == []


def test_a_part_of_a_benchmark_is_run_with_its_options_and_kept_by_itself(folder, monkeypatch) -> None:
    (folder / "benchmarks" / "echo.py").write_text('"""Echoes."""\nimport sys\ndef main(): ...\nprint(sys.argv[1:])\n')
    monkeypatch.setattr(run, "PARTS", {"echo_one": ("echo", "--only one", "One part.")})
    monkeypatch.setattr(sys, "argv", ["run", "echo_one", "--pass", "--runs 3", *paths_of(folder)])

    run.main()

    assert kept(folder, "echo_one")["log"] == ["['--only', 'one', '--runs', '3']"]
    assert "echo" not in run.benchmarks()
