"""The page of the benchmarks is made from what they kept, and says everywhere how it was measured."""

from pathlib import Path

import pytest
from benchmarks import run
from benchmarks.page import Measured, Part, Section, Table, make_part, page_text, plain, stated_numbers, write_page
from benchmarks.sections import SECTIONS

ROOT = Path(__file__).parents[3]
KEPT = run.read_results(ROOT / "docs" / "benchmarks")
MACHINE = {
    "when": "2026-11-19",
    "cores": 2,
    "processor": "AMD",
    "load": 0.5,
    "python": "3.11.7",
    "versions": {"expost": "0.2"},
}


def result_of(numbers) -> dict:
    return {"numbers": numbers, "machine": MACHINE, "command": "scripts/bench good", "words": ""}


def sections_of(make) -> list[Section]:
    return [Section("Good things", "About them.", [Part("good", make)])]


def test_the_page_in_the_docs_is_the_one_that_the_kept_numbers_make() -> None:
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == page_text(KEPT, SECTIONS)


def test_every_benchmark_is_on_the_page() -> None:
    assert {part.benchmark for section in SECTIONS for part in section.parts} | {
        "noise_envelope",
        "service_load",
    } >= set(run.benchmarks())


def test_every_kept_table_says_command_day_and_machine() -> None:
    text = page_text(KEPT, SECTIONS)

    for name, result in KEPT.items():
        assert f"`{result['command']}` · {result['machine']['when']}" in text
        assert f"(benchmarks/{name}.json)" in text


def test_every_kept_number_can_be_read() -> None:
    for section in SECTIONS:
        for part in section.parts:
            table, why = make_part(part, KEPT.get(part.benchmark))
            assert table is not None or not why.startswith("Measured in an older form"), part.benchmark


def test_pictures_are_beside_the_page() -> None:
    for section in SECTIONS:
        for part in section.parts:
            if part.picture is not None and make_part(part, KEPT.get(part.benchmark))[0] is not None:
                assert (ROOT / "docs" / part.picture_name).exists()


def test_no_raw_log_is_on_the_page() -> None:
    text = page_text(KEPT, SECTIONS)

    assert "```" not in text
    assert max(map(len, text.splitlines())) < 1500


def test_a_benchmark_that_is_missing_failed_or_old_is_named_as_such() -> None:
    def make(numbers):
        return Table("See.", ["row", "found"], [["one", numbers["one"]]])

    missing = page_text({}, sections_of(make))
    failed = page_text(
        {"good": {"failed": "no peer", "machine": MACHINE, "command": "scripts/bench good"}}, sections_of(make)
    )
    old = page_text({"good": result_of([])}, sections_of(make))

    assert "Not measured yet: run `scripts/bench good`." in missing
    assert "Not measured: no peer." in failed
    assert "Measured in an older form. Run `scripts/bench good` again." in old


def test_stated_numbers_are_the_measured_cells_with_their_range_and_command() -> None:
    def make(numbers):
        return Table("See.", ["row", "text", "found"], [["one", "words", Measured.of_runs(numbers)]])

    (found,) = stated_numbers({"good": result_of([1.0, 2.0, 4.0])}, sections_of(make))

    assert found["what"] == "one: found" and found["command"] == "scripts/bench good"
    assert (found["low"], found["value"], found["high"]) == (0.8, 2.0, 5.0)


def test_most_of_the_page_is_checked_by_reproduction() -> None:
    found = stated_numbers(KEPT, SECTIONS)

    assert {each["benchmark"] for each in found} >= {"census", "models", "stats", "sql", "accuracy_first"} & set(KEPT)
    assert all(each["low"] <= each["value"] <= each["high"] for each in found)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Measured.of_runs([0.1, 0.2, 0.4]), "0.2 (0.1 to 0.4)"),
        (Measured.of_runs([0.07]), "0.07"),
        (Measured.ratio(12345.6), "12,346"),
        (Measured.within(0.85166, 0.003), "0.852"),
    ],
)
def test_measured_cells_read_well(cell: Measured, text: str) -> None:
    assert str(cell) == text


def test_numbers_have_no_powers_of_ten() -> None:
    assert plain(1e6) == "1,000,000" and plain(0.00012) == "0.00012"


def test_writing_the_page_without_results_works(tmp_path) -> None:
    write_page(tmp_path / "page.md", {})

    assert "Not measured yet" in (tmp_path / "page.md").read_text(encoding="utf-8")
