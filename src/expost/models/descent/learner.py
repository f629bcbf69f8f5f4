"""What a trainer needs of a model, and the linear model that has it in closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Sealed, Sensitivity
from expost.models.descent.descent import Descent, DescentRule, Stride
from expost.models.descent.features import FeatureGrid, GridRows
from expost.models.descent.gradient import ClippedGradient, Watcher, grid_scores
from expost.models.descent.head import Head, Squared
from expost.models.descent.schedule import Phase
from expost.models.descent.validation import ScoreRule
from expost.models.descent.watch import Tally, number_count, row_numbers, zero_loss

__all__ = ["GridReading", "Learner", "LinearLearner", "LinearScores"]

_CHUNK = 1 << 13


class Learner(Protocol):
    """A model in training. What it computes from rows leaves only sealed; what it is told is already private."""

    @property
    def size(self) -> int:
        """The number of weights."""
        ...

    @property
    def rows(self) -> int:
        """The number of training rows: private."""
        ...

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase; how far one row can then move a measured gradient, in lattice units."""
        ...

    def measure(self, index: NDArray[np.intp] | slice) -> Sealed:
        """The sum of clipped gradients over some training rows, sealed."""
        ...

    @property
    def watchable(self) -> tuple[int, float | None]:
        """How many numbers of a batch can be watched, 0 for none, and the loss of a classifier that knows nothing."""
        ...

    def watch(self, height: int) -> None:
        """Count them along from the next measure on, each row up to ``height``."""
        ...

    def watched(self) -> Sealed:
        """The numbers of the rows measured last, sealed."""
        ...

    def descend(self, noisy: NDArray[Any]) -> None:
        """One step along a released sum."""
        ...

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        """The score of the validation rows in the rule's units, less a public margin, sealed."""
        ...

    def public_score(self, rule: ScoreRule, rows: Any) -> int:
        """The score, in the rule's units, of rows that are nobody's secret, in the learner's own form."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint must keep."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a checkpoint."""
        ...

    def result(self) -> Any:
        """The model as it may leave."""
        ...


@dataclass(frozen=True, eq=False)
class GridReading:
    """How a training read raw rows, and its weights for rows read so; all of it public or released.

    Rows are cut to the public bounds, missing values filled and the rest rounded exactly as in the training. So an
    accuracy that was tested on rows is the accuracy of the predictions for them.

    >>> GridReading(FeatureGrid(1, intercept=False), np.array([[2.0]])).scores(np.array([[0.5], [1e9]])).round(1).tolist()
    [[1.0], [2.0]]
    """

    grid: FeatureGrid
    weights: NDArray[np.float64]

    def scores(self, features: Any) -> NDArray[np.float64]:
        """The scores of raw rows, one row per row."""
        scores = np.empty((features.shape[0], len(self.weights)))
        for start in range(0, len(scores), _CHUNK):
            rows = self.grid.encode(features[start : start + _CHUNK]).integers()
            scores[start : start + _CHUNK] = grid_scores(rows, self.weights, self.grid).T
        return scores


@dataclass(frozen=True, eq=False)
class LinearScores:
    """A released linear model: one score, or one per class, for raw rows.

    The coefficients hold for rows within the public bounds. ``scores`` reads rows as the training did, where that is known.

    >>> LinearScores(np.array([[1.0, 2.0]]), np.array([0.5])).scores(np.array([[1.0, 1.0]])).tolist()
    [[3.5]]
    """

    coefficients: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    reading: GridReading | None = None

    def scores(self, features: Any) -> NDArray[np.float64]:
        """The scores of raw rows, one row per row."""
        if self.reading is not None:
            return self.reading.scores(features)
        return np.asarray(features @ self.coefficients.T + self.intercepts)

    def __repr__(self) -> str:
        return f"LinearScores({len(self.coefficients)} x {self.coefficients.shape[1]} coefficients)"


class LinearLearner:
    """A linear model under any head; gradients are exact integers."""

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
        self._grid, self._head, self._clip = grid, head, clip
        self._training, self._validation = training, validation
        self._descent = Descent(rule, np.zeros((head.outputs, grid.columns)))
        self._gradient: ClippedGradient | None = None
        self._scale, self._stride = 0.0, Stride(0.0)
        self._height, self._tally = 0, Tally(0, 0)

    @property
    def size(self) -> int:
        """The number of weights."""
        return self._head.outputs * self._grid.columns

    @property
    def rows(self) -> int:
        """The number of training rows: private."""
        return len(self._training[0])

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase: the lattice is as fine as the noise allows, the steps as long."""
        multiplier, length = float(phase.noise_multiplier), math.sqrt(self._grid.longest) / self._grid.unit
        self._gradient = ClippedGradient(self._grid, self._head, self._clip, multiplier, expected_size)
        self._scale = 1 / (self._gradient.unit * expected_size)
        self._stride = self._descent.rule.stride(
            noise=multiplier * self._clip / expected_size,
            steps=phase.steps,
            row_length=length,
            curvature=self._head.curvature * length**2,
            bounded_slope=not isinstance(self._head, Squared),
        )
        return self._gradient.sensitivity

    def measure(self, index: NDArray[np.intp] | slice) -> Sealed:
        """The sum of clipped gradients at the current weights."""
        assert self._gradient is not None
        rows, targets = self._training
        return self._gradient.measure(rows, targets, self._descent.weights, index, watcher=self._watcher())

    @property
    def watchable(self) -> tuple[int, float | None]:
        """Right predictions and losses, or squared errors."""
        count = number_count(self._head)
        return count, zero_loss(self._head) if count > 1 else None

    def watch(self, height: int) -> None:
        """Count them along from the next measure on."""
        self._height = height

    def watched(self) -> Sealed:
        """The numbers of the rows measured last."""
        return self._tally.sealed()

    def _watcher(self) -> Watcher | None:
        if not self._height:
            return None
        tally = self._tally = Tally(self._height, self.watchable[0])
        return lambda scores, targets: tally.add(row_numbers(self._head, scores, targets))

    def descend(self, noisy: NDArray[Any]) -> None:
        """One step along the released sum over its expected number of rows."""
        gradient = noisy.reshape(self._descent.weights.shape).astype(np.float64)
        gradient *= self._scale
        self._descent.apply(gradient, self._stride)

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        """The validation rows' score at the averaged weights."""
        assert self._gradient is not None and self._validation is not None
        rows, targets = self._validation
        weights, total = self._descent.result, -margin
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, min(start + _CHUNK, len(rows)))
            scores = self._gradient.scores(rows, weights, part)
            total += rule.total(self._head, scores, targets[part])
        return Sealed(total, rule.sensitivity)

    def public_score(self, rule: ScoreRule, rows: tuple[Any, NDArray[Any]]) -> int:
        """The score of public rows, raw as ``result`` will be given them."""
        features, targets = rows
        return rule.total(self._head, self.result().scores(features).T, targets)

    def state(self) -> dict[str, NDArray[Any]]:
        """The walk's state."""
        return self._descent.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a checkpoint."""
        self._descent.restore(state)

    def result(self) -> LinearScores:
        """Coefficients for rows as they were before they were put on the grid."""
        weights = np.array(self._descent.result)
        return LinearScores(*self._grid.raw_weights(weights), GridReading(self._grid, weights))
