"""A guarantee's docstring has the fixed lines in the fixed order, and cites keys that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = ["Guarantee:", "Adjacency:", "Sensitivity:", "Accuracy:", "Numerics:", "Reference:"]
KEY = re.compile(r"\b([A-Z][A-Za-z]{0,9}[0-9]{2}[a-z]?)\b(?=,| |$|\.|;|\))")


@cache
def docstrings() -> tuple[tuple[str, str], ...]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "Guarantee:" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if re.search(r"^Guarantee:", text, re.M):
                    found.append((f"{path.relative_to(ROOT)}::{node.name}", text))
    return tuple(found)


@cache
def known_keys() -> set[str]:
    table = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| ([A-Za-z0-9]+) \|", table, re.M)) - {"key"}


def missing(text: str) -> list[str]:
    places = [re.search(rf"^{line}", text, re.M) for line in LINES]
    if not all(places):
        return [line for line, place in zip(LINES, places, strict=True) if not place]
    order = [place.start() for place in places if place]
    return [] if order == sorted(order) else ["order"]


@pytest.mark.parametrize(("name", "text"), docstrings(), ids=lambda value: value if "::" in str(value) else "")
def test_a_guarantee_has_the_fixed_lines(name: str, text: str) -> None:
    assert missing(text) == []


@pytest.mark.parametrize(("name", "text"), docstrings(), ids=lambda value: value if "::" in str(value) else "")
def test_a_guarantee_cites_a_known_source_or_a_proof(name: str, text: str) -> None:
    reference = text[re.search(r"^Reference:", text, re.M).start() :]  # type: ignore[union-attr]

    cited = set(KEY.findall(reference))
    proofs = re.findall(r"docs/proofs/([a-z0-9-]+\.md)", reference)
    assert cited & known_keys() or proofs
    assert cited <= known_keys()
    assert all((ROOT / "docs" / "proofs" / proof).exists() for proof in proofs)


def test_the_check_notices_a_missing_line() -> None:
    assert missing("Guarantee: x\nAdjacency: y") == ["Sensitivity:", "Accuracy:", "Numerics:", "Reference:"]


def test_every_cited_proof_exists() -> None:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for proof in re.findall(r"docs/proofs/([a-z0-9-]+\.md)", path.read_text(encoding="utf-8")):
            assert (ROOT / "docs" / "proofs" / proof).exists(), (path, proof)
