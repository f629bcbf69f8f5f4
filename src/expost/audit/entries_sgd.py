"""Attacks on private gradient descent: a canary row whose gradient is as large as clipping allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Outcomes, Pair, Sampler, repeat
from expost.audit.planted_fault import GAUSSIAN_STREAM, REDUCED
from expost.audit.privacy_claim import ExPost
from expost.audit.replay_views import stream_pair
from expost.core import ApproxGuarantee, Ladder, Measure, PureGuarantee, Target
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearProblem
from expost.models.descent.score_head import Logistic, Squared
from expost.models.descent.stopping_test import ScoreRule, ValidationTest
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Batches, Disjoint, Full, Phase, Poisson, Schedule
from expost.models.descent.training_watch import Watch, Watching
from expost.models.descent.tuning_plan import TuningPlan, TuningSetting, doubling_ladder
from expost.noise import ReducedAboveThreshold
from expost.noise.bits import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["canary_pair", "entries", "newton_vector_pair", "step_pair", "watched_pair"]

_FEW = 150  # of whole trainings in the quick profile: the steps that they are made of run in batches
_RUNS = 400  # a training takes milliseconds, however small
_DELTA = Fraction(1, 100)  # large, so that so few runs can contradict it
_PLAIN = np.array([[0.01], [0.01]])  # two rows that hardly pull
_CANARY = np.array([[1.0]])  # one that pulls as hard as it can


def entries() -> Iterable[AuditEntry]:
    """List whole trainings, their steps, and the private test that stops them."""
    return (
        AuditEntry(
            "expost.models.descent.trainer.Trainer",
            _training_pairs,
            also=("expost.models.descent.stopping_price.PriceList",),
            noise=GAUSSIAN_STREAM,
        ),
        AuditEntry(
            "expost.models.descent.stopping_test.ValidationTest",
            _validation_pairs,
            also=("expost.noise.rising_threshold.RenewedThreshold",),
            noise=REDUCED,
        ),
        AuditEntry("expost.models.descent.linear_learner.NewtonLearner", _newton_pairs, noise=GAUSSIAN_STREAM),
        AuditEntry("expost.models.descent.tuning_plan.TuningPlan", _tuning_pairs, noise=GAUSSIAN_STREAM),
        AuditEntry(
            "expost.models.descent.training_watch.Watching",
            _watched_step_pairs,
            also=("expost.models.descent.training_watch.Watch",),
            noise=GAUSSIAN_STREAM,
        ),
    )


def canary_pair(
    name: str,
    batches: Batches,
    *,
    steps: int,
    noise: Fraction,
    phases: int = 1,
    others: int = 2,
    runs: int = _RUNS,
    solver: str = "gradient",
) -> Pair:
    """Build a pair of trainings with and without the canary among ``others``; the outcome is the one weight, which it pulls up."""
    request, claim = _plan_training(batches, steps=steps, noise=noise, phases=phases, solver=solver)
    rows = _PLAIN[:others]

    def sample_weights(features: NDArray[np.float64]) -> Sampler:
        table = request.measure((features, _targets(features, others)))
        return repeat(lambda bits: float(request.climb(table, bits).value.coefficients[0, 0]))

    left, right = sample_weights(np.vstack([rows, _CANARY])), sample_weights(rows)
    return Pair(name, claim, left, right, slow=True, most_runs=runs)


def _plan_training(
    batches: Batches, *, steps: int, noise: Fraction, phases: int = 1, solver: str = "gradient"
) -> tuple[TrainingPlan, ApproxGuarantee]:
    """Plan the training of one weight, and state what it claims."""
    schedule = Schedule(batches, (Phase(steps, noise),) * phases)
    prices = schedule.prices(_DELTA, accountant="auto" if isinstance(batches, Full | Disjoint) else "rdp")
    rule = DescentRule(learning_rate=1.0, momentum=0.0, averaging=0.0)
    problem = LinearProblem(FeatureGrid(1, intercept=False), Squared(), clip=0.1, rule=rule, solver=solver)
    request = TrainingPlan(question="audit", schedule=schedule, prices=prices, table=lambda data: problem.table(*data))
    claim = prices.cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    return request, claim


def _targets(features: NDArray[np.float64], others: int = len(_PLAIN)) -> NDArray[np.float64]:
    """Set the target of the canary, the row after the others, to 1 and theirs to 0."""
    return np.append(np.zeros(others), 1.0)[: len(features)]


def step_pair(name: str, *, noise: Fraction = Fraction(1), solver: str = "gradient") -> Pair:
    """Build a pair of what one step on all rows releases, with and without the canary, many runs at once."""
    request, claim = _plan_training(Full(4), steps=1, noise=noise, solver=solver)

    def train_on(features: NDArray[np.float64]) -> Callable[[BitSource], Any]:
        table = request.measure((features, _targets(features)))
        return lambda bits: request.climb(table, bits)

    return stream_pair(name, claim, train_on(np.vstack([_PLAIN, _CANARY])), train_on(_PLAIN))


def _one_step_claim(noise: Fraction) -> ApproxGuarantee:
    """Price one step on all rows."""
    claim = Schedule(Full(4), (Phase(1, noise),)).prices(_DELTA).cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    return claim


def _training_pairs() -> Sequence[Pair]:
    few = partial(canary_pair, runs=_FEW)
    return (
        step_pair("what one step releases"),
        few("one step on all rows", Full(4), steps=1, noise=Fraction(1)),
        few("four steps on all rows", Full(4), steps=4, noise=Fraction(2)),
        few("sampled steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1)),
        few("one pass of disjoint batches", Disjoint(3, 4), steps=3, noise=Fraction(1)),
        few("two phases", Full(4), steps=1, noise=Fraction(1), phases=2),
        few("alone in the table", Poisson(Fraction(1, 2), 4), steps=1, noise=Fraction(1), others=0),
    )


def newton_vector_pair(name: str, *, gradient: float, curvature: float, noise: Fraction = Fraction(1)) -> Pair:
    """Build a pair of one Newton step, projected on a direction: the weights of the gradient and of the curvature."""
    problem = LinearProblem(
        FeatureGrid(1, intercept=False), Squared(), clip=0.1, rule=DescentRule(1.0), solver="newton"
    )

    def sample_steps(features: NDArray[np.float64]) -> Sampler:
        table = problem.table(features, _targets(features))

        def run_step(bits: BitSource) -> float:
            learner = table.learner(slice(None), None)
            stream = GaussianStream(noise, learner.open(Phase(1, noise), 4.0), size=learner.size, bits=bits)
            noisy = stream.release(learner.measure(slice(None)))
            return float(noisy @ [gradient, curvature]) / float(stream.sensitivity.amount)

        return repeat(run_step)

    left, right = sample_steps(np.vstack([_PLAIN, _CANARY])), sample_steps(_PLAIN)
    return Pair(name, _one_step_claim(noise), left, right, slow=True, most_runs=_RUNS)


def _newton_pairs() -> Sequence[Pair]:
    few = partial(canary_pair, runs=_FEW, solver="newton")
    return (
        step_pair("what one Newton step releases", solver="newton"),
        few("one Newton step on all rows", Full(4), steps=1, noise=Fraction(1)),
        few("four Newton steps on all rows", Full(4), steps=4, noise=Fraction(2)),
        few("sampled Newton steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1)),
    )


def watched_pair(name: str, *, gradient: float, number: float, noise: Fraction = Fraction(1)) -> Pair:
    """Build a pair of one watched step, projected on a direction: the weights of the gradient and of the count of correct rows."""
    problem = LinearProblem(FeatureGrid(1, intercept=False), Logistic(), clip=0.1, rule=DescentRule(1.0))

    def sample_steps(features: NDArray[np.float64]) -> Sampler:
        table = problem.table(features, _targets(features).astype(np.intp))

        def run_step(bits: BitSource) -> float:
            learner = table.learner(slice(None), None)
            watching = Watching(Watch(share=Fraction(1)), learner, Full(4), bits)
            phase = Phase(1, noise)
            joined = watching.open(phase)
            step = GaussianStream(noise, joined, size=learner.size, bits=bits).release(learner.measure(slice(None)))
            watching.release_metrics()
            return float(gradient * step[0] + number * watching.released[0]) / float(joined.amount)

        return repeat(run_step)

    left, right = sample_steps(np.vstack([_PLAIN, _CANARY])), sample_steps(_PLAIN)
    return Pair(name, _one_step_claim(noise), left, right, slow=True, most_runs=_RUNS)


def _watched_step_pairs() -> Sequence[Pair]:
    """Attack the gradient and the count of one watched step together; at weight 0 the canary is counted as correct."""
    problem = LinearProblem(FeatureGrid(1, intercept=False), Logistic(), clip=0.1, rule=DescentRule(1.0))

    def watch_step(features: NDArray[np.float64]) -> Callable[[BitSource], Any]:
        labels = np.zeros(len(features), np.intp)
        learner = problem.table(features, labels).learner(slice(None), None)

        def run_step(bits: BitSource) -> None:
            watching = Watching(Watch(share=Fraction(1)), learner, Full(4), bits)
            joined = watching.open(Phase(1, Fraction(1)))
            GaussianStream(Fraction(1), joined, size=learner.size, bits=bits).release(learner.measure(slice(None)))
            watching.release_metrics()

        return run_step

    left, right = watch_step(np.vstack([_PLAIN, _CANARY])), watch_step(_PLAIN)
    return (
        stream_pair("what one watched step releases", _one_step_claim(Fraction(1)), left, right),
        watched_pair("a released gradient and count", gradient=-1.0, number=-1.0),
    )


def _validation_pairs() -> Sequence[Pair]:
    rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(2, 3), Fraction(1, 5)))

    def build_pair(name: str, ladder: Ladder, with_row: tuple[int, int], without: tuple[int, int]) -> Pair:
        threshold = ValidationTest(rule, ladder, failure_probability=Fraction(1, 5)).threshold
        share = threshold.threshold_share if isinstance(threshold, ReducedAboveThreshold) else 1
        bills = np.array([*map(float, ladder), float(ladder[1] * share)])  # -1, not stopped, is the last entry

        def sample_sessions(queries: tuple[int, int], runs: int, bits: BitSource) -> Outcomes:
            stopped = threshold.simulate(queries, runs=runs, bits=bits)
            return Outcomes.of(np.minimum(stopped, 3), bills[stopped[:, 0]])

        left, right = partial(sample_sessions, with_row), partial(sample_sessions, without)
        return Pair(name, ExPost(PureGuarantee(ladder.cap)), left, right)

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
    rule = DescentRule(learning_rate=1.0, momentum=0.0, averaging=0.0)
    problems = [LinearProblem(FeatureGrid(1, intercept=False), Logistic(), clip=clip, rule=rule) for clip in (0.1, 1.0)]
    target = Target(Measure.ACCURACY, Fraction(1, 2), Fraction(1, 2))
    request = TuningPlan(
        question="audit",
        settings=tuple(
            TuningSetting(f"clip {problem.clip}", lambda data, problem=problem: problem.table(*data), Full(4), 1)  # type: ignore[misc]
            for problem in problems
        ),
        ladder=doubling_ladder(Fraction(4), _DELTA, levels=2),
        target=target,
        rule=ScoreRule.of(target),
        validation_share=Fraction(1, 2),
    )
    claim = request.worst_case.promise()
    assert isinstance(claim, ApproxGuarantee)
    with_canary = np.vstack([_PLAIN, _CANARY])

    def sample_tunings(features: NDArray[np.float64]) -> Sampler:
        tables = request.measure((features, np.array([0, 1, 1][: len(features)])))

        def run_tuning(bits: BitSource) -> float:
            found = request.climb(tables, bits).value
            return -9.0 if found is None else float(np.clip(found.coefficients[0, 0], -8, 8))

        return repeat(run_tuning)

    def train_once(features: NDArray[np.float64]) -> Callable[[BitSource], Any]:
        table = request.measure((features, np.array([0, 1, 1][: len(features)])))[0]
        every = np.arange(len(features))
        return lambda bits: request._train_setting(table.learner(every, every), 0, level, bits)

    level = request.ladder.levels[-1]
    attempt = ApproxGuarantee(level, request.ladder.delta)
    return (
        stream_pair("what one training releases", attempt, train_once(with_canary), train_once(_PLAIN)),
        Pair(
            "one of two settings",
            claim,
            sample_tunings(with_canary),
            sample_tunings(_PLAIN),
            slow=True,
            most_runs=_RUNS,
        ),
    )
