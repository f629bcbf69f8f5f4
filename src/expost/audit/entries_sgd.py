"""Attacks on private gradient descent: a canary row whose gradient is as large as clipping allows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import GAUSSIAN_STREAM, REDUCED
from expost.audit.privacy_claim import ExPost
from expost.audit.replay_views import stream_pair
from expost.core import ApproxGuarantee, Guarantee, Ladder, Measure, PureGuarantee, Target
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearProblem
from expost.models.descent.measured_test import MeasuredTest
from expost.models.descent.score_head import Logistic, Squared
from expost.models.descent.stopping_test import ScoreRule, StopVerdict, ValidationTest
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Batches, Disjoint, Full, Phase, Poisson, Schedule
from expost.models.descent.training_watch import Watch, Watching
from expost.models.descent.tuning_plan import TuningPlan, TuningSetting, doubling_ladder
from expost.noise import ReducedAboveThreshold
from expost.noise.bits import BitSource, SeededBits
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["FEW", "RUNS", "canary_pair", "entries", "plan_training", "watched_pair"]

Floats = NDArray[np.float64]

FEW = 150  # of whole trainings in the quick profile: the steps that they are made of run in batches
RUNS = 400  # a training takes milliseconds, however small
_DELTA = Fraction(1, 100)  # large, so that so few runs can contradict it
_PLAIN = np.array([[0.01], [0.01]])  # two rows that hardly pull
_CANARY = np.array([[1.0]])  # one that pulls as hard as it can
_TABLES = np.vstack([_PLAIN, _CANARY]), _PLAIN
_RULE = DescentRule(learning_rate=1.0, momentum=0.0, averaging=0.0)
_one_weight = partial(LinearProblem, FeatureGrid(1, intercept=False))


def entries() -> Iterable[AuditEntry]:
    """List whole trainings, their steps, and the private test that stops them; PyTorch modules where torch is installed."""
    package = "expost.models.descent."
    gradient_entry = partial(AuditEntry, noise=GAUSSIAN_STREAM)
    modules = [gradient_entry("expost.torch.train", _module_pairs)]
    # What a training that is given up adds is one Laplace release, attacked on its own.
    renewed = ("expost.noise.rising_threshold.RenewedThreshold", package + "plateau_test.PlateauTest")
    return (
        gradient_entry(package + "trainer.Trainer", _training_pairs, also=(package + "stopping_price.PriceList",)),
        gradient_entry(package + "measured_test.MeasuredTest", _measured_pairs),
        AuditEntry(package + "stopping_test.ValidationTest", _validation_pairs, also=renewed, noise=REDUCED),
        gradient_entry(package + "linear_learner.NewtonLearner", _newton_pairs),
        # A search among models of tables is the same ladder, with trainings that are attacked on their own.
        gradient_entry(
            package + "tuning_plan.TuningPlan",
            _tuning_pairs,
            also=("expost.models.tabular.table_search.TableLadder",),
        ),
        gradient_entry(package + "training_watch.Watching", _watched_pairs, also=(package + "training_watch.Watch",)),
        *(modules if importlib.util.find_spec("torch") else ()),
    )


def plan_training(
    batches: Batches, table: Callable[[Any], Any], *, steps: int, noise: Fraction, phases: int = 1
) -> tuple[TrainingPlan, Guarantee]:
    """Plan the training of one weight, and state what it claims."""
    schedule = Schedule(batches, (Phase(steps, noise),) * phases)
    prices = schedule.prices(_DELTA, accountant="auto" if isinstance(batches, Full | Disjoint) else "rdp")
    return TrainingPlan(question="audit", schedule=schedule, prices=prices, table=table), prices.cap.promise()


def _targets(features: Floats, others: int = len(_PLAIN)) -> Floats:
    """Set the target of the canary, the row after the others, to 1 and theirs to 0."""
    return np.append(np.zeros(others), 1.0)[: len(features)]


def canary_pair(
    name: str,
    batches: Batches,
    *,
    steps: int,
    noise: Fraction,
    phases: int = 1,
    others: int = 2,
    runs: int = RUNS,
    solver: str = "gradient",
) -> Pair:
    """Build a pair of trainings with and without the canary among ``others``; the outcome is the one weight, which it pulls up."""
    problem = _one_weight(Squared(), clip=0.1, rule=_RULE, solver=solver)
    request, claim = plan_training(batches, lambda data: problem.table(*data), steps=steps, noise=noise, phases=phases)
    with_canary, without = np.vstack([_PLAIN[:others], _CANARY]), _PLAIN[:others]
    tables = (request.measure((features, _targets(features, others))) for features in (with_canary, without))

    def train_weight(table: Any, bits: BitSource) -> float:
        return float(request.climb(table, bits).value.coefficients[0, 0])

    return Pair.repeated(name, claim, train_weight, *tables, most_runs=runs)


def _step_pair(name: str, solver: str = "gradient") -> Pair:
    """Build a pair of what one step on all rows releases, with and without the canary, many runs at once."""
    problem = _one_weight(Squared(), clip=0.1, rule=_RULE, solver=solver)
    request, claim = plan_training(Full(4), lambda data: problem.table(*data), steps=1, noise=Fraction(1))
    tables = (request.measure((features, _targets(features))) for features in _TABLES)
    left, right = (partial(request.climb, table) for table in tables)
    return stream_pair(name, claim, left, right)


def _training_pairs() -> Sequence[Pair]:
    few = partial(canary_pair, runs=FEW)
    return (
        _step_pair("what one step releases"),
        few("one step on all rows", Full(4), steps=1, noise=Fraction(1)),
        few("four steps on all rows", Full(4), steps=4, noise=Fraction(2)),
        few("sampled steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1)),
        few("one pass of disjoint batches", Disjoint(3, 4), steps=3, noise=Fraction(1)),
        few("two phases", Full(4), steps=1, noise=Fraction(1), phases=2),
        few("alone in the table", Poisson(Fraction(1, 2), 4), steps=1, noise=Fraction(1), others=0),
    )


def _newton_pairs() -> Sequence[Pair]:
    few = partial(canary_pair, runs=FEW, solver="newton")
    return (
        _step_pair("what one Newton step releases", solver="newton"),
        few("one Newton step on all rows", Full(4), steps=1, noise=Fraction(1)),
        few("four Newton steps on all rows", Full(4), steps=4, noise=Fraction(2)),
        few("sampled Newton steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1)),
    )


def _module_pairs() -> Sequence[Pair]:
    # Loaded on demand, because importing torch takes seconds.
    found: Sequence[Pair] = importlib.import_module("expost.audit.torch_canary").pairs()
    return found


def _run_watched_step(learner: Any, bits: BitSource) -> tuple[Any, Watching, float]:
    """Release one watched step; returns the step, the metrics released with it, and the sensitivity of both together."""
    watching = Watching(Watch(share=Fraction(1)), learner, Full(4), bits)
    joined = watching.open(Phase(1, Fraction(1)))
    step = GaussianStream(Fraction(1), joined, size=learner.size, bits=bits).release(learner.measure(slice(None)))
    watching.release_metrics()
    return step, watching, float(joined.amount)


def _one_step_claim() -> Guarantee:
    """Price one step on all rows."""
    return Schedule(Full(4), (Phase(1, Fraction(1)),)).prices(_DELTA).cap.promise()


def watched_pair(name: str, *, gradient: float, number: float) -> Pair:
    """Build a pair of one watched step, projected on a direction: the weights of the gradient and of the count of correct rows."""
    problem = _one_weight(Logistic(), clip=0.1, rule=DescentRule(1.0))

    def run_step(table: Any, bits: BitSource) -> float:
        step, watching, sensitivity = _run_watched_step(table.learner(slice(None), None), bits)
        return float(gradient * step[0] + number * watching.released[0]) / sensitivity

    tables = (problem.table(features, _targets(features).astype(np.intp)) for features in _TABLES)
    return Pair.repeated(name, _one_step_claim(), run_step, *tables, most_runs=RUNS)


def _watched_pairs() -> Sequence[Pair]:
    """Attack the gradient and the count of one watched step together; at weight 0 the canary is counted as correct."""
    problem = _one_weight(Logistic(), clip=0.1, rule=DescentRule(1.0))
    tables = (problem.table(features, np.zeros(len(features), np.intp)) for features in _TABLES)
    left, right = (partial(_run_watched_step, table.learner(slice(None), None)) for table in tables)
    return (
        stream_pair("what one watched step releases", _one_step_claim(), left, right),
        watched_pair("a released gradient and count", gradient=-1.0, number=-1.0),
    )


def _measured_pairs() -> Sequence[Pair]:
    """Attack the score and the count that one phase measures, with a wrong prediction more."""
    rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(2, 3), Fraction(1, 5)))
    problem, phases = _one_weight(Logistic(), clip=0.1, rule=_RULE), (Phase(1, Fraction(1)),)
    share = MeasuredTest(rule, phases, failure_probability=Fraction(1, 5), expected_rows=4, size=1, bits=SeededBits(1))
    noise = phases[0].divide(share.training_share(0))[1]
    assert noise is not None
    claim = Schedule(Full(4), (Phase(1, noise),)).prices(_DELTA).cap.promise()

    def measured(features: Floats, bits: BitSource) -> StopVerdict:
        table = problem.table(features, _targets(features).astype(np.intp))  # at weight 0 class 0 is predicted
        test = MeasuredTest(rule, phases, failure_probability=Fraction(1, 5), expected_rows=4, size=1, bits=bits)
        return test.judge_model(table.learner(slice(None), None), 0)

    left, right = (partial(measured, features) for features in _TABLES)
    return (stream_pair("a wrong prediction is added", claim, left, right),)


def _validation_pairs() -> Sequence[Pair]:
    rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(2, 3), Fraction(1, 5)))

    def build_pair(name: str, ladder: Ladder, with_row: tuple[int, int], without: tuple[int, int]) -> Pair:
        threshold = ValidationTest(rule, ladder, failure_probability=Fraction(1, 5)).threshold
        share = threshold.threshold_share if isinstance(threshold, ReducedAboveThreshold) else 1
        bills = np.array([*map(float, ladder), float(ladder[1] * share)])  # -1, not stopped, is the last entry

        def sample_sessions(queries: tuple[int, int], runs: int, bits: BitSource) -> Outcomes:
            stopped = threshold.simulate(queries, runs=runs, bits=bits)
            return Outcomes.of(np.minimum(stopped, 3), bills[stopped[:, 0]])

        return Pair.of(name, ExPost(PureGuarantee(ladder.cap)), sample_sessions, with_row, without)

    # One more row: correct at the first rung and wrong at the second, the reverse, or wrong at both, where the answers
    # "below" alone may use up the whole bill.
    gained, lost = rule.sum_correct(1, 1), rule.sum_correct(0, 1)
    fast, slow = Ladder.of([1, 2]), Ladder.of([Fraction(200 + rung, 100) for rung in range(4)])
    return (
        build_pair("right, then wrong", fast, (gained, lost), (0, 0)),
        build_pair("wrong, then right", fast, (lost, gained), (0, 0)),
        build_pair("wrong, both times", fast, (0, 0), (-lost, -lost)),
        build_pair("wrong, then right, noise kept", slow, (0, 0), (-lost, -gained)),
        build_pair("wrong, both times, noise kept", slow, (0, 0), (-lost, -lost)),
    )


def _tuning_pairs() -> Sequence[Pair]:
    """Attack the tuning of two settings, one of which hardly reacts to the canary; the outcome is the released weight."""
    target = Target(Measure.ACCURACY, Fraction(1, 2), Fraction(1, 2))
    request = TuningPlan(
        question="audit",
        settings=tuple(
            TuningSetting(f"clip {problem.clip}", lambda data, problem=problem: problem.table(*data), Full(4), 1)  # type: ignore[misc]
            for problem in (_one_weight(Logistic(), clip=clip, rule=_RULE) for clip in (0.1, 1.0))
        ),
        ladder=doubling_ladder(Fraction(4), _DELTA, levels=2),
        target=target,
        rule=ScoreRule.of(target),
        validation_share=Fraction(1, 2),
    )
    level = request.ladder.levels[-1]
    sides = [request.measure((features, np.array([0, 1, 1][: len(features)]))) for features in _TABLES]

    def run_tuning(tables: Any, bits: BitSource) -> float:
        found = request.climb(tables, bits).value
        return -9.0 if found is None else float(np.clip(found.coefficients[0, 0], -8, 8))

    def train_once(tables: Any, rows: int, bits: BitSource) -> Any:
        every = np.arange(rows)
        return request._train_setting(tables[0].learner(every, every), 0, level, bits)

    left, right = (partial(train_once, tables, len(rows)) for tables, rows in zip(sides, _TABLES, strict=True))
    return (
        stream_pair("what one training releases", ApproxGuarantee(level, request.ladder.delta), left, right),
        Pair.repeated("one of two settings", request.worst_case.promise(), run_tuning, *sides, most_runs=RUNS),
    )
