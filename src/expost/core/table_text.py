"""Small tables as CSV, Markdown and HTML: cells that spreadsheets or browsers would run are made harmless."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["csv_text", "html_table", "markdown_table", "show_cell"]

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
"""A spreadsheet takes a text that starts like this for a formula or a command."""


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Return a table as CSV. A text that a spreadsheet would take for a formula gets an apostrophe in front.

    >>> csv_text(["city", "value"], [["=1+1", -3.5], ["Rome", None]])
    "city,value\n'=1+1,-3.5\nRome,\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_disarm, columns))
    writer.writerows([*map(_disarm, row)] for row in rows)
    return text.getvalue()


def _disarm(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell


def show_cell(cell: Any) -> str:
    """Return a cell as a reader sees it: numbers with six digits."""
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML, every text escaped.

    >>> html_table(["city"], [["<b>"]])
    '<table><tr><th>city</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = ("".join(f"<td>{html.escape(show_cell(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{cells}</tr>' for cells in body)}</table>"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Return a table as Markdown. Characters that would end a cell or begin a tag are escaped.

    >>> print(markdown_table(["city"], [["a|b"]]))
    | city |
    | --- |
    | a\|b |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_escape_markdown(show_cell(cell)) for cell in line) + " |" for line in lines)


def _escape_markdown(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("\n", " ").replace("\r", " ")
