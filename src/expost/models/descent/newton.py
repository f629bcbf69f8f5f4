"""A linear model that learns by private Newton steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Sealed, Sensitivity
from expost.models.descent.curvature import CurvedGradient, curved
from expost.models.descent.descent import DescentRule, Stride
from expost.models.descent.features import FeatureGrid, GridRows
from expost.models.descent.head import Head
from expost.models.descent.learner import LinearLearner
from expost.models.descent.schedule import Phase

__all__ = ["NewtonLearner"]

Floats = NDArray[np.float64]

_BEARABLE = 2.0  # units of a score that one step's noise may move it by
_HIDDEN = 1.0  # deviations per root of the columns that hide an eigenvalue; found by search: 0.5 and 2 each did worse somewhere
_STATE = ("curvature", "curvature precision")


class NewtonLearner(LinearLearner):
    """Measures gradients and curvatures in one vector and steps by the quotient of what was released.

    All that follows the release is post-processing: curvatures are averaged over all steps so far, weighted by their
    precision; eigenvalues below what the public noise can tell from zero are raised to it.

    Guarantee: each measured vector, released by a Gaussian stream, is one Gaussian event of the schedule's noise
        multiplier; the training costs what gradient descent with this schedule costs.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of gradient and curvature together: the root of the sum of their squares, rounded up.
    Accuracy: none is promised of a step; a target is tested on rows held out, as for gradient descent.
    Numerics: integer sums are exact; steps are floats computed from released numbers.
    Reference: docs/proofs/sgd-gradient.md (curvature); ACG16, Algorithm 1.

    >>> from expost.models.descent.head import Logistic
    >>> grid = FeatureGrid(2)
    >>> rows = (grid.encode(np.eye(2)), np.array([0, 1]))
    >>> NewtonLearner(grid, Logistic(), clip=1.0, rule=DescentRule(), training=rows).size
    9
    """

    def __init__(
        self,
        grid: FeatureGrid,
        head: Head,
        *,
        clip: float,
        rule: DescentRule,
        training: tuple[GridRows, NDArray[Any]],
        validation: tuple[GridRows, NDArray[Any]] | None = None,
    ) -> None:
        walk = replace(rule, momentum=0.0, regularization=0.0, weighing=False)  # the penalty is in the quotient
        super().__init__(grid, head, clip=clip, rule=walk, training=training, validation=validation)
        self._curved_head, self._regularization = curved(head, grid.columns), rule.regularization
        self._damping = Stride(1.0 if rule.learning_rate is None else rule.learning_rate)
        self._curved: CurvedGradient | None = None
        self._curvature, self._precision = np.zeros((grid.columns, grid.columns)), 0.0
        self._expected_size, self._deviation = 0.0, 0.0

    @property
    def size(self) -> int:
        """The number of weights and of entries in the curvature's upper triangle."""
        columns = self._grid.columns
        return columns + columns * (columns + 1) // 2

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase: the lattice is as fine as the noise allows."""
        multiplier = float(phase.noise_multiplier)
        self._curved = CurvedGradient(self._grid, self._curved_head, self._clip, multiplier)
        self._gradient, self._expected_size = self._curved.gradient, expected_size
        self._deviation = multiplier * float(self._curved.sensitivity.amount)
        return self._curved.sensitivity

    def measure(self, index: NDArray[np.intp] | slice) -> Sealed:
        """The sums of clipped gradients and of curvatures at the current weights."""
        assert self._curved is not None
        rows, targets = self._training
        return self._curved.measure(rows, targets, self._descent.weights, index, watcher=self._watcher())

    def descend(self, noisy: NDArray[Any]) -> None:
        """One damped Newton step from the released sums over their expected number of rows."""
        assert self._curved is not None
        slope, bend = self._curved.split(noisy)
        precision = (self._curved.unit * self._expected_size / self._deviation) ** 2
        self._precision += precision
        self._curvature += (bend / self._expected_size - self._curvature) * (precision / self._precision)
        slope = slope / self._expected_size + self._regularization * self._descent.weights[0]
        self._descent.apply(self._quotient(slope)[None, :], self._damping)

    def _quotient(self, slope: Floats) -> Floats:
        """The slope over the curvature, whose eigenvalues are raised to what the public noise can bear."""
        values, vectors = np.linalg.eigh(self._curvature)
        steepness = np.maximum(values, 0.0) + self._regularization
        quotient: Floats = vectors @ ((vectors.T @ slope) / np.maximum(steepness, self._floor()))
        return quotient

    def _floor(self) -> float:
        """The smallest eigenvalue that is believed, from public numbers alone."""
        assert self._curved is not None
        columns, length = self._grid.columns, math.sqrt(self._grid.longest) / self._grid.unit
        # The eigenvalues of a symmetric matrix of noise lie within about 2 sqrt(columns) deviations, most within half of that.
        hidden = _HIDDEN * math.sqrt(columns / self._precision)
        shaken = self._deviation / (self._curved.gradient.unit * self._expected_size) * length / _BEARABLE
        return max(hidden, shaken)

    def state(self) -> dict[str, NDArray[Any]]:
        """The walk's state and the curvature so far; all of it is post-processing of what was released."""
        return super().state() | dict(zip(_STATE, (self._curvature, np.array([self._precision])), strict=True))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a checkpoint."""
        if any(name not in state for name in _STATE) or state[_STATE[0]].shape != self._curvature.shape:
            raise InvalidRequest("Expected a checkpoint of this model", do="Start anew without the checkpoint")
        super().restore(state)
        self._curvature, self._precision = np.array(state[_STATE[0]]), float(state[_STATE[1]][0])
