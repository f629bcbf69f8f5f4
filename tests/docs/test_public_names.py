"""Every public name is exported on purpose, documented, and shown by a running example."""

import importlib
import inspect
import subprocess
import sys

import pytest

import expost

NAMES = [name for name in expost.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    thing = getattr(expost, name)

    documentation = inspect.getdoc(thing) or ""
    assert documentation
    assert ">>>" in documentation


def test_the_export_list_and_the_packages_agree() -> None:
    assert set(expost._HOME) | {"__version__"} == set(expost.__all__)
    assert sorted(expost.__all__) == list(expost.__all__)


def test_every_name_in_an_export_list_exists() -> None:
    for package in expost._PACKAGES:
        module = importlib.import_module(f"expost.{package}")
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), (package, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        expost.no_such_name


def test_import_loads_no_heavy_library() -> None:
    code = (
        "import sys, expost\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'duckdb', 'pyarrow', 'matplotlib', 'torch', 'sqlalchemy', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
