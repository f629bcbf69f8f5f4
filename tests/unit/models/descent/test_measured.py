"""A score that is measured on all rows: what it costs, what it promises, when it ends, and how it continues."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from expost import SGDClassifier, SGDRegressor, TargetNotMet
from expost.core import BudgetExceeded, Measure, Sealed, Target, unseal
from expost.models.descent.linear_learner import LinearLearner
from expost.models.descent.measured_ladder import plan_measured_ladder
from expost.models.descent.measured_test import CurvePoint, LearningCurve, MeasuredTest
from expost.models.descent.score_head import Squared
from expost.models.descent.stopping_test import MeasureScale, ScoreRule, StopVerdict
from expost.models.descent.training_checkpoint import TrainingProgress
from expost.models.descent.training_order import TrainingOrder
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Full, Phase
from expost.noise import SeededBits

from .conftest import Small

DELTA = Fraction(1, 10**6)
ACCURACY = ScoreRule.of(Target(Measure.ACCURACY, Fraction(9, 10), Fraction(1, 10)))
PHASES = tuple(Phase(4, Fraction(noise)) for noise in (400, 360, 330, 300, 270, 250, 220, 200))


class Constant:
    """A model of one score, whatever it is trained on."""

    weights = 4

    def __init__(self, excess: float, rows: int = 10_000) -> None:
        self._excess, self._rows = excess, rows

    def measured_score(self, rule: ScoreRule, scale: MeasureScale) -> Sealed:
        numbers = [round(scale.score * self._excess * self._rows), scale.count * self._rows]
        return Sealed(np.array(numbers, np.int64), scale.sensitivity)


def judge(model: Constant, seed: int, phases: tuple[Phase, ...] = PHASES) -> tuple[StopVerdict, MeasuredTest]:
    """Test a model after each phase until the test ends."""
    test = MeasuredTest(
        ACCURACY, phases, failure_probability=Fraction(1, 10), expected_rows=10_000, size=4, bits=SeededBits(seed)
    )
    for phase in range(len(phases)):
        verdict = test.judge_model(model, phase)
        if verdict.final:
            break
    return verdict, test


# What it costs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 100), Fraction(1, 2), Fraction(92, 100), Fraction(1)])
@pytest.mark.parametrize("phase", [*PHASES[:2], Phase(1, Fraction(1, 3)), Phase(7, Fraction(12_345))])
def test_steps_and_measurement_spend_no_more_than_their_phase(phase: Phase, share: Fraction) -> None:
    steps, noise = phase.divide(share)

    spent = Fraction(0) if steps is None else steps.steps / steps.noise_multiplier**2
    spent += Fraction(0) if noise is None else 1 / noise**2
    whole = phase.steps / phase.noise_multiplier**2
    assert whole * Fraction(99, 100) < spent <= whole
    assert (steps is None) == (share == 0) and (noise is None) == (share == 1)


@pytest.mark.parametrize(
    ("measure", "level"),
    [(Measure.ACCURACY, "0.9"), (Measure.RMSE, "0.2"), (Measure.R2, "0.8")],
    ids=lambda part: str(part),
)
def test_one_row_moves_score_and_count_by_the_sensitivity_at_most(measure: Measure, level: str, small: Small) -> None:
    rng = np.random.default_rng(3)
    numeric = measure is not Measure.ACCURACY
    rule = replace(
        ScoreRule.of(Target(measure, Fraction(level), Fraction(1, 10)), measured=True),
        centre=0.99 if measure is Measure.R2 else 0.0,  # far from most targets
    )
    scale = MeasureScale.of(rule)
    problem = small.problem
    targets = small.labels.astype(np.float64) * 2 - 1 if numeric else small.labels
    if numeric:
        problem = type(problem)(problem.grid, Squared(), problem.clip, problem.rule)
    weights = 100 * rng.normal(size=(1, problem.grid.columns))

    def measured(rows: slice) -> np.ndarray:
        learner = problem.table(small.features[rows], targets[rows]).learner(slice(None), None)
        assert isinstance(learner, LinearLearner)
        learner._descent.weights[:] = learner._descent._average[:] = weights
        return unseal(learner.measured_score(rule, scale)).astype(np.float64)

    moves = [np.linalg.norm(measured(slice(count + 1)) - measured(slice(count))) for count in range(200)]
    assert 0.8 * float(scale.sensitivity.amount) < max(moves) <= float(scale.sensitivity.amount)


def test_a_larger_cap_changes_no_earlier_price() -> None:
    terms: dict[str, Any] = {"rows": 30_000, "steps": 4, "delta": DELTA, "accountant": "auto"}
    lists = [plan_measured_ladder(Full(30_000), cap=Fraction(cap), **terms) for cap in ("0.1", "0.5", "2", "1000")]

    for (less, cheap), (more, dear) in pairwise(lists):
        assert less.phases == more.phases[: len(less.phases)]
        assert cheap.epsilons == dear.epsilons[: len(cheap.epsilons)] and len(cheap.epsilons) < len(dear.epsilons)
    assert lists[0][1].cap.epsilon <= Fraction(1, 10)


def test_stops_share_delta_as_far_as_the_worst_rule_allows() -> None:
    _, prices = plan_measured_ladder(
        Full(30_000), rows=30_000, steps=4, cap=Fraction(50), delta=DELTA, accountant="auto"
    )

    assert 1.5 < sum(prices.shares) / DELTA < 4  # stops a tenth apart overlap
    usual = max(range(len(prices.shares)), key=prices.shares.__getitem__)
    assert 0.05 < prices.epsilons[usual] < 0.3  # around a parameter of 1,000 over the rows
    assert min(prices.shares) > max(prices.shares) / 60


def test_a_small_cap_has_levels_below_it_and_a_tiny_one_is_refused() -> None:
    terms: dict[str, Any] = {"rows": 200, "steps": 4, "delta": DELTA, "accountant": "auto"}

    assert len(plan_measured_ladder(Full(200), cap=Fraction(1, 100), **terms)[1].epsilons) > 3
    with pytest.raises(BudgetExceeded, match="Raise max_epsilon"):
        plan_measured_ladder(Full(200), cap=Fraction(1, 10**9), **terms)


# What it promises -----------------------------------------------------------------------------------------------------


def test_a_model_that_just_misses_is_seldom_accepted() -> None:
    runs = 400
    accepted = sum(judge(Constant(-1e-4), seed)[0].passed for seed in range(runs))

    # 40 are allowed. 73 or more would have a probability below 1e-6.
    assert accepted < 73


def test_margins_of_nothing_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expost.models.descent.measured_test.ndtri", lambda share: 0.0)
    accepted = sum(judge(Constant(-1e-4), seed)[0].passed for seed in range(200))

    assert accepted > 60


@pytest.mark.parametrize("excess", [-0.05, -0.01])
def test_a_certified_score_is_seldom_above_the_true_one(excess: float) -> None:
    verdicts = [judge(Constant(excess), seed)[0] for seed in range(200)]
    certified = [verdict.certified for verdict in verdicts if verdict.ended]

    assert len(certified) > 100 and all(score is not None for score in certified)
    true = 0.9 + excess / ACCURACY.span
    # 20 of 200 are allowed; 44 or more would have a probability below 1e-6.
    assert sum(score > true for score in certified if score is not None) < 44
    assert np.median([score for score in certified if score is not None]) > true - 0.08


def test_a_model_far_above_the_score_passes_before_the_schedule_ends() -> None:
    verdict, test = judge(Constant(1.9), 1)

    assert verdict.passed and len(test._points) < len(PHASES)


# When it ends ---------------------------------------------------------------------------------------------------------


def line(points: list[tuple[float, float]], deviation: float = 0.02) -> LearningCurve:
    return LearningCurve([CurvePoint(place, surplus, deviation) for place, surplus in points])


def test_a_flat_curve_below_the_target_is_hopeless_and_a_steep_one_is_not() -> None:
    flat = [(0.1 * step, -1.0) for step in range(12)]
    steep = [(0.1 * step, -1.0 + 0.1 * step) for step in range(12)]

    assert line(flat).hopeless and not line(steep).hopeless
    assert not line([(place, -0.01) for place, _ in flat]).hopeless  # too near to tell
    assert line(steep).slope == pytest.approx(1.0, abs=0.1)


def test_labels_that_mean_nothing_do_not_use_up_the_cap() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(8000, 3)), rng.integers(0, 2, 8000)
    model = SGDClassifier(
        score=("accuracy", 0.9), classes=[0, 1], rows=8000, feature_bound=3.5, max_epsilon=4.0, simulation_seed=1
    )

    with pytest.raises(TargetNotMet, match=r"out of reach.*the model reaches accuracy 0") as raised:
        model.fit(features, labels)

    receipt = raised.value.receipt
    assert receipt.epsilon < 0.3 < float(receipt.promise.epsilon)
    assert 0.3 < receipt.achieved < 0.55
    assert raised.value.release.value.coefficients.shape == (1, 3)


def test_a_cap_that_is_too_small_ends_with_the_score_that_holds(small: Small) -> None:
    model = SGDClassifier(
        score=("accuracy", 0.9), classes=[0, 1], rows=4000, feature_bound=3.0, max_epsilon=0.03, simulation_seed=1
    )

    with pytest.raises(TargetNotMet, match="the model reaches") as raised:
        model.fit(small.features, small.labels)

    assert 0 <= raised.value.receipt.achieved < 0.9


def test_a_regression_reaches_an_rmse_on_all_rows() -> None:
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (8000, 2))
    targets = features @ [1.0, -0.5]
    model = SGDRegressor(score=("rmse", 0.5), rows=8000, target_bounds=2, bounds=[(-1, 1)] * 2, simulation_seed=1)

    model.fit(features, targets)

    assert model.receipt_.outcome.value == "tested" and model.receipt_.achieved == 0.5
    assert np.sqrt(np.mean((model.predict(features) - targets) ** 2)) < 0.5


def test_rows_are_held_out_only_where_that_is_asked_or_batches_are_sampled() -> None:
    terms: dict[str, Any] = {"rows": 60_000, "delta": 1e-6, "score": ("accuracy", 0.95)}

    assert TrainingOrder(**terms).measures_all_rows
    assert TrainingOrder(**terms, width=10**6).draw_from(Fraction(0)) == Full(60_000)
    others: tuple[dict[str, Any], ...] = (
        {"validation_share": 0.1},
        {"phases": 3},
        {"batches": "poisson"},
        {"noise_multiplier": 20},
        {"public_test": True},
        {"falling": False},
    )
    assert not any(TrainingOrder(**terms, **other).measures_all_rows for other in others)


# Laws of prices -------------------------------------------------------------------------------------------------------


def spent(small: Small, seed: int, **terms: Any) -> float:
    usual: dict[str, Any] = {"score": ("accuracy", 0.8), "max_epsilon": 1.0, "delta": 1e-6}
    model = SGDClassifier(classes=[0, 1], rows=4000, feature_bound=3.0, simulation_seed=seed, **usual | terms)
    try:
        return float(model.fit(small.features, small.labels).receipt_.epsilon)
    except TargetNotMet as missed:
        return float(missed.receipt.epsilon)


@pytest.mark.parametrize("seed", range(3))
def test_a_larger_cap_never_costs_more(seed: int, small: Small) -> None:
    bills = [spent(small, seed, max_epsilon=cap) for cap in (1.0, 2.0, 5.0)]

    assert bills[0] == bills[1] == bills[2] < 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("score", [("accuracy", 0.75), ("accuracy", 0.8), ("accuracy", 0.85)]),
        ("failure_probability", [0.3, 0.1, 0.01]),
        ("delta", [1e-4, 1e-6, 1e-8]),
    ],
)
def test_asking_for_less_costs_less(name: str, values: list[Any], small: Small) -> None:
    means = [np.mean([spent(small, seed, **{name: value}) for seed in range(6)]) for value in values]

    assert means[0] < means[1] * 1.02 and means[1] < means[2] * 1.02 and means[0] < means[2]


# How it continues -----------------------------------------------------------------------------------------------------


def measured_plan(small: Small) -> TrainingPlan:
    order = TrainingOrder(rows=4000, delta=DELTA, score=("accuracy", 0.8), max_epsilon=1.0)
    course = order.plan_course()
    return TrainingPlan.along(
        course,
        question="train a small model",
        table=lambda data: small.problem.table(*data),
        rule=ScoreRule.of(course.target),  # type: ignore[arg-type]
        terms={},
    )


def test_an_interrupted_training_continues_with_what_it_has_measured(small: Small) -> None:
    saved: list[TrainingProgress] = []
    plan = measured_plan(small)
    first = TrainingPlan(**{**vars(plan), "save": saved.append})
    whole = first.climb(first.measure(small.data), SeededBits(1))
    assert whole.receipt.outcome.met
    middle = saved[len(saved) // 2]

    again = TrainingPlan(**{**vars(plan), "start": middle})
    release = again.climb(again.measure(small.data), SeededBits(2))

    assert release.receipt.outcome.met and release.receipt.rung > middle.begun - 1
    done = TrainingPlan(**{**vars(plan), "start": saved[-1]})
    last = done.climb(done.measure(small.data), SeededBits(3))
    assert last.receipt.rung == whole.receipt.rung  # it had passed: nothing is measured again
    assert last.value.coefficients == pytest.approx(whole.value.coefficients)


def test_the_state_of_a_test_survives_a_checkpoint() -> None:
    _, test = judge(Constant(0.2), 5, PHASES[:6])
    other = MeasuredTest(
        ACCURACY, PHASES[:6], failure_probability=Fraction(1, 10), expected_rows=10_000, size=4, bits=SeededBits(0)
    )
    other.restore_state(test.copy_state())

    for name, array in test.copy_state().items():
        np.testing.assert_array_equal(array, other.copy_state()[name])
    assert len(other._points) == len(test._points) > 0
