"""Privacy loss distributions, composed by ``dp-accounting``.

Each leaf's profile is turned into a discrete distribution that dominates it by connecting the dots (DGKKM22, Algorithm 1).
Convolution and the way back are those of ``dp-accounting``, made faster in ``loss_masses``; its accountants and event types,
which drop repeat counts of some events, are not used. Importing this module needs the extra ``accounting``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from expost.accounting import renyi
from expost.accounting.loss_masses import LossMasses
from expost.accounting.profile import Curve, Profile, profile_of
from expost.accounting.rounding import MARGIN, Floats, float_down
from expost.accounting.scenario import Scenario
from expost.accounting.tails import bound_by_pairs

__all__ = ["LossDistributionTotal", "total"]

_BINS = 10_000  # between zero and the expected epsilon
_DRIFT = 0.005  # share of the expected epsilon that rounding losses up may cost: at most width^2 / 8 a step
_MOST_BINS = 2**20  # of one leaf
_MOST_COUNT = 10**8
_COARSEST = 100.0  # width of a bin: an epsilon of ten thousand of them protects nobody, and its exponential is no float
_LARGEST_EXPONENT = 700.0  # whose exponential is a float
_TYPICAL_DELTA = Fraction(1, 10**6)

# Rounding of the Fourier transform, of the powers in it and of the profiles, per composition. Measured against 80-bit
# arithmetic the error of delta was below 0.4 of this unit for up to 10^5 steps; sixteen are reserved.
_ERROR_PER_STEP = 16 * 2.0**-52


@dataclass(frozen=True)
class LossDistributionTotal:
    """The distribution of the privacy loss of a whole scenario, and what its floats may have lost of delta.

    >>> from expost.accounting.events import GaussianEvent
    >>> from expost.accounting.scenario import scenarios
    >>> round(total(scenarios(GaussianEvent(1))[0]).epsilon(Fraction(1, 10**6)), 3)
    4.887
    """

    distribution: Any
    error: float

    def then(self, other: LossDistributionTotal) -> LossDistributionTotal:
        """Both, one after the other, on one grid."""
        return LossDistributionTotal(self.distribution.compose(other.distribution), self.error + other.error)

    def epsilon(self, delta: Fraction) -> float:
        """The epsilon at this delta, infinite where delta is within the error of the computation."""
        left = float_down(delta) - self.error
        if left <= 0:
            return math.inf
        return float(self.distribution.get_epsilon_for_delta(left)) * (1 + MARGIN)

    def delta(self, epsilon: Fraction) -> float:
        """The delta at this epsilon."""
        return min(1.0, float(self.distribution.get_delta_for_epsilon(float_down(epsilon))) + self.error)

    def deltas(self, epsilons: Floats) -> Floats:
        """The deltas at increasing epsilons, in one pass; beyond the largest exponent that of it, which is not smaller."""
        found: Floats = self.distribution.get_delta_for_epsilon(np.minimum(epsilons, _LARGEST_EXPONENT))
        return np.minimum(1.0, found + self.error)

    def loss_bound(self, chance: Fraction) -> float:
        """The loss that is exceeded with this probability at most, in the worse of the two directions.

        Delta is straight in e^epsilon between the losses of the grid, so the best pair is at one of them.
        """
        allowed = float_down(chance)
        return max(bound_by_pairs(losses, deltas + self.error, allowed) for losses, deltas in self._profiles)

    @cached_property
    def _profiles(self) -> list[tuple[Floats, Floats]]:
        one, other = self.distribution._pmf_remove, self.distribution._pmf_add
        return [each.profile() for each in ((one,) if one is other else (one, other))]


def total(scenario: Scenario, interval: float | None = None) -> LossDistributionTotal | None:
    """The convolution over all leaves, or None where a leaf has no profile; ``interval`` is the width of a bin."""
    profiles = [(profile_of(leaf), count) for leaf, count in scenario.leaves]
    known = [(profile, count) for profile, count in profiles if profile is not None]
    steps = sum(count for _, count in known)
    if len(known) < len(profiles) or not known or steps > _MOST_COUNT:
        return None
    width = interval or _interval(scenario, [profile for profile, _ in known], steps)
    if width > _COARSEST:
        return None
    composed = None
    for profile, count in known:
        one = _discretised(profile, width)
        many = one.self_compose(count) if count > 1 else one
        composed = many if composed is None else composed.compose(many)
    return LossDistributionTotal(composed, _ERROR_PER_STEP * (steps + 8 * len(known)))


def _interval(scenario: Scenario, profiles: list[Profile], steps: int) -> float:
    """A width that makes the expected epsilon many bins long and no leaf too long; a power of two, hence exact."""
    rough = renyi.total(scenario)
    expected = rough.epsilon(_TYPICAL_DELTA) if rough is not None else math.inf
    largest = max(profile.largest for profile in profiles)
    if not 0 < expected < math.inf:
        expected = largest
    fine = min(expected / _BINS, math.sqrt(8 * _DRIFT * expected / steps))
    return 2.0 ** math.floor(math.log2(max(fine, largest / _MOST_BINS)))


def _discretised(profile: Profile, width: float) -> Any:
    """The dominating distribution on multiples of ``width``; two of them where the directions differ."""
    bins = max(1, math.ceil(profile.largest / width))
    forward, lost = _masses(profile.forward, bins, width)
    if profile.symmetric:
        return PrivacyLossDistribution(_pmf(forward, forward, lost, width))
    backward, lost_backward = _masses(profile.backward, bins, width)
    return PrivacyLossDistribution(_pmf(forward, backward, lost, width), _pmf(backward, forward, lost_backward, width))


def _masses(curve: Curve, bins: int, width: float) -> tuple[Floats, float]:
    """The masses at the losses width, 2 width, ... whose profile is straight in e^epsilon between those points."""
    deltas = np.minimum.accumulate(curve(np.arange(bins + 1, dtype=np.float64) * width))
    steps = np.diff(deltas)
    inner = (steps[1:] - steps[:-1] * math.exp(width)) / math.expm1(width)
    top = steps[-1:] / math.expm1(-width)
    return np.maximum(np.concatenate([inner, top]), 0.0), float(deltas[-1])


def _pmf(up: Floats, down: Floats, lost: float, width: float) -> Any:
    """One direction: a loss of -x has e^-x times the mass that the other direction has at x; zero takes the rest."""
    below = (down * np.exp(-width * np.arange(1, len(down) + 1)))[::-1]
    zero = max(0.0, 1.0 - math.fsum(up) - math.fsum(below) - lost)
    return LossMasses(width, -len(down), np.concatenate([below, [zero], up]), lost, True)
