"""The table of powers in the manual is what the tests are priced by."""

from pathlib import Path

import pytest
from benchmarks.power import ALIKE, SHOWN, questions

PAGE = Path(__file__).parents[3] / "docs" / "hypothesis-tests.md"
WAYS = {
    "public": "replace-one",
    "private": "add-remove",
    "the same, `equal_spread": ALIKE,
    "Kendall's": "Kendall's",
    "Pearson's": "Pearson's",
    "Mann-Whitney": "Mann-Whitney",
    "Kruskal-Wallis": "Kruskal-Wallis",
}


def printed() -> dict[tuple[str, str], list[float]]:
    """Powers by question and way, in the order of the shown epsilons; those of the split test are drawn, not computed."""
    found, question = {}, ""
    for line in PAGE.read_text(encoding="utf-8").split("epsilon 0.05 |")[1].split("\n\n")[0].splitlines()[2:]:
        name, how, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        question = name or question
        way = next((way for word, way in WAYS.items() if how.startswith(word)), None)
        if way is not None:
            found[question, way] = [float(cell) for cell in cells[: len(SHOWN)]]
    return found


def test_the_manual_prints_the_powers_that_tests_are_priced_by():
    table = printed()
    computed = {
        (question.name.partition(" (")[0], way): [power(epsilon) for epsilon in SHOWN]
        for question in questions()
        for way, power in question.powers.items()
    }

    assert table.keys() == computed.keys()
    for row, powers in computed.items():
        assert table[row] == pytest.approx(powers, abs=0.0101), row
