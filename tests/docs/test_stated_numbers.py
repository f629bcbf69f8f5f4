"""Every number of the README is measured by a command of the registry, or is listed as one that nobody measured."""

import re
from pathlib import Path

import pytest

from expost.experiments.stated_numbers import given_texts, stated_numbers

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
NAMED = re.compile(r"\b(?:19|20)\d\d\b")  # years
FENCED = re.compile(r"```(\w*)\n.*?\n```", re.DOTALL)
INPUT = re.compile(r"`[^`\n]*`|\]\([^)]*\)")


def shown(text: str) -> str:
    """The page without code that is typed and without addresses; printed answers (```text) stay."""
    text = FENCED.sub(lambda found: found[0] if found[1] == "text" else " " * len(found[0]), text)
    return INPUT.sub(lambda found: " " * len(found[0]), text)


def find_unstated(text: str, known: list[str]) -> list[str]:
    """Numbers of a page that no text of the registry or of the list covers."""
    covered = [range(match.start(), match.end()) for each in known for match in re.finditer(re.escape(each), text)]
    covered += [range(*match.span()) for match in NAMED.finditer(text)]
    return [
        text[max(0, match.start() - 30) : match.end() + 10]
        for match in NUMBER.finditer(shown(text))
        if not any(match.start() in part for part in covered)
    ]


@pytest.mark.parametrize("number", stated_numbers(), ids=lambda each: f"{each.page}: {each.text}")
def test_a_stated_number_stands_on_its_page_as_the_registry_has_it(number) -> None:
    page = (ROOT / number.page).read_text(encoding="utf-8")

    assert number.text in page, (
        "The page and expost/experiments/stated_numbers.toml differ. Change the entry with the page."
    )
    stated = [float(each.replace(",", "")) for each in NUMBER.findall(number.text)]
    assert number.value in stated


def test_every_number_of_the_readme_has_a_command_or_is_listed_as_not_measured() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    known = [each.text for each in stated_numbers() if each.page == "README.md"] + list(given_texts())

    assert find_unstated(text, known) == [], "Add an entry to src/expost/experiments/stated_numbers.toml."


def test_no_entry_is_left_over() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [each for each in given_texts() if each not in text] == []


def test_a_new_number_is_noticed_in_words_and_in_printed_answers_but_not_in_typed_code() -> None:
    text = "It pays 0.17 of 2017.\n```text\nepsilon 0.25\n```\n```python\nfit(epsilon=9)\n```\nsee [it](a-1.md), 1,234 rows\n"

    found = find_unstated(text, ["pays 0.17"])

    assert len(found) == 2 and "epsilon 0.25" in found[0] and "1,234 rows" in found[1]
