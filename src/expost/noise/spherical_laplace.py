"""Exact lattice noise that falls off with the Euclidean norm: pure privacy for L2 sensitivities."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.rational import whole
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Norm, Sensitivity
from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import is_above, is_below, ratio
from expost.noise.gaussian import draw_gaussian
from expost.noise.lattice import distance_in, integers, released_sum, unwrapped
from expost.noise.parameter import MOST_NUMBERS, Parameter, exact_parameter
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.uniform_reals import MINUS_LOG_ERROR, UniformReals

__all__ = ["GRID_RATIO", "SphericalLaplaceMechanism", "largest_scale", "least_step", "shape_of", "spherical_laplace"]

_ROOT = Fraction(2049, 2048)
GRID_RATIO = _ROOT**2
"""Variances are drawn on a geometric grid of this ratio; it is also what the grid costs, as a factor on epsilon."""

_LOG_ROOT = math.log1p(1 / 2048)
_LOG_RATIO = 2 * _LOG_ROOT
_LOWEST = 32  # variances more than this factor below their usual size are drawn again
_FLOAT_ERROR = 2.0**-40  # far above the rounding of the float steps and coins below


def shape_of(dimension: int) -> int:
    """How many exponentials the variance is made of: the least whole number not below (dimension + 1) / 2.

    >>> shape_of(3), shape_of(4)
    (2, 3)
    """
    return dimension // 2 + 1


def largest_scale(dimension: int) -> int:
    """The widest noise that can be drawn: its Gaussians must stay below 2^76 lattice units (``draw_geometric``).

    Sums of exponentials beyond 2 shape + 200 have probability below e^-100; they would be refused when drawn.

    >>> 2**70 < largest_scale(2) < 2**72
    True
    """
    return math.isqrt((1 << 151) // (4 * shape_of(dimension) + 400))


def least_step() -> int:
    """The step of the grid that variances must exceed, counted from their usual size.

    >>> least_step() < 0
    True
    """
    return -math.floor(math.log(_LOWEST) / _LOG_RATIO)


def spherical_laplace(scale: Fraction, dimension: int, runs: int, *, bits: BitSource | None = None) -> NDArray[Any]:
    """Integer vectors, one a row, of a law that depends on the Euclidean norm alone.

    Its logarithm changes by at most |k - k'|_2 GRID_RATIO / scale between any two lattice points, and it is close to
    exp(-|k|_2 / scale): a Gaussian on the lattice whose variance is random (docs/proofs/spherical-laplace.md).

    >>> from expost.noise.bits import SeededBits
    >>> spherical_laplace(Fraction(100), 3, 2, bits=SeededBits(1)).shape
    (2, 3)
    """
    dimension = whole(dimension, "dimension", least=1, most=MOST_NUMBERS)
    scale = exact_parameter(scale, "scale", largest=largest_scale(dimension))
    runs = whole(runs, "runs", most=MOST_NUMBERS // dimension)
    source = source_of(bits)
    steps = draw_steps(dimension, runs, source)
    kept, index = np.unique(steps, return_inverse=True)
    unit = 2 * scale**2 * shape_of(dimension)
    # From step to step: powers of their own would take a hundred times as long.
    factors = [GRID_RATIO ** int(gap) for gap in np.diff(kept, prepend=0)]
    table = list(accumulate(factors, operator.mul, initial=unit))[1:]
    variance = Parameter.of_table(table, np.repeat(index.reshape(-1), dimension), (runs * dimension,))
    return draw_gaussian(variance, source).reshape(runs, dimension)


def draw_steps(dimension: int, runs: int, bits: BitSource) -> NDArray[np.int64]:
    """The steps j of the grid at which the variance is 2 scale^2 shape GRID_RATIO^j.

    A sum of ``shape`` exponentials is rounded up to the grid. In even dimensions that is half an exponential too many:
    a step is then kept with a probability that falls like the root of the variance.
    """
    steps = np.empty(runs, np.int64)
    pending = np.arange(runs)
    lowest = least_step()
    while pending.size:
        drawn = _rounded_up(shape_of(dimension), pending.size, bits)
        kept = drawn > lowest
        if dimension % 2 == 0:
            kept &= _coins(np.maximum(drawn - lowest, 0), bits)
        steps[pending] = drawn
        pending = pending[~kept]
    return steps


def _rounded_up(shape: int, count: int, bits: BitSource) -> NDArray[np.int64]:
    """The least j with sum <= shape GRID_RATIO^j, for sums of exponentials; exact."""
    reals = UniformReals(count * shape, bits)
    sums = np.maximum(reals.minus_log().reshape(count, shape).sum(axis=1), shape * 1e-9)  # drawn again anyway
    places = np.log(sums / shape) / _LOG_RATIO
    error = (shape * MINUS_LOG_ERROR / sums + _FLOAT_ERROR * (1 + np.abs(places) * _LOG_RATIO)) / _LOG_RATIO
    steps: NDArray[np.int64] = np.ceil(places - error).astype(np.int64)
    for row in np.flatnonzero(np.ceil(places + error) != steps).tolist():
        members = range(row * shape, (row + 1) * shape)
        while _exceeds(reals, members, shape * GRID_RATIO ** int(steps[row])):
            steps[row] += 1
    return steps


def _exceeds(reals: UniformReals, members: range, border: Fraction) -> bool:
    def refine() -> None:
        for member in members:
            reals.refine(member)

    return is_above(partial(reals.minus_log_bounds, members), partial(ratio, border), refine)


def _coins(above: NDArray[np.int64], bits: BitSource) -> NDArray[np.bool_]:
    """Coins that succeed with probability _ROOT^-above, exact."""
    words = bits.words(len(above))
    excess = words * 2.0**-64 - np.exp(-above * _LOG_ROOT)
    coins: NDArray[np.bool_] = excess < 0
    for place in np.flatnonzero(np.abs(excess) <= _FLOAT_ERROR).tolist():
        coins[place] = is_below(int(words[place]), 64, partial(ratio, 1 / _ROOT ** int(above[place])), bits)
    return coins


@dataclass(frozen=True)
class SphericalLaplaceMechanism(PureMechanism):
    """Adds integer noise whose law depends on its Euclidean norm alone, close to exp(-epsilon |k|_2 / sensitivity).

    Per coordinate its variance is about (n + 1) (sensitivity / epsilon)^2 in n dimensions, half of what independent
    Laplace coordinates need for the same L2 sensitivity.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units.
    Accuracy: |error|_2 <= scale * spherical_norm_quantile(...) (expost.accuracy.spherical_norm), on a fine lattice.
    Numerics: exact; a mixture of exact discrete Gaussians, the variance drawn from exact coins. The grid of variances
        costs a factor of GRID_RATIO (0.1 %), which is in the scale.
    Reference: docs/proofs/spherical-laplace.md (ours); CMS11, Algorithm 1 (the law on reals).

    >>> from expost.noise import SeededBits
    >>> sealed = Sealed(np.array([300, 400]), Sensitivity(10, Norm.L2))
    >>> SphericalLaplaceMechanism(1).release(sealed, bits=SeededBits(1)).shape
    (2,)
    """

    def scale(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Fraction:
        """The scale of the noise: sensitivity GRID_RATIO / epsilon."""
        # docs/proofs/spherical-laplace.md, Theorem: the log of the law has slope at most GRID_RATIO / scale.
        return distance_in(Norm.L2, sensitivity, coordinates) * GRID_RATIO / self.epsilon

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> Any:
        """The sealed integers plus noise, in the same shape."""
        return unwrapped(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        """Independent runs on an answer the caller knows anyway, one a row: for audits and planning."""
        values = integers(exact)
        if not values.size:
            raise InvalidRequest("Expected at least one integer", do="Release nothing instead")
        scale = self.scale(sensitivity, coordinates=values.size)
        noise = spherical_laplace(scale, values.size, runs, bits=bits)
        return released_sum(values[None], noise.reshape(runs, *values.shape))
