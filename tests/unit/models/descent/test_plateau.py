"""A score out of reach ends a training early, with an accuracy that holds; one in reach is not given up."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import Ladder, Measure, Sealed, Target
from expost.models.descent import plateau_test
from expost.models.descent.plateau_test import PlateauTest
from expost.models.descent.stopping_test import ScoreRule, StopVerdict
from expost.models.descent.training_schedule import Phase
from expost.models.descent.training_watch import WatchReading
from expost.noise import LaplaceMechanism, SeededBits

LADDER = Ladder(tuple(Fraction(10 + k, 20) for k in range(20)))
PHASES = tuple(Phase(5, Fraction(20)) for _ in LADDER)
RULE = ScoreRule.of(Target(Measure.ACCURACY, Fraction(9, 10), Fraction(1, 10)))
FAILURE = Fraction(1, 10)
HELD_OUT = 2000


class Model:
    """A model with this accuracy on rows held out."""

    def __init__(self, accuracy: float) -> None:
        self.right = round(accuracy * HELD_OUT)

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        return Sealed(rule.sum_correct(self.right, HELD_OUT) - margin, rule.sensitivity)


def opened(seed: int = 1, **changes: Any) -> PlateauTest:
    terms: dict[str, Any] = {"phases": PHASES, "failure_probability": FAILURE, "expected_rows": HELD_OUT}
    return PlateauTest(RULE, LADDER, bits=SeededBits(seed), open_ended=True, **(terms | changes))


def run(test: PlateauTest, read: float, held_out: float, *, deviation: float = 0.01) -> tuple[int, StopVerdict]:
    """Judge phase after phase; readings of the training rows say ``read``."""
    for phase in range(len(LADDER)):
        test.note_reading(WatchReading("accuracy", read, deviation), phase)
        verdict = test.judge_model(Model(held_out), phase)
        if verdict.final:
            break
    return phase, verdict


def test_a_plateau_far_below_the_target_ends_the_training() -> None:
    phase, verdict = run(opened(), 0.6, 0.6)

    assert verdict.ended and not verdict.passed
    assert phase < len(LADDER) // 3
    assert verdict.certified is not None and 0.55 < verdict.certified < 0.6


@pytest.mark.parametrize("read", [0.87, 0.89, 0.93])
def test_readings_near_the_target_end_nothing(read: float) -> None:
    phase, verdict = run(opened(), read, 0.8)

    assert not verdict.final and phase == len(LADDER) - 1


def test_readings_that_rise_end_nothing() -> None:
    test = opened()
    for phase in range(len(LADDER)):
        test.note_reading(WatchReading("accuracy", 0.3 + 0.03 * phase, 0.01), phase)
        assert not test.judge_model(Model(0.3 + 0.03 * phase), phase).ended


def test_noisy_readings_end_nothing() -> None:
    assert not run(opened(), 0.6, 0.6, deviation=0.3)[1].ended


def test_a_training_that_is_not_watched_gives_nothing_up() -> None:
    test = opened()
    assert not any(test.judge_model(Model(0.3), phase).final for phase in range(len(LADDER)))
    assert test.spent == LADDER[-1]


def test_giving_up_costs_the_next_rung() -> None:
    test = opened()
    phase, verdict = run(test, 0.6, 0.6)

    assert verdict.ended and test.spent == LADDER[phase + 1] <= LADDER.cap


def test_the_last_number_has_the_noise_that_its_price_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[Fraction, Sealed]] = []

    class Recorded(LaplaceMechanism):
        def release(self, sealed: Sealed, **terms: Any) -> Any:
            drawn.append((Fraction(self.epsilon), sealed))
            return super().release(sealed, **terms)

    monkeypatch.setattr(plateau_test, "LaplaceMechanism", Recorded)
    test = opened()
    phase, _ = run(test, 0.6, 0.6)

    ((level, sealed),) = drawn
    assert level == test.spent - LADDER[phase]
    # One row more, right or wrong, moves the sum no further than declared.
    (rule,) = {ScoreRule.of(Target(Measure.ACCURACY, mark, FAILURE)) for mark in (find_mark(sealed),)}
    assert max(abs(rule.sum_correct(1, 1)), abs(rule.sum_correct(0, 1))) == sealed.sensitivity.amount


def find_mark(sealed: Sealed) -> Fraction:
    """Return the accuracy in thousandths whose rule has this sensitivity, below 0.6 and nearest to it."""
    marks = (Fraction(each, 1000) for each in range(599, 0, -1))
    return next(m for m in marks if max(m.numerator, m.denominator - m.numerator) == sealed.sensitivity.amount)


def misses(runs: int) -> int:
    """Trainings that stop with an accuracy which the rows held out, worse than the readings, do not have."""
    wrong = 0
    for seed in range(runs):
        _, verdict = run(opened(seed), 0.6, 0.585)
        assert verdict.ended
        wrong += verdict.certified is not None and verdict.certified > 0.585
    return wrong


def test_a_certified_accuracy_is_missed_no_more_often_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    # The readings' accuracy itself is aimed at, which these rows miss by 30 of 2000.
    monkeypatch.setattr(plateau_test, "_FINE", 1000)
    monkeypatch.setattr(PlateauTest, "_aim_below", lambda self, margin, scale: 0.6)

    assert misses(200) <= 30  # 20 expected at most, standard deviation 4


def test_a_certified_accuracy_without_a_margin_is_noticed_by_that_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlateauTest, "_aim_below", lambda self, margin, scale: 0.586)
    monkeypatch.setattr(plateau_test, "_MARGIN", 0.0)

    assert misses(200) > 60


def test_a_restart_goes_on_with_its_readings() -> None:
    before, after = opened(), opened(seed=2, first=4)
    for phase in range(4):
        before.note_reading(WatchReading("accuracy", 0.6, 0.01), phase)
        assert not before.judge_model(Model(0.6), phase).final
    state = before.copy_state()
    after.restore_state(state)

    assert all(np.array_equal(state[name], each, equal_nan=True) for name, each in after.copy_state().items())
    after.note_reading(WatchReading("accuracy", 0.6, 0.01), 4)
    assert after.judge_model(Model(0.6), 4).ended


def test_shares_of_an_open_ladder_do_not_depend_on_its_cap() -> None:
    short = PlateauTest(RULE, Ladder(LADDER[:8]), phases=PHASES[:8], failure_probability=FAILURE, open_ended=True)

    assert [short.margin_at(k) for k in range(8)] == [opened().margin_at(k) for k in range(8)]
    assert float(opened()._failure_before(10**6)) < float(FAILURE)
