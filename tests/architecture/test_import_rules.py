"""The floors hold, and breaking them on purpose fails ``scripts/check``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment}
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the sources with the same rules."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".importlinter", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def lint_imports(house: Path) -> subprocess.CompletedProcess[str]:
    return run([str(BIN / "lint-imports"), "--no-cache"], house, PYTHONPATH=str(house / "src"))


def test_the_floors_hold(house: Path) -> None:
    result = lint_imports(house)

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("room", "line"),
    [
        pytest.param("noise", "import expost.ledger", id="sibling"),
        pytest.param("core", "import expost.noise", id="upward"),
        pytest.param("stats", "import expost.session", id="upward from the asks"),
        pytest.param("core", "import numpy", id="words beyond the standard library"),
        pytest.param("noise", "import expost.audit", id="house imports what stands beside it"),
    ],
)
def test_a_broken_import_rule_fails(house: Path, room: str, line: str) -> None:
    planted = house / "src" / "expost" / room / "planted.py"
    planted.write_text(line + "\n", encoding="utf-8")

    result = lint_imports(house)

    assert result.returncode != 0
    assert "planted" in result.stdout


@pytest.mark.parametrize("line", ["import numpy.random", "from numpy.random import default_rng", "import random"])
def test_randomness_outside_noise_fails_the_linter(house: Path, line: str) -> None:
    planted = house / "src" / "expost" / "stats" / "planted.py"
    planted.write_text(f'"""Planted."""\n\n{line}\n', encoding="utf-8")

    result = run([str(BIN / "ruff"), "check", "--no-cache", "--select", "TID251", str(planted)], house)

    assert result.returncode != 0
    assert "TID251" in result.stdout


def test_attribute_access_to_numpy_random_fails_the_linter(house: Path) -> None:
    planted = house / "src" / "expost" / "stats" / "planted.py"
    planted.write_text('"""Planted."""\n\nimport numpy as np\n\nnp.random.default_rng()\n', encoding="utf-8")

    result = run([str(BIN / "ruff"), "check", "--no-cache", "--select", "TID251", str(planted)], house)

    assert result.returncode != 0


def test_an_installed_package_named_tests_does_not_hide_ours(tmp_path: Path) -> None:
    """Some distributions install one; processes that tests start could then not import the helpers of the tests."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    code = "import importlib.util; print(importlib.util.find_spec('tests.unit') is not None)"

    result = run([sys.executable, "-c", code], tmp_path.parent, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))

    assert result.stdout.strip() == "True", result.stderr
