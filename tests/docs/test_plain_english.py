"""Documents, docstrings, help texts and errors use plain technical English.

The dropped words come from an earlier private vocabulary; docs/glossary.md has the words that stay. Each rule is
shown a sentence that it must catch and one that it must let pass.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "src" / "expost").iterdir() if (path / "__init__.py").exists())

# rule: (pattern, a sentence it catches, a sentence it lets pass)
RULES = {
    "house": (r"\b(?:house|houses)\b", "What is in the house", "Features of the warehouse"),
    "room": (r"\brooms?\b(?! (?:for|left))", "the rooms of questions", "no room for the worst case"),
    "floor": (r"\bfloors?\b(?!\()", "A floor below", "floor(x) is the largest integer"),
    "door": (r"\b(?:front )?doors?\b", "the front door", "outdoors"),
    "beside": (r"\bbeside\b", "noise beside the gradient", "besides the gradient"),
    "shelf": (r"\bshel(?:f|ves)\b", "paths on the shelf", "the release cache"),
    "desk": (r"\bdesks?\b", "a turn at the desk", "desktop"),
    "scout": (r"\bscout(?:s|ed|ing)?\b", "what a scout showed", "what the pilot showed"),
    "glance": (r"\bglanc(?:e|es|ed)\b", "a free glance", "a free check"),
    "look": (r"\b(?:a|one|each|free|first|second|many|of) looks?\b", "a free look", "looks like a table"),
    "dust": (r"\bdust\b", "dust of rounding", "industry"),
    "ascent": (r"\bascents?\b", "the ascent stops", "the climb stops"),
    "way of": (r"\bway (?:of one|up|out|in)\b", "the way of one answer", "a way to release it"),
    "is no": (
        r"(?<!\bthere )\b(?:is|are) no (?!longer|more|less|larger|smaller|greater|worse|better|different|such|exception|way|need"
        r"|other|new|known|public|limit|bound|guarantee|cost|charge|row|rows|noise|target|test|data|delta|error"
        r"|further|one\b|\w+ (?:to|for|that|in|of|on|at|left|between|yet)\b)",
        "a text that is no UTF-8",
        "the price is no larger",
    ),
    "one a row": (
        r"\bone an? (?:row|cell|column|rung|group|coordinate|category|unit|step|point|element|order|key)\b",
        "one a row",
        "one per row",
    ),
    "for nothing": (r"\bfor nothing\b", "an answer for nothing", "nothing for it"),
    "dear": (r"\bdear(?:er|est)?\b", "a dear answer", "an expensive answer"),
    "mend": (r"\bmend(?:s|ed)?\b", "mend the ledger", "amend the ledger"),
    "nobody's secret": (r"\bnobody's secret\b", "rows that are nobody's secret", "public rows"),
    "anew": (r"\banew\b", "deal the rows anew", "shuffle the rows"),
    "hang together": (r"\bhang together\b", "columns hang together", "columns are correlated"),
    "tells of": (r"\btells? of\b", "no error may tell of it", "the error reveals it"),
    "what is no": (r"\bwhat is no\b", "marks for what is no text", "invalid text"),
}
NOUN_OPENINGS = re.compile(
    r"^(?:The|A|An|What|Whether|How|Where|Which|Who|All|Of|Everything|Those|These|Its|Same|Another|Several|Two|Both)\b"
)


def documents() -> list[Path]:
    """Return the documents people read."""
    skipped = {"_build", "reference", "sources"}
    found = [path for path in (ROOT / "docs").rglob("*.md") if not skipped & set(path.parts)]
    return [*sorted(ROOT.glob("*.md")), *sorted(found)]


def prose_of(text: str) -> str:
    """Return a document without code."""
    text = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def strings_of(package: str) -> tuple[tuple[str, str, bool], ...]:
    """Return (place, text, whether it is a function's docstring) for every string of a package."""
    found = []
    for path in sorted((ROOT / "src" / "expost" / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
                names = [getattr(each, "attr", getattr(each, "id", "")) for each in node.decorator_list]
                if "property" not in names and "cached_property" not in names:
                    docstrings.add(node.body[0].value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                found.append((place, node.value, node in docstrings))
    return tuple(found)


def faults_in(place: str, text: str) -> Iterator[str]:
    """Yield the rules that a text breaks."""
    for rule, (pattern, _, _) in RULES.items():
        for match in re.finditer(pattern, text, flags=re.I):
            line = text.count("\n", 0, match.start())
            start = max(match.start() - 30, 0)
            yield f"{place}+{line}: {rule}: ...{' '.join(text[start : match.end() + 20].split())}..."


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_catches_what_it_should_and_nothing_else(rule: str) -> None:
    pattern, caught, passed = RULES[rule]

    assert re.search(pattern, caught, flags=re.I)
    assert not re.search(pattern, passed, flags=re.I)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_help_and_errors_of_a_package_are_plain(package: str) -> None:
    found = [fault for place, text, _ in strings_of(package) for fault in faults_in(place, text)]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_of_functions_start_with_a_verb(package: str) -> None:
    found = [
        f"{place}: {text.splitlines()[0]}"
        for place, text, docstring in strings_of(package)
        if docstring and NOUN_OPENINGS.match(text.strip())
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_is_plain(document: Path) -> None:
    found = list(faults_in(str(document.relative_to(ROOT)), prose_of(document.read_text(encoding="utf-8"))))

    assert not found, "\n".join(found)
