"""COVNR and OUTPUTNR: gradual release of hypotheses and an above-threshold test of each (LNRWW17)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from expost.accuracy.paper2017 import TestPlan
from expost.core import Adjacency, Ladder, Loss, PureLoss, Release, Sensitivity
from expost.core.rational import round_up
from expost.data.matrix import RowSource, UnitRows
from expost.models.linear.model import LinearModel
from expost.models.linear.paper_fit import PaperFit
from expost.models.linear.risk import query_step, query_units
from expost.noise import AboveThreshold, BitSource

__all__ = ["NoiseReduction"]

_RUNGS = 1000  # LNRWW17, Appendix B
_BLOCK = 64


class NoiseReduction:
    """Hypotheses with less and less noise, each tested in private, until one is accurate enough.

    ``authors`` follows the authors' code instead of the theorems: their optimised threshold and their ladder, the whole
    noisy matrix, rescaling instead of minimising in the ball. Where their convention understates the cost of the
    test the bill is the corrected one, and the receipt's terms carry theirs.

    Guarantee: pure ex-post DP, known only after the run: the last rung plus the test; at most the top rung plus the test.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 4 for the moments or 2 sqrt(p) G / (n lambda) for the minimum (L1); (M + 1)^2 / n or 2 M / n for a query.
    Accuracy: excess risk within the target except with the failure probability (authors' constant: 1.09 times it).
    Numerics: exact integer noise; queries are rounded to a grid, the rounding is part of their sensitivity.
    Reference: LNRWW17, Algorithms 3 and 5, Lemma 2.8, Theorems 3.2 and 3.4; docs/errata-2017.md.
    """

    def __init__(self, fit: PaperFit, *, authors: bool = False, rungs: int | None = None) -> None:
        self._fit, self._authors = fit, authors
        self._rungs = _RUNGS if rungs is None else rungs
        self._rule = self._build_rule()
        self._ladder = self._build_ladder()

    # What it can cost ---------------------------------------------------------------------------------------------

    def _test(self) -> TestPlan:
        numbers, fit = self._fit.numbers, self._fit
        plan = numbers.authors_test if self._authors else numbers.theorem_test
        return plan(fit.tolerance, fit.failure, self._rungs)

    def _build_rule(self) -> AboveThreshold:
        """The test in lattice units; Laplace noise of scales 2 and 4 Delta / epsilon (LNRWW17, Algorithm 2)."""
        step = query_step(self._fit.tolerance)
        units = query_units(self._fit.numbers.query_sensitivity, self._fit.tolerance)
        # A plan for another sensitivity keeps its noise, so epsilon is what it really is.
        numbers = self._fit.numbers
        planned = numbers.authors_query_sensitivity if self._authors else numbers.query_sensitivity
        epsilon = round_up(self._test().epsilon * (units * step) / planned)
        return AboveThreshold.paper2017(
            -math.floor(self._test().threshold / step),
            Sensitivity(units, adjacency=Adjacency.REPLACE_ONE),
            epsilon=epsilon,
        )

    @property
    def _test_epsilon(self) -> Fraction:
        return self._rule.guarantee.epsilon

    def _build_ladder(self) -> Ladder:
        aim = self._fit.problem.aim
        left = aim.afford(self._test_epsilon + Fraction(1, self._fit.problem.rows))
        left = aim.cap - self._test_epsilon
        levels = self._fit.numbers.levels(self._fit.tolerance, self._rungs, printed=self._authors)
        low, high = round_up(levels[0]), min(round_up(levels[-1]), left)
        return Ladder.geometric(low, high, rungs=self._rungs) if low < high else Ladder((high,))

    @property
    def question(self) -> str:
        return f"linear model minimising {self._fit.loss.name}"

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._ladder.cap + self._test_epsilon)

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._fit.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return self._fit.measure(source)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        risk = self._fit.exact_risk(rows)
        hypotheses = self._fit.hypotheses(rows, self._ladder, risk=risk, authors=self._authors, bits=bits)
        session = self._rule.open(bits=bits)
        last, met = len(self._ladder) - 1, False
        for start in range(0, len(self._ladder), _BLOCK):
            thetas = hypotheses.block(start, min(start + _BLOCK, len(self._ladder)))
            queries = risk.seal_excess(
                thetas, sensitivity=self._fit.numbers.query_sensitivity, tolerance=self._fit.tolerance
            )
            hit = session.ask_until_above(queries)
            if hit is not None:
                last, met = start + hit[0], True
                break
        theta = np.asarray(thetas[-1 if hit is None else hit[0]])
        return self._release(theta, last, session.loss.epsilon, met=met)

    def _authors_count(self, level: float) -> dict[str, float]:
        """What the authors' figures show, and what their program prints: half of the test (docs/errata-2017.md)."""
        testing = self._test().epsilon
        return {
            "epsilon as the authors count": testing + level,
            "epsilon as the authors' program prints": testing / 2 + level,
        }

    def _release(self, theta: np.ndarray, rung: int, testing: Fraction, *, met: bool) -> Release[LinearModel]:
        level = self._ladder[rung]
        theirs = self._authors_count(float(level)) if self._authors else {}
        return self._fit.release(
            theta,
            method=f"{self._fit.task.value} perturbation with noise reduction and above-threshold (2017)",
            generation=level,
            testing=testing,
            promise=self._ladder.cap + self._test_epsilon,
            met=met,
            rung=rung,
            rungs=len(self._ladder),
            terms=theirs,
        )
