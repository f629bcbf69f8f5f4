"""Newton steps from noisy gradients and curvatures. All of it is post-processing, so it costs no privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["NoisyNewton", "NoisyStep"]

Floats = NDArray[np.float64]
# The constants below were chosen on the tables adult, california housing, diamonds, gss wages, nlswork and nassCDS.
_GAIN = 5.0  # late steps are weighted by the fourth power of their number: an average that forgets the first ones
_STILL_MOVING = 1.5  # noise explains a squared step up to this factor: beyond it the model has not converged yet
_MEMORY = 0.6  # of the running mean of that factor
_HALF_LIFE = 0.5  # what remains of the averaged steps' count where the model still moves
_AVERAGED = 0.5  # share of the steps so far that an average amounts to


@dataclass(frozen=True)
class NoisyStep:
    """A released mean gradient (outputs x columns) and mean curvature, with the deviations of their noise.

    A step without a curvature is taken by those of earlier steps.
    """

    gradient: Floats
    gradient_noise: float
    curvature: Floats | None = None
    curvature_noise: float = math.inf


class NoisyNewton:
    """The weights of a linear model, improved by one noisy step after the other; the noise may fall between steps.

    Curvatures are averaged by their precision. An eigenvalue that the noise hides is raised to its level. A prior pulls the
    weights to zero as far as noise has moved them: it expects scores of about ``prior``. Steps are whole while the
    model moves more than noise explains; after that they are averaged.

    Parameters
    ----------
    outputs : int
        The number of scores per row.
    columns : int
        The number of columns, the intercept's included.
    length : float
        The usual length of a row.
    prior : float
        The usual size of a score.
    hidden : float, default 1
        Deviations of the noise, per root of the columns, that hide an eigenvalue of the curvature.
    """

    def __init__(self, outputs: int, columns: int, *, length: float, prior: float, hidden: float = 1.0) -> None:
        self.weights: Floats = np.zeros((outputs, columns))
        self._length, self._prior, self._hidden = length, prior, hidden
        self._curvature: Floats = np.zeros((columns, columns))
        self._curvature_precision = 0.0
        self._axes: tuple[Floats, Floats] = (np.zeros(columns), np.eye(columns))  # eigenvalues, eigenvectors
        self._precision = 0.0  # of all gradients so far
        self._averaged = 0.0  # precision of the gradients since the model stopped moving
        self._movement = 9.0  # squared step over what noise explains; large at the start

    def take_step(self, step: NoisyStep) -> None:
        """Improve the weights by one released gradient and curvature."""
        columns = len(self._curvature)
        if step.curvature is not None:
            weight = step.curvature_noise**-2
            self._curvature_precision += weight
            self._curvature += (step.curvature - self._curvature) * (weight / self._curvature_precision)
            self._axes = np.linalg.eigh(self._curvature)
        precision = step.gradient_noise**-2
        self._precision += precision

        values, vectors = self._axes
        # The eigenvalues of a symmetric noise matrix lie within about 2 sqrt(columns) deviations (semicircle law).
        hidden = self._hidden * math.sqrt(columns / self._curvature_precision)
        bends = np.maximum(values, hidden)
        # The best linear estimate of weights of variance (prior / length)^2 from a gradient whose noise has been averaged.
        pull = (self._length / self._prior) ** 2 / (_AVERAGED * self._precision) / bends
        steepness = bends + pull
        along = step.gradient @ vectors
        explained = step.gradient_noise**2 * len(along) * np.sum(1 / steepness)
        moved = float(np.sum(along**2 / steepness) / explained)
        self._movement = _MEMORY * self._movement + (1 - _MEMORY) * moved
        if self._movement < _STILL_MOVING:
            self._averaged += precision
        else:
            self._averaged = max(precision, _HALF_LIFE * self._averaged)
        gain = min(1.0, _GAIN / (self._averaged / precision + _GAIN - 1))
        wanted = (along + pull * (self.weights @ vectors)) / steepness
        self.weights = self.weights - gain * (wanted @ vectors.T)

    def find_usual_score(self) -> float:
        """Return the root mean square of the first output's score, by the curvature so far, which is that of a square."""
        weights = self.weights[0]
        return math.sqrt(max(float(weights @ self._curvature @ weights), 0.0))

    def start_rung(self) -> None:
        """Begin the average again where the noise falls: better gradients may move the model on."""
        self._averaged = 0.0

    def change_columns(self, weights: Floats, length: float) -> None:
        """Continue with the same scores as ``weights`` of other columns; curvatures are measured again."""
        self.weights, self._length = weights, length
        self._curvature, self._curvature_precision = np.zeros_like(self._curvature), 0.0
