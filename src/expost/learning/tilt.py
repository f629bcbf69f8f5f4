"""Laws of the random tilt of an objective: what a privacy level buys, and how the tilt is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.laplace_norm import laplace_norm_quantile
from expost.core.rational import round_up
from expost.noise import BitSource, discrete_laplace

__all__ = ["LaplaceTilt", "grid_below", "shortened"]

Floats = NDArray[np.float64]

_GRID_BITS = 36  # the scale of the tilt is about 2^36 grid units
_LONGEST = 600  # bits of a draw beyond which only the direction of the tilt is kept; 2^-2^500 is its probability


def grid_below(scale: Fraction | float, bits: int = _GRID_BITS) -> Fraction:
    """A power of two that is about 2^bits times smaller than a scale, and never less.

    >>> grid_below(Fraction(5), 2)
    Fraction(1, 1)
    """
    return Fraction(2) ** (math.floor(math.log2(scale)) - bits)


def shortened(draws: NDArray[np.int64], grid: Fraction) -> Floats:
    """Integer draws in units of the grid, as floats; a vector too long for floats keeps its direction only.

    >>> shortened(np.array([3, -4]), Fraction(1, 2))
    array([ 1.5, -2. ])
    """
    whole = [int(draw) for draw in draws]
    excess = max(0, max(draw.bit_length() for draw in whole) - _LONGEST)
    return np.array([float((draw >> excess) * grid) for draw in whole])


@dataclass(frozen=True)
class LaplaceTilt:
    """Independent Laplace coordinates of scale 2 steepest spread / epsilon.

    One row moves the sum of gradients by at most 2 steepest spread in the 1-norm, where ``spread`` is the largest 1-norm of
    a row: 1, or the root of the dimension in a Euclidean ball.

    >>> round(float(LaplaceTilt(3, steepest=1.0, spread=1.0).scale(Fraction(1, 2))), 6)
    4.0
    """

    dimension: int
    steepest: float
    spread: float
    name = "discrete Laplace tilt"

    def scale(self, epsilon: Fraction) -> Fraction:
        """The scale of each coordinate."""
        return 2 * round_up(self.steepest * self.spread) / epsilon

    def length(self, epsilon: Fraction, failure_probability: float) -> float:
        """A Euclidean length that the tilt exceeds with at most this probability."""
        return float(self.scale(epsilon)) * laplace_norm_quantile(self.dimension, failure_probability)

    def spacing(self, epsilon: Fraction) -> float:
        """How far, in Euclidean norm, what is drawn can be from an ideal tilt of real numbers."""
        # A discrete Laplace variable can be drawn together with a real one less than a grid unit away.
        return math.sqrt(self.dimension) * float(grid_below(self.scale(epsilon)))

    def draw(self, epsilon: Fraction, bits: BitSource | None) -> Floats:
        """One tilt."""
        scale = self.scale(epsilon)
        grid = grid_below(scale)
        return shortened(discrete_laplace(scale / grid, self.dimension, bits=bits), grid)
