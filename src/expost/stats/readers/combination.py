"""Counts and sums read off the shares of another statistic's path."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.stats.readers.contract import ClimbedReader
from expost.stats.reading import Reading

__all__ = ["CombinationReader", "combination_radius"]


@dataclass(frozen=True)
class CombinationReader(ClimbedReader):
    """Reads a fixed linear combination of the coordinates of each cell.

    ``rounding`` is how far each row can be from the grid, and ``rows`` the combination that counts the rows; half of
    the level is then spent on how many there can be.

    >>> reader = CombinationReader((Fraction(1, 10), Fraction(1, 10)))
    >>> reader.read(np.array([[300], [700]]), scale=10.0, level=0.05).value.tolist()
    [100.0]
    """

    weights: tuple[Fraction, ...]
    least: float = -np.inf
    most: float = np.inf
    rows: tuple[Fraction, ...] = ()
    rounding: float = 0.0

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell."""
        floats = noisy.astype(np.float64)
        weights = np.array([float(weight) for weight in self.weights])
        value, radius = weights @ floats, np.zeros(noisy.shape[1])
        if self.rounding:
            level = level / 2
            counts = np.array([float(weight) for weight in self.rows])
            most_rows = counts @ floats + combination_radius(counts, scale, level)
            radius = np.maximum(most_rows, 0.0) * self.rounding
        radius = radius + combination_radius(weights, scale, level)
        ends = (np.clip(end, self.least, self.most) for end in (value, value - radius, value + radius))
        return Reading(*ends)


def combination_radius(weights: NDArray[np.float64], scale: float, level: float) -> float:
    """A radius that a weighted sum of independent discrete Laplace noises exceeds in size with at most ``level``.

    Chernoff with E exp(g X) = 1 / (1 - 4 a sinh(g / 2)^2 / (1 - a)^2), a = exp(-1 / scale), for |g| < 1 / scale; the
    best multiplier on a fixed grid is taken.

    >>> combination_radius(np.array([1.0]), 10.0, 0.05) > 30
    True
    """
    a, spread = np.exp(-1 / scale), -np.expm1(-1 / scale)
    sizes = np.abs(weights)
    h = np.linspace(0.01, 0.99, 99)[:, None] / (scale * sizes.max())
    log_moment = -np.log1p(-4 * a * (np.sinh(h * sizes / 2) / spread) ** 2).sum(axis=1)
    return float(((log_moment + np.log(2 / level)) / h[:, 0]).min() * (1 + 1e-9))
