"""The notebooks run from top to bottom, and are kept without outputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PICTURES = {"flights-afternoon": 3, "paper-in-one-page": 2}

RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
print(sum("image/png" in output.get("data", {}) for cell in book.cells for output in cell.get("outputs", [])))
"""


def test_both_notebooks_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["flights-afternoon", "paper-in-one-page"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")

    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), str(tmp_path)], capture_output=True, text=True, timeout=200
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == PICTURES[path.stem]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]

    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
