import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone

import expost

GENERATOR = np.random.default_rng(3)
ROWS = GENERATOR.random((4_000, 3)) / 3
TARGET = ROWS @ np.array([1.0, -0.5, 0.2])
RIDGE = expost.Ridge(excess_risk=0.05, max_epsilon=5.0, feature_bound=1.0, target_bounds=1.0)


def fitted() -> expost.Ridge:
    return clone(RIDGE).fit(ROWS, TARGET)


def test_a_model_predicts_the_same_after_a_round_trip(tmp_path) -> None:
    model = fitted()
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    np.testing.assert_array_equal(again.predict(ROWS[:10]), model.predict(ROWS[:10]))
    assert again.receipt_ == model.receipt_


def test_a_classifier_keeps_its_classes(tmp_path) -> None:
    labels = np.where(np.median(TARGET) < TARGET, "late", "early")
    model = expost.LogisticRegression(
        excess_risk=0.05, classes=("early", "late"), max_epsilon=5.0, feature_bound=1.0
    ).fit(ROWS, labels)
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    assert again.predict(ROWS[:10]).tolist() == model.predict(ROWS[:10]).tolist()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 9, "estimator": "Ridge"}', '{"estimator": "os.system"}'])
def test_a_file_that_is_no_model_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)

    with pytest.raises(expost.InvalidRequest, match="model file"):
        expost.load_model(path)


def test_the_file_is_plain_json_without_exact_values(tmp_path) -> None:
    expost.save_model(fitted(), tmp_path / "model.json")

    document = json.loads((tmp_path / "model.json").read_text())

    assert set(document) == {
        "format",
        "estimator",
        "coefficients",
        "intercept",
        "limits",
        "reading",
        "features",
        "classes",
        "receipt",
    }


def gappy(kind=np.asarray) -> object:
    rows = ROWS[:6].copy()
    rows[::2, 1] = np.nan
    return kind(rows)


@pytest.mark.parametrize("bounds", [None, [(-0.5, 1), (-0.25, 1), (0, 1)]], ids=["no bounds", "bounds"])
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_missing_values_are_predicted_alike_before_and_after_a_round_trip(tmp_path, bounds, kind) -> None:
    reach = {"target_bounds": 1.0, "feature_bound": 1.0 if bounds is None else None}
    model = expost.Ridge(excess_risk=0.05, max_epsilon=50.0, bounds=bounds, **reach).fit(ROWS, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    again = expost.load_model(tmp_path / "model.json")
    filled = np.nan_to_num(gappy(), nan=0.0 if bounds is None else -0.25)

    expected = model.predict(filled)

    np.testing.assert_allclose(model.predict(gappy(kind)), expected, rtol=1e-12)
    np.testing.assert_allclose(again.predict(gappy(kind)), expected, rtol=1e-12)
    expost.save_model(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()


@pytest.mark.parametrize("bounds", [None, [(-0.5, 1), (-0.25, 1), (0, 1)]], ids=["no bounds", "bounds"])
def test_an_older_file_still_predicts_and_guesses_no_missing_value(tmp_path, bounds) -> None:
    reach = {"target_bounds": 1.0, "feature_bound": 1.0 if bounds is None else None}
    model = expost.Ridge(excess_risk=0.05, max_epsilon=50.0, bounds=bounds, **reach).fit(ROWS, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    del document["reading"]
    (tmp_path / "model.json").write_text(json.dumps(document | {"format": 1}))

    with pytest.warns(UserWarning, match="did not keep how rows were read"):
        again = expost.load_model(tmp_path / "model.json")

    np.testing.assert_allclose(again.predict(ROWS[:6]), model.predict(ROWS[:6]), atol=1e-5)
    told = again.predict(gappy())
    assert np.isnan(told[::2]).all() == (bounds is not None)
    np.testing.assert_allclose(told[1::2], model.predict(ROWS[1:6:2]), atol=1e-5)
    expost.save_model(again, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["format"] == 1


def test_the_limit_of_an_older_file_is_kept_for_both_signs(tmp_path) -> None:
    model = expost.Ridge(score=("rmse", 0.9), max_epsilon=50.0, feature_bound=1.0, target_bounds=1.0).fit(ROWS, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text()) | {"format": 1, "limit": 0.01}
    del document["reading"], document["limits"]
    (tmp_path / "model.json").write_text(json.dumps(document))

    with pytest.warns(UserWarning, match="did not keep how rows were read"):
        again = expost.load_model(tmp_path / "model.json")

    assert np.abs(again.predict(ROWS)).max() == 0.01


GROUPS = np.digitize(TARGET, np.quantile(TARGET, [1 / 3, 2 / 3]))
MIXED = np.array([1, "b"], object)
SEEDED = {"rows": 4_000, "epsilon": 2.0, "feature_bound": 1.0, "steps": 10, "simulation_seed": 1}
GRADIENT_MODELS = {
    "two classes": (expost.SGDClassifier(classes=[0, 1], **SEEDED), (GROUPS > 0).astype(int)),
    "three classes": (expost.SGDClassifier(classes=["x", "y", "z"], **SEEDED), np.array(["x", "y", "z"])[GROUPS]),
    "flags": (expost.SGDClassifier(classes="observed", **SEEDED), GROUPS > 0),
    "mixed labels": (expost.SGDClassifier(classes=MIXED, **SEEDED), MIXED[(GROUPS > 0).astype(int)]),
    "regression": (expost.SGDRegressor(target_bounds=(-2, 7), loss="huber", **SEEDED), TARGET),
    "no intercept": (expost.SGDRegressor(fit_intercept=False, target_bounds=1.0, **SEEDED), TARGET),
    "newton": (
        expost.SGDRegressor(solver="newton", target_bounds=1.0, bounds=[(-0.5, 1), (-0.25, 1), (0, 1)], **SEEDED),
        TARGET,
    ),
    "newton classifier": (expost.SGDClassifier(solver="newton", classes=[3, 1], **SEEDED), np.where(GROUPS, 1, 3)),
}


@pytest.mark.parametrize("name", GRADIENT_MODELS)
def test_a_model_of_gradient_descent_predicts_the_same_after_a_round_trip(tmp_path, name: str) -> None:
    unfitted, labels = GRADIENT_MODELS[name]
    model = clone(unfitted).fit(ROWS, labels)
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    for rows in (ROWS[:50], gappy(), gappy(scipy.sparse.csr_array)):
        assert again.predict(rows).tolist() == model.predict(rows).tolist()
        if hasattr(model, "predict_proba"):
            np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
            np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    assert again.receipt_ == model.receipt_
    np.testing.assert_array_equal(again.coef_, model.coef_)
    expost.save_model(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()
    with pytest.raises(expost.InvalidRequest, match="2 features"):
        again.predict(ROWS[:, :2])


def test_a_model_of_named_columns_knows_them_after_a_round_trip(tmp_path) -> None:
    table = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    model = clone(GRADIENT_MODELS["regression"][0]).fit(table, TARGET)
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    np.testing.assert_array_equal(again.predict(table[:9]), model.predict(table[:9]))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table[["c", "b", "a"]])


def test_a_model_fitted_to_a_dataset_or_an_arrow_table_knows_its_columns(tmp_path) -> None:
    table = pa.table({"a": ROWS[:, 0], "y": (GROUPS > 0).astype(int), "b": ROWS[:, 1], "c": ROWS[:, 2]})
    terms = {"epsilon": 4.0, "classes": [0, 1], "feature_bound": 1.0, "simulation_seed": 1}
    public = {"rows": 4_000, "steps": 3, "batches": "full", "delta": 1e-6, **terms}
    removed, replaced = (expost.Dataset(table, name="people"), {"adjacency": "replace-one", "rows": 4_000})
    kinds = {
        "gradient descent": (expost.SGDClassifier(**public), removed),
        "one line": (expost.LogisticRegression(**terms), expost.Dataset(table, name="people", **replaced)),
    }
    file = tmp_path / "model.json"
    for model, people in kinds.values():
        budget = expost.approx(100, 1e-3)
        chosen = expost.Session(people, budget).fit(clone(model), features=["c", "a"], target="y")
        whole = clone(model).fit(people, "y")
        arrow = clone(model).fit(table.drop_columns("y"), table["y"])
        for found, names in ((chosen, ["c", "a"]), (whole, ["a", "b", "c"]), (arrow, ["a", "b", "c"])):
            expost.save_model(found, file)
            again = expost.load_model(file)
            expost.save_model(again, file)

            assert json.loads(file.read_text())["features"] == names
            frame = pd.DataFrame(ROWS[:, [ord(name) - ord("a") for name in names]], columns=names)
            assert again.predict(frame).tolist() == found.predict(frame.to_numpy()).tolist()
            with pytest.raises(ValueError, match="feature names"):
                again.predict(frame[names[::-1]])
    several = [expost.SGDClassifier(clip=clip, **public | {"epsilon": None}) for clip in (0.5, 1.0)]
    expost.save_model(expost.fit_one_of(several, removed, "y", score=("accuracy", 0.1), max_epsilon=4.0), file)
    assert json.loads(file.read_text())["features"] == ["a", "b", "c"]


def test_the_chosen_one_of_several_models_can_be_saved(tmp_path) -> None:
    public = {"classes": [0, 1], "rows": 4_000, "feature_bound": 1.0, "steps": 5, "simulation_seed": 1}
    models = [expost.SGDClassifier(clip=clip, **public) for clip in (0.5, 1.0)]
    model = expost.fit_one_of(models, ROWS, (GROUPS > 0).astype(int), score=("accuracy", 0.5), max_epsilon=4.0)
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    assert again.predict(ROWS).tolist() == model.predict(ROWS).tolist()


def test_the_file_of_a_model_of_gradient_descent_has_released_and_public_numbers_only(tmp_path) -> None:
    model = clone(GRADIENT_MODELS["newton"][0]).fit(ROWS, TARGET)
    expost.save_model(model, tmp_path / "model.json")

    document = json.loads((tmp_path / "model.json").read_text())

    assert document.pop("receipt") == model.receipt_.to_dict()
    assert document == {
        "format": 2,
        "estimator": "SGDRegressor",
        "coefficients": model.release_.value.coefficients.tolist(),
        "intercepts": model.release_.value.intercepts.tolist(),
        "reading": {
            "bound": 1.0,
            "lows": [-0.5, -0.25, 0.0],
            "highs": [1.0, 1.0, 1.0],
            "intercept": True,
            "weights": model.release_.value.reading.weights.tolist(),
        },
        "features": None,
        "target_bounds": [-1.0, 1.0],
        "classes": None,
    }


@pytest.mark.parametrize(
    "model", [expost.SGDClassifier(), "a model", None, fitted], ids=["not fitted", "text", "nothing", "a function"]
)
def test_what_is_no_fitted_model_is_not_saved(tmp_path, model) -> None:
    with pytest.raises(expost.InvalidRequest, match="Expected a fitted Ridge"):
        expost.save_model(model, tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["nowhere/model.json", ".", "a\0b", None, 3])
def test_a_place_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch, path) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(expost.InvalidRequest, match="file that can be written"):
        expost.save_model(clone(GRADIENT_MODELS["regression"][0]).fit(ROWS, TARGET), path)


def test_classes_that_json_has_no_word_for_are_refused(tmp_path) -> None:
    days = np.array(["2026-01-01", "2026-01-02"], "datetime64[ns]")
    model = expost.SGDClassifier(classes=days, **SEEDED).fit(ROWS, days[(GROUPS > 0).astype(int)])

    with pytest.raises(expost.InvalidRequest, match="numbers or text"):
        expost.save_model(model, tmp_path / "model.json")


CHANGES = {
    "SGDClassifier": {
        "coefficients": [
            [],
            [[]],
            [1.0, 2.0, 3.0],
            [[1.0, 2.0], [1.0]],
            [["1", "2", "3"]],
            [[1.0, float("nan"), 2.0]],
            7,
        ],
        "intercepts": [[], [0.0, 0.0], 0.0, ["0"], [float("inf")], None],
        "classes": [None, [], [0], [0, 1, 2], [[0], [1]], "01", [None, 1]],
        "features": ["abc", ["a"], [1, 2, 3], {}],
        "reading": [None, {}, [], "ball"],
        "receipt": [None, {}, [], "paid"],
        "estimator": ["SGDRegressor", "Ridge", "os.system", None, ["Ridge"], "PrivateGradientModel"],
        "format": [1, 3, "2", None],
    },
    "SGDRegressor": {"target_bounds": [None, [1.0], [1.0, 0.0], [0.0, float("nan")], "ab"], "classes": [[0, 1]]},
    "Ridge": {
        "coefficients": [[], [[1.0, 2.0, 3.0]], ["1", "2", "3"], None, [float("inf"), 0.0, 0.0]],
        "intercept": [None, [], "0", float("nan")],
        "limits": ["1", [1.0], float("nan")],
        "classes": [[0, 1]],
        "features": [["a"]],
        "reading": [None, {}, [], "ball"],
    },
}
READINGS = {
    "bound": [0.0, -1.0, None, "1", float("inf"), []],
    "lows": [[0.0] * 3, [0.0], "abc", 1.0],
    "highs": [[1.0] * 3, [1.0, 1.0], [float("nan")] * 3],
    "intercept": [None, 1, "yes"],
    "norm": ["l7", None, 2],
    "coefficients": [[], [1.0], None, [float("nan")] * 3, [[1.0, 2.0, 3.0]]],
    "weights": [[], [1.0], None, [[float("nan")] * 4], [[1.0, 2.0]], [[1.0] * 9]],
    "target_bounds": [0.0, -1.0, None, "1", [1.0, -1.0], [0.0]],
}


@pytest.mark.parametrize("kind", ["SGDRegressor", "Ridge"])
def test_a_reading_that_was_changed_is_refused_whatever_part_it_is(tmp_path, kind: str) -> None:
    path = tmp_path / "model.json"
    unfitted, labels = GRADIENT_MODELS["regression"] if kind == "SGDRegressor" else (RIDGE, TARGET)
    expost.save_model(clone(unfitted).fit(ROWS, labels), path)
    document = json.loads(path.read_text())

    for part in document["reading"]:
        for value in READINGS[part]:
            path.write_text(json.dumps(document | {"reading": document["reading"] | {part: value}}))
            with pytest.raises(expost.InvalidRequest, match="Expected a model file"):
                expost.load_model(path)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_file_that_was_changed_is_refused_whatever_part_it_is(tmp_path, kind: str) -> None:
    path = tmp_path / "model.json"
    names = {"SGDClassifier": "two classes", "SGDRegressor": "regression"}
    unfitted, labels = GRADIENT_MODELS[names[kind]] if kind in names else (RIDGE, TARGET)
    expost.save_model(clone(unfitted).fit(ROWS, labels), path)
    document = json.loads(path.read_text())

    for part in document:
        wrong = [document | {part: value} for value in CHANGES[kind].get(part, [])]
        for changed in [*wrong, {name: value for name, value in document.items() if name != part}]:
            path.write_text(json.dumps(changed))
            with pytest.raises(expost.InvalidRequest, match="Expected a model file") as caught:
                expost.load_model(path)
            assert caught.value.__suppress_context__, part
    path.write_text("[" * 100_000)
    with pytest.raises(expost.InvalidRequest, match="Expected a model file"):
        expost.load_model(path)
