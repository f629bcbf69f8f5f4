"""What epsilon buys before the run: excess risk of objective perturbation from the law of its noise alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.noise_norm import laplace_norm_quantile
from expost.core import InvalidRequest
from expost.core.rational import round_up

__all__ = ["PerturbedObjective", "TiltLaw"]

Floats = NDArray[np.float64]

_OUTPUT_SHARE = Fraction(1, 200)  # of epsilon, for hiding the solver's error
_OUTPUT_FAILURE = Fraction(1, 100)  # of the failure probability, for the noise that hides it
_NEVER = 1e-9
_CLOSE = 1e-9  # relative


class TiltLaw(Protocol):
    """The public law of a random tilt, at the privacy level that is left for it."""

    @property
    def name(self) -> str:
        """The name in receipts."""
        ...

    def length(self, epsilon: Fraction, failure_probability: float) -> float:
        """Return a Euclidean length that the tilt exceeds with at most this probability."""
        ...

    def spacing(self, epsilon: Fraction) -> float:
        """Return how far, in Euclidean norm, a draw can be from an ideal tilt of real numbers."""
        ...


@dataclass(frozen=True)
class PerturbedObjective:
    """The public numbers of one perturbed problem, in which rows lie in a unit ball.

    The tilt b of the objective has a public law at epsilon', what the Jacobian leaves of epsilon. Its minimum has
    gradient -b / rows, so the excess risk is at most |b|^2 / (2 penalty rows^2): known in law before the run. Proofs:
    docs/proofs/objective-perturbation.md.
    """

    rows: int
    dimension: int
    penalty: float
    steepest: float
    sharpest: float
    at_zero: float
    tilt: TiltLaw
    solver_distance: Callable[[float, float], float]
    """How far the solver's point can be from a minimum of at most this length, for a tilt per row of at most this one."""

    @cached_property
    def jacobian(self) -> Fraction:
        """The cost of the change of variables: ln(1 + sharpest / (rows penalty)), rounded up."""
        return round_up(math.log1p(self.sharpest / (self.rows * self.penalty)))

    def split(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """Return what is left of epsilon for the tilt, and the part that hides the solver's error."""
        output = epsilon * _OUTPUT_SHARE
        tilt = epsilon - output - self.jacobian
        if tilt <= 0:
            raise InvalidRequest(
                f"Expected an epsilon above {float(self.jacobian):.3g} for this number of rows and regularization",
                got=epsilon,
                do="Raise epsilon or regularization",
            )
        return tilt, output

    def reach(self, epsilon: Fraction) -> float:
        """Return the length that minima are cut to; a longer one has probability at most 1e-9 and is a failure."""
        tilt = self.tilt.length(self.split(epsilon)[0], _NEVER) / self.rows
        # The minimum is no worse than zero: penalty / 2 r^2 <= at_zero + tilt r.
        return 1.001 * (tilt + math.sqrt(tilt**2 + 2 * self.penalty * self.at_zero)) / self.penalty

    def distance(self, epsilon: Fraction) -> float:
        """Return how far the solver's point, cut to the reach, can be from the exact minimum, cut to the reach.

        It holds whatever the tilt is: minima of up to twice the reach decide (docs/proofs/objective-perturbation.md, 5).
        """
        reach, spacing = self.reach(epsilon), self.tilt.spacing(self.split(epsilon)[0]) / self.rows
        longest = self.steepest + 2 * self.penalty * reach + spacing  # the tilt of a minimum of twice the reach
        found = self.solver_distance(2 * reach, longest) + spacing / self.penalty
        if found > reach / 4:
            raise InvalidRequest(
                "Expected a regularization that float64 can resolve for this table",
                do="Ask for a larger regularization",
            )
        return found

    def output_sensitivity(self, epsilon: Fraction) -> float:
        """Return how far apart, in the 1-norm, two solvers can land that approach the same exact minimum."""
        return 2 * math.sqrt(self.dimension) * self.distance(epsilon)

    def output_length(self, epsilon: Fraction, failure_probability: Fraction) -> float:
        """Return how far from the exact minimum the release is, except with a hundredth of this probability."""
        scale = self.output_sensitivity(epsilon) / float(self.split(epsilon)[1])
        quantile = laplace_norm_quantile(self.dimension, float(failure_probability * _OUTPUT_FAILURE))
        return 1.01 * scale * quantile + self.distance(epsilon)  # 1 % for the rounding to the grid

    def excess_risk(self, epsilon: Fraction, failure_probability: Fraction) -> float:
        """Return an excess risk that is exceeded with at most this probability."""
        # What exceeds the reach is among the failures: _NEVER is the smaller probability.
        length = self.tilt.length(self.split(epsilon)[0], float(failure_probability * (1 - _OUTPUT_FAILURE)))
        gradient, hidden = length / self.rows, self.output_length(epsilon, failure_probability)
        smooth = self.sharpest + self.penalty
        # Strong convexity, then smoothness for the step that the output noise takes (Nes04, Theorems 2.1.5 and 2.1.10).
        return gradient**2 / (2 * self.penalty) + gradient * hidden + smooth / 2 * hidden**2

    def excess_risks(self, epsilon: Fraction, failure_probabilities: Sequence[float]) -> Floats:
        """Return ``excess_risk`` for many failure probabilities at once."""
        rarest = Fraction(min(failure_probabilities))
        level, kept = self.split(epsilon)[0], float(1 - _OUTPUT_FAILURE)
        lengths = [self.tilt.length(level, each * kept) for each in failure_probabilities]
        gradients, hidden = np.array(lengths) / self.rows, self.output_length(epsilon, rarest)
        risks: Floats = gradients**2 / (2 * self.penalty) + gradients * hidden
        return risks + (self.sharpest + self.penalty) / 2 * hidden**2

    def epsilon_for(self, excess_risk: float, failure_probability: Fraction) -> Fraction:
        """Return the smallest epsilon whose excess risk stays within the target."""
        low = float(self.jacobian) * 1.01 + 1e-15
        high = max(low, 1e-6)
        while self.excess_risk(Fraction(high), failure_probability) > excess_risk:
            high *= 2
            if high > 1e9:
                raise InvalidRequest("Expected a target within reach", got=excess_risk, do="Allow a larger excess risk")
        while high - low > _CLOSE * high:
            middle = (low + high) / 2
            enough = self.excess_risk(Fraction(middle), failure_probability) <= excess_risk
            low, high = (low, middle) if enough else (middle, high)
        return round_up(high)
