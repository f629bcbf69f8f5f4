"""How a test of means splits its epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from expost.core import Adjacency

__all__ = ["NUISANCE", "SPREAD_LOG", "Shares"]

NUISANCE = 0.005
"""The probability spent on bounding the unknown spread; it is added to every p-value (BB94, Lemma 1)."""

SPREAD_LOG = math.log(1 / (2 * NUISANCE))
"""Laplace noise of scale b exceeds b times this number with probability ``NUISANCE``."""

_SHARES = [Fraction(percent, 100) for percent in range(5, 55, 5)]


@dataclass(frozen=True)
class Shares:
    """How epsilon is split between sums, squares and group sizes.

    Squares say how widely the values spread: of each group, or of all together if their spread is taken for equal. When
    their noise alone would exceed the widest spread the bounds allow, they say nothing, and their share goes to the sums.

    >>> Shares.of(Fraction(1), rows=1000, public_sizes=(500, 500)).sums
    Fraction(7, 10)
    >>> Shares.of(Fraction(1, 100), rows=100, public_sizes=(50, 50)).sums
    Fraction(1, 100)
    """

    sums: Fraction
    squares: Fraction | None
    sizes: Fraction | None
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    equal_spread: bool = False

    @classmethod
    def of(
        cls,
        epsilon: Fraction,
        *,
        rows: int | None,
        public_sizes: Sequence[int] | None,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
        equal_spread: bool = False,
    ) -> Shares:
        """The split for a table of this size, or of these groups; of an unknown one squares are always bought.

        The share f of the squares minimises what noise adds to the variance of a group's mean, in units of one over its
        squared size: their own bound, width log / (f epsilon), half as much where two groups share it, and
        2 (width / ((1 - f) epsilon))^2 from the sums, each ``width`` being what one row moves them by.
        """
        level, moved = float(epsilon), _sum_width(adjacency)
        moved_squares = _square_width(adjacency, public_sizes is not None)
        bound = SPREAD_LOG * (0.125 if equal_spread else moved_squares)
        share = min(_SHARES, key=lambda f: bound / (float(f) * level) + 2 * (moved / ((1 - float(f)) * level)) ** 2)
        most = rows if equal_spread or public_sizes is None else max(public_sizes)
        noise = SPREAD_LOG * (0.25 if equal_spread else moved_squares) / (float(share) * level)
        silent = most is not None and most / 4 <= noise
        squares = None if silent else share * epsilon
        rest = epsilon - (squares or 0)
        sizes = None if public_sizes is not None else rest / 4
        return cls(rest - (sizes or 0), squares, sizes, adjacency, equal_spread)

    @property
    def sum_scale(self) -> float:
        """The noise of a sum, in units of the width of the bounds."""
        return _sum_width(self.adjacency) / float(self.sums)

    @property
    def size_scale(self) -> float:
        """The noise of a group's size; 0 where sizes are public."""
        moved = 2 if self.adjacency.public_size else 1
        return 0.0 if self.sizes is None else moved / float(self.sizes)

    @property
    def square_scale(self) -> float:
        """The noise of a total of squares, in units of the squared width; 0 where it is not bought."""
        if self.squares is None:
            return 0.0
        return (0.25 if self.equal_spread else _square_width(self.adjacency, self.sizes is None)) / float(self.squares)

    def breakdown(self) -> dict[str, Fraction]:
        """The parts by name, as they stand on a receipt."""
        parts = {"sums": self.sums, "squares": self.squares, "group sizes": self.sizes}
        return {name: part for name, part in parts.items() if part is not None}


def _sum_width(adjacency: Adjacency) -> float:
    """How far one row moves the sums, in units of the width of the bounds."""
    return 1.0 if adjacency.public_size else 0.5


def _square_width(adjacency: Adjacency, public_sizes: bool) -> float:
    """How far one row moves the squares by group: twice as far if it can leave one group for another."""
    return 0.5 if adjacency.public_size and not public_sizes else 0.25
