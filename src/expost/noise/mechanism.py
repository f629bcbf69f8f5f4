"""Mechanisms that answer once at a fixed level: Laplace, Gaussian and randomized response, and their base classes."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expost.core import (
    Adjacency,
    ApproxGuarantee,
    InvalidRequest,
    Loss,
    Norm,
    PureGuarantee,
    PureLoss,
    Sealed,
    Sensitivity,
    ZeroConcentratedGuarantee,
    unseal,
)
from expost.core.rational import probability, rational, round_up
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.coin import draw_uniform, sample_bernoulli_exp
from expost.noise.lattice import add_noise, read_compact_integers, read_integers, unwrap_scalar
from expost.noise.lattice_sampler import draw_gaussian, sample_laplace
from expost.noise.parameter import Parameter, sensitivity_in, share_noise_parameters

__all__ = [
    "GaussianMechanism",
    "LaplaceMechanism",
    "PureMechanism",
    "RandomizedResponse",
    "SealedMechanism",
    "gaussian_delta",
    "largest_mu",
]

R = TypeVar("R")

_FLOAT_MARGIN = 1e-9  # relative; the logarithm it covers is right to 1e-15
_LEAST = 1e-300  # stands for numbers that underflow
_RELATIVE = 1e-10  # margin for floats, far above the error of math.erfc (the tests compare with 50 digits)
_SMOOTHING = ((1, 2.3e-8), (2, 3.0e-16))  # variance t^2, and 4 times sum_j 2 exp(-2 pi^2 t^2 j^2) per coordinate
_ORDERS = 1 + np.geomspace(1e-3, 1e5, 2000)


class SealedMechanism(abc.ABC, Generic[R]):
    """The base of mechanisms that release a sealed answer once."""

    @share_noise_parameters
    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> R:
        """Release a sealed answer."""
        released: R = unwrap_scalar(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])
        return released

    @share_noise_parameters
    @abc.abstractmethod
    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        """Run the mechanism independently on an answer that the caller has anyway: for audits and planning."""


@dataclass(frozen=True)
class PureMechanism:
    """The base of mechanisms that promise, and cost, one epsilon known before the run."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise before the run."""
        return PureGuarantee(self.epsilon)

    @property
    def loss(self) -> PureLoss:
        """The bill of one release."""
        return PureLoss(self.epsilon)


@share_noise_parameters
@dataclass(frozen=True)
class LaplaceMechanism(PureMechanism, SealedMechanism[Any]):
    """Adds independent integers of law P(k) proportional to exp(-|k| epsilon / sensitivity) to an integer vector.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L1, over all coordinates together, in lattice units.
    Accuracy: all |errors| <= half_width(...) with probability 1 - failure_probability, exact law of the noise.
    Numerics: exact; integers only, the sampler is exact and the sum cannot wrap around. Floats enter through Grid.
    Reference: GRS09, Example 2.1 (geometric mechanism); DMNS06, Proposition 1 (l1 sensitivity).

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> mechanism = LaplaceMechanism(0.5)
    >>> isinstance(mechanism.release(Sealed(41, Sensitivity(1)), bits=SeededBits(1)), int)
    True
    >>> mechanism.half_width(Sensitivity(1), 0.05)
    6
    """

    @share_noise_parameters
    def scale(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Fraction:
        """Return the scale of the noise, sensitivity / epsilon."""
        # DMNS06, Proposition 1: the ratio of two shifted laws is at most exp(l1 distance / scale), on integers too.
        return sensitivity_in(Norm.L1, sensitivity, coordinates) / self.epsilon

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        values = read_integers(exact)
        noise = sample_laplace(self.scale(sensitivity, coordinates=values.size), (runs, *values.shape), bits=bits)
        return add_noise(values[None], noise)

    @share_noise_parameters
    def half_width(
        self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, coordinates: int = 1
    ) -> int:
        """Return the smallest h such that all coordinates err by at most h except with ``failure_probability``."""
        scale = float(self.scale(sensitivity, coordinates=coordinates))
        share = -math.expm1(math.log1p(-float(probability(failure_probability, "failure_probability"))) / coordinates)
        # P(|noise| > h) = 2 a^(h+1) / (1 + a) with a = exp(-1 / scale), one coordinate; they are independent.
        tail = scale * (math.log(2 / share) - math.log1p(math.exp(-1 / scale)))
        return max(math.ceil(tail * (1 + _FLOAT_MARGIN)) - 1, 0)


@dataclass(frozen=True)
class GaussianMechanism(SealedMechanism[Any]):
    """Adds independent integers of law P(k) proportional to exp(-k^2 / (2 variance)) to an integer vector.

    Guarantee: rho-zCDP or (epsilon, delta)-DP as promised, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units.
    Accuracy: all |errors| <= half_width(...) with probability 1 - failure_probability.
    Numerics: the noise is exact; the variance is rounded up. The calibration to (epsilon, delta) evaluates the normal
        law in floats with a relative margin of 1e-10 on the side of privacy.
    Reference: CKS20, Theorem 4 (zCDP); BW18, Theorem 8 (analytic calibration), carried over to integers in
        docs/proofs/discrete-gaussian-calibration.md.

    Parameters
    ----------
    guarantee : ZeroConcentratedGuarantee or ApproxGuarantee
        The promise, with all its numbers positive: ``expost.zcdp(rho)`` or ``expost.approx(epsilon, delta)``.

    Examples
    --------
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

    @share_noise_parameters
    def variance(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Fraction:
        """Return the variance parameter of the noise."""
        distance = sensitivity_in(Norm.L2, sensitivity, coordinates)
        match self.guarantee:
            case ZeroConcentratedGuarantee(rho):
                return distance**2 / (2 * rho)  # CKS20, Theorem 4
            case ApproxGuarantee(epsilon, delta):
                return _variance_for(float(epsilon), float(delta), distance, coordinates)
        raise AssertionError

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[Any]:
        values = read_integers(exact)
        shape = (runs, *values.shape)
        # Not sample_gaussian(), which limits what people type: on a fine grid the variance may pass 10^18.
        variance = Parameter.constant(self.variance(sensitivity, coordinates=values.size), shape)
        return add_noise(values[None], draw_gaussian(variance, resolve_bits(bits)).reshape(shape))

    @share_noise_parameters
    def half_width(
        self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, coordinates: int = 1
    ) -> int:
        """Return an h such that all coordinates err by at most h except with ``failure_probability``."""
        share = -math.expm1(math.log1p(-float(probability(failure_probability, "failure_probability"))) / coordinates)
        # P(noise > h) <= P(N(0, variance) > h): the tail of the sum is below the integral, and the normalising sum
        # above sqrt(2 pi variance) (docs/proofs/discrete-gaussian-calibration.md).
        deviation = math.sqrt(self.variance(sensitivity, coordinates=coordinates))
        inside = _largest_accepted(lambda width: math.erfc(width / math.sqrt(2)) >= share)
        return math.ceil(inside * deviation * (1 + _RELATIVE))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the delta of a continuous Gaussian of standard deviation sensitivity / mu, from above (BW18, Theorem 8).

    The textbook sigma = sqrt(2 ln(1.25 / delta)) / epsilon is proved for epsilon < 1 only; beyond it fails:

    >>> sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20
    >>> gaussian_delta(20, 1 / sigma) > 100 * 1e-5
    True
    """
    shifted = mu * (1 + _RELATIVE)  # delta grows with mu: covers the rounding of the two arguments below
    here, there = shifted / 2 - epsilon / shifted, shifted / 2 + epsilon / shifted
    gained = math.erfc(-here / math.sqrt(2)) / 2 * (1 + _RELATIVE)
    # The Mills ratio P(N > x) over the density at x, from below where erfc runs out of digits.
    if there > 25:
        mills_ratio = there / (there * there + 1)
    else:
        mills_ratio = math.erfc(there / math.sqrt(2)) / 2 * math.sqrt(2 * math.pi) * math.exp(there * there / 2)
    # e^epsilon times the density at ``there`` is the density at ``here``: no exponential can overflow.
    lost = math.exp(-here * here / 2) / math.sqrt(2 * math.pi) * mills_ratio * (1 - _RELATIVE)
    return max(gained - lost, _LEAST)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose continuous Gaussian is (epsilon, delta)-DP, to twelve digits, never above."""
    return _largest_accepted(lambda mu: gaussian_delta(epsilon, mu) <= delta)


def _variance_for(epsilon: float, delta: float, distance: Fraction, coordinates: int) -> Fraction:
    """Return the smallest variance that one of the proved calibrations certifies."""
    # The largest rho whose zCDP implies (epsilon, delta), by CKS20, Proposition 12 at the best order of a grid.
    alpha = _ORDERS
    spent = np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    rho = max(float(np.max((epsilon - spent) / alpha)) * (1 - _RELATIVE), 1e-15 * epsilon)
    variances = [distance**2 / (2 * Fraction(rho))]
    for smoothing, slack in _SMOOTHING:
        # The discrete Gaussian is within exp(+-slack/2) per coordinate of a rounding of a continuous one whose
        # variance is smaller by t^2 = smoothing (docs/proofs/discrete-gaussian-calibration.md).
        cost = slack * coordinates
        if cost < epsilon / 2:
            mu = largest_mu(epsilon - cost, delta * math.exp(-cost))
            variances.append(distance**2 / Fraction(mu) ** 2 + smoothing)
    return round_up(min(variances))


def _largest_accepted(accepted: Callable[[float], bool]) -> float:
    """Find the largest number that passes a test which smaller ones pass too, to twelve digits and never above it."""
    low, high = 1e-9, 1.0
    while accepted(high):
        low, high = high, 2 * high
    while not accepted(low):
        low, high = low / 2, low
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class RandomizedResponse(PureMechanism, SealedMechanism[NDArray[np.int64]]):
    """Keeps each record's category with probability proportional to 1, changes it to any other with exp(-epsilon).

    Records are numbers from 0 to ``categories`` - 1. The answer has one entry per record, so the number of records is
    public.

    Guarantee: pure DP with the given epsilon for all records of one unit together, known before the run.
    Adjacency: replace-one only; under add/remove the length of the answer would reveal who takes part.
    Sensitivity: the number of records one unit has.
    Accuracy: estimate(...) is unbiased; its standard error is standard_error(...).
    Numerics: exact; a proposal is uniform, and a lie is kept with an exact coin of probability exp(-epsilon).
    Reference: War65 and DR14, Claim 3.5 (two categories); for several, the probabilities of one answer under two
        truths are in the ratio 1, exp(epsilon) or exp(-epsilon) by construction.

    Parameters
    ----------
    epsilon : float or Fraction
        The privacy level of all records of one unit together, > 0.
    categories : int, default 2
        How many categories there are, at least two.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> records = Sealed([0, 2, 1], Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> RandomizedResponse(2, categories=3).release(records, bits=SeededBits(1)).shape
    (3,)
    """

    categories: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.categories, bool) or not isinstance(self.categories, int) or self.categories < 2:
            raise InvalidRequest("Expected at least two categories", got=self.categories, do="Pass their number")

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        if sensitivity.adjacency is not Adjacency.REPLACE_ONE:
            raise InvalidRequest(
                "Expected replace-one adjacency",
                got=sensitivity.adjacency.value,
                do="Make the number of records public",
            )
        epsilon, source = self.epsilon / sensitivity.amount, resolve_bits(bits)
        # A category out of range counts as the nearest one: an error would reveal that it is there.
        records = np.clip(read_compact_integers(exact), 0, self.categories - 1).astype(np.int64)
        truth = np.tile(records.ravel(), runs)
        # The truth is moved around the circle of categories: by 0, or by a step that an exact coin keeps. Steps are
        # drawn independently of the truth, so neither their number nor their time depends on it.
        steps = np.empty_like(truth)
        pending = np.arange(truth.size)
        while pending.size:
            proposed = draw_uniform(np.full(pending.size, self.categories, dtype=np.uint64), source)
            steps[pending] = proposed
            pending = pending[(proposed != 0) & ~sample_bernoulli_exp(epsilon, pending.size, bits=source)]
        answers: NDArray[np.int64] = (truth + steps) % self.categories
        return answers.reshape(runs, *records.shape)

    @share_noise_parameters
    def estimate(self, answers: ArrayLike, *, records_per_unit: int = 1) -> NDArray[np.float64]:
        """Estimate the share of each category among the true records, unbiased.

        Parameters
        ----------
        answers : array_like of int
            What ``release`` returned.
        """
        seen: NDArray[Any] = np.bincount(np.asarray(answers).ravel(), minlength=self.categories)
        truth, lie = self._probabilities(records_per_unit)
        shares: NDArray[np.float64] = (seen / max(seen.sum(), 1) - lie) / (truth - lie)
        return shares

    @share_noise_parameters
    def standard_error(self, records: int, *, records_per_unit: int = 1) -> float:
        """Return the largest standard error of one entry of ``estimate``, whatever the records.

        Parameters
        ----------
        records : int
            How many records there are.
        """
        truth, lie = self._probabilities(records_per_unit)
        # A sum of coins of probability truth or lie; each has a variance of at most that of the one nearer to 1/2.
        worst = max(p * (1 - p) for p in (truth, lie))
        return math.sqrt(worst / records) / (truth - lie)

    def _probabilities(self, records_per_unit: int) -> tuple[float, float]:
        """Return the probability of the truth and of each lie."""
        lie = math.exp(-self.epsilon / records_per_unit)
        total = 1 + (self.categories - 1) * lie
        return 1 / total, lie / total
