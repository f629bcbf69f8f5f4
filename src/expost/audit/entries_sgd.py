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
    """Whole trainings, and the private test that stops them."""
    return (
        AuditEntry(
            "expost.models.descent.trainer.Trainer",
            _trainings,
            also=("expost.models.descent.stopping_price.PriceList",),
            noise=GAUSSIAN_STREAM,
        ),
        AuditEntry(
            "expost.models.descent.stopping_test.ValidationTest",
            _validations,
            also=("expost.noise.rising_threshold.RenewedThreshold",),
            noise=REDUCED,
        ),
        AuditEntry("expost.models.descent.linear_learner.NewtonLearner", _newton_steps, noise=GAUSSIAN_STREAM),
        AuditEntry("expost.models.descent.tuning_plan.TuningPlan", _tunings, noise=GAUSSIAN_STREAM),
        AuditEntry(
            "expost.models.descent.training_watch.Watching",
            _watched_steps,
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
    """Return a training with and without the canary among ``others``; it pulls the one weight, which is the outcome, up."""
    request, claim = _training(batches, steps=steps, noise=noise, phases=phases, solver=solver)
    without, with_canary, targets = _tables(others)
    return Pair(
        name,
        claim,
        _weights(request, with_canary, targets),
        _weights(request, without, targets),
        slow=True,
        most_runs=runs,
    )


def _training(
    batches: Batches, *, steps: int, noise: Fraction, phases: int = 1, solver: str = "gradient"
) -> tuple[TrainingPlan, ApproxGuarantee]:
    schedule = Schedule(batches, (Phase(steps, noise),) * phases)
    prices = schedule.prices(_DELTA, accountant="auto" if isinstance(batches, Full | Disjoint) else "rdp")
    rule = DescentRule(learning_rate=1.0, momentum=0.0, averaging=0.0)
    problem = LinearProblem(FeatureGrid(1, intercept=False), Squared(), clip=0.1, rule=rule, solver=solver)
    request = TrainingPlan(question="audit", schedule=schedule, prices=prices, table=lambda data: problem.table(*data))
    claim = prices.cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    return request, claim


def _tables(others: int = 2) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    without = _PLAIN[:others]
    return without, np.vstack([without, _CANARY]), np.append(np.zeros(others), 1.0)


def step_pair(name: str, *, noise: Fraction = Fraction(1), solver: str = "gradient") -> Pair:
    """Return what one step on all rows releases, with and without the canary, many runs at once."""
    request, claim = _training(Full(4), steps=1, noise=noise, solver=solver)
    without, with_canary, targets = _tables()

    def trained(features: NDArray[np.float64]) -> Callable[[BitSource], Any]:
        table = request.measure((features, targets[: len(features)]))
        return lambda bits: request.climb(table, bits)

    return stream_pair(name, claim, trained(with_canary), trained(without))


def _weights(request: TrainingPlan, features: NDArray[np.float64], targets: NDArray[np.float64]) -> Sampler:
    table = request.measure((features, targets[: len(features)]))
    return repeat(lambda bits: float(request.climb(table, bits).value.coefficients[0, 0]))


def _trainings() -> Sequence[Pair]:
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
    """Return what one Newton step releases, seen along a direction: the weight of the gradient's entry and of the curvature's."""
    claim = Schedule(Full(4), (Phase(1, noise),)).prices(_DELTA).cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    problem = LinearProblem(
        FeatureGrid(1, intercept=False), Squared(), clip=0.1, rule=DescentRule(1.0), solver="newton"
    )

    def seen(features: NDArray[np.float64]) -> Sampler:
        table = problem.table(features, np.append(np.zeros(len(_PLAIN)), 1.0)[: len(features)])

        def run(bits: BitSource) -> float:
            learner = table.learner(slice(None), None)
            stream = GaussianStream(noise, learner.open(Phase(1, noise), 4.0), size=learner.size, bits=bits)
            noisy = stream.release(learner.measure(slice(None)))
            return float(noisy @ [gradient, curvature]) / float(stream.sensitivity.amount)

        return repeat(run)

    return Pair(name, claim, seen(np.vstack([_PLAIN, _CANARY])), seen(_PLAIN), slow=True, most_runs=_RUNS)


def _newton_steps() -> Sequence[Pair]:
    few = partial(canary_pair, runs=_FEW, solver="newton")
    return (
        step_pair("what one Newton step releases", solver="newton"),
        few("one Newton step on all rows", Full(4), steps=1, noise=Fraction(1)),
        few("four Newton steps on all rows", Full(4), steps=4, noise=Fraction(2)),
        few("sampled Newton steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1)),
    )


def watched_pair(name: str, *, gradient: float, number: float, noise: Fraction = Fraction(1)) -> Pair:
    """Return what one watched step releases, seen along a direction: the weight of the gradient and of the count of right rows."""
    claim = Schedule(Full(4), (Phase(1, noise),)).prices(_DELTA).cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    problem = LinearProblem(FeatureGrid(1, intercept=False), Logistic(), clip=0.1, rule=DescentRule(1.0))

    def seen(features: NDArray[np.float64]) -> Sampler:
        labels = np.append(np.zeros(len(_PLAIN), np.intp), 1)[: len(features)]
        table = problem.table(features, labels)

        def run(bits: BitSource) -> float:
            learner = table.learner(slice(None), None)
            watching = Watching(Watch(share=Fraction(1)), learner, Full(4), bits)
            phase = Phase(1, noise)
            joined = watching.open(phase)
            step = GaussianStream(noise, joined, size=learner.size, bits=bits).release(learner.measure(slice(None)))
            watching.release_metrics()
            return float(gradient * step[0] + number * watching.released[0]) / float(joined.amount)

        return repeat(run)

    return Pair(name, claim, seen(np.vstack([_PLAIN, _CANARY])), seen(_PLAIN), slow=True, most_runs=_RUNS)


def _watched_step() -> Pair:
    """Return the gradient and the count of one watched step, together; at weight 0 the canary is counted as right."""
    claim = Schedule(Full(4), (Phase(1, Fraction(1)),)).prices(_DELTA).cap.promise()
    problem = LinearProblem(FeatureGrid(1, intercept=False), Logistic(), clip=0.1, rule=DescentRule(1.0))

    def stepped(features: NDArray[np.float64]) -> Callable[[BitSource], Any]:
        labels = np.zeros(len(features), np.intp)
        learner = problem.table(features, labels).learner(slice(None), None)

        def step(bits: BitSource) -> None:
            watching = Watching(Watch(share=Fraction(1)), learner, Full(4), bits)
            joined = watching.open(Phase(1, Fraction(1)))
            GaussianStream(Fraction(1), joined, size=learner.size, bits=bits).release(learner.measure(slice(None)))
            watching.release_metrics()

        return step

    return stream_pair("what one watched step releases", claim, stepped(np.vstack([_PLAIN, _CANARY])), stepped(_PLAIN))


def _watched_steps() -> Sequence[Pair]:
    return (
        _watched_step(),
        watched_pair("a released gradient and count", gradient=-1.0, number=-1.0),
    )


def _validations() -> Sequence[Pair]:
    rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(2, 3), Fraction(1, 5)))

    def pair(name: str, ladder: Ladder, with_row: tuple[int, int], without: tuple[int, int]) -> Pair:
        # Sessions of the test's own rule, many at once.
        threshold = ValidationTest(rule, ladder, failure_probability=Fraction(1, 5)).threshold
        share = threshold.threshold_share if isinstance(threshold, ReducedAboveThreshold) else 1
        bills = np.array([*map(float, ladder), float(ladder[1] * share)])  # -1, not stopped, is the last entry

        def asked(queries: tuple[int, int]) -> Sampler:
            def sampler(runs: int, bits: BitSource) -> Outcomes:
                stopped = threshold.simulate(queries, runs=runs, bits=bits)
                return Outcomes.of(np.minimum(stopped, 3), bills[stopped[:, 0]])

            return sampler

        return Pair(name, ExPost(PureGuarantee(ladder.cap)), asked(with_row), asked(without))

    # One more row: right at the first rung and wrong at the second, the other way round, or wrong at both, where answers
    # "below" alone cost what they may.
    gained, lost = rule.counted(1, 1), rule.counted(0, 1)
    fast, slow = Ladder.of([1, 2]), Ladder.of([Fraction(200 + rung, 100) for rung in range(4)])
    return (
        pair("right, then wrong", fast, (gained, lost), (0, 0)),
        pair("wrong, then right", fast, (lost, gained), (0, 0)),
        pair("wrong, both times", fast, (0, 0), (-lost, -lost)),
        pair("wrong, then right, noise kept", slow, (0, 0), (-lost, -gained)),
        pair("wrong, both times, noise kept", slow, (0, 0), (-lost, -lost)),
    )


def _tunings() -> Sequence[Pair]:
    """Return two settings, of which one is deaf to the canary; what leaves is the setting, the level and the weight."""
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
    without, with_canary = _PLAIN, np.vstack([_PLAIN, _CANARY])

    def tuned(features: NDArray[np.float64]) -> Sampler:
        tables = request.measure((features, np.array([0, 1, 1][: len(features)])))

        def run(bits: BitSource) -> float:
            found = request.climb(tables, bits).value
            return -9.0 if found is None else float(np.clip(found.coefficients[0, 0], -8, 8))

        return repeat(run)

    def one_training(features: NDArray[np.float64]) -> Callable[[BitSource], Any]:
        table = request.measure((features, np.array([0, 1, 1][: len(features)])))[0]
        every = np.arange(len(features))
        return lambda bits: request._train(table.learner(every, every), 0, level, bits)

    level = request.ladder.levels[-1]
    attempt = ApproxGuarantee(level, request.ladder.delta)
    return (
        stream_pair("what one training releases", attempt, one_training(with_canary), one_training(without)),
        Pair("one of two settings", claim, tuned(with_canary), tuned(without), slow=True, most_runs=_RUNS),
    )
