"""What stands on top of a linear score: how a row's loss changes with its scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest

__all__ = ["ABSENT", "CurvedHead", "Head", "Huber", "Logistic", "Softmax", "Squared", "row_sums"]

Floats = NDArray[np.float64]
ABSENT = -1
"""The label index of a row whose label is none of the declared classes; such a row counts for nothing."""


def row_sums(values: NDArray[Any], start: float = 0.0) -> NDArray[Any]:
    """The sum over the outputs of each row (outputs x rows), taken one output after the other, from a number on.

    NumPy adds so if the rows lie side by side and are two at least; a row alone would be added in another order, and
    its last bit would tell that it was alone.

    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    beside = np.repeat(values, 2, axis=1) if values.shape[1] == 1 else np.ascontiguousarray(values)
    sums: NDArray[Any] = np.add.reduce(beside, axis=0, initial=start)
    return sums[: values.shape[1]]


class Head(Protocol):
    """Residuals of rows, one column a row: the derivative of the loss by each score.

    Every operation is elementwise or a sum over scores, one score after the other: a row's residuals are a function
    of its own scores, bit for bit, wherever in a batch it stands. They have the type of the scores.
    """

    @property
    def name(self) -> str:
        """As it stands on receipts."""
        ...

    @property
    def outputs(self) -> int:
        """The number of scores a row has."""
        ...

    @property
    def curvature(self) -> float:
        """A bound on the second derivative of the loss in any direction of the scores."""
        ...

    def residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """Of scores (outputs x rows) and targets (rows)."""
        ...

    def correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows are predicted right; regression heads have no such thing."""
        ...


@runtime_checkable
class CurvedHead(Head, Protocol):
    """A head of one score whose second derivative is known; elementwise too."""

    def curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """The second derivatives of the loss by the score, between 0 and ``curvature``, shaped like the scores."""
        ...


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy over several classes.

    >>> Softmax(3).residuals(np.zeros((3, 1)), np.array([1])).round(2).ravel().tolist()
    [0.33, -0.67, 0.33]
    """

    classes: int
    name: str = "softmax"

    @property
    def outputs(self) -> int:
        """One score a class."""
        return self.classes

    @cached_property
    def _numbers(self) -> NDArray[np.intp]:
        return np.arange(self.classes)[:, None]

    @property
    def curvature(self) -> float:
        """The Hessian of the cross-entropy is at most 1/2 (Boe92, Theorem 1)."""
        return 0.5

    def residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """Probabilities minus the indicator of the label."""
        odds: Floats = scores - np.maximum.reduce(scores, axis=0)
        np.exp(odds, out=odds)
        # The odds of a row whose label is absent become zero, and it is no class's.
        odds *= (targets >= 0) / row_sums(odds)
        odds -= self._numbers == targets
        return odds

    def correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the largest score is the label's."""
        right: NDArray[np.bool_] = scores.argmax(axis=0) == targets
        return right


@dataclass(frozen=True)
class Logistic:
    """Logistic loss of one score; label 1 is the second class.

    >>> Logistic().residuals(np.zeros((1, 2)), np.array([0, 1])).tolist()
    [[0.5, -0.5]]
    """

    name: str = "logistic"
    outputs: int = 1
    curvature: float = 0.25

    def residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """The probability of the second class minus the label."""
        small = np.exp(-np.abs(scores))  # in (0, 1]: cannot overflow
        chance = np.where(scores >= 0, 1.0, small) / (1.0 + small)
        return np.where(targets >= 0, chance - targets, 0.0)

    def curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """The probability of one class times that of the other."""
        small = np.exp(-np.abs(scores))
        return np.where(targets >= 0, np.minimum(small / (1.0 + small) ** 2, self.curvature), 0.0)

    def correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the score has the sign of the label."""
        right: NDArray[np.bool_] = (scores[0] > 0).astype(targets.dtype) == targets
        return right


@dataclass(frozen=True)
class Squared:
    """Half the squared error.

    >>> Squared().residuals(np.array([[3.0]]), np.array([1.0])).tolist()
    [[2.0]]
    """

    name: str = "squared"
    outputs: int = 1
    curvature: float = 1.0

    def residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """The error."""
        errors: Floats = scores - targets
        return errors

    def curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """One, everywhere."""
        return np.ones_like(scores)

    def correct(self, scores: Floats, targets: NDArray[Any]) -> NDArray[np.bool_]:
        """Regression has no right and wrong."""
        raise InvalidRequest("Expected a classifier for a target of accuracy", do='Pass target=("rmse", 0.1)')


@dataclass(frozen=True)
class Huber(Squared):
    """Squared up to a public width, linear beyond.

    >>> Huber(width=0.5).residuals(np.array([[3.0]]), np.array([1.0])).tolist()
    [[0.5]]
    """

    name: str = "huber"
    width: float = 1.0

    def residuals(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """The error, cut at the width."""
        errors: Floats = np.clip(scores - targets, -self.width, self.width)
        return errors

    def curvatures(self, scores: Floats, targets: NDArray[Any]) -> Floats:
        """One where the loss is squared, else zero."""
        return np.where(np.abs(scores - targets) <= self.width, 1.0, 0.0)
