"""The training loop: sample, measure, release, descend, and test after each phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Sealed
from expost.models.descent.feature_grid import Index
from expost.models.descent.plateau_test import PlateauTest
from expost.models.descent.stopping_price import PriceList
from expost.models.descent.stopping_test import ScoredModel, StopTest, StopVerdict
from expost.models.descent.training_checkpoint import TrainingProgress
from expost.models.descent.training_schedule import Schedule
from expost.models.descent.training_watch import Progress, Quiet, Watch, WatchedModel, Watching, WatchReading
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["Learner", "Stretch", "Trained", "Trainer", "TrainingTable", "cut_stretches"]

_STRETCHES = 20  # a long phase is cut into about this many parts, so that a crash loses a twentieth of the training


class Learner(WatchedModel, ScoredModel, Protocol):
    """A model in training. What it computes from rows leaves only sealed; what it receives is already private.

    ``size`` is the length of a measured vector; ``rows`` is the number of training rows, which is private. The state is
    what a checkpoint must keep.
    """

    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...

    def measure(self, index: Index) -> Sealed:
        """Return the sum of clipped gradients over some training rows, sealed."""

    def take_step(self, noisy: NDArray[Any]) -> None:
        """Take one step along a released sum."""

    def copy_state(self) -> dict[str, NDArray[Any]]: ...
    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None: ...

    def build_result(self) -> Any:
        """Return the model to be released."""


class TrainingTable(Protocol):
    """Private rows that a learner can be made of."""

    def __len__(self) -> int: ...

    def learner(self, training: Index, validation: NDArray[np.intp] | None) -> Learner:
        """Return a learner of some rows, tested on others."""

    def yield_contents(self) -> Iterator[Sequence[NDArray[Any]]]:
        """Yield everything that is read of the rows as numbers, tables and columns together, in chunks of rows."""


@dataclass(frozen=True)
class Stretch:
    """Steps of one phase between two checkpoints; ``last`` ends the phase.

    >>> Stretch(0, 5, True).steps
    5
    """

    phase: int
    steps: int
    last: bool


@dataclass(frozen=True)
class Trained:
    """How a training ended: after which phase, at which step, with the test's last verdict and the last reading."""

    phase: int
    steps: int
    interrupted: bool
    verdict: StopVerdict | None = None
    reading: WatchReading | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed


def cut_stretches(schedule: Schedule) -> tuple[Stretch, ...]:
    """Cut the schedule at its phases, and these into parts of whole passes, a twentieth of all steps or a little more.

    >>> from fractions import Fraction
    >>> from expost.models.descent.training_schedule import Full, Phase
    >>> schedule = Schedule(Full(10), (Phase(5, Fraction(1)), Phase(75, Fraction(1))))
    >>> [part.steps for part in cut_stretches(schedule)][:4]
    [5, 5, 5, 5]
    """
    found, period = [], schedule.batches.period
    for number, phase in enumerate(schedule.phases):
        parts = max(1, _STRETCHES * phase.steps // schedule.steps)
        size = -(-phase.steps // (parts * period)) * period
        for start in range(0, phase.steps, size):
            found.append(Stretch(number, min(size, phase.steps - start), start + size >= phase.steps))
    return tuple(found)


class Trainer:
    """Runs a schedule on a learner.

    Guarantee: approximate ex-post, known only after the run: the price of the phase it stopped in, whether the test, the
        schedule or a person stopped it; a validation row pays for the test alone, which never costs more.
    Adjacency: add/remove of one row, which is in the training or in the validation part by its own coin.
    Sensitivity: the learner's, L2, for each step's sum of clipped gradients.
    Accuracy: if it passed, the score is reached on the validation rows with probability 1 - failure_probability.
    Numerics: noise, sampling and integer sums are exact; see the learner for its gradients.
    Reference: ACG16, Algorithm 1; docs/proofs/sgd-stopping.md.
    """

    def __init__(
        self,
        learner: Learner,
        schedule: Schedule,
        prices: PriceList,
        *,
        bits: BitSource,
        test: StopTest | None = None,
        progress: Progress | None = None,
        save: Callable[[TrainingProgress], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._learner, self._schedule, self._prices = learner, schedule, prices
        self._bits, self._test = bits, test
        self._progress: Progress = progress or Quiet()
        self._save = save
        self._stream: tuple[int, GaussianStream] | None = None
        self._verdict: StopVerdict | None = None
        self._steps = 0
        watched = watch is not None and learner.watchable[0] > 0
        self._watching = Watching(watch, learner, schedule.batches, bits) if watch is not None and watched else None

    def run(self, start: TrainingProgress) -> Trained:
        """Train from where ``start`` ended until the test passes, the schedule ends, or a person interrupts."""
        parts = cut_stretches(self._schedule)
        if start.arrays:
            self._learner.restore_state(start.arrays)
            if self._test is not None:
                self._test.restore_state(start.arrays)
        # A stretch that was begun and not finished is paid for, and its noise may have been seen: continue after it.
        self._steps = sum(part.steps for part in parts[: start.begun])
        phase, now = parts[max(start.begun - 1, 0)].phase, start
        batches = self._schedule.batches.draw_batch(self._learner.rows, self._bits)
        interrupted = False
        if self._test is not None and start.verdict is not None and start.verdict.final:
            self._verdict = self._test.recall_verdict(start.verdict, self._learner, phase)
        with self._progress:
            try:
                for number in range(start.begun, len(parts)):
                    if self._verdict and self._verdict.final:
                        break
                    if parts[number].phase != phase:
                        phase = parts[number].phase
                        batches = self._schedule.batches.draw_batch(self._learner.rows, self._bits)
                    # The charge is written down before the stretch runs: a crash in between costs a stretch, never privacy.
                    now = replace(now, begun=number + 1)
                    if self._save:
                        self._save(now)
                    self._run_stretch(parts[number], batches)
                    now = replace(now, finished=number + 1, arrays=self._copy_state())
                    if self._test is not None and parts[number].last:
                        self._judge_phase(self._test, phase, now)
            except KeyboardInterrupt:
                interrupted = True
        reading = self._watching.reading if self._watching else None
        return Trained(phase, self._steps, interrupted, self._verdict, reading)

    def _run_stretch(self, part: Stretch, batches: Iterator[Index]) -> None:
        stream = self._open_phase(part.phase)
        if stream is None:  # the whole phase measures the score of the model as it is
            return
        for step in range(part.steps):
            # Every batch takes the same path, the empty one too: skipping it would reveal that it was empty.
            noisy = stream.release(self._learner.measure(next(batches)))
            if self._watching and isinstance(self._test, PlateauTest) and part.last and step == part.steps - 1:
                self._test.note_reading(self._watching.release_average(), part.phase)
            elif self._watching:
                self._watching.release_metrics()
            self._learner.take_step(noisy)
            self._steps += 1
            self._report_phase(part.phase)

    def _judge_phase(self, test: StopTest, phase: int, now: TrainingProgress) -> None:
        """Test the model, and write the verdict down before it is used or shown, so that no restart asks again.

        If it cannot be written the training fails, whatever the verdict was: it has not been seen.
        """
        self._verdict = test.judge_model(self._learner, phase)
        if self._save:
            self._save(replace(now, verdict=self._verdict, arrays=self._copy_state()))
        self._report_phase(phase)

    def _copy_state(self) -> dict[str, NDArray[Any]]:
        """Return what a checkpoint must keep of model and test."""
        return self._learner.copy_state() | ({} if self._test is None else self._test.copy_state())

    def _report_phase(self, phase: int) -> None:
        """Show what is private by now: the price, the last reading, the last verdict."""
        reading = self._watching.reading if self._watching else None
        news = "; ".join(str(piece) for piece in (reading, self._verdict) if piece)
        self._progress.advance_steps(self._steps, self._schedule.steps, self._prices.epsilons[phase], news)

    def _open_phase(self, phase: int) -> GaussianStream | None:
        """Return the noise of a phase, opened once; None if the phase has no steps."""
        if self._stream is None or self._stream[0] != phase:
            share = Fraction(1) if self._test is None else self._test.training_share(phase)
            terms, _ = self._schedule.phases[phase].divide(share)
            if terms is None:
                return None
            if self._watching:
                sensitivity = self._watching.open(terms)
            else:
                sensitivity = self._learner.open(terms, float(self._schedule.batches.expected_size))
            stream = GaussianStream(
                terms.noise_multiplier, sensitivity, size=self._learner.size, releases=terms.steps, bits=self._bits
            )
            self._stream = (phase, stream)
        return self._stream[1]
