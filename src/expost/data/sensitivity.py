"""How far one unit can move sealed integers."""

from __future__ import annotations

from expost.core import Adjacency, Sensitivity
from expost.data.bounding import Limits
from expost.data.form import Form
from expost.data.tally import Tally

__all__ = ["unit_sensitivity"]


def unit_sensitivity(form: Form, tally: Tally, limits: Limits | None, adjacency: Adjacency) -> Sensitivity:
    """The L1 sensitivity of the coordinates of all cells together, in lattice units.

    A row falls into one cell at most, so cells do not add up: it is what one row adds to its cell, times the rows
    that a unit keeps. Replacing a unit is removing one and adding another, at most twice that; a single row that is
    always counted, in the only cell there is, moves the coordinates by its spread alone.

    >>> from expost.data.form import CountForm
    >>> unit_sensitivity(CountForm(), Tally(), Limits(rows=5), Adjacency.ADD_REMOVE).amount
    Fraction(5, 1)
    """
    rows = _rows(tally, limits)
    amount = rows * form.row_size
    if adjacency is Adjacency.REPLACE_ONE:
        # Measured numbers may be missing and categories unlisted, so only a bare count counts every row.
        always = limits is None and tally.where is None and not tally.axes and not tally.measured
        apart = form.row_spread if tally.cells == 1 else 2 * form.row_size
        amount = form.row_spread if always else max(apart, form.row_size) if limits is None else 2 * amount
        if form.size == 1 and tally.cells == 1 and limits is not None:
            # One coordinate: a unit's part lies between -amount and amount, and replacing moves it within that.
            amount = rows * max(form.row_size, form.row_spread)
    return Sensitivity(max(amount, 1), adjacency=adjacency, unit=tally.unit)


def _rows(tally: Tally, limits: Limits | None) -> int:
    """The most rows of one unit that are added up."""
    if limits is None:
        return 1
    counts = [limits.rows] if limits.rows is not None else []
    if limits.once:
        counts += [tally.cells] if limits.groups is None else [min(limits.groups, tally.cells)]
    return min(counts)
