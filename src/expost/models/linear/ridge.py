"""Ridge regression, as accurate as asked and as private as that allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from expost.accuracy.paper2017 import Task
from expost.core import BudgetExceeded, InvalidRequest, Plan, PlanContext, explain_arguments, share_parameters
from expost.core.rational import rational, whole
from expost.data.row_source import RowSource
from expost.models.estimator import WRONG_ARGUMENTS, PrivateEstimator, remember_columns
from expost.models.linear.counted_fit import CountedFit
from expost.models.linear.linear_estimator import PrivateLinearModel, PrivateRegressor
from expost.models.linear.linear_fit import FitPlan, FitTerms, Problem
from expost.models.linear.output_perturbation import GradientFit, OutputFit
from expost.models.linear.paper_fit import Doubling, NoiseReduction, PaperFit, TheoryInversion
from expost.models.linear.piloted_ridge import PilotedRidge
from expost.models.linear.ridge_moments import AdaptiveRidge, CertifiedRidge, GaussianRidge, RidgeRelease
from expost.models.linear.ridge_objective import TiltedRidge
from expost.models.linear.row_loss import TruncatedSquare
from expost.models.linear.tested_score import TestedFit

__all__ = ["Ridge", "RidgeQuery"]

_REACH = TruncatedSquare(1.0)
_METHODS: dict[str, Callable[[Problem], FitPlan]] = {
    "objective": lambda problem: _plan_tilt(problem),
    "certificate": CertifiedRidge,
    "output": lambda problem: OutputFit(problem, _REACH, problem.read_targets),
    "gradient": lambda problem: GradientFit(problem, _REACH, problem.read_targets),
    "test": lambda problem: TestedFit(problem, _REACH, problem.read_targets),
    "cov_nr": lambda problem: NoiseReduction(PaperFit(problem, Task.RIDGE_COVARIANCE)),
    "output_nr": lambda problem: NoiseReduction(PaperFit(problem, Task.RIDGE_OUTPUT)),
    "doubling": lambda problem: Doubling(PaperFit(problem, Task.RIDGE_COVARIANCE)),
    "theory": lambda problem: TheoryInversion(PaperFit(problem, Task.RIDGE_COVARIANCE)),
    "paper2017": lambda problem: NoiseReduction(PaperFit(problem, Task.RIDGE_COVARIANCE), authors=True),
}
_FOR_SCORES = ("test", "certificate")
_MOST_RUNGS = 10**5
_LARGEST_JACOBIAN = 0.8  # of a given epsilon: beyond it moments under noise are more accurate than a tilt


def _plan_tilt(problem: Problem) -> FitPlan:
    """Plan objective perturbation: with readings of residuals first where an accuracy leaves the price open."""
    return TiltedRidge(problem) if problem.aim.target is None else PilotedRidge(problem)


@dataclass(frozen=True)
class RidgeQuery:
    """A ridge regression that was asked for."""

    terms: FitTerms
    method: Any = "auto"
    delta: Fraction | None = None
    rungs: int | None = None
    adaptive: bool = False
    """The noise chooses the penalty, and ``terms.regularization`` is ignored."""
    question = "ridge regression"

    def plan(self, dataset: RowSource, context: PlanContext) -> Plan:
        """Choose and price the method; reads the public shape of the rows only."""
        problem = self.terms.describe(dataset)
        plan = CountedFit(problem, self._plan_method) if dataset.size_is_private else self._plan_method(problem)
        return plan.charge_to(context.definitions)

    def _plan_method(self, problem: Problem) -> FitPlan:
        """Plan a fit with a public number of rows."""
        return self._plan_pure(problem) if self.delta is None else self._plan_gaussian(problem, self.delta)

    def _plan_pure(self, problem: Problem) -> FitPlan:
        """Plan a fit under pure differential privacy."""
        scored = problem.aim.is_score
        if self.method == "auto" and not scored:
            return self._plan_risk(problem)
        name = "test" if self.method == "auto" else self.method
        if not isinstance(name, str) or name not in _METHODS:
            raise InvalidRequest(
                f"Expected method to be one of auto, {', '.join(_METHODS)}", got=self.method, do="Name one of them"
            )
        if scored != (name == "test") and not (scored and name in _FOR_SCORES):
            fitting = " or ".join(_FOR_SCORES) if scored else "another one"
            raise InvalidRequest("Expected a method that fits the target", got=name, do=f"Pass method={fitting}")
        if self.rungs is not None and name == "certificate":
            return CertifiedRidge(problem, rungs=self.rungs)
        return _METHODS[name](problem)

    def _plan_risk(self, problem: Problem) -> FitPlan:
        """Plan objective perturbation, the cheapest way on every table measured, or moments where it leaves too little epsilon."""
        refused: InvalidRequest | None = None
        try:
            tilted = _plan_tilt(problem)
            if not isinstance(tilted, TiltedRidge) or tilted.jacobian_share <= _LARGEST_JACOBIAN:
                return tilted
        except InvalidRequest as error:  # too few rows for a tilt at this regularization
            refused = error
        try:
            return CertifiedRidge(problem)
        except InvalidRequest:
            if refused is None:
                return tilted
            raise refused from None

    def _plan_gaussian(self, problem: Problem, delta: Fraction) -> FitPlan:
        """Plan a fit that may use Gaussian noise."""
        if self.adaptive:
            if self.method != "auto":
                raise InvalidRequest("Expected no method with regularization=None", got=self.method, do="Leave it out")
            return AdaptiveRidge(problem, delta)
        if self.method == "output":
            return OutputFit(problem, _REACH, problem.read_targets, delta=delta)
        if self.method not in {"auto", "certificate"}:
            raise InvalidRequest(
                "Expected delta to be 0 for this method", got=self.method, do='Pass method="certificate" or "output"'
            )
        if self.method == "auto" and problem.aim.target is not None and not problem.aim.is_score:
            # Without delta, where that reaches the target: a tenth of the price of Gaussian moments on all tables measured.
            try:
                return _plan_tilt(problem)
            except (BudgetExceeded, InvalidRequest):  # above the cap, or too few rows for a tilt
                pass
        return GaussianRidge(problem, delta)


@share_parameters(PrivateLinearModel, PrivateEstimator, raises=WRONG_ARGUMENTS)
class Ridge(PrivateRegressor):
    """Linear regression with an l2 penalty, private at the smallest epsilon that reaches the accuracy asked for.

    Pass exactly one of ``excess_risk``, ``score`` and ``epsilon``. Bounds are public numbers and must not be read off
    the data.

    Parameters
    ----------
    excess_risk : float, optional
        How far mean half squared error plus regularization / 2 |coef|^2 may be above its minimum, in squared units
        of the target. With ``bounds`` or asymmetric ``target_bounds``, of the scaled and centered problem.
    score : tuple of str and float, optional
        The accuracy asked for: ``("r2", 0.8)`` or ``("rmse", 0.1)``, the latter in units of the target.
    regularization : float or None, default 0.005
        The l2 penalty. None, with ``epsilon`` and ``delta``: no more penalty than the noise needs; the receipt's terms
        name it.
    target_bounds : float or pair of float, optional
        Targets are clipped to (low, high); one number b means (-b, b). Default: those of the ``Dataset``; must be given
        where it has none. Coefficients are shrunk toward a model that predicts the middle.
    method : str, default "auto"
        One of auto, objective, certificate, output, gradient, test, cov_nr, output_nr, doubling, theory, paper2017
        (docs/models.md).
    rungs : int, optional
        The length of the ladder of ``method="certificate"``. Default: levels 1 % apart.
    delta : float, default 0.0
        With ``epsilon`` or ``method="certificate"``: add Gaussian noise to the moments and bill in zero-concentrated
        DP, or in (epsilon, delta) where the account counts so.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The private coefficients, for rows within the bounds.
    intercept_ : float
        The private constant term.

    Examples
    --------
    >>> rows = np.tile([[0.9, 0.1], [0.1, 0.9]], (20_000, 1))
    >>> target = np.tile([0.5, -0.2], 20_000)
    >>> model = Ridge(excess_risk=0.01, regularization=0.01, feature_bound=1.0, target_bounds=1.0).fit(rows, target)
    >>> model.receipt_.epsilon < 0.2, model.predict(rows[:1]).shape
    (True, (1,))
    """

    @explain_arguments
    def __init__(
        self,
        *,
        excess_risk: float | None = None,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        regularization: float | None = 0.005,
        feature_bound: float | None = None,
        feature_norm: str = "l1",
        target_bounds: float | tuple[float, float] | None = None,
        bounds: Any = None,
        fit_intercept: bool = False,
        rows: int | None = None,
        adjacency: str | None = None,
        failure_probability: float = 0.1,
        max_epsilon: float | None = None,
        method: str = "auto",
        rungs: int | None = None,
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    _scores = ("r2", "rmse")

    def _build_query(self) -> RidgeQuery:
        delta, adaptive = self._read_delta(), self.regularization is None
        if self.rungs is not None:
            whole(self.rungs, "rungs", least=1, most=_MOST_RUNGS)
            if self.method != "certificate" or delta is not None:
                raise InvalidRequest(
                    'Expected rungs with method="certificate" and no delta only', got=self.method, do="Leave rungs out"
                )
        if adaptive and (delta is None or self.epsilon is None):
            raise InvalidRequest(
                "Expected a regularization, or epsilon and delta to choose one by",
                do="Pass regularization=0.005, or both epsilon and delta",
            )
        terms = self._read_terms(regularization=1.0 if adaptive else None)
        return RidgeQuery(terms, self.method, delta, self.rungs, adaptive)

    def repenalised(self, regularization: float) -> Ridge:
        """Return the model with another penalty, made of the moments that were paid for. It costs nothing.

        Only after a fit that released moments (``method="certificate"``, or Gaussian noise): every penalty is
        post-processing of them. The receipt is the same; its accuracy statement belongs to the penalty that was fitted.

        Parameters
        ----------
        regularization : float
            The new l2 penalty.

        Raises
        ------
        InvalidRequest
            The fit did not release moments.
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
        remember_columns(other, self._fitted_names, self.n_features_in_)
        other._fitted_problem = problem
        other._keep_release(replace(self.release_, value=RidgeRelease.of(problem.model(theta), moments)))
        return other
