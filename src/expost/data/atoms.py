"""What is left of a row once it is read: its unit, its cell, its measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Atoms"]


@dataclass(frozen=True, slots=True)
class Atoms:
    """Rows as integers: ``words`` name the unit (empty when a row is its own), ``cell`` the place, ``steps`` the values.

    >>> atoms = Atoms([], np.array([0, 3]), np.array([[5.0, 6.0]]))
    >>> atoms.take(np.array([1])).steps.tolist()
    [[6.0]]
    """

    words: list[NDArray[Any]]
    cell: NDArray[Any]
    steps: NDArray[Any]

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, rows: NDArray[Any]) -> Atoms:
        """Some of the rows, by index or mask."""
        return Atoms([word[rows] for word in self.words], self.cell[rows], self.steps[:, rows])

    def part(self, start: int, stop: int) -> Atoms:
        """A run of the rows, without copying them."""
        return Atoms([word[start:stop] for word in self.words], self.cell[start:stop], self.steps[:, start:stop])

    @staticmethod
    def joined(parts: Sequence[Atoms]) -> Atoms:
        """All rows of several parts."""
        words = [np.concatenate(each) for each in zip(*(part.words for part in parts), strict=True)]
        cell = np.concatenate([part.cell for part in parts])
        return Atoms(words, cell, np.concatenate([part.steps for part in parts], axis=1))
