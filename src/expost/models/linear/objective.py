"""Objective perturbation: the minimum of a randomly tilted risk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.apriori import PerturbedObjective, TiltLaw
from expost.core import Adjacency, Ladder, Sealed, Sensitivity
from expost.data.matrix import UnitBall, UnitRows
from expost.models.linear.losses import Loss
from expost.models.linear.newton import Objective, minimise, solver_distance
from expost.models.linear.tilt import pure_tilt
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.level import LARGEST_RATE

__all__ = ["Tilt", "TiltedRisk"]

Floats = NDArray[np.float64]

_OUTPUT_BITS = 18  # the sensitivity of the output is about 2^18 grid steps
_FAR = 2.0**50  # times every other gradient: beyond it only the direction of a tilt matters


class Tilt(TiltLaw, Protocol):
    """A law that can be drawn from."""

    def draw(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        """One tilt, a sum over rows; or one in each of so many rows."""
        ...


@dataclass(frozen=True)
class TiltedRisk:
    """Minimises mean loss + penalty/2 |theta|^2 + tilt . theta / rows for a random tilt.

    Guarantee: pure DP with the given epsilon, known before the run; (epsilon, delta)-DP with a Gaussian tilt.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: one row moves the sum of gradients by at most 2 steepest in the dual norm of the ball; the solver's
        leftover is hidden by noise of its own (L1).
    Accuracy: excess risk <= |tilt|^2 / (2 penalty rows^2), with the quantile of the tilt's norm (PerturbedObjective).
    Numerics: tilt and output noise are exact and on a grid; that the ideal tilt is real-valued and the solver works in
        float64 is part of the output's sensitivity, however long the tilt: minima are cut to a public length.
        Convergence of the solver is checked, not assumed.
    Reference: CMS11, Theorem 9 (idea); KST12, Theorem 1; INSTTW19, Theorem 1 (inexact minima);
        docs/proofs/objective-perturbation.md, docs/proofs/gaussian-tilt.md (constants, ours).
    """

    loss: Loss
    ball: UnitBall
    rows: int
    penalty: float
    law: Tilt | None = None
    """The law of the tilt; the shorter of the pure ones by default."""

    def __post_init__(self) -> None:
        if self.law is None:
            object.__setattr__(self, "law", pure_tilt(self.ball, self.loss.steepest))

    @cached_property
    def prices(self) -> PerturbedObjective:
        """What epsilon buys."""
        assert self.law is not None
        return PerturbedObjective(
            rows=self.rows,
            dimension=self.ball.dimension,
            penalty=self.penalty,
            steepest=self.loss.steepest,
            sharpest=self.loss.sharpest,
            at_zero=self.loss.at_zero,
            tilt=self.law,
            solver_distance=self._distance,
        )

    def _distance(self, radius: float, tilt: float) -> float:
        return solver_distance(self.loss, self.ball, rows=self.rows, penalty=self.penalty, radius=radius, tilt=tilt)

    def release(
        self, rows: UnitRows, epsilon: Fraction, *, target_scale: float = 1.0, bits: BitSource | None = None
    ) -> Floats:
        """The private coefficients for rows in the unit ball."""
        tilt = self._draw_tilt(epsilon, bits) / self.rows
        return self._hide(self._cut_minimum(rows, tilt, epsilon, target_scale), epsilon, bits)

    def simulate(
        self, minima: Callable[[Floats], Floats], epsilon: Fraction, *, runs: int, bits: BitSource | None = None
    ) -> Floats:
        """Independent releases, one a row, for rows the caller knows anyway: ``minima`` solves for a table of tilts."""
        found = minima(self._draw_tilt(epsilon, bits, runs) / self.rows)
        reach = self.prices.reach(epsilon)
        length = np.linalg.norm(found, axis=1, keepdims=True)
        return self._hide(found * np.minimum(1.0, reach / np.maximum(length, reach)), epsilon, bits)

    def _draw_tilt(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        assert self.law is not None
        level = self.prices.split(epsilon)[0]
        return self.law.draw(level, bits) if runs is None else self.law.draw(level, bits, runs)

    def _cut_minimum(self, rows: UnitRows, tilt: Floats, epsilon: Fraction, target_scale: float) -> Floats:
        """The minimum as the solver finds it, scaled down to the reach where it is longer."""
        reach = self.prices.reach(epsilon)
        largest = float(np.abs(tilt).max())
        length = largest * float(np.linalg.norm(tilt / largest)) if largest > 0 else 0.0
        if length > _FAR * (self.loss.steepest + self.penalty * reach):
            # The tilt alone says where the minimum is: opposite, far beyond the reach.
            return tilt / length * -reach
        minimum = minimise(Objective(rows, self.loss, self.penalty, tilt, target_scale))
        return minimum * min(1.0, reach / max(float(np.linalg.norm(minimum)), reach))

    def _hide(self, minimum: Floats, epsilon: Fraction, bits: BitSource | None) -> Floats:
        """Adds what hides the difference between the solver's point and the exact minimum; a table has one in each row."""
        _, share = self.prices.split(epsilon)
        distance = self.prices.output_sensitivity(epsilon)
        step = math.ldexp(1.0, math.floor(math.log2(distance)) - _OUTPUT_BITS)
        # Rounding moves each of two neighbouring outputs by at most half a step.
        units = math.ceil(distance / step * (1 + 1e-9)) + self.ball.dimension
        gridded = np.rint(minimum.ravel() / step).astype(np.int64)
        sealed = Sealed(gridded, Sensitivity(units, adjacency=Adjacency.REPLACE_ONE))
        level = min(share, Fraction(LARGEST_RATE * units))  # beyond it there is no noise left to shrink
        released = DiscreteLaplacePath(sealed, Ladder((level,)), bits=bits).at(0)
        return np.asarray(released, dtype=np.float64).reshape(minimum.shape) * step
