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

from expost.accuracy.laplace_norm import laplace_norm_quantile
from expost.core import InvalidRequest
from expost.core.rational import round_up

__all__ = ["PerturbedObjective", "TiltLaw"]

Floats = NDArray[np.float64]

_OUTPUT_SHARE = Fraction(1, 200)  # of epsilon, for hiding what the solver leaves over
_OUTPUT_FAILURE = Fraction(1, 100)  # of the failure probability, for the noise that hides it
_NEVER = 1e-9
_CLOSE = 1e-9  # relative


class TiltLaw(Protocol):
    """The public law of a random tilt, at the privacy level that is left for it."""

    @property
    def name(self) -> str:
        """What receipts call it."""
        ...

    def length(self, epsilon: Fraction, failure_probability: float) -> float:
        """A Euclidean length that the tilt exceeds with at most this probability."""
        ...

    def spacing(self, epsilon: Fraction) -> float:
        """How far, in Euclidean norm, what is drawn can be from an ideal tilt of real numbers."""
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
    """How far the solver's point can be from a minimum of at most this length under a tilt per row of at most this one."""

    @cached_property
    def jacobian(self) -> Fraction:
        """What the change of variables costs: ln(1 + sharpest / (rows penalty)), rounded up."""
        return round_up(math.log1p(self.sharpest / (self.rows * self.penalty)))

    def split(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """What is left of epsilon for the tilt, and the part that hides the solver's error."""
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
        """Minima are cut to this length; a longer one has probability 1e-9 at most and counts as a failure."""
        tilt = self.tilt.length(self.split(epsilon)[0], _NEVER) / self.rows
        # No worse than zero: penalty / 2 r^2 <= at_zero + tilt r.
        return 1.001 * (tilt + math.sqrt(tilt**2 + 2 * self.penalty * self.at_zero)) / self.penalty

    def distance(self, epsilon: Fraction) -> float:
        """How far the solver's point, cut to the reach, can be from the exact minimum, cut to the reach.

        Whatever the tilt: minima of up to twice the reach decide (docs/proofs/objective-perturbation.md, 5).
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
        """How far apart, in the 1-norm, two solvers can land that look for the same exact minimum."""
        return 2 * math.sqrt(self.dimension) * self.distance(epsilon)

    def excess_risk(self, epsilon: Fraction, failure_probability: Fraction, *, left_over: float = 0.0) -> float:
        """The excess risk that is not exceeded but with this probability.

        ``left_over`` bounds the gradient of the risk at the minimum beyond the tilt's, as a sum over rows.
        """
        gradient = (self._tilt_length(epsilon, failure_probability) + left_over) / self.rows
        hidden = self.output_length(epsilon, failure_probability)
        smooth = self.sharpest + self.penalty
        # Strong convexity, then smoothness for the step that the output noise takes (Nes04, Theorems 2.1.5 and 2.1.10).
        return gradient**2 / (2 * self.penalty) + gradient * hidden + smooth / 2 * hidden**2

    def excess_risks(self, epsilon: Fraction, failure_probabilities: Sequence[float]) -> Floats:
        """As ``excess_risk``, for many failure probabilities at once."""
        rarest = Fraction(min(failure_probabilities))
        level, kept = self.split(epsilon)[0], float(1 - _OUTPUT_FAILURE)
        lengths = [self.tilt.length(level, each * kept) for each in failure_probabilities]
        gradients, hidden = np.array(lengths) / self.rows, self.output_length(epsilon, rarest)
        risks: Floats = gradients**2 / (2 * self.penalty) + gradients * hidden
        return risks + (self.sharpest + self.penalty) / 2 * hidden**2

    def room(self, epsilon: Fraction, failure_probability: Fraction, excess_risk: float) -> float:
        """The largest ``left_over`` with which the excess risk stays within a target; negative if there is none."""
        hidden = self.output_length(epsilon, failure_probability)
        rest = excess_risk - (self.sharpest + self.penalty) / 2 * hidden**2
        # The root of gradient^2 / (2 penalty) + gradient hidden = rest.
        gradient = self.penalty * (math.sqrt(hidden**2 + 2 * max(rest, 0.0) / self.penalty) - hidden)
        return gradient * self.rows * (1 - _CLOSE) - self._tilt_length(epsilon, failure_probability)

    def _tilt_length(self, epsilon: Fraction, failure_probability: Fraction) -> float:
        # What exceeds the reach is among the failures: _NEVER is the smaller probability.
        return self.tilt.length(self.split(epsilon)[0], float(failure_probability * (1 - _OUTPUT_FAILURE)))

    def output_length(self, epsilon: Fraction, failure_probability: Fraction) -> float:
        """How far from the exact minimum what is released is, except with a hundredth of this probability."""
        scale = self.output_sensitivity(epsilon) / float(self.split(epsilon)[1])
        quantile = laplace_norm_quantile(self.dimension, float(failure_probability * _OUTPUT_FAILURE))
        return 1.01 * scale * quantile + self.distance(epsilon)  # 1 % for the rounding to the grid

    def epsilon_for(self, excess_risk: float, failure_probability: Fraction, *, tilt_share: float = 1.0) -> Fraction:
        """The smallest epsilon whose excess risk stays within the target when the tilt may use this share of it.

        The share is one of gradient length: the rest is room for ``left_over``.
        """
        goal = excess_risk * tilt_share**2
        low = float(self.jacobian) * 1.01 + 1e-15
        high = max(low, 1e-6)
        while self.excess_risk(Fraction(high), failure_probability) > goal:
            high *= 2
            if high > 1e9:
                raise InvalidRequest("Expected a target within reach", got=excess_risk, do="Allow a larger excess risk")
        while high - low > _CLOSE * high:
            middle = (low + high) / 2
            enough = self.excess_risk(Fraction(middle), failure_probability) <= goal
            low, high = (low, middle) if enough else (middle, high)
        return round_up(high)
