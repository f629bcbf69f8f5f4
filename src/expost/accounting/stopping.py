"""What a process may tell beyond its bill when it may be stopped after any of its phases, by whatever rule.

The worst rule is the answer of an optimal-stopping problem, solved backwards on grids of privacy losses
(docs/proofs/sgd-stopping.md, Theorem 4). Importing this module needs the extra ``accounting``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from expost.accounting.loss_distribution import LossDistributionTotal
from expost.accounting.loss_masses import LossMasses
from expost.accounting.rounding import Floats

__all__ = ["StoppedLosses", "stage_width"]

_BINS = 1024  # on either side of no loss; a multiple of four
_REACH = 2.0  # how far losses are followed, over the bill; beyond it everything counts as told
# Rounding of one convolution by Fourier transforms, of masses that add up to one with values up to one: below 2^-48 where
# it was compared with plain sums on these grids; sixteen times that is reserved.
_ERROR_PER_PHASE = 2.0**-44
_TRIES, _ENOUGH, _AIM = 12, 0.97, 0.985  # of the search for shares: three percent of delta are a thousandth of a price
_LARGEST_LOSS = 700.0  # whose exponential is a float
_TINY, _SMALLEST = 1e-300, 1e-9  # of a delta, of a bill


def stage_width(bill: float) -> float:
    """How wide the bins are in which losses are followed up to a stop of this bill.

    >>> stage_width(1.0)
    0.001953125
    """
    return float(2.0 ** np.ceil(np.log2(_REACH * max(bill, _SMALLEST) / _BINS)))


class StoppedLosses:
    """The privacy losses of phases, one after the other, whose bills are expected to be about ``scale``.

    >>> from expost.accounting.events import GaussianEvent
    >>> from expost.accounting.loss_distribution import total
    >>> from expost.accounting.scenario import scenarios
    >>> phase, bills = total(scenarios(GaussianEvent(2))[0], interval=2.0**-8), np.array([2.0, 3.0])
    >>> round(StoppedLosses([phase, phase], bills).excess(bills), 5)
    2e-05
    """

    def __init__(self, phases: Sequence[LossDistributionTotal], scale: Floats) -> None:
        directions = [[phase.distribution._pmf_remove for phase in phases]]
        if any(phase.distribution._pmf_add is not phase.distribution._pmf_remove for phase in phases):
            directions.append([phase.distribution._pmf_add for phase in phases])
        widths = [stage_width(bill) for bill in np.maximum.accumulate(scale)]  # bins never become narrower
        self._directions = [_stages(masses, widths) for masses in directions]
        self._error = sum(phase.error for phase in phases) + _ERROR_PER_PHASE * len(phases)

    def excess(self, bills: Floats) -> float:
        """The largest delta that a rule of stopping can make of these bills, one for each phase."""
        if any(stage.width * _BINS > _LARGEST_LOSS for stages in self._directions for stage in stages):
            return 1.0
        return 1 - float(np.min([_kept(stages, bills) for stages in self._directions])) + self._error

    def overlap(self, bills: Callable[[float], Floats], delta: float, *, most: float) -> float:
        """How many times delta the shares behind the bills may add up to, at least once; ``bills`` falls with it.

        Shares that add up to delta are always small enough (docs/proofs/sgd-stopping.md, Theorem 1). They may add up to
        more, because a loss that exceeds the bill of one stop often exceeds those of others.
        """
        good, bad, size = 1.0, math.inf, 1.0
        for _ in range(_TRIES):
            told = self.excess(bills(size))
            good, bad = (size, bad) if told <= delta else (good, size)
            if bad == 1 or (told <= delta and (told >= _ENOUGH * delta or size >= most)):
                break
            # What is told is about proportional to the shares.
            aimed = min(size * _AIM * delta / max(told, _TINY), most)
            size = aimed if good < aimed < bad else (good + min(bad, most)) / 2
        return good


class _Stage:
    """One phase, on a grid of losses: what happens to the loss in it, in one direction."""

    def __init__(self, masses: LossMasses, width: float) -> None:
        self.width = max(width, masses._discretization)
        self._low, self._masses = _coarse(masses, self.width)
        self._length = next_fast_len(2 * _BINS + 1 + len(self._masses), real=True)

    @cached_property
    def ratios(self) -> Floats:
        """What the losses of the grid are the logarithms of."""
        ratios: Floats = np.exp(self.width * np.arange(-_BINS, _BINS + 1))
        return ratios

    def covered(self, bill: float) -> Floats:
        """The part of an outcome that the bill covers."""
        return np.minimum(1.0, math.exp(bill) / self.ratios)

    def before(self, kept: Floats) -> Floats:
        """What is kept in the mean, as a function of the loss before the phase; nothing is beyond the grid."""
        found: Floats = irfft(rfft(kept, self._length) * self._spectrum, self._length)
        # Entry m is the sum over j of masses[j] kept[m + j]; negative m are at the end.
        place = np.arange(len(kept)) + self._low
        inside = (place > -len(self._masses)) & (place < len(kept))
        return np.where(inside, found[place % self._length], 0.0)

    @cached_property
    def _spectrum(self) -> NDArray[np.complex128]:
        found: NDArray[np.complex128] = np.conj(rfft(self._masses, self._length))
        return found

    def refined(self, kept: Floats, later: _Stage) -> Floats:
        """The values of a later stage on this one's grid, whose bins are as wide, or narrower by a power of two.

        What is kept, times the ratio, is concave in the ratio: chords lie below it.
        """
        values, width = kept * later.ratios, later.width
        while width > self.width:
            values, width = _halved(values, width), width / 2
        return values / self.ratios


def _kept(stages: Sequence[_Stage], bills: Floats) -> float:
    """How much of the mass of outcomes their bills cover under the worst rule, from the last phase backwards."""
    later, kept = stages[-1], stages[-1].covered(float(bills[-1]))
    kept = later.before(kept)
    for stage, bill in zip(reversed(stages[:-1]), reversed(bills[:-1]), strict=True):
        kept = np.minimum(stage.covered(float(bill)), stage.refined(kept, later))
        kept, later = stage.before(kept), stage
    return float(kept[_BINS])


def _stages(masses: Sequence[LossMasses], widths: Sequence[float]) -> list[_Stage]:
    """One a phase; phases that are alike share theirs."""
    pairs = {(id(one), width): one for one, width in zip(masses, widths, strict=True)}
    known = {key: _Stage(one, key[1]) for key, one in pairs.items()}
    return [known[id(one), width] for one, width in zip(masses, widths, strict=True)]


def _halved(values: Floats, width: float) -> Floats:
    """The middle half of a grid, with bins half as wide: chords between ratios e^x and e^(x + width)."""
    middle = values[_BINS // 2 : 3 * _BINS // 2 + 1]
    part = 1 / (1 + math.exp(width / 2))  # of the way between them, at which e^(x + width / 2) lies
    found = np.empty_like(values)
    found[::2], found[1::2] = middle, (1 - part) * middle[:-1] + part * middle[1:]
    return found


def _coarse(fine: LossMasses, width: float) -> tuple[int, Floats]:
    """Wider bins: every mass is split between the two around it so that both laws keep theirs.

    Of a mass at x between x0 and x0 + width a part c = (1 - e^(x0 - x)) / (1 - e^-width) goes up; the other law, e^-x times
    as large, then has as much as before too. Merging the two again would give the old pair: the new one dominates it.
    """
    # Rounding leaves a few negative masses. They stay: cut off, what rounding adds elsewhere would pass for mass that is kept.
    masses = fine._probs
    losses = fine._discretization * (fine._lower_loss + np.arange(len(masses)))
    below = np.floor(losses / width)
    part = np.expm1(below * width - losses) / math.expm1(-width)
    low = int(below[0])
    place = (below - low).astype(np.intp)
    size = int(place[-1]) + 2
    found = np.bincount(place, masses * (1 - part), size) + np.bincount(place + 1, masses * part, size)
    return low, found.astype(np.float64)
