"""A record of the fits of this process that no ledger knows of: their losses add up, and nobody counts them."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Hashable
from typing import Any

from expost.core import Loss, Receipt
from expost.core.release import add_losses

__all__ = ["FitRecord", "RepeatedFitWarning", "describe_columns"]


class RepeatedFitWarning(UserWarning):
    """Several fits without a ledger read tables with the same columns: what they cost adds up.

    A search, a cross-validation and a loop fit many times, and each receipt states the cost of one fit. The warning depends
    on public facts only: the columns of the tables and the bills on the receipts. Fits with a ledger are counted there,
    and fits with a ``simulation_seed`` are not private anyway.

    Examples
    --------
    >>> issubclass(RepeatedFitWarning, UserWarning)
    True
    """


def describe_columns(data: Any) -> Hashable:
    """Return what is public about the columns of rows that were passed to a fit: names, else their number, else None.

    >>> import numpy as np
    >>> describe_columns((np.zeros((4, 3)), np.zeros(4)))
    3
    """
    table = data[0] if isinstance(data, tuple) and data else data
    names = getattr(table, "names", None)
    if isinstance(names, tuple):
        return names
    schema = getattr(table, "schema", None)
    if schema is not None:
        return tuple(schema)
    width = getattr(table, "width", None)
    shape: Any = getattr(table, "shape", ())
    return width if isinstance(width, int) else int(shape[1]) if len(shape) == 2 else None


class FitRecord:
    """Counts fits by the columns of their tables, and warns whenever a count has doubled."""

    def __init__(self) -> None:
        self._fits: dict[Hashable, tuple[int, dict[str, Loss]]] = {}
        self._lock = threading.Lock()

    def note_fit(self, columns: Hashable, receipt: Receipt) -> None:
        """Count a fit; warn at the second, the fourth, the eighth one, and so on."""
        if columns is None:
            return
        with self._lock:
            count, totals = self._fits.get(columns, (0, {}))
            count, totals = count + 1, _add_bill(totals, receipt.bill)
            self._fits[columns] = count, totals
        if count & (count - 1) or count == 1:
            return
        together = " and ".join(str(loss) for loss in totals.values())
        width = columns if isinstance(columns, int) else len(columns) if isinstance(columns, tuple) else 0
        warnings.warn(
            f"{count} fits without a ledger read tables with the same {width} columns. If these are the same people, the "
            f"fits cost {together} together, not the {receipt.bill} of one receipt. Pass ledger= and account=, or use "
            "expost.Session, so that they are counted.",
            RepeatedFitWarning,
            stacklevel=_find_caller(),
        )

    def forget(self) -> None:
        """Start again from zero."""
        with self._lock:
            self._fits.clear()


def _find_caller() -> int:
    """Return the stack level, for ``warnings.warn``, of the line outside this package that called fit."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "expost":
        level, frame = level + 1, frame.f_back
    return level


def _add_bill(totals: dict[str, Loss], bill: Loss) -> dict[str, Loss]:
    """Return the totals with one more bill; pure and (epsilon, delta) losses have a common sum."""
    kind = "approx" if bill.definition == "pure" else bill.definition
    return totals | {kind: bill if kind not in totals else add_losses(totals[kind], bill)}
