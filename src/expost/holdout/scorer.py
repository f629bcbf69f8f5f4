"""The holdout as a ``scoring=`` object of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from expost.core.mask import filled
from expost.holdout.question import Metric, metric_of, row_scores

if TYPE_CHECKING:
    from expost.holdout.reusable import ReusableHoldout

__all__ = ["HoldoutScorer"]


class HoldoutScorer:
    """Scores a fitted estimator for ``GridSearchCV(scoring=...)``, ``cross_val_score`` and the like.

    The score of the fold that scikit-learn hands over is the guess; where the holdout disagrees by more than the
    threshold, its own noisy answer takes the fold's place. Each call is one question. Run with ``n_jobs=1``: the budget
    lives in one process and refuses to be pickled.

    >>> from expost.holdout import ReusableHoldout
    >>> from sklearn.dummy import DummyClassifier
    >>> y = np.arange(40_000) % 2
    >>> X = y[:, None] * 1.0
    >>> with ReusableHoldout((X, y), (X, y), tolerance=0.2, failure_probability=0.05, max_queries=20) as holdout:
    ...     float(holdout.scorer()(DummyClassifier(strategy="constant", constant=1).fit(X, y), X, y))
    0.5
    """

    def __init__(self, holdout: ReusableHoldout, metric: str | Metric = "accuracy") -> None:
        self._holdout, self._metric = holdout, metric_of(metric)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """The score of one fold, corrected by the holdout."""
        scores = np.asarray(filled(row_scores(estimator, self._metric)(X, y), 0), np.float64)
        fold = float(np.clip(np.nan_to_num(scores), 0.0, 1.0).mean())
        return float(self._holdout.ask(row_scores(estimator, self._metric), guess=fold))

    def __deepcopy__(self, memo: object) -> HoldoutScorer:
        return self  # scikit-learn copies its parameters; the budget must stay one

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("Expected n_jobs=1: a pickled scorer would spend the holdout's budget twice.")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse
