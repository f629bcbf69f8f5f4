"""Laws of the random tilt of an objective: what a privacy level buys, and how the tilt is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from expost.accuracy.laplace_norm import laplace_norm_quantile
from expost.accuracy.spherical_norm import spherical_norm_quantile
from expost.core import InvalidRequest, Norm
from expost.core.rational import round_up
from expost.data.matrix import UnitBall
from expost.noise import BitSource, discrete_gaussian, discrete_laplace, spherical_laplace
from expost.noise.gaussian_mechanism import gaussian_delta
from expost.noise.spherical_laplace import GRID_RATIO

__all__ = ["GaussianTilt", "LaplaceTilt", "SphericalTilt", "grid_below", "pure_tilt", "shortened"]

Floats = NDArray[np.float64]

_GRID_BITS = 36  # the scale of the tilt is about 2^36 grid units
_CLOSE = 1e-9  # relative, on the safe side of floats
_NEAR = 33  # grid units a coordinate: lattice Gaussians are rounded real ones this close, but for 1e-100 of the draws
_LATTICE_COST = (
    3.0e-16  # epsilon a coordinate for that rounding (docs/proofs/discrete-gaussian-calibration.md, t^2 = 2)
)
_LONGEST = 600  # bits of a draw beyond which only the direction of the tilt is kept; 2^-2^500 is its probability


def grid_below(scale: Fraction | float, bits: int = _GRID_BITS) -> Fraction:
    """A power of two that is about 2^bits times smaller than a scale, and never less.

    >>> grid_below(Fraction(5), 2)
    Fraction(1, 1)
    """
    return Fraction(2) ** (math.floor(math.log2(scale)) - bits)


def shortened(draws: NDArray[np.int64], grid: Fraction) -> Floats:
    """Integer draws in units of the grid, as floats; a vector too long for floats keeps its direction only.

    One vector, or a table with a vector in each row.

    >>> shortened(np.array([3, -4]), Fraction(1, 2))
    array([ 1.5, -2. ])
    """
    if draws.ndim > 1 and draws.dtype == np.int64:
        return np.asarray(
            draws * float(grid), np.float64
        )  # the grid is a power of two, and a vector of 64-bit integers is never too long
    if draws.ndim > 1:
        return np.array([shortened(each, grid) for each in draws])
    whole = [int(draw) for draw in draws]
    excess = max(0, max(draw.bit_length() for draw in whole) - _LONGEST)
    return np.array([float((draw >> excess) * grid) for draw in whole])


def _shape(runs: int | None, dimension: int) -> tuple[int, ...]:
    return (dimension,) if runs is None else (runs, dimension)


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

    def draw(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        """One tilt, or one in each of so many rows."""
        scale = self.scale(epsilon)
        grid = grid_below(scale)
        return shortened(discrete_laplace(scale / grid, _shape(runs, self.dimension), bits=bits), grid)


@dataclass(frozen=True)
class SphericalTilt:
    """A tilt whose density falls like exp(-epsilon |b|_2 / (2 steepest)), on a lattice.

    One row moves the sum of gradients by at most 2 steepest in the Euclidean norm. A tilt drawn on the lattice stands for
    a real one in its cell, which may be moved by half a diagonal (docs/proofs/spherical-laplace.md, as a tilt).

    >>> tilt, other = SphericalTilt(20, 1.0), LaplaceTilt(20, 1.0, math.sqrt(20))
    >>> tilt.length(Fraction(1), 0.1) < 0.75 * other.length(Fraction(1), 0.1)
    True
    """

    dimension: int
    steepest: float
    name = "spherical Laplace tilt"

    def _grid(self, epsilon: Fraction) -> Fraction:
        return grid_below(2 * Fraction(self.steepest) / epsilon)

    def scale(self, epsilon: Fraction) -> Fraction:
        """The scale of the noise in grid units."""
        diagonal = math.isqrt(self.dimension - 1) + 1  # the root of the dimension, rounded up
        return GRID_RATIO * (2 * round_up(self.steepest) / self._grid(epsilon) + diagonal) / epsilon

    def length(self, epsilon: Fraction, failure_probability: float) -> float:
        """A Euclidean length that the tilt exceeds with at most this probability."""
        units = float(self.scale(epsilon)) * spherical_norm_quantile(self.dimension, failure_probability)
        return float(self._grid(epsilon)) * (units + _NEAR * math.sqrt(self.dimension))

    def spacing(self, epsilon: Fraction) -> float:
        """How far, in Euclidean norm, what is drawn can be from an ideal tilt of real numbers."""
        return math.sqrt(self.dimension) * float(self._grid(epsilon))

    def draw(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        """One tilt, or one in each of so many rows."""
        draws = spherical_laplace(self.scale(epsilon), self.dimension, 1 if runs is None else runs, bits=bits)
        return shortened(draws.reshape(_shape(runs, self.dimension)), self._grid(epsilon))


@dataclass(frozen=True)
class GaussianTilt:
    """Independent normal coordinates, for (epsilon, delta)-DP.

    ``one_sided`` says that the slope of a row's loss has one sign, known from its label: the gradients of two rows then
    span fewer differences, and delta is nearly that of a single Gaussian (docs/proofs/gaussian-tilt.md).

    >>> tilt = GaussianTilt(20, 1.0, Fraction(1, 10**6), one_sided=True)
    >>> 8 < tilt.deviation(Fraction(1)) < 9
    True
    """

    dimension: int
    steepest: float
    delta: Fraction
    one_sided: bool
    name = "discrete Gaussian tilt"

    def deviation(self, epsilon: Fraction) -> float:
        """The standard deviation of each coordinate."""
        cost = _LATTICE_COST * self.dimension
        least = float(self.delta) * math.exp(-cost) * (1 - _CLOSE)
        if float(epsilon) <= 2 * cost:
            raise InvalidRequest("Expected an epsilon that leaves room for noise", got=epsilon, do="Raise epsilon")
        mu = _largest_tilt_mu(float(epsilon) - cost, least, self.one_sided)
        return 2 * self.steepest / mu * (1 + _CLOSE)

    def _grid(self, epsilon: Fraction) -> Fraction:
        return grid_below(self.deviation(epsilon), _GRID_BITS + 5)

    def length(self, epsilon: Fraction, failure_probability: float) -> float:
        """A Euclidean length that the tilt exceeds with at most this probability."""
        failure = failure_probability * (1 - _CLOSE)
        quantile = math.sqrt(2 * float(gammainccinv(self.dimension / 2, failure)))
        return self.deviation(epsilon) * quantile * (1 + _CLOSE) + self.spacing(epsilon)

    def spacing(self, epsilon: Fraction) -> float:
        """How far, in Euclidean norm, what is drawn can be from an ideal tilt of real numbers."""
        return _NEAR * math.sqrt(self.dimension) * float(self._grid(epsilon))

    def draw(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        """One tilt, or one in each of so many rows."""
        grid = self._grid(epsilon)
        variance = (Fraction(self.deviation(epsilon)) / grid) ** 2 + 2  # 2 grid units squared for the rounding
        return shortened(discrete_gaussian(variance, _shape(runs, self.dimension), bits=bits), grid)


@lru_cache(maxsize=1024)
def _largest_tilt_mu(epsilon: float, delta: float, one_sided: bool) -> float:
    """The largest 2 steepest / deviation that is (epsilon, delta)-DP, never above it (docs/proofs/gaussian-tilt.md)."""
    # Two-sided slopes: beyond this two short moves could cost more than one long one.
    most = math.inf if one_sided else math.sqrt(2 * (math.sqrt(1 + epsilon**2) - 1)) * (1 - _CLOSE)

    def fits(mu: float) -> bool:
        longest = gaussian_delta(epsilon, mu)
        corners = longest + 2 * gaussian_delta(epsilon, mu / 2) if one_sided else 2 * longest
        return mu <= most and corners <= delta

    low, high = 0.0, 1.0
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
        if high < 1e-12:
            raise InvalidRequest("Expected an epsilon that leaves room for noise", got=epsilon, do="Raise epsilon")
    return low


def pure_tilt(ball: UnitBall, steepest: float) -> LaplaceTilt | SphericalTilt:
    """The shorter of the two pure tilts: coordinatewise for rows of bounded 1-norm, spherical in a Euclidean ball.

    >>> pure_tilt(UnitBall(5, Norm.L2), 1.0).name, pure_tilt(UnitBall(5, Norm.L1), 1.0).name
    ('spherical Laplace tilt', 'discrete Laplace tilt')
    """
    # Rows of 1-norm at most 1 need no spread; a Euclidean ball of dimension 1 is the same ball.
    if ball.norm is Norm.L2 and ball.dimension > 1:
        return SphericalTilt(ball.dimension, steepest)
    return LaplaceTilt(ball.dimension, steepest, 1.0)
