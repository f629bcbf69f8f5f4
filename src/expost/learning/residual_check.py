"""Were residuals cut off? A private upper bound on how much the truncation of the squared loss hides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
from expost.core import Adjacency, Ladder, Norm, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.data.matrix import GRID_BITS, UnitRows
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["Checked", "ResidualCheck"]

Floats = NDArray[np.float64]

_GRID = math.ldexp(1.0, -GRID_BITS)
_RUNGS = tuple(Fraction(8, 5) ** step for step in range(3))  # in units of the first
_FAILURES = (Fraction(4, 5), Fraction(3, 20), Fraction(1, 20))  # shares of the failure probability, rung by rung
_PASSING = math.log(2.5)  # an empty sum passes the first rung with probability 0.8
_FLOAT_ERROR = 1e-9  # more than float64 can be off in a residual of rows in the unit ball


@dataclass(frozen=True)
class Checked:
    """How a check ended: an upper bound on what was hidden, and what finding it cost."""

    hidden: float
    epsilon: Fraction
    enough: bool


@dataclass(frozen=True)
class ResidualCheck:
    """Bounds the sum over rows of |row| (|residual| - reach)+ from above, by gradual release.

    Where no residual exceeds ``reach`` the truncated loss and the squared loss have the same gradient; elsewhere the
    gradients of the two sums differ by at most this sum. A row contributes at most ``most``, a public number because
    targets, rows and coefficients are bounded or public.

    Guarantee: pure ex-post DP, known only after the run: the rung at which the bound was low enough, at most the cap.
    Adjacency: replace-one, one row.
    Sensitivity: ``most`` (L1), in grid units: contributions lie between 0 and it.
    Accuracy: the bound holds except with the failure probability, over all rungs together.
    Numerics: exact integers and exact noise; contributions are rounded up.
    Reference: LNRWW17, Theorem 2.7 (gradual release); docs/proofs/truncated-ridge.md.
    """

    theta: Floats
    reach: float
    norm: Norm

    @property
    def most(self) -> float:
        """The largest contribution of one row: |residual| is at most 1 + |row . theta|."""
        dual = np.abs(self.theta).max() if self.norm is Norm.L1 else np.linalg.norm(self.theta)
        return max(1 + float(dual) - self.reach, 0.0) * (1 + _FLOAT_ERROR) + _FLOAT_ERROR

    @property
    def needless(self) -> bool:
        """Whether no row can have a residual beyond the reach."""
        return self.most <= 2 * _FLOAT_ERROR

    def run(
        self,
        rows: UnitRows,
        *,
        allowed: float | None,
        failure_probability: Fraction,
        cap: Fraction,
        bits: BitSource | None = None,
    ) -> Checked:
        """The bound at the first rung where it is at most ``allowed``; the climb ends early where it hardly can be.

        Without ``allowed`` all of the cap is spent on one bound, whatever it is.
        """
        if self.needless:
            return Checked(0.0, Fraction(0), True)
        ladder = Ladder((cap,)) if allowed is None else self._ladder(allowed, failure_probability, cap)
        if ladder is None:
            return Checked(math.inf, Fraction(0), False)
        path = DiscreteLaplacePath(self._measure(rows), ladder, bits=bits)
        radii = self._radii(ladder, failure_probability)
        for rung, radius in enumerate(radii.tolist()):
            noisy = float(path.at(rung)[0])
            hidden = max(noisy + radius, 0.0) * _GRID
            if allowed is None or hidden <= allowed or (noisy - radius) * _GRID > allowed:
                break
        return Checked(hidden, ladder[rung], allowed is None or hidden <= allowed)

    @property
    def _units(self) -> int:
        return math.ceil(self.most / _GRID) + 1

    def _ladder(self, allowed: float, failure_probability: Fraction, cap: Fraction) -> Ladder | None:
        """Rungs from the level at which an empty sum passes easily; none if that is beyond the cap."""
        if allowed <= 0:
            return None
        tail = math.log(1 / (2 * float(failure_probability * _FAILURES[0])))
        first = round_up(1.001 * self.most * (max(tail, 0.0) + _PASSING) / allowed)
        rungs = tuple(first * step for step in _RUNGS if first * step <= cap)
        return Ladder(rungs) if rungs else None

    def _radii(self, ladder: Ladder, failure_probability: Fraction) -> NDArray[np.int64]:
        """How much may have been subtracted from the sum; one-sided, hence twice the failure of a two-sided radius."""
        shares = _FAILURES[: len(ladder)]
        failures = [min(2 * failure_probability * share, Fraction(99, 100)) for share in shares]
        return np.array([noise_radius(each, self._units / level) for each, level in zip(failures, ladder, strict=True)])

    def _measure(self, rows: UnitRows) -> Sealed:
        total = 0
        for features, target in rows.chunks():
            residual = np.abs(features @ self.theta - target) * _GRID
            beyond = np.maximum(residual - self.reach + _FLOAT_ERROR, 0.0) * np.linalg.norm(features, axis=1) * _GRID
            total += int(np.minimum(np.ceil(beyond / _GRID), self._units).sum())
        return Sealed(total, Sensitivity(self._units, adjacency=Adjacency.REPLACE_ONE))
