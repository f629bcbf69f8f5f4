"""What is done with noisy gradients: post-processing, free of charge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest

__all__ = ["Descent", "DescentRule"]

Floats = NDArray[np.float64]
_BEARABLE = 2.3  # units of a score; found by search on MNIST and Adult, where 1 to 4 do nearly as well
_CURVATURE_SHARE = 4.0
_STATE = ("weights", "velocity", "average", "steps")


@dataclass(frozen=True)
class DescentRule:
    """Step size, momentum, penalty and averaging.

    Without a ``learning_rate`` each phase gets one from public numbers, see ``rate``.
    ``averaging`` weighs the iterates by a power of their number (SZ13, section 4): 0 keeps the last one, larger
    powers forget faster. The result is ready at any step, so training may stop whenever it likes.

    >>> DescentRule(learning_rate=0.5).momentum
    0.9
    """

    learning_rate: float | None = None
    momentum: float = 0.9
    regularization: float = 0.0
    averaging: float = 8.0

    def __post_init__(self) -> None:
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise InvalidRequest("Expected learning_rate > 0", got=self.learning_rate, do="Pass a positive step size")
        if not 0 <= self.momentum < 1:
            raise InvalidRequest("Expected momentum in [0, 1)", got=self.momentum, do="Pass 0.9, or 0 for none")
        if not self.regularization >= 0:
            raise InvalidRequest("Expected regularization >= 0", got=self.regularization, do="Pass 0 for none")
        if not self.averaging >= 0:
            raise InvalidRequest("Expected averaging >= 0", got=self.averaging, do="Pass 0 for the last iterate")

    def rate(self, *, noise: float, steps: int, row_length: float, curvature: float) -> float:
        """The step size of a phase: the caller's, or the largest that its noise and the loss's curvature bear.

        ``noise`` is the standard deviation of a mean gradient's entry. The noise of all steps moves a score by about
        row_length * rate * noise * sqrt(steps) / (1 - momentum); a rate at which that is a few units learns fastest
        before it drowns. Heavy-ball descent is stable up to 2 (1 + momentum) / curvature of the mean loss (Pol64),
        whose largest curvature is seldom more than a quarter of the bound ``curvature``.
        """
        if self.learning_rate is not None:
            return self.learning_rate
        bearable = _BEARABLE * (1 - self.momentum) / (row_length * noise * math.sqrt(steps))
        stable = 2 * (1 + self.momentum) / curvature * _CURVATURE_SHARE
        return min(bearable, stable)


class Descent:
    """Weights on their way down.

    >>> walk = Descent(DescentRule(1.0, momentum=0.0, averaging=0.0), np.zeros(2))
    >>> walk.apply(np.array([1.0, -1.0]), rate=1.0)
    >>> walk.result.tolist()
    [-1.0, 1.0]
    """

    def __init__(self, rule: DescentRule, start: Floats) -> None:
        self.rule = rule
        self.weights = np.array(start, np.float64)
        self._velocity = np.zeros_like(self.weights)
        self._average = self.weights.copy()
        self._steps = 0

    def apply(self, gradient: Floats, rate: float) -> None:
        """One step against a noisy mean gradient."""
        rule = self.rule
        self._steps += 1
        self._velocity *= rule.momentum
        self._velocity += gradient
        if rule.regularization:
            self._velocity += rule.regularization * self.weights
        self.weights -= rate * self._velocity
        if rule.averaging:
            # SZ13, equation (4): polynomial-decay averaging.
            share = (rule.averaging + 1) / (self._steps + rule.averaging)
            self._average += share * (self.weights - self._average)

    @property
    def result(self) -> Floats:
        """The averaged weights."""
        return self._average.copy() if self.rule.averaging else self.weights.copy()

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Everything that a checkpoint must keep; all of it is post-processing of noisy gradients."""
        steps = np.array([self._steps], np.float64)
        return {"weights": self.weights, "velocity": self._velocity, "average": self._average, "steps": steps}

    def restore(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from a state."""
        if any(name not in state for name in _STATE) or state["weights"].shape != self.weights.shape:
            raise InvalidRequest("Expected a checkpoint of this model", do="Start anew without the checkpoint")
        self.weights, self._velocity, self._average = (np.array(state[name]) for name in _STATE[:3])
        self._steps = int(state["steps"][0])
