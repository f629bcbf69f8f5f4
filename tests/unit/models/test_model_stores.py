"""pickle, joblib and skops load what was saved, and predict the same bits."""

import datetime
import importlib
import io
import pickle
import re
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np
import pandas
import pytest

import expost
from expost.core import Receipt
from expost.core.question_cap import QuestionCap
from expost.models.plain_state import read_plain_state, write_plain_state

PAGE = Path(__file__).parents[3] / "docs" / "scikit-learn.md"
SEED = {"simulation_seed": 1}
DESCENT = {"rows": 400, "steps": 5, "feature_bound": 2.0, "epsilon": 1.0, **SEED}
SCALE = expost.StandardScaler(epsilon=1.0, bounds=(-1, 1))
MODELS: dict[str, Any] = {
    "Ridge": expost.Ridge(epsilon=1.0, method="certificate", bounds=[(-1, 1)] * 3, target_bounds=1.0, **SEED),
    "Ridge, tilt": expost.Ridge(epsilon=50.0, feature_bound=1.0, target_bounds=1.0, **SEED),
    "LogisticRegression": expost.LogisticRegression(epsilon=5.0, classes=[0, 1], feature_bound=1.0, **SEED),
    "HuberSVC": expost.HuberSVC(epsilon=5.0, classes=[0, 1], fit_intercept=True, feature_bound=1.0, **SEED),
    "SGDClassifier": expost.SGDClassifier(classes=[0, 1, 2], **DESCENT),
    "SGDRegressor": expost.SGDRegressor(target_bounds=(0, 1), **DESCENT),
    "StandardScaler": expost.StandardScaler(epsilon=1.0, bounds=(-1, 1), **SEED),
    "PCA": expost.PCA(2, epsilon=1.0, bounds=(-1, 1), **SEED),
    "SelectKBest": expost.SelectKBest(2, epsilon=1.0, bounds=(-1, 1), classes=[0, 1], **SEED),
    "Pipeline": expost.Pipeline(
        [
            ("scale", SCALE),
            ("model", expost.SGDClassifier(classes=[0, 1], epsilon=1.0, rows=400, steps=5, feature_bound=1.0)),
        ],
        **SEED,
    ),
}


TABULAR = {"epsilon": 2.0, "columns": (-1, 1), **SEED}
MODELS |= {
    "Classifier": expost.Classifier(classes=[0, 1], report=["auc", "coefficients"], calibrate=True, **TABULAR),
    "Classifier, pure": expost.Classifier(classes=[0, 1], delta=0, class_weight=None, select=2, **TABULAR),
    "Classifier, balanced": expost.Classifier(classes=[0, 1, 2], class_weight="balanced", select=1, **TABULAR),
    "Regressor": expost.Regressor(target_bounds=(0, 1), report=["coefficients"], **TABULAR),
    "Regressor, moments": expost.Regressor(target_bounds=(0, 1), delta=0, method="moments", **TABULAR),
}
MIXED = pandas.DataFrame(
    {
        "age": np.random.default_rng(1).uniform(0, 90, 3000),
        "city": pandas.Series(np.random.default_rng(2).choice(["Rome", "Oslo"], 3000), dtype="string"),
        "since": pandas.date_range("2024-01-01", periods=3000, freq="h"),
        "member": np.arange(3000) % 3 == 0,
        "id": np.arange(3000) // 2,
    }
)
MIXED["old"] = np.where(MIXED["age"] > 40, "yes", "no")
DECLARED = {
    "age": (0, 90),
    "city": "private",
    "since": (datetime.date(2024, 1, 1), datetime.date(2024, 12, 31)),
    "member": "boolean",
    "old": ["no", "yes"],
}


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (400, 3))
    x[::50, 1] = np.nan
    return x, (x[:, 0] > 0).astype(int)


def outputs(model: Any, x: np.ndarray) -> bytes:
    read = [name for name in ("predict", "predict_proba", "decision_function", "transform") if hasattr(model, name)]
    return b"".join(np.ascontiguousarray(getattr(model, name)(x)).tobytes() for name in read)


def by_pickle(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


def by_joblib(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def by_skops(model: Any) -> Any:
    store = importlib.import_module("skops.io")
    data = store.dumps(model)
    unknown = store.get_untrusted_types(data=data)
    assert set(unknown) <= trusted_types(), unknown
    return store.loads(data, trusted=sorted(trusted_types()))


def trusted_types() -> set[str]:
    """The types that the page tells people to trust."""
    section = PAGE.read_text(encoding="utf-8").split("TRUSTED = [")[1].split("]")[0]
    return set(re.findall(r'"([\w.]+)"', section))


@pytest.mark.parametrize("store", [by_pickle, by_joblib, by_skops], ids=lambda store: store.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_predicts_the_same_bits(name: str, store: Any) -> None:
    if store is by_skops:
        pytest.importorskip("skops")
    x, y = rows()
    model = MODELS[name].fit(x, y)

    again = store(model)

    assert outputs(again, x) == outputs(model, x) != b""
    assert isinstance(again.receipt_, Receipt)
    assert again.receipt_ == model.receipt_
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()


def by_file(model: Any) -> Any:
    with TemporaryDirectory() as folder:
        expost.save_model(model, f"{folder}/model.json")
        return expost.load_model(f"{folder}/model.json")


@pytest.mark.parametrize("store", [by_pickle, by_joblib, by_skops, by_file], ids=lambda store: store.__name__)
@pytest.mark.parametrize("select", [None, 2])
def test_a_stored_model_of_a_mixed_table_is_the_same_with_its_card(store: Any, select: int | None) -> None:
    if store is by_skops:
        pytest.importorskip("skops")
    model = expost.Classifier(
        **{"columns": DECLARED, "epsilon": 4.0, "select": select, "unit": "id", "max_rows_per_unit": 2, **SEED}
    ).fit(MIXED, target="old")

    again = store(model)

    assert outputs(again, MIXED) == outputs(model, MIXED) != b""
    assert again.card().to_dict() == model.card().to_dict()
    assert again.selected_columns_ == model.selected_columns_
    assert list(again.feature_names_in_) == list(model.feature_names_in_) == ["age", "city", "since", "member"]
    lines = dict(again.card().sections[0].lines)
    assert "age: (0, 90)" in lines["declared columns"] and lines["classes"] == "(no, yes)"


def test_a_file_can_name_records_of_this_package_only() -> None:
    for name in ("os:system", "expost.core.release:draw_picture", "expost.models.plain_state:importlib"):
        with pytest.raises((ValueError, KeyError)):
            read_plain_state({"expost kind": "record", "type": name, "fields": {}})


def test_a_cap_keeps_its_source() -> None:
    cap = QuestionCap(Fraction(1, 10), "a tenth")

    again = read_plain_state(write_plain_state({"cap": [cap]}))["cap"][0]

    assert isinstance(again, QuestionCap)
    assert (again, again.source) == (cap, "a tenth")
