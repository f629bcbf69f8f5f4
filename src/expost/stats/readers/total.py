"""Counts and sums: one coordinate a cell."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
from expost.stats.readers.contract import CLEAR
from expost.stats.reading import Reading

__all__ = ["TotalReader"]


@dataclass(frozen=True)
class TotalReader:
    """Reads a count or a sum; ``least`` and ``most`` are public limits of the exact answer.

    ``slack`` is what rounding to the grid can have moved it, by which intervals are wider.

    >>> reading = TotalReader(least=0).read(np.array([[3, 50]]), scale=2.0, level=0.05)
    >>> reading.low.tolist(), reading.high.tolist()
    ([0.0, 44.0], [9.0, 56.0])
    """

    unit: Fraction = Fraction(1)
    least: float = -np.inf
    most: float = np.inf
    slack: Fraction = Fraction(0)
    linear = True

    @property
    def signed(self) -> bool:
        """Whether the exact answer may be negative."""
        return self.least < 0

    def informed(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Whether the noisy number of rows is clear of the noise."""
        return np.asarray(np.abs(noisy[0]) > CLEAR * scale)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell, by the exact tail of the noise."""
        unit = float(self.unit)
        value = noisy[0].astype(np.float64) * unit
        radius = noise_radius(level, scale) * unit + float(self.slack)
        ends = (np.clip(end, self.least, self.most) for end in (value, value - radius, value + radius))
        return Reading(*ends)
