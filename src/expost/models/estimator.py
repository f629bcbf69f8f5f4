"""What the linear models share: reading the caller's arguments, fitting, and keeping the released model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from expost.core import Adjacency, InvalidRequest, Norm, Release, Request
from expost.core.picture import draw
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.data.matrix import RowSource, UnitBall, column_names, read_rows
from expost.models.column_bounds import column_bounds
from expost.models.columns import remember_columns
from expost.models.linear.aim import Aim
from expost.models.linear.model import LinearModel
from expost.models.linear.problem import Problem
from expost.models.private_estimator import PrivateEstimator, chosen_columns, filled, one_thread

__all__ = ["PrivateLinearModel"]

_NORMS = {"l1": Norm.L1, "l2": Norm.L2}


class PrivateLinearModel(PrivateEstimator):
    """Base of the estimators whose accuracy is a risk or a score: a linear model that pays for it from a ledger."""

    _scores: tuple[str, ...] = ()

    # What the subclass's constructor sets.
    excess_risk: Any
    epsilon: Any
    regularization: Any
    feature_bound: Any
    feature_norm: Any
    target_bound: Any = 1.0
    bounds: Any
    fit_intercept: bool
    failure_probability: Any
    max_epsilon: Any
    method: str
    delta: Any

    _saved_lows: Any = None  # lower bounds in a file of an earlier version, which does not say how rows were read

    # Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Fit the model and bill the ledger; raises ``TargetNotMet`` with the best private model under the cap.

        ``X`` is an array, a sparse matrix, a data frame or an Arrow table with ``y`` beside it, or a ``Dataset`` with
        ``y`` the name of its target column.
        """
        self._refuse(unsupported)
        account = self._account_of(X)
        source = self._read(X, y)
        problem = self._problem(source)
        release = self._pay(self._request(problem, source), source, account)
        self._fitted_problem = problem
        self._keep(release)
        return self

    def fit_with(
        self,
        pay: Callable[[Request, RowSource], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str],
        target: str,
    ) -> Self:
        """Fit to columns of a dataset and let the caller pay; ``Session.fit`` is the friendly way in."""
        self._chosen = chosen_columns(features)
        try:
            source = self._read(dataset, target)
        finally:
            del self._chosen
        problem = self._problem(source)
        request = self._request(problem, source)
        with one_thread():
            release = pay(request, source)
        self._fitted_problem = problem
        self._keep(release)
        return self

    def _request(self, problem: Problem, source: RowSource) -> Request:
        raise NotImplementedError

    def _read(self, X: Any, y: Any) -> RowSource:
        """The rows; shapes are checked as scikit-learn does, values are not: they are private."""
        if isinstance(X, Dataset):
            chosen = getattr(self, "_chosen", None)
            source = read_rows(X, y, names=chosen, declared_rows=self._declared_rows(), classes=self._public_classes())
            remember_columns(self, source.names, source.width)
            return source
        matrix = self._matrix(X)
        target = self._checked_target(y)
        return read_rows(matrix, target, names=column_names(X), classes=self._public_classes())

    def _public_classes(self) -> NDArray[Any] | None:
        """Return the classes among which targets are coded; None where targets are numbers."""
        return None

    def _declared_rows(self) -> int | None:
        """The public number that stands for a private number of rows, where a method asks for it."""
        return None

    @property
    def _neighbours(self) -> Adjacency:
        return Adjacency.REPLACE_ONE if self._declared_rows() is None else Adjacency.ADD_REMOVE

    def _checked_target(self, y: Any) -> Any:
        return self._vector(y)

    def _keep(self, release: Release[LinearModel]) -> None:
        self.release_ = release

    # Reading the arguments ----------------------------------------------------------------------------------------

    def _aim(self) -> Aim:
        return Aim.of(
            excess_risk=self.excess_risk,
            score=self.__dict__["score"],
            epsilon=self.epsilon,
            failure_probability=self.failure_probability,
            max_epsilon=self.max_epsilon,
            scores=self._scores,
        )

    def _given_delta(self) -> Fraction | None:
        """The delta that was asked for; none where the fit is to be pure."""
        if self.delta is None or (isinstance(self.delta, int | float) and self.delta == 0):
            return None
        return probability(self.delta, "delta")

    def _problem(self, source: RowSource) -> Problem:
        return Problem(
            ball=self._ball(source),
            rows=source.rows,
            regularization=float(rational(self.regularization, "regularization")),
            aim=self._aim(),
            target_bound=float(rational(self.target_bound, "target_bound")),
        )

    def _ball(self, source: RowSource) -> UnitBall:
        if not isinstance(self.feature_norm, str) or self.feature_norm not in _NORMS:
            raise InvalidRequest("Expected feature_norm to be 'l1' or 'l2'", got=self.feature_norm, do="Name one")
        norm = _NORMS[self.feature_norm]
        lows, highs = column_bounds(self.bounds, source.width, source.names)
        if self.feature_bound is not None:
            bound = float(rational(self.feature_bound, "feature_bound"))
        elif lows is None:
            bound = 1.0
        else:  # large enough for every row within the column bounds
            bound = float(source.width) if norm is Norm.L1 else math.sqrt(source.width)
        return UnitBall(source.width, norm, bound, lows, highs, bool(self.fit_intercept))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor; ``score`` is the target asked for, not the method of that name."""
        names = self._get_param_names()
        return {name: self.__dict__[name] for name in names}

    # What was released --------------------------------------------------------------------------------------------

    def plot_climb(self, path: str | None = None, **options: Any) -> Any:
        """Draw the climb: rung by rung, what was certified; only methods that climb have one."""
        check_is_fitted(self, "release_")
        if not self.release_.climb:
            raise InvalidRequest(
                "Expected a fit that climbed", do="Its price was known before the run: see receipt_ for what it bought"
            )
        return draw("climb", self.release_, path=path, **options)

    def _scored(self, X: Any) -> NDArray[np.float64]:
        """The scores of rows read as in ``fit``: cut to the bounds, missing values filled, on the grid."""
        check_is_fitted(self, "release_")
        matrix, model = self._matrix(X, fitting=False), self.release_.value
        if model.reading is None:  # from a file of an earlier version
            matrix = filled(matrix, 0.0 if self._saved_lows is None else np.array(self._saved_lows))
        scores: NDArray[np.float64] = model.predict(matrix)
        return scores
