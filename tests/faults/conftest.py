"""Places for ledgers that are about to be mistreated."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def load(name: str):
    """A helper beside the tests, loaded once for the whole run."""
    module = f"expost_tests_{name}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, HERE / f"{name}.py")
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


@pytest.fixture
def postgres():
    """The module that starts servers, or a skip that says why there are none."""
    module = load("postgres_server")
    if reason := module.missing():
        pytest.skip(reason)
    return module


@pytest.fixture
def sqlite_place():
    """A file in memory if there is such a folder: a killed process loses nothing there either, and syncs are quick."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield f"sqlite:///{folder}/flightsNAME.ledger"


@pytest.fixture
def postgres_place(postgres):
    return postgres.shared_server().new_place()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request):
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture
def drive():
    """Runs the crash driver and hands back its exit."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(HERE / "crash_driver.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=3000)

    return run
