"""Linear classifiers, as accurate as asked and no less private than that needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from expost.accuracy.paper2017 import Task
from expost.core import BudgetExceeded, ExpostError, InvalidRequest, Measure, Release, Request
from expost.core.rational import rational
from expost.data import Dataset
from expost.data.matrix import RowSource
from expost.data.places import label_codes
from expost.models.estimator import PrivateLinearModel
from expost.models.linear.classification import TiltedClassifier, code_signs, signs
from expost.models.linear.doubling import Doubling
from expost.models.linear.gradient_fit import GradientFit
from expost.models.linear.losses import HuberHinge, Logistic, Loss
from expost.models.linear.model import LinearModel
from expost.models.linear.monotone_fit import MonotoneFit
from expost.models.linear.noise_reduction import NoiseReduction
from expost.models.linear.output_fit import OutputFit
from expost.models.linear.paper_fit import PaperFit
from expost.models.linear.problem import Problem
from expost.models.linear.tested_fit import TestedFit
from expost.models.linear.theory import TheoryInversion
from expost.models.observed import OBSERVED, observed_classes
from expost.models.score_parameter import ScoreParameter

__all__ = ["HuberSVC", "LogisticRegression"]

_CORNERS = 10**6  # a hinge rounded over more than this, or less than its inverse, is beyond what floats tell apart
_FOR_SCORES = ("test", "absolute_loss")
_WITH_DELTA = ("auto", "objective", "output")


_Way = Callable[["PrivateClassifier", Problem], Request]
_METHODS: dict[str, _Way] = {
    "objective": lambda model, problem: TiltedClassifier(
        problem, model._loss(), model._labels(), delta=model._given_delta()
    ),
    "output": lambda model, problem: OutputFit(problem, model._loss(), model._labels(), delta=model._given_delta()),
    "gradient": lambda model, problem: GradientFit(problem, model._loss(), model._labels()),
    "test": lambda model, problem: TestedFit(
        problem,
        model._loss(),
        model._labels(),
        validation=int(model.validation_every or 0),
        known_target=code_signs,
    ),
}


def _paper(way: Callable[[PaperFit], Request]) -> _Way:
    return lambda model, problem: way(PaperFit(problem, Task.LOGISTIC_OUTPUT, model._labels()))


_ABSOLUTE_LOSS = "absolute_loss"
_LOGISTIC_METHODS: dict[str, _Way] = {
    _ABSOLUTE_LOSS: lambda model, problem: MonotoneFit(problem, model._loss(), model._labels()),
    "output_nr": _paper(NoiseReduction),
    "doubling": _paper(Doubling),
    "theory": _paper(TheoryInversion),
    "paper2017": _paper(lambda fit: NoiseReduction(fit, authors=True)),
}


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base of the two-class estimators."""

    classes: Any
    validation_every: Any
    rows: Any = None
    _methods: dict[str, _Way] = _METHODS

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _checked_target(self, y: Any) -> Any:
        labels = super()._checked_target(y)
        if isinstance(self.classes, str) and self.classes == OBSERVED:
            # The caller says that which labels occur is public; only then may they be read off the data.
            self._set_classes(observed_classes(labels))
        return labels

    def _set_classes(self, classes: Any) -> None:
        if len(classes) != 2:
            count = "one class" if len(classes) == 1 else f"{len(classes)} classes"
            raise InvalidRequest(
                f"Only binary classification is supported. Expected two classes, got {count}",
                do="Pass classes=(negative, positive)",
            )
        self.classes_ = np.asarray(classes)

    def _request(self, problem: Problem, source: RowSource) -> Request:
        asked = problem.aim.target
        scored = asked is not None and asked.measure is not Measure.EXCESS_RISK
        if self._given_delta() is not None and (scored or self.method not in _WITH_DELTA):
            raise InvalidRequest(
                "Expected delta to be 0 for this method and target",
                got=self.delta,
                do=f"Leave delta out, or pass excess_risk= or epsilon= and method={' or '.join(_WITH_DELTA)}",
            )
        if self.method == "auto" and not scored:
            return self._cheapest(problem)
        name = "test" if self.method == "auto" else self.method
        if not isinstance(name, str) or name not in self._methods:
            raise InvalidRequest(
                f"Expected method to be one of auto, {', '.join(self._methods)}", got=self.method, do="Name one of them"
            )
        if scored != (name in _FOR_SCORES):
            do = 'Pass method="test"' if scored else "Pass score= to test for one"
            raise InvalidRequest("Expected a method that fits the target", got=name, do=do)
        return self._methods[name](self, problem)

    def _declared_rows(self) -> int | None:
        if (self.method == _ABSOLUTE_LOSS) != (self.rows is not None):
            raise InvalidRequest(
                "Expected rows beside the method absolute_loss, and only there",
                do="Pass about how many rows there are, a public number, because their true number is then private",
            )
        if self.rows is None:
            return None
        if isinstance(self.rows, bool) or not isinstance(self.rows, int | np.integer) or self.rows < 1:
            raise InvalidRequest("Expected rows to be a positive integer", got=self.rows, do="Pass a public number")
        return int(self.rows)

    def _problem(self, source: RowSource) -> Problem:
        problem, declared = super()._problem(source), self._declared_rows()
        return problem if declared is None else replace(problem, rows=declared)

    def _cheapest(self, problem: Problem) -> Request:
        """Objective or output perturbation: the cheaper or, at a given epsilon, the more accurate one."""
        ways: list[TiltedClassifier | OutputFit] = []
        refused: list[ExpostError] = []
        for name in ("objective", "output"):
            try:
                ways.append(cast("TiltedClassifier | OutputFit", self._methods[name](self, problem)))
            except (InvalidRequest, BudgetExceeded) as error:  # too few rows for this way, or above the cap
                refused.append(error)
        if not ways:
            raise refused[0]
        if problem.aim.epsilon is not None:
            return min(ways, key=lambda way: way.excess_risk)
        return min(ways, key=lambda way: way.worst_case.amounts()["epsilon"])

    def _labels(self) -> Callable[[Any], NDArray[np.float64]]:
        return lambda codes: signs(code_signs(codes))

    def _public_classes(self) -> NDArray[Any]:
        if self.classes_[0] == self.classes_[1]:
            raise InvalidRequest("Expected two different classes", do="Pass classes=(negative, positive)")
        return self.classes_

    def _read(self, X: Any, y: Any) -> RowSource:
        if self.classes is None:
            raise InvalidRequest(
                "Expected the two classes as public knowledge",
                do='Pass classes=(negative, positive); or classes="observed" if it is public which labels occur',
            )
        if isinstance(self.classes, Iterable) and not isinstance(self.classes, str):
            self._set_classes(list(self.classes))
        elif self.classes != OBSERVED or isinstance(X, Dataset):
            raise InvalidRequest("Expected two classes", got=self.classes, do="Pass classes=(negative, positive)")
        return super()._read(X, y)

    def _keep(self, release: Release[LinearModel]) -> None:
        super()._keep(release)
        self.coef_: NDArray[np.float64] = release.value.coefficients[None, :]
        self.intercept_: NDArray[np.float64] = np.array([release.value.intercept])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The signed score of each row, read as in ``fit`` (cut, missing values filled); positive for the second class."""
        return self._scored(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The predicted class of each row."""
        positive = self.decision_function(X) > 0
        predicted: NDArray[Any] = self.classes_[positive.astype(np.intp)]
        return predicted

    def _accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows that are predicted right; a label that is neither class never is, as in a private test."""
        scores = self.decision_function(X)
        known = code_signs(label_codes(self._told(y, scores), self._public_classes()))
        return float(np.average(((scores > 0) == (known > 0)) & (known != 0), weights=sample_weight))

    score = ScoreParameter(_accuracy)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class LogisticRegression(PrivateClassifier):
    """Logistic regression, private at the smallest epsilon that reaches the accuracy asked for.

    Say exactly one of: ``excess_risk`` (how far mean logistic loss plus regularization / 2 |coef|^2 may be above its
    minimum), ``score`` (``("accuracy", 0.9)`` or ``("log_loss", 0.4)``), or ``epsilon``. Rows are clipped to ``feature_bound`` in ``feature_norm``, a public number; ``bounds``
    gives public limits column by column instead (columns are then scaled to [0, 1], and the penalty is that of the
    scaled problem). ``classes`` are public; a label that is neither is fitted as the first one, and no prediction gets it
    right where an accuracy is tested. With ``validation_every`` k
    scores are tested on about one row in k, chosen by a keyed hash of its content, which is then not fitted: a row pays for one of
    the two, not for both. With
    ``delta`` Gaussian noise is taken where it costs less; the bill is then an (epsilon, delta) pair.
    ``method="absolute_loss"`` tests for a log loss under neighbours that add or remove a row, with half the noise; the
    number of rows is then private, and ``rows`` says in public about how many there are.

    >>> rows = np.tile([[0.9, 0.1], [0.1, 0.9]], (20_000, 1))
    >>> label = np.tile([1, 0], 20_000)
    >>> model = LogisticRegression(excess_risk=0.01, regularization=0.01, classes=(0, 1)).fit(rows, label)
    >>> model.predict([[1.0, 0.0], [0.0, 1.0]]).tolist(), model.receipt_.epsilon < 0.1
    ([1, 0], True)
    """

    def __init__(
        self,
        *,
        excess_risk: float | None = None,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        regularization: float = 0.005,
        classes: Any = None,
        feature_bound: float | None = None,
        feature_norm: str = "l1",
        bounds: Any = None,
        fit_intercept: bool = False,
        validation_every: int | None = None,
        rows: int | None = None,
        failure_probability: float = 0.1,
        max_epsilon: float = 1.0,
        method: str = "auto",
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store(locals())

    _scores = ("accuracy", "log_loss")
    _methods = _METHODS | _LOGISTIC_METHODS

    def _loss(self) -> Loss:
        return Logistic()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, one row a row."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1 - positive, positive])

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of ``predict_proba``."""
        return np.log(self.predict_proba(X))


class HuberSVC(PrivateClassifier):
    """A linear support vector machine with a rounded hinge, private at the smallest epsilon that is accurate enough.

    ``corner`` is the half width over which the hinge is rounded; everything else is as in ``LogisticRegression``.

    >>> rows = np.tile([[0.9, 0.1], [0.1, 0.9]], (20_000, 1))
    >>> label = np.tile([1, -1], 20_000)
    >>> model = HuberSVC(excess_risk=0.01, regularization=0.01, classes=(-1, 1)).fit(rows, label)
    >>> model.predict([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [1, -1]
    """

    def __init__(
        self,
        *,
        excess_risk: float | None = None,
        score: tuple[str, float] | None = None,
        epsilon: float | None = None,
        regularization: float = 0.005,
        corner: float = 0.5,
        classes: Any = None,
        feature_bound: float | None = None,
        feature_norm: str = "l1",
        bounds: Any = None,
        fit_intercept: bool = False,
        validation_every: int | None = None,
        failure_probability: float = 0.1,
        max_epsilon: float = 1.0,
        method: str = "auto",
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store(locals())

    _scores = ("accuracy",)

    def _loss(self) -> Loss:
        corner = rational(self.corner, "corner")
        if corner * _CORNERS < 1 or corner > _CORNERS:
            raise InvalidRequest(
                f"Expected corner from {1 / _CORNERS:g} to {_CORNERS}", got=self.corner, do="Pass e.g. corner=0.5"
            )
        return HuberHinge(float(corner))
