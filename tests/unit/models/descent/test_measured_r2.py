"""An R^2 that is measured on all rows holds as often as promised, wherever the targets' mean is."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import r2_score

from expost import InvalidRequest, SGDRegressor, TargetNotMet
from expost.core import Measure, Sealed, Target
from expost.models.descent.measured_test import MeasuredTest
from expost.models.descent.score_head import Squared
from expost.models.descent.stopping_test import MeasureScale, ScoreRule, StopVerdict
from expost.models.descent.training_schedule import Phase
from expost.noise import SeededBits

LEVEL = Fraction(4, 5)
RULE = ScoreRule.of(Target(Measure.R2, LEVEL, Fraction(1, 10)), measured=True)
PHASES = tuple(Phase(4, Fraction(noise)) for noise in (12, 11, 10, 9, 8, 7, 6, 5))
ROWS = 10_000


class Regression:
    """A model of one R^2, whatever it is trained on, for targets around a mean."""

    weights = 4

    def __init__(self, r2: float, mean: float) -> None:
        rng = np.random.default_rng(1)
        self.targets = np.clip(mean + 0.3 * rng.uniform(-1, 1, ROWS), -1, 1)
        errors = rng.choice([-1.0, 1.0], ROWS)
        self.predictions = self.targets + errors * np.sqrt((1 - r2) * self.targets.var())

    def measured_score(self, rule: ScoreRule, scale: MeasureScale) -> Sealed:
        total = rule.total(Squared(), self.predictions[None, :], self.targets)
        numbers = [scale.score * total, scale.count * ROWS, *rule.sum_sides(self.targets)]
        return Sealed(np.array(numbers, np.int64), scale.sensitivity)


def judge(model: Regression, seed: int, rule: ScoreRule = RULE) -> tuple[StopVerdict, MeasuredTest]:
    test = MeasuredTest(
        rule, PHASES, failure_probability=Fraction(1, 10), expected_rows=ROWS, size=4, bits=SeededBits(seed)
    )
    for phase in range(len(PHASES)):
        verdict = test.judge_model(model, phase)
        if verdict.final:
            break
    return verdict, test


@pytest.mark.parametrize("mean", [0.0, -0.6])
def test_a_model_that_just_misses_is_seldom_accepted(mean: float) -> None:
    model = Regression(0.799, mean)
    assert r2_score(model.targets, np.clip(model.predictions, -1, 1)) < 0.8

    accepted = sum(judge(model, seed)[0].passed for seed in range(200))

    assert accepted < 44  # 20 are allowed; 44 or more would have a probability below 1e-6


def test_targets_measured_from_a_wrong_centre_without_its_correction_would_be_caught() -> None:
    """Squares of distances from a number that is not the mean are larger: the sum alone says that the target is met."""
    model = Regression(0.7, -0.6)

    assert model_sum(model, 0.0) > 0 > model_sum(model, float(model.targets.mean()))
    wrong = [judge(model, seed)[0].passed for seed in range(30)]
    assert not any(wrong)


def model_sum(model: Regression, centre: float) -> int:
    return replace(RULE, centre=centre).total(Squared(), model.predictions[None, :], model.targets)


@pytest.mark.parametrize("mean", [0.0, -0.6])
def test_a_certified_r2_is_seldom_above_the_true_one(mean: float) -> None:
    model = Regression(0.6, mean)
    true = r2_score(model.targets, np.clip(model.predictions, -1, 1))

    certified = [verdict.certified for verdict, _ in (judge(model, seed) for seed in range(200)) if verdict.ended]

    found = [score for score in certified if score is not None]
    assert len(found) > 100
    assert sum(score > true for score in found) < 44
    assert np.median(found) > true - 0.5


@pytest.mark.parametrize("mean", [0.0, -0.6])
def test_a_good_model_passes_early_and_the_centre_is_found(mean: float) -> None:
    verdicts = [judge(Regression(0.99, mean), seed) for seed in range(20)]

    assert sum(verdict.passed for verdict, _ in verdicts) >= 18
    assert np.median([len(test._points) for _, test in verdicts]) < len(PHASES)
    assert all(abs(test.rule.centre - mean) < 0.1 for _, test in verdicts)


def test_the_state_survives_a_checkpoint() -> None:
    _, test = judge(Regression(0.7, -0.6), 5)
    other = MeasuredTest(
        RULE, PHASES, failure_probability=Fraction(1, 10), expected_rows=ROWS, size=4, bits=SeededBits(0)
    )
    other.restore_state(test.copy_state())

    assert other.rule == test.rule and other.rule.centre != 0
    for name, array in test.copy_state().items():
        np.testing.assert_array_equal(array, other.copy_state()[name])


def rows(count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (count, 2))
    return features, 5 + features @ [2.0, -1.0] + 0.3 * rng.normal(size=count)


def regression(**terms: Any) -> SGDRegressor:
    usual: dict[str, Any] = {"rows": 20_000, "target_bounds": (0, 9), "bounds": [(-1, 1)] * 2, "simulation_seed": 1}
    return SGDRegressor(**usual | terms)


def test_a_regression_reaches_an_r2_on_all_rows() -> None:
    features, targets = rows()

    model = regression(score=("r2", 0.7), max_epsilon=2.0).fit(features, targets)

    assert model.receipt_.outcome.value == "tested" and model.receipt_.achieved == 0.7
    assert model.receipt_.epsilon < 1
    assert r2_score(targets, model.predict(features)) >= 0.7
    assert model.receipt_.terms["score, estimated"] == pytest.approx(model._score_r2(features, targets), abs=0.25)


def test_an_r2_out_of_reach_ends_with_one_that_holds() -> None:
    features, targets = rows()

    with pytest.raises(TargetNotMet, match="reaches r2 0") as raised:
        regression(score=("r2", 0.99), max_epsilon=3.0).fit(features, targets)

    assert 0.5 < raised.value.receipt.achieved < 0.95


@pytest.mark.parametrize(
    "terms",
    [
        {"score": ("r2", 1.0)},
        {"score": ("r2", 1.5)},
        {"score": ("r2", -0.5)},
        {"score": ("r2", 0.5), "validation_share": 0.2},
        {"score": ("r2", 0.5), "batches": "poisson"},
        {"score": ("r2", 0.5), "phases": 3},
    ],
    ids=str,
)
def test_an_r2_that_cannot_be_tested_is_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        regression(**terms).fit(*rows(100))
