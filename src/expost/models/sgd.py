"""Linear models by private stochastic gradient descent: to an accuracy, at an epsilon, or with a given noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score

from expost.core import InvalidRequest, Measure, Release
from expost.core.rational import rational
from expost.models.column_bounds import is_interval
from expost.models.descent.head import ABSENT, Head, Huber, Logistic, Softmax, Squared
from expost.models.descent.learner import LinearScores
from expost.models.descent.order import Plan
from expost.models.descent.table import label_numbers, target_numbers
from expost.models.gradient_model import PrivateGradientModel
from expost.models.observed import OBSERVED, observed_classes

__all__ = ["SGDClassifier", "SGDRegressor"]


class SGDClassifier(ClassifierMixin, PrivateGradientModel):  # type: ignore[misc]
    """A linear classifier (logistic, or softmax over several classes) trained by private gradient descent.

    Say one of: ``target=("accuracy", 0.95)``, then training stops by itself as soon as a private test on rows held out
    says so, at a bill that is at most ``max_epsilon``; ``epsilon``, then the noise is found; or ``noise_multiplier``,
    then ``price()`` says the epsilon. ``rows`` (about how many there are) and ``classes`` are public numbers that must
    not be read off private data; ``"observed"`` says that they may be. Rows are clipped to ``feature_bound`` in
    Euclidean length, or scaled to [-1, 1] by public column ``bounds``. ``solver="newton"`` releases curvatures with the
    gradients, at the same price, and takes Newton steps: for two classes and few columns; ``learning_rate`` then damps the
    steps (1 if none is given) and ``momentum`` is not used. Without ``steps`` there are 100, or 40 Newton steps
    where there is no target.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = SGDClassifier(target=("accuracy", 0.9), classes=[0, 1], rows=20_000, feature_bound=3.0).fit(X, y)
    >>> model.receipt_.outcome.value, model.receipt_.epsilon <= 1.0
    ('tested', True)
    >>> float(SGDClassifier(noise_multiplier=10, rows=20_000, steps=50, classes=[0, 1]).price().cap.epsilon).__round__(2)
    3.31
    """

    def __init__(
        self,
        *,
        target: tuple[str, float] | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        max_epsilon: float = 1.0,
        delta: float = 1e-6,
        failure_probability: float = 0.1,
        classes: Any = None,
        rows: Any = None,
        feature_bound: float | None = None,
        bounds: Any = None,
        fit_intercept: bool = True,
        regularization: float = 0.0,
        batches: str = "auto",
        batch_size: int | None = None,
        steps: int | None = None,
        phases: int | None = None,
        solver: str = "gradient",
        validation_share: float | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        averaging: float = 8.0,
        accountant: str = "auto",
        ledger: str | None = None,
        account: str | None = None,
        checkpoint: str | None = None,
        progress: bool = False,
        simulation_seed: int | None = None,
    ) -> None:
        self._store(locals())

    _measure = Measure.ACCURACY

    def _targets(self, labels: Any) -> NDArray[np.intp]:
        if self.classes is None:
            raise InvalidRequest(
                "Expected the classes as public knowledge",
                do='Pass classes=[...]; or classes="observed" if it is public which labels occur',
            )
        if isinstance(self.classes, str) and self.classes == OBSERVED:
            # The caller says that which labels occur is public; only then may they be read off the data.
            classes = observed_classes(labels)
        else:
            classes = self._declared()
        numbers = label_numbers(labels, classes)
        self.classes_ = classes
        return numbers

    def _public_classes(self) -> NDArray[Any]:
        return self.classes_

    def _public_targets(self, labels: Any) -> NDArray[np.intp]:
        numbers = label_numbers(labels, self.classes_)
        if (numbers == ABSENT).any():
            raise InvalidRequest("Expected public labels among the classes", do="Name all classes, or drop those rows")
        return numbers

    def _declared(self) -> NDArray[Any]:
        classes = self.classes
        if isinstance(classes, str | bytes) or not (isinstance(classes, Sequence) or hasattr(classes, "__array__")):
            raise InvalidRequest("Expected a list of classes", got=classes, do="Pass classes=[...], the public ones")
        return np.asarray(classes)

    def _labels(self) -> Any:
        return self.classes_.tolist()

    def _head(self) -> Head:
        return Logistic() if len(self.classes_) == 2 else Softmax(len(self.classes_))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows that are predicted right; a label that is no class never is, as in a private test."""
        scores = self._scores(X)
        right = self._chosen(scores) == label_numbers(self._told(y, scores), self.classes_)
        return float(np.average(right, weights=sample_weight))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The scores of rows read as in training: one per class, or for two classes one that is positive for the second."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The predicted class of each row."""
        scores = self._scores(X)
        predicted: NDArray[Any] = self.classes_[self._chosen(scores)]
        return predicted

    def _chosen(self, scores: NDArray[np.float64]) -> NDArray[np.intp]:
        """The number of the predicted class."""
        return (scores[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else scores.argmax(axis=1)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class."""
        scores = self._scores(X)
        if len(self.classes_) > 2:
            return np.asarray(softmax(scores, axis=1))
        second = expit(scores[:, 0])
        return np.column_stack([1 - second, second])


class SGDRegressor(RegressorMixin, PrivateGradientModel):  # type: ignore[misc]
    """A linear regression (squared or Huber loss) trained by private gradient descent.

    The target is cut to the public ``target_bounds``. Otherwise as ``SGDClassifier``, with ``target=("rmse", 0.1)``.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2)); y = X @ [1.0, -0.5]
    >>> model = SGDRegressor(epsilon=1.0, rows=20_000, target_bounds=(-2, 2), feature_bound=1.5).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5]).max() < 0.1)
    True
    """

    def __init__(
        self,
        *,
        target: tuple[str, float] | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        max_epsilon: float = 1.0,
        delta: float = 1e-6,
        failure_probability: float = 0.1,
        target_bounds: tuple[float, float] = (-1.0, 1.0),
        loss: str = "squared",
        huber_width: float = 0.5,
        rows: Any = None,
        feature_bound: float | None = None,
        bounds: Any = None,
        fit_intercept: bool = True,
        regularization: float = 0.0,
        batches: str = "auto",
        batch_size: int | None = None,
        steps: int | None = None,
        phases: int | None = None,
        solver: str = "gradient",
        validation_share: float | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        averaging: float = 8.0,
        accountant: str = "auto",
        ledger: str | None = None,
        account: str | None = None,
        checkpoint: str | None = None,
        progress: bool = False,
        simulation_seed: int | None = None,
    ) -> None:
        self._store(locals())

    _measure = Measure.RMSE

    def _targets(self, numbers: Any) -> NDArray[np.float64]:
        return target_numbers(numbers, *self._bounds())

    def _bounds(self) -> tuple[float, float]:
        if not is_interval(self.target_bounds):
            raise InvalidRequest("Expected target_bounds (low, high), low below high", do="Pass two public numbers")
        low, high = self.target_bounds
        return float(low), float(high)

    def _labels(self) -> Any:
        return self._bounds()

    def _score_unit(self) -> float:
        low, high = self._bounds()
        return (high - low) / 2

    def _head(self) -> Head:
        if self.loss == "squared":
            return Squared()
        if self.loss == "huber":
            return Huber(width=float(rational(self.huber_width, "huber_width")))
        raise InvalidRequest("Expected loss to be squared or huber", got=self.loss, do="Name one of them")

    def _keep(self, release: Release[LinearScores], plan: Plan | None) -> None:
        super()._keep(release, plan)
        low, high = self._bounds()
        half, middle = (high - low) / 2, (high + low) / 2
        self.coef_ = release.value.coefficients[0] * half
        self.intercept_ = float(release.value.intercepts[0] * half + middle)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted targets of rows read as in training, cut to ``target_bounds`` as the targets are."""
        low, high = self._bounds()
        return np.clip(self._scores(X)[:, 0], -1.0, 1.0) * ((high - low) / 2) + (high + low) / 2

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the predictions; rows and targets are cut and filled as in training."""
        predicted, (low, high) = self.predict(X), self._bounds()
        told = target_numbers(self._told(y, predicted), low, high) * ((high - low) / 2) + (high + low) / 2
        return float(r2_score(told, predicted, sample_weight=sample_weight))
