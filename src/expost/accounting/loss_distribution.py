"""Distributions of the privacy loss: composed, converted, and stopped by the worst possible rule.

Each leaf's profile becomes a discrete distribution that dominates it, by connecting the dots (DGKKM22, Algorithm 1).
Convolution and conversion are those of ``dp-accounting``, with slow loops replaced by array operations. Its accountants
and event types, which drop repeat counts of some events, are not used. Importing this module needs the extra
``accounting``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray

from expost.accounting.privacy_profile import DeltaCurve, PrivacyProfile, profile_of
from expost.accounting.renyi import sum_renyi
from expost.accounting.rounding import MARGIN, Floats, float_down
from expost.accounting.scenario import Scenario
from expost.accounting.tradeoff_curve import bound_by_pairs

__all__ = ["LossDistributionTotal", "LossMasses", "StoppedLosses", "stage_width", "sum_loss_distribution"]

_CHERNOFF_ORDERS = 20  # on either side
_BINS = 10_000  # between zero and the expected epsilon
_DRIFT = 0.005  # share of the expected epsilon that rounding losses up may cost: at most width^2 / 8 per step
_MOST_BINS = 2**20  # of one leaf
_MOST_COUNT = 10**8
_COARSEST = 100.0  # width of a bin: an epsilon of ten thousand of them protects nobody and its exponential overflows
_LARGEST_EXPONENT = 700.0  # whose exponential is a float
_TYPICAL_DELTA = Fraction(1, 10**6)
# Rounding of the Fourier transform, of the powers in it and of the profiles, per composition. Measured against 80-bit
# arithmetic the error of delta was below 0.4 of this unit for up to 10^5 steps; sixteen are reserved.
_ERROR_PER_STEP = 16 * 2.0**-52

_STAGE_BINS = 1024  # on either side of a loss of zero; a multiple of four
_REACH = 2.0  # how far losses are followed, over the bill; everything beyond counts as disclosed
# Rounding of one convolution by Fourier transforms, of masses that sum to one with values up to one: below 2^-48 where
# it was compared with plain sums on these grids; sixteen times that is reserved.
_ERROR_PER_PHASE = 2.0**-44
_TRIES, _ENOUGH, _AIM = 12, 0.97, 0.985  # search for shares: three percent of delta are a thousandth of a price
_TINY, _SMALLEST_BILL = 1e-300, 1e-9


class LossMasses(DensePLDPmf):  # type: ignore[misc]
    """The masses of a dominating loss on a grid, in one direction; what is cut off counts as certain disclosure.

    ``dp-accounting`` finds the window of a convolution by forty slow logarithms of sums and an epsilon by a loop over
    bins. Here both take array operations only, and the numbers are the same.

    >>> coin = LossMasses(1.0, -1, np.array([0.25, 0.0, 0.75]), 0.0, True)
    >>> four = coin.self_compose(4)
    >>> round(four.get_epsilon_for_delta(0.1), 6), round(float(four.get_delta_for_epsilon(2.0)), 6)
    (3.62013, 0.273585)
    """

    _probs: Floats
    _lower_loss: int
    _infinity_mass: float
    _discretization: float

    def compose(self, other: Self, tail_mass_truncation: float = 0) -> LossMasses:
        """Return the law of the sum with another loss."""
        found = super().compose(other, tail_mass_truncation)
        return LossMasses(
            found._discretization,
            found._lower_loss,
            found._probs,
            found._infinity_mass,
            found._pessimistic_estimate,
        )

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> LossMasses:
        """Return the law of a sum of such losses: the power of the spectrum, over the window Chernoff's bound leaves."""
        low, high = self._chernoff_window(num_times, tail_mass_truncation)
        size = scipy.fft.next_fast_len(max(high - low + 1, len(self._probs)), real=True)
        # The transform wraps around: what lies outside the window adds its mass, at most the truncated one, inside.
        wrapped = scipy.fft.irfft(scipy.fft.rfft(self._probs, size) ** num_times, size)
        kept = np.roll(wrapped, -low)[: high - low + 1]
        lost = 1.0 if self._infinity_mass >= 1 else -math.expm1(num_times * math.log1p(-self._infinity_mass))
        first = self._lower_loss * num_times + low
        return LossMasses(self._discretization, first, kept, tail_mass_truncation + lost, True)

    def get_epsilon_for_delta(self, delta: float) -> float:
        """Return the smallest epsilon whose hockey-stick divergence is at most delta."""
        if self._infinity_mass > delta:
            return math.inf
        start = min(max(0, 1 - self._lower_loss), len(self._probs))  # an epsilon >= 0 involves positive losses only
        losses = (np.arange(start, len(self._probs)) + self._lower_loss)[::-1] * self._discretization
        masses = self._probs[start:][::-1]
        # The masses of all larger losses, with the unit and without; the divergence at a loss is above - e^loss without.
        above = self._infinity_mass + np.concatenate([[0.0], np.cumsum(masses)])
        without = np.concatenate([[0.0], np.cumsum(masses * np.exp(-losses))])
        far = np.flatnonzero((above[1:] >= delta) & (without[1:] == 0))  # losses whose e^-loss underflows
        if len(far):
            return float(losses[far[0]])
        known = np.flatnonzero((above > delta) & (without > 0))
        with np.errstate(over="ignore"):
            found = np.log((above[known] - delta) / without[known])
        # Epsilon lies between two losses: below the one just counted, not below the next; the last has none after it.
        stop = np.flatnonzero(found >= np.append(losses, 0.0)[known])
        return float(found[stop[0]]) if len(stop) else 0.0

    def profile(self) -> tuple[Floats, Floats]:
        """Return the losses of the grid from zero on, falling, and the deltas there; sums are rounded upwards.

        Delta at a loss is the mass of all larger ones less e^loss times what these have without the unit. The latter is
        summed as masses times e^(loss - theirs), which neither overflows nor underflows.
        """
        start = max(0, -self._lower_loss)
        if start >= len(self._probs):
            return np.zeros(1), np.array([self._infinity_mass])
        masses = self._probs[start:][::-1]
        losses = (np.arange(start, len(self._probs), dtype=np.float64) + self._lower_loss)[::-1] * self._discretization
        larger = np.concatenate([[0.0], masses[:-1]])
        above = self._infinity_mass + np.cumsum(larger)
        decay = math.exp(-self._discretization)
        without = scipy.signal.lfilter([decay], [1.0, -decay], larger)
        # Each of the two sums rounds at most twice per term.
        rounding = 4 * len(masses) * 2.0**-53 * np.maximum(above, 0.0)
        return losses, np.clip(above - without + rounding, self._infinity_mass, 1.0)

    def widen_bins(self, width: float) -> tuple[int, Floats]:
        """Return the first bin and the masses on wider bins; the new pair of laws dominates the old one.

        Of a mass at x between x0 and x0 + width a part c = (1 - e^(x0 - x)) / (1 - e^-width) goes up; the other law,
        e^-x times as large, then keeps its mass too. Merging the two again would give the old pair.
        """
        # Rounding leaves a few negative masses. They stay: cut off, what rounding adds elsewhere would count as kept.
        losses = self._discretization * (self._lower_loss + np.arange(len(self._probs)))
        below = np.floor(losses / width)
        part = np.expm1(below * width - losses) / math.expm1(-width)
        low = int(below[0])
        place = (below - low).astype(np.intp)
        size = int(place[-1]) + 2
        found = np.bincount(place, self._probs * (1 - part), size) + np.bincount(place + 1, self._probs * part, size)
        return low, found.astype(np.float64)

    def _chernoff_window(self, count: int, truncated: float) -> tuple[int, int]:
        """Return the first and last place of a sum that are kept; beyond each lies at most half the truncated mass."""
        masses = self._probs
        low, high, size = 0, (len(masses) - 1) * count, len(masses)
        if not masses.any():
            return 0, 0
        growth = np.exp(np.arange(size) / size)
        rising, falling, half = masses, masses, math.log(2 / truncated)
        for order in range(1, _CHERNOFF_ORDERS + 1):
            rising, falling = rising * growth, falling / growth
            # P(sum >= b) <= E[e^(t x)]^count e^(-t b), here with t = order / size, and likewise below.
            high = min(high, math.ceil((count * math.log(rising.sum()) + half) * size / order))
            low = max(low, math.floor(-(count * math.log(falling.sum()) + half) * size / order))
        return low, max(low, high)


@dataclass(frozen=True)
class LossDistributionTotal:
    """The distribution of the privacy loss of a whole scenario, and the delta that its floats may have lost.

    >>> from expost.accounting.privacy_event import GaussianEvent
    >>> from expost.accounting.scenario import list_scenarios
    >>> round(sum_loss_distribution(list_scenarios(GaussianEvent(1))[0]).epsilon(Fraction(1, 10**6)), 3)
    4.887
    """

    distribution: Any
    error: float

    def then(self, other: LossDistributionTotal) -> LossDistributionTotal:
        """Return both, one after the other, on one grid."""
        return LossDistributionTotal(self.distribution.compose(other.distribution), self.error + other.error)

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta; infinite where delta is within the error of the computation."""
        left = float_down(delta) - self.error
        if left <= 0:
            return math.inf
        return float(self.distribution.get_epsilon_for_delta(left)) * (1 + MARGIN)

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon."""
        return min(1.0, float(self.distribution.get_delta_for_epsilon(float_down(epsilon))) + self.error)

    def deltas(self, epsilons: Floats) -> Floats:
        """Return the deltas at increasing epsilons, in one pass.

        Beyond the largest exponent the delta of that exponent is returned, which is not smaller.
        """
        found: Floats = self.distribution.get_delta_for_epsilon(np.minimum(epsilons, _LARGEST_EXPONENT))
        return np.minimum(1.0, found + self.error)

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss exceeded with at most this probability, in the worse of the two directions.

        Delta is straight in e^epsilon between the losses of the grid, so the best pair is at one of them.
        """
        allowed = float_down(chance)
        return max(bound_by_pairs(losses, deltas + self.error, allowed) for losses, deltas in self._profiles)

    @cached_property
    def _profiles(self) -> list[tuple[Floats, Floats]]:
        one, other = self.distribution._pmf_remove, self.distribution._pmf_add
        return [each.profile() for each in ((one,) if one is other else (one, other))]


def sum_loss_distribution(scenario: Scenario, interval: float | None = None) -> LossDistributionTotal | None:
    """Convolve over all leaves; None where a leaf has no profile. ``interval`` is the width of a bin."""
    profiles = [(profile_of(leaf), count) for leaf, count in scenario.leaves]
    known = [(profile, count) for profile, count in profiles if profile is not None]
    steps = sum(count for _, count in known)
    if len(known) < len(profiles) or not known or steps > _MOST_COUNT:
        return None
    width = interval or _choose_width(scenario, [profile for profile, _ in known], steps)
    if width > _COARSEST:
        return None
    composed = None
    for profile, count in known:
        one = _discretize(profile, width)
        many = one.self_compose(count) if count > 1 else one
        composed = many if composed is None else composed.compose(many)
    return LossDistributionTotal(composed, _ERROR_PER_STEP * (steps + 8 * len(known)))


def _choose_width(scenario: Scenario, profiles: list[PrivacyProfile], steps: int) -> float:
    """Return a width that makes the expected epsilon many bins long and no leaf too long; an exact power of two."""
    rough = sum_renyi(scenario)
    expected = rough.epsilon(_TYPICAL_DELTA) if rough is not None else math.inf
    largest = max(profile.largest for profile in profiles)
    if not 0 < expected < math.inf:
        expected = largest
    fine = min(expected / _BINS, math.sqrt(8 * _DRIFT * expected / steps))
    return 2.0 ** math.floor(math.log2(max(fine, largest / _MOST_BINS)))


def _discretize(profile: PrivacyProfile, width: float) -> Any:
    """Return the dominating distribution on multiples of ``width``, one pair of masses per direction."""
    bins = max(1, math.ceil(profile.largest / width))
    forward, lost = _masses_of(profile.forward, bins, width)
    if profile.symmetric:
        return PrivacyLossDistribution(_direction_masses(forward, forward, lost, width))
    backward, lost_backward = _masses_of(profile.backward, bins, width)
    return PrivacyLossDistribution(
        _direction_masses(forward, backward, lost, width), _direction_masses(backward, forward, lost_backward, width)
    )


def _masses_of(curve: DeltaCurve, bins: int, width: float) -> tuple[Floats, float]:
    """Return the masses at width, 2 width, ... whose profile is straight in e^epsilon between those points."""
    # A profile falls; rounding must not make it rise, because a rise would be a negative mass.
    deltas = np.minimum.accumulate(curve(np.arange(bins + 1, dtype=np.float64) * width))
    steps = np.diff(deltas)
    inner = (steps[1:] - steps[:-1] * math.exp(width)) / math.expm1(width)
    top = steps[-1:] / math.expm1(-width)
    return np.maximum(np.concatenate([inner, top]), 0.0), float(deltas[-1])


def _direction_masses(up: Floats, down: Floats, lost: float, width: float) -> LossMasses:
    """Return one direction: a loss of -x has e^-x times the other direction's mass at x; zero takes the rest."""
    below = (down * np.exp(-width * np.arange(1, len(down) + 1)))[::-1]
    zero = max(0.0, 1.0 - math.fsum(up) - math.fsum(below) - lost)
    return LossMasses(width, -len(down), np.concatenate([below, [zero], up]), lost, True)


def stage_width(bill: float) -> float:
    """Return the width of the bins in which losses are followed up to a stop of this bill.

    >>> stage_width(1.0)
    0.001953125
    """
    return float(2.0 ** np.ceil(np.log2(_REACH * max(bill, _SMALLEST_BILL) / _STAGE_BINS)))


class StoppedLosses:
    """How far a process exceeds its bill when it may be stopped after any of its phases, by any rule.

    The worst rule solves an optimal-stopping problem, computed backwards on grids of privacy losses
    (docs/proofs/sgd-stopping.md, Theorem 4). The bills are expected to be about ``scale``.

    >>> from expost.accounting.privacy_event import GaussianEvent
    >>> from expost.accounting.scenario import list_scenarios
    >>> phase = sum_loss_distribution(list_scenarios(GaussianEvent(2))[0], interval=2.0**-8)
    >>> bills = np.array([2.0, 3.0])
    >>> round(StoppedLosses([phase, phase], bills).excess(bills), 5)
    2e-05
    """

    def __init__(self, phases: Sequence[LossDistributionTotal], scale: Floats) -> None:
        directions = [[phase.distribution._pmf_remove for phase in phases]]
        if any(phase.distribution._pmf_add is not phase.distribution._pmf_remove for phase in phases):
            directions.append([phase.distribution._pmf_add for phase in phases])
        widths = [stage_width(bill) for bill in np.maximum.accumulate(scale)]  # bins never become narrower
        self._directions = []
        for direction in directions:
            masses = {(id(one), width): one for one, width in zip(direction, widths, strict=True)}
            stages = {key: _Stage(one, key[1]) for key, one in masses.items()}  # equal phases share their stage
            self._directions.append([stages[id(one), width] for one, width in zip(direction, widths, strict=True)])
        self._error = sum(phase.error for phase in phases) + _ERROR_PER_PHASE * len(phases)

    def excess(self, bills: Floats) -> float:
        """Return the largest delta that a stopping rule can cause with these bills, one bill for each phase."""
        if any(stage.width * _STAGE_BINS > _LARGEST_EXPONENT for stages in self._directions for stage in stages):
            return 1.0
        covered = []
        for stages in self._directions:
            # How much of the mass of outcomes the bills cover under the worst rule, from the last phase backwards.
            later = stages[-1]
            kept = later.mean_before(later.covered_by(float(bills[-1])))
            for stage, bill in zip(reversed(stages[:-1]), reversed(bills[:-1]), strict=True):
                kept = np.minimum(stage.covered_by(float(bill)), stage.refine(kept, later))
                kept, later = stage.mean_before(kept), stage
            covered.append(float(kept[_STAGE_BINS]))
        return 1 - float(np.min(covered)) + self._error

    def overlap(self, bills: Callable[[float], Floats], delta: float, *, most: float) -> float:
        """Return how many times delta the shares behind the bills may sum to, at least once; ``bills`` falls with it.

        Shares that sum to delta are always small enough (docs/proofs/sgd-stopping.md, Theorem 1). They may sum to
        more, because a loss that exceeds the bill of one stop often exceeds those of others.
        """
        good, bad, size = 1.0, math.inf, 1.0
        for _ in range(_TRIES):
            found = self.excess(bills(size))
            good, bad = (size, bad) if found <= delta else (good, size)
            if bad == 1 or (found <= delta and (found >= _ENOUGH * delta or size >= most)):
                break
            # The excess is about proportional to the shares.
            aimed = min(size * _AIM * delta / max(found, _TINY), most)
            size = aimed if good < aimed < bad else (good + min(bad, most)) / 2
        return good


class _Stage:
    """One phase on a grid of losses: how the loss changes in it, in one direction."""

    def __init__(self, masses: LossMasses, width: float) -> None:
        self.width = max(width, masses._discretization)
        self._low, self._masses = masses.widen_bins(self.width)
        self._length = scipy.fft.next_fast_len(2 * _STAGE_BINS + 1 + len(self._masses), real=True)

    @cached_property
    def ratios(self) -> Floats:
        """The likelihood ratios whose logarithms are the losses of the grid."""
        ratios: Floats = np.exp(self.width * np.arange(-_STAGE_BINS, _STAGE_BINS + 1))
        return ratios

    def covered_by(self, bill: float) -> Floats:
        """Return the part of an outcome that the bill covers."""
        return np.minimum(1.0, math.exp(bill) / self.ratios)

    def mean_before(self, kept: Floats) -> Floats:
        """Return the mean of what is kept, as a function of the loss before the phase; nothing is kept off the grid."""
        found: Floats = scipy.fft.irfft(scipy.fft.rfft(kept, self._length) * self._spectrum, self._length)
        # Entry m is the sum over j of masses[j] kept[m + j]; negative m are at the end.
        place = np.arange(len(kept)) + self._low
        inside = (place > -len(self._masses)) & (place < len(kept))
        return np.where(inside, found[place % self._length], 0.0)

    @cached_property
    def _spectrum(self) -> NDArray[np.complex128]:
        found: NDArray[np.complex128] = np.conj(scipy.fft.rfft(self._masses, self._length))
        return found

    def refine(self, kept: Floats, later: _Stage) -> Floats:
        """Return the values of a later stage on this one's grid, whose bins may be narrower by a power of two.

        What is kept, times the ratio, is concave in the ratio: chords lie below it.
        """
        values, width = kept * later.ratios, later.width
        while width > self.width:
            # The middle half of the grid with bins half as wide: chords between ratios e^x and e^(x + width).
            middle = values[_STAGE_BINS // 2 : 3 * _STAGE_BINS // 2 + 1]
            part = 1 / (1 + math.exp(width / 2))  # how far between them e^(x + width / 2) lies
            values = np.empty_like(values)
            values[::2], values[1::2] = middle, (1 - part) * middle[:-1] + part * middle[1:]
            width /= 2
        return values / self.ratios
