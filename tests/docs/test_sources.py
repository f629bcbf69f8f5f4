"""The pages about the sources name code and tests that exist, and every numbered statement of the sources."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "sources").glob("*.md"))

# The numbered statements, algorithms and figures of each document, counted in the documents themselves.
STATEMENTS = {
    "000": ["Algorithm 2"],
    "001": ["Theorem 1", "Theorem 2", "Theorem 3", "Algorithm 1", "Example"],
    "002": [
        *(f"Definition 2.{number}" for number in (1, 2, 3)),
        *(f"Theorem {number}" for number in ("2.4", "2.5", "2.6", "2.7", "3.1", "3.2", "3.3", "3.4")),
        *(f"Theorem A.{number}" for number in (1, 2, 9)),
        *(f"Algorithm {number}" for number in (1, 2, 3, 4, 5)),
        *(f"Lemma {number}" for number in ("2.8", "A.4", "A.6", "A.8", "A.10")),
        *(f"Claim {number}" for number in ("A.5", "A.7", "A.11", "A.12", "A.13", "B.1")),
        *(f"Figure {number}" for number in (1, 2, 3, 4)),
        "Remark A.3",
    ],
    "003": [],
    "004": [
        *(f"Definition 2.{number}" for number in (1, 2)),
        *(f"Theorem {number}" for number in ("2.1", "2.3", "2.4", "3.3")),
        *(f"Corollary {number}" for number in ("2.1.1", "2.3.1")),
        *(f"Lemma {number}" for number in ("2.2", "3.1", "3.2")),
        "Algorithm 1",
        "Figures 1 to 4",
    ],
}


def named(page: Path, pattern: str) -> list[str]:
    return sorted(set(re.findall(f"`({pattern})`", page.read_text(encoding="utf-8"))))


def resolve(name: str) -> object:
    """The module or object behind a dotted name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            thing = getattr(thing, attribute)
        return thing
    raise AssertionError(name)


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing_test(reference: str) -> bool:
    path, _, name = reference.partition("::")
    return not (ROOT / path).exists() or (bool(name) and name not in functions_in(ROOT / path))


def test_every_source_has_a_page() -> None:
    assert [page.name[:3] for page in PAGES] == sorted(STATEMENTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_named_object_exists(page: Path) -> None:
    for name in named(page, r"expost\.[\w.]+"):
        resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_named_test_and_document_exists(page: Path) -> None:
    assert [each for each in named(page, r"tests/[\w/]+\.py(?:::\w+)?") if missing_test(each)] == []
    assert [each for each in named(page, r"docs/[\w/.-]+\.md") if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_numbered_statement_has_a_row(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))

    assert [
        each for each in STATEMENTS[page.name[:3]] if not re.search(rf"{re.escape(each)}(?![\d.]\d|\d)", rows)
    ] == []


def incomplete(row: str) -> bool:
    """Whether a row of a table lacks code or the test that checks it; a row may say instead why there is none."""
    says_why = re.search(r"not implemented, because|not checked, because", row) is not None
    has_test = re.search(r"`tests/[\w/]+\.py::test_\w+`", row.rstrip("| ").rsplit("|", 1)[-1]) is not None
    return not says_why and not has_test


def rows_of(page: Path) -> list[str]:
    """The rows of all tables that have a column of tests, without their heads."""
    rows, checked = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and re.search(r"\| (test|what checks it|what catches it) \|$", line):
            checked = True
        elif not line.startswith("|"):
            checked = False
        elif checked and not line.startswith("| ---"):
            rows.append(line)
    return rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_names_the_test_that_checks_it_or_says_why_there_is_none(page: Path) -> None:
    assert len(rows_of(page)) >= 8
    assert [row for row in rows_of(page) if incomplete(row)] == []


def test_the_checks_notice_what_does_not_exist() -> None:
    with pytest.raises(AttributeError):
        resolve("expost.noise.NoSuchPath")
    assert missing_test("tests/no_such.py")
    assert missing_test("tests/docs/test_sources.py::test_no_such")
    assert incomplete("| Lemma 1 | `expost.noise` | `tests/unit/noise/test_bits.py` |")
    assert incomplete("| Lemma 1 | `expost.noise` | |")
    assert not incomplete("| Lemma 1 | not implemented, because it is false | |")
