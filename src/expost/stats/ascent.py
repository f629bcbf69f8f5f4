"""How a climb ended: for every cell a value, an interval, a rung and whether the target was reached."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder, Step
from expost.stats.reading import Reading

__all__ = ["Ascent"]


@dataclass(frozen=True)
class Ascent:
    """The public result of a climb: ``rung`` is where each cell was read, ``scouted`` was paid besides the rungs, ``paid`` before."""

    reading: Reading
    rung: NDArray[np.int64]
    met: NDArray[np.bool_]
    ladder: Ladder
    steps: tuple[Step, ...] = ()
    scouted: Fraction = Fraction(0)
    paid: Fraction = Fraction(0)

    @property
    def top(self) -> int:
        """The highest rung read: what the climb is billed for."""
        return int(self.rung.max())

    @property
    def cost(self) -> Fraction:
        """Scout and highest rung together, less what earlier answers of the same path have paid."""
        return self.scouted + max(self.ladder[self.top] - self.paid, Fraction(0))
