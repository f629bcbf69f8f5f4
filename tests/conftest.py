"""Helpers of the tests are imported by their place in the project, e.g. ``tests.distribution.goodness``."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from hypothesis import settings

# Many tests start processes of their own, which need half of the time if they find the package compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes depends on what else the machine does: a timing is never a test.
settings.register_profile("expost", deadline=None)
settings.load_profile("expost")


ROOT = Path(__file__).parents[1]
COVERING = [ROOT / "tests" / "laws", ROOT / "tests" / "contracts"]
COVERING += [
    ROOT / top / name for top in ("tests/unit", "src/expost") for name in ("core", "noise", "accounting", "ledger")
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that hold a place in memory: every worker would collect other tests."""
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"Expected the same names of tests in every process. Give ids to {unstable}.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that leaves another trace function: coverage would no longer see the tests after it."""
    tracer = sys.gettrace()
    yield
    left = sys.gettrace()
    if left is not tracer:
        sys.settrace(tracer)
        pytest.fail(f"Expected {item.nodeid} to put the trace function back, and got {left!r}.", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Measure coverage in the tests that are there to cover: it makes every test two thirds slower."""
    tracer = sys.gettrace()
    if not any(folder in item.path.parents for folder in COVERING):
        sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
