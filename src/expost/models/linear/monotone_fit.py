"""A model for an absolute loss, where neighbours add or remove a row: half the noise, and monotone tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.apriori import PerturbedObjective
from expost.core import Adjacency, InvalidRequest, Measure, Release
from expost.data.matrix import RowSource
from expost.models.linear.losses import Loss
from expost.models.linear.model import LinearModel
from expost.models.linear.newton import solver_distance
from expost.models.linear.objective import TiltedRisk
from expost.models.linear.score_query import ScoreQuery
from expost.models.linear.tested_fit import Parts, TestedFit
from expost.models.linear.tilt import pure_tilt
from expost.noise import ReducedAboveThreshold

__all__ = ["MonotoneFit"]

_CROWD = 16  # the table may have this many times the rows that were declared; more would only move float errors

Floats = NDArray[np.float64]


class MonotoneFit(TestedFit):
    """Tilted minima at levels that double, each tested for the sum of its losses, which one row moves in one direction.

    The number of rows is private. ``problem.rows`` is a public number near it: the risk that is minimised is the sum of
    losses over that number, and the target is a sum of losses of at most the mean asked for times that number.

    Guarantee: pure ex-post DP, known only after the run: the sum of the levels fitted plus the test's last level; at most
        the cap.
    Adjacency: add or remove one row; the number of rows is private.
    Sensitivity: one row moves the sum of gradients by at most steepest, half of what a replaced row does, and the sum of
        losses by at most the largest loss, downward if it is added whatever the model: tests are monotone.
    Accuracy: the sum of losses is at most tolerance times ``problem.rows``, except with the failure probability; with at
        least that many rows their mean loss is within the tolerance.
    Numerics: exact noise; losses are integers, rounded against the model; float errors are bounded for tables of up to
        16 times ``problem.rows`` rows.
    Reference: docs/proofs/monotone-loss.md; docs/proofs/above-threshold.md (monotone queries); WRWR22, section 4.
    """

    def _build_risk(self, loss: Loss, rows: int) -> TiltedRisk:
        target = self._problem.aim.target
        if target is None or target.measure is not Measure.LOG_LOSS:
            raise InvalidRequest("Expected a log loss to test for", do='Pass score=("log_loss", 0.4)')
        # Half the slope: a row is there or not, its gradient is not exchanged for an opposite one.
        law = pure_tilt(self._problem.ball, loss.steepest / 2)
        return _CrowdedRisk(loss, self._problem.ball, rows, self._problem.penalty, law)

    @property
    def _query(self) -> ScoreQuery:
        return replace(super()._query, adjacency=Adjacency.ADD_REMOVE)

    def _build_rule(self) -> ReducedAboveThreshold:
        return replace(super()._build_rule(), monotone=True)

    def check(self, source: RowSource) -> None:
        if not isinstance(source, RowSource) or source.width != self._problem.ball.width:
            raise InvalidRequest("Expected the declared number of features", do="Describe the table again")

    def measure(self, source: RowSource) -> Parts | RowSource:
        """All rows, for fits and tests; sums are divided by the declared number."""
        return super().measure(replace(source, rows=self._problem.rows))

    def _release(self, theta: Floats, index: int, testing: Fraction, *, met: bool) -> Release[LinearModel]:
        release = super()._release(theta, index, testing, met=met)
        receipt = replace(
            release.receipt,
            adjacency=Adjacency.ADD_REMOVE,
            method="objective perturbation at doubling levels, monotone above-threshold for the sum of losses",
            terms={**release.receipt.terms, "rows": f"{self._problem.rows} declared, their true number is private"},
            citations=(*release.receipt.citations, "docs/proofs/monotone-loss.md"),
        )
        return replace(release, receipt=receipt)


@dataclass(frozen=True)
class _Crowded:
    """A loss whose bounds are those of a sum over more rows than were declared: for float errors only."""

    loss: Loss
    name = "crowded"
    one_sided = False

    @property
    def steepest(self) -> float:
        return _CROWD * self.loss.steepest

    @property
    def sharpest(self) -> float:
        return _CROWD * self.loss.sharpest

    @property
    def at_zero(self) -> float:
        return _CROWD * self.loss.at_zero

    def value(self, score: Floats, target: Floats) -> Floats:
        return self.loss.value(score, target)

    def slope(self, score: Floats, target: Floats) -> Floats:
        return self.loss.slope(score, target)

    def curvature(self, score: Floats, target: Floats) -> Floats:
        return self.loss.curvature(score, target)


class _CrowdedRisk(TiltedRisk):
    """A tilted risk whose solver is trusted for tables of up to _CROWD times the declared rows."""

    @property
    def prices(self) -> PerturbedObjective:
        crowded = _Crowded(self.loss)
        return replace(super().prices, steepest=crowded.steepest, at_zero=crowded.at_zero)

    def _distance(self, radius: float, tilt: float) -> float:
        rows = _CROWD * self.rows
        return solver_distance(
            _Crowded(self.loss), self.ball, rows=rows, penalty=self.penalty, radius=radius, tilt=tilt
        )
