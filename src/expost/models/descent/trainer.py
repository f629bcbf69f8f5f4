"""The loop: sample, measure, release, descend, and now and then ask whether it is good enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from expost.core import Sensitivity
from expost.models.descent.batches import Index
from expost.models.descent.checkpoint import Progressed
from expost.models.descent.learner import Learner
from expost.models.descent.prices import PriceList
from expost.models.descent.progress import Progress, Quiet
from expost.models.descent.schedule import Phase, Schedule
from expost.models.descent.stop_test import StopTest, Verdict
from expost.models.descent.watch import Reading, Watch
from expost.models.descent.watching import Watching
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
    """How a training ended: after which phase, at which step, and what the test said.

    ``verdict`` is the last one of the test, if there is one; ``reading`` is the last look at a watched training.
    """

    phase: int
    steps: int
    interrupted: bool
    verdict: Verdict | None = None
    reading: Reading | None = None

    @property
    def passed(self) -> bool:
        """Whether the test said so."""
        return self.verdict is not None and self.verdict.passed


def stretches(schedule: Schedule) -> tuple[Stretch, ...]:
    """The schedule cut at its phases, and these into parts of a twentieth of all steps or a little more.

    >>> from fractions import Fraction
    >>> from expost.models.descent.batches import Full
    >>> from expost.models.descent.schedule import Phase
    >>> [part.steps for part in stretches(Schedule(Full(10), (Phase(5, Fraction(1)), Phase(75, Fraction(1)))))][:4]
    [5, 5, 5, 5]
    """
    return tuple(part for number, phase in enumerate(schedule.phases) for part in _cut(number, phase, schedule))


def _cut(number: int, phase: Phase, schedule: Schedule) -> Iterator[Stretch]:
    """Parts of one phase, of whole passes."""
    parts, period = max(1, _STRETCHES * phase.steps // schedule.steps), schedule.batches.period
    size = -(-phase.steps // (parts * period)) * period
    for start in range(0, phase.steps, size):
        yield Stretch(number, min(size, phase.steps - start), start + size >= phase.steps)


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
        test: StopTest | None = None,
        progress: Progress | None = None,
        save: Callable[[Progressed], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._learner, self._schedule, self._prices = learner, schedule, prices
        self._bits, self._test = bits, test
        self._progress: Progress = progress or Quiet()
        self._save = save
        self._stream: tuple[int, GaussianStream] | None = None
        self._verdict: Verdict | None = None
        self._steps = 0
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
        interrupted = False
        if self._test is not None and start.verdict is not None and start.verdict.passed:
            self._verdict = self._test.recalled(start.verdict, self._learner, phase)
        with self._progress:
            try:
                for number in range(start.begun, len(parts)):
                    if self._verdict and self._verdict.passed:
                        break
                    if parts[number].phase != phase:
                        phase = parts[number].phase
                        batches = self._schedule.batches.draw(self._learner.rows, self._bits)
                    now = self._begin(now, number)
                    self._stretch(parts[number], batches)
                    now = replace(now, finished=number + 1, arrays=self._learner.state())
                    if self._test is not None and parts[number].last:
                        self._judge(self._test, phase, now)
            except KeyboardInterrupt:
                interrupted = True
        return Trained(phase, self._steps, interrupted, self._verdict, self._reading)

    @property
    def _reading(self) -> Reading | None:
        return self._watching.reading if self._watching else None

    def _begin(self, now: Progressed, number: int) -> Progressed:
        """Write down that the stretch is charged before it runs."""
        ahead = replace(now, begun=number + 1)
        if self._save:
            self._save(ahead)
        return ahead

    def _stretch(self, part: Stretch, batches: Iterator[Index]) -> None:
        stream = self._opened(part.phase)
        for _ in range(part.steps):
            # Every batch is treated alike, the empty one too: skipping it would tell that it was empty.
            noisy = stream.release(self._learner.measure(next(batches)))
            if self._watching:
                self._watching.look()
            self._learner.descend(noisy)
            self._steps += 1
            self._report(part.phase)

    def _judge(self, test: StopTest, phase: int, now: Progressed) -> None:
        """Ask whether it is good enough. The answer is written down before anyone sees it, so that no restart asks on.

        Where it cannot be written the training ends, with a yes as with a no: nobody has seen which it was.
        """
        self._verdict = test.judge(self._learner, phase)
        if self._save:
            self._save(replace(now, verdict=self._verdict))
        self._report(phase)

    def _report(self, phase: int) -> None:
        """Tell the person what is private by now: the price, the last reading, the last answer of the test."""
        news = "; ".join(str(piece) for piece in (self._reading, self._verdict) if piece)
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
