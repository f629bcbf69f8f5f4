"""The straight line from a regression's predictions to its targets, which undoes what clipped gradients leave out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.models.tabular.lattice_sum import LatticeSum

__all__ = ["LINE_SHARE", "PredictionLine"]

Floats = NDArray[np.float64]
LINE_SHARE = 0.1
"""Share of a regression's rung for its line. Chosen on the tables gss, nlswork, cps and diamonds, as what is below."""
_FARTHEST = 4.0  # usual scores, at which a score is cut off
_SIDE = 0.3  # length of the scores' parts of a vector, beside the residual's
_NOISE = 0.012  # of the target's spread: the residual is cut off where it makes about this much noise in the mean
_LEAST_CUT = 2.5  # spreads of the target
_LONGEST = math.sqrt(2 + 3 * _SIDE**2)


@dataclass(frozen=True)
class PredictionLine:
    """The sums over rows from which a line ``shift + (1 + tilt) score`` to the target follows.

    A gradient is clipped, so that one row moves it little. Where a target has a long tail, its far values then count less: all
    predictions are too low and too close together. Two numbers correct most of that, and two numbers take little noise: their
    residuals can be cut off much later than a gradient.

    ``usual`` is the usual size of a score, ``cut`` the size at which residuals are cut off, both in spreads of the target.

    Guarantee: none by itself; a release of the sum is one Gaussian event.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: that of ``LatticeSum`` for vectors of length sqrt(2 + 3 * 0.3^2).
    Accuracy: none promised; the model is tested afterwards.
    Numerics: vectors are a row's own, bit for bit; sums are exact integers.
    Reference: docs/proofs/tabular-models.md, Lemma 1.
    """

    usual: float
    cut: float
    rows_per_unit: int = 1

    @staticmethod
    def fit_cut(noise: Fraction, rows: float, spread: float, middle: float) -> float:
        """Return where residuals are cut off: as far as the noise allows, and not beyond the target's own range.

        >>> PredictionLine.fit_cut(Fraction(100), 1e4, 0.1, 0.0), PredictionLine.fit_cut(Fraction(100), 1e7, 0.1, 0.0)
        (2.5, 20.0)
        """
        return float(np.clip(_NOISE * rows / float(noise), _LEAST_CUT, 2 * (1 + abs(middle)) / spread))

    @cached_property
    def lattice(self) -> LatticeSum:
        """Return the lattice of the sums."""
        return LatticeSum(5, _LONGEST, self.rows_per_unit)

    def vectors(self, scores: Floats, targets: Floats) -> Floats:
        """Return the vectors of rows, from scores and targets in spreads around the middle."""
        near = np.clip(scores, -_FARTHEST * self.usual, _FARTHEST * self.usual)
        lever = np.clip(scores / self.usual, -1.0, 1.0)
        missed = np.clip(targets - near, -self.cut, self.cut) / self.cut
        far = near * (_SIDE / (_FARTHEST * self.usual))
        return np.column_stack([missed, missed * lever, _SIDE * lever, far, far * lever])

    def read(self, released: Floats, noise: Fraction, rows: float) -> tuple[float, float]:
        """Return the shift and the tilt, both pulled to zero as far as they may be noise."""
        missed, levered, lever, far, spread = (released / rows).tolist()
        missed, levered, lever = missed * self.cut, levered * self.cut, lever / _SIDE
        far, spread = (each * (_FARTHEST * self.usual / _SIDE) for each in (far, spread))
        # missed = shift + tilt far and levered = shift lever + tilt spread, on average.
        steepness = max(spread - lever * far, self.usual / 4)
        deviation = self.lattice.deviation(noise) / rows * self.cut
        tilt = _shrink((levered - lever * missed) / steepness, deviation * math.hypot(1.0, lever) / steepness)
        return _shrink(missed - tilt * far, deviation), tilt


def _shrink(value: float, deviation: float) -> float:
    """Return a noisy number pulled to zero, less the further it stands out of its noise."""
    return value * max(0.0, 1 - (deviation / value) ** 2) if value else 0.0
