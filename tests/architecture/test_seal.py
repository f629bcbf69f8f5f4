"""Only ``noise`` opens a sealed answer."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "expost"
OPENERS = {"unseal", "_Sealed__exact"}


def names_used(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # getattr(sealed, "_Sealed__exact")
    return names


def allowed(path: Path) -> bool:
    package = path.relative_to(SOURCE).parts[0]
    return package == "noise" or (path.name in {"sealed.py", "__init__.py"} and package == "core")


def test_no_file_outside_noise_opens_a_seal() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    opening = [path for path in files if names_used(ast.parse(path.read_text(encoding="utf-8"))) & OPENERS]

    assert len(files) > 200
    assert [str(path.relative_to(SOURCE)) for path in opening if not allowed(path)] == []
    assert any(allowed(path) for path in opening)


@pytest.mark.parametrize(
    "planted",
    [
        "from expost.core import unseal",
        "from expost import core\ncore.unseal(x)",
        "x._Sealed__exact",
        "getattr(x, '_Sealed__exact')",
    ],
)
def test_the_check_sees_a_planted_opening(planted: str) -> None:
    assert names_used(ast.parse(planted)) & OPENERS
