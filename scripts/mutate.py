"""Runs mutmut on one package, or one of its modules, in a copy of the tree, and lists the surviving mutants."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "noise", "accounting", "ledger")


def settings_for(package: str, mutated: list[str]) -> str:
    """Return mutmut's section of pyproject.toml: what is changed, and which tests must notice."""
    tests = [f"tests/unit/{package}", "tests/laws", f"src/expost/{package}"]
    return f"""
[tool.mutmut]
source_paths = {mutated!r}
also_copy = ["src", "tests", "docs", "conftest.py", "pyproject.toml", "README.md"]
pytest_add_cli_args_test_selection = {tests!r}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-o", "filterwarnings=default"]
"""


def main() -> int:
    """Copy the tree, run mutmut, print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("module", nargs="?", help="one module of the package; all of them take hours")
    options = parser.parse_args()
    folder = ROOT / "src" / "expost" / options.package
    names = [options.module] if options.module else sorted(path.stem for path in folder.glob("[a-z]*.py"))
    if options.module and not (folder / f"{options.module}.py").exists():
        parser.error(f"Expected a module of {options.package}, got {options.module!r}.")
    mutated = [f"src/expost/{options.package}/{name}.py" for name in names]
    mutmut = Path(sys.executable).parent / "mutmut"
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "tree"
        ignored = shutil.ignore_patterns(".venv", ".git", "__pycache__", "_build", "*.ledger*")
        shutil.copytree(ROOT, copy, ignore=ignored)
        with (copy / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(settings_for(options.package, mutated))
        run = subprocess.run([mutmut, "run"], cwd=copy)
        subprocess.run([mutmut, "results"], cwd=copy)
    return run.returncode


if __name__ == "__main__":
    raise SystemExit(main())
