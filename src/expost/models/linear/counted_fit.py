"""A fit whose number of rows is private: rows are counted under noise first, then the model is fitted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import Adjacency, ExpostError, InvalidRequest, Ladder, Loss, PureLoss, Release, Sealed, Sensitivity
from expost.data.row_source import RowSource
from expost.models.linear.linear_fit import FitPlan, LinearModel, Problem
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["CountedFit", "NoisyCount"]

_FAILURES = Fraction(1, 100)  # of the failure probability, for a count above the true one
_MARGIN = 0.05  # the count is precise enough where it gives away this share of the rows
# Levels of the count do not depend on the cap, which only ends them: a larger cap changes no price.
_LEAST_LEVEL, _RATIO, _RUNGS = Fraction(1, 10**6), Fraction(7, 5), 64
_MOST_SHARE, _MOST_LEVEL = Fraction(1, 10), Fraction(1)  # of the cap, and in all: noise of one row is small enough
_GIVEN_SHARE = Fraction(1, 10)  # of a given epsilon
_FEWEST = 17  # units of noise beyond the margin: a table of four times as many rows is then never mistaken for so few
_LIKELY_ROWS = 10**7  # arguments are tried with this many rows before anything is paid
_CITATIONS = ("docs/proofs/added-units.md", "LNRWW17, Theorem 2.7")


@dataclass(frozen=True)
class NoisyCount:
    """A number that is below the true number of units, but for the failure probability, and what it cost.

    ``enough`` is false where the table has too few units for its noise.
    """

    units: int
    epsilon: Fraction
    enough: bool


class CountedFit(FitPlan):
    """Counts units under less and less noise, then fits with a number that is surely below the true one.

    The risk is the sum of losses over that number plus the penalty. The sum is over at least so many units, so a
    tolerance of that risk holds for the mean too.

    Guarantee: pure ex-post DP, known only after the run: the rung at which the count was precise enough plus what the
        fit costs; at most the cap.
    Adjacency: add or remove one unit; the number of units is private.
    Sensitivity: 1 for the count; that of the fit.
    Accuracy: that of the fit, with a hundredth of the failure probability for a count that is too high.
    Numerics: exact integers and exact noise for the count; see the fit for the rest.
    Reference: LNRWW17, Theorem 2.7; docs/proofs/added-units.md; docs/proofs/ex-post-composition.md.
    """

    _adds_rows = _weighs_rows = True

    def __init__(self, problem: Problem, build: Callable[[Problem], FitPlan]) -> None:
        self._problem, self._build, aim = problem, build, problem.aim
        if aim.epsilon is not None:
            self._ladder = Ladder((min(aim.epsilon * _GIVEN_SHARE, _MOST_LEVEL),))
        else:
            levels = (_LEAST_LEVEL * _RATIO**rung for rung in range(_RUNGS))
            most = min(aim.cap * _MOST_SHARE, _MOST_LEVEL)
            self._ladder = Ladder(tuple(level for level in levels if level < most) or (most,))
        # What is wrong with the arguments, and a cap that is too low for any table, is refused here.
        trial = self._plan_for(NoisyCount(_LIKELY_ROWS, self._ladder[0], True))
        if not isinstance(trial.worst_case, PureLoss):
            raise InvalidRequest(
                "Expected a public number of rows together with delta", do="Pass rows=, about how many there are"
            )
        self._asked = trial.question

    @property
    def question(self) -> str:
        return self._asked

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._problem.aim.cap)

    def _plan_for(self, count: NoisyCount) -> FitPlan:
        """Return the plan of the fit with what the count left."""
        aim = self._problem.aim
        left = replace(
            aim,
            cap=aim.cap - count.epsilon,
            epsilon=None if aim.epsilon is None else aim.epsilon - count.epsilon,
            failure_probability=aim.failure_probability * (1 - _FAILURES),
        )
        return self._build(replace(self._problem, rows=count.units, aim=left))

    def measure(self, source: RowSource) -> tuple[Sealed, RowSource]:
        exact = self._unit_rows(source).count_units()
        return Sealed(exact, Sensitivity(1, adjacency=Adjacency.ADD_REMOVE)), source

    def climb(self, sealed: tuple[Sealed, RowSource], bits: BitSource | None) -> Release[LinearModel]:
        exact, source = sealed
        count = self._count_units(exact, bits)
        try:
            if not count.enough and self._problem.aim.target is not None:
                raise InvalidRequest("Expected more rows", do="Raise the cap")
            plan = self._plan_for(count)
        except ExpostError:  # a fact about the noisy count: too few rows for the cap
            return self._release_zero(count)
        release = plan.climb(plan.measure(replace(source, rows=count.units)), bits)
        receipt = release.receipt
        return replace(
            release,
            receipt=replace(
                receipt,
                promise=self.worst_case.promise(),
                bill=PureLoss(receipt.bill.amounts()["epsilon"] + count.epsilon),
                breakdown={**receipt.breakdown, "count": count.epsilon},
                terms={**receipt.terms, **self._count_terms(count)},
                citations=(*receipt.citations, *_CITATIONS),
            ),
        )

    def _count_units(self, exact: Sealed, bits: BitSource | None) -> NoisyCount:
        """Read the count with less and less noise until its margin is small."""
        path = DiscreteLaplacePath(exact, self._ladder, bits=bits)
        failure = float(self._problem.aim.failure_probability * _FAILURES) / _RUNGS
        for rung, level in enumerate(self._ladder):
            # P(noise > t) <= exp(-t level) / 2 for real Laplace noise; one unit more for the lattice.
            margin = math.log(1 / (2 * failure)) / float(level) * (1 + 1e-9) + 1
            noisy = int(path.at(rung)[0])
            if margin <= _MARGIN * noisy:
                break
        fewest = math.ceil(_FEWEST / float(level) + margin)
        units = math.floor(noisy - margin)
        return NoisyCount(max(units, fewest), level, units >= fewest)

    def _count_terms(self, count: NoisyCount) -> dict[str, Any]:
        own = "rows" if self._problem.neighbours.unit.is_row else "units"
        return {own: f"at least {count.units}, a noisy count less its margin; their true number is private"}

    def _release_zero(self, count: NoisyCount) -> Release[LinearModel]:
        """Return coefficients of zero: the count shows that the cap is too low for this table."""
        return self.release_model(
            np.zeros(self._problem.ball.dimension),
            method="none: too few rows for the epsilon allowed, coefficients are zero",
            generation=Fraction(0),
            bill=PureLoss(count.epsilon),
            breakdown={"count": count.epsilon},
            met=False,
            terms=self._problem.terms | self._count_terms(count),
            citations=_CITATIONS,
        )
