"""The history of a ledger as a small table: what was asked when, what it was charged, and the total after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from expost.accounting.neighbour_change import replaced_loss
from expost.core import Loss
from expost.core.table_text import csv_text, html_table
from expost.ledger.ledger_entry import EntryKind, LedgerEntry

__all__ = ["LedgerHistory"]

_COLUMNS = ("entry", "minute", "kind", "question", "account", "charged", "spent after")
_SHOWN = 20  # lines that are printed; the others are counted
_WIDEST = 48  # characters of a question that are printed


class LedgerHistory(list[LedgerEntry]):
    """Entries in order. It is a list, prints as a table, and becomes a data frame or a CSV file.

    Examples
    --------
    >>> from expost.core import PureLoss
    >>> from expost.ledger import open_ledger
    >>> ledger = open_ledger(None)
    >>> ledger.open_account("dataset:flights", 1)
    >>> hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count of rows")
    >>> for line in ledger.history("dataset:flights").lines():
    ...     print(line["kind"], line["question"], line["charged"], line["spent after"], sep=" | ")
    open |  |  | epsilon 0
    hold | count of rows | epsilon 0.5 | epsilon 0.5
    """

    def lines(self) -> list[dict[str, str]]:
        """Return one line per entry and account that it charges.

        Returns
        -------
        list of dict
            The columns ``entry``, ``minute``, ``kind``, ``question``, ``account``, ``charged`` and ``spent after``.
        """
        return [line for entry in self for line in _lines_of(entry)]

    def to_pandas(self) -> Any:
        """Return the table as a data frame.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas  # noqa: PLC0415  (a second of import that other calls do not need)

        return pandas.DataFrame(self.lines(), columns=list(_COLUMNS))

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the table as CSV text, and write it to a file if one is named.

        Parameters
        ----------
        path : str or path, optional
            The file to write.

        Returns
        -------
        str
        """
        text = csv_text(_COLUMNS, [[line[name] for name in _COLUMNS] for line in self.lines()])
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _shown_rows(self) -> tuple[int, list[tuple[str, ...]]]:
        """Return how many lines are left out, and the last ones."""
        lines = self.lines()
        kept = [line | {"question": _cut(line["question"], line["kind"])} for line in lines[-_SHOWN:]]
        return len(lines) - len(kept), [tuple(line[name] for name in _COLUMNS) for line in kept]

    def __repr__(self) -> str:
        hidden, rows = self._shown_rows()
        widths = [max(len(cell) for cell in column) for column in zip(_COLUMNS, *rows, strict=True)]
        table = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (_COLUMNS, *rows)
        ]
        return "\n".join(
            [*([f"({hidden} earlier lines; to_pandas() has all)"] if hidden else []), *map(str.rstrip, table)]
        )

    def _repr_html_(self) -> str:
        hidden, rows = self._shown_rows()
        note = f"<p>{hidden} earlier lines; <code>to_pandas()</code> has all.</p>" if hidden else ""
        return note + html_table(_COLUMNS, rows)


def _lines_of(entry: LedgerEntry) -> list[dict[str, str]]:
    """Return the lines of one entry: one per account that is charged, or one for the entry itself."""
    charges, spent = entry.body.get("charges", {}), entry.spent
    held = entry.body.get("worst_case") or (entry.body.get("receipt") or {}).get("bill")
    # In the words of the run: charges at Renyi orders say nothing to people.
    charged = "" if held is None else str(Loss.from_json(held))
    replaced = entry.body.get("replaced", ())
    if held is not None and replaced:
        counted = f"{charged}, counted as {replaced_loss(Loss.from_json(held))}"
    return [
        {
            "entry": entry.id.partition("-")[0],
            "minute": entry.at[:16],
            "kind": entry.kind.value,
            "question": entry.question or "",
            "account": account,
            "charged": (counted if account in replaced else charged) if account in charges else "",
            "spent after": str(spent[account]) if account in spent else "",
        }
        for account in charges or entry.accounts or ("",)
    ]


def _cut(text: str, kind: str) -> str:
    """Shorten a question; what changed in an account is printed in full."""
    return text if len(text) <= _WIDEST or kind == EntryKind.NEIGHBOURS.value else f"{text[: _WIDEST - 3]}..."
