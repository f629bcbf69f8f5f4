"""Values and intervals read off noisy integers, and whether they reach a target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.core import Measure, Target

__all__ = ["Reading"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """One value and interval a cell; the interval covers the exact answer at the level it was read with.

    >>> reading = Reading(np.array([100.0]), np.array([96.0]), np.array([104.0]))
    >>> reading.reaches(Target.within(5)).tolist(), reading.reaches(Target.within("4%")).tolist()
    ([True], [False])
    """

    value: Floats
    low: Floats
    high: Floats

    def achieved(self, *, relative: bool) -> Floats:
        """The largest error that the interval leaves possible, absolute or as a share of the exact answer."""
        below, above = self.value - self.low, self.high - self.value
        if relative:
            # |v - c| / |c| over an interval without zero is largest at one of its ends.
            signed = self.low * self.high > 0
            low, high = np.where(signed, np.abs(self.low), 1.0), np.where(signed, np.abs(self.high), 1.0)
            ends = np.maximum(below / low, above / high)
            return np.where(signed, ends, np.where((below > 0) | (above > 0), np.inf, 0.0))
        return np.maximum(below, above)

    def reaches(self, target: Target) -> NDArray[np.bool_]:
        """Whether every exact answer in the interval is within the target of the value."""
        relative = target.measure is Measure.RELATIVE_ERROR
        reached: NDArray[np.bool_] = self.achieved(relative=relative) <= float(target.tolerance) * (1 + 1e-12)
        return reached

    def balanced(self) -> Reading:
        """The same intervals with the values that keep the relative error smallest: the harmonic middle.

        For 0 < low < high, the v with (high - v) / high = (v - low) / low is 2 low high / (low + high).
        """
        fits = self.low * self.high > 0
        total = np.where(fits, self.low + self.high, 1.0)
        return Reading(np.where(fits, 2 * self.low * self.high / total, self.value), self.low, self.high)

    def where(self, flags: NDArray[np.bool_], other: Reading) -> Reading:
        """These numbers for the flagged cells, another reading's for the rest."""
        each = np.repeat(flags, len(self.value) // len(flags))
        return Reading(
            np.where(each, self.value, other.value),
            np.where(each, self.low, other.low),
            np.where(each, self.high, other.high),
        )
