"""``Classifier``: classes of the rows of a mixed table, to the score that is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from expost.core import InvalidRequest, explain_arguments, share_parameters
from expost.data import Dataset
from expost.data.value_place import label_codes
from expost.models.declared_bounds import read_described_classes
from expost.models.estimator import (
    OBSERVED,
    PREDICTED_ROWS,
    PrivateEstimator,
    ScoreParameter,
    check_flag,
    read_observed_classes,
)
from expost.models.tabular.class_weight import ClassWeights, read_class_weight
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn
from expost.models.tabular.probability_calibration import apply_calibration
from expost.models.tabular.promise_margin import PromiseMargin
from expost.models.tabular.score_sum import compute_chances
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_report import TableReport
from expost.models.tabular.tabular_estimator import TabularEstimator, label_of

__all__ = ["Classifier"]


@share_parameters(TabularEstimator, PrivateEstimator)
class Classifier(ClassifierMixin, TabularEstimator):  # type: ignore[misc]
    """Classify the rows of a mixed table, as privately as the score allows.

    A linear model (logistic, or softmax over several classes) of numbers, categories, flags and dates is trained by Newton
    steps with Gaussian noise, or by objective perturbation if ``delta`` is 0. Adjacency is add/remove of one row, or of one
    person with all rows (``unit``).

    Parameters
    ----------
    classes : sequence or "observed", optional
        The labels, as public knowledge; a row with another label is never predicted correctly. Default: what ``columns``
        or the dataset declares of the target, or False and True for a boolean one. ``"observed"`` declares it public which
        labels occur and reads them.
    class_weight : mapping or "balanced", optional
        The weight of each class, as public knowledge: ``{"yes": 3, "no": 1}``. ``"balanced"`` weighs classes in inverse
        proportion to their shares, which are released with noise inside the bill. The score, and the promise about it, are
        then those of the weighted rows.
    calibrate : bool, default False
        Release counts of probabilities per class, inside the bill, and recalibrate ``predict_proba`` with them. Predictions
        of classes stay those that were tested. Of several classes each is calibrated against the others.

    Attributes
    ----------
    classes_ : ndarray
        The classes.

    See Also
    --------
    expost.LogisticRegression : objective perturbation with every number by hand, for two classes.
    expost.SGDClassifier : every setting of the training by hand.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age, job = rng.integers(18, 80, 20_000), rng.choice(["a", "b"], 20_000)
    >>> table = {"age": age, "job": job, "rich": (age > 40) ^ (job == "b") & (age < 60)}
    >>> columns = {"age": (18, 80), "job": ["a", "b"], "rich": [False, True]}
    >>> model = Classifier(score=("accuracy", 0.7), columns=columns).fit(table, target="rich")
    >>> model.receipt_.outcome.value, model.receipt_.epsilon < 0.5
    ('tested', True)
    """

    _classifier = True
    _reports = ("auc", "coefficients")
    classes: Any
    class_weight: Any
    calibrate: Any

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
        classes: Sequence[Any] | Literal["observed"] | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        calibrate: bool = False,
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

    @explain_arguments
    def price(self, *, rows: int | None = None) -> PromiseMargin:
        """Return how good a model must be for its test to accept it, at some epsilons. Nothing is spent and no row is read.

        Parameters
        ----------
        rows : int, optional
            The number of rows, or of persons, or about that. Default: the declared one.

        Returns
        -------
        PromiseMargin
            It prints as text.

        Raises
        ------
        InvalidRequest
            There is no score to reach, the margin of its measure is not known before, or the number of rows is missing.

        Examples
        --------
        >>> print(Classifier(score=("accuracy", 0.99), max_epsilon=0.1).price(rows=500))
        With 500 rows, accuracy 0.99 is out of reach: at the cap the margin of the test is larger than all errors that ...
        """
        return self._find_margin(rows)

    def _early_classes(self, y: Any) -> Sequence[Any] | None:
        if self._labels_are_public:
            if isinstance(y, str):
                raise InvalidRequest(
                    "Expected a list of classes: labels in a table are read only after the charge",
                    got=OBSERVED,
                    do="Pass classes=[...], the public ones",
                )
            return list(read_observed_classes(self._read_vector(y)).tolist())
        label = label_of(y)
        declared = None if label is None else self._declared_target(label)
        if isinstance(declared, FlagColumn) or declared == "boolean":
            declared = [False, True]
        elif isinstance(declared, CategoryColumn):
            declared = list(declared.levels)
        found = self.classes if self.classes is not None else declared
        if found is None:
            return None
        if isinstance(found, str | bytes) or not (isinstance(found, Sequence) or hasattr(found, "__array__")):
            raise InvalidRequest("Expected a list of classes", got=found, do="Pass classes=[...], the public ones")
        listed: Sequence[Any] = np.asarray(found).tolist()
        return listed

    def _read_target(
        self, dataset: Dataset, target: str, known: Sequence[Any] | None
    ) -> tuple[NDArray[Any] | None, tuple[float, float]]:
        if known is None:
            known = read_described_classes(dataset, target)
        if known is None:
            raise InvalidRequest(
                f"Expected the classes of {target!r} as public knowledge",
                do=f'Pass classes=[...], or add "{target}": [...] to columns',
            )
        self.classes_ = np.asarray(known)
        return self.classes_, (-1.0, 1.0)

    def _read_class_weights(self, labels: Sequence[Any] | None) -> ClassWeights | None:
        found = read_class_weight(self.class_weight, list(labels or ()))
        if found is not None and self.rows is not None:
            raise InvalidRequest(
                "Expected rows or class_weight, one of them: weighted rows are counted by their weights",
                do="Leave rows out",
            )
        return found

    def _read_report(self, labels: Sequence[Any] | None) -> tuple[str, ...]:
        reported = super()._read_report(labels)
        asked = self.__dict__["score"]
        measure = asked[0] if isinstance(asked, tuple | list) and asked else None
        two = labels is not None and len(labels) == 2
        calibrated = check_flag(self.calibrate, "calibrate")
        if not two and measure == "auc":
            raise InvalidRequest(
                "Expected two classes for an area under the curve. Only binary classification is supported for it",
                got=f"{len(labels or ())} classes",
                do='Pass score=("accuracy", 0.9)',
            )
        if calibrated and measure == "log_loss":
            raise InvalidRequest(
                "Expected calibrate=True with another score than log_loss: a test is about the probabilities before",
                do='Pass score=("accuracy", 0.9), or leave calibrate out',
            )
        return reported

    def _make_report(self, encoder: TableEncoder, reported: Sequence[str]) -> TableReport:
        return replace(super()._make_report(encoder, reported), calibrate=bool(self.calibrate))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        asked = self.__dict__["score"]
        area = isinstance(asked, tuple | list) and bool(asked) and asked[0] == "auc"
        # What only a pair of classes has: areas under the curve and reports.
        tags.classifier_tags.multi_class = not (area or bool(self.report))
        return tags

    @share_parameters(PREDICTED_ROWS)
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return one score per class and row; for two classes one per row, positive for the second class."""
        scores = self._compute_scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @share_parameters(PREDICTED_ROWS)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of ``classes_``, recalibrated if the fit was to; none is below 0.002."""
        scores = self._compute_scores(X).T
        return compute_chances(apply_calibration(scores, self.release_.value.calibration)).T

    @share_parameters(PREDICTED_ROWS)
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of each row."""
        scores = self._compute_scores(X)
        chosen = (scores[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    @share_parameters(PREDICTED_ROWS)
    def _score_accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that are predicted correctly; a label that is not a class never is."""
        predicted = self.predict(X)
        told = label_codes(self._read_true_targets(y, predicted), self.classes_)
        right = label_codes(predicted, self.classes_) == told
        return float(np.average(right, weights=sample_weight))

    score = ScoreParameter(_score_accuracy)
