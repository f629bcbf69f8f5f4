"""Attacks on the ways of fitting models: the parts of a fit many runs at once, whole fits fewer, one row replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.black_box import Attempt, BlackBoxLadder
from expost.accuracy.paper2017 import Task
from expost.audit.audit_registry import AuditEntry
from expost.audit.fit_views import hypotheses_pair, path_pair, reduced_pair, rule_pair, tilt_pair
from expost.audit.pair_attack import Outcomes, Pair, Sampler, repeat
from expost.audit.planted_fault import ABOVE_THRESHOLD, GAUSSIAN, GAUSSIAN_PATH, PATHS, REDUCED, SPHERICAL, TILTS, Noise
from expost.audit.privacy_claim import ExPost
from expost.core import (
    Adjacency,
    Ladder,
    Norm,
    Plan,
    PureGuarantee,
    Sealed,
    Sensitivity,
    ZeroConcentratedGuarantee,
)
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear import (
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
from expost.models.linear.classifier_fit import grid_labels
from expost.models.linear.output_perturbation import GaussianOutput, SphericalOutput
from expost.models.linear.paper_fit import measure_moments
from expost.models.linear.risk_minimum import Objective, SealedRisk, minimize_objective
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss, TruncatedSquare
from expost.noise import DiscreteLaplacePath, GaussianPath, SphericalLaplaceMechanism, sample_bernoulli
from expost.noise.bits import BitSource

__all__ = ["entries", "request_pair"]

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
Sides = tuple[UnitRows, UnitRows]

_RUNS = 150  # of whole fits in the quick profile: each takes milliseconds, however small the table
# The replaced row points the other way in both features and target: the largest move that the bounds allow.
_FEATURES = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]])
_LEFT: Table = np.vstack([_FEATURES, [1.0, 0.0]]), np.array([1.0, -1.0, 1.0, 1.0])
_RIGHT: Table = np.vstack([_FEATURES, [1.0, 0.0]]), np.array([1.0, -1.0, 1.0, -1.0])
_SIGNS = grid_labels((-1.0, 1.0))
_DELTA = Fraction(1, 20)


# Tables on which one row moves what is released as far as its bounds say; all other rows say nothing.
_STRONG = 100.0  # a penalty under which minima stay where the loss is straight, and the Jacobian costs little
_COIN = (Noise("expost.accuracy.black_box.sample_bernoulli", argument=0),)


def entries() -> Iterable[AuditEntry]:
    """One entry a way."""
    climbs = (*PATHS, *ABOVE_THRESHOLD)
    return (
        AuditEntry("expost.models.linear.TiltedRisk", _tilted_risk, noise=TILTS),
        AuditEntry("expost.models.linear.ResidualCheck", _residual_check, noise=PATHS),
        AuditEntry("expost.models.linear.TiltedClassifier", _classifiers, noise=TILTS),
        AuditEntry("expost.models.linear.TiltedRidge", _tilted_ridge, noise=(*TILTS, *PATHS)),
        AuditEntry("expost.models.linear.CertifiedRidge", _certified_ridge, noise=PATHS),
        AuditEntry("expost.models.linear.GaussianRidge", _gaussian_ridge, noise=GAUSSIAN_PATH),
        AuditEntry("expost.models.linear.AdaptiveRidge", _adaptive_ridge, noise=GAUSSIAN_PATH),
        AuditEntry("expost.models.linear.OutputFit", _outputs, noise=(*PATHS, *SPHERICAL, *GAUSSIAN)),
        AuditEntry("expost.models.linear.GradientFit", _gradients, noise=climbs),
        AuditEntry("expost.models.linear.NoiseReduction", _noise_reduction, noise=climbs),
        AuditEntry("expost.models.linear.Doubling", _doubling, noise=PATHS),
        AuditEntry("expost.models.linear.TheoryInversion", _theory, noise=PATHS),
        AuditEntry("expost.models.linear.TestedFit", _tested, noise=(*TILTS, *REDUCED)),
        AuditEntry("expost.models.linear.MonotoneFit", _monotone, noise=(*TILTS, *REDUCED)),
        AuditEntry("expost.accuracy.black_box.BlackBoxLadder", _black_box, noise=_COIN),
    )


def request_pair(name: str, request: Plan, *, left: Table = _LEFT, right: Table = _RIGHT, runs: int = _RUNS) -> Pair:
    """Return a request on two neighbouring tables; outcomes are the coefficients, cut where they tell nothing more."""
    cap = request.worst_case.promise()
    claim = ExPost(cap) if isinstance(cap, PureGuarantee) else cap
    return Pair(name, claim, _fits(request, left), _fits(request, right), slow=True, most_runs=runs)


def _fits(request: Plan, table: Table) -> Sampler:
    sealed = request.measure(read_rows(*table))

    def run(bits: BitSource) -> Outcomes:
        release = request.climb(sealed, bits)
        return Outcomes.of(np.clip(release.value.coefficients, -50, 50)[None], [release.receipt.epsilon])

    return repeat(run)


def _problem(
    *, max_epsilon: float = 8.0, penalty: float = 1.0, norm: Norm = Norm.L1, columns: int = 2, **aim: Any
) -> Problem:
    goal = Aim.of(failure_probability=0.2, max_epsilon=max_epsilon, **aim)
    return Problem(UnitBall(columns, norm), 4, penalty, goal)


def _one_speaks(columns: int, *, rows: int = 4) -> tuple[Table, Table]:
    """Return two tables whose first row is (1, 0, ...) with a target of 1 or -1; the features of the others are 0."""
    features = np.zeros((rows, columns))
    features[0, 0] = 1.0
    return tuple((features, np.r_[sign, np.ones(rows - 1)]) for sign in (1.0, -1.0))  # type: ignore[return-value]


def _sides(build: Callable[[Any], UnitRows], tables: Sequence[Table]) -> Sides:
    left, right = (build(read_rows(*table)) for table in tables)
    return left, right


def _labelled(columns: int, norm: Norm = Norm.L1) -> Sides:
    return _sides(lambda source: UnitRows(source, UnitBall(columns, norm), _SIGNS), _one_speaks(columns))


# ------------------------------------------------------------------------------------------ objective perturbation


def _tilted_risk() -> Sequence[Pair]:
    def pair(name: str, loss: RowLoss, scale: float, *, penalty: float = _STRONG) -> Pair:
        risk = TiltedRisk(loss, UnitBall(1), 4, penalty)
        grid = _SIGNS if scale == 1.0 else grid_numbers(1.0)
        sides = _sides(lambda source: UnitRows(source, risk.ball, grid), _one_speaks(1))
        return tilt_pair(name, risk, Fraction(1), sides, target_scale=scale)

    def whole(table: Table) -> Sampler:
        risk = TiltedRisk(LogisticLoss(), UnitBall(2), 4, 1.0)
        rows = UnitRows(read_rows(*table), risk.ball, _SIGNS)
        return repeat(lambda bits: risk.release(rows, Fraction(1), bits=bits))

    return (
        pair("rounded hinge, a label flips", HuberHinge(), 1.0),
        pair("logistic loss, a label flips", LogisticLoss(), 1.0, penalty=1.0),
        pair("truncated square, a target flips", TruncatedSquare(1.0), 2.0**-GRID_BITS),
        Pair("whole runs", PureGuarantee(Fraction(1)), whole(_LEFT), whole(_RIGHT), slow=True, most_runs=_RUNS),
    )


def _classifiers() -> Sequence[Pair]:
    """Each law of the tilt: coordinatewise, spherical, and Gaussian with a delta that a sample can see."""

    def pair(name: str, columns: int, norm: Norm, delta: Fraction | None = None) -> Pair:
        problem = _problem(epsilon=1.0, norm=norm, columns=columns, penalty=_STRONG)
        request = TiltedClassifier(problem, HuberHinge(), _SIGNS, delta=delta)
        claim = request.worst_case.promise()
        return tilt_pair(name, request._risk, request.epsilon, _labelled(columns, norm), claim=claim)

    return (
        pair("Laplace tilt", 1, Norm.L1),
        pair("spherical tilt", 2, Norm.L2),
        pair("Gaussian tilt", 2, Norm.L2, _DELTA),
        request_pair("whole fits", TiltedClassifier(_problem(epsilon=1.0), LogisticLoss(), _SIGNS)),
    )


def _tilted_ridge() -> Sequence[Pair]:
    """Return the tilt at its share of the bill; the check has an entry of its own; then both."""
    request = TiltedRidge(_problem(epsilon=1.0, columns=1, penalty=_STRONG))
    sides = _sides(request.measure, _one_speaks(1))
    risk = request._risk(1.0)
    return (
        tilt_pair("its tilt", risk, request._epsilon, sides, target_scale=2.0**-GRID_BITS),
        request_pair("whole fits", TiltedRidge(_problem(epsilon=1.0))),
    )


def _tested() -> Sequence[Pair]:
    """Return a fit and a test at their own shares; then both: the replaced row is tested, and fitted unless rows are kept apart."""

    def request(validation: int) -> TestedFit:
        return TestedFit(
            _problem(score=("accuracy", 0.9), max_epsilon=3.0), LogisticLoss(), _SIGNS, validation=validation
        )

    sharp = TestedFit(
        _problem(score=("accuracy", 0.9), max_epsilon=3.0, columns=1, penalty=_STRONG), HuberHinge(), _SIGNS
    )
    return (
        tilt_pair("its fits", sharp._risk, sharp._levels[-1], _labelled(1)),
        reduced_pair("its tests", _last_levels(sharp._rule), ([0, 0, 1], [1, 1, 0])),
        request_pair("fitted and tested", request(0), runs=100),
        request_pair("tested only", request(2), runs=100),
    )


def _last_levels(rule: Any, count: int = 3) -> Any:
    """Return the same test with its last rungs alone."""
    return replace(rule, ladder=Ladder(tuple(rule.ladder)[-count:]))


def _monotone() -> Sequence[Pair]:
    """Return a row is added or removed; the declared number of rows stays."""
    few = _problem(score=("log_loss", 0.65), max_epsilon=1.0)
    sharp = MonotoneFit(
        _problem(score=("log_loss", 0.65), max_epsilon=3.0, columns=1, penalty=_STRONG), HuberHinge(), _SIGNS
    )
    (with_row, target), _ = _one_speaks(1)
    tables = (with_row, target), (with_row[1:], target[1:])
    fitted = [cast(Sides, sharp.measure(read_rows(*table)))[0] for table in tables]
    fewer = _LEFT[0][:3], _LEFT[1][:3]
    return (
        tilt_pair("its fits", sharp._risk, sharp._levels[-1], (fitted[0], fitted[1])),
        reduced_pair("its tests", _last_levels(sharp._rule), ([0, 0, 0], [1, 1, 1])),
        reduced_pair("its first test", _last_levels(sharp._rule), ([0, 0, 0], [1, 0, 0])),
        request_pair("a row is removed", MonotoneFit(few, LogisticLoss(), _SIGNS), right=fewer),
    )


# ------------------------------------------------------------------------------------------------ noisy moments

# Rows (1, 0) with target 1 and (1/2, sqrt(3)/2) with target -1: their moments are as far apart as moments can be.
_FAR_APART = (
    (np.array([[1.0, 0.0]] + 3 * [[0.0, 0.0]]), np.array([1.0, 0.0, 0.0, 0.0])),
    (np.array([[0.5, math.sqrt(0.75)]] + 3 * [[0.0, 0.0]]), np.array([-1.0, 0.0, 0.0, 0.0])),
)
_CORNERS = (
    (np.array([[1.0, 0.0]] + 3 * [[0.0, 0.0]]), np.array([1.0, 0.0, 0.0, 0.0])),
    (np.array([[0.0, 1.0]] + 3 * [[0.0, 0.0]]), np.array([1.0, 0.0, 0.0, 0.0])),
)


def _certified_ridge() -> Sequence[Pair]:
    request = CertifiedRidge(_problem(epsilon=1.0))
    left, right = (request.measure(read_rows(*table)) for table in _CORNERS)
    return (
        path_pair(
            "its moments", DiscreteLaplacePath, (left, right), request._ladder, PureGuarantee(request._ladder.cap)
        ),
        request_pair("whole fits", request),
    )


def _gaussian_ridge() -> Sequence[Pair]:
    request = GaussianRidge(_problem(epsilon=3.0, norm=Norm.L2), Fraction(1, 1000))
    left, right = (request.measure(read_rows(*table)) for table in _FAR_APART)
    claim = ZeroConcentratedGuarantee(request._ladder.cap)
    return (
        path_pair("its moments", GaussianPath, (left, right), request._ladder, claim),
        _rho_pair("whole fits", request),
    )


def _adaptive_ridge() -> Sequence[Pair]:
    """Return the smallest eigenvalue and the moments, each at its share of rho."""
    request = AdaptiveRidge(_problem(epsilon=3.0, norm=Norm.L2), Fraction(1, 1000))
    sides = [request.measure(read_rows(*table)) for table in _FAR_APART]
    both = sides[0][1], sides[1][1]
    most = request._rho * Fraction(9, 10)
    claim = ZeroConcentratedGuarantee(most)
    return (
        path_pair("its moments", GaussianPath, both, Ladder((most,)), claim),
        _rho_pair("whole fits", request),
    )


def _rho_pair(name: str, request: Plan) -> Pair:
    """Whole fits billed in rho."""
    cap = request.worst_case.promise()

    def fits(table: Table) -> Sampler:
        sealed = request.measure(read_rows(*table))
        return repeat(lambda bits: np.clip(request.climb(sealed, bits).value.coefficients, -50, 50))

    return Pair(name, cap, fits(_LEFT), fits(_RIGHT), slow=True, most_runs=_RUNS)


# ------------------------------------------------------------------------------------------- output perturbation


def _outputs() -> Sequence[Pair]:
    def pair(name: str, columns: int, norm: Norm, delta: Fraction | None = None) -> Pair:
        problem = _problem(epsilon=1.0, norm=norm, columns=columns, penalty=_STRONG)
        request = OutputFit(problem, HuberHinge(), _SIGNS, delta=delta)
        left, right = (_noisy_minima(request, rows) for rows in _labelled(columns, norm))
        return Pair(name, request.worst_case.promise(), left, right)

    return (
        pair("Laplace noise", 1, Norm.L1),
        pair("spherical noise", 2, Norm.L2),
        pair("Gaussian noise", 2, Norm.L2, _DELTA),
        request_pair("whole fits", OutputFit(_problem(epsilon=1.0), LogisticLoss(), _SIGNS)),
    )


def _noisy_minima(request: OutputFit, rows: UnitRows) -> Sampler:
    """Return a minimum under the fit's own noise, as often as there are runs."""
    noise: Any = request._noise
    penalty = request._problem.penalty
    best = minimize_objective(Objective(rows, HuberHinge(), penalty, np.zeros(rows.ball.dimension)))
    exact = np.rint(best / noise.valley.step).astype(np.int64)

    def sampler(runs: int, bits: BitSource) -> Outcomes:
        if isinstance(noise, SphericalOutput):
            spherical = SphericalLaplaceMechanism(request._epsilon)
            return Outcomes.of(spherical.simulate(exact, noise._sensitivity, runs=runs, bits=bits))
        if isinstance(noise, GaussianOutput):
            normal = noise._mechanism(request._epsilon)
            return Outcomes.of(normal.simulate(exact, noise._sensitivity, runs=runs, bits=bits))
        copies = noise.release(_copied(exact, runs), request._epsilon, bits)
        return Outcomes.of((copies / noise.valley.step).reshape(runs, -1))

    return sampler


def _copied(exact: NDArray[np.int64], runs: int) -> Any:
    return lambda step, units, norm: Sealed(np.tile(exact, runs), Sensitivity(units, norm, Adjacency.REPLACE_ONE))


def _risks(loss: RowLoss, sides: Sides, penalty: float) -> tuple[SealedRisk, SealedRisk]:
    left, right = (SealedRisk(rows, loss, penalty, target_scale=1.0) for rows in sides)
    return left, right


def _gradients() -> Sequence[Pair]:
    """On more rows for whole fits, so that the test is cheap enough for an attack to tell its bill from a larger one."""
    many = 200
    aim = Aim.of(failure_probability=0.2, max_epsilon=2.0, excess_risk=0.5)
    request = GradientFit(Problem(UnitBall(2), many, 1.0, aim), LogisticLoss(), _SIGNS)
    left, right = ((np.vstack([np.tile(_FEATURES[:1], (many - 1, 1)), [1.0, 0.0]]), np.ones(many)) for _ in range(2))
    right[1][-1] = -1.0
    sharp = GradientFit(_problem(excess_risk=0.5, max_epsilon=40.0, columns=1, penalty=_STRONG), HuberHinge(), _SIGNS)
    risks = _risks(HuberHinge(), _labelled(1), _STRONG)
    return (
        hypotheses_pair("its minima", risks, Fraction(1), sensitivity=sharp._minimum_sensitivity),
        rule_pair("its test", _softened(request._plan.rule)),
        request_pair("a label flips", request, left=left, right=right, runs=100),
    )


def _softened(rule: Any) -> Any:
    """Return the same test at an epsilon at which samples see the whole loss: 1 for the threshold and 1 for each query."""
    return replace(rule, epsilon_threshold=Fraction(1), epsilon_query=Fraction(1))


def _paper(task: Task, cap: float, *, columns: int = 2, penalty: float = 1.0) -> PaperFit:
    labels = None if task.ridge else _SIGNS
    return PaperFit(_problem(excess_risk=2.0, max_epsilon=cap, columns=columns, penalty=penalty), task, labels)


def _paper_minima(fit: PaperFit, level: Fraction) -> Pair:
    """Minima under the noise of one level; the logistic loss is nearly straight where strong penalties keep them."""
    rows = _labelled(fit.problem.ball.dimension)
    risks = fit.exact_risk(rows[0]), fit.exact_risk(rows[1])
    return hypotheses_pair("its minima", risks, level, sensitivity=fit.minimum_sensitivity())


def _noise_reduction() -> Sequence[Pair]:
    request = NoiseReduction(_paper(Task.LOGISTIC_OUTPUT, 60.0), rungs=8)
    sharp = _paper(Task.LOGISTIC_OUTPUT, 60.0, columns=1, penalty=_STRONG)
    return (
        _paper_minima(sharp, Fraction(2)),
        _paper_moments(),
        rule_pair("its test", _softened(request._rule)),
        request_pair("whole fits", request),
    )


def _paper_moments() -> Pair:
    """Moments under the noise of one level."""
    fit, level = _paper(Task.RIDGE_COVARIANCE, 40.0), Fraction(1)
    left, right = (measure_moments(fit.measure(read_rows(*table)), full=False)[0] for table in _CORNERS)
    return path_pair("its moments", DiscreteLaplacePath, (left, right), Ladder((level,)), PureGuarantee(level))


def _doubling() -> Sequence[Pair]:
    return _paper_moments(), request_pair("whole fits", Doubling(_paper(Task.RIDGE_COVARIANCE, 40.0)))


def _theory() -> Sequence[Pair]:
    request = TheoryInversion(_paper(Task.LOGISTIC_OUTPUT, 200.0))
    sharp = _paper(Task.LOGISTIC_OUTPUT, 200.0, columns=1, penalty=_STRONG)
    return _paper_minima(sharp, Fraction(2)), _paper_moments(), request_pair("whole fits", request)


# -------------------------------------------------------------------------------------------------- trials and checks


def _black_box() -> Sequence[Pair]:
    """Return a trainer that is exactly epsilon-DP and passes as rarely as that allows on one side."""
    ladder = BlackBoxLadder(Ladder.of([Fraction(1, 2), Fraction(1)]))

    def sessions(passes: Callable[[Fraction], Fraction]) -> Sampler:
        def trainer(level: Fraction, bits: BitSource | None) -> Attempt[None]:
            return Attempt(None, float(sample_bernoulli(passes(level), bits=bits)))

        def run(bits: BitSource) -> Outcomes:
            result = ladder.run(trainer, score=1.0, bits=bits)
            return Outcomes.of([-1 if result.rung is None else result.rung], [float(result.loss.epsilon)])

        return repeat(run)

    def rarely(level: Fraction) -> Fraction:
        return Fraction(9, 10) * Fraction(math.exp(-level))

    left, right = sessions(lambda level: Fraction(9, 10)), sessions(rarely)
    claim = ExPost(PureGuarantee(ladder.guarantee.epsilon))
    return (Pair("passes often or rarely", claim, left, right, most_runs=8000),)


def _residual_check() -> Sequence[Pair]:
    """One row leaves the reach as far as it can; on the other side it does not leave it at all."""
    check = ResidualCheck(np.array([2.0, 0.0]), 1.0, UnitBall(2).norm, leash=3.0)
    cap = Fraction(4)

    def rows_of(target: float) -> UnitRows:
        return UnitRows(read_rows(np.array([[1.0, 0.0]]), np.array([target])), UnitBall(2), grid_numbers(1.0))

    def checks(target: float) -> Sampler:
        rows = rows_of(target)

        def run(bits: BitSource) -> Outcomes:
            checked = check.climb(rows, scale=2.0, cap=cap, bits=bits)
            return Outcomes.of([[checked.noisy, checked.enough]], [float(checked.epsilon)])

        return repeat(run)

    sealed = check._measure(rows_of(-1.0)), check._measure(rows_of(1.0))
    return (
        path_pair("its reading", DiscreteLaplacePath, sealed, Ladder((Fraction(1),)), PureGuarantee(Fraction(1))),
        Pair(
            "a residual of 3 or of 1", ExPost(PureGuarantee(cap)), checks(-1.0), checks(1.0), slow=True, most_runs=2000
        ),
    )
