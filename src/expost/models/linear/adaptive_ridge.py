"""Linear regression from moments under Gaussian noise, with a penalty that the data's own curvature asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accounting.zcdp import ConcentratedTotal
from expost.accuracy.gaussian_envelope import GaussianEnvelope
from expost.core import (
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    Release,
    Request,
    Sealed,
    ZeroConcentratedGuarantee,
    ZeroConcentratedLoss,
)
from expost.data.matrix import GRID_BITS, RowSource
from expost.data.moments import EuclideanLayout, Moments, measure_least_curvature
from expost.models.linear.approx_price import ApproxPrice
from expost.models.linear.certified_ridge import RidgeRelease
from expost.models.linear.gaussian_ridge import SQUARED_DISTANCE, largest_rho
from expost.models.linear.model import LinearModel
from expost.models.linear.problem import Problem
from expost.noise import BitSource, GaussianPath
from expost.noise.level import check_gaussian_ladder

__all__ = ["AdaptiveRidge"]

Floats = NDArray[np.float64]

_CURVATURE_SHARE = Fraction(1, 10)  # of rho, for the smallest eigenvalue: one number needs little
_CURVATURE_FAILURE = 0.25  # of the failure probability
_SAME_LAW = 1e-9  # more than the distance between lattice and real Gaussians of this variance
_MIXES = np.linspace(0.0, 1.0, 9)
_CITATIONS = ("Wang18, Algorithm 2", "docs/proofs/gaussian-ridge.md", "BS16, Lemma 2.3")


@dataclass(frozen=True)
class _Curvature:
    """What is known of the mean of x x': its noise is at most ``slack`` long, its smallest eigenvalue at least ``least``."""

    slack: float
    least: float

    @property
    def penalty(self) -> float:
        """The smallest penalty under which noisy curvature stays above its noise in every direction."""
        return max(2 * self.slack - self.least, 0.0)


class AdaptiveRidge:
    """Least squares from noisy X'X and X'y, with no more penalty than their noise calls for.

    A noisy matrix may be nearly singular where the exact one is not. A tenth of the budget reads the smallest eigenvalue
    of X'X; the penalty is what it lacks to twice the length of the noise, and 0 where it lacks nothing.

    Guarantee: zCDP, known before the run: the largest rho that implies (epsilon, delta)-DP.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 1 for the smallest eigenvalue of X'X (Weyl); sqrt(9/2) for (x x', x y) of rows and targets within 1 (L2).
    Accuracy: the excess risk over least squares without a penalty that holds with the failure probability, where the
        curvature that is left is certain to be positive; otherwise none is reported.
    Numerics: exact integer moments and noise; the eigenvalue's float error is part of its sensitivity.
    Reference: Wang18, Algorithm 2 (the idea; constants ours); docs/proofs/gaussian-ridge.md; CKS20, Theorem 4;
        BS16, Lemma 2.3.
    """

    question = "linear regression"

    def __init__(self, problem: Problem, delta: Fraction) -> None:
        if problem.aim.epsilon is None:
            raise InvalidRequest(
                "Expected a regularization beside an accuracy target",
                do="Give one, or pass epsilon and delta and let the noise choose it",
            )
        self._problem, self._delta = problem, delta
        self._rho = largest_rho(problem.aim.epsilon, delta)
        self._layout = EuclideanLayout(problem.ball)
        # The eigenvalue is on a far coarser grid: where the noise of the moments fits, its own does.
        check_gaussian_ladder(Ladder((self._rho * (1 - _CURVATURE_SHARE),)), self._layout.sensitivity.amount)

    @property
    def worst_case(self) -> Loss:
        return ZeroConcentratedLoss(self._rho)

    def priced_in(self, definitions: set[str]) -> Request:
        """The form of this request that accounts of these definitions can pay for: as (epsilon, delta), or as rho."""
        return ApproxPrice(self, self._problem.aim.cap, self._delta) if definitions == {"approx"} else self

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> tuple[Sealed, Sealed]:
        rows = self._problem.unit_rows(source)
        return measure_least_curvature(rows), self._layout.measure(rows)

    def climb(self, sealed: tuple[Sealed, Sealed], bits: BitSource | None) -> Release[LinearModel]:
        least, both = sealed
        share = self._rho * _CURVATURE_SHARE
        noisy = float(GaussianPath(least, Ladder((share,)), bits=bits).at(0)[0])
        values = GaussianPath(both, Ladder((self._rho - share,)), bits=bits).at(0)
        moments = self._layout.unpack(values, self._problem.rows)
        curvature = _Curvature(self._envelope.matrix * self._deviation, self._least(noisy, least))
        eigenvalues, vectors = np.linalg.eigh(moments.gram)
        turned = vectors.T @ moments.cross
        theta = turned / np.maximum(eigenvalues + curvature.penalty, curvature.slack)
        return self._release(
            vectors @ theta, moments, curvature.penalty, self._bound(eigenvalues, turned, theta, curvature)
        )

    @property
    def _deviation(self) -> float:
        """The deviation of the noise on mean moments."""
        rho = float(self._rho * (1 - _CURVATURE_SHARE))
        return math.sqrt(float(SQUARED_DISTANCE) / (2 * rho)) / self._problem.rows * (1 + 1e-9)

    @property
    def _failure(self) -> float:
        return float(self._problem.aim.failure_probability) * (1 - _SAME_LAW)

    @property
    def _envelope(self) -> GaussianEnvelope:
        return GaussianEnvelope.of(self._problem.ball.dimension, self._failure * (1 - _CURVATURE_FAILURE))

    def _least(self, noisy: float, sealed: Sealed) -> float:
        """A lower bound on the smallest eigenvalue of the mean of x x'."""
        deviation = float(sealed.sensitivity.amount) / math.sqrt(2 * float(self._rho * _CURVATURE_SHARE))
        # P(normal > t) <= exp(-t^2 / 2) / 2.
        tail = math.sqrt(2 * math.log(1 / (2 * self._failure * _CURVATURE_FAILURE)))
        lowest = noisy - (deviation * tail * (1 + 1e-9) + float(sealed.sensitivity.amount) - 2.0**GRID_BITS + 1)
        return max(lowest * 2.0**-GRID_BITS / self._problem.rows, 0.0)

    def _bound(self, eigenvalues: Floats, turned: Floats, theta: Floats, curvature: _Curvature) -> float:
        """The excess risk of theta (in the eigenbasis of the noisy matrix) over least squares without a penalty."""
        residual = (eigenvalues * theta - turned) ** 2
        reach = self._deviation * float(self._envelope.reach(np.array([np.linalg.norm(theta)]))[0])
        floors = _MIXES[:, None] * (eigenvalues - curvature.slack) + (1 - _MIXES[:, None]) * curvature.least
        floors = floors[floors.min(axis=1) > 0]
        if not len(floors):
            return math.inf
        bounds = (np.sqrt((residual / floors).sum(axis=1)) + reach / np.sqrt(floors.min(axis=1))) ** 2 / 2
        return float(bounds.min()) * self._problem.risk_unit

    def _release(self, theta: Floats, moments: Moments, penalty: float, bound: float) -> Release[LinearModel]:
        problem = self._problem
        scale = (problem.ball.shrinkage / problem.ball.bound) ** 2
        terms = problem.terms | {
            "regularization": penalty / scale,
            "regularization chosen by": "noisy smallest eigenvalue",
            "delta": self._delta,
            "epsilon at delta": ConcentratedTotal(self._rho, Fraction(0)).epsilon(self._delta),
        }
        receipt = problem.receipt(
            question=self.question,
            method="moments under discrete Gaussian noise, adaptive penalty",
            promise=ZeroConcentratedGuarantee(self._rho),
            bill=ZeroConcentratedLoss(self._rho),
            outcome=Outcome.FIXED,
            achieved=bound if math.isfinite(bound) else None,
            breakdown={"generation": self._rho * (1 - _CURVATURE_SHARE), "curvature": self._rho * _CURVATURE_SHARE},
            citations=_CITATIONS,
            terms=terms,
        )
        model = problem.model(theta)
        return Release(RidgeRelease.of(model, moments), receipt)
