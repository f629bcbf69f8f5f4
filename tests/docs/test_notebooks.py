"""The notebooks run from top to bottom, are kept without outputs, and are pages of the site with what they print and draw."""

import base64
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PICTURES = {"afternoon-with-a-service": 4, "paper-in-one-page": 3, "statistics-office": 4}
WIDEST = 88  # characters of a page that is 1280 pixels wide
NEEDED = ("nbclient", "ipykernel", "matplotlib", "pandas", "sklearn", "fastapi", "uvicorn", "httpx2")

RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
print("".join(output.text for output in outputs if output.get("name") == "stderr"))
print(sum("image/png" in output.get("data", {}) for output in outputs))
"""


def test_every_notebook_is_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(PICTURES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_seed_hides_chance(path: Path) -> None:
    assert "seed" not in path.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path) -> None:
    for name in NEEDED:
        pytest.importorskip(name)

    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), str(tmp_path)], capture_output=True, text=True, timeout=200
    )

    assert done.returncode == 0, done.stderr[-3000:]
    *warned, drawn = done.stdout.splitlines()
    assert not "".join(warned), "a warning is an error"
    assert int(drawn) == PICTURES[path.stem]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]

    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


@pytest.fixture
def pages():
    pytest.importorskip("nbclient")
    spec = importlib.util.spec_from_file_location("notebook_pages", FOLDER.parent / "notebook_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_code_line_is_cut_on_a_page(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [line.rstrip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]]

    assert [line for line in lines if len(line) > WIDEST] == []


def book_with(*outputs):
    import nbformat.v4 as v4

    code = v4.new_code_cell("print(6 * 7)", outputs=list(outputs))
    return v4.new_notebook(cells=[v4.new_markdown_cell("# A title"), code])


def test_a_page_shows_text_code_and_what_it_printed_and_drew(pages) -> None:
    import nbformat.v4 as v4

    printed = v4.new_output("stream", text="42\n")
    picture = {"image/png": base64.b64encode(b"drawn").decode(), "text/plain": "<Figure>"}
    drawn = v4.new_output("display_data", data=picture)

    text, pictures = pages.page(book_with(printed, drawn), "book")

    assert text.startswith("# A title\n\n```{code-block} python\nprint(6 * 7)\n```\n\n```{code-block} text\n")
    assert "\n42\n```" in text
    assert "(book-1.png)" in text and "<Figure>" not in text and "<book.ipynb>" in text
    assert pictures == {"book-1.png": b"drawn"}


def test_a_page_shows_a_table_as_a_table(pages) -> None:
    import nbformat.v4 as v4

    shown = v4.new_output("display_data", data={"text/html": "<table></table>", "text/plain": "Receipt(...)"})

    text, _ = pages.page(book_with(shown), "book")

    assert '```{raw} html\n<div class="shown">\n<table></table>\n</div>\n```' in text
    assert "Receipt(...)" not in text


def test_a_notebook_becomes_a_page_beside_it(pages, tmp_path) -> None:
    import nbformat

    nbformat.write(book_with(), tmp_path / "book.ipynb")

    assert [path.name for path in pages.write_pages(tmp_path, execute=False)] == ["book.md"]
    assert "print(6 * 7)" in (tmp_path / "book.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_leads_to_the_page_of_every_notebook(path: Path) -> None:
    contents = (FOLDER.parent / "notebooks.md").read_text(encoding="utf-8")

    assert f"notebooks/{path.stem}.md" in contents and f"\nnotebooks/{path.stem}\n" in contents
