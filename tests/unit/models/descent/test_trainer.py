"""The loop runs every step it charges for, stops when told, and charges what was begun."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from expost.core import Norm, Sealed, Sensitivity
from expost.models.descent import trainer as module
from expost.models.descent.stopping_test import SeparateTest, StopVerdict
from expost.models.descent.trainer import Trainer, cut_stretches
from expost.models.descent.training_checkpoint import TrainingProgress
from expost.models.descent.training_schedule import Disjoint, Full, Phase, Poisson, Schedule
from expost.models.descent.training_watch import Quiet
from expost.noise import SeededBits

DELTA = Fraction(1, 10**6)


class Recorder:
    """A learner that only writes down what it is asked."""

    size, rows = 3, 50

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.steps: list[Any] = []
        self.noises: list[np.ndarray] = []
        self.opened: list[Phase] = []
        self._interrupt_at = interrupt_at

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        self.opened.append(phase)
        self.expected_size = expected_size
        return Sensitivity(1000, Norm.L2)

    def measure(self, index: Any) -> Sealed:
        if len(self.steps) == self._interrupt_at:
            raise KeyboardInterrupt
        self.steps.append(index)
        return Sealed(np.zeros(3, np.int64), Sensitivity(1000, Norm.L2))

    def take_step(self, noisy: np.ndarray) -> None:
        self.noises.append(noisy)

    def copy_state(self) -> dict[str, np.ndarray]:
        return {"steps": np.array([float(len(self.steps))])}

    def restore_state(self, state: dict[str, np.ndarray]) -> None:
        self.restored = float(state["steps"][0])


def run(schedule: Schedule, learner: Recorder, start: TrainingProgress | None = None, **terms: Any) -> Any:
    trainer = Trainer(learner, schedule, schedule.prices(DELTA), bits=SeededBits(1), **terms)  # type: ignore[arg-type]
    return trainer.run(start or TrainingProgress({}))


TWO = Schedule(Full(50), (Phase(3, Fraction(9)), Phase(4, Fraction(5))))


def test_a_stop_between_two_stretches_keeps_what_there_is() -> None:
    def save(progressed: TrainingProgress) -> None:
        if progressed.begun == 2:
            raise KeyboardInterrupt

    learner = Recorder()

    trained = run(TWO, learner, save=save)

    assert trained.interrupted and trained.phase == 0 and trained.steps == len(learner.noises) > 0


def test_all_steps_of_all_phases_run_with_their_own_noise() -> None:
    learner = Recorder()

    trained = run(TWO, learner)

    assert (trained.phase, trained.steps, trained.passed, trained.interrupted) == (1, 7, False, False)
    assert learner.opened == list(TWO.phases)
    assert len({tuple(noise) for noise in learner.noises}) == 7
    assert learner.expected_size == 50


def test_empty_batches_are_released_like_all_others() -> None:
    schedule = Schedule(Poisson(Fraction(1, 500), 50), (Phase(40, Fraction(9)),))
    learner = Recorder()

    run(schedule, learner)

    assert len(learner.noises) == 40
    assert sum(len(index) == 0 for index in learner.steps) > 30


def test_an_interruption_keeps_the_phase_it_happened_in() -> None:
    for at, phase in ((0, 0), (2, 0), (3, 1), (6, 1)):
        trained = run(TWO, Recorder(interrupt_at=at))
        assert (trained.phase, trained.interrupted, trained.steps) == (phase, True, at)


def test_a_stretch_is_written_down_before_it_runs() -> None:
    learner, written = Recorder(), []

    run(
        TWO,
        learner,
        save=lambda progressed: written.append((progressed.begun, progressed.finished, len(learner.steps))),
    )

    assert written == [(number + 1, number, number) for number in range(7)]  # so few steps are stretches of their own


def test_a_restart_goes_on_behind_what_was_begun() -> None:
    learner = Recorder()

    trained = run(TWO, learner, TrainingProgress({}, begun=3, finished=2, arrays={"steps": np.array([2.0])}))

    assert learner.restored == 2
    assert len(learner.steps) == 4
    assert (trained.phase, trained.steps) == (1, 7)


def test_an_answer_yes_is_written_down_before_it_is_shown() -> None:
    happened: list[Any] = []

    class Passing(SeparateTest):
        def judge_model(self, learner: Any, phase: int) -> StopVerdict:
            return StopVerdict(phase == 1, 5 if phase == 1 else None)

    class Screen(Quiet):
        def advance_steps(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
            happened.append(news)

    run(TWO, Recorder(), test=Passing(), progress=Screen(), save=lambda progressed: happened.append(progressed.verdict))

    assert happened[-2:] == [StopVerdict(True, 5), "target reached"]
    assert "target reached" not in happened[:-1]
    assert "target not reached yet" in happened


def test_a_restart_with_nothing_left_runs_nothing() -> None:
    learner = Recorder()

    trained = run(TWO, learner, TrainingProgress({}, begun=7, finished=6))

    assert learner.steps == []
    assert (trained.phase, trained.steps) == (1, 7)


def test_a_single_phase_is_cut_into_stretches_that_end_with_passes() -> None:
    assert len(cut_stretches(Schedule(Full(10), (Phase(100, Fraction(1)),)))) == 20
    parts = cut_stretches(Schedule(Disjoint(7, 100), (Phase(100, Fraction(1)),)))

    assert sum(part.steps for part in parts) == 100
    assert all(part.steps % 7 == 0 for part in parts[:-1])
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_long_phases_are_cut_and_short_ones_are_not() -> None:
    parts = cut_stretches(Schedule(Full(10), (Phase(3, Fraction(1)), Phase(17, Fraction(1)), Phase(80, Fraction(1)))))

    assert [sum(part.steps for part in parts if part.phase == phase) for phase in range(3)] == [3, 17, 80]
    assert [sum(part.phase == phase for part in parts) for phase in range(3)] == [1, 3, 16]
    assert [part.phase for part in parts if part.last] == [0, 1, 2]
    assert all(a.phase < b.phase for a, b in pairwise(parts) if a.last)


def test_every_phase_of_disjoint_batches_begins_a_pass() -> None:
    schedule = Schedule(Disjoint(4, 50), (Phase(4, Fraction(9)), Phase(4, Fraction(8))))
    learner = Recorder()

    run(schedule, learner)

    for start in (0, 4):
        assert sorted(np.concatenate(learner.steps[start : start + 4]).tolist()) == list(range(50))


def test_progress_shows_only_public_numbers() -> None:
    seen: list[tuple[int, int, Fraction, str]] = []

    class Watch:
        def __enter__(self) -> "Watch":
            return self

        def __exit__(self, *_: object) -> None:
            seen.append((-1, -1, Fraction(0), ""))

        def advance_steps(self, *shown: Any) -> None:
            seen.append(shown)  # type: ignore[arg-type]

    run(TWO, Recorder(), progress=Watch())
    prices = TWO.prices(DELTA)

    assert seen[0] == (1, 7, prices.epsilons[0], "")
    assert seen[-2] == (7, 7, prices.epsilons[1], "")
    assert seen[-1][0] == -1


def test_no_step_may_reuse_the_noise_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # The check above would notice a stream that hands out one vector twice.
    class Stuck(module.GaussianStream):
        def _next_noise(self) -> np.ndarray:
            return np.array([7, 7, 7])

    monkeypatch.setattr(module, "GaussianStream", Stuck)
    learner = Recorder()

    run(TWO, learner)

    assert len({tuple(noise) for noise in learner.noises}) == 1
