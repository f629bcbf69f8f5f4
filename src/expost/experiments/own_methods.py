"""What the package's own methods pay, run through the requests that its estimators send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from expost.core import BudgetExceeded, Outcome, Request
from expost.data.matrix import RowSource, UnitBall, read_rows
from expost.experiments.published import Point, Replay
from expost.models.linear.aim import Aim
from expost.models.linear.certified_ridge import CertifiedRidge
from expost.models.linear.classification import TiltedClassifier, grid_labels
from expost.models.linear.losses import Logistic
from expost.models.linear.problem import Problem
from expost.models.linear.tilted_ridge import TiltedRidge
from expost.noise import BitSource

__all__ = ["CAP", "OwnMethods"]

CAP = 2.0
"""The ``max_epsilon`` that the package's methods are run with; a target that would cost more is left out."""


class OwnMethods:
    """The requests behind ``expost.Ridge`` and ``expost.LogisticRegression`` on one table."""

    def __init__(self, replay: Replay) -> None:
        self._replay, self._table = replay, replay.table
        self._planned: dict[float, dict[str, Request]] = {}
        self._measured: dict[str, Any] = {}

    @cached_property
    def _source(self) -> RowSource:
        return read_rows(self._table.features, self._table.target)

    @property
    def _makers(self) -> dict[str, Callable[[Problem], Request]]:
        if self._table.classification:
            signs = grid_labels((-1, 1))
            return {"expost, objective": lambda problem: TiltedClassifier(problem, Logistic(), signs)}
        return {"expost, objective": TiltedRidge, "expost, certificate": CertifiedRidge}

    def points(self, tolerance: float, trial: int, bits: BitSource) -> Iterator[Point]:
        """Every method once, on noise of its own.

        Trials share what has no noise in it: a request is planned from public numbers alone, once a tolerance, and what it
        measures of the table is the same for every tolerance.
        """
        for name, request in self._requests(tolerance).items():
            if name not in self._measured:
                self._measured[name] = request.measure(self._source)
            release = request.climb(self._measured[name], bits)
            yield self._point(name, tolerance, trial, release)

    def _requests(self, tolerance: float) -> dict[str, Request]:
        if tolerance not in self._planned:
            aim = Aim.of(excess_risk=tolerance, failure_probability=self._replay.failure_probability, max_epsilon=CAP)
            problem = Problem(UnitBall(self._table.width), self._table.rows, self._replay.penalty, aim)
            planned: dict[str, Request] = {}
            for name, make in self._makers.items():
                with suppress(BudgetExceeded):
                    planned[name] = make(problem)
            self._planned[tolerance] = planned
        return self._planned[tolerance]

    def _point(self, name: str, tolerance: float, trial: int, release: Any) -> Point:
        theta = np.asarray(release.value.coefficients)
        half, authors = (float(each[0]) for each in self._replay.risk.excesses(theta[None]))
        parts = {name: float(part) for name, part in release.receipt.breakdown.items()}
        return Point(
            self._table.name,
            name,
            tolerance,
            trial,
            generation=parts["generation"],
            testing=parts["testing"],
            excess_risk=half,
            authors_excess_risk=authors,
            norm=float(np.linalg.norm(theta)),
            met=release.receipt.outcome is not Outcome.NOT_MET,
        )
