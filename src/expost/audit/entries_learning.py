"""Attacks on the ways of fitting models: whole fits on tables of a few rows, one of them replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.black_box import Attempt, BlackBoxLadder
from expost.accuracy.paper2017 import Task
from expost.audit.claim import ExPost
from expost.audit.entry import Entry
from expost.audit.pair import Outcomes, Pair, Sampler, repeat
from expost.core import ApproxGuarantee, Ladder, Norm, PureGuarantee, Request
from expost.data.matrix import GRID_BITS, UnitBall, UnitRows, grid_numbers, read_rows
from expost.learning import (
    AdaptiveRidge,
    Aim,
    CertifiedRidge,
    Doubling,
    GaussianRidge,
    GradientFit,
    MonotoneFit,
    NoiseReduction,
    OutputFit,
    PaperFit,
    Problem,
    ResidualCheck,
    TestedFit,
    TheoryInversion,
    TiltedClassifier,
    TiltedRidge,
    TiltedRisk,
)
from expost.learning.classification import grid_labels
from expost.learning.losses import Logistic, TruncatedSquare
from expost.noise import bernoulli
from expost.noise.bits import BitSource

__all__ = ["entries", "request_pair"]

Table = tuple[NDArray[np.float64], NDArray[np.float64]]

_RUNS = 250  # a fit takes milliseconds, however small the table
# The replaced row points the other way in both features and target: the largest move that the bounds allow.
_FEATURES = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]])
_LEFT: Table = np.vstack([_FEATURES, [1.0, 0.0]]), np.array([1.0, -1.0, 1.0, 1.0])
_RIGHT: Table = np.vstack([_FEATURES, [1.0, 0.0]]), np.array([1.0, -1.0, 1.0, -1.0])
_SIGNS = grid_labels((-1.0, 1.0))
_DELTA = Fraction(1, 20)


def entries() -> Iterable[Entry]:
    """One entry a way."""
    return (
        Entry("expost.learning.TiltedRisk", _tilted_risk),
        Entry("expost.learning.ResidualCheck", _residual_check),
        Entry("expost.learning.TiltedClassifier", _classifiers),
        Entry("expost.learning.TiltedRidge", _requests(_tilted_ridge)),
        Entry("expost.learning.CertifiedRidge", _requests(_certified_ridge)),
        Entry("expost.learning.GaussianRidge", _gaussian_ridge),
        Entry("expost.learning.AdaptiveRidge", _adaptive_ridge),
        Entry("expost.learning.OutputFit", _outputs),
        Entry("expost.learning.GradientFit", _gradients),
        Entry("expost.learning.NoiseReduction", _requests(_noise_reduction)),
        Entry("expost.learning.Doubling", _requests(_doubling)),
        Entry("expost.learning.TheoryInversion", _requests(_theory)),
        Entry("expost.learning.TestedFit", _tested),
        Entry("expost.learning.MonotoneFit", _monotone),
        Entry("expost.accuracy.black_box.BlackBoxLadder", _black_box),
    )


def request_pair(name: str, request: Request, *, left: Table = _LEFT, right: Table = _RIGHT, runs: int = _RUNS) -> Pair:
    """A request on two neighbouring tables; outcomes are the coefficients, cut where they tell nothing more."""
    cap = request.worst_case.promise()
    claim = ExPost(cap) if isinstance(cap, PureGuarantee) else cap
    return Pair(name, claim, _fits(request, left), _fits(request, right), slow=True, most_runs=runs)


def _fits(request: Request, table: Table) -> Sampler:
    sealed = request.measure(read_rows(*table))

    def run(bits: BitSource) -> Outcomes:
        release = request.climb(sealed, bits)
        return Outcomes.of(np.clip(release.value.coefficients, -50, 50)[None], [release.receipt.epsilon])

    return repeat(run)


def _requests(*makers: Callable[[], Request]) -> Callable[[], Sequence[Pair]]:
    return lambda: tuple(request_pair(make.__name__.strip("_").replace("_", " "), make()) for make in makers)


def _problem(*, max_epsilon: float = 8.0, penalty: float = 1.0, norm: Norm = Norm.L1, **aim: Any) -> Problem:
    goal = Aim.of(failure_probability=0.2, max_epsilon=max_epsilon, **aim)
    return Problem(UnitBall(2, norm), 4, penalty, goal)


def _classifiers() -> Sequence[Pair]:
    """Each law of the tilt: coordinatewise, spherical, and Gaussian with a delta that a sample can see."""
    plain = TiltedClassifier(_problem(epsilon=1.0), Logistic(), _SIGNS)
    round_one = TiltedClassifier(_problem(epsilon=1.0, norm=Norm.L2), Logistic(), _SIGNS)
    normal = TiltedClassifier(_problem(epsilon=1.0, norm=Norm.L2), Logistic(), _SIGNS, delta=_DELTA)
    return (
        request_pair("Laplace tilt", plain),
        request_pair("spherical tilt", round_one),
        request_pair("Gaussian tilt", normal),
    )


def _tilted_ridge() -> Request:
    return TiltedRidge(_problem(epsilon=1.0))


def _certified_ridge() -> Request:
    return CertifiedRidge(_problem(epsilon=1.0))


def _adaptive_ridge() -> Sequence[Pair]:
    return _with_delta(AdaptiveRidge(_problem(epsilon=1.0), Fraction(1, 1000)))


def _gaussian_ridge() -> Sequence[Pair]:
    return _with_delta(GaussianRidge(_problem(epsilon=1.0), Fraction(1, 1000)))


def _with_delta(request: Request) -> Sequence[Pair]:
    left, right = (_fits(request, table) for table in (_LEFT, _RIGHT))
    claim = ApproxGuarantee(Fraction(1), Fraction(1, 1000))
    return (Pair("a target flips", claim, left, right, slow=True, most_runs=_RUNS),)


def _outputs() -> Sequence[Pair]:
    pure = OutputFit(_problem(epsilon=1.0), Logistic(), _SIGNS)
    normal = OutputFit(_problem(epsilon=1.0), Logistic(), _SIGNS, delta=_DELTA)
    return request_pair("spherical noise", pure), request_pair("Gaussian noise", normal)


def _gradients() -> Sequence[Pair]:
    """On more rows, so that the test is cheap enough for an attack to tell its bill from a larger one."""
    many = 200
    aim = Aim.of(failure_probability=0.2, max_epsilon=2.0, excess_risk=0.5)
    request = GradientFit(Problem(UnitBall(2), many, 1.0, aim), Logistic(), _SIGNS)
    left, right = ((np.vstack([np.tile(_FEATURES[:1], (many - 1, 1)), [1.0, 0.0]]), np.ones(many)) for _ in range(2))
    right[1][-1] = -1.0
    return (request_pair("a label flips", request, left=left, right=right, runs=100),)


def _paper(task: Task, cap: float) -> PaperFit:
    labels = None if task.ridge else _SIGNS
    return PaperFit(_problem(excess_risk=2.0, max_epsilon=cap), task, labels)


def _noise_reduction() -> Request:
    return NoiseReduction(_paper(Task.LOGISTIC_OUTPUT, 60.0), rungs=8)


def _doubling() -> Request:
    return Doubling(_paper(Task.RIDGE_COVARIANCE, 40.0))


def _theory() -> Request:
    return TheoryInversion(_paper(Task.LOGISTIC_OUTPUT, 200.0))


def _tested() -> Sequence[Pair]:
    """The replaced row is tested by both, and fitted only where no rows are kept apart for tests."""

    def request(validation: int) -> Request:
        problem = _problem(score=("accuracy", 0.9), max_epsilon=3.0, penalty=1.0)
        return TestedFit(problem, Logistic(), _SIGNS, validation=validation)

    return (
        request_pair("fitted and tested", request(0), runs=100),
        request_pair("tested only", request(2), runs=100),
    )


def _monotone() -> Sequence[Pair]:
    """A row is added or removed; the declared number of rows stays."""
    request = MonotoneFit(_problem(score=("log_loss", 0.65), max_epsilon=1.0), Logistic(), _SIGNS)
    fewer = _LEFT[0][:3], _LEFT[1][:3]
    return (request_pair("a row is removed", request, right=fewer),)


def _tilted_risk() -> Sequence[Pair]:
    def fits(loss: Any, table: Table, scale: float) -> Sampler:
        risk = TiltedRisk(loss, UnitBall(2), 4, 1.0)
        grid = _SIGNS if scale == 1.0 else grid_numbers(1.0)
        rows = UnitRows(read_rows(*table), risk.ball, grid)
        return repeat(lambda bits: risk.release(rows, Fraction(1), target_scale=scale, bits=bits))

    def pair(name: str, loss: Any, scale: float) -> Pair:
        left, right = (fits(loss, table, scale) for table in (_LEFT, _RIGHT))
        return Pair(name, PureGuarantee(Fraction(1)), left, right, slow=True, most_runs=_RUNS)

    return (
        pair("logistic loss, a label flips", Logistic(), 1.0),
        pair("truncated square, a target flips", TruncatedSquare(1.0), 2.0**-GRID_BITS),
    )


def _black_box() -> Sequence[Pair]:
    """A trainer that is exactly epsilon-DP and passes as rarely as that allows on one side."""
    ladder = BlackBoxLadder(Ladder.of([Fraction(1, 2), Fraction(1)]))

    def sessions(passes: Callable[[Fraction], Fraction]) -> Sampler:
        def trainer(level: Fraction, bits: BitSource | None) -> Attempt[None]:
            return Attempt(None, float(bernoulli(passes(level), bits=bits)))

        def run(bits: BitSource) -> Outcomes:
            result = ladder.run(trainer, score=1.0, bits=bits)
            return Outcomes.of([-1 if result.rung is None else result.rung], [float(result.loss.epsilon)])

        return repeat(run)

    def rarely(level: Fraction) -> Fraction:
        return Fraction(9, 10) * Fraction(math.exp(-level))

    left, right = sessions(lambda level: Fraction(9, 10)), sessions(rarely)
    claim = ExPost(PureGuarantee(ladder.guarantee.epsilon))
    return (Pair("passes often or rarely", claim, left, right, slow=True, most_runs=1000),)


def _residual_check() -> Sequence[Pair]:
    """One row leaves the reach as far as it can; on the other side it does not leave it at all."""
    check = ResidualCheck(np.array([2.0, 0.0]), 1.0, UnitBall(2).norm, leash=3.0)
    cap = Fraction(4)

    def checks(target: float) -> Sampler:
        rows = UnitRows(read_rows(np.array([[1.0, 0.0]]), np.array([target])), UnitBall(2), grid_numbers(1.0))

        def run(bits: BitSource) -> Outcomes:
            checked = check.climb(rows, scale=2.0, cap=cap, bits=bits)
            return Outcomes.of([[checked.noisy, checked.enough]], [float(checked.epsilon)])

        return repeat(run)

    return (
        Pair(
            "a residual of 3 or of 1", ExPost(PureGuarantee(cap)), checks(-1.0), checks(1.0), slow=True, most_runs=2000
        ),
    )
