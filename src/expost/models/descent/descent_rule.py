"""What is done with noisy gradients. All of it is post-processing, so it costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest

__all__ = ["Descent", "DescentRule", "Stride"]

Floats = NDArray[np.float64]
# How far the noise of all steps may move a score. Found by search on MNIST and Adult, where 1 to 4 are nearly as good.
_BEARABLE = 2.3
_CURVATURE_SHARE = 4.0  # bound on the curvature over the usual curvature, for losses with bounded slopes
_SAFETY = 0.9  # share of the longest stable step for squared errors
_BEARABLE_SUM = 1.0  # as _BEARABLE, for sums of gradients weighted by precision, which have no momentum
_CURVATURE_SHARE_SUM = 60.0
_STATE = ("weights", "velocity", "average", "steps")


@dataclass(frozen=True)
class Stride:
    """The length of the steps of a phase: a rate, or the precision of its gradients for a rule that weights them."""

    rate: float
    precision: float | None = None
    row_length: float = 1.0


@dataclass(frozen=True)
class DescentRule:
    """Step size, momentum, penalty and averaging; parameters as for ``SGDClassifier``.

    The average is ready at any step, so training may stop at any step (SZ13, section 4). ``weighing`` is for phases whose
    noise falls: the weights are a sum of all gradients, each weighted by its precision, times a factor that keeps the
    noise of a score constant (dual averaging, Nes09, with these weights). Early, noisy gradients fade as better ones
    come, so a stop after any phase is as good as a training planned to stop there.
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

    def find_stride(self, *, noise: float, row_length: float, curvature: float, **terms: Any) -> Stride:
        """Return the steps of a phase; arguments as for ``find_rate``."""
        if self.weighing and self.learning_rate is None:
            return Stride(2 / (curvature / _CURVATURE_SHARE_SUM + self.regularization), noise**-2, row_length)
        return Stride(self.find_rate(noise=noise, row_length=row_length, curvature=curvature, **terms))

    def find_rate(
        self, *, noise: float, steps: int, row_length: float, curvature: float, bounded_slope: bool = True
    ) -> float:
        """Return the step size of a phase: the caller's, or the largest that its noise and curvature allow.

        ``noise`` is the standard deviation of an entry of a mean gradient. The noise of all steps moves a score by about
        row_length * rate * noise * sqrt(steps) / (1 - momentum); training is fastest where that is a few units.
        Heavy-ball descent is stable up to 2 (1 + momentum) / curvature of the mean loss, the penalty's included (Pol64).
        The curvature of a loss with bounded slopes is seldom above a quarter of its bound, and an overshoot stays
        bounded. For squared errors neither holds if all columns are correlated.
        """
        if self.learning_rate is not None:
            return self.learning_rate
        bearable = _BEARABLE * (1 - self.momentum) / (row_length * noise * math.sqrt(steps))
        steepest = curvature / (_CURVATURE_SHARE if bounded_slope else 1.0) + self.regularization
        stable = 2 * (1 + self.momentum) / steepest * (1.0 if bounded_slope else _SAFETY)
        return min(bearable, stable)


class Descent:
    """Weights during a training."""

    def __init__(self, rule: DescentRule, start: Floats) -> None:
        self.rule = rule
        self.weights = np.array(start, np.float64)
        self._velocity = np.zeros_like(self.weights)
        self._average = self.weights.copy()
        self._precision = 0.0
        self._steps = 0.0  # in units of the last step's precision if steps are weighted

    def apply_gradient(self, gradient: Floats, stride: Stride) -> None:
        """Take one step against a noisy mean gradient."""
        rule = self.rule
        if stride.precision is not None:
            # The weights are a sum of gradients over their variances, divided by the root of the sum's variance: the
            # factor on the old weights rescales them to the new root.
            before = self._precision
            self._precision = before + stride.precision
            self._steps = self._precision / stride.precision
            wanted = _BEARABLE_SUM * stride.precision / (stride.row_length * math.sqrt(self._precision))
            self.weights *= math.sqrt(before / self._precision)
            self.weights -= min(wanted, stride.rate) * (gradient + rule.regularization * self.weights)
        else:
            if rule.regularization:
                gradient = gradient + rule.regularization * self.weights
            if rule.momentum:
                self._velocity *= rule.momentum
                self._velocity += gradient
            else:
                self._velocity = gradient
            self.weights -= stride.rate * self._velocity
            self._steps += 1
        if rule.averaging:
            # SZ13, equation (4): polynomial-decay averaging.
            share = (rule.averaging + 1) / (self._steps + rule.averaging)
            self._average += min(share, 1.0) * (self.weights - self._average)

    @property
    def result(self) -> Floats:
        """Return the averaged weights."""
        return self._average.copy() if self.rule.averaging else self.weights.copy()

    def copy_state(self) -> dict[str, NDArray[np.float64]]:
        """Return what a checkpoint must keep; all of it is post-processing of noisy gradients."""
        steps = np.array([self._steps, self._precision], np.float64)
        return {"weights": self.weights, "velocity": self._velocity, "average": self._average, "steps": steps}

    def restore_state(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        """Continue from a state."""
        if any(name not in state for name in _STATE) or state["weights"].shape != self.weights.shape:
            raise InvalidRequest("Expected a checkpoint of this model", do="Start again without the checkpoint")
        self.weights, self._velocity, self._average = (np.array(state[name]) for name in _STATE[:3])
        self._steps, self._precision = (float(number) for number in state["steps"])
