"""What is not said is chosen from public facts: the way, the penalty, the bounds of a described dataset."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

import expost
from expost import Dataset, InvalidRequest


def table(rows: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, (rows, 4))
    return x, x @ [1.0, 2.0, -1.0, 0.5] * 10 + 20 * rng.normal(size=rows)


BOX, ENDS = [(0, 100)] * 4, (-1200.0, 3800.0)


def test_ridge_at_a_given_epsilon_takes_moments_where_a_tilt_has_no_room() -> None:
    x, y = table()
    terms = {"bounds": BOX, "target_bounds": ENDS, "fit_intercept": True, "simulation_seed": 1}
    loose = expost.Ridge(epsilon=1, regularization=1e-4, **terms).fit(x, y)
    roomy = expost.Ridge(epsilon=1, regularization=0.05, **terms).fit(x, y)

    assert "moments" in loose.receipt_.method
    assert "objective perturbation" in roomy.receipt_.method
    assert loose.score(x, y) > 0.6
    assert loose.receipt_.epsilon == 1
    with pytest.raises(InvalidRequest, match=r"objective perturbation .* got 1\.0"):
        expost.Ridge(epsilon=1, regularization=1e-4, method="objective", **terms).fit(x, y)


def test_the_bound_of_shrunk_coefficients_holds() -> None:
    x, y = table()
    terms = {"bounds": BOX, "target_bounds": ENDS, "regularization": 0.05, "method": "certificate"}
    best = expost.Ridge(epsilon=10**6, simulation_seed=0, **terms).fit(x, y)

    def risk(model: expost.Ridge) -> float:
        return float(((y - model.predict(x)) ** 2).mean() / 2 + 0.05 / 2 * ((model.coef_ * 100) ** 2).sum())

    for seed in range(10):
        model = expost.Ridge(epsilon=3, simulation_seed=seed, failure_probability=0.2, **terms).fit(x, y)
        if model.receipt_.achieved is not None:
            # The middle of the targets is predicted for coefficients of zero; the penalty is on scaled columns.
            assert risk(model) - risk(best) <= model.receipt_.achieved * (1 + 1e-6)


def test_the_default_penalty_of_classifiers_learns_at_every_epsilon() -> None:
    rng = np.random.default_rng(2)
    x = (rng.uniform(size=(20_000, 20)) < 0.5) / 20.0  # rows of 1-norm about a half: short for a fixed penalty
    label = (x[:, 0] + x[:, 1] + 0.5 * x[:, 2] > 0.06).astype(int)
    majority = max(label.mean(), 1 - label.mean())
    for make in (expost.LogisticRegression, expost.HuberSVC):
        for epsilon in (1.0, 3.0):
            model = make(epsilon=epsilon, classes=(0, 1), feature_bound=1.0, simulation_seed=1).fit(x, label)
            assert (model.predict(x) == label).mean() > majority + 0.05
    assert model.receipt_.terms["regularization"] < 1e-3


def test_the_default_penalty_falls_with_epsilon_and_rows_and_is_fixed_for_an_excess_risk() -> None:
    x, label = np.full((4000, 2), 0.3), np.tile([0, 1], 2000)

    def penalty(rows: int, **terms) -> float:
        made = expost.LogisticRegression(
            classes=(0, 1), feature_bound=1.0, max_epsilon=50 if "epsilon" not in terms else None, **terms
        )
        return made.fit(x[:rows], label[:rows]).receipt_.terms["regularization"]

    assert penalty(4000, epsilon=1) < penalty(4000, epsilon=0.5) < penalty(2000, epsilon=0.5)
    assert penalty(4000, excess_risk=0.1) == 0.005
    assert penalty(4000, epsilon=1, regularization=0.25) == 0.25


def test_the_default_penalty_learns_with_an_intercept_and_a_box_of_many_columns() -> None:
    rng = np.random.default_rng(2)
    x = (rng.uniform(size=(30_000, 40)) < 0.3).astype(float)  # a one-hot table: most entries are zero
    label = (x[:, :4].sum(axis=1) + 0.3 * rng.normal(size=30_000) > 1.5).astype(int)
    majority = max(label.mean(), 1 - label.mean())
    for epsilon in (1.0, 3.0):
        terms = {"epsilon": epsilon, "classes": (0, 1), "bounds": [(0, 1)] * 40, "simulation_seed": 1}
        model = expost.LogisticRegression(fit_intercept=True, **terms).fit(x, label)
        assert model.score(x, label) > majority + 0.02, epsilon


def test_a_described_dataset_supplies_its_bounds_once() -> None:
    x, y = table()
    columns = {name: x[:, place] for place, name in enumerate("abcd")} | {"y": y}
    bounds = {name: (0, 100) for name in "abcd"} | {"y": ENDS}
    described = Dataset(pa.table(columns), bounds=bounds, adjacency="replace-one", rows=len(y))
    terms = {"epsilon": 3, "regularization": 0.01, "simulation_seed": 3}
    own = expost.Ridge(**terms).fit(described, "y")
    told = expost.Ridge(bounds=BOX, target_bounds=ENDS, **terms).fit(x, y)

    assert np.array_equal(own.coef_, told.coef_)


UNDECLARED: dict[str, tuple[Any, list[str]]] = {
    "ridge": (expost.Ridge(epsilon=1), ["bounds=[(LOW, HIGH)", "feature_bound=1.0", "target_bounds=(LOW, HIGH)"]),
    "ridge, features": (expost.Ridge(epsilon=1, target_bounds=1.0), ["bounds=[(LOW, HIGH)", "feature_bound=1.0"]),
    "ridge, target": (expost.Ridge(epsilon=1, feature_bound=400.0), ["target_bounds=(LOW, HIGH)"]),
    "ridge, target of a box": (expost.Ridge(epsilon=1, bounds=BOX), ["target_bounds=(LOW, HIGH)"]),
    "logistic": (expost.LogisticRegression(epsilon=1, classes=(0, 1)), ["bounds=[(LOW, HIGH)", "feature_bound=1.0"]),
    "svm": (expost.HuberSVC(epsilon=1, classes=(0, 1)), ["bounds=[(LOW, HIGH)", "feature_bound=1.0"]),
    "descent": (
        expost.SGDRegressor(epsilon=1, rows=6000),
        ["bounds=[(LOW, HIGH)", "feature_bound=1.0", "target_bounds=(LOW, HIGH)"],
    ),
    "descent, target": (expost.SGDRegressor(epsilon=1, rows=6000, bounds=BOX), ["target_bounds=(LOW, HIGH)"]),
    "descent, classes": (
        expost.SGDClassifier(epsilon=1, rows=6000, classes=[0, 1]),
        ["bounds=[(LOW, HIGH)", "feature_bound=1.0"],
    ),
}


@pytest.mark.parametrize("name", UNDECLARED)
def test_bounds_that_nobody_declared_are_refused_with_a_line_to_paste_and_cost_nothing(name: str, tmp_path) -> None:
    x, y = table()
    model, lines = UNDECLARED[name]
    path = str(tmp_path / "bounds.ledger")
    model = clone(model).set_params(ledger=path)

    with pytest.raises(InvalidRequest) as refused:
        model.fit(x, (y > 0).astype(int) if hasattr(model, "classes") else y)

    text = str(refused.value)
    assert all(line in text for line in lines)
    every = ("bounds=[(LOW", "feature_bound=1.0", "target_bounds=(LOW")
    assert sum(each in text for each in every) == len(lines)  # what was declared is not asked for again
    assert refused.value.cost.startswith("nothing spent")
    assert not Path(path).exists()


def test_the_template_names_the_columns_of_a_table_that_has_names() -> None:
    x, y = table(100)
    frame = pd.DataFrame(x, columns=["age", "hours", "rank", "size"])

    with pytest.raises(InvalidRequest, match=r'bounds=\{"age": \(LOW, HIGH\), "hours": \(LOW, HIGH\), "rank"'):
        expost.Ridge(epsilon=1, target_bounds=ENDS).fit(frame, y)
    with pytest.raises(InvalidRequest, match=r"bounds=\[\(LOW, HIGH\)\] \* 24"):
        expost.SGDRegressor(epsilon=1, rows=100, target_bounds=ENDS).fit(np.tile(x, 6), y)


def test_a_dataset_without_bounds_may_be_described_instead() -> None:
    x, y = table(100)
    columns = {name: x[:, place] for place, name in enumerate("abcd")} | {"y": y}

    with pytest.raises(InvalidRequest, match="or describe the Dataset with bounds="):
        expost.Ridge(epsilon=1).fit(Dataset(pa.table(columns)), "y")
    with pytest.raises(InvalidRequest, match="or describe the Dataset with bounds="):
        expost.SGDRegressor(epsilon=1, rows=100).fit(Dataset(pa.table(columns)), "y")


def test_a_described_dataset_supplies_bounds_to_gradient_descent(tmp_path) -> None:
    x, y = table()
    columns = {name: x[:, place] for place, name in enumerate("abcd")} | {"y": y}
    bounds = {name: (0, 100) for name in "abcd"} | {"y": ENDS}
    terms = {"epsilon": 3, "rows": len(y), "steps": 20, "simulation_seed": 3}
    own = expost.SGDRegressor(**terms).fit(Dataset(pa.table(columns), bounds=bounds), "y")
    told = expost.SGDRegressor(bounds=BOX, target_bounds=ENDS, **terms).fit(x, y)
    expost.save_model(own, tmp_path / "model.json")

    assert np.array_equal(own.predict(x), told.predict(x))
    assert np.array_equal(expost.load_model(tmp_path / "model.json").predict(x), told.predict(x))
    assert np.array_equal(pickle.loads(pickle.dumps(own)).predict(x), told.predict(x))


def test_a_dataset_described_in_part_names_what_is_missing() -> None:
    x, y = table(100)
    columns = {name: x[:, place] for place, name in enumerate("abcd")} | {"y": y}
    described = Dataset(pa.table(columns), bounds={"a": (0, 100)})

    with pytest.raises(InvalidRequest, match=r"none for b, c, d\. Describe the dataset with bounds=\{\"b\": \(LOW"):
        expost.Ridge(epsilon=1).fit(described, "y")


def test_a_receipt_says_where_the_noise_hides_what_many_columns_could_show() -> None:
    random = np.random.default_rng(0)
    features = np.eye(50)[random.integers(0, 50, 5000)]
    labels = (features[:, :25].sum(axis=1) > 0).astype(int)

    def terms(**more: Any) -> dict[str, Any]:
        given: dict[str, Any] = {"classes": (0, 1), "bounds": [(0, 1)] * 50, "simulation_seed": 1} | more
        return dict(expost.LogisticRegression(**given).fit(features, labels).receipt_.terms)

    assert "expost.Classifier" in terms(epsilon=0.1)["noise"]
    assert "noise" not in terms(epsilon=20) and "noise" not in terms(epsilon=1, feature_bound=1.0)
