"""The release of a statement: one table of groups, numbers and intervals, with one receipt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.core.table_text import show_cell
from expost.stats.table_release import TableRelease

__all__ = ["StatementRelease"]

_ROWS_SHOWN = 20  # of a printed table


@dataclass(frozen=True, repr=False)
class StatementRelease(TableRelease[tuple[tuple[Any, ...], ...]]):
    """The release of a statement: a table whose numbers have intervals that hold all at once.

    Parameters
    ----------
    value : tuple of tuples
        The rows, with one value per column.
    receipt : Receipt
        What was run and what it cost.
    interval : None
        Not used: every number has its own interval.
    climb : tuple of Step
        Empty: the climbs of several statistics are not drawn.
    confidence : Fraction, optional
        The probability with which all intervals hold at once.
    columns : tuple of str
        The names of the columns.
    measured : tuple of bool
        Which columns are computed from released numbers; the others are groups.
    ends : tuple of tuples
        For each row and column the ends of the interval, or None.
    met : tuple of bool
        For each row whether its numbers reached what was asked for.

    Examples
    --------
    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="SELECT", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> release = StatementRelease((("Rome", 3.0),), receipt, columns=("city", "n"), measured=(False, True),
    ...     ends=((None, (1.0, 5.0)),), met=(True,))
    >>> release.to_arrow().column_names, release.to_dicts()[0]["n low"]
    (['city', 'n', 'n low', 'n high', 'met'], 1.0)
    >>> release
    city  n  n low  n high  met
    Rome  3  1      5       True
    paid epsilon 1
    """

    columns: tuple[str, ...] = field(default=(), kw_only=True)
    measured: tuple[bool, ...] = field(default=(), kw_only=True)
    ends: tuple[tuple[tuple[float, float] | None, ...], ...] = field(default=(), kw_only=True)
    met: tuple[bool, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.value)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column.

        Parameters
        ----------
        name : str
            The name of the column.
        """
        if name not in self.columns:
            do = suggest_name(name, self.columns) or f"The columns are: {', '.join(self.columns)}"
            raise InvalidRequest("Expected the name of a column", got=name, do=do)
        place = self.columns.index(name)
        return [row[place] for row in self.value]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per row, with the ends of intervals and whether the target was met."""
        names, rows = self.table_cells()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def table_cells(self) -> tuple[list[str], list[list[Any]]]:
        """Return the names and the rows of the table: after each number the ends of its interval."""
        names: list[str] = []
        for name, measured in zip(self.columns, self.measured, strict=True):
            names += [name, f"{name} low", f"{name} high"] if measured else [name]
        rows = []
        for values, ends, met in zip(self.value, self.ends, self.met, strict=True):
            row: list[Any] = []
            for value, pair, measured in zip(values, ends, self.measured, strict=True):
                row += [value, *(pair or (None, None))] if measured else [value]
            rows.append([*row, met])
        return [*names, "met"], rows

    def to_arrow(self) -> pa.Table:
        """Return the table: columns, for each number ``low`` and ``high``, and ``met``."""
        names, rows = self.table_cells()
        return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})

    def __repr__(self) -> str:
        names, rows = self.table_cells()
        cells = [names, *([show_cell(cell) for cell in row] for row in rows[:_ROWS_SHOWN])]
        widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        more = [f"... {len(rows)} rows"] if len(rows) > _ROWS_SHOWN else []
        warning = ["SIMULATION, NOT PRIVATE"] if self.receipt.simulation else []
        before = "" if self.receipt.paid_before is None else f", {self.receipt.in_all} with what it rests on"
        return "\n".join([*lines, *more, f"paid {self.receipt.bill}{before}", *warning])
