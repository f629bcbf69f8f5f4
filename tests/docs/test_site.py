"""The site builds without a warning and leaves out no public name, command or option."""

import importlib
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import expost

DOCS = Path(__file__).parents[2] / "docs"

# Reads every page and docstring and resolves every link, but writes no HTML: a quarter of the time.
# A short life needs no garbage collector, which would go through the trees of all pages again and again.
BUILD = """
import gc, json, sys
gc.disable()
from docutils.nodes import problematic
from sphinx.application import Sphinx
docs, output = sys.argv[1:]
app = Sphinx(docs, docs, output, output, "dummy", status=None, warning=sys.stderr, confoverrides={
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"], "execute_notebooks": False})
broken = []
app.connect("doctree-read", lambda app, page: broken.extend(node.astext() for node in page.findall(problematic)))
app.build()
print(json.dumps({"warnings": app._warncount, "broken": broken, "names": sorted(app.env.domains["py"].objects)}))
"""


def page_maker(name: str) -> ModuleType:
    """A module that makes pages of the site."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict:
    pytest.importorskip("sphinx")
    pytest.importorskip("nbclient")
    output = str(tmp_path_factory.mktemp("site"))
    done = subprocess.run([sys.executable, "-c", BUILD, str(DOCS), output], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]) | {"stderr": done.stderr}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site: dict) -> None:
    assert (site["warnings"], site["stderr"].strip()) == (0, "")


@pytest.mark.slow
def test_no_formula_of_a_docstring_is_taken_for_markup(site: dict) -> None:
    assert site["broken"] == []


@pytest.mark.slow
def test_classes_and_functions_are_documented_from_their_docstrings(site: dict) -> None:
    documented = set(site["names"])

    for name, package in expost._HOME.items():
        thing = getattr(expost, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert f"expost.{package}.{name}" in documented


def test_every_public_name_is_in_the_reference() -> None:
    pages = page_maker("reference_pages")

    for package in pages.packages():
        text = pages.page(package)
        names = getattr(importlib.import_module(f"expost.{package}"), "__all__", ())
        assert [name for name in names if f"`{name}`" not in text] == []
    for name, package in expost._HOME.items():
        assert f"`{name}`" in pages.page(package)


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    commands = page_maker("commands")

    # Made from the commands themselves: run python docs/commands.py after a change.
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == commands.render()


def test_every_package_has_a_page(tmp_path) -> None:
    pages = page_maker("reference_pages").write_pages(tmp_path)

    assert {"core", "data", "noise", "accounting", "ledger", "stats", "models"} <= {page.stem for page in pages}
    for page in pages:
        assert "automodule" in page.read_text(encoding="utf-8"), page.stem


def test_the_page_of_commands_shows_a_missing_option() -> None:
    commands = page_maker("commands")

    assert "`--quick`" in commands.render()
    assert "`--no-such-option`" not in commands.render()


WITHOUT_TORCH = """
import importlib.util, sys
from sphinx.ext.autodoc.mock import MockFinder
real = importlib.util.find_spec


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "opacus"):
            raise ImportError(name)


def find_spec(name, package=None):
    standing_in = any(isinstance(each, MockFinder) for each in sys.meta_path)
    return None if name == "torch" and not standing_in else real(name, package)


importlib.util.find_spec = find_spec
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
import reference_pages
assert "torch" in reference_pages.packages()
assert "`train`" in reference_pages.page("torch")
"""


def test_networks_are_in_the_reference_although_torch_is_missing() -> None:
    pytest.importorskip("sphinx")
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(DOCS)], capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr[-2000:]


def test_the_page_of_the_audit_shows_what_was_measured() -> None:
    rows = json.loads((DOCS / "audit.json").read_text(encoding="utf-8"))

    assert page_maker("audit_page").render(rows) in (DOCS / "audit.md").read_text(encoding="utf-8")
    assert "VIOLATED" not in {row["verdict"] for row in rows}
