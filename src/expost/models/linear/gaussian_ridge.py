"""Ridge regression from moments under Gaussian noise, stopped by a free certificate."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expost.accounting.zcdp import ConcentratedTotal
from expost.accuracy.climb import climb
from expost.accuracy.gaussian_envelope import GaussianEnvelope
from expost.accuracy.ridge_certificate import Certified, ExcessRiskCertificate
from expost.core import (
    InvalidRequest,
    Ladder,
    Loss,
    Measure,
    Outcome,
    Release,
    Request,
    Sealed,
    Step,
    ZeroConcentratedGuarantee,
    ZeroConcentratedLoss,
)
from expost.core.rational import rational
from expost.data.matrix import RowSource
from expost.data.moments import EuclideanLayout
from expost.models.linear.approx_price import ApproxPrice
from expost.models.linear.certified_ridge import RidgeRelease
from expost.models.linear.model import LinearModel
from expost.models.linear.problem import Problem
from expost.noise import BitSource, GaussianPath
from expost.noise.level import check_gaussian_ladder

__all__ = ["SQUARED_DISTANCE", "GaussianRidge", "largest_rho"]

SQUARED_DISTANCE = Fraction(9, 2)
"""How far one row can move (x x', x y), squared, in the Euclidean norm."""

_RUNGS = 24
_SPAN = 2000  # the first rung's rho is this far below the cap's: a factor of 45 in the noise
_SAME_LAW = 1e-9  # more than the distance between lattice and real Gaussians of this variance; part of every failure
_CITATIONS = ("docs/proofs/gaussian-ridge.md", "docs/proofs/gaussian-path.md", "BS16, Lemma 2.3")


class GaussianRidge:
    """Releases X'X and X'y under Gaussian noise of growing precision until a certificate holds.

    Guarantee: zCDP, known only after the run: the rho of the last rung read, at most the cap, which is the largest rho
        that implies (max_epsilon, delta)-DP.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: sqrt(9/2) for (x x', x y) of rows and targets within 1 (L2).
    Accuracy: excess risk within the target except with the failure probability, over all rungs.
    Numerics: exact integer moments and noise; the certificate is computed in floats from released numbers.
    Reference: docs/proofs/gaussian-ridge.md; docs/proofs/gaussian-path.md; CKS20, Theorem 4; BS16, Lemma 2.3.
    """

    question = "ridge regression"

    def __init__(self, problem: Problem, delta: Fraction) -> None:
        target = problem.aim.target
        if target is not None and target.measure is not Measure.EXCESS_RISK:
            raise InvalidRequest("Expected an excess risk or an epsilon beside delta", do="Leave delta out for scores")
        self._problem, self._delta = problem, delta
        self._layout = EuclideanLayout(problem.ball)
        cap = largest_rho(problem.aim.cap, delta)
        one = target is None
        self._ladder = Ladder((cap,)) if one else Ladder.geometric(cap / _SPAN, cap, rungs=_RUNGS)
        check_gaussian_ladder(self._ladder, self._layout.sensitivity.amount)

    @property
    def worst_case(self) -> Loss:
        return ZeroConcentratedLoss(self._ladder.cap)

    def priced_in(self, definitions: set[str]) -> Request:
        """The form of this request that accounts of these definitions can pay for: as (epsilon, delta), or as rho."""
        return ApproxPrice(self, self._problem.aim.cap, self._delta) if definitions == {"approx"} else self

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> Sealed:
        return self._layout.measure(self._problem.unit_rows(source))

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[LinearModel]:
        path = GaussianPath(sealed, self._ladder, bits=bits)
        seen: list[Certified] = []

        def accepts(values: NDArray[Any], start: int) -> NDArray[np.bool_]:
            seen.extend(self._certify(row, start + offset) for offset, row in enumerate(values))
            return np.array([self._good_enough(seen[start + offset]) for offset in range(len(values))])

        # One rung at a time: every rung that is read is drawn afresh, and paid.
        rung = climb(cast(Any, path), accepts, block=1)  # estimates are floats, which the certificate reads alike
        last = len(self._ladder) - 1 if rung is None else rung
        return self._release(path.at(last), seen, last, met=rung is not None)

    def _certify(self, values: NDArray[np.float64], rung: int) -> Certified:
        moments = self._layout.unpack(values, self._problem.rows)
        deviation = (
            math.sqrt(float(SQUARED_DISTANCE) / (2 * float(self._ladder[rung]))) / self._problem.rows * (1 + 1e-9)
        )
        failure = float(self._problem.aim.failure_probability) / len(self._ladder) * (1 - _SAME_LAW)
        envelope = GaussianEnvelope.of(self._problem.ball.dimension, failure)
        best = ExcessRiskCertificate(self._problem.penalty, envelope).best(moments.gram, moments.cross, scale=deviation)
        return Certified(best.theta, best.bound * self._problem.risk_unit)

    def _good_enough(self, certified: Certified) -> bool:
        aim = self._problem.aim
        return aim.target is None or certified.bound <= aim.tolerance

    def _release(
        self, values: NDArray[np.float64], seen: list[Certified], last: int, *, met: bool
    ) -> Release[LinearModel]:
        problem, rho = self._problem, self._ladder[last]
        outcome = Outcome.FIXED if problem.aim.target is None else Outcome.CERTIFIED if met else Outcome.NOT_MET
        receipt = problem.receipt(
            question=self.question,
            method="moments under discrete Gaussian noise, residual certificate",
            promise=ZeroConcentratedGuarantee(self._ladder.cap),
            bill=ZeroConcentratedLoss(rho),
            outcome=outcome,
            achieved=seen[last].bound,
            rung=last,
            rungs=len(self._ladder),
            breakdown={"generation": rho, "testing": Fraction(0)},
            citations=_CITATIONS,
            terms=problem.terms | {"delta": self._delta, "epsilon at delta": self._epsilon(rho)},
        )
        steps = tuple(
            Step(level, each.bound, 0.0, each.bound)
            for level, each in zip(self._ladder, seen[: last + 1], strict=False)
        )
        model = problem.model(seen[last].theta)
        moments = self._layout.unpack(values, problem.rows)
        return Release(RidgeRelease.of(model, moments), receipt, climb=steps)

    def _epsilon(self, rho: Fraction) -> float:
        return ConcentratedTotal(rho, Fraction(0)).epsilon(self._delta)


def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """A rho, as large as six digits allow, that implies (epsilon, delta)-DP (CKS20, Proposition 12).

    >>> rho = largest_rho(Fraction(1), Fraction(1, 10**6))
    >>> ConcentratedTotal(rho, Fraction(0)).epsilon(Fraction(1, 10**6)) <= 1 and rho > Fraction(1, 100)
    True
    """
    low, high = 0.0, float(epsilon)  # rho-zCDP with rho > epsilon implies no epsilon at a useful delta
    for _ in range(60):
        middle = (low + high) / 2
        fits = middle > 0 and ConcentratedTotal(Fraction(middle), Fraction(0)).epsilon(delta) <= float(epsilon)
        low, high = (middle, high) if fits else (low, middle)
    digits = math.floor(math.log10(low)) - 5 if low > 0 else 0
    grid = Fraction(10) ** digits
    rho = math.floor(Fraction(low) / grid) * grid
    if rho <= 0:
        raise InvalidRequest("Expected an epsilon and delta that leave room for noise", got=epsilon, do="Raise delta")
    return rational(rho, "rho")
