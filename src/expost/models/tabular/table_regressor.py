"""``Regressor``: a number for the rows of a mixed table, to the score that is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from expost.core import InvalidRequest, Release, explain_arguments, share_parameters
from expost.data import Dataset
from expost.models.descent.sgd_estimator import target_numbers
from expost.models.estimator import PREDICTED_ROWS, PrivateEstimator, ScoreParameter, read_target_bounds
from expost.models.tabular.column_encoding import NumberColumn
from expost.models.tabular.promise_margin import PromiseMargin
from expost.models.tabular.score_sum import clip_predictions
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.tabular_estimator import TabularEstimator

__all__ = ["Regressor"]


@share_parameters(TabularEstimator, PrivateEstimator)
class Regressor(RegressorMixin, TabularEstimator):  # type: ignore[misc]
    """Predict a number for the rows of a mixed table, as privately as the score allows.

    A linear model of numbers, categories, flags and dates is trained by Newton steps with Gaussian noise, or by objective
    perturbation if ``delta`` is 0. Adjacency is add/remove of one row, or of one person with all rows (``unit``). Rows
    without a target are left out.

    Parameters
    ----------
    target_bounds : (low, high) or float, optional
        Public bounds of the target; targets and predictions are clipped to them. Default: what ``columns`` or the dataset
        declares.

    See Also
    --------
    expost.Ridge : pure differential privacy.
    expost.SGDRegressor : every setting of the training by hand.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age, job = rng.integers(18, 80, 20_000), rng.choice(["a", "b"], 20_000)
    >>> table = {"age": age, "job": job, "pay": age + 20 * (job == "b") + rng.normal(0, 5, 20_000)}
    >>> columns = {"age": (18, 80), "job": ["a", "b"], "pay": (0, 120)}
    >>> model = Regressor(score=("r2", 0.8), columns=columns).fit(table, target="pay")
    >>> model.receipt_.outcome.value, model.receipt_.epsilon < 0.5
    ('tested', True)
    """

    _classifier = False
    target_bounds: Any

    @explain_arguments
    def __init__(
        self,
        *,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        max_epsilon: float | None = None,
        delta: float = 1e-6,
        method: str = "auto",
        failure_probability: float = 0.1,
        about: Literal["rows", "population"] = "rows",
        columns: Any = None,
        target_bounds: tuple[float, float] | float | None = None,
        select: int | None = None,
        unit: str | None = None,
        max_rows_per_unit: int | None = None,
        rows: int | None = None,
        report: Sequence[str] = (),
        ledger: str | None = None,
        account: str | None = None,
        progress: bool = False,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    _bounds: tuple[float, float]

    @explain_arguments
    def price(
        self, *, rows: int | None = None, target: str | None = None, spread: float | None = None
    ) -> PromiseMargin:
        """Return how good a model must be for its test to accept it, at some epsilons. Nothing is spent and no row is read.

        Parameters
        ----------
        rows : int, optional
            The number of rows, or of persons, or about that. Default: the declared one.
        target : str, optional
            The name of the target's column, if ``columns`` declares its bounds.
        spread : float, optional
            About the standard deviation of the target, on which the margin of R2 depends. Default: a sixth of the range of
            its bounds.

        Returns
        -------
        PromiseMargin
            It prints as text.

        Raises
        ------
        InvalidRequest
            There is no score to reach, or the bounds of the target or the number of rows are missing.

        Examples
        --------
        >>> print(Regressor(score=("r2", 0.8), target_bounds=(0, 120)).price(rows=100_000, spread=20))
        With 100,000 rows, r2 0.8 is accepted (for a target with a standard deviation of 20)
          ...
        """
        bounds = self._find_bounds("target" if target is None else target)
        if spread is not None and not 0 < spread < math.inf:
            raise InvalidRequest("Expected a positive spread", got=spread, do="Pass about the standard deviation")
        return self._find_margin(rows, bounds, spread)

    def _find_bounds(self, target: str, dataset: Dataset | None = None) -> tuple[float, float]:
        """Return the public bounds of the target."""
        found = self.target_bounds
        if found is None:
            found = self._declared_target(target)
        if isinstance(found, NumberColumn):
            found = (found.low, found.high)
        if found is None and dataset is not None:
            found = dataset.bounds.get(target)
        if found is None:
            raise InvalidRequest(
                f"Expected bounds of the target {target!r} as public knowledge: it would be clipped to wrong ones silently",
                do=f'Pass target_bounds=(LOW, HIGH), or add "{target}": (LOW, HIGH) to columns',
            )
        return read_target_bounds(found)

    def _read_target(
        self, dataset: Dataset, target: str, known: Sequence[Any] | None
    ) -> tuple[NDArray[Any] | None, tuple[float, float]]:
        self._bounds = self._find_bounds(target, dataset)
        return None, self._bounds

    @share_parameters(PREDICTED_ROWS)
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted target of each row, clipped to the target's bounds."""
        scores = self._compute_scores(X)[:, 0]
        (low, high), model = self._bounds, self.release_.value
        inside = clip_predictions(scores, model.profile, model.reach, model.limits)
        return inside * ((high - low) / 2) + (high + low) / 2

    @share_parameters(PREDICTED_ROWS)
    def _score_r2(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions; targets are clipped to the bounds as in training."""
        predicted, (low, high) = self.predict(X), self._bounds
        told = target_numbers(self._read_true_targets(y, predicted), low, high) * ((high - low) / 2) + (high + low) / 2
        return float(r2_score(told, predicted, sample_weight=sample_weight))

    score = ScoreParameter(_score_r2)

    def _keep_release(self, release: Release[TableModel]) -> None:
        super()._keep_release(release)
        (low, high), profile = self._bounds, release.value.profile
        half, middle = (high - low) / 2, (high + low) / 2
        self.coef_ = self.coef_[0] * (profile.target_spread * half)
        self.intercept_ = (self.intercept_[0] * profile.target_spread + profile.target_middle) * half + middle
