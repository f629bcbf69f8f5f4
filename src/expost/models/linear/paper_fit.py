"""The methods of the 2017 paper (LNRWW17) with errata fixed: noise reduction, doubling, theory inversion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.paper2017 import PaperProblem, Task, TestPlan
from expost.core import Adjacency, InvalidRequest, Ladder, Loss, Measure, Norm, PureLoss, Release, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.data.row_source import RowSource
from expost.data.second_moment import MomentLayout
from expost.data.unit_ball import GRID_BITS, UnitRows
from expost.models.linear.linear_fit import FitPlan, LinearModel, Problem
from expost.models.linear.output_perturbation import OutputHypotheses, project_to_ball
from expost.models.linear.risk_minimum import SealedRisk, SolverAccuracy, excess_step, excess_units
from expost.models.linear.row_loss import LogisticLoss, RowLoss, TruncatedSquare
from expost.noise import AboveThreshold, BitSource, DiscreteLaplacePath

__all__ = [
    "CovarianceHypotheses",
    "Doubling",
    "Hypotheses",
    "NoiseReduction",
    "PaperFit",
    "TheoryInversion",
    "measure_moments",
    "minimize_in_ball",
]

Floats = NDArray[np.float64]

_COARSE_BITS = 14  # the noise of the first rungs then fits into 64 bits
_RUNGS = 1000  # LNRWW17, Appendix B
_BLOCK = 64
_CITATIONS = ("LNRWW17, Theorem 3.2", "LNRWW17, Theorem 3.4", "docs/errata-2017.md")


class CovarianceHypotheses:
    """Minima of the noisy quadratic over the ball (LNRWW17, Algorithm 3 and equation 3.1).

    ``rescale`` keeps both halves of the noisy matrix, solves the noisy normal equations and shrinks the solution onto the ball, as the authors' code does;
    otherwise the quadratic is minimized over the ball even where noise made it indefinite.
    """

    def __init__(self, fit: PaperFit, rows: UnitRows, ladder: Ladder, *, rescale: bool, bits: BitSource | None) -> None:
        sealed, self._layout = measure_moments(rows, full=rescale)
        self._path = DiscreteLaplacePath(sealed, ladder, bits=bits)
        self._fit, self._rescale = fit, rescale

    def block(self, start: int, stop: int) -> Floats:
        problem, radius = self._fit.problem, self._fit.numbers.radius
        grams, crosses = self._layout.unpack_matrices(self._path.block(start, stop), problem.rows)
        curvatures = grams + problem.penalty * np.eye(crosses.shape[-1])
        if self._rescale:
            solved: Floats = np.asarray(np.linalg.solve(curvatures, crosses[..., None])[..., 0], np.float64)
            return project_to_ball(solved, radius)
        pairs = zip(curvatures, crosses, strict=True)
        return np.array([minimize_in_ball(curvature, cross, radius) for curvature, cross in pairs])


Hypotheses = CovarianceHypotheses | OutputHypotheses
"""A sequence of hypotheses, each less noisy than the last."""


def minimize_in_ball(curvature: Floats, cross: Floats, radius: float) -> Floats:
    """Minimize t' curvature t / 2 - cross . t over |t| <= radius, for any symmetric matrix.

    >>> minimize_in_ball(np.diag([2.0, -1.0]), np.array([2.0, 0.1]), 2.0).round(2)
    array([0.66, 1.89])
    """
    values, vectors = np.linalg.eigh(curvature)
    turned = vectors.T @ cross
    if values[0] > 0:
        inside = turned / values
        if np.linalg.norm(inside) <= radius:
            return np.asarray(vectors @ inside)
    # On the border: (curvature + shift) t = cross with shift above -smallest eigenvalue (MS83, Lemma 2.4).
    low = max(-values[0], 0.0)
    high = low + float(np.linalg.norm(turned)) / radius + 1e-300
    for _ in range(100):
        middle = (low + high) / 2
        long = np.linalg.norm(turned / np.maximum(values + middle, 1e-300)) > radius
        low, high = (middle, high) if long else (low, middle)
    border = turned / np.maximum(values + high, 1e-300)
    missing = radius**2 - float(border @ border)
    if missing > 1e-9 * radius**2:  # the hard case: the rest goes along the flattest direction
        border[0] += math.copysign(math.sqrt(missing), border[0] if border[0] else 1.0)
    return np.asarray(vectors @ border)


def measure_moments(rows: UnitRows, *, full: bool) -> tuple[Sealed, MomentLayout]:
    """Seal the moments of ridge regression; ``full`` keeps both halves of the matrix, as in the paper."""
    layout = MomentLayout(rows.ball, full=full, coarse=_COARSE_BITS)
    return layout.measure(rows), layout


@dataclass(frozen=True)
class PaperFit:
    """One of the paper's learning problems: ridge or logistic regression with rows of 1-norm at most 1."""

    problem: Problem
    task: Task
    labels: Callable[[Any], Floats] | None = None
    """Turns labels into signs, for logistic regression."""

    def __post_init__(self) -> None:
        target = self.problem.aim.target
        if target is None or target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest(
                "Expected an excess risk: the paper's methods support no other target", do="Pass excess_risk="
            )
        if self.problem.ball.norm is not Norm.L1:
            raise InvalidRequest("Expected rows bounded in the 1-norm", got="l2", do='Pass feature_norm="l1"')

    @cached_property
    def numbers(self) -> PaperProblem:
        """Return the paper's formulas for this problem."""
        return PaperProblem(self.task, self.problem.rows, self.problem.ball.dimension, self.problem.penalty)

    @cached_property
    def loss(self) -> RowLoss:
        """Return the loss that is minimized; no residual in the ball comes near where the square is cut off."""
        return TruncatedSquare(2 * self.numbers.radius + 1) if self.task.ridge else LogisticLoss()

    def measure(self, source: RowSource) -> UnitRows:
        """Return the rows as fits read them."""
        return UnitRows(source, self.problem.ball, self.labels or self.problem.read_targets)

    def exact_risk(self, rows: UnitRows) -> SealedRisk:
        """Return the risk on the data; its values leave only as sealed queries."""
        scale = 2.0**-GRID_BITS if self.task.ridge else 1.0
        return SealedRisk(rows, self.loss, self.problem.penalty, target_scale=scale)

    def minimum_sensitivity(self, *, printed: bool = False) -> float:
        """Bound how far one row moves the solver's minimum, in the 1-norm."""
        numbers, ball = self.numbers, self.problem.ball
        exact = numbers.printed_output_sensitivity if printed else numbers.output_sensitivity
        accuracy = SolverAccuracy(self.loss, ball, rows=self.problem.rows, penalty=self.problem.penalty)
        return exact + 2 * float(np.sqrt(ball.dimension)) * accuracy.bound_distance(numbers.radius, 0.0)

    def draw_hypotheses(
        self,
        rows: UnitRows,
        ladder: Ladder,
        *,
        risk: SealedRisk | None = None,
        authors: bool = False,
        bits: BitSource | None,
    ) -> Hypotheses:
        """Return models with the noise of each rung, from perturbed moments or from the perturbed minimum of a risk.

        ``authors`` follows the authors' code: the whole noisy matrix, rescaling, and the sensitivity as it is printed.
        """
        if self.task is Task.RIDGE_COVARIANCE:
            return CovarianceHypotheses(self, rows, ladder, rescale=authors, bits=bits)
        exact = self.exact_risk(rows) if risk is None else risk
        sensitivity = self.minimum_sensitivity(printed=authors)
        return OutputHypotheses(exact, ladder, sensitivity=sensitivity, radius=self.numbers.radius, bits=bits)


class _PaperPlan(FitPlan):
    """Base of the paper's methods."""

    def __init__(self, fit: PaperFit) -> None:
        self._fit, self._problem, self._loss, self._grid_target = fit, fit.problem, fit.loss, fit.labels

    def _release_hypothesis(
        self, theta: Floats, *, method: str, met: bool = True, **facts: Any
    ) -> Release[LinearModel]:
        """Return the model with its receipt; a missed target is flagged, and the exact minimum never leaves."""
        achieved, method = self._problem.aim.tolerance if met else None, f"{self._fit.task.value} perturbation{method}"
        return self.release_model(theta, method=method, met=met, achieved=achieved, citations=_CITATIONS, **facts)


class NoiseReduction(_PaperPlan):
    """Hypotheses with less and less noise, each tested in private, until one is accurate enough.

    ``authors`` follows the authors' code instead of the theorems: their optimised threshold and their ladder, the whole
    noisy matrix, rescaling instead of minimizing in the ball. Where their convention understates the cost of the
    test the bill is the corrected one, and the receipt's terms carry theirs.

    Guarantee: pure ex-post DP, known only after the run: the last rung plus the test; at most the top rung plus the test.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 4 for the moments or 2 sqrt(p) G / (n lambda) for the minimum (L1); (M + 1)^2 / n or 2 M / n for a query.
    Accuracy: excess risk within the target except with the failure probability (authors' constant: 1.09 times it).
    Numerics: exact integer noise; queries are rounded to a grid, the rounding is part of their sensitivity.
    Reference: LNRWW17, Algorithms 3 and 5, Lemma 2.8, Theorems 3.2 and 3.4; docs/errata-2017.md.
    """

    def __init__(self, fit: PaperFit, *, authors: bool = False, rungs: int | None = None) -> None:
        super().__init__(fit)
        self._authors = authors
        rungs = _RUNGS if rungs is None else rungs
        numbers, tolerance, aim = fit.numbers, fit.problem.goal, fit.problem.aim
        choose = numbers.authors_test if authors else numbers.theorem_test
        self._chosen: TestPlan = choose(tolerance, float(aim.failure_probability), rungs)
        # The test in lattice units; Laplace noise of scales 2 and 4 Delta / epsilon (LNRWW17, Algorithm 2). A plan for
        # another sensitivity keeps its noise, so epsilon is what it really is.
        step, units = excess_step(tolerance), excess_units(numbers.query_sensitivity, tolerance)
        planned = numbers.authors_query_sensitivity if authors else numbers.query_sensitivity
        self._rule = AboveThreshold.paper2017(
            -math.floor(self._chosen.threshold / step),
            Sensitivity(units, adjacency=Adjacency.REPLACE_ONE),
            epsilon=round_up(self._chosen.epsilon * (units * step) / planned),
        )
        self._test_epsilon = self._rule.guarantee.epsilon
        aim.check_price(self._test_epsilon + Fraction(1, fit.problem.rows))
        levels = numbers.levels(tolerance, rungs, printed=authors)
        low, high = round_up(levels[0]), min(round_up(levels[-1]), aim.cap - self._test_epsilon)
        self._ladder = Ladder.geometric(low, high, rungs=rungs) if low < high else Ladder((high,))

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._ladder.cap + self._test_epsilon)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        fit, rungs = self._fit, len(self._ladder)
        risk = fit.exact_risk(rows)
        hypotheses = fit.draw_hypotheses(rows, self._ladder, risk=risk, authors=self._authors, bits=bits)
        session = self._rule.open(bits=bits)
        sensitivity = fit.numbers.query_sensitivity
        rung, met = rungs - 1, False
        for start in range(0, rungs, _BLOCK):
            thetas = hypotheses.block(start, min(start + _BLOCK, rungs))
            hit = session.ask_until_above(risk.seal_excess(thetas, sensitivity=sensitivity, tolerance=fit.problem.goal))
            if hit is not None:
                rung, met = start + hit[0], True
                break
        level, theirs = self._ladder[rung], {}
        if self._authors:
            # What the authors' figures show, and what their program prints: half of the test (docs/errata-2017.md).
            theirs = {
                "epsilon as the authors count": self._chosen.epsilon + float(level),
                "epsilon as the authors' program prints": self._chosen.epsilon / 2 + float(level),
            }
        return self._release_hypothesis(
            np.asarray(thetas[-1 if hit is None else hit[0]]),
            method=" with noise reduction and above-threshold (2017)",
            generation=level,
            testing=session.loss.epsilon,
            met=met,
            rung=rung,
            rungs=rungs,
            terms=self._problem.terms | theirs,
        )


class Doubling(_PaperPlan):
    """A fresh hypothesis at each level, the next level twice the last, and a fresh noisy estimate of its excess risk.

    Guarantee: pure ex-post DP, known only after the run: the sum over the levels tried of level and test; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: that of NoiseReduction.
    Accuracy: excess risk within the target except with the failure probability.
    Numerics: exact integer noise; estimates are rounded to a grid, the rounding is part of their sensitivity.
    Reference: LNRWW17, Algorithm 4 and Theorem A.2 (with the tail gamma / (2 T), which its proof overlooks).
    """

    def __init__(self, fit: PaperFit) -> None:
        super().__init__(fit)
        aim, tries = fit.problem.aim, fit.numbers.doublings(fit.problem.goal)
        # Theorem A.2: P(noise >= alpha / 2) = exp(-alpha / (2 scale)) / 2 = gamma / T.
        scale = fit.problem.goal / (2 * max(math.log(tries / (2 * float(aim.failure_probability))), 0.5))
        units = excess_units(fit.numbers.query_sensitivity, fit.problem.goal)
        self._test = round_up(units * excess_step(fit.problem.goal) / scale)  # the price of one test
        first = Fraction(1, fit.problem.rows)
        aim.check_price(first + self._test)
        levels: list[Fraction] = []
        for step in range(tries):
            level = first * 2**step
            if sum(levels) + level + (step + 1) * self._test > aim.cap:
                break
            levels.append(level)
        self._levels = tuple(levels)

    @property
    def worst_case(self) -> Loss:
        return PureLoss(sum(self._levels, Fraction(0)) + len(self._levels) * self._test)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        fit, risk = self._fit, self._fit.exact_risk(rows)
        enough = -math.floor(fit.problem.goal / 2 / excess_step(fit.problem.goal))
        sensitivity, rung = fit.numbers.query_sensitivity, -1
        for level in self._levels:
            rung += 1
            theta = np.asarray(fit.draw_hypotheses(rows, Ladder((level,)), risk=risk, bits=bits).block(0, 1)[0])
            (query,) = risk.seal_excess(theta[None], sensitivity=sensitivity, tolerance=fit.problem.goal)
            met = int(DiscreteLaplacePath(query, Ladder((self._test,)), bits=bits).at(0)[0]) >= enough
            if met:
                break
        return self._release_hypothesis(
            theta,
            method=", doubling (2017)",
            generation=sum(self._levels[: rung + 1], Fraction(0)),
            testing=(rung + 1) * self._test,
            met=met,
            rung=rung,
            rungs=len(self._levels),
        )


class TheoryInversion(_PaperPlan):
    """One hypothesis at the level that the (corrected) utility theorem requires.

    The theorems bound the *expected* excess risk; Markov's inequality turns that into a probability, so the level is the
    one whose expected excess risk is failure_probability times the target.

    Guarantee: pure DP, known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: that of NoiseReduction's hypotheses.
    Accuracy: excess risk within the target except with the failure probability, by Markov's inequality.
    Numerics: exact integer noise.
    Reference: LNRWW17, Theorems 3.1 and 3.3; docs/errata-2017.md for their corrected constants.
    """

    def __init__(self, fit: PaperFit) -> None:
        super().__init__(fit)
        level = fit.numbers.epsilon_by_theory(fit.problem.goal * float(fit.problem.aim.failure_probability))
        self._epsilon = fit.problem.aim.check_price(round_up(level))

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._epsilon)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        theta = self._fit.draw_hypotheses(rows, Ladder((self._epsilon,)), bits=bits).block(0, 1)[0]
        method = " at the level of its utility theorem (2017)"
        return self._release_hypothesis(theta, method=method, generation=self._epsilon)
