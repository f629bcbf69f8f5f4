"""Wrong input to the estimators trained step by step: one form of sentence, no value of the table in it, no charge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from expost import ExpostError, InvalidRequest, approx, open_ledger
from expost.models import LogisticRegression, OneOf, Ridge, SGDClassifier, SGDRegressor, fit_one_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(211, 3))
LABELS = (X[:, 0] > 0).astype(int)
NUMBERS = np.clip(X[:, 0] / 3, -1, 1)
SECRET = "secret-of-row-17"
NAN, INF = float("nan"), float("inf")

SETTINGS: dict[str, list[Any]] = {
    "epsilon": [-1, 0, NAN, INF, "1", [1], True, 1e30],
    "delta": [-1, 0, 1, "x", None, NAN, 0.9, []],
    "rows": [0, -1, 2.5, "many", True, None, 10**40, NAN, [3]],
    "steps": [0, -1, 2.5, "5", True, 10**40, NAN, []],
    "phases": [0, -1, "x", 2.5, 10**6],
    "batch_size": [0, -1, "x", 2.5, 10**40, True, NAN, []],
    "batches": ["x", None, 3, []],
    "solver": ["x", None, 3, []],
    "clip": [0, -1, "x", NAN, INF, 1e-25, []],
    "learning_rate": [0, -1, "x", NAN, INF, 1e300, []],
    "momentum": [-1, 1, "x", None, NAN, []],
    "averaging": [-1, "x", None, NAN, INF, []],
    "regularization": [-1, "x", None, NAN, INF, []],
    "feature_bound": [0, -1, "x", NAN, INF, []],
    "bounds": [
        5,
        "abc",
        [(0, 1)],
        [(1, 0)] * 3,
        [("a", "b")] * 3,
        [(0, INF)] * 3,
        [(NAN, 1)] * 3,
        [0, 1, 2],
        {"a": (0, 1)},
    ],
    "accountant": ["x", None, 3, []],
    "fit_intercept": ["x", None],
    "progress": ["x"],
    "ledger": [3, []],
    "account": [3, ""],
    "checkpoint": [3, [], "", "/no/such/folder/run.npz"],
    "simulation_seed": ["x", 2.5, []],
    "max_epsilon": [-1, "x"],
    "validation_share": [2, "x"],
    "failure_probability": [-1, 0, "x"],
    "noise_multiplier": [1.0],
    "score": [("accuracy", 0.9)],
    "classes": [[], [0], [0, 0], 3, "abc", None, [0, "a"], [[0, 1]], {0, 1}, [NAN, 1], {0: 1}],
}
AIMS: dict[str, list[Any]] = {
    "score": [
        *[("accuracy", value) for value in (2, 1, 0, -1, "x", NAN, 1e-20)],
        *[("rmse", 0.1), ("f1", 0.9), "accuracy", 3, [], ("accuracy",), (["accuracy"], 0.5), {"accuracy": 0.9}],
    ],
    "max_epsilon": [0, -1, "x", NAN],
    "failure_probability": [0, 1, "x", None],
    "validation_share": [0, 1, "x", NAN],
    "phases": [0, 2.5, "x"],
    "epsilon": [1.0],
}
TABLES: dict[str, Any] = {
    "one column": X[:, 0],
    "three dimensions": X[None],
    "no rows": X[:0],
    "no columns": X[:, :0],
    "nothing": None,
    "text": np.array([[SECRET, "b"]] * 211),
    "objects": np.array([[1, SECRET]] * 211, dtype=object),
    "a word": "x",
    "complex": X + 1j,
    "ragged": [[1, 2], [3]],
    "fewer rows": X[:10],
    "dates": np.zeros((211, 2), "datetime64[s]"),
    "a frame with text": pd.DataFrame({"a": [SECRET] * 211, "b": 1.0}),
    "an Arrow table with text": pa.table({"a": [SECRET] * 211}),
}
TARGETS: dict[str, Any] = {
    "nothing": None,
    "two columns": np.c_[LABELS, LABELS],
    "fewer": LABELS[:10],
    "text": np.array([SECRET] * 211),
    "a number": 3,
    "none at all": [],
    "complex": LABELS + 1j,
    "dates": np.zeros(211, "datetime64[s]"),
    "ragged": [[1], [2, 3]] * 100,
}


def classifier(**changes: Any) -> SGDClassifier:
    return SGDClassifier(
        **({"epsilon": 1.0, "classes": [0, 1], "rows": 211, "steps": 3, "feature_bound": 1.0} | changes)
    )


def regressor(**changes: Any) -> SGDRegressor:
    return SGDRegressor(
        **({"epsilon": 1.0, "rows": 211, "steps": 3, "feature_bound": 1.0, "target_bounds": 1.0} | changes)
    )


def aimed(**changes: Any) -> SGDClassifier:
    return classifier(**({"epsilon": None, "score": ("accuracy", 0.6)} | changes))


def pairs(table: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}-{value}"[:40]) for name, values in table.items() for value in values]


def refused(action: Callable[[], object]) -> str:
    """What is said, after a check of its form; anything but a refusal before the charge fails."""
    with pytest.raises(ExpostError) as raised:
        action()
    assert raised.value.cost == "nothing spent, data untouched"
    text = str(raised.value)
    assert text.startswith("Expected ") and text.endswith(".")
    assert SECRET not in text and "1.25730221" not in text and "211" not in text
    return text


@pytest.mark.parametrize(("name", "value"), pairs(SETTINGS))
def test_a_wrong_setting_is_refused(name: str, value: Any) -> None:
    refused(lambda: classifier(**{name: value}).fit(X, LABELS))


@pytest.mark.parametrize(("name", "value"), pairs(AIMS))
def test_a_wrong_target_is_refused(name: str, value: Any) -> None:
    refused(lambda: aimed(**{name: value}).fit(X, LABELS))


@pytest.mark.parametrize("kind", TABLES)
def test_a_wrong_table_is_refused_without_its_values(kind: str) -> None:
    for fit in (classifier().fit, OneOf([aimed(score=None)], score=("accuracy", 0.6)).fit):
        refused(lambda fit=fit: fit(TABLES[kind], LABELS))
    refused(lambda: regressor().fit(TABLES[kind], NUMBERS))


@pytest.mark.parametrize("kind", TARGETS)
def test_a_wrong_target_column_is_refused_without_its_values(kind: str) -> None:
    for fit in (classifier().fit, regressor().fit, OneOf([aimed(score=None)], score=("accuracy", 0.6)).fit):
        refused(lambda fit=fit: fit(X, TARGETS[kind]))


@pytest.mark.parametrize(
    "changes",
    [
        *[
            {"target_bounds": value}
            for value in (None, (1, 0), (0, 0), (0,), "ab", -3, (NAN, 1), (0, INF), (0, 1e-320))
        ],
        *[{"loss": "huber", "huber_width": value} for value in (0, -1, "x", None, NAN, INF)],
        *[{"loss": value} for value in ("x", None, [])],
        *[{"epsilon": None, "score": value} for value in (("accuracy", 0.5), ("rmse", 0), ("rmse", 100))],
    ],
    ids=str,
)
def test_a_wrong_setting_of_a_regression_is_refused(changes: dict[str, Any]) -> None:
    refused(lambda: regressor(**changes).fit(X, NUMBERS))


@pytest.mark.parametrize(
    "changes",
    [
        *[{"models": value} for value in ([], 3, None, [3], "ab")],
        *[{"levels": value} for value in (0, -1, 2.5, "x", None, True, 1000)],
        *[{"fallback": value} for value in (-1, 2, "x", 0.5, True)],
        *[{"score": value} for value in (None, ("accuracy", 2), ("rmse", 0.1), 3)],
        *[{"max_epsilon": value} for value in (0, "x")],
        *[{"delta": value} for value in (0, "x")],
        *[{"validation_share": value} for value in (0, 1, "x")],
    ],
    ids=str,
)
def test_a_wrong_choice_of_models_is_refused(changes: dict[str, Any]) -> None:
    terms = {"models": [aimed(score=None)] * 2, "score": ("accuracy", 0.6)} | changes
    refused(lambda: fit_one_of(terms.pop("models"), X, LABELS, **terms))


@pytest.mark.parametrize(
    "changes",
    [{"epsilon": 1.0}, {"noise_multiplier": 3}, {"phases": 3}, {"validation_share": 0.3}, {"checkpoint": "run.npz"}],
    ids=str,
)
def test_models_to_choose_from_leave_the_price_to_the_choice(changes: dict[str, Any]) -> None:
    refused(lambda: fit_one_of([aimed(**({"score": None} | changes))], X, LABELS, score=("accuracy", 0.6)))


def test_a_refusal_leaves_a_ledger_as_it_was(tmp_path: Path) -> None:
    path = str(tmp_path / "book.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(1, 1e-5))
    wrong = [
        {"clip": 1e-25},
        {"checkpoint": f"{tmp_path}/no/run.npz"},
        {"regularization": 1e6, "learning_rate": 1.0},
        {"delta": 0.5},
    ]
    for changes in wrong:
        refused(lambda changes=changes: classifier(ledger=path, **changes).fit(X, LABELS))
    refused(lambda: regressor(ledger=path, epsilon=None, score=("accuracy", 0.5)).fit(X, NUMBERS))

    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:table").amounts()["epsilon"] == 0
        assert ledger.open_holds() == []


def test_a_strange_value_in_a_column_of_objects_is_no_error() -> None:
    # Whether one row holds a word, a list or nothing is private: an error would tell.
    strange = np.array([*LABELS[:-4].tolist(), SECRET, None, [1, 2], 10**400], dtype=object)

    for model in (classifier(), regressor()):
        assert np.isfinite(model.fit(X, strange).coef_).all()


def test_a_table_to_predict_is_checked_like_one_to_fit() -> None:
    model = classifier().fit(X, LABELS)

    for table in (X[0], X[:, :2], None, np.array([[SECRET, "b", "c"]]), X[:0], "abc"):
        refused(lambda table=table: model.predict(table))
    for width in (0, -1, "x", None, 2.5):
        refused(lambda width=width: model.price(width))


def test_numbers_of_numpy_count_as_numbers() -> None:
    model = classifier(rows=np.int64(211), steps=np.int32(3), batch_size=np.int64(20), batches="disjoint")

    assert model.fit(X, LABELS).receipt_.terms["rows (public)"] == 211


def test_unknown_classes_of_objects_need_no_order() -> None:
    with pytest.raises(InvalidRequest, match="label type"):
        classifier(classes="observed").fit(X, np.array([0, SECRET] * 100, dtype=object))


@pytest.mark.parametrize("cell", [None, pd.NA, pd.NaT, "text", [1], {}, 10**400, 1j])
def test_one_odd_cell_is_not_told(cell: Any) -> None:
    numbers = X.tolist()
    numbers[3][0] = cell
    targets = LABELS.astype(object)
    targets[3] = cell

    assert classifier().fit(numbers, targets).receipt_.epsilon <= 1  # a list has no types: it is a missing value
    assert regressor().fit(X, targets).receipt_.epsilon <= 1
    assert Ridge(epsilon=1.0, feature_bound=1.0, target_bounds=1.0).fit(X, targets).receipt_.epsilon <= 1
    for table in (np.array(numbers, dtype=object), pd.DataFrame(numbers).astype(object)):
        assert "not of objects or text" in refused(lambda table=table: classifier().fit(table, LABELS))


@pytest.mark.parametrize("cell", [None, "text", [1], [1, 2], {}, 10**400, 1j, float("nan")])
def test_one_odd_label_of_a_list_counts_for_no_class_and_leaves_the_others_alone(cell: Any) -> None:
    labels, other = LABELS.tolist(), LABELS.copy()
    labels[3], other[3] = cell, 9
    if cell == [1]:
        other[3] = 1  # a column of one label a row
    models = (
        classifier(simulation_seed=1),
        LogisticRegression(epsilon=1.0, classes=(0, 1), simulation_seed=1, feature_bound=1.0),
    )

    for model in models:
        expected = model.fit(X, other).coef_
        assert (model.fit(X, labels).coef_ == expected).all()


def test_lists_of_labels_may_be_of_any_kind() -> None:
    texts = np.where(LABELS == 1, "b", "a")
    for labels, classes in ((LABELS, [0, 1]), (texts, ["a", "b"]), (LABELS == 1, [False, True]), (LABELS, "observed")):
        model = classifier(simulation_seed=1, classes=classes)
        assert (model.fit(X, labels.tolist()).coef_ == model.fit(X, labels).coef_).all()
    assert np.isfinite(regressor().fit(X, NUMBERS.tolist()).coef_).all()


@pytest.mark.parametrize("label", [float("nan"), float("inf")])
def test_observed_labels_that_are_missing_are_refused_in_our_words(label: float) -> None:
    labels = np.where(np.arange(211) == 3, label, LABELS)

    for model in (
        classifier(classes="observed"),
        LogisticRegression(epsilon=1.0, classes="observed", feature_bound=1.0),
    ):
        assert "label type" in refused(lambda model=model: model.fit(X, labels))


def test_a_ragged_list_is_refused() -> None:
    ragged = [*X.tolist()[:-1], [1.0, 2.0]]
    boxes = [np.zeros((2, 2))] * 210 + [np.zeros((2, 3))]

    for table in (ragged, boxes):
        assert "rows and columns" in refused(lambda table=table: classifier().fit(table, LABELS))


def test_columns_are_numbers_by_their_type() -> None:
    text = ["1"] * 211
    for table in (pd.DataFrame({"a": text}), pl.DataFrame({"a": text}), pa.table({"a": text})):
        assert "not of objects or text" in refused(lambda table=table: classifier().fit(table, LABELS))
    truths = pa.table({"a": pa.array([True, None, False] * 70 + [True]), "b": pa.array([1] * 211, pa.decimal128(5, 2))})
    assert classifier().fit(truths, LABELS).n_features_in_ == 2
    missing = pd.DataFrame({"a": pd.array([1, None, 3] * 70 + [1], "Int64")})
    assert classifier().fit(missing, LABELS).n_features_in_ == 1


def test_a_choice_among_regressions_by_r2_is_told_what_to_pass() -> None:
    models = [regressor(epsilon=None, clip=clip) for clip in (0.1, 1.0)]

    assert "expost.Regressor" in refused(lambda: fit_one_of(models, X, NUMBERS, score=("r2", 0.5)))
    ridge = Ridge(epsilon=1.0, feature_bound=1.0, target_bounds=1.0)
    assert "'Ridge'" in refused(lambda: fit_one_of([ridge], X, NUMBERS, score=("r2", 0.5)))
