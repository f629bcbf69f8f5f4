"""Linear classifiers, as accurate as asked and as private as that allows: logistic regression and the Huber SVM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost.core import InvalidRequest, Release, explain_arguments, share_parameters
from expost.core.rational import rational, whole
from expost.models.estimator import (
    PREDICTED_ROWS,
    WRONG_ARGUMENTS,
    PrivateEstimator,
)
from expost.models.linear.classifier_fit import ABSOLUTE_LOSS, METHODS, ClassifierQuery
from expost.models.linear.linear_estimator import DeclaredClasses, PrivateLinearModel
from expost.models.linear.linear_fit import LinearModel
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss

__all__ = ["HuberSVC", "LogisticRegression", "PrivateClassifier"]

Floats = NDArray[np.float64]

_USUAL_PENALTY = 0.005  # of an excess risk
_LARGEST_SPLIT = 10**12
_CORNERS = 10**6  # a hinge rounded over more than this, or less than its inverse, is beyond the precision of floats
_LOGISTIC_METHODS = (*METHODS, ABSOLUTE_LOSS, "output_nr", "doubling", "theory", "paper2017")


class PrivateClassifier(DeclaredClasses):
    """Base of the two-class estimators that minimize a loss. Parameters and attributes that they share are described here.

    Parameters
    ----------
    classes : pair or "observed"
        The two labels, negative first. Any other label is fitted as the first class, and no prediction gets it right
        where an accuracy is tested. ``"observed"``: it is public which labels occur, so read them off the table.
    regularization : float, optional
        The l2 penalty. Default: 0.005 with ``excess_risk``, which is relative to it; otherwise what suits the number of
        rows, the bounds and epsilon. The receipt's terms name it.
    validation_every : int, optional
        Test a score on about one row in this many, chosen by a keyed hash of its content. Those rows are not fitted,
        so a row pays for fitting or for testing, not for both. Default: fit and test on all rows.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two classes.
    coef_ : ndarray of shape (1, n_features)
        The private coefficients, for rows within the bounds.
    intercept_ : ndarray of shape (1,)
        The private constant term.
    """

    validation_every: Any = None
    _methods: tuple[str, ...] = METHODS
    _usual_classes = "classes=(negative, positive)"

    def _build_loss(self) -> RowLoss:
        """Return the loss that is minimized."""
        raise NotImplementedError

    def _build_query(self) -> ClassifierQuery:
        chosen = self.regularization is None
        terms, every = self._read_terms(_USUAL_PENALTY if chosen else None), 0
        if self.validation_every is not None:
            every = whole(self.validation_every, "validation_every", least=2, most=_LARGEST_SPLIT, do="Pass e.g. 5")
            if not terms.aim.is_score:
                raise InvalidRequest(
                    "Expected validation_every together with a score, which is what those rows test",
                    got=self.validation_every,
                    do="Leave it out, or pass score=",
                )
        # An excess risk is that of a problem with a fixed penalty.
        chosen = chosen and (terms.aim.target is None or terms.aim.is_score)
        delta, methods = self._read_delta(), self._methods
        return ClassifierQuery(terms, self._build_loss(), self.method, delta, every, methods, chooses_penalty=chosen)

    def _set_classes(self, classes: Any) -> None:
        if len(classes) != 2:
            count = "one class" if len(classes) == 1 else f"{len(classes)} classes"
            raise InvalidRequest(
                f"Only binary classification is supported. Expected two classes, got {count}",
                do=f"Pass {self._usual_classes}; SGDClassifier and expost.Classifier learn several",
            )
        super()._set_classes(classes)

    def _declared_rows(self) -> int | None:
        if self.method == ABSOLUTE_LOSS and self.rows is None:
            raise InvalidRequest(
                "Expected rows with the method absolute_loss",
                do="Pass about how many rows there are, a public number, because their true number is then private",
            )
        return super()._declared_rows()

    def _keep_release(self, release: Release[LinearModel]) -> None:
        super()._keep_release(release)
        self.coef_: Floats = release.value.coefficients[None, :]
        self.intercept_: Floats = np.array([release.value.intercept])

    @share_parameters(PREDICTED_ROWS)
    @explain_arguments
    def decision_function(self, X: Any) -> Floats:
        """Return the signed score of each row, positive for the second class."""
        return self._score_rows(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@share_parameters(PrivateClassifier, PrivateLinearModel, PrivateEstimator, raises=WRONG_ARGUMENTS)
class LogisticRegression(PrivateClassifier):
    """Logistic regression, private at the smallest epsilon that reaches the accuracy asked for.

    Pass exactly one of ``excess_risk``, ``score`` and ``epsilon``, and ``classes``. Bounds and classes are public and
    must not be read off private data.

    Parameters
    ----------
    excess_risk : float, optional
        How far mean logistic loss plus regularization / 2 |coef|^2 may be above its minimum. With ``bounds``, of the
        scaled problem.
    score : tuple of str and float, optional
        The accuracy asked for: ``("accuracy", 0.9)`` (a share of the rows) or ``("log_loss", 0.4)`` (in nats).
    method : str, default "auto"
        One of auto, objective, output, gradient, test, absolute_loss, output_nr, doubling, theory, paper2017
        (docs/models.md). ``"absolute_loss"`` tests for a log loss where a row may be added or removed, with half the
        noise; the number of rows is then private.

    Examples
    --------
    >>> rows = np.tile([[0.9, 0.1], [0.1, 0.9]], (20_000, 1))
    >>> label = np.tile([1, 0], 20_000)
    >>> model = LogisticRegression(excess_risk=0.01, regularization=0.01, classes=(0, 1), feature_bound=1.0)
    >>> model = model.fit(rows, label)
    >>> model.predict([[1.0, 0.0], [0.0, 1.0]]).tolist(), model.receipt_.epsilon < 0.1
    ([1, 0], True)
    """

    @explain_arguments
    def __init__(
        self,
        *,
        excess_risk: float | None = None,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        regularization: float | None = None,
        classes: Any = None,
        feature_bound: float | None = None,
        feature_norm: str = "l1",
        bounds: Any = None,
        fit_intercept: bool = False,
        validation_every: int | None = None,
        rows: int | None = None,
        adjacency: str | None = None,
        failure_probability: float = 0.1,
        max_epsilon: float | None = None,
        method: str = "auto",
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    _scores = ("accuracy", "log_loss")
    _methods = _LOGISTIC_METHODS

    def _build_loss(self) -> RowLoss:
        return LogisticLoss()

    @share_parameters(PREDICTED_ROWS)
    @explain_arguments
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, in the order of ``classes_``."""
        positive = expit(self._score_rows(X))
        return np.column_stack([1 - positive, positive])

    @share_parameters(PREDICTED_ROWS)
    @explain_arguments
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of ``predict_proba``."""
        return np.asarray(np.log(self.predict_proba(X)))


@share_parameters(PrivateClassifier, PrivateLinearModel, PrivateEstimator, raises=WRONG_ARGUMENTS)
class HuberSVC(PrivateClassifier):
    """A linear support vector machine with a rounded hinge, private at the smallest epsilon that is accurate enough.

    Pass exactly one of ``excess_risk``, ``score`` and ``epsilon``, and ``classes``. Bounds and classes are public and
    must not be read off private data.

    Parameters
    ----------
    excess_risk : float, optional
        How far mean rounded hinge loss plus regularization / 2 |coef|^2 may be above its minimum. With ``bounds``, of
        the scaled problem.
    score : tuple of str and float, optional
        The accuracy asked for: ``("accuracy", 0.9)``, a share of the rows.
    corner : float, default 0.5
        Half the width, in margin, over which the corner of the hinge is rounded.
    method : {"auto", "objective", "output", "gradient", "test"}, default "auto"
        The method (docs/models.md).

    Examples
    --------
    >>> rows = np.tile([[0.9, 0.1], [0.1, 0.9]], (20_000, 1))
    >>> label = np.tile([1, -1], 20_000)
    >>> model = HuberSVC(excess_risk=0.01, regularization=0.01, classes=(-1, 1), feature_bound=1.0)
    >>> model = model.fit(rows, label)
    >>> model.predict([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [1, -1]
    """

    @explain_arguments
    def __init__(
        self,
        *,
        excess_risk: float | None = None,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        regularization: float | None = None,
        corner: float = 0.5,
        classes: Any = None,
        feature_bound: float | None = None,
        feature_norm: str = "l1",
        bounds: Any = None,
        fit_intercept: bool = False,
        validation_every: int | None = None,
        rows: int | None = None,
        adjacency: str | None = None,
        failure_probability: float = 0.1,
        max_epsilon: float | None = None,
        method: str = "auto",
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    _scores = ("accuracy",)

    def _build_loss(self) -> RowLoss:
        corner = rational(self.corner, "corner")
        if corner * _CORNERS < 1 or corner > _CORNERS:
            raise InvalidRequest(
                f"Expected corner from {1 / _CORNERS:g} to {_CORNERS}", got=self.corner, do="Pass e.g. corner=0.5"
            )
        return HuberHinge(float(corner))
