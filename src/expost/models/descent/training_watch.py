"""What a person sees of a running training: the progress, and private metrics of the rows it learns from."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, Norm, Sealed, Sensitivity, SingleOwner
from expost.models.descent.score_head import LARGEST_ERROR
from expost.models.descent.training_schedule import Batches, Phase, Poisson
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = [
    "Progress",
    "Quiet",
    "RichProgress",
    "RunningReading",
    "Watch",
    "WatchReading",
    "WatchTally",
    "WatchedModel",
    "Watching",
    "stop_when",
]

Floats = NDArray[np.float64]
_STOPPED: ContextVar[Callable[[], bool]] = ContextVar("stopped", default=lambda: False)
_KEPT = 0.8  # factor of a step's weight after the next one: a reading covers about the last five steps


@dataclass(frozen=True)
class Watch:
    """How metrics share a step's noise with its gradient.

    Each row counts for each metric an integer between -height and height, where height is a ``share`` of the gradient's
    sensitivity. Gradient and metrics get noise of one deviation, so together they are one Gaussian release of a vector
    whose sensitivity is the root of the sum of squares. ``scale`` is what a score of 1 is in the target's own units, for
    a regression.

    Guarantee: gradient and metrics of a step, each released under noise of standard deviation noise_multiplier *
        ``joined``, are together one Gaussian event of that noise multiplier.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of the gradient and ``count`` metrics together, rounded up: ``joined``.
    Accuracy: none promised; a ``WatchReading`` contains its standard deviation.
    Numerics: exact; integer sums.
    Reference: docs/proofs/sgd-gradient.md (watching).
    """

    share: Fraction = Fraction(1, 10)
    scale: float = 1.0

    def height(self, gradient: Sensitivity) -> int:
        """Return the largest integer that a row counts for a metric."""
        return max(1, math.floor(self.share * gradient.amount))

    def joined(self, gradient: Sensitivity, count: int) -> Sensitivity:
        """Return how far one row can move gradient and metrics together."""
        squared = math.ceil(gradient.square) + count * self.height(gradient) ** 2
        return Sensitivity(math.isqrt(squared - 1) + 1, Norm.L2, gradient.adjacency, gradient.unit)

    def factor(self, count: int) -> Fraction:
        """Return a bound, of three digits, on the factor by which the gradient's noise grows."""
        return Fraction(math.ceil(1000 * math.sqrt(1 + count * self.share**2)) + 1, 1000)


class WatchTally(SingleOwner):
    """The metrics of one batch, added up chunk by chunk and then sealed."""

    _owned_noun: ClassVar[str] = "sum of private rows"

    def __init__(self, height: int, count: int) -> None:
        super().__init__()
        self._height, self._count = height, count
        self._total = np.zeros(count, np.int64)  # a batch without rows is released like any other

    def add(self, values: NDArray[Any]) -> None:
        """Add the metrics of some rows (metrics x rows), each between -1 and 1."""
        counted = np.rint(np.clip(np.nan_to_num(values, nan=-1.0), -1.0, 1.0) * self._height)
        self._total += counted.sum(axis=1).astype(np.int64)

    def sealed(self) -> Sealed:
        """Return the sums, for release under a joint noise."""
        numbers = Sensitivity.from_square(max(1, self._count * self._height**2), adjacency=Adjacency.ADD_REMOVE)
        return Sealed(self._total, numbers)

    def __repr__(self) -> str:
        return "<sums of a batch>"


@dataclass(frozen=True)
class WatchReading:
    """Released metrics of a training; ± is twice the score's standard deviation.

    Sums are divided by the public number of rows: if that is wrong by a factor, so is the reading.

    >>> str(WatchReading("accuracy", 0.95312, 0.004, 0.21))
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
    """The noisy sums of the last steps as one reading; late and precise steps weigh more.

    ``zero_loss`` is the loss of a constant classifier, None for a regression.
    """

    zero_loss: float | None
    scale: float = 1.0
    _means: Floats = field(default_factory=lambda: np.zeros(0))
    _weight: float = 0.0
    _squares: float = 0.0

    def feed_reading(self, numbers: Sequence[float] | Floats, *, rows: float, noise: float) -> None:
        """Add a step's released sums, in units of its height, over an expected number of rows.

        ``noise`` is the standard deviation of a mean.
        """
        fresh = np.asarray(numbers, np.float64) / rows
        weight = 1 / noise**2
        self._squares = _KEPT**2 * self._squares + weight  # weight^2 noise^2
        self._weight = _KEPT * self._weight + weight
        means = self._means if self._means.size else np.zeros_like(fresh)
        self._means = means + (fresh - means) * (weight / self._weight)

    @property
    def reading(self) -> WatchReading | None:
        """Return the metrics in usual units; None before the first step."""
        if not self._means.size:
            return None
        first, deviation = float(np.clip(self._means[0], -1, 1)), math.sqrt(self._squares) / self._weight
        if self.zero_loss is None:
            error = math.sqrt((1 - first) / 2) * LARGEST_ERROR
            # Delta method: the slope of the root, at an error of at least one deviation, where it is not infinite.
            slope = LARGEST_ERROR**2 / 4 / max(error, LARGEST_ERROR * math.sqrt(deviation / 2))
            return WatchReading("rmse", error * self.scale, deviation * slope * self.scale)
        loss = float(np.clip((1 - self._means[1]) * self.zero_loss, 0, 2 * self.zero_loss))
        return WatchReading("accuracy", (1 + first) / 2, deviation / 2, loss)


class WatchedModel(Protocol):
    """The part of a learner that watching uses.

    ``watchable`` is the number of metrics that can be released per batch, 0 for none, and the loss of a constant
    classifier. After ``start_watch`` each row counts up to ``height``; ``read_watch`` seals the metrics of the rows
    measured last, ``read_average_watch`` those by the averaged weights, which are what is released at the end.
    """

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase; return how far one row can then move a measured gradient, in lattice units."""

    @property
    def watchable(self) -> tuple[int, float | None]: ...
    def start_watch(self, height: int) -> None: ...
    def read_watch(self) -> Sealed: ...
    def read_average_watch(self) -> Sealed: ...


class Watching:
    """Opens phases with a share of the noise for metrics, and makes a reading of the metrics released.

    Guarantee: that of ``Watch``: a step's gradient and metrics are one Gaussian event of the phase's noise multiplier.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of gradient and metrics together.
    Accuracy: none promised; a ``WatchReading`` contains its standard deviation.
    Numerics: exact; integer sums and noise.
    Reference: docs/proofs/sgd-gradient.md (watching).
    """

    def __init__(self, watch: Watch, learner: WatchedModel, batches: Batches, bits: BitSource) -> None:
        self._watch, self._learner, self._bits = watch, learner, bits
        self._count, zero_loss = learner.watchable
        self._running = RunningReading(zero_loss, scale=watch.scale)
        self._rows = float(batches.expected_size)
        # The mean of a sampled batch differs from that of all rows by one over the root of its size at most.
        self._sampling = 1 / self._rows if isinstance(batches, Poisson) and batches.rate < 1 else 0.0
        self._height, self._deviation = 0, math.inf
        self._stream: GaussianStream | None = None
        self.released: NDArray[Any] = np.zeros(self._count)
        """The metrics of the last step as they were released, in lattice units."""

    def open(self, phase: Phase) -> Sensitivity:
        """Begin a phase; return the sensitivity that the gradient's noise must be calibrated to."""
        # The learner's lattice must carry the larger noise: both parts are scaled to the joint sensitivity.
        wider = replace(phase, noise_multiplier=phase.noise_multiplier * self._watch.factor(self._count))
        gradient = self._learner.open(wider, self._rows)
        joined, self._height = self._watch.joined(gradient, self._count), self._watch.height(gradient)
        self._learner.start_watch(self._height)
        noise = Fraction(phase.noise_multiplier)
        self._stream = GaussianStream(noise, joined, size=self._count, releases=phase.steps, bits=self._bits)
        self._deviation = float(noise * joined.amount) / (self._height * self._rows)
        return joined

    def release_metrics(self) -> None:
        """Release the metrics of the step that was measured last."""
        assert self._stream is not None
        self.released = self._stream.release(self._learner.read_watch())
        self._running.feed_reading(
            self.released / self._height, rows=self._rows, noise=math.sqrt(self._deviation**2 + self._sampling)
        )

    def release_average(self) -> WatchReading | None:
        """Release metrics of the averaged weights instead, of the rows of the last step, as a reading of its own."""
        assert self._stream is not None
        alone = RunningReading(self._running.zero_loss, self._running.scale)
        noise = math.sqrt(self._deviation**2 + self._sampling)
        alone.feed_reading(
            self._stream.release(self._learner.read_average_watch()) / self._height, rows=self._rows, noise=noise
        )
        return alone.reading

    @property
    def reading(self) -> WatchReading | None:
        """Return the reading of the metrics so far."""
        return self._running.reading


class Progress(Protocol):
    """Receives how far training is and what it has cost: public and released numbers only."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def advance_steps(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
        """Show that a step is done; ``epsilon`` is charged by now, ``news`` is the last answer of the private test."""


@contextmanager
def stop_when(stopped: Callable[[], bool]) -> Iterator[None]:
    """End trainings of this thread, as Ctrl-C does, once ``stopped`` returns true. They look after each phase.

    >>> try:
    ...     with stop_when(lambda: True):
    ...         Quiet().advance_steps(1, 10, Fraction(1, 2), "")
    ... except KeyboardInterrupt:
    ...     print("ended")
    ended
    """
    before = _STOPPED.set(stopped)
    try:
        yield
    finally:
        _STOPPED.reset(before)


def _check_stopped() -> None:
    if _STOPPED.get()():
        raise KeyboardInterrupt


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def advance_steps(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
        _check_stopped()


class RichProgress:
    """Shows a bar with the epsilon charged so far and the last answer of the private test.

    >>> with RichProgress(quiet=True) as progress:
    ...     progress.advance_steps(1, 10, Fraction(1, 2), "below 0.95")
    """

    def __init__(self, *, quiet: bool = False) -> None:
        rich: Any = importlib.import_module("rich.progress")  # on demand: most trainings show nothing
        self._bar = rich.Progress(
            rich.TextColumn("training"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("epsilon {task.fields[epsilon]}  {task.fields[news]}"),
            rich.TimeRemainingColumn(),
            disable=quiet,
        )
        self._task = self._bar.add_task("training", total=None, epsilon="0", news="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance_steps(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
        _check_stopped()
        self._bar.update(self._task, completed=step, total=steps, epsilon=f"{float(epsilon):.3g}", news=news)
