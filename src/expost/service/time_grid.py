"""When an answer leaves: at multiples of a public length of time, so that time says little about the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["TimeGrid"]

_SHORTEST = 0.05  # seconds, for a question of one cell
_FIT = 1.0
_CELLS = 1000  # for each doubling above this many cells the grid doubles


@dataclass(frozen=True)
class TimeGrid:
    """Multiples of ``seconds`` after a request began. None: from the public size of the question.

    >>> TimeGrid(0.25).leave_at(100.0, 100.3, cells=1, fit=False)
    100.5
    """

    seconds: float | None = None

    def step(self, *, cells: int, fit: bool) -> float:
        """Return the length of the grid for a question of so many cells, or a fit."""
        if self.seconds is not None:
            return self.seconds
        return _FIT if fit else _SHORTEST * 2 ** max(0, math.ceil(math.log2(max(cells, 1) / _CELLS)))

    def leave_at(self, began: float, now: float, *, cells: int, fit: bool) -> float:
        """Return the next point of the grid."""
        step = self.step(cells=cells, fit=fit)
        return began + max(1, math.ceil((now - began) / step)) * step
