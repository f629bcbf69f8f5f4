"""What every estimator shares: reading the caller's arguments, paying, and keeping the released model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from threadpoolctl import ThreadpoolController

from expost.core import InvalidRequest, Loss, Norm, Receipt, Release, Request
from expost.core.picture import draw
from expost.core.rational import probability, rational
from expost.curator import answer
from expost.data import Dataset
from expost.data.matrix import RowSource, UnitBall, column_names, read_rows
from expost.learning.aim import Aim
from expost.learning.model import LinearModel
from expost.learning.problem import Problem
from expost.ledger import Ledger, open_ledger
from expost.noise import SeededBits

__all__ = ["PrivateLinearModel"]

_NORMS = {"l1": Norm.L1, "l2": Norm.L2}
_TABLE_ACCOUNT = "dataset:table"


class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: a linear model that pays for its accuracy from a ledger.

    Parameters are kept as they were given; everything is checked in ``fit``, before the data is touched.
    """

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
    ledger: Any
    account: Any
    simulation_seed: Any

    _saved_lows: Any = None  # lower bounds of a model that was loaded from a file, not fitted here

    # Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Fit the model and bill the ledger; raises ``TargetNotMet`` with the best private model under the cap.

        ``X`` is an array, a sparse matrix, a data frame or an Arrow table with ``y`` beside it, or a ``Dataset`` with
        ``y`` the name of its target column.
        """
        if any(value is not None for value in unsupported.values()):
            name = next(iter(unsupported))
            raise InvalidRequest(
                f"Expected no {name}",
                do="Leave it out: weights change how much one row can move the model, so they are not supported",
            )
        source = self._read(X, y)
        problem = self._problem(source)
        release = self._pay(self._request(problem, source), source, self._account_of(X))
        self._fitted_problem = problem
        self._keep(release, source.names)
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
        if isinstance(features, str) or not features:
            raise InvalidRequest("Expected at least one feature", do='Pass a list of columns: features=["age"]')
        self._chosen = tuple(features)
        try:
            source = self._read(dataset, target)
        finally:
            del self._chosen
        problem = self._problem(source)
        request = self._request(problem, source)
        with one_thread():
            release = pay(request, source)
        self._fitted_problem = problem
        self._keep(release, source.names)
        return self

    def _request(self, problem: Problem, source: RowSource) -> Request:
        raise NotImplementedError

    def _read(self, X: Any, y: Any) -> RowSource:
        """The rows; shapes are checked as scikit-learn does, values are not: they are private."""
        if isinstance(X, Dataset):
            chosen = getattr(self, "_chosen", None)
            source = read_rows(X, y, names=chosen, declared_rows=self._declared_rows())
            self.n_features_in_ = source.width
            return source
        if y is None:
            raise InvalidRequest(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None",
                do="Pass one target a row",
            )
        table = from_arrow(X)
        try:
            matrix = validate_data(self, table, accept_sparse="csr", dtype="numeric", ensure_all_finite=False)
        except ValueError as error:
            if "could not convert" not in str(error):
                raise  # about the shape, which is public
            unreadable = True
        else:
            unreadable = False
        if unreadable:  # the library's message would repeat a value of the table
            raise InvalidRequest("Expected a table of numbers", do="Encode text columns as numbers first")
        return read_rows(matrix, self._checked_target(y), names=column_names(X))

    def _declared_rows(self) -> int | None:
        """The public number that stands for a private number of rows, where a method asks for it."""
        return None

    def _checked_target(self, y: Any) -> Any:
        return column_or_1d(y, warn=True)

    def _pay(self, request: Request, source: RowSource, account: str) -> Release[LinearModel]:
        seeded = self.simulation_seed is not None
        ledger = self._open_ledger(account, request.worst_case)
        try:
            with one_thread():
                return answer(
                    request,
                    source,
                    ledger=ledger,
                    accounts=(account,),
                    bits=SeededBits(self.simulation_seed) if seeded else None,
                    simulation=seeded,
                )
        finally:
            ledger.close()

    def _open_ledger(self, account: str, worst_case: Loss) -> Ledger:
        if self.ledger is None:
            ledger = open_ledger(None)
            ledger.open_account(account, worst_case.promise_type(**worst_case.amounts()))
            return ledger
        if not isinstance(self.ledger, str | os.PathLike):
            # A copy of a ledger in memory, as clone makes one, would be billed instead of the original.
            raise InvalidRequest("Expected ledger to be a path or a URL", do='Pass "flights.ledger"')
        ledger = open_ledger(self.ledger)
        if account not in ledger.accounts():
            ledger.close()
            raise InvalidRequest(
                f"Expected the account {account!r} in the ledger",
                do=f"Open it once: expost.open_ledger(path).open_account({account!r}, expost.epsilon(1.0))",
            )
        return ledger

    def _account_of(self, X: Any) -> str:
        if self.account is not None:
            return str(self.account)
        return f"dataset:{X.name}" if isinstance(X, Dataset) and X.name else _TABLE_ACCOUNT

    def _keep(self, release: Release[LinearModel], names: tuple[str, ...] | None) -> None:
        self.release_ = release
        self._fitted_names = names

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
        lows, highs = _read_bounds(self.bounds, source)
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

    @property
    def receipt_(self) -> Receipt:
        """What was paid, what was promised, and what reached it."""
        check_is_fitted(self, "release_")
        return self.release_.receipt

    def plot_climb(self, path: str | None = None, **options: Any) -> Any:
        """Draw the climb: rung by rung, what was certified; only methods that climb have one."""
        check_is_fitted(self, "release_")
        if not self.release_.climb:
            raise InvalidRequest(
                "Expected a fit that climbed", do="Its price was known before the run: see receipt_ for what it bought"
            )
        return draw("climb", self.release_, path=path, **options)

    def _scored(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "release_")
        matrix = validate_data(
            self, from_arrow(X), accept_sparse="csr", reset=False, dtype="numeric", ensure_all_finite=False
        )
        return self.release_.value.predict(self._filled(matrix))

    def _filled(self, matrix: Any) -> Any:
        """Missing values as they were read in ``fit``: zero, or the column's lower bound."""
        stored = matrix.data if hasattr(matrix, "tocsr") else matrix
        if stored.dtype.kind != "f" or not np.isnan(stored).any():
            return matrix
        dense = matrix.toarray() if hasattr(matrix, "tocsr") else matrix
        return np.where(np.isnan(dense), self._missing_values(), dense)

    def _missing_values(self) -> Any:
        """What stands for a missing value, column by column; public numbers."""
        problem: Problem | None = getattr(self, "_fitted_problem", None)
        lows = self._saved_lows if problem is None else problem.ball.lows
        return 0.0 if lows is None else np.array(lows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # a missing value is a value like any other: refusing it would tell of it
        tags.non_deterministic = self.simulation_seed is None
        tags.target_tags.required = True
        return tags


def from_arrow(X: Any) -> Any:
    """Arrow tables as matrices; everything else as it is."""
    if hasattr(X, "column_names") and hasattr(X, "to_pydict"):
        return np.column_stack([column.to_numpy(zero_copy_only=False) for column in X.columns])
    return X


def _read_bounds(bounds: Any, source: RowSource) -> tuple[Any, Any]:
    if bounds is None:
        return None, None
    if isinstance(bounds, Mapping):
        if source.names is None or set(bounds) != set(source.names):
            raise InvalidRequest("Expected bounds for every column by name", do="Pass a table with column names")
        pairs: Sequence[Any] = [bounds[name] for name in source.names]
    else:
        pairs = list(bounds) if isinstance(bounds, Iterable) else []
    if len(pairs) != source.width or not all(_is_interval(pair) for pair in pairs):
        raise InvalidRequest("Expected one (low, high) for each column, low below high", do="Pass public bounds")
    return tuple(float(low) for low, _ in pairs), tuple(float(high) for _, high in pairs)


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> Any:
    """BLAS on one thread: on matrices of this size more threads only wait for each other."""
    return _threads().limit(limits=1, user_api="blas")


def _is_interval(pair: Any) -> bool:
    try:
        low, high = pair
        return bool(low < high)
    except (TypeError, ValueError):
        return False
