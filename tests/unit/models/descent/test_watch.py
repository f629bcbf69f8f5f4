"""Numbers that are watched are bounded, private and about right."""

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.audit import AuditEntry, AuditProfile, AuditVerdict, audit_table
from expost.audit.entries_sgd import watched_pair
from expost.core import InvalidRequest, Norm, Sealed, Sensitivity, unseal
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearLearner, LinearProblem
from expost.models.descent.score_head import Huber, Logistic, Softmax, Squared, count_metrics, row_numbers
from expost.models.descent.training_rows import GatheredRows
from expost.models.descent.training_schedule import Full, Phase, Poisson
from expost.models.descent.training_watch import RunningReading, Watch, Watching, WatchReading, WatchTally
from expost.noise import SeededBits

HEADS = [Logistic(), Softmax(3), Squared(), Huber(width=0.5)]


def targets_of(head: Any, rows: int, rng: np.random.Generator) -> np.ndarray:
    classes = {"logistic": 2, "softmax": 3}.get(head.name)
    return rng.uniform(-1, 1, rows) if classes is None else rng.integers(-1, classes, rows)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_no_row_counts_more_than_one_whatever_its_scores(head: Any) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(head.outputs, 400)) * np.geomspace(1e-3, 1e300, 400)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = row_numbers(head, scores, targets_of(head, 400, rng))

    assert np.abs(numbers).max() <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_number_that_is_none_is_cut_to_the_height(value: float) -> None:
    tally = WatchTally(height=7, count=2)

    tally.add(np.array([[value], [value]]))

    assert np.abs(unseal(tally.sealed())).max() <= 7


@pytest.mark.parametrize(
    ("head", "solver"),
    [
        (head, solver)
        for head in HEADS
        for solver in ("gradient", "newton")
        if (head.name, solver) != ("softmax", "newton")
    ],
    ids=lambda part: getattr(part, "name", part),
)
def test_one_row_moves_gradient_and_numbers_within_the_joined_sensitivity(head: Any, solver: str) -> None:
    rng = np.random.default_rng(2)
    rows, targets = rng.normal(size=(60, 2)) * 3, targets_of(head, 60, rng)
    watch, phase = Watch(), Phase(5, Fraction(3))

    def released(count: int) -> tuple[np.ndarray, float]:
        problem = LinearProblem(FeatureGrid(2, 1.0), head, clip=0.4, rule=DescentRule(), solver=solver)
        learner = problem.table(rows[:count], targets[:count]).learner(slice(None), None)
        gradient = learner.open(phase, 60.0)
        learner.start_watch(watch.height(gradient))
        both = unseal(learner.measure(slice(None))), unseal(learner.read_watch())
        return np.concatenate(both).astype(float), float(watch.joined(gradient, learner.watchable[0]).amount)

    totals = {count: released(count) for count in range(20, 61)}
    moved = [float(np.linalg.norm(totals[count + 1][0] - totals[count][0])) for count in range(20, 60)]

    assert max(moved) <= totals[60][1]
    assert max(moved) > 0.5 * totals[60][1]  # the bound is not idle


def test_the_joined_sensitivity_is_the_root_of_the_sum_of_squares_rounded_up() -> None:
    watch = Watch(share=Fraction(1, 2))
    gradient = Sensitivity(10, Norm.L2)

    assert watch.height(gradient) == 5
    assert watch.joined(gradient, 2).amount == 13  # sqrt(100 + 2 * 25) = 12.2
    assert watch.factor(2) >= Fraction(122474, 100000)


def test_a_row_that_counts_double_would_be_caught() -> None:
    """The planted fault: a tally that forgets to cut moves further than the joined sensitivity allows."""
    watch, gradient = Watch(share=Fraction(1)), Sensitivity(100, Norm.L2)
    cut, uncut = WatchTally(watch.height(gradient), 2), WatchTally(3 * watch.height(gradient), 2)
    for tally in (cut, uncut):
        tally.add(np.ones((2, 1)))
    joined = float(watch.joined(gradient, 2).amount)

    assert np.hypot(100, np.linalg.norm(unseal(cut.sealed()))) <= joined
    assert np.hypot(100, np.linalg.norm(unseal(uncut.sealed()))) > joined


class StillLearner:
    """A learner whose batches always count the same."""

    size, rows = 1, 1000
    watchable = (2, float(np.log(2)))

    def __init__(self) -> None:
        self.opened: list[Phase] = []

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        self.opened.append(phase)
        return Sensitivity(10_000, Norm.L2)

    def start_watch(self, height: int) -> None:
        self.height = height

    def read_watch(self) -> Sealed:
        return Sealed(np.array([800, 500]) * self.height, Sensitivity(self.height * 2, Norm.L2))


@pytest.mark.parametrize("wrong", [0.9, 1.0, 1.1])
def test_numbers_have_the_noise_of_the_joined_vector_and_ten_percent_more_or_less_is_seen(wrong: float) -> None:
    watching = Watching(Watch(), StillLearner(), Full(1000), SeededBits(3))  # type: ignore[arg-type]
    joined = watching.open(Phase(4000, Fraction(7)))
    stream = watching._stream
    assert stream is not None
    draws = np.stack([stream.release(watching._learner.read_watch()) for _ in range(4000)])[:, 0] - 800 * 1000

    expected = 7 * float(joined.amount) * wrong
    inside = abs(draws.std() / expected - 1) < 0.05
    assert inside == (wrong == 1.0)


def test_a_watched_phase_tells_its_learner_of_the_wider_noise() -> None:
    learner = StillLearner()

    Watching(Watch(), learner, Full(1000), SeededBits(3)).open(Phase(4, Fraction(7)))  # type: ignore[arg-type]

    assert learner.opened[0].noise_multiplier >= 7 * Fraction(10099, 10000)


@pytest.mark.parametrize("batches", [Full(1000), Poisson(Fraction(1, 2), 2000)], ids=["full", "poisson"])
def test_a_reading_is_within_its_own_deviation_as_often_as_it_says(batches: Any) -> None:
    inside = 0
    for seed in range(60):
        watching = Watching(Watch(), StillLearner(), batches, SeededBits(seed))  # type: ignore[arg-type]
        watching.open(Phase(10, Fraction(5)))
        for _ in range(10):
            watching.release_metrics()
        reading = watching.reading
        assert reading is not None and reading.loss is not None
        inside += abs(reading.score - 0.9) <= 2 * reading.deviation
    assert inside >= 52  # 95 % of 60 is 57; fewer than 52 has a chance below 0.5 %


def test_late_steps_count_more_than_early_ones() -> None:
    running = RunningReading(zero_loss=1.0)
    for mean in [0.0] * 10 + [1.0] * 10:
        running.feed_reading([mean * 100, 0.0], rows=100.0, noise=0.1)

    assert running.reading is not None and running.reading.score > 0.9


def test_an_rmse_is_read_in_the_units_of_the_target() -> None:
    running = RunningReading(zero_loss=None, scale=10.0)
    running.feed_reading([100 * (1 - 2 * 0.25**2 / 4)], rows=100.0, noise=1e-3)

    assert running.reading is not None
    assert (running.reading.measure, round(running.reading.score, 6)) == ("rmse", 2.5)


def test_a_reading_fits_a_line() -> None:
    assert str(WatchReading("rmse", 2.5, 0.2)) == "rmse 2.50 ± 0.40"


def test_a_classifier_that_knows_nothing_loses_as_much_as_it_says() -> None:
    assert row_numbers(Softmax(3), np.zeros((3, 1)), np.array([1]))[1, 0] == pytest.approx(0)
    assert count_metrics(Logistic())[1] == pytest.approx(np.log(2))


def test_a_learner_that_is_not_watched_counts_nothing() -> None:
    grid = FeatureGrid(2)
    problem = LinearProblem(grid, Logistic(), clip=1.0, rule=DescentRule())
    learner = LinearLearner(problem, GatheredRows(grid.encode_rows(np.eye(2)), np.array([0, 1])))
    learner.open(Phase(1, Fraction(3)), 2.0)
    learner.measure(slice(None))

    assert learner._make_watcher() is None


def verdict(pair: Any) -> AuditVerdict:
    entry = AuditEntry("expost.models.descent.training_watch.Watching", pairs=lambda: (pair,))
    (row,) = audit_table(AuditProfile(runs=400, slow_runs=400), entries=[entry])
    return row.verdict


@pytest.mark.parametrize(("gradient", "number"), [(0.0, -1.0), (-1.0, -1.0)])
def test_a_canary_is_not_seen_beyond_the_claim(gradient: float, number: float) -> None:
    assert verdict(watched_pair("watched", gradient=gradient, number=number)) is not AuditVerdict.VIOLATED


def test_numbers_that_count_ten_times_the_height_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WatchTally.add
    monkeypatch.setattr(WatchTally, "add", lambda self, values: [plain(self, values) for _ in range(10)])

    assert verdict(watched_pair("watched", gradient=0.0, number=-1.0)) is AuditVerdict.VIOLATED


def test_noise_that_leaves_no_room_for_the_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Watch.joined
    monkeypatch.setattr(
        Watch, "joined", lambda self, gradient, count: Sensitivity(right(self, gradient, count).amount / 3, Norm.L2)
    )

    with pytest.raises(InvalidRequest, match="within the declared sensitivity"):
        verdict(watched_pair("watched", gradient=-1.0, number=-1.0))


@pytest.mark.parametrize("solver", ["gradient", "newton"])
def test_a_table_without_rows_is_watched_like_any_other(solver: str) -> None:
    """An error here would tell an empty batch from one with a row."""
    problem = LinearProblem(FeatureGrid(2), Logistic(), clip=0.4, rule=DescentRule(), solver=solver)
    learner = problem.table(np.zeros((0, 2)), np.zeros(0, np.intp)).learner(slice(None), None)
    watching = Watching(Watch(), learner, Full(10), SeededBits(1))
    watching.open(Phase(2, Fraction(3)))
    learner.measure(slice(None))
    watching.release_metrics()

    assert watching.reading is not None


def test_sums_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(WatchTally(7, 2))
