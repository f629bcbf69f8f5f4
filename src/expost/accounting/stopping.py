"""What a process may tell beyond its bill when it may be stopped after any of its phases, by whatever rule.

The worst rule is the answer of an optimal-stopping problem, solved backwards on a grid of privacy losses
(docs/proofs/sgd-stopping.md, Theorem 4). Importing this module needs the extra ``accounting``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from expost.accounting.loss_distribution import LossDistributionTotal
from expost.accounting.loss_masses import LossMasses
from expost.accounting.rounding import Floats

__all__ = ["StoppedLosses"]

_REACH = 2.0  # how far losses are followed, over the largest bill; beyond it everything counts as told
# Rounding of one convolution by Fourier transforms, of masses that add up to one with values up to one: below 2^-46 where
# it was compared with plain sums on these grids; four times that is reserved.
_ERROR_PER_PHASE = 2.0**-44
_TRIES, _CLOSE, _AIM = 8, 1.02, 0.99  # of the search for shares: two percent of delta are a thousandth of a price
_TINY = 1e-300


class StoppedLosses:
    """The privacy losses of phases, one after the other, on one grid.

    >>> from expost.accounting.events import GaussianEvent
    >>> from expost.accounting.loss_distribution import total
    >>> from expost.accounting.scenario import scenarios
    >>> phase = total(scenarios(GaussianEvent(2))[0], interval=2.0**-8)
    >>> round(StoppedLosses([phase, phase]).excess(np.array([2.0, 3.0])), 5)
    2e-05
    """

    def __init__(self, phases: Sequence[LossDistributionTotal]) -> None:
        pairs = [(phase.distribution._pmf_remove, phase.distribution._pmf_add) for phase in phases]
        alike = all(forward is backward for forward, backward in pairs)
        self._directions = list(zip(*pairs, strict=True))[: 1 if alike else 2]
        self._error = sum(phase.error for phase in phases) + _ERROR_PER_PHASE * len(phases)
        self._spectra: dict[tuple[int, int], list[_Spread]] = {}

    def excess(self, bills: Floats) -> float:
        """The largest delta that a rule of stopping can make of these bills, one for each phase."""
        return max(self._worst(number, bills) for number in range(len(self._directions))) + self._error

    def overlap(self, bills: Callable[[float], Floats], delta: float, *, most: float) -> float:
        """How many times delta the shares behind the bills may add up to; ``bills`` falls with it, and is right at 1.

        Shares that add up to delta are always small enough. They may add up to more, because a loss that exceeds the bill
        of one stop often exceeds those of others.
        """
        size, told, limit = 1.0, self.excess(bills(1.0)), most
        for _ in range(_TRIES):
            # What is told is about proportional to the shares: the next try is aimed a little below delta.
            tried = min(size * _AIM * delta / max(told, _TINY), limit)
            if tried < size * _CLOSE:
                break
            found = self.excess(bills(tried))
            if found <= delta:
                size, told = tried, found
            else:
                limit = (size + tried) / 2
        return size

    def _worst(self, direction: int, bills: Floats) -> float:
        phases = self._directions[direction]
        width = phases[0]._discretization
        reach = _rounded(math.ceil(_REACH * float(bills.max()) / width))
        losses = np.arange(-reach, reach + 1) * width
        spreads = self._spread(direction, reach)
        value = _told(losses, bills[-1])
        for spread, bill in zip(reversed(spreads[1:]), reversed(bills[:-1]), strict=True):
            value = np.maximum(_told(losses, bill), spread.mean(value))
        return float(spreads[0].mean(value)[reach])

    def _spread(self, direction: int, reach: int) -> list[_Spread]:
        if (direction, reach) not in self._spectra:
            phases = self._directions[direction]
            different = {id(phase): _Spread(phase, 2 * reach + 1) for phase in phases}
            self._spectra[direction, reach] = [different[id(phase)] for phase in phases]
        return self._spectra[direction, reach]


class _Spread:
    """One phase: the mean of a function of the loss after it, as a function of the loss before it."""

    def __init__(self, masses: LossMasses, size: int) -> None:
        self._lost, self._size = float(masses._infinity_mass), size
        self._low, self._high = masses._lower_loss, masses._lower_loss + len(masses._probs) - 1
        self._below, self._above = max(0, -self._low), max(0, self._high)
        self._length = next_fast_len(self._below + size + self._above + len(masses._probs), real=True)
        self._spectrum = np.conj(rfft(np.maximum(masses._probs, 0.0), self._length))

    def mean(self, value: Floats) -> Floats:
        """Values rise with the loss and are 1 at most: those beyond either end are bounded by what is nearest above."""
        around = np.concatenate([np.full(self._below, value[0]), value, np.ones(self._above)])
        found = irfft(rfft(around, self._length) * self._spectrum, self._length)
        start = self._below + self._low
        return np.clip(found[start : start + self._size] + self._lost, 0.0, 1.0)


def _rounded(size: int) -> int:
    """Up to two binary digits or so: bills that differ a little share a grid, and its transforms."""
    step = 1 << max(size.bit_length() - 3, 0)
    return -(-size // step) * step


def _told(losses: Floats, bill: float) -> Floats:
    """The part of an outcome of such a loss that the bill does not cover."""
    return -np.expm1(np.minimum(bill - losses, 0.0))
