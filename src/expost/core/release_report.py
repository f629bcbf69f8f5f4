"""A release as one page for people who did not ask the question: answer, picture, what it means, receipt."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

from expost.core.card_page import CardPage, PageSection
from expost.core.errors import InvalidRequest, MissingExtra
from expost.core.table_text import markdown_table, show_cell
from expost.core.whole_file import write_text

__all__ = ["report_release"]

_MOST_ROWS = 500  # rows of a table that a page shows
_KINDS = {".html": True, ".htm": True, ".md": False, ".markdown": False}


def report_release(release: Any, path: str | os.PathLike[str] | None = None) -> str:
    """Return a release as an HTML page, or as Markdown if ``path`` ends with ``.md``; write it if a path is given."""
    suffix = ".html" if path is None else Path(path).suffix.lower()
    if suffix not in _KINDS:
        raise InvalidRequest("Expected a file name that ends with .html or .md", got=str(path), do="Rename the file")
    picture = _draw_png(release)
    page = _page_html(release, picture) if _KINDS[suffix] else _page_markdown(release, picture)
    if path is not None:
        write_text(Path(path), page)
    return page


def _page_html(release: Any, picture: bytes | None) -> str:
    receipt = release.receipt
    columns, rows = release.table_cells()
    hidden = [f"{len(rows) - _MOST_ROWS} more rows are not shown."] if len(rows) > _MOST_ROWS else []
    cells = [[show_cell(cell) for cell in row] for row in rows[:_MOST_ROWS]]
    sections = [PageSection("Answer", sentences=hidden, head=columns, rows=cells)]
    if picture is not None:
        sections.append(PageSection("Picture", picture=picture))
    sections.append(PageSection("What this means for a person", sentences=[receipt.meaning]))
    lines = [line for line in receipt.rows() if line[0] not in ("question", "meaning")]
    sections.append(PageSection("Receipt", lines=lines))
    return CardPage(receipt.question, _facts(release), _warnings(release), sections, kind="Private answer").to_html()


def _page_markdown(release: Any, picture: bytes | None) -> str:
    receipt = release.receipt
    columns, rows = release.table_cells()
    parts = [f"# {_plain(receipt.question)}", *(f"**{each}**" for each in _warnings(release))]
    parts += ["\n".join(f"- {label}: {_plain(text)}" for label, text in _facts(release))]
    parts += ["## Answer", markdown_table(columns, rows[:_MOST_ROWS])]
    if len(rows) > _MOST_ROWS:
        parts.append(f"{len(rows) - _MOST_ROWS} more rows are not shown.")
    if picture is not None:
        parts.append(f"![{_plain(receipt.question)}](data:image/png;base64,{base64.b64encode(picture).decode()})")
    parts += ["## What this means for a person", receipt.meaning]
    lines = [line for line in receipt.rows() if line[0] not in ("question", "meaning")]
    parts += ["## Receipt", markdown_table(("line", "text"), lines)]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is written."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#" else sign for sign in text.replace("\n", " "))


def _facts(release: Any) -> list[tuple[str, str]]:
    receipt, found = release.receipt, []
    if isinstance(release.value, int | float):
        found.append(("answer", show_cell(release.value)))
        if release.interval is not None:
            sure = "" if release.confidence is None else f" ({100 * float(release.confidence):.4g} % sure)"
            found.append(("exact answer between", f"{' and '.join(map(show_cell, release.interval))}{sure}"))
    found += [("paid", str(receipt.in_all)), ("outcome", receipt.outcome.value)]
    return found


def _warnings(release: Any) -> list[str]:
    receipt, found = release.receipt, []
    if receipt.simulation:
        found.append("Simulation: the noise came from a seed. Nothing here is private.")
    if not receipt.outcome.met:
        found.append("The accuracy asked for was not reached.")
    return found


def _draw_png(release: Any) -> bytes | None:
    """Draw the release; without a picture where the plots are not installed, or where there is nothing to draw."""
    try:
        figure = release.plot()
    except (MissingExtra, InvalidRequest):
        return None
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    return image.getvalue()
