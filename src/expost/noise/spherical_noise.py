"""Noise that falls off with the Euclidean norm, for pure privacy with L2 sensitivities.

On the lattice and exact (``SphericalLaplaceMechanism``), and as a gradual release on floats for research
(``RadialLaplacePath``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed, Sensitivity, unseal
from expost.core.rational import whole
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import MINUS_LOG_ERROR, UniformReals, bound_ratio, is_below
from expost.noise.lattice import add_noise, read_integers
from expost.noise.lattice_sampler import draw_gaussian
from expost.noise.mechanism import PureMechanism, SealedMechanism
from expost.noise.parameter import MOST_NUMBERS, Parameter, read_parameter, sensitivity_in, share_noise_parameters
from expost.noise.release_path import ReleasePath, check_norm, check_rung, read_ladder

__all__ = [
    "GRID_RATIO",
    "RadialLaplacePath",
    "SphericalLaplaceMechanism",
    "largest_scale",
    "least_step",
    "sample_spherical_laplace",
    "shape_of",
]

Floats = NDArray[np.float64]

_ROOT = Fraction(2049, 2048)
GRID_RATIO = _ROOT**2
"""Variances are drawn on a geometric grid of this ratio; it is also what the grid costs, as a factor on epsilon."""

_LOG_ROOT = math.log1p(1 / 2048)
_LOG_RATIO = 2 * _LOG_ROOT
_LOWEST = 32  # variances more than this factor below their usual size are drawn again
_FLOAT_ERROR = 2.0**-40  # far above the rounding of the float steps and coins below


def shape_of(dimension: int) -> int:
    """Return how many exponentials the variance is made of: the least whole number not below (dimension + 1) / 2."""
    return dimension // 2 + 1


def largest_scale(dimension: int) -> int:
    """Return the widest noise that can be drawn: its Gaussians must stay below 2^76 lattice units (``draw_geometric``).

    Sums of exponentials beyond 2 shape + 200 have probability below e^-100; they would be refused when drawn.
    """
    return math.isqrt((1 << 151) // (4 * shape_of(dimension) + 400))


def least_step() -> int:
    """Return the step of the grid that variances must exceed, counted from their usual size."""
    return -math.floor(math.log(_LOWEST) / _LOG_RATIO)


@share_noise_parameters
def sample_spherical_laplace(
    scale: int | float | Fraction, dimension: int, runs: int, *, bits: BitSource | None = None
) -> NDArray[Any]:
    """Draw integer vectors of a law that depends on the Euclidean norm alone, close to exp(-|k|_2 / scale).

    Its logarithm changes by at most |k - k'|_2 GRID_RATIO / scale between any two lattice points: a Gaussian on the
    lattice whose variance is random (docs/proofs/spherical-laplace.md).

    Parameters
    ----------
    scale : number
        An exact rational > 0, in lattice units; a float means its shortest decimal.
    dimension : int
        The length of each vector.
    runs : int
        How many vectors to draw.

    Returns
    -------
    numpy.ndarray
        One vector per row: int64, or Python integers where a value needs more than 62 bits.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sample_spherical_laplace(100, 3, 2, bits=SeededBits(1)).shape
    (2, 3)
    """
    dimension = whole(dimension, "dimension", least=1, most=MOST_NUMBERS)
    exact = read_parameter(scale, "scale", largest=largest_scale(dimension))
    runs = whole(runs, "runs", most=MOST_NUMBERS // dimension)
    source = resolve_bits(bits)
    steps = draw_steps(dimension, runs, source)
    # The steps of many runs repeat, so the exact powers are computed once per distinct step.
    kept, index = np.unique(steps, return_inverse=True)
    unit = 2 * exact**2 * shape_of(dimension)
    # From step to step: powers of their own would take a hundred times as long.
    factors = [GRID_RATIO ** int(gap) for gap in np.diff(kept, prepend=0)]
    table = list(accumulate(factors, operator.mul, initial=unit))[1:]
    variance = Parameter.of_table(table, np.repeat(index.reshape(-1), dimension), (runs * dimension,))
    return draw_gaussian(variance, source).reshape(runs, dimension)


def draw_steps(dimension: int, runs: int, bits: BitSource) -> NDArray[np.int64]:
    """Draw the steps j of the grid at which the variance is 2 scale^2 shape GRID_RATIO^j.

    A sum of ``shape`` exponentials is rounded up to the grid. In even dimensions that is half an exponential too many:
    a step is then kept with a probability that falls like the root of the variance.
    """
    steps = np.empty(runs, np.int64)
    pending = np.arange(runs)
    lowest = least_step()
    while pending.size:
        drawn = _round_sums_up(shape_of(dimension), pending.size, bits)
        # Below the lowest step the sum is drawn again: the law is that of a sum conditioned on being above it.
        kept = drawn > lowest
        if dimension % 2 == 0:
            # Coins that succeed with probability _ROOT^-above, exact.
            above, words = np.maximum(drawn - lowest, 0), bits.words(len(drawn))
            excess = words * 2.0**-64 - np.exp(-above * _LOG_ROOT)
            coins = excess < 0
            for place in np.flatnonzero(np.abs(excess) <= _FLOAT_ERROR).tolist():
                exact = partial(bound_ratio, 1 / _ROOT ** int(above[place]))
                coins[place] = is_below(int(words[place]), 64, exact, bits)
            kept &= coins
        steps[pending] = drawn
        pending = pending[~kept]
    return steps


def _round_sums_up(shape: int, count: int, bits: BitSource) -> NDArray[np.int64]:
    """Find the least j with sum <= shape GRID_RATIO^j, for sums of exponentials; exact."""
    reals = UniformReals(bits.words(count * shape), bits)
    sums = np.maximum(reals.minus_log().reshape(count, shape).sum(axis=1), shape * 1e-9)  # drawn again anyway
    # Floats guess the step; where their error leaves two candidates, exact bounds decide.
    places = np.log(sums / shape) / _LOG_RATIO
    error = (shape * MINUS_LOG_ERROR / sums + _FLOAT_ERROR * (1 + np.abs(places) * _LOG_RATIO)) / _LOG_RATIO
    steps: NDArray[np.int64] = np.ceil(places - error).astype(np.int64)
    for row in np.flatnonzero(np.ceil(places + error) != steps).tolist():
        members = range(row * shape, (row + 1) * shape)
        while reals.sum_exceeds(members, partial(bound_ratio, shape * GRID_RATIO ** int(steps[row]))):
            steps[row] += 1
    return steps


@share_noise_parameters
@dataclass(frozen=True)
class SphericalLaplaceMechanism(PureMechanism, SealedMechanism[Any]):
    """Adds integer noise whose law depends on its Euclidean norm alone, close to exp(-epsilon |k|_2 / sensitivity).

    Per coordinate its variance is about (n + 1) (sensitivity / epsilon)^2 in n dimensions, half of what independent
    Laplace coordinates need for the same L2 sensitivity.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units.
    Accuracy: |error|_2 <= scale * spherical_norm_quantile(...) (expost.accuracy.noise_norm), on a fine lattice.
    Numerics: exact; a mixture of exact discrete Gaussians, the variance drawn from exact coins. The grid of variances
        costs a factor of GRID_RATIO (0.1 %), which is in the scale.
    Reference: docs/proofs/spherical-laplace.md (ours); CMS11, Algorithm 1 (the law on reals).

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> sealed = Sealed(np.array([300, 400]), Sensitivity(10, Norm.L2))
    >>> SphericalLaplaceMechanism(1).release(sealed, bits=SeededBits(1)).shape
    (2,)
    """

    @share_noise_parameters
    def scale(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Fraction:
        """Return the scale of the noise, sensitivity GRID_RATIO / epsilon."""
        # docs/proofs/spherical-laplace.md, Theorem: the log of the law has slope at most GRID_RATIO / scale.
        return sensitivity_in(Norm.L2, sensitivity, coordinates) * GRID_RATIO / self.epsilon

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        values = read_integers(exact)
        if not values.size:
            raise InvalidRequest("Expected at least one integer", do="Release nothing instead")
        scale = self.scale(sensitivity, coordinates=values.size)
        noise = sample_spherical_laplace(scale, values.size, runs, bits=bits)
        return add_noise(values[None], noise.reshape(runs, *values.shape))


@share_noise_parameters
class RadialLaplacePath(ReleasePath):
    """A real vector under noise of density proportional to exp(-epsilon_r |z|_2 / sensitivity), rung by rung.

    RESEARCH, not for release: the noise is made of floats, and float noise leaks through its low bits
    (docs/known-limits.md). It shows what pure DP with an L2 sensitivity would cost.

    Guarantee: pure ex-post, known only after the run: loss ``epsilon_r`` of the last rung read, for real arithmetic.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together.
    Accuracy: |error|_2 has the law Gamma(size, sensitivity / epsilon_r).
    Numerics: real-number claim only; floats throughout, so the guarantee does not hold for the bits that come out.
    Reference: docs/proofs/radial-laplace.md.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sealed = Sealed(np.array([3.0, 4.0]), Sensitivity(1, Norm.L2))
    >>> RadialLaplacePath(sealed, Ladder.of([0.1, 1]), bits=SeededBits(1)).at(1).shape
    (2,)
    """

    _kind = "radial Laplace path (research)"

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        super().__init__()
        amount, source = check_norm(sealed, Norm.L2), resolve_bits(bits)
        self._ladder, self.private = read_ladder(ladder), source.private
        exact = np.atleast_1d(np.asarray(unseal(sealed), dtype=float))
        if exact.ndim != 1 or not exact.size:
            raise InvalidRequest("Expected a sealed number or a flat array of numbers", do="Flatten it")
        self._size = len(exact)
        rates = np.array([float(rung) for rung in self._ladder]) / float(amount)
        steps = np.zeros((len(rates), self._size))
        # The top rung has the least noise; every step down adds an independent Gaussian mixture.
        steps[-1] = _draw_radial(self._size, rates[-1], 1, source)[0]
        spreads = np.sqrt(2 * _draw_mixing_sums(self._size, rates, source))
        hit = np.flatnonzero(spreads)
        steps[hit] += spreads[hit, None] * _draw_normals(len(hit) * self._size, source).reshape(-1, self._size)
        self._values: Floats = exact + np.cumsum(steps[::-1], axis=0)[::-1]

    @staticmethod
    @share_noise_parameters
    def simulate(sealed: Sealed, epsilon: float | Fraction, *, runs: int, bits: BitSource | None = None) -> Floats:
        """Draw independent paths of one rung on an answer that the caller has anyway: for audits.

        Parameters
        ----------
        epsilon : float or Fraction
            The level of the rung.
        """
        exact = np.atleast_1d(np.asarray(unseal(sealed), dtype=float))
        rate = float(epsilon) / float(check_norm(sealed, Norm.L2))
        return np.asarray(exact + _draw_radial(len(exact), rate, runs, resolve_bits(bits)))

    @share_noise_parameters
    def loss(self, rung: int) -> PureLoss:
        """Return what reading every rung up to this one would cost in real arithmetic."""
        return PureLoss(self._ladder[check_rung(self._ladder, rung)])

    def at(self, rung: int) -> Floats:
        return self.block(rung, rung + 1).reshape(self._size)

    def block(self, start: int, stop: int) -> Floats:
        rows: Floats = self._values[slice(*self._check_block(start, stop))].copy()
        return rows


def _draw_mixing_sums(size: int, rates: Floats, bits: BitSource) -> Floats:
    """Draw, per rung, the mixing variable of the noise that is added on the step down to it.

    A Poisson process of rate size + 1 in ln(rate); a jump at rate e adds an exponential of mean 1 / e^2
    (docs/proofs/radial-laplace.md).
    """
    length = (size + 1) * math.log(rates[-1] / rates[0])
    places = np.empty(0)  # the points of a unit-rate Poisson process on [0, length)
    while not places.size or places[-1] < length:
        more = np.cumsum(_draw_exponentials(int(length + 6 * math.sqrt(length)) + 8, bits))
        places = np.concatenate([places, more + (places[-1] if places.size else 0.0)])
    # Places are measured down from the top rung in units of (size + 1) ln(rate).
    levels = rates[-1] * np.exp(-places[places < length] / (size + 1))
    sums = np.zeros(len(rates))
    rungs = np.clip(np.searchsorted(rates, levels, side="right") - 1, 0, len(rates) - 1)
    np.add.at(sums, rungs, _draw_exponentials(len(levels), bits) / levels**2)
    return sums


def _draw_radial(size: int, rate: float, runs: int, bits: BitSource) -> Floats:
    """Draw vectors of density proportional to exp(-rate |z|_2), one per row."""
    direction = _draw_normals(runs * size, bits).reshape(runs, size)
    exponentials = _draw_exponentials(runs * size, bits).reshape(runs, size)
    radius = exponentials.sum(axis=1) / rate  # Gamma(size): a sum of exponentials
    return np.asarray(direction * (radius / np.linalg.norm(direction, axis=1))[:, None])


def _draw_exponentials(count: int, bits: BitSource) -> Floats:
    # The middle of the cell of each word: never 0, so the log is finite.
    return np.asarray(-np.log((bits.words(count).astype(float) + 0.5) * 2.0**-64))


def _draw_normals(count: int, bits: BitSource) -> Floats:
    """Draw standard normals by the polar angle and radius (BM58)."""
    half = -(-count // 2)
    radius = np.sqrt(2 * _draw_exponentials(half, bits))
    angle = bits.words(half) * (2 * math.pi * 2.0**-64)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
