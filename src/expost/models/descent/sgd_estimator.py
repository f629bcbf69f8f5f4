"""The estimators trained by private gradient descent: to an accuracy, at an epsilon, or with a given noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score

from expost.core import InvalidRequest, Measure, Release, explain_arguments, share_parameters
from expost.core.rational import rational
from expost.data.row_source import plain_numbers
from expost.data.value_place import label_codes
from expost.models.descent.gradient_model import PrivateGradientModel
from expost.models.descent.linear_learner import LinearScores
from expost.models.descent.score_head import ABSENT, CurvedHead, Head, Huber, Logistic, Softmax, Squared
from expost.models.descent.training_order import TrainingCourse
from expost.models.descent.training_rows import TargetCode
from expost.models.estimator import (
    OBSERVED,
    PREDICTED_ROWS,
    PrivateEstimator,
    ScoreParameter,
    read_observed_classes,
    read_target_bounds,
)

__all__ = ["SGDClassifier", "SGDRegressor", "label_numbers", "target_numbers"]


@share_parameters(PrivateGradientModel, PrivateEstimator)
class SGDClassifier(ClassifierMixin, PrivateGradientModel):  # type: ignore[misc]
    """Train a linear classifier (logistic, or softmax over several classes) by private gradient descent.

    Adjacency is add/remove of one row, or of one person where the unit of a ``Dataset`` is an id. ``rows``, ``classes`` and all bounds are public facts and must not be read from
    private data.

    Parameters
    ----------
    classes : sequence or "observed"
        The labels, as public knowledge. A row with another label contributes nothing. ``"observed"`` declares it public
        which labels occur and reads them. Default: the categories of the target of a ``Dataset``.

    Attributes
    ----------
    coef_, intercept_ : ndarray
        Coefficients and intercepts for raw rows within the bounds, one row per score.
    classes_ : ndarray
        The classes.

    See Also
    --------
    expost.LogisticRegression : pure differential privacy, for two classes.
    expost.torch.train : networks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = SGDClassifier(score=("accuracy", 0.9), classes=[0, 1], rows=20_000, feature_bound=3.0).fit(X, y)
    >>> model.receipt_.outcome.value, model.receipt_.epsilon <= 1.0
    ('tested', True)
    >>> prices = SGDClassifier(noise_multiplier=10, rows=20_000, steps=50, classes=[0, 1]).price()
    >>> round(float(prices.cap.epsilon), 2)
    3.31
    """

    @explain_arguments
    def __init__(
        self,
        *,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        max_epsilon: float | None = None,
        delta: float = 1e-6,
        failure_probability: float = 0.1,
        classes: Sequence[Any] | Literal["observed"] | None = None,
        rows: int | Literal["observed"] | None = None,
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
        self._store_arguments(locals())

    _measures = (Measure.ACCURACY,)
    classes: Any

    def _encode_targets(self, labels: Any) -> NDArray[np.intp]:
        known = self._described_classes if self.classes is None else self.classes
        if known is None:
            raise InvalidRequest(
                "Expected the classes as public knowledge",
                do='Pass classes=[...]; or classes="observed" if it is public which labels occur',
            )
        if isinstance(known, str) and known == OBSERVED:
            # The caller declares it public which labels occur; only then may they be read from the data.
            classes = read_observed_classes(labels)
        elif isinstance(known, str | bytes) or not (isinstance(known, Sequence) or hasattr(known, "__array__")):
            raise InvalidRequest("Expected a list of classes", got=known, do="Pass classes=[...], the public ones")
        else:
            classes = np.asarray(known)
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

    def _describe_labels(self) -> Any:
        return self.classes_.tolist()

    def _build_head(self) -> Head:
        head = Logistic() if len(self.classes_) == 2 else Softmax(len(self.classes_))
        if self.solver == "newton" and not isinstance(head, CurvedHead):
            raise InvalidRequest(
                "Expected two classes or a regression for Newton steps. Only binary classification is supported",
                do='Pass solver="gradient" for more classes',
            )
        return head

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Newton steps need a head with a known curvature.
        tags.classifier_tags.multi_class = self.solver != "newton" or isinstance(Softmax(3), CurvedHead)
        return tags

    @share_parameters(PREDICTED_ROWS)
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return one score per class and row; for two classes one per row, positive for the second class."""
        scores = self._score_rows(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @share_parameters(PREDICTED_ROWS)
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of each row."""
        scores = self._score_rows(X)
        predicted: NDArray[Any] = self.classes_[self._choose_class(scores)]
        return predicted

    @share_parameters(PREDICTED_ROWS)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of ``classes_``."""
        scores = self._score_rows(X)
        if len(self.classes_) > 2:
            return np.asarray(softmax(scores, axis=1))
        second = expit(scores[:, 0])
        return np.column_stack([1 - second, second])

    def _choose_class(self, scores: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the index of the predicted class."""
        return (scores[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else scores.argmax(axis=1)

    @share_parameters(PREDICTED_ROWS)
    def _score_accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that are predicted correctly; a label that is not a class never is."""
        scores = self._score_rows(X)
        right = self._choose_class(scores) == label_numbers(self._read_true_targets(y, scores), self.classes_)
        return float(np.average(right, weights=sample_weight))

    score = ScoreParameter(_score_accuracy)


@share_parameters(PrivateGradientModel, PrivateEstimator)
class SGDRegressor(RegressorMixin, PrivateGradientModel):  # type: ignore[misc]
    """Train a linear regression (squared or Huber loss) by private gradient descent.

    Adjacency is add/remove of one row, or of one person where the unit of a ``Dataset`` is an id. ``rows`` and all bounds are public facts and must not be read from private data.

    Parameters
    ----------
    target_bounds : (low, high) or float, optional
        Public bounds of the target; one number b stands for (-b, b). Targets and predictions are clipped to them.
        Default: those of the ``Dataset``; must be given where it has none.
    loss : {"squared", "huber"}, default "squared"
        The loss of an error.
    huber_width : float, default 0.5
        The error from which on the Huber loss is linear, in units of half the target's range.

    Attributes
    ----------
    coef_ : ndarray
        Coefficients for raw rows within the bounds, in units of the target.
    intercept_ : float
        The intercept.

    See Also
    --------
    expost.Ridge : pure differential privacy.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2)); y = X @ [1.0, -0.5]
    >>> model = SGDRegressor(epsilon=1.0, rows=20_000, target_bounds=2, feature_bound=1.5).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5]).max() < 0.1)
    True
    """

    @explain_arguments
    def __init__(
        self,
        *,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        max_epsilon: float | None = None,
        delta: float = 1e-6,
        failure_probability: float = 0.1,
        target_bounds: tuple[float, float] | float | None = None,
        loss: str = "squared",
        huber_width: float = 0.5,
        rows: int | Literal["observed"] | None = None,
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
        self._store_arguments(locals())

    _measures = (Measure.RMSE, Measure.R2)
    target_bounds: Any
    loss: str
    huber_width: Any

    def _encode_targets(self, numbers: Any) -> NDArray[np.float64]:
        return target_numbers(numbers, *self._read_bounds())

    def _target_code(self) -> TargetCode:
        low, high = self._read_bounds()
        return partial(target_numbers, low=low, high=high)

    def _read_bounds(self) -> tuple[float, float]:
        """Return the public bounds of the target; where none are declared, a fit is refused before it reads targets."""
        given = self._described_targets if self.target_bounds is None else self.target_bounds
        return read_target_bounds(1.0 if given is None else given, do="Pass public bounds")

    def _bounds_of_fit(self) -> tuple[float, float]:
        """Return the bounds that the model was fitted with, whatever ``target_bounds`` was set to since."""
        return getattr(self, "_fitted_bounds", None) or self._read_bounds()

    @property
    def _targets_are_declared(self) -> bool:
        return self.target_bounds is not None or self._described_targets is not None

    def _describe_labels(self) -> Any:
        return self._read_bounds()

    def _score_unit(self) -> float:
        low, high = self._read_bounds()
        return (high - low) / 2

    def _build_head(self) -> Head:
        if self.loss == "squared":
            return Squared()
        if self.loss == "huber":
            return Huber(width=float(rational(self.huber_width, "huber_width")))
        raise InvalidRequest("Expected loss to be squared or huber", got=self.loss, do="Name one of them")

    def _keep_release(self, release: Release[LinearScores], course: TrainingCourse | None) -> None:
        super()._keep_release(release, course)
        low, high = self._fitted_bounds = self._read_bounds()
        half, middle = (high - low) / 2, (high + low) / 2
        self.coef_ = release.value.coefficients[0] * half
        self.intercept_ = float(release.value.intercepts[0] * half + middle)

    @share_parameters(PREDICTED_ROWS)
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted target of each row, clipped to ``target_bounds``."""
        low, high = self._bounds_of_fit()
        return np.clip(self._score_rows(X)[:, 0], -1.0, 1.0) * ((high - low) / 2) + (high + low) / 2

    @share_parameters(PREDICTED_ROWS)
    def _score_r2(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions; targets are clipped and filled as in training."""
        predicted, (low, high) = self.predict(X), self._bounds_of_fit()
        told = target_numbers(self._read_true_targets(y, predicted), low, high) * ((high - low) / 2) + (high + low) / 2
        return float(r2_score(told, predicted, sample_weight=sample_weight))

    score = ScoreParameter(_score_r2)


def label_numbers(labels: Any, classes: Any) -> NDArray[np.intp]:
    """Return the index of each label among the declared classes, ``ABSENT`` for any other label."""
    known = np.asarray(classes)
    if known.ndim != 1 or len(known) < 2 or len(set(known.tolist())) != len(known) or (known != known).any():
        got = "one class" if known.size == 1 else "some that are equal or missing"
        raise InvalidRequest(
            "Expected at least two different classes", got=got, do="Pass classes=[...], the public ones"
        )
    return label_codes(labels, known)


def target_numbers(targets: Any, low: float, high: float) -> NDArray[np.float64]:
    """Clip numbers to public bounds and map them to [-1, 1]; a missing one becomes the middle."""
    if not low < high:
        raise InvalidRequest("Expected target bounds (low, high), low below high", do="Pass public bounds")
    middle, half = (low + high) / 2, (high - low) / 2
    values = np.nan_to_num(plain_numbers(targets), nan=middle, posinf=high, neginf=low)
    centered: NDArray[np.float64] = (np.clip(values, low, high) - middle) / half
    return centered
