"""Runs the notebooks when the site is built and writes each as a page with what it printed and drew; pages are not kept."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SECONDS = 120  # a cell


def executed(path: Path) -> Any:
    """The notebook with the outputs of a run from top to bottom, in an empty folder."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources=resources).execute()
    return book


def page(book: Any, stem: str) -> tuple[str, dict[str, bytes]]:
    """The page, and the pictures it shows by the names of their files."""
    parts, pictures = [], {}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        # Not a block of plain "python": those of a page are run by the tests, and a notebook has a test of its own.
        parts.append(_fenced(cell.source, "{code-block} python"))
        for output in cell.get("outputs", ()):
            shown = output.get("data", {})
            drawn, table = shown.get("image/png"), shown.get("text/html")
            if drawn is not None:
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(drawn)
                parts.append(f"![what the cell above draws]({name})")
            elif table is not None:
                parts.append(_fenced(f'<div class="shown">\n{table}\n</div>', "{raw} html"))
            elif said := _said(output):
                parts.append(_fenced(f":class: printed\n\n{said}", "{code-block} text"))
    parts.append(f"{{download}}`The notebook itself <{stem}.ipynb>`")
    return "\n\n".join(parts) + "\n", pictures


def _said(output: Any) -> str:
    """What an output says in plain text."""
    text = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return str(text).rstrip()


def _fenced(text: str, kind: str) -> str:
    return f"```{kind}\n{text}\n```"


def write_pages(folder: Path, *, execute: bool = True) -> Iterator[Path]:
    """One page beside each notebook; without executing, the code alone."""
    for path in sorted(folder.glob("*.ipynb")):
        book = executed(path) if execute else nbformat.read(path, as_version=4)
        text, pictures = page(book, path.stem)
        for name, data in pictures.items():
            (folder / name).write_bytes(data)
        written = path.with_suffix(".md")
        written.write_text(text, encoding="utf-8")
        yield written
