"""The comparison with other libraries; what it measures is not tested, how it talks to them is."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import peer_worker, peers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.npz"
    np.savez(
        path,
        facts=json.dumps(peers.FACTS),
        delays=np.arange(-60.0, 301.0),
        edges=np.linspace(-60, 300, 7),
        features=np.eye(4) / 2,
        labels=np.array([1.0, -1.0, 1.0, -1.0]),
    )
    return path


@pytest.mark.parametrize("peer", ["NumPy", "DuckDB"])
def test_exact_libraries_agree(data: Path, peer: str) -> None:
    worker = peers.Worker(peer, sys.executable, data)

    answers = {question: worker.ask(question)["answer"] for question in ("count", "mean", "histogram", "median")}
    worker.close()

    assert answers["count"] == [285.0] and answers["mean"] == answers["median"] == [120.0]
    assert answers["histogram"] == [60.0] * 5 + [61.0]


def test_our_answers_are_of_the_same_shape(data: Path) -> None:
    questions = peer_worker.expost_questions(peer_worker.read_data(str(data)))

    sizes = {name: np.size(question()) for name, question in questions.items() if name != "logistic"}

    assert sizes == {"count": 1, "mean": 1, "histogram": 6, "median": 1}


def test_a_missing_library_says_so_and_is_left_out(data: Path) -> None:
    script = f"import sys; sys.modules['duckdb'] = None; sys.path.insert(0, {str(Path(peers.__file__).parents[1])!r});"
    script += f"from benchmarks.peer_worker import serve; serve('DuckDB', {str(data)!r})"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "duckdb" in json.loads(done.stdout)["missing"]


def test_the_python_of_a_peer_comes_from_the_environment_or_the_command(monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_PEERS", "diffprivlib=/a/python,opendp[polars]=/b/python")

    assert peers.pythons(["diffprivlib=/c/python"]) == {"diffprivlib": "/c/python", "opendp[polars]": "/b/python"}
