"""What a reader does."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.stats.reading import Reading

__all__ = ["CLEAR", "ClimbedReader", "Reader"]

CLEAR = 24.0
"""Noise scales from which on a number of rows is clear of a few noises added up."""


class Reader(Protocol):
    """Reads a statistic off the noisy coordinates of all cells; every number here is public."""

    @property
    def linear(self) -> bool:
        """Whether the value is one coordinate times a constant, so that its error is known before the run."""
        ...

    @property
    def unit(self) -> Fraction:
        """What one lattice unit of a linear statistic is worth."""
        ...

    @property
    def signed(self) -> bool:
        """Whether a linear statistic may be negative; public."""
        ...

    @property
    def slack(self) -> Fraction:
        """How far the exact integers of a linear statistic can be from its answer, by rounding; public."""
        ...

    def informed(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Whether the noisy number of rows of each cell is clear of noise of this ``scale``: worth a forecast."""
        ...

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Values and intervals; ``noisy`` has one row a coordinate and one column a cell.

        Each interval covers its exact answer with probability at least 1 - ``level`` over discrete Laplace noise of
        this ``scale``, drawn independently for each coordinate.
        """
        ...


class ClimbedReader:
    """The base of readers whose error depends on the rows, so that the level is found by climbing.

    Their coordinates are shares of rows: they add up to the number of rows in lattice units.
    """

    linear = False
    signed = True
    unit = Fraction(1)
    slack = Fraction(0)

    def informed(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Whether the noisy number of rows is clear of the noise."""
        return np.asarray(noisy.sum(axis=0) > CLEAR * scale)
