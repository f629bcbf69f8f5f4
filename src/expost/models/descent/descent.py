"""What is done with noisy gradients: post-processing, free of charge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest

__all__ = ["Descent", "DescentRule", "Stride"]

Floats = NDArray[np.float64]
_BEARABLE = 2.3  # units of a score; found by search on MNIST and Adult, where 1 to 4 do nearly as well
_CURVATURE_SHARE = 4.0  # how much less curved than their bound losses are whose slopes are bounded too
_SAFELY = 0.9  # of the longest step that squared errors bear
_BEARABLE_SUM = 1.0  # as _BEARABLE, for sums of gradients weighted by precision, which have no momentum
_CURVATURE_SHARE_SUM = 60.0
_STATE = ("weights", "velocity", "average", "steps")


@dataclass(frozen=True)
class Stride:
    """How long the steps of a phase are: a rate, or the precision of its gradients for a rule that weighs them.

    >>> Stride(rate=0.5).precision is None
    True
    """

    rate: float
    precision: float | None = None
    row_length: float = 1.0


@dataclass(frozen=True)
class DescentRule:
    """Step size, momentum, penalty and averaging.

    Without a ``learning_rate`` each phase gets one from public numbers, see ``rate``.
    ``averaging`` weighs the iterates by a power of their number (SZ13, section 4): 0 keeps the last one, larger
    powers forget faster. The result is ready at any step, so training may stop whenever it likes.
    ``weighing`` is for phases whose noise falls: the weights are a sum of all gradients, each weighted by its precision,
    times a factor that keeps the noise in a score the same (dual averaging, Nes09, with such weights). So
    early gradients, which are noisy, fade as better ones come, and a stop after any phase is as good as a training planned to stop there.

    >>> DescentRule(learning_rate=0.5).momentum
    0.9
    """

    learning_rate: float | None = None
    momentum: float = 0.9
    regularization: float = 0.0
    averaging: float = 8.0
    weighing: bool = False

    def __post_init__(self) -> None:
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise InvalidRequest("Expected learning_rate > 0", got=self.learning_rate, do="Pass a positive step size")
        if not 0 <= self.momentum < 1:
            raise InvalidRequest("Expected momentum in [0, 1)", got=self.momentum, do="Pass 0.9, or 0 for none")
        if not self.regularization >= 0:
            raise InvalidRequest("Expected regularization >= 0", got=self.regularization, do="Pass 0 for none")
        if not self.averaging >= 0:
            raise InvalidRequest("Expected averaging >= 0", got=self.averaging, do="Pass 0 for the last iterate")

    def stride(
        self, *, noise: float, steps: int, row_length: float, curvature: float, bounded_slope: bool = True
    ) -> Stride:
        """What the steps of a phase are to be; arguments as for ``rate``."""
        if self.weighing and self.learning_rate is None:
            return Stride(2 / (curvature / _CURVATURE_SHARE_SUM + self.regularization), noise**-2, row_length)
        terms = {"noise": noise, "steps": steps, "row_length": row_length, "curvature": curvature}
        return Stride(self.rate(**terms, bounded_slope=bounded_slope))  # type: ignore[arg-type]

    def rate(
        self, *, noise: float, steps: int, row_length: float, curvature: float, bounded_slope: bool = True
    ) -> float:
        """The step size of a phase: the caller's, or the largest that its noise and the loss's curvature bear.

        ``noise`` is the standard deviation of a mean gradient's entry. The noise of all steps moves a score by about
        row_length * rate * noise * sqrt(steps) / (1 - momentum); a rate at which that is a few units learns fastest
        before it drowns. Heavy-ball descent is stable up to 2 (1 + momentum) / curvature of the mean loss (Pol64), the
        penalty's included. That of a loss with bounded slopes is seldom more than a quarter of the bound ``curvature``,
        and what overshoots stays bounded; squared errors have neither comfort if all columns point one way.
        """
        if self.learning_rate is not None:
            return self.learning_rate
        bearable = _BEARABLE * (1 - self.momentum) / (row_length * noise * math.sqrt(steps))
        steepest = curvature / (_CURVATURE_SHARE if bounded_slope else 1.0) + self.regularization
        stable = 2 * (1 + self.momentum) / steepest * (1.0 if bounded_slope else _SAFELY)
        return min(bearable, stable)


class Descent:
    """Weights on their way down.

    >>> walk = Descent(DescentRule(1.0, momentum=0.0, averaging=0.0), np.zeros(2))
    >>> walk.apply(np.array([1.0, -1.0]), Stride(rate=1.0))
    >>> walk.result.tolist()
    [-1.0, 1.0]
    """

    def __init__(self, rule: DescentRule, start: Floats) -> None:
        self.rule = rule
        self.weights = np.array(start, np.float64)
        self._velocity = np.zeros_like(self.weights)
        self._average = self.weights.copy()
        self._precision = 0.0
        self._steps = 0.0  # counted in units of the last step's precision if steps are weighed

    def apply(self, gradient: Floats, stride: Stride) -> None:
        """One step against a noisy mean gradient."""
        if stride.precision is None:
            self._heavy_ball(gradient, stride.rate)
            self._steps += 1
        else:
            self._weighed(gradient, stride, stride.precision)
        if self.rule.averaging:
            # SZ13, equation (4): polynomial-decay averaging.
            share = (self.rule.averaging + 1) / (self._steps + self.rule.averaging)
            self._average += min(share, 1.0) * (self.weights - self._average)

    def _weighed(self, gradient: Floats, stride: Stride, precision: float) -> None:
        """The weights as a sum of gradients over their variances, divided by the root of the sum's variance."""
        before = self._precision
        self._precision = before + precision
        self._steps = self._precision / precision
        wanted = _BEARABLE_SUM * precision / (stride.row_length * math.sqrt(self._precision))
        self.weights *= math.sqrt(before / self._precision)
        self.weights -= min(wanted, stride.rate) * (gradient + self.rule.regularization * self.weights)

    def _heavy_ball(self, gradient: Floats, rate: float) -> None:
        rule = self.rule
        if rule.regularization:
            gradient = gradient + rule.regularization * self.weights
        if rule.momentum:
            self._velocity *= rule.momentum
            self._velocity += gradient
        else:
            self._velocity = gradient
        self.weights -= rate * self._velocity

    @property
    def result(self) -> Floats:
        """The averaged weights."""
        return self._average.copy() if self.rule.averaging else self.weights.copy()

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Everything that a checkpoint must keep; all of it is post-processing of noisy gradients."""
        steps = np.array([self._steps, self._precision], np.float64)
        return {"weights": self.weights, "velocity": self._velocity, "average": self._average, "steps": steps}

    def restore(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from a state."""
        if any(name not in state for name in _STATE) or state["weights"].shape != self.weights.shape:
            raise InvalidRequest("Expected a checkpoint of this model", do="Start anew without the checkpoint")
        self.weights, self._velocity, self._average = (np.array(state[name]) for name in _STATE[:3])
        self._steps, self._precision = (float(number) for number in state["steps"])
