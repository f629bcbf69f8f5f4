"""Masses of the privacy loss on a grid, added up and read in whole arrays.

``dp-accounting`` finds the window of a convolution by forty slow logarithms of sums and an epsilon by a loop over bins; here
both take array operations only, and the numbers are the same. Importing this module needs the extra ``accounting``.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter

from expost.accounting.rounding import Floats

__all__ = ["LossMasses"]

_ORDERS = 20  # of Chernoff's bound, on either side


class LossMasses(DensePLDPmf):  # type: ignore[misc]
    """One direction of a loss distribution that dominates; what is cut off counts as certain disclosure.

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
        """The sum with another loss."""
        return self._like(super().compose(other, tail_mass_truncation))

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> LossMasses:
        """The sum of many such losses: the power of the spectrum, over the window that Chernoff's bound leaves."""
        low, high = _window(self._probs, num_times, tail_mass_truncation)
        size = next_fast_len(max(high - low + 1, len(self._probs)), real=True)
        # The transform wraps around: what lies outside the window adds its mass, at most the truncated one, inside.
        wrapped = irfft(rfft(self._probs, size) ** num_times, size)
        kept = np.roll(wrapped, -low)[: high - low + 1]
        lost = 1.0 if self._infinity_mass >= 1 else -math.expm1(num_times * math.log1p(-self._infinity_mass))
        first = self._lower_loss * num_times + low
        return LossMasses(self._discretization, first, kept, tail_mass_truncation + lost, True)

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The smallest epsilon whose hockey-stick divergence is at most delta."""
        if self._infinity_mass > delta:
            return math.inf
        start = min(max(0, 1 - self._lower_loss), len(self._probs))  # an epsilon >= 0 asks for positive losses only
        losses = (np.arange(start, len(self._probs)) + self._lower_loss)[::-1] * self._discretization
        masses = self._probs[start:][::-1]
        # The masses of all larger losses, with the unit and without it; their divergence at a loss is above - e^loss without.
        above = self._infinity_mass + np.concatenate([[0.0], np.cumsum(masses)])
        without = np.concatenate([[0.0], np.cumsum(masses * np.exp(-losses))])
        far = np.flatnonzero((above[1:] >= delta) & (without[1:] == 0))  # losses whose e^-loss is no float
        if len(far):
            return float(losses[far[0]])
        known = np.flatnonzero((above > delta) & (without > 0))
        with np.errstate(over="ignore"):
            found = np.log((above[known] - delta) / without[known])
        # Epsilon lies between two losses: below the one just counted, not below the next; the last has none after it.
        stop = np.flatnonzero(found >= np.append(losses, 0.0)[known])
        return float(found[stop[0]]) if len(stop) else 0.0

    def profile(self) -> tuple[Floats, Floats]:
        """The losses of the grid from zero on, falling, and the deltas there; sums are rounded upwards.

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
        without = lfilter([decay], [1.0, -decay], larger)
        # Each of the two sums rounds at most twice a term.
        rounding = 4 * len(masses) * 2.0**-53 * np.maximum(above, 0.0)
        return losses, np.clip(above - without + rounding, self._infinity_mass, 1.0)

    def _like(self, found: DensePLDPmf) -> LossMasses:
        return LossMasses(
            found._discretization,
            found._lower_loss,
            found._probs,
            found._infinity_mass,
            found._pessimistic_estimate,
        )


def _window(masses: Floats, count: int, truncated: float) -> tuple[int, int]:
    """The first and last place of a sum that are kept: beyond each lies half of the truncated mass at most."""
    low, high, size = 0, (len(masses) - 1) * count, len(masses)
    growth = np.exp(np.arange(size) / size)
    rising, falling, half = masses, masses, math.log(2 / truncated)
    if not masses.any():
        return 0, 0
    for order in range(1, _ORDERS + 1):
        rising, falling = rising * growth, falling / growth
        # Chernoff: P(sum >= b) <= E[e^(t x)]^count e^(-t b), here with t = order / size, and likewise below.
        high = min(high, math.ceil((count * math.log(rising.sum()) + half) * size / order))
        low = max(low, math.floor(-(count * math.log(falling.sum()) + half) * size / order))
    return low, max(low, high)
