"""Who a fit protects: which tables are neighbors, and how many gradients, rows and sums they differ in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from expost.core import Adjacency, Unit

__all__ = ["ADDED_ROWS", "REPLACED_ROWS", "FitNeighbours"]

_CROWD = 4  # a table may have this many times the declared rows; more rows would only add float error


@dataclass(frozen=True)
class FitNeighbours:
    """The tables that a fit must not tell apart.

    A unit is one row, or all rows of one person, which share one weight: the weights of a person's rows add up to at
    most 1. A replaced unit takes its gradient away and brings another one; an added or removed unit does one of the two
    (docs/proofs/added-units.md).

    >>> REPLACED_ROWS.gradients, ADDED_ROWS.gradients
    (2, 1)
    """

    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: Unit = Unit()
    rows_per_unit: int = 1
    """The most rows that one unit keeps."""

    @property
    def gradients(self) -> int:
        """Return the number of units' gradients in which the sums of two neighbors differ."""
        return 2 if self.adjacency.public_size else 1

    @property
    def crowd(self) -> int:
        """Return how many times the public number of units a table may have, as far as float errors are bounded."""
        return 1 if self.adjacency.public_size else _CROWD

    def jacobian(self, ratio: float) -> float:
        """Return the cost of the change of variables, for a unit whose curvature is ``ratio`` of the penalty's.

        One row changes the determinant by a factor of at most 1 + ratio. For a person with several rows, ln det(I + A)
        is at most the trace of A, which the weights keep at the ratio.
        """
        return math.log1p(ratio) if self.unit.is_row else ratio

    @property
    def noun(self) -> str:
        """Return the public word for a unit."""
        return "row" if self.unit.is_row else str(self.unit.column)


REPLACED_ROWS = FitNeighbours()
"""One row is replaced; the number of rows is public."""
ADDED_ROWS = FitNeighbours(Adjacency.ADD_REMOVE)
"""One row is added or removed; the number of rows is private."""
