"""Wrong input to Ridge, LogisticRegression and HuberSVC: a sentence about what was typed, before anything is spent."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import expost
from expost import ExpostError

RNG = np.random.default_rng(0)
ROWS = 223
X = RNG.uniform(0, 1, (ROWS, 3))
NUMBERS = X @ [1.0, -1.0, 0.5]
LABELS = (NUMBERS > 0.2).astype(int)
SECRET = "secret-of-row-17"
NAN, INF = float("nan"), float("inf")
BOX = [(0, 1)] * 3

Make = Callable[..., Any]
MODELS: dict[str, tuple[Make, dict[str, Any], Any]] = {
    "Ridge": (expost.Ridge, {"epsilon": 5.0, "bounds": BOX, "target_bounds": 2.0}, NUMBERS),
    "LogisticRegression": (expost.LogisticRegression, {"epsilon": 5.0, "bounds": BOX, "classes": (0, 1)}, LABELS),
    "HuberSVC": (expost.HuberSVC, {"epsilon": 5.0, "bounds": BOX, "classes": (0, 1)}, LABELS),
}
EVERY: dict[str, list[Any]] = {
    "epsilon": [-1, 0, NAN, INF, "1", [1], True, 1e-12],
    "delta": [-1, 1, "x", NAN, 0.5, 0.9, []],
    "rows": [0, -1, 2.5, "many", True, 10**40, 10**400, NAN, [3]],
    "regularization": [0, -1, "x", NAN, INF, [], 1e-320, 1e300],
    "feature_bound": [0, -1, "x", NAN, INF, []],
    "feature_norm": ["l3", None, 2, []],
    "bounds": [5, "abc", [(0, 1)], [(1, 0)] * 3, [("a", "b")] * 3, [(0, INF)] * 3, [(NAN, 1)] * 3, {"a": (0, 1)}],
    "fit_intercept": ["yes", None, 2],
    "adjacency": ["x", 3, []],
    "failure_probability": [-1, 0, 1, 2, "x", None],
    "method": ["x", None, 3, [], "test"],
    "ledger": [3, []],
    "account": [3, ""],
    "simulation_seed": ["x", 2.5, []],
    "score": [("accuracy", 0.9), ("r2", 0.5)],  # together with an epsilon
    "excess_risk": [0.1],
}
OWN: dict[str, dict[str, list[Any]]] = {
    "Ridge": {
        "target_bounds": [(1, 0), (0, 0), (0,), "ab", -3, (NAN, 1), (0, INF)],
        "rungs": [0, -1, 2.5, "x", True, 5],  # 5 is for method="certificate" alone
    },
    "LogisticRegression": {
        "classes": [[], [0], [0, 0], [0, 1, 2], 3, "abc", None, [NAN, 1], [[0], [1]]],
        "validation_every": [0, 1, -3, "x", 2.5, True, 5],  # 5 is for scores alone
    },
    "HuberSVC": {"corner": [0, -1, "x", NAN, INF, []], "validation_every": [0, "x", 5]},
}
SCORES: dict[str, list[Any]] = {
    "Ridge": [("r2", 1.0), ("r2", 2), ("r2", NAN), ("rmse", 0), ("rmse", -1), ("accuracy", 0.5), "r2", 3, ("r2",)],
    "LogisticRegression": [("accuracy", 1.5), ("accuracy", 0), ("log_loss", -1), ("auc", 0.5), "accuracy", []],
    "HuberSVC": [("accuracy", 1), ("log_loss", 0.5), {"accuracy": 0.9}],
}
TABLES: dict[str, Any] = {
    "one column": X[:, 0],
    "three dimensions": X[None],
    "no rows": X[:0],
    "no columns": X[:, :0],
    "nothing": None,
    "a path": "visits.parquet",
    "a path object": Path("visits.parquet"),
    "a mapping": {"a": X[:, 0]},
    "text": np.array([[SECRET, "b", "c"]] * ROWS),
    "objects": np.array([[1, 2, SECRET]] * ROWS, dtype=object),
    "complex": X + 1j,
    "fewer rows": X[:10],
    "a frame with text": pd.DataFrame({"a": [SECRET] * ROWS, "b": 1.0, "c": 2.0}),
    "an Arrow table with text": pa.table({"a": [SECRET] * ROWS, "b": X[:, 0], "c": X[:, 1]}),
    "a column twice": pd.DataFrame(X, columns=["a", "a", "b"]),
    "an Arrow column twice": pa.Table.from_arrays([pa.array(X[:, 0])] * 3, names=["a", "a", "b"]),
}
TARGETS: dict[str, Any] = {
    "nothing": None,
    "two columns": np.c_[LABELS, LABELS],
    "fewer": LABELS[:10],
    "text": np.array([SECRET] * ROWS),
    "Arrow text": pa.array([SECRET] * ROWS),
    "pandas text": pd.Series([SECRET] * ROWS, dtype="string"),
    "polars text": pl.Series([SECRET] * ROWS),
    "complex": LABELS + 1j,
    "dates": np.zeros(ROWS, "datetime64[s]"),
}


def refused(action: Callable[[], object]) -> str:
    """What is said; anything but a refusal before the charge fails."""
    with pytest.raises(ExpostError) as raised:
        action()
    assert raised.value.cost == "nothing spent, data untouched"
    text = str(raised.value)
    assert text.endswith(".") and SECRET not in text and "223" not in text
    return text


def fit(name: str, changes: Mapping[str, Any], table: Any = X, target: Any = None) -> Any:
    make, terms, usual = MODELS[name]
    return make(**(terms | dict(changes))).fit(table, usual if target is None else target)


SETTINGS = [
    pytest.param(name, setting, value, id=f"{name}-{setting}-{value}"[:60])
    for name in MODELS
    for setting, values in (EVERY | OWN[name]).items()
    for value in values
]


@pytest.mark.parametrize(("name", "setting", "value"), SETTINGS)
def test_a_wrong_setting_of_a_linear_model_is_refused(name: str, setting: str, value: Any) -> None:
    refused(lambda: fit(name, {setting: value}))


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_score_of_a_linear_model_is_refused(name: str) -> None:
    for score in SCORES[name]:
        refused(lambda score=score: fit(name, {"epsilon": None, "score": score}))
    good = SCORES[name][0][0], 0.5
    for changes in ({"max_epsilon": 0}, {"max_epsilon": "x"}, {"max_epsilon": 1e-9}, {"delta": 1e-6}):
        refused(lambda changes=changes: fit(name, {"epsilon": None, "score": good} | changes))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_table_is_refused_by_a_linear_model_without_its_values(name: str, kind: str) -> None:
    text = refused(lambda: fit(name, {}, TABLES[kind]))
    if "twice" in kind:
        assert "twice" in text and "'a'" in text
    if "path" in kind:
        assert "expost.Dataset" in text


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_target_is_refused_by_a_linear_model_without_its_values(name: str, kind: str) -> None:
    make, terms, _ = MODELS[name]
    refused(lambda: make(**terms).fit(X, TARGETS[kind]))


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_column_of_text_of_a_dataset_is_no_target_of_a_regression(adjacency: str) -> None:
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "word": [SECRET] * ROWS})
    known = {"rows": ROWS} if adjacency == "replace-one" else {}
    people = expost.Dataset(table, adjacency=adjacency, **known)

    make, terms, _ = MODELS["Ridge"]
    refused(lambda: make(**terms)._read_table(people, "word", ("a", "b", "c")))
    refused(lambda: expost.Session(people, budget=9).fit(make(**terms), features=["a", "b", "c"], target="word"))


def test_three_classes_are_told_which_estimators_learn_them() -> None:
    text = refused(lambda: fit("LogisticRegression", {"classes": (0, 1, 2)}))

    assert "SGDClassifier" in text and "expost.Classifier" in text
