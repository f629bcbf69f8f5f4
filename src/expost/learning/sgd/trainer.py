"""The loop: sample, measure, release, descend, and now and then ask whether it is good enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from expost.core import Sensitivity
from expost.learning.sgd.batches import Index
from expost.learning.sgd.checkpoint import Progressed
from expost.learning.sgd.learner import Learner
from expost.learning.sgd.prices import PriceList
from expost.learning.sgd.progress import Progress, Quiet
from expost.learning.sgd.schedule import Phase, Schedule
from expost.learning.sgd.validation import ValidationTest
from expost.learning.sgd.watch import Reading, Watch
from expost.learning.sgd.watching import Watching
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["Stretch", "Trainer", "Trained", "stretches"]

_STRETCHES = 20  # a long phase is cut into about this many, so that a crash loses a twentieth of it


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
    """How a training ended: after which phase, at which step, and whether the test was passed (and by how much).

    ``gap`` is the released gap of the test, None if it was not passed or there was none; ``score`` is what it says of the
    score, for the public number of validation rows. ``reading`` is the last look at a watched training.
    """

    phase: int
    steps: int
    passed: bool
    interrupted: bool
    gap: int | None = None
    score: float | None = None
    reading: Reading | None = None


def stretches(schedule: Schedule) -> tuple[Stretch, ...]:
    """The schedule cut at its phases, and a single phase into about twenty parts.

    >>> from fractions import Fraction
    >>> from expost.learning.sgd.batches import Full
    >>> from expost.learning.sgd.schedule import Phase
    >>> [part.steps for part in stretches(Schedule(Full(10), (Phase(2, Fraction(1)), Phase(3, Fraction(1)))))]
    [2, 3]
    """
    if len(schedule.phases) > 1:
        return tuple(Stretch(number, phase.steps, True) for number, phase in enumerate(schedule.phases))
    total, period = schedule.phases[0].steps, schedule.batches.period
    size = -(-total // (_STRETCHES * period)) * period
    starts = range(0, total, size)
    return tuple(Stretch(0, min(size, total - start), start + size >= total) for start in starts)


class Trainer:
    """Runs a schedule on a learner.

    Guarantee: approximate ex-post, known only after the run: the price of the phase it stopped in, whether the test, the
        schedule or a person stopped it; a validation row pays for the test alone, which is never dearer.
    Adjacency: add/remove of one row, which is in the training or in the validation part by its own coin.
    Sensitivity: the learner's, L2, for each step's sum of clipped gradients.
    Accuracy: if it passed, the target is met on the validation rows with probability 1 - failure_probability.
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
        test: ValidationTest | None = None,
        progress: Progress | None = None,
        save: Callable[[Progressed], None] | None = None,
        validation_rows: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        self._learner, self._schedule, self._prices = learner, schedule, prices
        self._bits, self._test = bits, test
        self._progress: Progress = progress or Quiet()
        self._save = save
        self._stream: tuple[int, GaussianStream] | None = None
        self._validation_rows = validation_rows
        self._score: float | None = None
        self._answer, self._steps = "", 0
        watched = watch is not None and learner.watchable[0] > 0
        self._watching = Watching(watch, learner, schedule.batches, bits) if watch is not None and watched else None

    def run(self, start: Progressed) -> Trained:
        """Train from where ``start`` left off until the test is passed, the schedule ends, or someone interrupts."""
        parts = stretches(self._schedule)
        if start.arrays:
            self._learner.restore(start.arrays)
        # A stretch that was begun and not finished is paid for: go on behind it.
        self._steps = sum(part.steps for part in parts[: start.begun])
        phase, now = parts[max(start.begun - 1, 0)].phase, start
        batches = self._schedule.batches.draw(self._learner.rows, self._bits)
        with self._progress:
            for number in range(start.begun, len(parts)):
                if parts[number].phase != phase:
                    phase = parts[number].phase
                    batches = self._schedule.batches.draw(self._learner.rows, self._bits)
                now = self._begin(now, number)
                try:
                    passed, gap = self._stretch(parts[number], batches)
                except KeyboardInterrupt:
                    return Trained(phase, self._steps, False, True, reading=self._reading)
                if passed:
                    return Trained(phase, self._steps, True, False, gap, self._score, self._reading)
                now = replace(now, finished=number + 1, arrays=self._learner.state())
        return Trained(phase, self._steps, False, False, reading=self._reading)

    @property
    def _reading(self) -> Reading | None:
        return self._watching.reading if self._watching else None

    def _begin(self, now: Progressed, number: int) -> Progressed:
        """Write down that the stretch is charged before it runs."""
        ahead = replace(now, begun=number + 1)
        if self._save:
            self._save(ahead)
        return ahead

    def _stretch(self, part: Stretch, batches: Iterator[Index]) -> tuple[bool, int | None]:
        stream = self._opened(part.phase)
        for _ in range(part.steps):
            # Every batch is treated alike, the empty one too: skipping it would tell that it was empty.
            noisy = stream.release(self._learner.measure(next(batches)))
            if self._watching:
                self._watching.look()
            self._learner.descend(noisy)
            self._steps += 1
            self._report(part.phase)
        return self._asked(part)

    def _report(self, phase: int) -> None:
        """Tell the person what is private by now: the price, the last reading, the last answer of the test."""
        news = "; ".join(str(piece) for piece in (self._reading, self._answer) if piece)
        self._progress.advance(self._steps, self._schedule.steps, self._prices.epsilons[phase], news)

    def _opened(self, phase: int) -> GaussianStream:
        if self._stream is None or self._stream[0] != phase:
            terms = self._schedule.phases[phase]
            sensitivity = self._begun(terms)
            self._stream = (
                phase,
                GaussianStream(
                    terms.noise_multiplier,
                    sensitivity,
                    size=self._learner.size,
                    releases=terms.steps,
                    bits=self._bits,
                ),
            )
        return self._stream[1]

    def _begun(self, phase: Phase) -> Sensitivity:
        if self._watching:
            return self._watching.open(phase)
        return self._learner.open(phase, float(self._schedule.batches.expected_size))

    def _asked(self, part: Stretch) -> tuple[bool, int | None]:
        if self._test is None or not part.last:
            return False, None
        margin = self._test.margin(part.phase)
        crossing = self._test.ask(self._learner.score(self._test.rule, margin), part.phase)
        self._answer = "target not reached yet"
        if crossing.gap is not None:
            self._tell(crossing.gap, part.phase)
        return crossing.above, crossing.gap

    def _tell(self, gap: int, phase: int) -> None:
        """The gap is released with the answer "above", so a guess from it costs nothing more."""
        self._answer = "target reached"
        if self._test is not None and self._validation_rows:
            self._score = self._test.accuracy(gap, phase, self._validation_rows)
        if self._score is not None:
            self._answer += f", score of the rows held out about {self._score:.3f}"
        self._report(phase)
