"""Objective perturbation: the minimum of a randomly tilted risk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.apriori import PerturbedObjective
from expost.core import Adjacency, Ladder, Norm, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.data.matrix import UnitBall, UnitRows
from expost.learning.losses import Loss
from expost.learning.newton import Objective, minimise, solver_distance
from expost.noise import BitSource, DiscreteLaplacePath, discrete_laplace

__all__ = ["TiltedRisk"]

Floats = NDArray[np.float64]

_TILT_BITS = 36  # the scale of the tilt is about 2^36 grid units
_OUTPUT_BITS = 18  # and the sensitivity of the output about 2^18


@dataclass(frozen=True)
class TiltedRisk:
    """Minimises mean loss + penalty/2 |theta|^2 + tilt . theta / rows for a random tilt.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: one row moves the sum of gradients by at most 2 steepest in the dual norm of the ball; the solver's
        leftover is hidden by noise of its own (L1).
    Accuracy: excess risk <= |tilt|^2 / (2 penalty rows^2), with the quantile of the tilt's norm (PerturbedObjective).
    Numerics: tilt and output noise are exact and on a grid; that the ideal tilt is real-valued and the solver works in
        float64 is part of the output's sensitivity. Convergence of the solver is checked, not assumed.
    Reference: CMS11, Theorem 9 (idea); KST12, Theorem 1; INSTTW19, Theorem 1 (inexact minima);
        docs/proofs/objective-perturbation.md (constants, ours).
    """

    loss: Loss
    ball: UnitBall
    rows: int
    penalty: float

    @cached_property
    def prices(self) -> PerturbedObjective:
        """What epsilon buys."""
        return PerturbedObjective(
            rows=self.rows,
            dimension=self.ball.dimension,
            penalty=self.penalty,
            steepest=self.loss.steepest,
            sharpest=self.loss.sharpest,
            spread=1.0 if self.ball.norm is Norm.L1 else math.sqrt(self.ball.dimension),
            solver_distance=self._distance,
        )

    def _radius(self, longest_tilt: float) -> float:
        # No worse than zero: penalty/2 r^2 <= at_zero + tilt r. The factor keeps the border out of the way.
        zero = math.sqrt(longest_tilt**2 + 2 * self.penalty * self.loss.at_zero)
        return 1.001 * (longest_tilt + zero) / self.penalty

    def _distance(self, longest_tilt: float) -> float:
        solver = solver_distance(
            self.loss,
            self.ball,
            rows=self.rows,
            penalty=self.penalty,
            radius=self._radius(longest_tilt),
            tilt=longest_tilt,
        )
        # A discrete Laplace variable can be drawn together with a real one less than a grid unit away.
        grid = longest_tilt * 2.0**-_TILT_BITS
        return solver + math.sqrt(self.ball.dimension) * grid / self.penalty

    def release(
        self, rows: UnitRows, epsilon: Fraction, *, target_scale: float = 1.0, bits: BitSource | None = None
    ) -> Floats:
        """The private coefficients for rows in the unit ball."""
        prices = self.prices
        tilt = self._draw_tilt(prices, epsilon, bits)
        longest = prices.longest_tilt(epsilon)
        objective = Objective(rows, self.loss, self.penalty, tilt / self.rows, target_scale)
        minimum = minimise(objective, radius=self._radius(longest), tilt=longest)
        return self._hide(minimum, prices, epsilon, bits)

    def _draw_tilt(self, prices: PerturbedObjective, epsilon: Fraction, bits: BitSource | None) -> Floats:
        share, _ = prices.split(epsilon)
        scale = 2 * round_up(self.loss.steepest * prices.spread) / share
        grid = Fraction(2) ** (math.floor(math.log2(scale)) - _TILT_BITS)
        draws = discrete_laplace(scale / grid, self.ball.dimension, bits=bits)
        return np.asarray(draws, dtype=np.float64) * float(grid)

    def _hide(self, minimum: Floats, prices: PerturbedObjective, epsilon: Fraction, bits: BitSource | None) -> Floats:
        """Adds what hides the difference between the solver's point and the exact minimum."""
        _, share = prices.split(epsilon)
        distance = prices.output_sensitivity(epsilon)
        step = math.ldexp(1.0, math.floor(math.log2(distance)) - _OUTPUT_BITS)
        # Rounding moves each of two neighbouring outputs by at most half a step.
        units = math.ceil(distance / step * (1 + 1e-9)) + len(minimum)
        gridded = np.rint(minimum / step).astype(np.int64)
        sealed = Sealed(gridded, Sensitivity(units, adjacency=Adjacency.REPLACE_ONE))
        released = DiscreteLaplacePath(sealed, Ladder((share,)), bits=bits).at(0)
        return np.asarray(released, dtype=np.float64) * step
