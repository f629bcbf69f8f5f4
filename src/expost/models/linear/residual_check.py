"""Were residuals cut off? A private reading of how much loss the truncation of the squared loss hides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.noisy_remainder import RATIO, THRESHOLDS
from expost.core import Adjacency, Ladder, Norm, Sealed, Sensitivity
from expost.data.matrix import GRID_BITS, UnitRows
from expost.models.descent.head import row_sums
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.level import LARGEST_RATE

__all__ = ["Checked", "ResidualCheck"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
_HOPELESS = 8  # units of noise above the threshold beyond which a further rung will hardly accept
_FLOAT_ERROR = 1e-9  # more than float64 can be off in a residual of rows in the unit ball


@dataclass(frozen=True)
class Checked:
    """How a check ended: the noisy hidden loss, the scale of its noise, and what reading it cost.

    ``rungs`` is the number of rungs that the reading may have stopped at, by looking at its noise.
    """

    noisy: float
    scale: float
    epsilon: Fraction
    enough: bool
    rungs: int = 1

    def hidden(self, failure_probability: float) -> float:
        """Bound the hidden loss from above, except with this probability.

        The rung was chosen by its noise, so every rung gets an even part of the probability: a union bound.
        """
        if self.scale == 0:
            return 0.0
        # One-sided; two units for the grid.
        tail = math.log(1 / min(2 * failure_probability / self.rungs, 1.0))
        return max(self.noisy, 0.0) + self.scale * tail * (1 + 1e-9) + 2 * _GRID


@dataclass(frozen=True)
class ResidualCheck:
    """Reads under noise by how much the truncated loss may flatter coefficients that are within a leash of the best.

    A row whose residual is ``beyond`` the reach contributes d beyond - d^2 / 2, d = min(beyond, |row| leash): what half the
    square of ``beyond`` can fall by between these coefficients and the best ones. That is at most ``most``, a public
    number because targets, rows and coefficients are bounded or public.

    Guarantee: pure ex-post DP, known only after the run: the rung at which the sum was low enough, at most the cap.
    Adjacency: replace-one, one row.
    Sensitivity: ``most`` (L1), in grid units: contributions lie between 0 and it.
    Accuracy: the law of the noise is public and does not depend on the data or the coefficients (accuracy/noisy_remainder.py).
    Numerics: exact integers and exact noise; contributions are rounded up.
    Reference: LNRWW17, Theorem 2.7 (gradual release); docs/proofs/truncated-ridge.md.
    """

    theta: Floats
    reach: float
    norm: Norm
    leash: float

    @property
    def furthest(self) -> float:
        """How far beyond the reach a residual can be: |residual| is at most 1 + |row . theta|."""
        dual = np.abs(self.theta).max() if self.norm is Norm.L1 else np.linalg.norm(self.theta)
        return max(1 + float(dual) - self.reach, 0.0) * (1 + _FLOAT_ERROR) + _FLOAT_ERROR

    @property
    def most(self) -> float:
        """The largest contribution of one row."""
        return float(_hidden(np.array(self.furthest), self.leash))

    @property
    def needless(self) -> bool:
        """Whether no row can have a residual beyond the reach."""
        return self.furthest <= 2 * _FLOAT_ERROR

    def climb(self, rows: UnitRows, *, scale: float, cap: Fraction, bits: BitSource | None = None) -> Checked:
        """Reads the sum with less and less noise, ``scale`` first, until a rung's threshold accepts it."""
        if self.needless:
            return Checked(0.0, 0.0, Fraction(0), True)
        first = math.floor(scale / _GRID)
        levels = (Fraction(self._units, max(first, 1)) * RATIO**rung for rung in range(len(THRESHOLDS)))
        ladder = tuple(level for level in levels if level <= cap)
        if not first or not ladder:
            return Checked(math.inf, math.inf, Fraction(0), False)
        path = DiscreteLaplacePath(self._measure(rows), Ladder(ladder), bits=bits)
        for rung, threshold in enumerate(THRESHOLDS[: len(ladder)]):
            noisy, noise = int(path.at(rung)[0]), first / RATIO**rung
            # One unit stricter: discrete Laplace noise is within a unit of real noise.
            enough = noisy <= first * threshold - 1
            if enough or noisy > first * threshold + _HOPELESS * noise:
                break
        return Checked(noisy * _GRID, float(noise) * _GRID, ladder[rung], enough, len(ladder))

    def read(self, rows: UnitRows, epsilon: Fraction, *, bits: BitSource | None = None) -> Checked:
        """Reads the sum once, at a given price."""
        if self.needless:
            return Checked(0.0, 0.0, Fraction(0), True)
        epsilon = min(epsilon, Fraction(LARGEST_RATE * self._units))  # beyond it there is no noise left to shrink
        noisy = int(DiscreteLaplacePath(self._measure(rows), Ladder((epsilon,)), bits=bits).at(0)[0])
        return Checked(noisy * _GRID, float(self._units / epsilon) * _GRID, epsilon, True)

    @property
    def _units(self) -> int:
        return math.ceil(self.most / _GRID) + 1

    def _measure(self, rows: UnitRows) -> Sealed:
        total = 0
        for features, target in rows.chunks():
            # Added one product after the other, so that no residual depends on where in a chunk its row stands.
            residual = np.abs(row_sums((features * self.theta).T) - target) * _GRID
            outside = np.flatnonzero(residual > self.reach - _FLOAT_ERROR)
            beyond = residual[outside] - self.reach + _FLOAT_ERROR
            length = np.linalg.norm(features[outside], axis=1) * _GRID
            hidden = np.ceil(_hidden(beyond, length * self.leash) / _GRID)
            total += int(np.minimum(hidden, self._units).sum())
        return Sealed(total, Sensitivity(self._units, adjacency=Adjacency.REPLACE_ONE))


def _hidden(beyond: Floats, change: Floats | float) -> Floats:
    """How much half the square of a number can fall when the number changes by at most this much, but not below 0."""
    moved = np.minimum(beyond, change)
    return moved * (beyond - moved / 2)
