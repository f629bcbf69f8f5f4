"""The bases of classifiers: what an estimator of one's own gets from them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from expost import Dataset, InvalidRequest, save_model
from expost.core import Adjacency, Norm, PureLoss, Release, Sealed, Sensitivity
from expost.models.linear.linear_classifier import PrivateClassifier
from expost.models.linear.linear_estimator import DeclaredClasses
from expost.models.linear.linear_fit import FitPlan, FitTerms
from expost.models.linear.row_loss import LogisticLoss, RowLoss
from expost.noise import LaplaceMechanism

LABELS = np.repeat(["a", "b", "c"], [100, 700, 200])
ROWS = np.zeros((1000, 2))


@dataclass(frozen=True)
class Counts:
    """A model with the only method that a base asks for."""

    counts: tuple[int, ...]

    def predict(self, rows: Any) -> np.ndarray:
        return np.tile(self.counts, (rows.shape[0], 1))


class CountFit(FitPlan):
    question = "most frequent class"

    def __init__(self, problem: Any, classes: int) -> None:
        self._problem, self._classes = problem, classes

    def measure(self, source: Any) -> Sealed:
        counts = sum(np.bincount(codes[codes >= 0], minlength=self._classes) for _, codes in source.read())
        return Sealed(counts, Sensitivity(2, Norm.L1, Adjacency.REPLACE_ONE))

    def climb(self, sealed: Sealed, bits: Any) -> Release[Counts]:
        noisy = LaplaceMechanism(self._problem.aim.cap).release(sealed, bits=bits)
        return self.release_value(Counts(tuple(noisy.tolist())), method="counts", generation=self._problem.aim.cap)


@dataclass(frozen=True)
class CountQuery:
    terms: FitTerms
    classes: int
    question = CountFit.question

    def plan(self, dataset: Any, context: Any) -> Any:
        return CountFit(self.terms.describe(dataset), self.classes)


class Majority(DeclaredClasses):
    def __init__(self, *, epsilon: Any = None, classes: Any = None, simulation_seed: Any = None) -> None:
        self._store_arguments(locals())

    def _build_query(self) -> CountQuery:
        return CountQuery(self._read_terms(), len(self.classes_))


class TwoClasses(PrivateClassifier):
    def __init__(self, *, epsilon: Any = None, classes: Any = None, simulation_seed: Any = None) -> None:
        self._store_arguments(locals())

    def _build_loss(self) -> RowLoss:
        return LogisticLoss()


@pytest.mark.parametrize("classes", [["a", "b", "c"], "observed", np.array(["a", "b", "c"])])
def test_several_classes_are_read_predicted_and_scored(classes: object) -> None:
    model = clone(Majority(epsilon=1.0, classes=classes, simulation_seed=1)).fit(ROWS, LABELS)

    assert model.classes_.tolist() == ["a", "b", "c"]
    assert set(model.predict(ROWS)) == {"b"}
    assert model.score(ROWS, LABELS) == model.score(ROWS, pa.array(LABELS)) == 0.7
    assert model.score(ROWS, np.full(1000, "other")) == 0
    assert model.receipt_.bill == PureLoss(1)


def test_a_loss_is_all_that_a_classifier_of_two_classes_must_define() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, (4000, 2))
    label = (x[:, 0] > x[:, 1]).astype(int)

    assert TwoClasses(epsilon=2.0, classes=(0, 1), simulation_seed=1).fit(x, label).score(x, label) > 0.8
    with pytest.raises(InvalidRequest, match=r"Only binary.*classes=\(negative, positive\)"):
        TwoClasses(epsilon=2.0, classes=(0, 1, 2)).fit(x, label)


@pytest.mark.parametrize(
    "classes", [["a"], ["a", "a"], [1.0, float("nan")], [["a", "b"], ["c", "d"]], [["a"], ["b", "c"]], [{}, []]]
)
def test_classes_that_are_not_two_different_labels_are_refused(classes: object) -> None:
    with pytest.raises(InvalidRequest, match=r"Expected at least two different classes.*classes=\[\.\.\.\]"):
        Majority(epsilon=1.0, classes=classes).fit(ROWS, LABELS)


@pytest.mark.parametrize(
    ("classes", "message"),
    [(None, "as public knowledge"), ("a", "a list of classes, got 'a'"), (3, "a list of classes"), (b"ab", "a list")],
)
def test_classes_that_are_not_a_list_are_refused(classes: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Majority(epsilon=1.0, classes=classes).fit(ROWS, LABELS)


def test_labels_are_not_read_off_a_dataset() -> None:
    table = pa.table({"x": [0.0, 1.0], "y": ["a", "b"]})
    people = Dataset(table, name="people", adjacency="replace-one", rows=2)

    with pytest.raises(InvalidRequest, match="labels of a dataset are private: pass classes="):
        Majority(epsilon=1.0, classes="observed").fit(people, "y")


def test_a_model_that_is_not_fitted_does_not_predict() -> None:
    with pytest.raises(NotFittedError):
        Majority(epsilon=1.0, classes=["a", "b"]).predict(ROWS)


def test_the_error_about_a_model_that_cannot_be_saved_names_it(tmp_path) -> None:
    model = Majority(epsilon=1.0, classes=["a", "b", "c"]).fit(ROWS, LABELS)

    with pytest.raises(InvalidRequest, match=r"got 'Majority'.*Pickle"):
        save_model(model, tmp_path / "model.json")
