"""The doubling method: try a level, estimate its excess risk in private, double the level (LNRWW17)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder, Loss, PureLoss, Release
from expost.core.rational import round_up
from expost.data.matrix import RowSource, UnitRows
from expost.models.linear.model import LinearModel
from expost.models.linear.paper_fit import PaperFit
from expost.models.linear.risk import ExactRisk, query_step, query_units
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["Doubling"]


class Doubling:
    """A fresh hypothesis at each level, the next level twice the last, and a fresh noisy estimate of its excess risk.

    Guarantee: pure ex-post DP, known only after the run: the sum over the levels tried of level and test; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: that of NoiseReduction.
    Accuracy: excess risk within the target except with the failure probability.
    Numerics: exact integer noise; estimates are rounded to a grid, the rounding is part of their sensitivity.
    Reference: LNRWW17, Algorithm 4 and Theorem A.2 (with the tail gamma / (2 T), which its proof overlooks).
    """

    def __init__(self, fit: PaperFit) -> None:
        self._fit = fit
        self._levels = self._affordable()

    # What it can cost ---------------------------------------------------------------------------------------------

    @property
    def _tries(self) -> int:
        return self._fit.numbers.doublings(self._fit.tolerance)

    @property
    def _test(self) -> Fraction:
        """The price of one test: noise of scale alpha / (2 ln(T / 2 gamma)) on a query of sensitivity Delta."""
        return round_up(self._units * query_step(self._fit.tolerance) / self._test_scale)

    @property
    def _test_scale(self) -> float:
        # Theorem A.2: P(noise >= alpha / 2) = exp(-alpha / (2 scale)) / 2 = gamma / T.
        return self._fit.tolerance / (2 * max(math.log(self._tries / (2 * self._fit.failure)), 0.5))

    @property
    def _units(self) -> int:
        """The sensitivity of a query in steps of its grid."""
        return query_units(self._fit.numbers.query_sensitivity, self._fit.tolerance)

    def _affordable(self) -> tuple[Fraction, ...]:
        aim, first = self._fit.problem.aim, Fraction(1, self._fit.problem.rows)
        aim.afford(first + self._test)
        levels: list[Fraction] = []
        for step in range(self._tries):
            level = first * 2**step
            if sum(levels) + level + (step + 1) * self._test > aim.cap:
                break
            levels.append(level)
        return tuple(levels)

    @property
    def question(self) -> str:
        return f"linear model minimising {self._fit.loss.name}"

    @property
    def worst_case(self) -> Loss:
        return PureLoss(sum(self._levels, Fraction(0)) + len(self._levels) * self._test)

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._fit.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return self._fit.measure(source)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        risk = self._fit.exact_risk(rows)
        for tried, level in enumerate(self._levels, start=1):
            theta = np.asarray(self._fit.hypotheses(rows, Ladder((level,)), risk=risk, bits=bits).block(0, 1)[0])
            if self._passes(risk, theta, bits):
                return self._release(theta, tried, met=True)
        return self._release(theta, tried, met=False)

    def _passes(self, risk: ExactRisk, theta: NDArray[np.float64], bits: BitSource | None) -> bool:
        fit = self._fit
        (query,) = risk.seal_excess(theta[None], sensitivity=fit.numbers.query_sensitivity, tolerance=fit.tolerance)
        noisy = int(DiscreteLaplacePath(query, Ladder((self._test,)), bits=bits).at(0)[0])
        return noisy >= -math.floor(fit.tolerance / 2 / query_step(fit.tolerance))

    def _release(self, theta: NDArray[np.float64], tried: int, *, met: bool) -> Release[LinearModel]:
        return self._fit.release(
            theta,
            method=f"{self._fit.task.value} perturbation, doubling (2017)",
            generation=sum(self._levels[:tried], Fraction(0)),
            testing=tried * self._test,
            promise=self.worst_case.amounts()["epsilon"],
            met=met,
            rung=tried - 1,
            rungs=len(self._levels),
        )
