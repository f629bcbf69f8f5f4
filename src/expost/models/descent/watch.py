"""A private look at a training while it runs: the score and the loss of the rows it learns from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, Norm, Sealed, Sensitivity
from expost.models.descent.head import Head, Logistic, Softmax, row_sums

__all__ = ["Reading", "RunningReading", "Tally", "Watch", "number_count", "row_numbers", "zero_loss"]

Floats = NDArray[np.float64]
_LARGEST_ERROR = 2.0  # targets and useful scores lie in [-1, 1]
_KEPT = 0.8  # of a step's weight after the next one: a reading speaks of about the last five


@dataclass(frozen=True)
class Watch:
    """How the numbers to be watched share a step's noise with its gradient.

    Each row counts for each number an integer between -height and height, where height is a ``share`` of the
    gradient's sensitivity. Gradient and numbers get noise of one deviation, so together they are one Gaussian release
    of a vector whose sensitivity is the root of the sum of squares.

    Guarantee: gradient and numbers of a step, each released under noise of standard deviation noise_multiplier *
        ``joined``, are together one Gaussian event of that noise multiplier.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of the gradient and ``count`` numbers together, rounded up: ``joined``.
    Accuracy: none promised; a ``Reading`` says its standard deviation.
    Numerics: exact; integer sums.
    Reference: docs/proofs/sgd-gradient.md (watching).

    >>> Watch().joined(Sensitivity(1000, Norm.L2), 2).amount
    Fraction(1010, 1)
    """

    share: Fraction = Fraction(1, 10)
    scale: float = 1.0
    """What a score of 1 is worth in the target's own units, for a regression."""

    def height(self, gradient: Sensitivity) -> int:
        """The largest integer that a row counts for a number."""
        return max(1, math.floor(self.share * gradient.amount))

    def joined(self, gradient: Sensitivity, count: int) -> Sensitivity:
        """How far one row can move gradient and numbers together."""
        squared = math.ceil(gradient.square) + count * self.height(gradient) ** 2
        return Sensitivity(math.isqrt(squared - 1) + 1, Norm.L2, gradient.adjacency, gradient.unit)

    def factor(self, count: int) -> Fraction:
        """At least how many times the gradient's noise grows; three digits."""
        return Fraction(math.ceil(1000 * math.sqrt(1 + count * self.share**2)) + 1, 1000)


class Tally:
    """The numbers of one batch, added up chunk by chunk and then sealed.

    >>> tally = Tally(height=100, count=2)
    >>> tally.add(np.array([[1.0, -1.0], [0.5, 0.5]]))
    >>> tally.sealed()
    <sealed exact answer>
    """

    def __init__(self, height: int, count: int) -> None:
        self._height, self._count = height, count
        self._total = np.zeros(count, np.int64)  # a batch without rows is released like any other

    def add(self, values: NDArray[Any]) -> None:
        """Some rows' numbers (numbers x rows), each between -1 and 1."""
        counted = np.rint(np.clip(np.nan_to_num(values, nan=-1.0), -1.0, 1.0) * self._height)
        self._total += counted.sum(axis=1).astype(np.int64)

    def sealed(self) -> Sealed:
        """The sums, for release under a joined noise."""
        numbers = Sensitivity.from_square(max(1, self._count * self._height**2), adjacency=Adjacency.ADD_REMOVE)
        return Sealed(self._total, numbers)

    def __repr__(self) -> str:
        return "<sums of a batch>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Expected exact sums to stay in their process.")


def row_numbers(head: Head, scores: Floats, targets: NDArray[Any]) -> Floats:
    """What each row counts, between -1 and 1: right or wrong and its loss, or for regression its squared error.

    >>> row_numbers(Logistic(), np.array([[0.0, 2.0]]), np.array([0, 1])).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.82]]
    """
    if not isinstance(head, Logistic | Softmax):
        errors = np.clip(np.abs(scores[0] - targets), 0.0, _LARGEST_ERROR)
        return np.asarray(1 - 2 * errors**2 / _LARGEST_ERROR**2)[None, :]
    right = np.where(head.correct(scores, targets), 1.0, -1.0)
    losses = np.where(targets >= 0, _losses(head, scores, targets), zero_loss(head))
    return np.stack([right, np.clip(1 - losses / zero_loss(head), -1.0, 1.0)])


def zero_loss(head: Head) -> float:
    """The loss of a classifier that knows nothing.

    >>> round(zero_loss(Softmax(10)), 3)
    2.303
    """
    return math.log(max(2, head.outputs))


def number_count(head: Head) -> int:
    """How many numbers a row has.

    >>> number_count(Softmax(3))
    2
    """
    return 2 if isinstance(head, Logistic | Softmax) else 1


def _losses(head: Head, scores: Floats, targets: NDArray[Any]) -> Floats:
    if isinstance(head, Logistic):
        signed: Floats = np.where(targets == 1, scores[0], -scores[0])
        return np.logaddexp(0.0, -signed)
    highest = scores.max(axis=0)
    spread = np.log(row_sums(np.exp(scores - highest)))
    chosen = scores[np.maximum(targets, 0), np.arange(scores.shape[1])]
    return np.asarray(spread + highest - chosen)


@dataclass(frozen=True)
class Reading:
    """What a watched training says of itself: released numbers; twice the score's standard deviation stands behind it.

    Sums are divided by the public number of rows: if that is off, so is the reading, by as much.

    >>> str(Reading("accuracy", 0.95312, 0.004, 0.21))
    'accuracy 0.9531 ± 0.0080, loss 0.21'
    """

    measure: str
    score: float
    deviation: float
    loss: float | None = None

    def __str__(self) -> str:
        digits = min(4, max(1, 1 - math.floor(math.log10(max(self.deviation, 1e-4)))))
        text = f"{self.measure} {self.score:.{digits}f} ± {2 * self.deviation:.{digits}f}"
        return text if self.loss is None else f"{text}, loss {self.loss:.2g}"


@dataclass
class RunningReading:
    """Noisy sums of the last steps as one reading; late and precise steps count more.

    ``zero_loss`` is the loss of a classifier that knows nothing, none for a regression.

    >>> running = RunningReading(zero_loss=0.69)
    >>> running.feed([80.0, 50.0], rows=100.0, noise=0.02)
    >>> running.reading.score
    0.9
    """

    zero_loss: float | None
    scale: float = 1.0
    _means: Floats = field(default_factory=lambda: np.zeros(0))
    _weight: float = 0.0
    _squares: float = 0.0

    def feed(self, numbers: Sequence[float] | Floats, *, rows: float, noise: float) -> None:
        """A step's released sums in units of its height, over an expected number of rows; ``noise`` is a mean's deviation."""
        fresh = np.asarray(numbers, np.float64) / rows
        weight = 1 / noise**2
        self._squares = _KEPT**2 * self._squares + weight  # weight^2 noise^2
        self._weight = _KEPT * self._weight + weight
        means = self._means if self._means.size else np.zeros_like(fresh)
        self._means = means + (fresh - means) * (weight / self._weight)

    @property
    def reading(self) -> Reading | None:
        """The numbers as a person knows them; none before the first step."""
        if not self._means.size:
            return None
        first, deviation = float(np.clip(self._means[0], -1, 1)), math.sqrt(self._squares) / self._weight
        if self.zero_loss is None:
            error = math.sqrt((1 - first) / 2) * _LARGEST_ERROR
            # The slope of the root, at an error that is at least one deviation.
            slope = _LARGEST_ERROR**2 / 4 / max(error, _LARGEST_ERROR * math.sqrt(deviation / 2))
            return Reading("rmse", error * self.scale, deviation * slope * self.scale)
        loss = float(np.clip((1 - self._means[1]) * self.zero_loss, 0, 2 * self.zero_loss))
        return Reading("accuracy", (1 + first) / 2, deviation / 2, loss)
