"""Ridge regression, as accurate as asked and no less private than that needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from expost.accuracy.paper2017 import Task
from expost.core import BudgetExceeded, InvalidRequest, Measure, Release, Request
from expost.core.rational import probability, rational
from expost.data.matrix import GRID_BITS, RowSource, grid_numbers
from expost.models.columns import remember_columns
from expost.models.estimator import PrivateLinearModel
from expost.models.linear.adaptive_ridge import AdaptiveRidge
from expost.models.linear.certified_ridge import CertifiedRidge, RidgeRelease
from expost.models.linear.doubling import Doubling
from expost.models.linear.gaussian_ridge import GaussianRidge
from expost.models.linear.gradient_fit import GradientFit
from expost.models.linear.losses import TruncatedSquare
from expost.models.linear.model import LinearModel
from expost.models.linear.noise_reduction import NoiseReduction
from expost.models.linear.output_fit import OutputFit
from expost.models.linear.paper_fit import PaperFit
from expost.models.linear.problem import Problem
from expost.models.linear.tested_fit import TestedFit
from expost.models.linear.theory import TheoryInversion
from expost.models.linear.tilted_ridge import TiltedRidge
from expost.models.score_parameter import ScoreParameter

__all__ = ["Ridge"]


def _paper(task: Task, way: Callable[[PaperFit], Request]) -> Callable[[Problem], Request]:
    return lambda problem: way(PaperFit(problem, task))


_REACH = TruncatedSquare(1.0)
_METHODS: dict[str, Callable[[Problem], Request]] = {
    "objective": TiltedRidge,
    "certificate": CertifiedRidge,
    "output": lambda problem: OutputFit(problem, _REACH, grid_numbers(problem.target_bound)),
    "gradient": lambda problem: GradientFit(problem, _REACH, grid_numbers(problem.target_bound)),
    "test": lambda problem: TestedFit(problem, _REACH, grid_numbers(problem.target_bound)),
    "cov_nr": _paper(Task.RIDGE_COVARIANCE, NoiseReduction),
    "output_nr": _paper(Task.RIDGE_OUTPUT, NoiseReduction),
    "doubling": _paper(Task.RIDGE_COVARIANCE, Doubling),
    "theory": _paper(Task.RIDGE_COVARIANCE, TheoryInversion),
    "paper2017": _paper(Task.RIDGE_COVARIANCE, lambda fit: NoiseReduction(fit, authors=True)),
}
_FOR_SCORES = ("test", "certificate")


class Ridge(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Linear regression with an l2 penalty, private at the smallest epsilon that reaches the accuracy asked for.

    Say exactly one of: ``excess_risk`` (how far mean half squared error plus regularization / 2 |coef|^2 may be above
    its minimum), ``score`` (``("r2", 0.6)`` or ``("rmse", 0.1)``), or ``epsilon``. Rows are clipped to ``feature_bound`` in ``feature_norm``, targets to
    ``target_bound``; these are public numbers and must not be read off the data. ``bounds`` gives public limits
    column by column instead: columns are then scaled to [0, 1], and the penalty and the risk are those of the scaled
    problem. The intercept, if any, is penalised like the other coefficients. ``method`` names a way (docs/learning.md);
    ``rungs`` sets the length of the ladder where the way is a certificate. With ``delta`` and ``epsilon``, or
    ``method="certificate"``, the moments get Gaussian noise, and the bill is in zero-concentrated DP; with ``epsilon``, ``delta`` and ``regularization=None`` the penalty is no larger than
    their noise calls for, and ``receipt_.terms`` names it.

    >>> rows = np.tile([[0.9, 0.1], [0.1, 0.9]], (20_000, 1))
    >>> target = np.tile([0.5, -0.2], 20_000)
    >>> model = Ridge(excess_risk=0.01, regularization=0.01).fit(rows, target)
    >>> model.receipt_.epsilon < 0.2, model.predict(rows[:1]).shape
    (True, (1,))
    """

    def __init__(
        self,
        *,
        excess_risk: float | None = None,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        regularization: float | None = 0.005,
        feature_bound: float | None = None,
        feature_norm: str = "l1",
        target_bound: float = 1.0,
        bounds: Any = None,
        fit_intercept: bool = False,
        failure_probability: float = 0.1,
        max_epsilon: float = 1.0,
        method: str = "auto",
        rungs: int | None = None,
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store(locals())

    _scores = ("r2", "rmse")

    def _request(self, problem: Problem, source: RowSource) -> Request:
        if self.delta:
            return self._gaussian(problem)
        asked = problem.aim.target
        scored = asked is not None and asked.measure is not Measure.EXCESS_RISK
        # The cheapest way on every table measured (docs/learning.md).
        name = ("test" if scored else "objective") if self.method == "auto" else self.method
        if not isinstance(name, str) or name not in _METHODS:
            raise InvalidRequest(
                f"Expected method to be one of auto, {', '.join(_METHODS)}", got=self.method, do="Name one of them"
            )
        if scored != (name == "test") and not (scored and name in _FOR_SCORES):
            fitting = " or ".join(_FOR_SCORES) if scored else "another one"
            raise InvalidRequest("Expected a method that fits the target", got=name, do=f"Pass method={fitting}")
        if self.rungs is not None and name == "certificate":
            return CertifiedRidge(problem, rungs=int(self.rungs))
        return _METHODS[name](problem)

    def _problem(self, source: RowSource) -> Problem:
        if self.regularization is not None:
            return super()._problem(source)
        if not self.delta or self.epsilon is None:
            raise InvalidRequest(
                "Expected a regularization, or epsilon and delta to choose one by",
                do="Pass regularization=0.005, or both epsilon and delta",
            )
        # The way below chooses a penalty of its own and reads none here.
        placeholder: Ridge = clone(self).set_params(regularization=1.0)
        return placeholder._problem(source)

    def _gaussian(self, problem: Problem) -> Request:
        delta = probability(self.delta, "delta")
        if self.regularization is None:
            if self.method != "auto":
                raise InvalidRequest(
                    "Expected no method beside regularization=None", got=self.method, do="Leave it out"
                )
            return AdaptiveRidge(problem, delta)
        if self.method == "output":
            return OutputFit(problem, _REACH, grid_numbers(problem.target_bound), delta=delta)
        if self.method not in {"auto", "certificate"}:
            raise InvalidRequest(
                "Expected delta to be 0 for this method", got=self.method, do='Pass method="certificate" or "output"'
            )
        cheaper = _cheaper_than_moments(problem) if self.method == "auto" else None
        return GaussianRidge(problem, delta) if cheaper is None else cheaper

    def repenalised(self, regularization: float) -> Ridge:
        """The model with another penalty, from the moments that were paid for; it costs nothing.

        Only after ``method="certificate"``, whose release every penalty is post-processing of. The receipt is the same;
        its accuracy statement belongs to the penalty that was fitted.
        """
        check_is_fitted(self, "release_")
        moments = getattr(self.release_.value, "moments", None)
        if moments is None:
            raise InvalidRequest("Expected a model made of released moments", do='Fit with method="certificate"')
        problem = replace(self._fitted_problem, regularization=float(rational(regularization, "regularization")))
        values, vectors = np.linalg.eigh(moments.gram)
        # The exact matrix has no negative eigenvalues, so those of the noisy one are cut off.
        theta = vectors @ ((vectors.T @ moments.cross) / (np.maximum(values, 0.0) + problem.penalty))
        other: Ridge = clone(self).set_params(regularization=regularization)
        model = problem.model(theta)
        remember_columns(other, self._fitted_names, self.n_features_in_)
        other._fitted_problem = problem
        other._keep(replace(self.release_, value=RidgeRelease.of(model, moments)))
        return other

    def _keep(self, release: Release[LinearModel]) -> None:
        super()._keep(release)
        self.coef_: NDArray[np.float64] = release.value.coefficients
        self.intercept_: float = release.value.intercept

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted targets of rows read as in ``fit``: cut to the bounds, missing values filled."""
        return self._scored(X)

    def _r_squared(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the predictions; rows and targets are cut and filled as in ``fit``."""
        predicted = self.predict(X)
        told, reading = self._told(y, predicted), self.release_.value.reading
        if reading is not None:
            told = grid_numbers(reading.target_bound)(told) * (reading.target_bound * 2.0**-GRID_BITS)
        return float(r2_score(told, predicted, sample_weight=sample_weight))

    score = ScoreParameter(_r_squared)


def _cheaper_than_moments(problem: Problem) -> TiltedRidge | None:
    """The way without delta, where it reaches the target: a tenth of the price of Gaussian moments on all tables measured."""
    asked = problem.aim.target
    if asked is None or asked.measure is not Measure.EXCESS_RISK:
        return None
    try:
        return TiltedRidge(problem)
    except (BudgetExceeded, InvalidRequest):  # the cap, or the number of rows, leaves no room for a tilt
        return None
