"""The mean of a numeric target, read with Laplace noise when a test of R^2 needs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from expost.models.tabular.laplace_test import LaplaceTest, shorten_level
from expost.models.tabular.table_profile import TableProfile

__all__ = ["TargetMean"]

_ROUNDED = 2.0**-20  # of a distance: rounding moves a row's entry by half as much


class TargetMean:
    """Readings of the mean of a numeric target, each around the best number known before.

    The distances of R^2 are measured from a middle c. Their squares add up to n (c - mean)^2 more than those of the
    distances from the mean. A middle that was read just before a test makes this excess small, at a small part of the price
    of the test.

    Guarantee: pure epsilon-DP: a reading costs its level.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: 1 + |c|, the largest distance of a target in [-1, 1] from the number c that it is read around.
    Accuracy: the mean is within ``error`` of ``value``. One of all readings is wrong with probability ``failure`` at most, given
        that the counts of their profiles are within the deviations that ``read`` names.
    Numerics: exact integers; targets are rounded to the nearest one.
    Reference: docs/proofs/tabular-models.md, Theorem 6.
    """

    def __init__(self, failure: float, rows_per_unit: int = 1) -> None:
        self._failure, self._rows_per_unit = failure, rows_per_unit
        self.value, self.error = 0.0, math.inf
        self.spent = Fraction(0)
        """What all readings cost."""

    def find_level(self, wanted: float, profile: TableProfile, reach: float) -> Fraction | None:
        """Return the level of a reading that is off by about this at most, None if the noise of the count forbids it."""
        center, off = self._find_center(profile)
        wanted -= off * reach * profile.rows_error / profile.rows
        if wanted <= 0:
            return None
        return shorten_level(-math.log(self._failure / 2) * (1 + abs(center)) / (wanted * profile.rows))

    def read(
        self, level: Fraction, profile: TableProfile, reach: float, open_mean: Callable[[float], LaplaceTest]
    ) -> None:
        """Read the mean once more, where the profile's count is within ``reach`` deviations."""
        center, count, counted = self._find_center(profile)[0], profile.rows, reach * profile.rows_error
        self._failure /= 2  # half of what is left is for this reading
        self.spent += level
        test = open_mean(center)
        seen, noise = test.look(level), test.margin(level, self._failure / 2)
        noise += (1 + abs(center)) * _ROUNDED * self._rows_per_unit * (count + counted)
        # The sum over W units is W (mean - c). Divided by the count N = W + v it misses mean - c by v (mean - c) / N.
        farthest = min(2.0, (abs(seen) + noise) / max(count - counted, 1.0))
        self.value, self.error = center + seen / count, (noise + farthest * counted) / count

    def _find_center(self, profile: TableProfile) -> tuple[float, float]:
        """Return the best number known for the mean, and about how far it is off."""
        off = math.hypot(profile.target_error, profile.target_middle * profile.rows_error / profile.rows)
        # An error is a bound, of about four deviations.
        return (self.value, self.error / 4) if self.error < 4 * off else (profile.target_middle, off)
