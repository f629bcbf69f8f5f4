"""Every proof page names tests that check it, and tests that fail or refuse where its assumptions do not hold."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
LINES = ("**Checked by:**", "**Outside its assumptions**")
ANYWHERE = re.compile(r"`(tests/[\w/]+\.py)?::([\w:]+)`")
EMPTY = re.compile(r"(?i)negligibl|practically (?:none|never)|never in practice|far below any")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def names_in(path: Path) -> set[str]:
    """The tests of a file, those of a class as Class::test."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (one for one in node.body if isinstance(one, ast.FunctionDef))
            names |= {f"{node.name}::{one.name}" for one in inner if one.name.startswith("test_")}
    return names


def paragraph(text: str, start: str) -> str:
    """The text from ``start`` to the next empty line."""
    return text[text.index(start) :].split("\n\n")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("start", LINES)
def test_a_proof_page_names_tests_that_exist(page: Path, start: str) -> None:
    text = page.read_text(encoding="utf-8")

    assert text.count(start) == 1, (
        f"Write one paragraph that starts with {start} and names tests as `tests/file.py::test`"
    )
    named = NAMED.findall(paragraph(text, start))
    assert named
    missing = [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_a_proof_page_names_anywhere_exists(page: Path) -> None:
    path, missing = "", []
    for named, name in ANYWHERE.findall(page.read_text(encoding="utf-8")):
        path = named or path  # a name alone is in the file named last
        missing += [f"{path}::{name}"] if name not in names_in(ROOT / path) else []

    assert not missing


@pytest.mark.parametrize("folder", ["src", "docs/proofs"])
def test_nothing_is_called_small_without_a_number(folder: str) -> None:
    """Write the bound instead, and a row in docs/proofs/small-terms.md."""
    pages = (path for ending in ("*.py", "*.md") for path in (ROOT / folder).rglob(ending))
    found = {path.name: EMPTY.findall(path.read_text(encoding="utf-8")) for path in pages}

    assert not {name: words for name, words in found.items() if words}


def test_a_test_that_is_gone_would_be_noticed() -> None:
    assert "test_a_test_that_is_gone_would_be_noticed" in names_in(Path(__file__))
    assert "test_that_never_was" not in names_in(Path(__file__))
