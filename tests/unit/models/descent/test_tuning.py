"""Settings are tried within one bill: attempts at their level, and models that miss the target seldom accepted."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost import InvalidRequest
from expost.core import Measure, Outcome, Target
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearProblem
from expost.models.descent.score_head import Logistic
from expost.models.descent.stopping_test import ScoreRule
from expost.models.descent.training_schedule import Full
from expost.models.descent.tuning_plan import TuningPlan, TuningSetting, doubling_ladder
from expost.noise import SeededBits

ROWS = 2000
DELTA = Fraction(1, 10**6)
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(ROWS, 2))
LABELS = (FEATURES[:, 0] > 0).astype(np.intp)


def request(accuracy: Fraction = Fraction(4, 5), rates: tuple[float, ...] = (1e-6, 5.0)) -> TuningPlan:
    target = Target(Measure.ACCURACY, accuracy, Fraction(1, 10))
    settings = []
    for rate in rates:
        rule = DescentRule(learning_rate=rate, momentum=0.0, averaging=0.0)
        problem = LinearProblem(FeatureGrid(2, bound=3.0, intercept=False), Logistic(), clip=1.0, rule=rule)
        settings.append(
            TuningSetting(f"rate {rate}", lambda data, problem=problem: problem.table(*data), Full(1600), 5)
        )
    return TuningPlan(
        question="train",
        settings=tuple(settings),
        ladder=doubling_ladder(Fraction(4), DELTA, levels=4),
        target=target,
        rule=ScoreRule.of(target),
        validation_share=Fraction(1, 5),
    )


def climbed(asked: TuningPlan, seed: int, labels: np.ndarray = LABELS) -> Any:
    return asked.climb(asked.measure((FEATURES, labels)), SeededBits(seed))


def test_success_is_billed_at_the_ladders_price_and_names_its_setting() -> None:
    asked = request()
    releases = [climbed(asked, seed) for seed in range(6)]
    found = [release.receipt for release in releases if release.receipt.outcome is Outcome.TESTED]

    assert found
    for receipt in found:
        assert receipt.bill == asked.ladder.spent(receipt.rung)
        assert receipt.bill.within(asked.worst_case.promise())
    assert {receipt.terms["setting"] for receipt in found} == {"rate 5.0"} or len(found) > 1


def test_the_worst_case_keeps_the_epsilon_and_the_delta_that_were_allowed() -> None:
    worst = request().worst_case

    assert worst.epsilon <= 4 and worst.epsilon > Fraction(399, 100)
    assert worst.delta == DELTA


def test_every_attempt_is_trained_within_its_level() -> None:
    asked = request()
    for number in range(2):
        for level in asked.ladder.levels:
            assert asked.schedules[number, level].prices(asked.ladder.delta).cap.epsilon <= level


def test_models_that_miss_the_target_are_seldom_accepted() -> None:
    # Labels by fair coins: about half are predicted right, whatever the model; the target is a little above.
    coins = np.random.default_rng(1).integers(0, 2, ROWS)
    asked = request(Fraction(3, 5), rates=(1.0,))
    accepted = sum(climbed(asked, seed, coins).receipt.outcome is Outcome.TESTED for seed in range(60))

    assert accepted <= 12  # 6 expected at most; 13 or more has probability below 0.006


def test_without_a_margin_they_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    coins = np.random.default_rng(1).integers(0, 2, ROWS)
    monkeypatch.setattr(TuningPlan, "margin_at", lambda self, level: -int(40 * self.rule.span))
    asked = request(Fraction(3, 5), rates=(1.0,))
    accepted = sum(climbed(asked, seed, coins).receipt.outcome is Outcome.TESTED for seed in range(20))

    assert accepted > 10


def test_a_target_out_of_reach_releases_no_model() -> None:
    release = climbed(request(Fraction(999, 1000)), 3)

    assert release.value is None and release.receipt.outcome is Outcome.NOT_MET
    assert release.receipt.bill == request().ladder.spent(None)


def test_no_settings_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        replace(request(), settings=())
