"""Every advisory says what was affected, what went wrong, where it is fixed, and names tests that exist."""

import re
from pathlib import Path

import pytest
from tests.docs.test_proof_pages import names_in

ROOT = Path(__file__).parents[2]
FIELDS = ("Affected", "Severity", "What went wrong", "Fixed in", "Check")
ADVISORIES = re.split(r"^### ", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), flags=re.M)[1:]


def test_advisories_are_numbered_without_a_gap() -> None:
    numbers = [re.match(r"EXPOST-\d{4}-(\d{3}): ", text) for text in ADVISORIES]

    assert [int(match[1]) for match in numbers if match] == list(range(1, len(ADVISORIES) + 1))


@pytest.mark.parametrize("text", ADVISORIES, ids=lambda text: text.split(":")[0])
def test_an_advisory_has_every_field_and_a_test_that_exists(text: str) -> None:
    fields = dict(re.findall(r"^\* \*\*(.+?):\*\* (.+)$", text, flags=re.M))

    assert tuple(fields) == FIELDS
    named = re.fullmatch(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", fields["Check"])
    assert named
    assert (ROOT / named[1]).exists()
    assert named[2] is None or named[2] in names_in(ROOT / named[1])
