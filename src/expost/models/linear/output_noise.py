"""Noise on an exact minimum: what a privacy level buys, and how it is added."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.curved_sphere import curved_gaussian_bound, curved_spherical_bound
from expost.accuracy.laplace_norm import laplace_norm_quantile
from expost.accuracy.output_certificate import curved_noise_bound
from expost.accuracy.spherical_norm import spherical_norm_quantile
from expost.core import Adjacency, ApproxGuarantee, InvalidRequest, Ladder, Norm, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.noise import BitSource, DiscreteLaplacePath, GaussianMechanism, SphericalLaplaceMechanism
from expost.noise.parameter import LARGEST_SCALE

__all__ = ["GaussianOutput", "LaplaceOutput", "OutputNoise", "SphericalOutput", "Valley", "smallest_epsilon"]

_BITS = 30  # the distance between neighbouring minima is about 2^30 grid steps
_LATTICE = 1e-6  # relative: 33 grid steps a coordinate, for the distance of lattice noise from real noise
_CLOSE = 1e-9

Seal = Callable[[float, int, Norm], Sealed]


@dataclass(frozen=True)
class Valley:
    """The public shape of a risk around its minimum: rows in a unit ball, curvature of the loss at most ``sharpest``."""

    dimension: int
    norm: Norm
    penalty: float
    sharpest: float
    distance: float
    """How far apart the computed minima of neighbouring tables can be, in Euclidean norm."""
    left: float
    """How far a computed minimum can be from the exact one."""

    @property
    def step(self) -> float:
        """The grid on which minima are released."""
        return math.ldexp(1.0, math.floor(math.log2(self.distance)) - _BITS)

    def excess(self, noise: float) -> float:
        """The risk above the minimum when noise alone would cost this much: the solver's distance is added."""
        # |w + z|_H <= |w|_H + |z|_H for half the quadratic form H = sharpest X'X / n + penalty.
        solver = math.sqrt((self.sharpest + self.penalty) / 2) * self.left
        return (math.sqrt(noise) * (1 + _LATTICE) + solver) ** 2

    def curved(self, worst: float, quantile: float) -> float:
        """The cost of noise of scale 1: half the penalty times the smaller of two bounds on its curved square."""
        steep = 1 + self.sharpest / self.penalty
        return self.penalty / 2 * min(worst, steep * quantile**2)


class OutputNoise(Protocol):
    """A law of noise on a minimum."""

    @property
    def name(self) -> str:
        """What receipts call it."""
        ...

    def excess(self, epsilon: Fraction, failure_probability: float) -> float:
        """The risk above the minimum that is exceeded with at most this probability."""
        ...

    def release(self, seal: Seal, epsilon: Fraction, bits: BitSource | None) -> NDArray[np.float64]:
        """The minimum under noise; ``seal`` puts it on a grid of a step, under a sensitivity in steps of a norm."""
        ...


@dataclass(frozen=True)
class LaplaceOutput:
    """Independent Laplace noise on each coefficient; sensitivity in the 1-norm."""

    valley: Valley
    name = "discrete Laplace noise"

    @property
    def _units(self) -> int:
        # Rounding moves each coordinate of either neighbour by at most half a step.
        valley = self.valley
        spread = math.sqrt(valley.dimension) * valley.distance
        return math.ceil(spread / valley.step * (1 + _CLOSE)) + valley.dimension

    def excess(self, epsilon: Fraction, failure_probability: float) -> float:
        """The risk above the minimum that is exceeded with at most this probability."""
        valley = self.valley
        if self._units > LARGEST_SCALE * epsilon:
            return math.inf  # too wide to be drawn: the spherical law is there
        scale = self._units * valley.step / float(epsilon)
        worst = math.inf
        if valley.norm is Norm.L1:
            curvature = valley.sharpest / valley.penalty
            worst = curved_noise_bound(valley.dimension, curvature, failure_probability)
        cost = valley.curved(worst, laplace_norm_quantile(valley.dimension, failure_probability))
        return valley.excess(scale**2 * cost)

    def release(self, seal: Seal, epsilon: Fraction, bits: BitSource | None) -> NDArray[np.float64]:
        """The minimum under noise."""
        sealed = seal(self.valley.step, self._units, Norm.L1)
        return _floats(DiscreteLaplacePath(sealed, Ladder((epsilon,)), bits=bits).at(0), self.valley.step)


class _Euclidean:
    """Sensitivity in the Euclidean norm, for laws that depend on it alone."""

    valley: Valley

    @property
    def _units(self) -> int:
        valley = self.valley
        rounding = math.isqrt(valley.dimension - 1) + 1  # half a step a coordinate, on either side
        return math.ceil(valley.distance / valley.step * (1 + _CLOSE)) + rounding

    @property
    def _sensitivity(self) -> Sensitivity:
        return Sensitivity(self._units, Norm.L2, Adjacency.REPLACE_ONE)


@dataclass(frozen=True)
class SphericalOutput(_Euclidean):
    """Noise that falls off with the Euclidean norm."""

    valley: Valley
    name = "spherical Laplace noise"

    def excess(self, epsilon: Fraction, failure_probability: float) -> float:
        """The risk above the minimum that is exceeded with at most this probability."""
        valley = self.valley
        mechanism = SphericalLaplaceMechanism(epsilon)
        scale = float(mechanism.scale(self._sensitivity, coordinates=valley.dimension)) * valley.step
        worst = curved_spherical_bound(valley.dimension, valley.sharpest / valley.penalty, failure_probability)
        cost = valley.curved(worst, spherical_norm_quantile(valley.dimension, failure_probability))
        return valley.excess(scale**2 * cost)

    def release(self, seal: Seal, epsilon: Fraction, bits: BitSource | None) -> NDArray[np.float64]:
        """The minimum under noise."""
        sealed = seal(self.valley.step, self._units, Norm.L2)
        return _floats(SphericalLaplaceMechanism(epsilon).release(sealed, bits=bits), self.valley.step)


@dataclass(frozen=True)
class GaussianOutput(_Euclidean):
    """Gaussian noise on each coefficient, for (epsilon, delta)-DP."""

    valley: Valley
    delta: Fraction
    name = "discrete Gaussian noise"

    def _mechanism(self, epsilon: Fraction) -> GaussianMechanism:
        return GaussianMechanism(ApproxGuarantee(epsilon, self.delta))

    def excess(self, epsilon: Fraction, failure_probability: float) -> float:
        """The risk above the minimum that is exceeded with at most this probability."""
        valley = self.valley
        variance = self._mechanism(epsilon).variance(self._sensitivity, coordinates=valley.dimension)
        if variance > LARGEST_SCALE**2:
            return math.inf
        failure = failure_probability * (1 - _CLOSE)
        worst = curved_gaussian_bound(valley.dimension, valley.sharpest / valley.penalty, failure)
        return valley.excess(float(variance) * valley.step**2 * valley.penalty / 2 * worst)

    def release(self, seal: Seal, epsilon: Fraction, bits: BitSource | None) -> NDArray[np.float64]:
        """The minimum under noise."""
        sealed = seal(self.valley.step, self._units, Norm.L2)
        return _floats(self._mechanism(epsilon).release(sealed, bits=bits), self.valley.step)


def _floats(released: Any, step: float) -> NDArray[np.float64]:
    return np.asarray(released, dtype=np.float64) * step


def smallest_epsilon(excess: Callable[[Fraction], float], goal: float) -> Fraction:
    """The smallest epsilon, to nine digits, whose excess is within the goal; ``excess`` falls as epsilon grows.

    >>> smallest_epsilon(lambda epsilon: 1 / float(epsilon), 4.0) <= Fraction(26, 100)
    True
    """
    low, high = 1e-9, 1e-6  # nobody needs less epsilon than that
    while excess(Fraction(high)) > goal:
        low, high = high, 2 * high
        if high > 1e9:
            raise InvalidRequest("Expected a target within reach", got=goal, do="Allow a larger excess risk")
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(Fraction(middle)) <= goal else (middle, high)
    return round_up(high)
