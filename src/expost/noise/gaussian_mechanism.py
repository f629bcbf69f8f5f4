"""Discrete Gaussian noise of a fixed variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.guarantee import ApproxGuarantee, ZeroConcentratedGuarantee
from expost.core.loss import Loss
from expost.core.rational import probability, round_up
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Norm, Sensitivity
from expost.noise.bits import BitSource, source_of
from expost.noise.gaussian import draw_gaussian
from expost.noise.lattice import distance_in, integers, released_sum, unwrapped
from expost.noise.parameter import Parameter

__all__ = ["GaussianMechanism", "gaussian_delta", "largest_mu"]

_LEAST = 1e-300  # what underflows is taken to be this
_RELATIVE = 1e-10  # margin for floats, far above the error of math.erfc (the tests compare with 50 digits)
_SMOOTHING = ((1, 2.3e-8), (2, 3.0e-16))  # variance t^2, and 4 times sum_j 2 exp(-2 pi^2 t^2 j^2) per coordinate
_ORDERS = 1 + np.geomspace(1e-3, 1e5, 2000)


@dataclass(frozen=True)
class GaussianMechanism:
    """Adds independent integers of law P(k) proportional to exp(-k^2 / (2 variance)) to an integer vector.

    Guarantee: rho-zCDP or (epsilon, delta)-DP as promised, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units.
    Accuracy: all |errors| <= half_width(...) with probability 1 - failure_probability.
    Numerics: the noise is exact; the variance is rounded up. The calibration to (epsilon, delta) evaluates the normal
        law in floats with a relative margin of 1e-10 on the side of privacy.
    Reference: CKS20, Theorem 4 (zCDP); BW18, Theorem 8 (analytic calibration), carried over to integers in
        docs/proofs/discrete-gaussian-calibration.md.

    >>> from expost.core import approx, zcdp
    >>> GaussianMechanism(zcdp(0.5)).variance(Sensitivity(3))
    Fraction(9, 1)
    >>> round(float(GaussianMechanism(approx(1, 1e-6)).variance(Sensitivity(1000))) ** 0.5)
    4225
    """

    guarantee: ZeroConcentratedGuarantee | ApproxGuarantee

    def __post_init__(self) -> None:
        match self.guarantee:
            case ZeroConcentratedGuarantee(rho) if rho > 0:
                return
            case ApproxGuarantee(epsilon, delta) if epsilon > 0 and delta > 0:
                return
        raise InvalidRequest(
            "Expected a promise of rho-zCDP or (epsilon, delta), all positive",
            got=str(self.guarantee),
            do="Pass expost.zcdp(rho) or expost.approx(epsilon, delta)",
        )

    @property
    def loss(self) -> Loss:
        """The bill of one release."""
        return Loss.worst_case(self.guarantee)

    def variance(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Fraction:
        """The variance parameter in lattice units, an exact rational."""
        distance = distance_in(Norm.L2, sensitivity, coordinates)
        match self.guarantee:
            case ZeroConcentratedGuarantee(rho):
                return distance**2 / (2 * rho)  # CKS20, Theorem 4
            case ApproxGuarantee(epsilon, delta):
                return _variance_for(float(epsilon), float(delta), distance, coordinates)
        raise AssertionError

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> Any:
        """The sealed integers plus noise, in the same shape."""
        return unwrapped(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        """Independent runs on an answer the caller knows anyway, one a row: for audits and planning."""
        values = integers(exact)
        variance = self.variance(sensitivity, coordinates=values.size)
        shape = (runs, *values.shape)
        # Not discrete_gaussian(), which limits what people type: on a fine grid the variance may pass 10^18.
        parameter = Parameter(np.array([float(variance)]), lambda _: variance, None, shape)
        return released_sum(values[None], draw_gaussian(parameter, source_of(bits)).reshape(shape))

    def half_width(
        self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, coordinates: int = 1
    ) -> int:
        """An h such that all coordinates err by at most h except with ``failure_probability``."""
        share = -math.expm1(math.log1p(-float(probability(failure_probability, "failure_probability"))) / coordinates)
        # P(noise > h) <= P(N(0, variance) > h): the tail of the sum is below the integral, and the normalising sum
        # above sqrt(2 pi variance) (docs/proofs/discrete-gaussian-calibration.md).
        deviation = math.sqrt(self.variance(sensitivity, coordinates=coordinates))
        inside = _largest(lambda width: math.erfc(width / math.sqrt(2)) >= share)
        return math.ceil(inside * deviation * (1 + _RELATIVE))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The delta of a continuous Gaussian of standard deviation sensitivity / mu, from above (BW18, Theorem 8).

    The textbook sigma = sqrt(2 ln(1.25 / delta)) / epsilon is proved for epsilon < 1 only; beyond it fails:

    >>> sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20
    >>> gaussian_delta(20, 1 / sigma) > 100 * 1e-5
    True
    """
    shifted = mu * (1 + _RELATIVE)  # delta grows with mu: covers the rounding of the two arguments below
    here, there = shifted / 2 - epsilon / shifted, shifted / 2 + epsilon / shifted
    gained = math.erfc(-here / math.sqrt(2)) / 2 * (1 + _RELATIVE)
    # e^epsilon times the density at ``there`` is the density at ``here``: no exponential can overflow.
    lost = math.exp(-here * here / 2) / math.sqrt(2 * math.pi) * _mills_ratio(there) * (1 - _RELATIVE)
    return max(gained - lost, _LEAST)


def largest_mu(epsilon: float, delta: float) -> float:
    """The least noise: the largest mu whose continuous Gaussian is (epsilon, delta)-DP, to twelve digits, never above.

    >>> round(1 / largest_mu(1.0, 1e-6), 2)
    4.22
    """
    return _largest(lambda mu: gaussian_delta(epsilon, mu) <= delta)


def _mills_ratio(x: float) -> float:
    """P(N > x) over the density at x, for x >= 0; from below where erfc runs out of digits."""
    if x > 25:
        return x / (x * x + 1)
    return math.erfc(x / math.sqrt(2)) / 2 * math.sqrt(2 * math.pi) * math.exp(x * x / 2)


def _variance_for(epsilon: float, delta: float, distance: Fraction, coordinates: int) -> Fraction:
    """The smallest variance that one of the proved routes certifies."""
    routes = [distance**2 / (2 * Fraction(_rho_for(epsilon, delta)))]
    for smoothing, slack in _SMOOTHING:
        # The discrete Gaussian is within exp(+-slack/2) a coordinate of a rounding of a continuous one whose variance
        # is smaller by t^2 = smoothing (docs/proofs/discrete-gaussian-calibration.md).
        cost = slack * coordinates
        if cost < epsilon / 2:
            mu = largest_mu(epsilon - cost, delta * math.exp(-cost))
            routes.append(distance**2 / Fraction(mu) ** 2 + smoothing)
    return round_up(min(routes))


def _rho_for(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta), by CKS20, Proposition 12 at the best order of a grid."""
    alpha = _ORDERS
    spent = np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    rho = float(np.max((epsilon - spent) / alpha)) * (1 - _RELATIVE)
    return max(rho, 1e-15 * epsilon)


def _largest(accepted: Any) -> float:
    """The largest number that passes a test which smaller ones pass too, to twelve digits and never above it."""
    low, high = 1e-9, 1.0
    while accepted(high):
        low, high = high, 2 * high
    while not accepted(low):
        low, high = low / 2, low
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low
