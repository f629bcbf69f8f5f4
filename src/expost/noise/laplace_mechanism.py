"""Discrete Laplace noise of a fixed scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from expost.core.rational import probability
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Norm, Sensitivity
from expost.noise.bits import BitSource
from expost.noise.laplace import discrete_laplace
from expost.noise.lattice import distance_in, integers, released_sum, unwrapped
from expost.noise.pure_mechanism import PureMechanism

__all__ = ["LaplaceMechanism"]

_FLOAT_MARGIN = 1e-9  # relative; the logarithm below is right to 1e-15


@dataclass(frozen=True)
class LaplaceMechanism(PureMechanism):
    """Adds independent integers of law P(k) proportional to exp(-|k| epsilon / sensitivity) to an integer vector.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L1, over all coordinates together, in lattice units.
    Accuracy: all |errors| <= half_width(...) with probability 1 - failure_probability, exact law of the noise.
    Numerics: exact; integers only, the sampler is exact and the sum cannot wrap around. Floats enter through Grid.
    Reference: GRS09, Example 2.1 (geometric mechanism); DMNS06, Proposition 1 (l1 sensitivity).

    >>> from expost.noise import SeededBits
    >>> mechanism = LaplaceMechanism(0.5)
    >>> isinstance(mechanism.release(Sealed(41, Sensitivity(1)), bits=SeededBits(1)), int)
    True
    >>> mechanism.half_width(Sensitivity(1), 0.05)
    6
    """

    def scale(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Fraction:
        """The scale of the noise: sensitivity / epsilon."""
        # DMNS06, Proposition 1: the ratio of two shifted laws is at most exp(l1 distance / scale), on integers too.
        return distance_in(Norm.L1, sensitivity, coordinates) / self.epsilon

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> Any:
        """The sealed integers plus noise, in the same shape."""
        return unwrapped(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        """Independent runs on an answer the caller knows anyway, one a row: for audits and planning."""
        values = integers(exact)
        noise = discrete_laplace(self.scale(sensitivity, coordinates=values.size), (runs, *values.shape), bits=bits)
        return released_sum(values[None], noise)

    def half_width(
        self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, coordinates: int = 1
    ) -> int:
        """The smallest h such that all coordinates err by at most h except with ``failure_probability``."""
        scale = float(self.scale(sensitivity, coordinates=coordinates))
        share = -math.expm1(math.log1p(-float(probability(failure_probability, "failure_probability"))) / coordinates)
        # P(|noise| > h) = 2 a^(h+1) / (1 + a) with a = exp(-1 / scale), one coordinate; they are independent.
        tail = scale * (math.log(2 / share) - math.log1p(math.exp(-1 / scale)))
        return max(math.ceil(tail * (1 + _FLOAT_MARGIN)) - 1, 0)
