"""The map in ARCHITECTURE.md is the code's: its layers are the checked ones, and its walks are recorded calls."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def metrics():
    spec = importlib.util.spec_from_file_location("metrics", ROOT / "scripts" / "metrics.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["metrics"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["metrics"]


def files_of(title: str) -> set[str]:
    section = PAGE.split(f"## {title}")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([\w/]+\.py)` \|", section, re.M))


@pytest.mark.parametrize(
    ("title", "walk"), [("One answer, file by file", "walk_of_answer"), ("One fit, file by file", "walk_of_fit")]
)
def test_a_walk_lists_the_files_that_are_really_passed(metrics, title: str, walk: str) -> None:
    # Run scripts/metrics --write after a change.
    assert set(getattr(metrics, walk)().files) == files_of(title)


def test_every_package_is_on_the_map_and_in_the_checked_layers() -> None:
    source = ROOT / "src" / "expost"
    names = {path.name for path in source.iterdir() if (path / "__init__.py").exists()}
    listed = set(re.findall(r"^(?:\w+)? +(\w+) {2,}\S", PAGE.split("## Layers")[1].split("## Contracts")[0], re.M))
    checked = set(re.findall(r"\w+", (ROOT / ".importlinter").read_text(encoding="utf-8")))

    assert names - {"core"} <= listed
    assert names <= checked


def test_no_file_name_and_no_class_name_is_used_twice(metrics) -> None:
    assert metrics.repeated_names() == ([], [])


def test_the_walk_counts_what_it_should(metrics) -> None:
    import expost

    expost.epsilon(1)  # the first call imports the package, which is not part of the walk
    walk = metrics.Walk()
    walk.record(lambda: expost.epsilon(1))

    assert walk.depth >= 2
    assert "core/guarantee.py" in walk.files
    assert walk.switches == 0
