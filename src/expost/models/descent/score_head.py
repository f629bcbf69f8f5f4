"""Heads of linear models: how a row's loss changes with its scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest

__all__ = [
    "ABSENT",
    "LARGEST_ERROR",
    "CurvedHead",
    "Head",
    "Huber",
    "Logistic",
    "Softmax",
    "Squared",
    "count_metrics",
    "row_numbers",
    "row_sums",
]

Floats = NDArray[np.float64]
ABSENT = -1
"""The label index of a row whose label is not a declared class. Such a row contributes zero."""
LARGEST_ERROR = 2.0
"""The largest error of a regression that counts: targets and clipped predictions lie in [-1, 1]."""


def row_sums(values: NDArray[Any], start: float = 0.0) -> NDArray[Any]:
    """Sum the outputs of each row (outputs x rows), one output after the other, beginning with ``start``.

    NumPy adds in this order if there are at least two adjacent rows. A single row would be added in another order, and
    its last bit would reveal that it was alone; so it is doubled first.

    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    adjacent = np.repeat(values, 2, axis=1) if values.shape[1] == 1 else np.ascontiguousarray(values)
    sums: NDArray[Any] = np.add.reduce(adjacent, axis=0, initial=start)
    return sums[: values.shape[1]]


class Head(Protocol):
    """Residuals of rows, one column per row: the derivative of the loss by each score.

    Every operation is elementwise or a sum over scores, one score after the other. So a row's residuals are a function
    of its own scores, bit for bit, wherever in a batch it stands. They have the type of the scores. ``outputs`` is the
    number of scores per row; ``curvature`` bounds the second derivative of the loss in any direction of the scores.
    """

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> int: ...
    @property
    def curvature(self) -> float: ...

    def compute_residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """Return the residuals of scores (outputs x rows) and targets (rows)."""

    def find_correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows are predicted correctly; regression heads refuse."""


@runtime_checkable
class CurvedHead(Head, Protocol):
    """A head with a known second derivative, or a bound on it in every direction of the scores."""

    def compute_curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """Return one second derivative per row (1 x rows), between 0 and ``curvature``."""


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy over several classes."""

    classes: int
    name: str = "softmax"

    @property
    def outputs(self) -> int:
        return self.classes

    @cached_property
    def _class_column(self) -> NDArray[np.intp]:
        return np.arange(self.classes)[:, None]

    @property
    def curvature(self) -> float:
        """Return 1/2, which bounds the Hessian of the cross-entropy (Boe92, Theorem 1)."""
        return 0.5

    def compute_residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        odds: Floats = scores - np.maximum.reduce(scores, axis=0)
        np.exp(odds, out=odds)
        # A row whose label is absent gets zero odds and matches no class, so its residuals are zero.
        odds *= (targets >= 0) / row_sums(odds)
        odds -= self._class_column == targets
        return odds

    def compute_curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """Return twice the largest p (1 - p), which bounds the Hessian in every direction.

        By Gershgorin's theorem: a row of the Hessian has p (1 - p) on the diagonal and the same amount in all other places.
        """
        odds: Floats = np.exp(scores - np.maximum.reduce(scores, axis=0))
        odds /= row_sums(odds)
        largest = np.maximum.reduce(odds * (1.0 - odds), axis=0)[None, :]
        return np.where(targets >= 0, np.minimum(2 * largest, self.curvature), 0.0)

    def find_correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = scores.argmax(axis=0) == targets
        return right


@dataclass(frozen=True)
class Logistic:
    """Logistic loss of one score; label 1 is the second class."""

    name: str = "logistic"
    outputs: int = 1
    curvature: float = 0.25

    def compute_residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        small = np.exp(-np.abs(scores))  # in (0, 1]: cannot overflow
        chance = np.where(scores >= 0, 1.0, small) / (1.0 + small)
        return np.where(targets >= 0, chance - targets, 0.0)

    def compute_curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        small = np.exp(-np.abs(scores))
        # Cut at 1/4, which rounding may exceed: the sensitivity of the curvature relies on this bound.
        return np.where(targets >= 0, np.minimum(small / (1.0 + small) ** 2, self.curvature), 0.0)

    def find_correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = (scores[0] > 0).astype(targets.dtype) == targets
        return right


@dataclass(frozen=True)
class Squared:
    """Half the squared error."""

    name: str = "squared"
    outputs: int = 1
    curvature: float = 1.0

    def compute_residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        errors: Floats = scores - targets
        return errors

    def compute_curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        return np.ones_like(scores)

    def find_correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        raise InvalidRequest("Expected a classifier for an accuracy", do='Pass score=("rmse", 0.1)')


@dataclass(frozen=True)
class Huber(Squared):
    """Squared error up to a public width, linear beyond."""

    name: str = "huber"
    width: float = 1.0

    def compute_residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        errors: Floats = np.clip(scores - targets, -self.width, self.width)
        return errors

    def compute_curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        return np.where(np.abs(scores - targets) <= self.width, 1.0, 0.0)


def row_numbers(head: Head, scores: Floats, targets: NDArray[Any]) -> Floats:
    """Return the metrics of each row in [-1, 1] (metrics x rows).

    A classifier has two, correct or not and one minus the loss over that of a constant classifier; a regression has one,
    from the squared error.

    >>> row_numbers(Logistic(), np.array([[0.0, 2.0]]), np.array([0, 1])).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.82]]
    """
    constant_loss = count_metrics(head)[1]
    if constant_loss is None:
        errors = np.clip(np.abs(scores[0] - targets), 0.0, LARGEST_ERROR)
        return np.asarray(1 - 2 * errors**2 / LARGEST_ERROR**2)[None, :]
    if isinstance(head, Logistic):
        signed: Floats = np.where(targets == 1, scores[0], -scores[0])
        losses = np.logaddexp(0.0, -signed)
    else:
        highest = scores.max(axis=0)
        spread = np.log(row_sums(np.exp(scores - highest)))
        losses = np.asarray(spread + highest - scores[np.maximum(targets, 0), np.arange(scores.shape[1])])
    right = np.where(head.find_correct(scores, targets), 1.0, -1.0)
    losses = np.where(targets >= 0, losses, constant_loss)
    return np.stack([right, np.clip(1 - losses / constant_loss, -1.0, 1.0)])


def count_metrics(head: Head) -> tuple[int, float | None]:
    """Return the number of metrics per row, and the loss of a constant classifier (None for a regression).

    >>> count_metrics(Squared())
    (1, None)
    """
    return (2, math.log(max(2, head.outputs))) if isinstance(head, Logistic | Softmax) else (1, None)
