"""Attacks on fitted models when one row is replaced: parts of a fit in many runs at once, whole fits in fewer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.black_box import Attempt, BlackBoxLadder
from expost.accuracy.paper2017 import Task
from expost.audit.audit_registry import AuditEntry
from expost.audit.entries_threshold import queries_around, reduced_pair, session_pair
from expost.audit.fit_views import PathKind, hypotheses_pair, path_pair, tilt_pair
from expost.audit.pair_attack import Outcomes, Pair, repeat
from expost.audit.planted_fault import ABOVE_THRESHOLD, GAUSSIAN, GAUSSIAN_PATH, PATHS, REDUCED, SPHERICAL, TILTS, Noise
from expost.audit.privacy_claim import ExPost
from expost.core import Adjacency, Ladder, Norm, Plan, PureGuarantee, Sealed, Sensitivity, ZeroConcentratedGuarantee
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models import linear
from expost.models.linear import Aim, PaperFit, Problem
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
_RIGHT: Table = _LEFT[0], np.array([1.0, -1.0, 1.0, -1.0])
_SIGNS = grid_labels((-1.0, 1.0))
# Columns, norm and delta; the delta is one that a sample can see.
_LAWS = {"Laplace": (1, Norm.L1, None), "spherical": (2, Norm.L2, None), "Gaussian": (2, Norm.L2, Fraction(1, 20))}
_STRONG = 100.0  # a penalty under which minima stay where the loss is straight, and the Jacobian costs little
_COIN = (Noise("expost.accuracy.black_box.sample_bernoulli", argument=0),)


def entries() -> Iterable[AuditEntry]:
    """List one entry per fitting method."""
    climbs = (*PATHS, *ABOVE_THRESHOLD)
    fits = {
        "TiltedRisk": (_tilted_risk, TILTS),
        "ResidualCheck": (_residual_check, PATHS),
        "TiltedClassifier": (lambda: (*_classifier_pairs(), *_counted_pairs()), TILTS),
        "TiltedRidge": (_tilted_ridge, (*TILTS, *PATHS)),
        "PilotedRidge": (_piloted_ridge, (*TILTS, *PATHS)),
        "CertifiedRidge": (_certified_ridge, PATHS),
        "GaussianRidge": (_gaussian_ridge, GAUSSIAN_PATH),
        "AdaptiveRidge": (_adaptive_ridge, GAUSSIAN_PATH),
        "OutputFit": (_output_pairs, (*PATHS, *SPHERICAL, *GAUSSIAN)),
        "GradientFit": (_gradient_pairs, climbs),
        "NoiseReduction": (_noise_reduction, climbs),
        "Doubling": (_doubling_pairs, PATHS),
        "TheoryInversion": (_theory_pairs, PATHS),
        "TestedFit": (_tested_pairs, (*TILTS, *REDUCED)),
        "MonotoneFit": (_monotone_pairs, (*TILTS, *REDUCED)),
    }
    # The count of a fit is a gradual release, attacked on its own; the fit after it runs the same code.
    also = {"TiltedClassifier": ("expost.models.linear.CountedFit",)}
    return (
        *(
            AuditEntry(f"expost.models.linear.{name}", pairs, noise=noise, also=also.get(name, ()))
            for name, (pairs, noise) in fits.items()
        ),
        AuditEntry("expost.accuracy.black_box.BlackBoxLadder", _black_box, noise=_COIN),
    )


def request_pair(
    name: str, request: Plan, *, left: Table = _LEFT, right: Table = _RIGHT, runs: int = _RUNS, billed: bool = True
) -> Pair:
    """Build a pair of whole fits on two adjacent tables; outcomes are the coefficients, cut where they show nothing more."""
    cap = request.worst_case.promise()
    claim = ExPost(cap) if isinstance(cap, PureGuarantee) else cap

    def run_fit(sealed: Any, bits: BitSource) -> Outcomes:
        release = request.climb(sealed, bits)
        coefficients = np.clip(release.value.coefficients, -50, 50)[None]
        return Outcomes.of(coefficients, [release.receipt.epsilon] if billed else None)

    sides = (request.measure(read_rows(*table)) for table in (left, right))
    return Pair.repeated(name, claim, run_fit, *sides, most_runs=runs)


def _make_problem(
    *, max_epsilon: float = 8.0, penalty: float = 1.0, norm: Norm = Norm.L1, columns: int = 2, **aim: Any
) -> Problem:
    """Pose a problem of four rows with a failure probability of 0.2."""
    goal = Aim.of(failure_probability=0.2, max_epsilon=max_epsilon, **aim)
    return Problem(UnitBall(columns, norm), 4, penalty, goal)


def _one_row_tables(columns: int) -> tuple[Table, Table]:
    """Make two tables of four rows whose first row is (1, 0, ...) with target 1 or -1; all other features are 0."""
    features = np.eye(4, columns)
    features[1:] = 0.0
    return (features, np.ones(4)), (features, np.array([-1.0, 1.0, 1.0, 1.0]))


def _read_sides(build: Callable[[Any], UnitRows], tables: Sequence[Table]) -> Sides:
    """Read the two tables of a pair."""
    left, right = (build(read_rows(*table)) for table in tables)
    return left, right


def _labelled_rows(columns: int, norm: Norm = Norm.L1) -> Sides:
    """Read the tables of ``_one_row_tables`` with labels as targets."""
    return _read_sides(lambda source: UnitRows(source, UnitBall(columns, norm), _SIGNS), _one_row_tables(columns))


# ------------------------------------------------------------------------------------------ objective perturbation


def _tilted_risk() -> Sequence[Pair]:
    def build_pair(name: str, loss: RowLoss, scale: float, *, penalty: float = _STRONG) -> Pair:
        risk = linear.TiltedRisk(loss, UnitBall(1), 4, penalty)
        grid = _SIGNS if scale == 1.0 else grid_numbers(1.0)
        sides = _read_sides(lambda source: UnitRows(source, risk.ball, grid), _one_row_tables(1))
        return tilt_pair(name, risk, Fraction(1), sides, target_scale=scale)

    whole = linear.TiltedRisk(LogisticLoss(), UnitBall(2), 4, 1.0)

    def run_fit(rows: UnitRows, bits: BitSource) -> Any:
        return whole.release(rows, Fraction(1), bits=bits)

    sides = _read_sides(lambda source: UnitRows(source, whole.ball, _SIGNS), (_LEFT, _RIGHT))
    return (
        build_pair("rounded hinge, a label flips", HuberHinge(), 1.0),
        build_pair("logistic loss, a label flips", LogisticLoss(), 1.0, penalty=1.0),
        build_pair("truncated square, a target flips", TruncatedSquare(1.0), 2.0**-GRID_BITS),
        Pair.repeated("whole runs", PureGuarantee(Fraction(1)), run_fit, *sides, most_runs=_RUNS),
    )


def _classifier_pairs() -> Sequence[Pair]:
    """Attack each law of the tilt."""

    def build_pair(name: str, columns: int, norm: Norm, delta: Fraction | None) -> Pair:
        problem = _make_problem(epsilon=1.0, norm=norm, columns=columns, penalty=_STRONG)
        request = linear.TiltedClassifier(problem, HuberHinge(), _SIGNS, delta=delta)
        claim = request.worst_case.promise()
        return tilt_pair(name, request._risk, request.epsilon, _labelled_rows(columns, norm), claim=claim)

    return (
        *(build_pair(f"{law} tilt", *terms) for law, terms in _LAWS.items()),
        request_pair("whole fits", linear.TiltedClassifier(_make_problem(epsilon=1.0), LogisticLoss(), _SIGNS)),
    )


def _tilted_ridge() -> Sequence[Pair]:
    """Attack the tilt at its share of the bill, then the whole fit; the residual check has a separate entry."""
    request = linear.TiltedRidge(_make_problem(epsilon=1.0, columns=1, penalty=_STRONG))
    sides = _read_sides(request.measure, _one_row_tables(1))
    risk = request._risk_within(1.0)
    return (
        tilt_pair("its tilt", risk, request._epsilon, sides, target_scale=2.0**-GRID_BITS),
        request_pair("whole fits", linear.TiltedRidge(_make_problem(epsilon=1.0))),
    )


def _piloted_ridge() -> Sequence[Pair]:
    """Attack each reading with the pair of rows that moves it furthest; the fits after them are those of TiltedRidge."""
    request = linear.PilotedRidge(_make_problem(excess_risk=0.3, max_epsilon=1e4))
    rows = [
        UnitRows(read_rows(np.array([[score, 0.0]]), np.array([target])), UnitBall(2), grid_numbers(1.0))
        for score, target in ((1.0, 1.0), (0.5, -1.0), (1.0, -1.0), (1.0, 1.0))
    ]
    level = Fraction(1)
    sealed = {
        "slope": (request._seal_slope(rows[0]), request._seal_slope(rows[1])),
        "size of residuals": (request._seal_size(rows[2], 1.0), request._seal_size(rows[3], 1.0)),
        "risk": (request._seal_risk(rows[2], 1.0), request._seal_risk(rows[3], 1.0)),
    }
    return (
        *(
            path_pair(f"its {name}", DiscreteLaplacePath, sides, Ladder((level,)), PureGuarantee(level))
            for name, sides in sealed.items()
        ),
        request_pair("whole fits", request),
    )


def _tested_pairs() -> Sequence[Pair]:
    """Attack a fit and a test at their shares of the bill, then both; with validation rows the replaced row is only tested."""
    pose = partial(_make_problem, score=("accuracy", 0.9), max_epsilon=3.0)
    request = partial(linear.TestedFit, pose(), LogisticLoss(), _SIGNS)
    sharp = linear.TestedFit(pose(columns=1, penalty=_STRONG), HuberHinge(), _SIGNS)
    return (
        tilt_pair("its fits", sharp._risk, sharp._levels[-1], _labelled_rows(1)),
        _last_tests_pair("its tests", sharp._rule, [0, 0, 1], [1, 1, 0]),
        request_pair("fitted and tested", request(validation=0), runs=100),
        request_pair("tested only", request(validation=2), runs=100),
    )


def _last_tests_pair(name: str, rule: Any, left: Sequence[int], right: Sequence[int]) -> Pair:
    """Build a pair of the last three rungs of a test, on queries around its threshold."""
    last = replace(rule, ladder=Ladder(tuple(rule.ladder)[-3:]))
    return reduced_pair(name, last, queries_around(last, left), queries_around(last, right))


def _monotone_pairs() -> Sequence[Pair]:
    """Attack fits when a row is removed; the declared number of rows stays the same."""
    pose = partial(_make_problem, score=("log_loss", 0.65))
    few = linear.MonotoneFit(pose(max_epsilon=1.0), LogisticLoss(), _SIGNS)
    sharp = linear.MonotoneFit(pose(max_epsilon=3.0, columns=1, penalty=_STRONG), HuberHinge(), _SIGNS)
    (with_row, target), _ = _one_row_tables(1)
    tables = (with_row, target), (with_row[1:], target[1:])
    fitted = [cast(Sides, sharp.measure(read_rows(*table)))[0] for table in tables]
    fewer = _LEFT[0][:3], _LEFT[1][:3]
    return (
        tilt_pair("its fits", sharp._risk, sharp._levels[-1], (fitted[0], fitted[1])),
        _last_tests_pair("its tests", sharp._rule, [0, 0, 0], [1, 1, 1]),
        _last_tests_pair("its first test", sharp._rule, [0, 0, 0], [1, 0, 0]),
        request_pair("a row is removed", few, right=fewer),
    )


def _counted_pairs() -> Sequence[Pair]:
    """Attack the count and the fit together when a row is removed."""
    problem = replace(_make_problem(epsilon=1.0), rows=0, neighbours=linear.ADDED_ROWS)
    request = linear.CountedFit(problem, lambda counted: linear.TiltedClassifier(counted, LogisticLoss(), _SIGNS))
    fewer = _LEFT[0][1:], _LEFT[1][1:]
    return (request_pair("a row is removed", request, right=fewer),)


# ------------------------------------------------------------------------------------------------ noisy moments


def _first_row_table(features: Sequence[float], target: float) -> Table:
    """Make a table of one row and three rows of zeros."""
    return np.array([features] + 3 * [[0.0, 0.0]]), np.array([target, 0.0, 0.0, 0.0])


# The moments of the second pair are as far apart as moments can be.
_CORNERS = _first_row_table([1.0, 0.0], 1.0), _first_row_table([0.0, 1.0], 1.0)
_FAR_APART = _first_row_table([1.0, 0.0], 1.0), _first_row_table([0.5, math.sqrt(0.75)], -1.0)


def _certified_ridge() -> Sequence[Pair]:
    request = linear.CertifiedRidge(_make_problem(epsilon=1.0))
    left, right = (request.measure(read_rows(*table)) for table in _CORNERS)
    return _moments_pair((left, right), request._ladder), request_pair("whole fits", request)


def _moments_pair(sides: tuple[Sealed, Sealed], ladder: Ladder, kind: PathKind = DiscreteLaplacePath) -> Pair:
    """Build a pair of moments under the noise of the first level."""
    claim = ZeroConcentratedGuarantee(ladder.cap) if kind is GaussianPath else PureGuarantee(ladder.cap)
    return path_pair("its moments", kind, sides, ladder, claim)


def _gaussian_ridge() -> Sequence[Pair]:
    request = linear.GaussianRidge(_make_problem(epsilon=3.0, norm=Norm.L2), Fraction(1, 1000))
    left, right = (request.measure(read_rows(*table)) for table in _FAR_APART)
    moments = _moments_pair((left, right), request._ladder, GaussianPath)
    return moments, request_pair("whole fits", request, billed=False)


def _adaptive_ridge() -> Sequence[Pair]:
    """Attack the moments at their share of rho, then the whole fit."""
    request = linear.AdaptiveRidge(_make_problem(epsilon=3.0, norm=Norm.L2), Fraction(1, 1000))
    left, right = (request.measure(read_rows(*table))[1] for table in _FAR_APART)
    moments = _moments_pair((left, right), Ladder((request._rho * Fraction(9, 10),)), GaussianPath)
    return moments, request_pair("whole fits", request, billed=False)


# ------------------------------------------------------------------------------------------- output perturbation


def _output_pairs() -> Sequence[Pair]:
    def build_pair(name: str, columns: int, norm: Norm, delta: Fraction | None) -> Pair:
        problem = _make_problem(epsilon=1.0, norm=norm, columns=columns, penalty=_STRONG)
        request = linear.OutputFit(problem, HuberHinge(), _SIGNS, delta=delta)
        sides = _labelled_rows(columns, norm)
        return Pair.of(name, request.worst_case.promise(), partial(_sample_output, request), *sides)

    return (
        *(build_pair(f"{law} noise", *terms) for law, terms in _LAWS.items()),
        request_pair("whole fits", linear.OutputFit(_make_problem(epsilon=1.0), LogisticLoss(), _SIGNS)),
    )


def _sample_output(request: linear.OutputFit, rows: UnitRows, runs: int, bits: BitSource) -> Outcomes:
    """Sample a minimum under the noise of the fit, once per run."""
    noise: Any = request._noise
    best = minimize_objective(Objective(rows, HuberHinge(), request._problem.penalty, np.zeros(rows.ball.dimension)))
    exact = np.rint(best / noise.valley.step).astype(np.int64)
    if isinstance(noise, SphericalOutput | GaussianOutput):
        build = noise._build_mechanism if isinstance(noise, GaussianOutput) else SphericalLaplaceMechanism
        return Outcomes.of(build(request._epsilon).simulate(exact, noise._row_sensitivity, runs=runs, bits=bits))
    copies = noise.release(
        lambda step, units, norm: Sealed(np.tile(exact, runs), Sensitivity(units, norm, Adjacency.REPLACE_ONE)),
        request._epsilon,
        bits,
    )
    return Outcomes.of((copies / noise.valley.step).reshape(runs, -1))


def _gradient_pairs() -> Sequence[Pair]:
    """Attack minima, the test and whole fits; 200 rows make the test cheap enough to distinguish its bill from a larger one."""
    many = 200
    aim = Aim.of(failure_probability=0.2, max_epsilon=2.0, excess_risk=0.5)
    request = linear.GradientFit(Problem(UnitBall(2), many, 1.0, aim), LogisticLoss(), _SIGNS)
    features = np.tile(_FEATURES[:1], (many, 1))
    left, right = (features, np.ones(many)), (features, np.append(np.ones(many - 1), -1.0))
    problem = _make_problem(excess_risk=0.5, max_epsilon=40.0, columns=1, penalty=_STRONG)
    sharp = linear.GradientFit(problem, HuberHinge(), _SIGNS)
    one, other = (SealedRisk(rows, HuberHinge(), _STRONG, target_scale=1.0) for rows in _labelled_rows(1))
    return (
        hypotheses_pair("its minima", (one, other), Fraction(1), sensitivity=sharp._minimum_sensitivity),
        _test_pair(request._rule),
        request_pair("a label flips", request, left=left, right=right, runs=100),
    )


def _test_pair(rule: Any) -> Pair:
    """Build a pair of a test at an epsilon at which samples see the whole loss: 1 for the threshold, 1 per query."""
    soft = replace(rule, epsilon_threshold=Fraction(1), epsilon_query=Fraction(1))
    # All queries rise but the last, which falls: the worst case.
    return session_pair("its test", soft, queries_around(soft, [0] * 8 + [1]), queries_around(soft, [1] * 8 + [0]))


def _paper_fit(task: Task, cap: float, *, columns: int = 2, penalty: float = 1.0) -> PaperFit:
    """Set up one of the 2017 algorithms for an excess risk of 2."""
    labels = None if task.ridge else _SIGNS
    return PaperFit(_make_problem(excess_risk=2.0, max_epsilon=cap, columns=columns, penalty=penalty), task, labels)


def _paper_minima(cap: float) -> Pair:
    """Build a pair of minima under the noise of one level; under strong penalties the logistic loss is nearly linear there."""
    fit = _paper_fit(Task.LOGISTIC_OUTPUT, cap, columns=1, penalty=_STRONG)
    left, right = (fit.exact_risk(rows) for rows in _labelled_rows(1))
    return hypotheses_pair("its minima", (left, right), Fraction(2), sensitivity=fit.minimum_sensitivity())


def _noise_reduction() -> Sequence[Pair]:
    request = linear.NoiseReduction(_paper_fit(Task.LOGISTIC_OUTPUT, 60.0), rungs=8)
    return (
        _paper_minima(cap=60.0),
        _paper_moments(),
        _test_pair(request._rule),
        request_pair("whole fits", request),
    )


def _paper_moments() -> Pair:
    """Build a pair of moments under the noise of one level."""
    fit = _paper_fit(Task.RIDGE_COVARIANCE, 40.0)
    left, right = (measure_moments(fit.measure(read_rows(*table)), full=False)[0] for table in _CORNERS)
    return _moments_pair((left, right), Ladder((Fraction(1),)))


def _doubling_pairs() -> Sequence[Pair]:
    return _paper_moments(), request_pair("whole fits", linear.Doubling(_paper_fit(Task.RIDGE_COVARIANCE, 40.0)))


def _theory_pairs() -> Sequence[Pair]:
    request = linear.TheoryInversion(_paper_fit(Task.LOGISTIC_OUTPUT, 200.0))
    return _paper_minima(cap=200.0), _paper_moments(), request_pair("whole fits", request)


# -------------------------------------------------------------------------------------------------- trials and checks


def _black_box() -> Sequence[Pair]:
    """Attack with a trainer that is exactly epsilon-DP and passes as rarely on one side as that allows."""
    ladder = BlackBoxLadder(Ladder.of([Fraction(1, 2), Fraction(1)]))

    def run_ladder(passes: Callable[[Fraction], Fraction], bits: BitSource) -> Outcomes:
        def train_once(level: Fraction, bits: BitSource | None) -> Attempt[None]:
            return Attempt(None, float(sample_bernoulli(passes(level), bits=bits)))

        result = ladder.run(train_once, score=1.0, bits=bits)
        return Outcomes.of([-1 if result.rung is None else result.rung], [float(result.loss.epsilon)])

    left = repeat(partial(run_ladder, lambda level: Fraction(9, 10)))
    right = repeat(partial(run_ladder, lambda level: Fraction(9, 10) * Fraction(math.exp(-level))))
    claim = ExPost(PureGuarantee(ladder.guarantee.epsilon))
    return (Pair("passes often or rarely", claim, left, right, most_runs=8000),)


def _residual_check() -> Sequence[Pair]:
    """Attack with one row that exceeds the reach as far as it can, and on the other side not at all."""
    check = linear.ResidualCheck(np.array([2.0, 0.0]), 1.0, UnitBall(2), leash=3.0)
    cap = Fraction(4)

    def run_check(rows: UnitRows, bits: BitSource) -> Outcomes:
        checked = check.climb(rows, scale=2.0, cap=cap, bits=bits)
        return Outcomes.of([[checked.noisy, checked.enough]], [float(checked.epsilon)])

    sides = [
        UnitRows(read_rows(np.array([[1.0, 0.0]]), np.array([target])), UnitBall(2), grid_numbers(1.0))
        for target in (-1.0, 1.0)
    ]
    sealed = check._seal_contributions(sides[0]), check._seal_contributions(sides[1])
    return (
        path_pair("its reading", DiscreteLaplacePath, sealed, Ladder((Fraction(1),)), PureGuarantee(Fraction(1))),
        Pair.repeated("a residual of 3 or of 1", ExPost(PureGuarantee(cap)), run_check, *sides, most_runs=2000),
    )
